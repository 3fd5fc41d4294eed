"""fit.json, which keeps what a fit found."""

from __future__ import annotations

import re
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from bagwise.checks import wrong
from bagwise.errors import InputError
from bagwise.storage.typed_json import typed
from bagwise.tables.model.fit_facts import FitFacts
from bagwise.tables.model.table_facts import LARGE

FORMAT = 2
OLDEST = 1  # that is still read


def to_json(facts: FitFacts) -> dict[str, Any]:
    """The content of fit.json.

    "verdict" follows from the other fields; it is there for those who read the file.
    """
    verdict = {
        "code": facts.verdict,
        "gain": facts.held_out.gain,
        "gain_error": facts.held_out.gain_error,
        "gain_interval": [x if abs(x) < LARGE else None for x in facts.held_out.gain_interval],
        "overconfident": facts.is_overconfident,
        "undetermined": facts.is_undetermined,
        "bags_vary": facts.bags_vary,
        "bag_effects": facts.bag_effects,
        "limitations": facts.limitations,
    }
    return {"format": FORMAT, "verdict": verdict, **asdict(facts)}


def from_json(content: Any) -> FitFacts:
    """Read the content of fit.json; what is missing or of another form is an InputError.

    It names the first such field. What else the file holds does not matter.
    """
    if isinstance(content, dict) and content.get("format") == OLDEST:
        try:
            content = _upgraded(content)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"a part is missing or of another form ({error!r}).") from error
    facts = typed(content, FitFacts)
    _check_together(facts)
    return facts


def _check_together(facts: FitFacts) -> None:
    """What the types of single fields do not say."""
    data, settings, held_out = facts.data, facts.settings, facts.held_out
    by_class: dict[str, Any] = {
        "data.shares": data.shares,
        "held_out.correlation": held_out.correlation,
        "held_out.error": held_out.error,
        "held_out.baseline_error": held_out.baseline_error,
        "held_out.calibration": held_out.calibration,
    }
    for i, bag in enumerate(held_out.bags):
        by_class |= {f"held_out.bags[{i}].true": bag.true}
        by_class |= {f"held_out.bags[{i}].predicted": bag.predicted}
    for i, odd in enumerate(facts.surprising):
        by_class |= {f"surprising[{i}].counts": odd.counts}
        by_class |= {f"surprising[{i}].expected": odd.expected}
    for place, values in by_class.items():
        if len(values) != len(data.classes):
            raise wrong(values, place, f"a list of {len(data.classes)}")
    for name in ("lr", "epochs"):
        if settings.ridge is None and getattr(settings, name) is None:
            raise wrong(None, f"settings.{name}", "a number, or one for settings.ridge,")
    histogram = data.sizes.histogram
    if len(histogram.edges) != len(histogram.counts) + 1:
        raise wrong(histogram.edges, "data.sizes.histogram.edges", "one more than counts")
    if any(b <= a for a, b in pairwise(histogram.edges)):
        raise InputError("data.sizes.histogram.edges do not grow.")
    if data.inexact_bags and data.labels:
        from bagwise.labels.label_spec import SPEC_CHECK  # which imports scipy

        SPEC_CHECK(data.labels, "data.labels")


# --- format 1, which held sentences


def _upgraded(old: dict[str, Any]) -> dict[str, Any]:
    """The content of fit.json of format 1 in the present form, its sentences as codes.

    The error of the overall shares is that in the bags that the file lists.
    """
    data, held_out = dict(old["data"]), dict(old["held_out"])
    data["labels"] = label_codes(data.pop("counts_are", ""))
    data["labeled_rows"] = data.pop("labelled_rows", 0)
    held_out["coverage"] = [
        {"level": float(name.removesuffix(" %")) / 100, "share": share}
        for name, share in held_out["coverage"].items()
    ]
    true = zip(*(bag["true"] for bag in held_out["bags"]), strict=True)
    gaps = [
        [abs(x - share) for x in of_class if x is not None]
        for share, of_class in zip(data["shares"], true, strict=True)
    ]
    held_out["baseline_error"] = [sum(gap) / len(gap) if gap else None for gap in gaps]
    tau = old["settings"].get("bag_effects")
    tried = [_candidate(tau, *trial) for trial in old["tried"]]
    return {**old, "data": data, "held_out": held_out, "tried": tried}


def _candidate(tau: Any, model: str, setting: str, bag_loss: float) -> dict[str, Any]:
    """A candidate from its setting in words: "learning rate 0.01, 5 epochs", for one."""
    patterns = {
        "ridge": r"ridge (\S+?)(?:,|$)",
        "lr": r"learning rate (\S+?)(?:,|$)",
        "epochs": r"(\d+) epochs",
        "folds": r"left after (\d+) of",
    }
    found = {code: re.search(pattern, setting) for code, pattern in patterns.items()}
    numbers: dict[str, float] = {code: float(match[1]) for code, match in found.items() if match}
    numbers |= {code: int(numbers[code]) for code in ("epochs", "folds") if code in numbers}
    return {
        "model": model,
        "bag_loss": bag_loss,
        "some_bags": "on a part of the bags" in setting,
        "tau": tau if setting.startswith("bag effects") else None,
        **numbers,
    }


def label_codes(words: str) -> dict[str, Any]:
    """What the numbers of labels are, from the words of format 1; empty where they were exact.

    >>> label_codes("noisy counts, discrete Laplace noise of width 1.5, clipped at 0")["noise"]
    'discrete-laplace'
    >>> label_codes("percentages rounded to whole numbers")
    {'kind': 'rounded', 'decimals': 0, 'percent': True}
    """
    if noise := re.match(
        r"noisy counts, (.*) noise of widths? (\S+?)(?: to (\S+?))?(?:,|$)", words
    ):
        widths = [float(x) for x in noise.groups()[1:] if x is not None]
        return {
            "kind": "noisy",
            "noise": noise[1].lower().replace(" ", "-"),
            "width": widths if len(widths) > 1 else widths[0],
            "clipped": words.endswith("clipped at 0"),
        }
    if rounded := re.match(r"(percentages|shares) rounded to (\d*)", words):
        percent = rounded[1] == "percentages"
        return {"kind": "rounded", "decimals": int(rounded[2] or 0), "percent": percent}
    kinds = {"ranges of": "ranges", "counts of larger": "sample", "counts, some": "counts"}
    return next(({"kind": kind} for start, kind in kinds.items() if words.startswith(start)), {})
