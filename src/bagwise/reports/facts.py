"""What fit.json must hold for a report to be made of it; what else it holds does not matter."""

from __future__ import annotations

from typing import Any

from bagwise.storage.schema import (
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


def _with(needed: dict[str, Check]) -> Check:
    return record(needed, others=anything)


_share = number(0, 1)


def _of_classes(inner: Check, classes: int) -> Check:
    return list_of(inner, classes, classes)


def _trial(value: Any, place: str) -> None:
    list_of(anything, 4, 4)(value, place)
    for index, check in enumerate((text, number(0), whole(), any_number)):
        check(value[index], f"{place}[{index}]")


def check_facts(facts: dict[str, Any]) -> None:
    """Refuse facts that lack something, or have it in another form, with the place of the first."""
    _with({"data": _with({"classes": list_of(text, 2)})})(facts, "")
    C = len(facts["data"]["classes"])
    shares = _of_classes(_share, C)
    data = {
        "files": list_of(text, 1),
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
                "histogram": _with({"counts": list_of(whole(), 1), "edges": list_of(number(0), 2)}),
            }
        ),
        "rounding": number(0),
        "n_features": whole(1),
    }
    bag = {"size": whole(1), "true": shares, "predicted": shares}
    point = list_of(number(0), 3, 3)
    held_out = {
        "log_likelihood": number(),
        "baseline": number(),
        "correlation": _of_classes(maybe(number(-1.01, 1.01)), C),
        "error": shares,
        "coverage": record({}, others=_share),
        "calibration": _of_classes(list_of(point, 1), C),
        "bags": list_of(_with(bag), 1),
    }
    surprising = {
        "bag": text,
        "size": whole(1),
        "counts": _of_classes(number(0), C),
        "expected": _of_classes(number(0), C),
        "surprise": number(),
    }
    _with(
        {
            "command": text,
            "bagwise": text,
            "seconds": number(0),
            "folds": whole(1),
            "data": _with(data),
            "settings": _with(
                {
                    "method": text,
                    "engine": text,
                    "model": text,
                    "lr": number(0),
                    "epochs": whole(1),
                }
            ),
            "tried": list_of(_trial, 1),
            "curve": list_of(record({"epoch": number(0)}, others=number()), 1),
            "held_out": _with(held_out),
            "surprising": list_of(_with(surprising)),
        }
    )(facts, "")
    histogram = facts["data"]["sizes"]["histogram"]
    if len(histogram["edges"]) != len(histogram["counts"]) + 1:
        raise wrong(histogram["edges"], "data.sizes.histogram.edges", "one more than counts")
    if any(b <= a for a, b in zip(histogram["edges"], histogram["edges"][1:], strict=False)):
        raise ValueError("data.sizes.histogram.edges do not grow.")
