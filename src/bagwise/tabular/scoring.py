"""How good a model is on rows whose labels are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from bagwise.bags import FloatArray, IntArray
from bagwise.tabular.columns import Surprises
from bagwise.tabular.model import TableModel
from bagwise.tabular.source import Paths, Source
from bagwise.tabular.values import category_texts
from bagwise.training.progress import RowProgress

BINS = 15


@dataclass(frozen=True)
class Scores:
    """What labelled rows say about a model.

    Attributes:
        classes: class labels.
        n: rows.
        accuracy: share of rows whose most probable class is the true one.
        log_loss: mean -log of the probability of the true class.
        calibration_error: expected calibration error over 15 equal bins of confidence.
        precision: (C,).
        recall: (C,).
        f1: (C,).
        support: (C,) rows of each class.
        confusion: (C, C) rows by true (first axis) and predicted class.
        surprises: what the rows had that the training rows had not.
    """

    classes: list[str]
    n: int
    accuracy: float
    log_loss: float
    calibration_error: float
    precision: FloatArray
    recall: FloatArray
    f1: FloatArray
    support: IntArray
    confusion: IntArray
    surprises: Surprises


def evaluate_table(model: TableModel, data: Paths, target: str, progress: bool = False) -> Scores:
    """Compare predictions with the column `target`."""
    source = Source(data, typed=False)
    source.require([target, *model.columns.names])
    surprises = Surprises()
    known = pa.array(model.classes, pa.string())
    truth, predicted, confidence, losses = [], [], [], []
    row = 0
    with RowProgress("predicting", source.rows, progress) as bar:
        for batch in source.batches(list(dict.fromkeys([target, *model.columns.names]))):
            texts = category_texts(batch.column(target))
            classes = pa.compute.index_in(texts, value_set=known)
            if classes.null_count:
                place = classes.is_null().index(True).as_py()
                raise ValueError(
                    f"the column {target!r} has {texts[place].as_py()!r} in row {row + place + 1}, "
                    f"which is no class of the model; it knows {', '.join(model.classes)}."
                )
            true = classes.to_numpy()
            log_probs = model.log_probs(model.columns.encode(batch, row, surprises)).double()
            truth.append(true)
            predicted.append(log_probs.argmax(-1).numpy())
            confidence.append(log_probs.max(-1).values.exp().numpy())
            losses.append(-log_probs.numpy()[np.arange(len(true)), true])
            row += len(true)
            bar.advance(len(true))
    if not row:
        raise ValueError(f"{source.files[0]} has no rows.")
    y, guess = np.concatenate(truth), np.concatenate(predicted)
    everything = np.arange(len(model.classes))
    precision, recall, f1, support = precision_recall_fscore_support(
        y, guess, labels=everything, zero_division=0
    )
    return Scores(
        classes=model.classes,
        n=row,
        accuracy=float((y == guess).mean()),
        log_loss=float(np.concatenate(losses).mean()),
        calibration_error=calibration_error(np.concatenate(confidence), y == guess),
        precision=precision,
        recall=recall,
        f1=f1,
        support=support,
        confusion=confusion_matrix(y, guess, labels=everything),
        surprises=surprises,
    )


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
