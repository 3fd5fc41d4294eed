"""Arrays from what users give: numbers of one shape, and errors that name the place."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from bagwise.errors import InputError, Place

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def numbers(values: ArrayLike, name: str, ndim: int, gaps: bool = False) -> FloatArray:
    """Finite numbers of `ndim` dimensions; with `gaps`, NaN too."""
    array = plain_array(values, name, ndim).astype(np.float64)
    wrong = np.isinf(array) if gaps else ~np.isfinite(array)
    if wrong.any():
        bad = np.argwhere(wrong)[0]
        raise InputError(
            f"{name}[{_place(bad)}] is {array[tuple(bad)]}; finite numbers are needed."
        )
    return array


def whole_numbers(values: ArrayLike, name: str, ndim: int) -> IntArray:
    """Whole numbers of `ndim` dimensions."""
    array = plain_array(values, name, ndim)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    found = numbers(array, name, ndim)
    refuse_fractions(found, name)
    return np.rint(found).astype(np.int64)


def refuse_fractions(found: FloatArray, name: str) -> None:
    """Refuse numbers that are not whole, or too large to tell; NaN passes."""
    if (np.abs(found) > 2**53).any():
        bad = np.argwhere(np.abs(found) > 2**53)[0]
        raise InputError(f"{name}[{_place(bad)}] is {found[tuple(bad)]:g}; that is too large.")
    wrong = ~np.isnan(found) & (found != np.rint(found))
    if wrong.any():
        bad = np.argwhere(wrong)[0]
        hint = "; if these are proportions, use Bags.from_proportions" if name == "counts" else ""
        raise InputError(
            f"{name}[{_place(bad)}] is {found[tuple(bad)]:g}; whole numbers are needed{hint}."
        )


_HIDDEN = (
    "bags are given a tensor whose numbers cannot be read, as those of torch.vmap or of a compiled "
    "step; make the bags outside. One Bags holds many bags: give a loss the logits of all of them, "
    '(N, C), and reduction="none" for a value of each.'
)


def plain_array(values: ArrayLike, name: str, ndim: int) -> npt.NDArray[Any]:
    """Numbers of `ndim` dimensions as they are given, in numpy."""
    values = without_torch(values)
    if isinstance(values, np.ma.MaskedArray):  # what is masked is not known
        values = (
            np.ma.filled(values.astype(np.float64), np.nan) if values.mask.any() else values.data
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} has rows of different lengths; give a full table.") from error
    except RuntimeError as error:  # a list of tensors
        raise InputError(_HIDDEN) from error
    if array.ndim != ndim:
        expected = {1: "one dimension is", 2: "two dimensions (bags, classes) are"}[ndim]
        raise InputError(f"{name} has shape {array.shape}; {expected} expected.")
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype == object:
        array = _of_objects(array)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} holds {array.dtype} values; numbers are needed.")
    return array


def is_tensor(values: object) -> bool:
    """Whether these are numbers of PyTorch, which is not imported to know it."""
    # To PyTorch's compilers, arrays have the methods of tensors.
    return not isinstance(values, np.ndarray) and hasattr(values, "is_floating_point")


def without_torch(values: Any) -> Any:
    """A tensor as an array, anything else as it is."""
    if not is_tensor(values):
        return values
    values = values.detach().cpu()
    try:
        return (values.double() if values.is_floating_point() else values).numpy()
    except RuntimeError as error:
        raise InputError(_HIDDEN) from error


def _of_objects(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers that are objects, as pandas has them beside NA: NaN for what is not there."""
    missing = np.array([value is None or _is_na(value) for value in array.flat])
    filled = np.where(missing.reshape(array.shape), math.nan, array)
    if all(isinstance(value, Number) for value in filled.flat):
        return filled.astype(np.float64)
    return array


def _is_na(value: object) -> bool:
    return type(value).__name__ in ("NAType", "NaTType")


def first(bad: npt.NDArray[np.bool_] | np.bool_) -> int | None:
    """The first place where it is so."""
    return int(np.argmax(bad)) if bad.any() else None


def _place(index: npt.NDArray[np.intp]) -> str:
    return ", ".join(str(int(i)) for i in index)


def shown_row(values: npt.NDArray[Any]) -> str:
    """Numbers of a bag as errors show them."""
    shown = ", ".join(f"{value:g}" for value in values[:12])
    return f"[{shown}{', ...' if len(values) > 12 else ''}]"


def bag_sizes(sizes: ArrayLike) -> IntArray:
    """(B,) sizes of bags, each at least 1."""
    found = whole_numbers(sizes, "sizes", ndim=1)
    if (bad := first(found < 1)) is not None:
        raise InputError(Place("bag", bad), f" has size {found[bad]}; leave empty bags out.")
    return found


def row_weights(weights: ArrayLike | None, sizes: IntArray) -> IntArray | None:
    """(N,) how many identical rows each row stands for; None where each stands for itself."""
    if weights is None:
        return None
    found, n = numbers(weights, "weights", ndim=1), int(sizes.sum())
    if len(found) != n:
        raise InputError(f"there are {len(found)} weights for {n} rows; give one for each row.")
    if (bad := first((found < 1) | (found != np.rint(found)) | (found > 2**53))) is not None:
        raise InputError(
            f"weights[{bad}] is {found[bad]:g}; the number of identical rows that a row stands for "
            "is needed, a whole number from 1 on. Survey weights are not supported."
        )
    return None if (found == 1).all() else found.astype(np.int64)


def totals_of(sizes: IntArray, weights: IntArray | None) -> IntArray:
    """(B,) instances of each bag, every row as often as its weight says."""
    if weights is None or len(sizes) == 0:
        return sizes
    totals: IntArray = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
    return totals


def bag_table(values: ArrayLike, sizes: IntArray, name: str, gaps: bool = False) -> FloatArray:
    """(B, C) finite numbers, a row for each bag; with `gaps`, NaN too."""
    found = numbers(values, name, 2, gaps)
    check_table(found, sizes, name)
    return found


def check_table(found: npt.NDArray[Any], sizes: IntArray, name: str) -> None:
    """Refuse a table that has not a row for each bag."""
    if len(sizes) != len(found):
        raise InputError(
            f"sizes describes {len(sizes)} bags and {name} {len(found)}; "
            f"give one row of {name.replace('_', ' ')} for each bag."
        )
    if len(sizes) == 0 or found.shape[1] == 0:
        raise InputError(
            f"{name} has shape {found.shape}; at least one bag and one class are needed."
        )
    if (bad := first(sizes < 1)) is not None:
        raise InputError(Place("bag", bad), f" has size {sizes[bad]}; leave empty bags out.")
