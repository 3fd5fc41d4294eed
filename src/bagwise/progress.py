"""Progress bars: for training, for rows, for a number of tasks. Silent without a terminal."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

_SHOWN = {
    "train_loss": "loss",
    "val_bag_loss": "bags",
    "val_accuracy": "val",
    "test_accuracy": "test",
}


_REMARK = " - "  # between the name of a bar and a remark


class TimeLeft(ProgressColumn):
    """How long it will take at the mean speed until now; nothing as long as nothing is done."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """In hours, minutes and seconds."""
        done = task.completed - task.fields["begun_at"]
        if task.total is None or task.elapsed is None or done <= 0:
            return Text("")
        left = task.elapsed / done * max(task.total - task.completed, 0)
        return Text(f"{timedelta(seconds=round(left))} left", style="progress.remaining")


_on_screen: list[Bar] = []  # the innermost last
_of_remark: list[Bar] = []  # one, while something is said where no bar was
_remarks_alone = False


def say_remarks(wanted: bool) -> None:
    """From now on, remarks have a bar of their own where none is shown."""
    global _remarks_alone
    _remarks_alone = wanted


def remark(text: str) -> None:
    """Say something beside the name of the bar that is shown, if one is; an empty text takes it
    back.
    """
    if _of_remark:
        _of_remark.pop().__exit__()
    elif _on_screen:
        _on_screen[-1].remark(text)
    elif _remarks_alone and text:
        _of_remark.append(WorkProgress(text, "", 1, show=True).__enter__())


class Bar:
    """A bar on the error stream, shown on a terminal while a `with` block lasts.

    Args:
        *columns: what stands to the right of the bar.
        transient: whether it is gone when its work is done.
    """

    def __init__(self, *columns: ProgressColumn, show: bool, transient: bool = True) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            *columns,
            console=self._console,
            disable=not (show and self._console.is_terminal),
            transient=transient,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        if not self._bar.disable:
            _on_screen.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in _on_screen:
            _on_screen.remove(self)
        if not self._bar.disable:  # rich 13 ends a line even of a bar that is not shown
            self._bar.stop()

    def remark(self, text: str) -> None:
        """Say something beside the name, until something else is said."""
        for task in self._bar.tasks:
            name = task.description.partition(_REMARK)[0]
            self._bar.update(task.id, description=f"{name}{_REMARK}{text}" if text else name)
        self._bar.refresh()


class RowProgress(Bar):
    """Rows read or written of a total, which may be unknown."""

    def __init__(self, name: str, rows: int | None, show: bool) -> None:
        of = "" if rows is None else "/{task.total:,}"
        shown = TextColumn("{task.completed:,}" + of + " rows")
        super().__init__(shown, TimeLeft(), show=show)
        self._task = self._bar.add_task(name, total=rows, begun_at=0)

    def advance(self, rows: int) -> None:
        """So many more are done."""
        self._bar.advance(self._task, rows)


class WorkProgress(Bar):
    """Pieces of work done of those planned, which may change, and what is being done.

    Args:
        unit: what a piece is, in the plural; empty where there is but one.
    """

    def __init__(self, name: str, unit: str, planned: int, show: bool) -> None:
        counted = "{task.completed:.0f}/{task.total:.0f} " + unit if unit else ""
        now = TextColumn("{task.fields[now]}")
        super().__init__(TextColumn(counted), TimeLeft(), now, show=show)
        self._task = self._bar.add_task(name, total=planned, now="", begun_at=0)

    def begin(self, what: str) -> None:
        """Say what is being done."""
        self._bar.update(self._task, now=what)

    def advance(self, pieces: int = 1) -> None:
        """So many more are done."""
        self._bar.advance(self._task, pieces)

    def at(self, done: int, planned: int) -> None:
        """So many are done of so many."""
        self._bar.update(self._task, completed=done, total=planned)

    def plan(self, pieces: int) -> None:
        """So many more have to be done; fewer, if negative."""
        task = self._bar.tasks[0]
        self._bar.update(self._task, total=(task.total or 0) + pieces)


class TrainingProgress(Bar):
    """Epoch, losses, accuracy where known and time left."""

    def __init__(self, name: str, epochs: int, history: list[dict[str, float]], show: bool) -> None:
        shown = TextColumn("epoch {task.completed:.0f}/{task.total:.0f}  {task.fields[facts]}")
        super().__init__(shown, TimeLeft(), show=show)
        facts = _facts(history[-1]) if history else ""
        self._done = len(history)
        self._task = self._bar.add_task(
            name, total=epochs, completed=self._done, begun_at=self._done, facts=facts
        )

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
