"""Progress bars: what is counted, and the time that is left."""

from __future__ import annotations

import io
import re
from typing import Any

import numba
import numpy as np
import pytest
from rich.console import Console

from bagwise import Bags, progress
from bagwise.likelihood import choose_ridge
from bagwise.progress import RowProgress, WorkProgress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()
    made = Console(file=screen, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **_: made)
    return screen


def shown(bar: Any, elapsed: float) -> str:
    """What stands on the screen after so many seconds."""
    [task] = bar._bar.tasks
    task.start_time = task.get_time() - elapsed
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as captured:
        console.print(bar._bar.make_tasks_table([task]))
    return captured.get().rstrip()


def test_the_time_left_is_known_when_one_piece_is_done(terminal: io.StringIO) -> None:
    with WorkProgress("trying mlp", "epochs", 20, show=True) as bar:
        bar.begin("rate 0.001")
        assert re.search("0/20 epochs +rate 0.001$", shown(bar, 3))
        bar.advance()
        assert "1/20 epochs" in shown(bar, 10)
        assert "0:03:10 left" in shown(bar, 10)
        bar.plan(-9)  # one training ended early
        assert "1/11 epochs" in shown(bar, 10)
        assert "0:01:40 left" in shown(bar, 10)
        bar.at(11, 11)
        assert "0:00:00 left" in shown(bar, 10)


def test_of_rows_whose_number_is_unknown_no_time_is_told(terminal: io.StringIO) -> None:
    with RowProgress("reading", None, show=True) as bar:
        bar.advance(1000)
        assert shown(bar, 10).endswith("1,000 rows")


def test_a_bar_says_that_kernels_are_compiled(terminal: io.StringIO) -> None:
    @numba.njit
    def double(x: float) -> float:
        return 2 * x

    with WorkProgress("linear model", "fits", 1, show=True) as bar:
        assert double(2.0) == 4.0
        assert "linear model - compiling kernels, once" in terminal.getvalue()
        assert "compiling" not in shown(bar, 1)  # it is done
        terminal.truncate(0)
        assert double(3.0) == 6.0
    assert "compiling" not in terminal.getvalue()


def test_kernels_that_are_compiled_have_a_bar_of_their_own_where_a_command_shows_none(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    @numba.njit
    def half(x: float) -> float:
        return x / 2

    monkeypatch.setattr(progress, "_remarks_alone", False)  # put back at the end
    assert half(2.0) == 1.0
    assert not terminal.getvalue()
    progress.say_remarks(True)
    assert half(3) == 1.5  # other types
    assert "compiling kernels, once" in terminal.getvalue()
    assert not progress._on_screen
    with WorkProgress("linear model", "fits", 1, show=True) as bar:
        progress.remark("compiling")
        assert "linear model - compiling" in shown(bar, 1)


def test_fits_are_counted_as_the_ridge_is_chosen() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    bags = Bags.from_labels((X[:, 0] + rng.logistic(size=300) > 0).astype(int), [10] * 30)
    seen: list[tuple[int, int]] = []
    found = choose_ridge(X, bags, watch=lambda done, planned: seen.append((done, planned)))
    assert [done for done, _ in seen] == list(range(1, 5 * len(found.path) + 1))
    assert seen[0] == (1, 26)  # five ridges in five folds, and the fit to all bags
    assert all(done < planned for done, planned in seen)
