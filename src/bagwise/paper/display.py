"""A live display of a sweep."""

from __future__ import annotations

from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

from bagwise.paper.settings import RunSettings
from bagwise.progress import Bar


class SweepDisplay(Bar):
    """Runs done, running and failed, the time left; failures also off a terminal."""

    def __init__(self, show: bool = True) -> None:
        super().__init__(
            MofNCompleteColumn(),
            TextColumn("{task.fields[running]} running, {task.fields[failed]} failed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            TextColumn("{task.fields[last]}"),
            show=show,
            transient=False,
        )
        self._show = show
        self._failed = 0

    def stage(self, name: str, total: int, done: int) -> None:
        """A stage of so many runs begins, some of them done before."""
        self._failed = 0
        self._task = self._bar.add_task(
            name, total=total, completed=done, running=0, failed=0, last=""
        )

    def running(self, count: int) -> None:
        """So many runs are being worked on."""
        self._bar.update(self._task, running=count)

    def finished(self, run: RunSettings, error: str | None) -> None:
        """A run has ended, well or with an error."""
        self._failed += error is not None
        if error is not None and self._show:
            self._console.print(f"failed {run.name}: {error}", markup=False, highlight=False)
        self._bar.update(self._task, advance=1, failed=self._failed, last=run.name)
