"""A sample of what `make crash` tries, and its tools: they kill and fail where they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

FUZZ = Path(__file__).parent.parent / "fuzz"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc, and forks"),
]


@pytest.mark.parametrize("name", ["fit, linear", "predict, csv", "export", "train, llpfc"])
def test_a_command_killed_or_failing_at_some_points_ends_the_same_when_given_again(
    name: str,
) -> None:
    program = [sys.executable, str(FUZZ / "crash.py"), "--only", name, "--step", "19"]
    one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [*program, "--processes", "1"],
        env=os.environ | one_thread,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    for part in ("kills: {'killed'", "faults: {"):
        assert part in done.stdout


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FUZZ))
    import file_shim

    return file_shim


def writing(shim: Any, folder: Path, act: Any) -> int:
    """Make a folder, write ten bytes and rename the file, in a child; its exit code."""
    pid = os.fork()
    if not pid:
        os.setsid()
        shim.Shim(str(folder), act).install()
        code = 1
        try:
            (folder / "new").mkdir()
            (folder / "new" / "a").write_bytes(b"0123456789")
            (folder / "new" / "a").rename(folder / "new" / "b")
            code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def there(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_process_is_killed_before_each_operation(shim: Any, tmp_path: Path) -> None:
    left: list[dict[str, bytes]] = []
    for number in range(1, 5):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert writing(shim, folder, shim.killing(number)) == -signal.SIGKILL
        left.append(there(folder))
    assert left == [{}, {}, {"a": b""}, {"a": b"0123456789"}]
    assert writing(shim, tmp_path, shim.killing(5)) == 0


def test_a_write_is_torn_in_half(shim: Any, tmp_path: Path) -> None:
    assert writing(shim, tmp_path, shim.killing(3, torn=True)) == -signal.SIGKILL
    assert there(tmp_path) == {"a": b"01234"}


@pytest.mark.parametrize(
    ("number", "fault", "code", "left"),
    [
        (1, "EACCES", 13, {}),
        (3, "ENOSPC", 28, {"a": b"01234"}),
        (3, "EIO", 5, {"a": b""}),
        (3, "short write", 0, {"b": b"0123456789"}),
        (4, "EIO", 5, {"a": b"0123456789"}),
    ],
)
def test_an_operation_fails_as_it_is_told(
    number: int, fault: str, code: int, left: dict[str, bytes], shim: Any, tmp_path: Path
) -> None:
    assert writing(shim, tmp_path, shim.failing(number, fault)) == code
    assert there(tmp_path) == left
