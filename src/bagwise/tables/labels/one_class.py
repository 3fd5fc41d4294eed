"""Label files with numbers of one of two classes: what they can be, and what the other one has."""

from __future__ import annotations

import re
import warnings

import numpy as np

from bagwise.bags import FloatArray, IntArray, bags_of_other_rows
from bagwise.errors import InputError
from bagwise.tables.labels.label_file import LabelTable
from bagwise.tables.labels.label_numbers import said

_MEANS = ("mean", "means", "avg", "average", "median", "score", "scores", "points", "index", "gpa")
"""Words in the name of a column that is hardly one of shares."""


def completed(labels: LabelTable, sizes: IntArray) -> FloatArray:
    """The numbers; a class that has the rest of each bag gets what the other one leaves.

    A mean of a score is a number from 0 to 1 as a share is, or from 0 to 100 as a percentage. Where
    no count of a bag's rows gives its number, it is refused, unless it is said to be a share.

    Args:
        labels: of all bags of the label file.
        sizes: (B,) how many rows each of them has.
    """
    are = labels.numbers_are
    without = np.isnan(labels.numbers).reshape(len(labels.ids), -1).all(axis=0)
    plain = said(are, "auto", "counts", "proportions", "relative", "sample")
    if len(labels.classes) != 2 or not plain or not without.any():
        return labels.numbers  # what is not known there may stay so
    c = int(np.argmin(without))
    own, used = labels.numbers[:, c], sizes > 0
    whole, most = (own == np.rint(own)).all(), own[used].max()
    if are == "counts" or (are == "auto" and whole and most > 1):
        totals = sizes.astype(np.float64)
    elif are == "proportions" or (are == "auto" and not whole):
        totals = np.full(len(own), 1.0 if most <= 1 else 100.0)
    else:
        raise InputError(
            f"{labels.source} has numbers of one class alone, and they do not say what they are; "
            "say --labels-are counts or proportions; relative and sample take a column of totals."
        )
    if (bad := used & ((own > totals) | (own < 0))).any():
        b = int(np.argmax(bad))
        percent = " If they are percentages, say --labels-are proportions." * bool(
            are == "auto" and most <= 100 and (own[used] >= 0).all()
        )
        raise InputError(
            f"{labels.source} has {own[b]:g} for bag {labels.ids[b]!r} of {sizes[b]} rows, which "
            f"is neither a count of these rows nor a share of them.{percent} Counts with noise are "
            "--labels-are noisy; of means and other numbers that count no rows nothing can be "
            "learnt."
        )
    if totals[0] != sizes[0] or not whole:
        _doubt_shares(labels, labels.classes[c], np.where(used, own / totals, 0), sizes)
    return np.where(without, np.maximum(totals - own, 0)[:, None], labels.numbers)


def _doubt_shares(labels: LabelTable, name: str, shares: FloatArray, sizes: IntArray) -> None:
    """Refuse numbers that are shares of other rows, or none at all; warn where that was said."""
    there = np.flatnonzero(sizes)
    odd = there[bags_of_other_rows(shares[there, None], sizes[there])]
    if len(odd):
        b = int(odd[0])
        what = (
            f"{name!r} of {labels.source} has {shares[b]:.6g} for bag {labels.ids[b]!r}, which is "
            f"no share of its {sizes[b]} rows, and so for {len(odd)} of {len(there)} bags"
        )
        if labels.numbers_are == "auto":
            raise InputError(
                f"{what}. If the numbers are means or anything else that is no share of a class, "
                "nothing can be learnt from them; if they are shares of a larger group, say "
                "--labels-are proportions, which takes the nearest counts."
            )
        warnings.warn(
            f"{what}; the nearest counts are taken. They should be shares of a class in a larger "
            "group: from means or other numbers nothing can be learnt.",
            UserWarning,
            stacklevel=5,
        )
    elif set(re.split(r"[^a-z]+", name.lower())) & set(_MEANS):
        warnings.warn(
            f"{name!r} of {labels.source} is taken for the share of a class among a bag's rows; if "
            "it is a mean, nothing can be learnt from it.",
            UserWarning,
            stacklevel=5,
        )
