"""The rows that scikit-learn's validation returns, dense or sparse, as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from bagwise.errors import InputError
from bagwise.limits import LIMITS, Limits

Rows = Any
"""(N, ...) numbers, or a sparse (N, d) matrix in CSR format."""

_PIECE_ROWS = 1024


def to_tensor(rows: Rows, kind: npt.DTypeLike, limits: Limits = LIMITS) -> torch.Tensor:
    """All rows as a dense tensor of their own memory.

    Sparse rows are made dense only up to `limits.dense_bytes`: a text of a hundred thousand words
    has a few hundred of them, and the zeros would fill the memory.

    >>> to_tensor(sparse.csr_array([[0.0, 2.0]]), np.float32)
    tensor([[0., 2.]])
    """
    if sparse.issparse(rows):
        size = int(np.prod(rows.shape, dtype=object)) * np.dtype(kind).itemsize
        if size > limits.dense_bytes:
            raise InputError(
                f"X is sparse, of {rows.shape[0]} rows and {rows.shape[1]} columns; made dense for "
                f"training it would take {size / 2**30:.1f} GiB, and at most "
                f"{limits.dense_bytes / 2**30:g} GiB are taken. Reduce its columns first, for "
                "instance by sklearn.decomposition.TruncatedSVD in a pipeline, or by max_features "
                "of a vectorizer."
            )
        return torch.from_numpy(rows.astype(kind, copy=False).toarray(order="C"))
    return torch.from_numpy(np.array(rows, dtype=kind, order="C"))  # a copy may be written to


def pieces(rows: Rows, kind: npt.DTypeLike, limits: Limits = LIMITS) -> Iterator[torch.Tensor]:
    """The rows as dense tensors one after the other: all at once, or sparse ones a few at a time.

    >>> [tuple(piece.shape) for piece in pieces(sparse.csr_array((3000, 2**13)), np.float32)]
    [(2048, 8192), (952, 8192)]
    """
    step = len_ = rows.shape[0]
    if sparse.issparse(rows):
        step = max(1, limits.dense_piece_bytes // (rows.shape[1] * np.dtype(kind).itemsize))
        if step > _PIECE_ROWS:
            step -= step % _PIECE_ROWS
    for start in range(0, len_, step):
        yield to_tensor(rows[start : start + step], kind, limits)
