"""The known shares of bags of which there are new rows."""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, Noise, rounding_slack
from bagwise.errors import InputError
from bagwise.labels.kinds import NumbersAre, Rounded
from bagwise.tables.labels.label_file import LabelTable
from bagwise.tables.labels.label_numbers import said

UNKNOWN_TOTAL = 1000.0  # rows that shares are taken to be of, where the file does not say


def refuse_inexact(labels_are: NumbersAre) -> None:
    """Shares of new rows' bags are taken as they stand: noise in them would be taken for truth."""
    if isinstance(labels_are, Noise) or said(labels_are, "ranges"):
        raise InputError(
            "predict takes counts and shares of bags as they stand, and cannot allow for noise or "
            "ranges in them. Leave --labels out; for the rows that were counted, use "
            "`bagwise label`, which can."
        )


def shares_of(labels: LabelTable, labels_are: NumbersAre = "auto") -> tuple[FloatArray, FloatArray]:
    """The shares (B, C) of classes in bags, and how many rows (B,) they are of.

    The rows that were counted need not be those of the table, so that counts may have any total.
    Shares and percentages do not say what they are of; they are taken to be of 1000 rows, beside
    which rounding does not matter.

    >>> labels = LabelTable(["A", "B"], ["no", "yes"], np.array([[3., 1.], [0., 5.]]), "bags.csv")
    >>> shares_of(labels)
    (array([[0.75, 0.25],
           [0.  , 1.  ]]), array([4., 5.]))
    """
    refuse_inexact(labels_are)
    if said(labels_are, "sample"):
        labels_are = "relative"
    elif isinstance(labels_are, Rounded) or said(labels_are, "rounded"):
        labels_are = "proportions"
    numbers = _with_rest(labels, labels_are)
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        b = int(np.argmax(~(np.isfinite(numbers) & (numbers >= 0)).all(axis=1)))
        raise InputError(
            f"bag {labels.ids[b]!r} of {labels.source} has {numbers[b].tolist()}; a count or a "
            "share of 0 or more is expected for each class."
        )
    totals = numbers.sum(axis=1)
    if not totals.all():
        b = int(np.argmin(totals))
        raise InputError(f"bag {labels.ids[b]!r} of {labels.source} has 0 for every class.")
    shares: FloatArray = numbers / totals[:, None]
    whole = bool((numbers == np.rint(numbers)).all())
    slack = rounding_slack(numbers)
    are_shares = any(bool((np.abs(totals / unit - 1) <= slack).all()) for unit in (1, 100))
    if labels_are == "relative" or (labels_are == "auto" and whole and totals.max() > 1):
        return shares, totals
    if labels_are == "counts":
        if not whole:
            b = int(np.argmax((numbers != np.rint(numbers)).any(axis=1)))
            raise InputError(
                f"bag {labels.ids[b]!r} of {labels.source} has {numbers[b].tolist()}, which are no "
                "counts; say --labels-are proportions or relative."
            )
        return shares, totals
    if not are_shares:
        off = np.minimum(np.abs(totals - 1), np.abs(totals / 100 - 1))
        b = int(np.argmax(off))
        raise InputError(
            f"the numbers of bag {labels.ids[b]!r} of {labels.source} sum to {totals[b]:g}: "
            f"{numbers[b].tolist()}; shares sum to 1 (all to 100, if in percent), counts are whole "
            "numbers. Counts that are not whole are --labels-are relative."
        )
    return shares, np.full(len(totals), UNKNOWN_TOTAL)


def _with_rest(labels: LabelTable, labels_are: NumbersAre) -> FloatArray:
    """The numbers; where the file has one of two classes alone, the other has the rest."""
    lacking = np.isnan(labels.numbers).all(axis=0)
    if not lacking.any():
        return labels.numbers
    own = labels.numbers[:, int(np.argmin(lacking))]
    whole = bool((own == np.rint(own)).all())
    if labels_are in ("counts", "relative") or (labels_are == "auto" and whole):
        raise InputError(
            f"{labels.source} has numbers of one class alone; counts need a column of the other or "
            "of totals. If they are shares, say --labels-are proportions."
        )
    unit = 1.0 if own.max() <= 1 else 100.0
    if own.max() > unit:
        b = int(np.argmax(own))
        raise InputError(f"bag {labels.ids[b]!r} of {labels.source} has {own[b]:g}, no share.")
    return np.where(lacking, (unit - own)[:, None], labels.numbers)
