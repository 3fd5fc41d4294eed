"""Label files with numbers of one of two classes: what they can be, and what the other one has."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bagwise.bags import FloatArray, IntArray, bags_of_other_rows
from bagwise.errors import BagwiseWarning, InputError, Option, naming, warn_user
from bagwise.labels.counts_or_shares import if_they_are_counts, with_rest
from bagwise.tables.labels.label_file import LabelTable

_MEANS = ("mean", "means", "avg", "average", "median", "score", "scores", "points", "index", "gpa")
"""Words in the name of a column that is hardly one of shares."""


def completed(labels: LabelTable, sizes: IntArray) -> FloatArray:
    """The numbers; a class without a column gets the rest of each bag.

    A mean of a score is a number from 0 to 1 as a share is, or from 0 to 100 as a percentage. Where
    no count of a bag's rows gives its number, it is refused, unless it is said to be a share.

    Args:
        labels: of all bags of the label file.
        sizes: (B,) how many rows each of them has.
    """
    with naming(bag=labels.ids, class_=labels.classes):
        numbers = with_rest(labels.numbers, labels.label_spec, sizes)
    if numbers is not labels.numbers:
        c = int(np.argmin(np.isnan(labels.numbers).all(axis=0)))
        own, totals = numbers[:, c], numbers.sum(axis=1)
        if ((own != np.rint(own)) | (totals != sizes))[sizes > 0].any():
            _doubt_shares(labels, c, own / np.maximum(totals, 1), sizes)
    return numbers


def _doubt_shares(labels: LabelTable, c: int, shares: FloatArray, sizes: IntArray) -> None:
    """Refuse numbers that are shares of other rows, or none at all; warn where that was said."""
    name, there = labels.classes[c], np.flatnonzero(sizes)
    doubt: list[Any]
    odd = there[bags_of_other_rows(shares[there, None], sizes[there])]
    if len(odd):
        b = int(odd[0])
        what = (
            f"{name!r} of {labels.source} has {shares[b]:.6g} for bag {labels.ids[b]!r}, which is "
            f"no share of its {sizes[b]} rows, and so for {len(odd)} of {len(there)} bags."
        )
        if labels.label_spec.kind == "auto":
            raise InputError(
                f"{what} Nothing can be learned from means and other numbers that are not shares. "
                "If they are shares of a larger group, say ",
                Option("labels_are", "proportions"),
                " for the nearest counts.",
            )
        doubt = [
            f"{what} The nearest counts are taken. They should be shares of a class in a larger "
            "group: nothing can be learned from means or other numbers.",
            *if_they_are_counts(labels.numbers[there, c], sizes[there]),
        ]
    elif set(re.split(r"[^a-z]+", name.lower())) & set(_MEANS):
        doubt = [
            f"{name!r} of {labels.source} is taken for the share of a class among a bag's rows. "
            "Nothing can be learned from it if it is a mean."
        ]
    else:
        return
    warn_user(BagwiseWarning(*doubt))
