"""What else happens while a model is trained: hooks, and two uses of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from bagwise.extras import require
from bagwise.storage.files import write_atomically

Row = Mapping[str, float]


class Callback:
    """Called by `train`; override what you need.

    >>> class Printer(Callback):
    ...     def on_epoch_end(self, row, model):
    ...         print(f"epoch {row['epoch']}: {row['train_loss']:.2f}")
    """

    def on_train_begin(self, history: Sequence[Row], model: nn.Module) -> None:
        """Before the first epoch; `history` has those of a run that goes on."""

    def on_epoch_end(self, row: Row, model: nn.Module) -> None:
        """After each epoch, when it has been evaluated and saved.

        Args:
            model: what is trained, or its average where weights are averaged; to be looked at, not
                to be changed.
        """

    def on_train_end(self, history: Sequence[Row], model: nn.Module) -> None:
        """After the last epoch; the model has the weights of the best one."""


class JsonLines(Callback):
    """Writes the history to a file, a line of JSON an epoch.

    A run that goes on begins the file again with the epochs that were done, so that each is there
    once.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_train_begin(self, history: Sequence[Row], model: nn.Module) -> None:
        """Write the epochs that are done."""
        write_atomically(self.path, "".join(map(_line, history)).encode())

    def on_epoch_end(self, row: Row, model: nn.Module) -> None:
        """Add a line."""
        with self.path.open("a") as file:
            file.write(_line(row))


def _line(row: Row) -> str:
    return json.dumps(dict(row)) + "\n"


class TensorBoard(Callback):
    """Writes every column of the history as a curve for TensorBoard.

    Needs `pip install "bagwise[tensorboard]"`.

    Args:
        folder: for the event files; look at them with `tensorboard --logdir FOLDER`.
    """

    def __init__(self, folder: str | Path) -> None:
        require("tensorboard", "tensorboard")
        self.folder = Path(folder)

    def on_train_begin(self, history: Sequence[Row], model: nn.Module) -> None:
        """Open the files; what a killed run wrote after its last checkpoint is passed over."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self.folder), purge_step=len(history) + 1)

    def on_epoch_end(self, row: Row, model: nn.Module) -> None:
        """Add a point to each curve."""
        for name, value in row.items():
            if name != "epoch":
                self._writer.add_scalar(name, value, int(row["epoch"]))
        self._writer.flush()

    def on_train_end(self, history: Sequence[Row], model: nn.Module) -> None:
        """Close the files."""
        self._writer.close()
