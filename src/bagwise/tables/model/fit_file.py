"""fit.json, which keeps what a fit found."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any, TypeVar

from bagwise.checks import (
    Check,
    any_number,
    anything,
    list_of,
    maybe,
    number,
    record,
    text,
    whole,
    wrong,
)
from bagwise.errors import InputError
from bagwise.tables.model.bag_differences import BagsDiffer
from bagwise.tables.model.fit_facts import (
    BagSizes,
    BinOfBags,
    CurvePoint,
    DataFacts,
    FitFacts,
    FitSettings,
    HeldOutBag,
    HeldOutFacts,
    Histogram,
    SurprisingBag,
    Tried,
)

FORMAT = 1
Made = TypeVar("Made")


def to_json(facts: FitFacts) -> dict[str, object]:
    """The content of fit.json."""
    content = {"format": FORMAT, **asdict(facts)}
    content["curve"] = [
        {name: value for name, value in point.items() if value is not None}
        for point in content["curve"]
    ]
    return content


def from_json(content: object) -> FitFacts:
    """Read the content of fit.json; what lacks or is of another form is a ValueError.

    It names the first such field. What else the file holds does not matter.
    """
    found = _checked(content)
    data, held_out = found["data"], found["held_out"]
    sizes = data["sizes"]
    histogram = _made(Histogram, sizes["histogram"])
    calibration = [[BinOfBags(*point) for point in bins] for bins in held_out["calibration"]]
    return _made(
        FitFacts,
        found,
        data=_made(DataFacts, data, sizes=_made(BagSizes, sizes, histogram=histogram)),
        settings=_made(FitSettings, found["settings"]),
        bags_differ=_made(BagsDiffer, found["bags_differ"]) if found.get("bags_differ") else None,
        tried=[Tried(*trial) for trial in found["tried"]],
        curve=[
            CurvePoint(point["epoch"], point.get("train"), point.get("held_out"))
            for point in found["curve"]
        ],
        held_out=_made(
            HeldOutFacts,
            held_out,
            calibration=calibration,
            bags=[_made(HeldOutBag, bag) for bag in held_out["bags"]],
        ),
        surprising=[_made(SurprisingBag, bag) for bag in found["surprising"]],
    )


def _made(kind: type[Made], content: dict[str, Any], **nested: object) -> Made:
    """A dataclass of the values under its fields' names, some of them made before.

    A field that an earlier version did not write has its default.
    """
    names = (field.name for field in fields(kind))  # type: ignore[arg-type]  # a dataclass
    known = content | nested
    return kind(**{name: known[name] for name in names if name in known})


def _checked(content: Any) -> dict[str, Any]:
    _with({"data": _with({"classes": list_of(text, 2)})})(content, "")
    _schema(len(content["data"]["classes"]))(content, "")
    settings = content["settings"]
    if settings["ridge"] is None:
        for name in ("lr", "epochs"):
            if settings[name] is None:
                raise wrong(None, f"settings.{name}", "a number, or one for settings.ridge")
    histogram = content["data"]["sizes"]["histogram"]
    if len(histogram["edges"]) != len(histogram["counts"]) + 1:
        raise wrong(histogram["edges"], "data.sizes.histogram.edges", "one more than counts")
    if any(b <= a for a, b in zip(histogram["edges"], histogram["edges"][1:], strict=False)):
        raise InputError("data.sizes.histogram.edges do not grow.")
    facts: dict[str, Any] = content
    return facts


def _schema(C: int) -> Check:
    """What fit.json must hold where there are C classes."""
    share = number(0, 1)
    shares, known = list_of(share, C, C), list_of(maybe(share), C, C)
    amounts = list_of(number(0), C, C)
    histogram = _with({"counts": list_of(whole(), 1), "edges": list_of(number(0), 2)})
    data = {
        "files": list_of(text),
        "bag_columns": list_of(text, 1),
        "rows": whole(),
        "rows_used": whole(),
        "n_bags": whole(1),
        "bags_left_out": whole(),
        "bags_left_out_names": list_of(text),
        "shares": shares,
        "sizes": _with(
            {
                "smallest": whole(1),
                "median": number(1),
                "largest": whole(1),
                "histogram": histogram,
            }
        ),
        "rounding": number(0),
        "n_features": whole(1),
    }
    of_counts = {"counts_are": text, "inexact_bags": whole(), "labelled_rows": whole()}
    settings = {
        "method": text,
        "engine": text,
        "model": text,
        "lr": maybe(number(0)),
        "epochs": maybe(whole(1)),
        "seed": whole(),
        "ridge": maybe(number(0)),
    }
    since = {"temperature": number(above=0, below=100), "bag_effects": maybe(number(0))}
    held_out = {
        "n_bags": whole(1),
        "n_instances": whole(1),
        "log_likelihood": number(),
        "baseline": number(),
        "gain_error": number(0, math.inf),
        "correlation": list_of(maybe(number(-1.01, 1.01)), C, C),
        "error": known,
        "coverage": record({}, others=share),
        "calibration": list_of(list_of(list_of(number(0), 3, 4)), C, C),
        "bags": list_of(
            _with({"bag": text, "size": whole(1), "true": known, "predicted": shares}), 1
        ),
    }
    surprising = {
        "bag": text,
        "size": whole(1),
        "counts": amounts,
        "expected": amounts,
        "surprise": number(),
    }
    return _with(
        {
            "command": text,
            "bagwise": text,
            "seconds": number(0),
            "folds": whole(1),
            "data": _with(data, of_counts),
            "settings": _with(settings, since),
            "tried": list_of(_trial, 1),
            "curve": list_of(record({"epoch": number(0)}, others=number())),
            "held_out": _with(held_out, {"covered_bags": maybe(whole())}),
            "surprising": list_of(_with(surprising)),
        },
        {"bags_differ": maybe(_with({"tau": number(0), "p_value": share}))},
    )


def _with(needed: dict[str, Check], optional: dict[str, Check] | None = None) -> Check:
    return record(needed, optional, others=anything)


def _trial(value: Any, place: str) -> None:
    list_of(anything, 3, 3)(value, place)
    for index, check in enumerate((text, text, any_number)):
        check(value[index], f"{place}[{index}]")
