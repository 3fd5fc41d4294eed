"""A progress bar for training."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_SHOWN = {
    "train_loss": "loss",
    "val_bag_loss": "bags",
    "val_accuracy": "val",
    "test_accuracy": "test",
}


class TrainingProgress:
    """Epoch, losses, accuracy where known and time left; silent where there is no terminal."""

    def __init__(self, name: str, epochs: int, history: list[dict[str, float]], show: bool) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("epoch {task.completed:.0f}/{task.total:.0f}  {task.fields[facts]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not (show and console.is_terminal),
            transient=True,
        )
        facts = _facts(history[-1]) if history else ""
        self._done = len(history)
        self._task = self._bar.add_task(name, total=epochs, completed=self._done, facts=facts)

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def step(self, share: float) -> None:
        """Within an epoch: which share of it is done."""
        self._bar.update(self._task, completed=self._done + min(share, 1.0))

    def epoch_done(self, row: dict[str, float]) -> None:
        """An epoch has ended with this row of the history."""
        self._done += 1
        self._bar.update(self._task, completed=self._done, facts=_facts(row))


def _facts(row: dict[str, float]) -> str:
    parts = []
    for key, name in _SHOWN.items():
        if key in row:
            value = f"{row[key]:.1%}" if key.endswith("accuracy") else f"{row[key]:.4f}"
            parts.append(f"{name} {value}")
    return "  ".join(parts)
