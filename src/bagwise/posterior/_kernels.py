"""How kernels are compiled, and how the bags of a call are spread over threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core import event

from bagwise.bags import FloatArray, IntArray

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Below this many elementary steps (about a millisecond) handing work to another thread costs more
# than it saves: the thread has to wake, and PyTorch's own may still be spinning on its core.
_WORTH_A_THREAD = 1_000_000

# Of bags with more instances than this, only what takes time in proportion to their size is done.
LARGE = 2048

_HELPER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # which take time to compile

_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile with numba: machine code kept on disk, the GIL released, a * b + c in one step.

    Where no folder for the machine code can be written, it is compiled anew by each process.
    """
    try:
        return _compiled(function, cache=True, no_cfunc_wrapper=True)
    except RuntimeError:  # numba finds no place for its cache
        return _compiled(function)


class _Compiling(event.Listener):
    """Says on a progress bar that kernels are being compiled, which happens once."""

    def __init__(self) -> None:
        self.depth = 0  # a kernel's helpers are compiled within it

    def on_start(self, event: object) -> None:
        self.depth += 1
        if self.depth == 1:
            _remark("compiling kernels, once")

    def on_end(self, event: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            _remark("")


def _remark(text: str) -> None:
    progress = sys.modules.get("bagwise.progress")
    if progress is not None:  # without it, there is no bar
        progress.remark(text)


event.register("numba:compile", _Compiling())  # type: ignore[no-untyped-call]


def inline(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile as `kernel` does, for a helper that only other kernels call: not from Python."""
    return _compiled(function, **_HELPER)


def inline_as_written(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same without a * b + c in one step.

    Where a loop runs in vectors, the compiler also keeps one that does not, for arrays that may
    overlap. They would round differently, and the answer depend on where arrays are in memory.
    """
    return _compiled(function, fastmath=False, **_HELPER)


def inline_ordered(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same for numbers that can all be compared (no NaN): their largest is found in vectors."""
    return _compiled(function, fastmath={"nnan", "nsz"})


def _compiled(function: Callable[_P, _R], **options: Any) -> Callable[_P, _R]:
    options = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy", **options}
    compiled: Callable[_P, _R] = numba.njit(**options)(function)
    return compiled


@inline
def log_sum_exp(x: FloatArray) -> float:
    """Log of the sum of exp(x), for x that are not all -inf."""
    top = x.max()
    return float(top + np.log(np.exp(x - top).sum()))


@inline
def written_out(rows: Any, copies: IntArray) -> Any:
    """Rows (K, A), each as often as `copies` (K,) says."""
    total = copies.sum()
    if total == len(rows):
        return rows
    found = np.empty((total, rows.shape[1]), rows.dtype)
    place = 0
    for k in range(len(rows)):
        for _ in range(copies[k]):
            for a in range(rows.shape[1]):  # rows as a whole take numba a second more to compile
                found[place, a] = rows[k, a]
            place += 1
    return found


@inline
def at_places(values: Any, places: IntArray) -> Any:
    """values[places] of one dimension."""
    found = np.empty(len(places), values.dtype)
    for i in range(len(places)):
        found[i] = values[places[i]]
    return found


def over_bags(
    run: Callable[[IntArray], Any], bags: IntArray, cost: npt.NDArray[np.floating]
) -> None:
    """Call `run(part)` for parts of `bags`, indexes of bags, that together are all of them.

    `cost` holds the elementary steps of each of them. At most `most_threads` take part. A bag is
    computed by one call alone, so results do not depend on the number of threads.
    """
    if len(bags) == 0:
        return
    threads = min(most_threads(), len(bags), 1 + int(cost.sum() // _WORTH_A_THREAD))
    if threads == 1:
        run(bags)
        return
    order = bags[np.argsort(-cost, kind="stable")]
    parts = [np.ascontiguousarray(order[start::threads]) for start in range(threads)]
    others = [_executor(threads - 1).submit(run, part) for part in parts[1:]]
    run(parts[0])
    for other in others:
        other.result()


def most_threads() -> int:
    """As many as PyTorch uses, if it is imported; else OMP_NUM_THREADS, or as there are cores."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):  # not while it is being imported
        return int(torch.get_num_threads())
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # of the outer loop
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):  # the cores that this process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _executor(workers: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    if _pool is None or _pool_size < workers:
        _pool = ThreadPoolExecutor(workers, thread_name_prefix="bagwise")
        _pool_size = workers
    return _pool


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: a child starts its own
    os.register_at_fork(after_in_child=_forget_pool)
