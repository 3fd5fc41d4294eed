"""A linear model fitted again to samples of its bags, in parallel; what was stopped goes on."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch

import bagwise
from bagwise.bags import Bags, FloatArray
from bagwise.data import BagData
from bagwise.errors import InputError
from bagwise.likelihood import LinearFit, bootstrap_bags
from bagwise.likelihood.coefficient_intervals import interval_ridge
from bagwise.progress import WorkProgress
from bagwise.storage.files import load_tensors, save_tensors
from bagwise.storage.journal import Tensors, Workspace
from bagwise.tables.model.stored_covariance import fit_of
from bagwise.tables.model.table_model import TableModel
from bagwise.training.workers import DiedError, Workers

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

_PIECE = 5  # fits that are kept together
_DATA = "data.safetensors"
_BAGS = ("sizes", "low", "packed")  # `Bags.tensors`


def bootstrap_coefficients(
    model: TableModel,
    data: BagData,
    draws: int,
    processes: int = 1,
    keep: Path | None = None,
    progress: bool = False,
) -> FloatArray:
    """(draws, d + 1, C) weights and, last, intercept of fits to bags drawn with replacement.

    They begin at the fit that intervals are made of, and have its ridge.

    Args:
        model: linear, with intervals.
        data: what it was fitted to.
        draws: how many.
        processes: that fit at the same time.
        keep: the model's folder. Fits are kept in a hidden folder beside it, if one may write
            there and no other bootstrap does, which is removed when all are done; what was stopped
            goes on there.
        progress: show a bar, on a terminal.
    """
    known, ridge = model.intervals, model.facts.settings.ridge
    assert known is not None
    assert ridge is not None
    pieces = [range(n, min(n + _PIECE, draws)) for n in range(0, draws, _PIECE)]
    identity = {
        "versions": [bagwise.__version__, torch.__version__],
        "ridge": ridge,
        "weights": known.fit.weights.tolist(),
        "data": data.fingerprint(),
    }
    with (
        _place(keep) as place,
        Workspace(place, identity, "bootstrap") as work,
        WorkProgress("bootstrap", "fits", draws, progress) as bar,
    ):
        folder = work.folder
        assert folder is not None
        save_tensors(
            folder / _DATA,
            {
                "inputs": torch.as_tensor(data.inputs),
                **_tensors_of(data.bags),
                "weights": torch.from_numpy(known.fit.weights),
                "intercept": torch.from_numpy(known.fit.intercept),
            },
            {"ridge": interval_ridge(ridge)},
        )
        missing = [piece for piece in pieces if not work.has(_name(piece))]
        bar.advance(draws - sum(map(len, missing)))
        if processes > 1 and len(missing) > 1:
            _in_parallel(folder, missing, processes, bar)
        else:
            for piece in missing:
                _fit_piece(folder, piece)
                bar.advance(len(piece))
        # What is damaged by now is made again.
        parts = [work.once(_name(piece), partial(_fitted, folder, piece)) for piece in pieces]
        work.clear()
        _data.cache_clear()
    drawn: FloatArray = torch.cat([part["coefficients"] for part in parts]).numpy()
    return drawn


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    """What fits are kept beside: `keep`, or a temporary place where one may not write there, or
    another bootstrap of the same model is doing so.
    """
    with tempfile.TemporaryDirectory() as own, ExitStack() as stack:
        place = Path(own) / "model"
        if keep is not None and os.access(keep.resolve().parent, os.W_OK) and fcntl is not None:
            handle = os.open(keep, os.O_RDONLY)
            stack.callback(os.close, handle)
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                place = keep
        yield place


def _in_parallel(folder: Path, pieces: Sequence[range], processes: int, bar: WorkProgress) -> None:
    waiting = list(reversed(pieces))
    with Workers[range](min(processes, len(pieces))) as workers:
        while waiting or workers.busy:
            while waiting and workers.submit(waiting[-1], _fit_piece, folder, waiting[-1]):
                waiting.pop()
            try:
                piece, error = workers.next()
            except DiedError:
                raise InputError(
                    "a process of the bootstrap died, perhaps for want of memory; give the same "
                    "command again with fewer --processes, it goes on from there."
                ) from None
            if error is not None:
                raise InputError(f"a fit of the bootstrap failed: {error}")
            bar.advance(len(piece))


def _name(piece: range) -> str:
    return f"draws-{piece.start}-{piece.stop}"


def _fit_piece(folder: Path, piece: range) -> None:
    save_tensors(folder / f"{_name(piece)}.safetensors", _fitted(folder, piece), {})


def _fitted(folder: Path, piece: range) -> Tensors:
    X, bags, fit = _data(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a draw may be hard to fit
        drawn = list(bootstrap_bags(X, bags, fit, piece))
    coefficients = np.stack([np.vstack([d.weights, d.intercept]) for d in drawn])
    return {"coefficients": torch.from_numpy(coefficients)}


def _tensors_of(bags: Bags) -> Tensors:
    """What is known of bags; `Bags.of_tensors` makes them again."""
    pairs = zip(_BAGS, bags.tensors, strict=True)
    return {name: tensor for name, tensor in pairs if tensor is not None}


@lru_cache(maxsize=1)
def _data(folder: Path) -> tuple[FloatArray, Bags, LinearFit]:
    """What a process fits to; read once."""
    tensors, facts = load_tensors(folder / _DATA)
    bags = Bags.of_tensors(*(tensors[name] for name in _BAGS if name in tensors))
    fit = fit_of(tensors["weights"].numpy(), tensors["intercept"].numpy(), facts["ridge"])
    return tensors["inputs"].double().numpy(), bags, fit
