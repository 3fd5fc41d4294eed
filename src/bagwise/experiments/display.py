"""A live display of a sweep."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bagwise.experiments.settings import RunSettings


class SweepDisplay:
    """Runs done, running and failed, the time left; failures also off a terminal."""

    def __init__(self, show: bool = True) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description:6}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[running]} running, {task.fields[failed]} failed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            TextColumn("{task.fields[last]}"),
            console=self._console,
            disable=not (show and self._console.is_terminal),
        )
        self._show = show
        self._failed = 0

    def __enter__(self) -> SweepDisplay:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

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
