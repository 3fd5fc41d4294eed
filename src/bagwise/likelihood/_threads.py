"""How many threads linear algebra takes for small problems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

SMALL = 1_000_000  # cells of X, below which threads are not worth waiting for each other


@contextmanager
def threads_for(cells: int) -> Iterator[None]:
    """One thread of BLAS for a small problem; as many as there were for a large one.

    L-BFGS works on a few dozen coefficients between evaluations. Threads that wait for each other
    there by spinning take longer than the rest of a fit, and many times that on a busy machine.
    """
    if cells >= SMALL:
        yield
        return
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
