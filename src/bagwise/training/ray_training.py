"""One training run by several workers of Ray Train, of which a lost one is replaced."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from bagwise.errors import BagwiseError, InputError, Option
from bagwise.extras import require
from bagwise.progress import TrainingProgress
from bagwise.ray_cluster import ATTEMPTS, cluster, n_cores
from bagwise.storage.files import unfinished
from bagwise.training.callbacks import Callback, Row
from bagwise.training.distributed import WorkerError, backend_for, is_launched

_LOOK = 0.5  # seconds between two looks at how far the workers are


def train_on_ray(
    work: Callable[..., object],
    folder: Path,
    workers: int | None,
    name: str,
    epochs: int,
    address: str | None = None,
    device: str = "cpu",
) -> None:
    """Have workers do the same work together, in one process group.

    Each has a core and a thread, and a GPU where the device is one. All are started again where one
    is lost, and the work has to go on from its checkpoint then. Only if that happens three times
    without an epoch between, it is given up. What a worker says is wrong is a `WorkerError` here.

    Args:
        work: called by each worker with `callbacks` and `device`.
        folder: on a disk that all workers see. A hidden folder in it serves Ray Train meanwhile.
        workers: how many; one for each core, or GPU, if not given.
        address: HOST:PORT of a cluster; None starts Ray on this machine.
    """
    if is_launched():
        raise InputError("torchrun started several processes already; use either torchrun or Ray.")
    if device not in ("cpu", "cuda"):
        raise InputError(f"device is {device!r}; with Ray cpu or cuda is expected, one each.")
    require("ray", "ray")
    require("pandas", "ray")  # which Ray Train needs
    folder = folder.absolute()
    with unfinished(folder / "ray", folder=True) as own, cluster(address, workers) as cores:
        there, unit = (n_cores("GPU"), "GPU") if device == "cuda" else (cores, "core")
        workers = workers or max(there, 1)
        if workers > there:
            raise InputError(
                f"{workers} workers need a {unit} each, and Ray has {there}; give fewer ",
                Option("workers"),
                ".",
            )
        board = _new_board()
        tell = {"work": work, "board": board, "folder": own, "device": device}
        trainer = _trainer(tell, workers, own, device)
        epochs_done = 0
        while not (state := _watched(trainer, board, name, epochs)).ended:
            if state.said:
                raise WorkerError(state.said[0])
            if len(state.history) <= epochs_done:
                raise WorkerError(
                    f"{state.lost or 'Ray Train failed'}, {ATTEMPTS} times without an epoch "
                    "between; out of memory? What is done is kept; rerun the command to "
                    "resume."
                )
            epochs_done = len(state.history)


def _trainer(tell: dict[str, Any], workers: int, own: Path, device: str) -> Any:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    return TorchTrainer(
        _join,
        train_loop_config=tell,
        torch_config=TorchConfig(backend_for(device)),
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=device.startswith("cuda")),
        run_config=RunConfig(
            name=own.name,
            storage_path=str(own.parent),
            failure_config=FailureConfig(max_failures=ATTEMPTS - 1),
        ),
    )


class _State(NamedTuple):
    """What workers have written on the board, and why Ray Train gave up, if it did."""

    history: list[dict[str, float]]
    said: list[str]  # what is wrong, the most telling first
    ended: bool
    lost: str = ""


def _new_board() -> Any:
    """An actor of Ray, on which workers write how far they are and what is wrong.

    Ray sends a class of a function whole, so that the actor's process need not import Bagwise.
    """
    import ray

    class Board:
        def __init__(self) -> None:
            self.history: list[dict[str, float]] = []
            self.said: list[str] = []
            self.ended = False

        def at(self, history: list[dict[str, float]]) -> None:
            self.history = history

        def fail(self, message: str, first: bool) -> None:
            self.said.insert(0 if first else len(self.said), message)

        def end(self) -> None:
            self.ended = True

        def state(self) -> tuple[Any, ...]:
            return self.history, self.said, self.ended

    return ray.remote(num_cpus=0)(Board).remote()


def _read(board: Any) -> _State:
    import ray

    try:
        return _State(*ray.get(board.state.remote()))
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise WorkerError(
            f"Ray is gone ({reason}). What is done is kept; rerun the command to resume."
        ) from error


class _Telling(Callback):
    """Tells the board of each epoch."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self._history: list[dict[str, float]] = []

    def on_train_begin(self, history: Sequence[Row], model: nn.Module) -> None:
        self._history = [dict(row) for row in history]
        self._board.at.remote(self._history)

    def on_epoch_end(self, row: Row, model: nn.Module) -> None:
        self._history.append(dict(row))
        self._board.at.remote(self._history)


def _watched(trainer: Any, board: Any, name: str, epochs: int) -> _State:
    """Start the workers and show how far they are; what is on the board in the end.

    Ray Train waits in a thread of its own: in the main one it would keep Ctrl-C to itself.
    """
    done: Future[None] = Future()

    def wait() -> None:
        try:
            trainer.fit()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    ended = threading.Event()
    done.add_done_callback(lambda _: ended.set())
    threading.Thread(target=wait, daemon=True).start()
    state = _read(board)
    with TrainingProgress(name, epochs, state.history, show=True) as bar:
        shown = len(state.history)
        while not ended.wait(_LOOK):
            for row in _read(board).history[shown:]:
                bar.epoch_done(row)
                shown += 1
    return _read(board)._replace(lost=_reason(done.exception()))


def _reason(error: BaseException | None) -> str:
    """Why Ray Train gave up, in a line: of a dead worker, not what the others say of that."""
    import ray

    failures = getattr(error, "worker_failures", {})
    for rank, failure in failures.items():
        if isinstance(failure, ray.exceptions.RayActorError):
            return f"the process of worker {rank} died"
    for rank, failure in failures.items():
        return f"worker {rank} failed ({str(failure).strip().splitlines()[-1]})"
    return "" if error is None else f"Ray Train failed ({str(error).strip().splitlines()[-1]})"


def _join(tell: dict[str, Any]) -> None:
    """What a worker does. Ray Train made the process group, and begins again if one fails."""
    import ray

    torch.set_num_threads(1)
    board, device = tell["board"], tell["device"]
    if _read(board).said:  # in place of workers that failed: it would be the same this time
        return
    if device.startswith("cuda"):
        from ray.train.torch import get_device

        device = str(get_device())
    try:
        if not tell["folder"].is_dir():
            raise OSError(
                f"{tell['folder'].parent} is not there for a worker on the machine "
                f"{platform.node()}; it has to be on a disk that all workers see."
            )
        tell["work"](callbacks=[_Telling(board)], device=device)
        if dist.get_rank() == 0:
            ray.get(board.end.remote())
    except Exception as error:
        if not _is_lost_connection(error):
            ray.get(board.fail.remote(_message(error), not isinstance(error, WorkerError)))
        raise RuntimeError(_message(error)) from None  # so that Ray Train ends the others, too


def _is_lost_connection(error: Exception) -> bool:
    """Whether an operation of the process group failed, because another worker is gone."""
    return isinstance(error, dist.DistError | ConnectionError) or "gloo" in str(error)


def _message(error: Exception) -> str:
    """As the command line says it of a user's mistake; anything else has a name."""
    plain = isinstance(error, BagwiseError | OSError)
    return str(error) if plain else f"{type(error).__name__}: {error}"
