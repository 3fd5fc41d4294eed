"""Bags in pickled files: their arrays as bytes, which restricted readers of pickles also take."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags.arrays import FloatArray, IntArray, totals_of
from bagwise.errors import DamagedError


def to_bytes(array: npt.NDArray[Any] | None) -> bytes | None:
    """The numbers of an array, in an order of bytes that does not depend on the machine."""
    return (
        None if array is None else array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    )


def whole_numbers_of(found: bytes) -> IntArray:
    """What `to_bytes` gave, as an array that may be written to."""
    return np.frombuffer(found, "<i8").astype(np.int64)


def refuse_damaged(
    sizes: IntArray,
    low: IntArray,
    packed: FloatArray | None,
    labels: IntArray | None,
    weights: IntArray | None,
) -> None:
    """Refuse arrays, `low` flat, that are not those of bags: kernels would read beyond them."""
    if not _are_of_bags(sizes, low, packed, labels, weights):
        raise DamagedError("the file holds bags that are not as they were saved; save them again.")


def _are_of_bags(
    sizes: IntArray,
    low: IntArray,
    packed: FloatArray | None,
    labels: IntArray | None,
    weights: IntArray | None,
) -> bool:
    if len(sizes) == 0 or len(low) == 0 or len(low) % len(sizes):
        return False
    low = low.reshape(len(sizes), -1)
    if sizes.min() < 1 or low.min() < 0 or sizes.sum(dtype=np.float64) > 2**53:
        return False
    of_rows = [array for array in (labels, weights) if array is not None]
    if any(len(array) != sizes.sum() for array in of_rows):
        return False
    if weights is not None and weights.min() < 1:
        return False
    if labels is not None and not -1 <= labels.min() <= labels.max() < low.shape[1]:
        return False
    totals = totals_of(sizes, weights)
    if packed is None:
        return bool((low.sum(axis=1) == totals).all())
    begins = packed[low.size : 2 * low.size + 1]
    widths = np.diff(begins)
    if len(widths) != low.size or begins[0] != 0 or begins[-1] != len(packed[2 * low.size + 1 :]):
        return False
    if not ((widths >= 1) & (widths == np.rint(widths))).all():
        return False
    high = low + widths.reshape(low.shape) - 1
    fit = (low.sum(axis=1) <= totals) & (totals <= high.sum(axis=1))
    return bool(fit.all() and (high <= totals[:, None]).all() and not np.isnan(packed).any())
