"""How good a model is on rows whose labels are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.bags import FloatArray, IntArray
from bagwise.errors import InputError
from bagwise.progress import RowProgress
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.bag_names import bag_ids
from bagwise.tables.labels.row_count_column import row_counts
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.read.values import category_texts, cleaned
from bagwise.tables.use.counted_rows import weight_column
from bagwise.wording import table_words

BINS = 15


@dataclass(frozen=True, repr=False)
class Scores:
    """What labeled rows say about a model.

    Attributes:
        classes: class labels.
        n: rows that have a label.
        unlabeled: rows that have none; they are left out.
        accuracy: share of rows whose most probable class is the true one.
        log_loss: mean -log of the probability of the true class.
        most_frequent: accuracy of always saying the class that most of these rows have.
        constant_log_loss: log loss of giving every row the shares of the classes in these rows.
        calibration_error: expected calibration error over 15 equal bins of confidence.
        precision: (C,).
        recall: (C,).
        f1: (C,).
        auc: (C,) area under the ROC curve of each class against the others; NaN where these rows
            have only one of the two.
        support: (C,) rows of each class.
        confusion: (C, C) rows by true (first axis) and predicted class.
        surprises: what the rows had that the training rows had not.
    """

    classes: list[str]
    n: int
    unlabeled: int
    accuracy: float
    log_loss: float
    most_frequent: float
    constant_log_loss: float
    calibration_error: float
    precision: FloatArray
    recall: FloatArray
    f1: FloatArray
    auc: FloatArray
    support: IntArray
    confusion: IntArray
    surprises: Surprises

    def __repr__(self) -> str:
        return "\n".join(table_words.scores(self))

    @property
    def macro_auc(self) -> float:
        """Mean of the classes' AUC; NaN where none has one."""
        known = self.auc[~np.isnan(self.auc)]
        return float(known.mean()) if len(known) else float("nan")


def evaluate_table(
    model: FittedTable,
    data: Table,
    target: str,
    progress: bool = False,
    weights: str | None = None,
) -> Scores:
    """Compare predictions with the column `target`.

    Rows without a label are left out: blank cells, and words for a missing value (`NA`) that are no
    class of the model. A model with bag effects uses those of its bags, where the table says which
    bag a row is in. With `weights`, a row counts as often as that column says.
    """
    source = model.with_context(open_rows(data))
    source.require([target, *model.columns.names])
    weights = weight_column(model, source, weights)
    copies = None if weights is None else row_counts(source, weights)
    key = model.bag_columns(source.schema.names)
    surprises = Surprises()
    known = pa.array(model.classes, pa.string())
    truth, predictions, labeled = [], [], []
    row = 0
    with RowProgress("predicting", source.rows, progress) as bar:
        for batch in source.batches(list(dict.fromkeys([target, *key, *model.columns.names]))):
            texts = category_texts(batch.column(target))
            classes = pc.index_in(texts, value_set=known)
            unknown = pc.and_(classes.is_null(), cleaned(texts).is_valid())
            if (place := unknown.index(True).as_py()) >= 0:
                raise InputError(
                    f"the column {target!r} has {texts[place].as_py()!r} in row {row + place + 1}, "
                    f"which is not a class of the model; it knows {', '.join(model.classes)}."
                )
            there = classes.is_valid()
            labeled.append(there.to_numpy(zero_copy_only=False))
            inputs = model.columns.encode(batch, row, surprises)
            truth.append(classes.filter(there).to_numpy())
            bags = bag_ids(batch, key).filter(there) if key else None
            predictions.append(model.predict(inputs[labeled[-1]], bags))
            row += batch.num_rows
            bar.advance(batch.num_rows)
    if not row:
        raise InputError(f"{source.name} has no rows.")
    y, log_probs = np.concatenate(truth), np.concatenate(predictions)
    if copies is not None:
        there = np.concatenate(labeled)
        y, log_probs = (np.repeat(x, copies[there], axis=0) for x in (y, log_probs))
        row = int(copies.sum())
    if not len(y):
        raise InputError(f"no row of {source.name} has a label in the column {target!r}.")
    guess, confidence = log_probs.argmax(-1), np.exp(log_probs.max(-1))
    shares = np.bincount(y) / len(y)
    C = len(model.classes)
    confusion = np.bincount(y.astype(np.int64) * C + guess, minlength=C * C).reshape(C, C)
    right, support = confusion.diagonal(), confusion.sum(axis=1)
    precision, recall = _ratio(right, confusion.sum(axis=0)), _ratio(right, support)
    return Scores(
        classes=model.classes,
        n=len(y),
        unlabeled=row - len(y),
        accuracy=float((y == guess).mean()),
        log_loss=float(-log_probs[np.arange(len(y)), y].mean()),
        most_frequent=float(shares.max()),
        constant_log_loss=float(-(shares * np.log(np.maximum(shares, 1e-300))).sum()),
        calibration_error=calibration_error(confidence, y == guess),
        precision=precision,
        recall=recall,
        f1=_ratio(2 * right, support + confusion.sum(axis=0)),
        auc=np.array([area_under_curve(y == c, log_probs[:, c]) for c in range(C)]),
        support=support,
        confusion=confusion,
        surprises=surprises,
    )


def _ratio(part: IntArray, whole: IntArray) -> FloatArray:
    """Shares; 0 of nothing."""
    found: FloatArray = part / np.maximum(whole, 1)
    return found


def area_under_curve(is_class: npt.NDArray[np.bool_], scores: FloatArray) -> float:
    """Area under the ROC curve: how often a row of the class has a higher score than another one,
    equal ones counted half; NaN where there are only rows of one kind.

    >>> area_under_curve(np.array([True, False, True]), np.array([0.9, 0.5, 0.5]))
    0.75
    """
    n, others = int(is_class.sum()), int((~is_class).sum())
    if not n or not others:
        return float("nan")
    _, place, size = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(size) - (size - 1) / 2)[place]  # of equal scores, their mean
    return float((ranks[is_class].sum() - n * (n + 1) / 2) / (n * others))


def calibration_error(confidence: FloatArray, correct: np.ndarray) -> float:
    """Expected calibration error: sum over bins of share * |accuracy - mean confidence|.

    >>> calibration_error(np.array([.9, .9, .6]), np.array([True, False, True]))
    0.4
    """
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    error = 0.0
    for b in np.unique(bins):
        there = bins == b
        gap = correct[there].mean() - confidence[there].mean()
        error += there.mean() * abs(float(gap))
    return round(float(error), 12)
