"""Files that appear whole or not at all: what is left over, taken, or fails."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bagwise import InputError
from bagwise.cli.messages import worded
from bagwise.errors import is_lack_of_memory
from bagwise.storage import files
from bagwise.storage.array_files import load_arrays, save_arrays
from bagwise.storage.files import temporary_folder, unfinished, write_atomically

locks = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")


@locks
def test_another_process_that_writes_a_file_is_refused_and_one_of_another_file_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unfinished(tmp_path / "a.csv"):
        write_atomically(tmp_path / "a.csv", b"of this process")
        monkeypatch.setattr(files, "_own", set())  # as another one has it
        with pytest.raises(InputError, match=r"another process is writing .*a\.csv; wait"):
            write_atomically(tmp_path / "a.csv", b"x")
        write_atomically(tmp_path / "a", b"x")
        write_atomically(tmp_path / "b.csv", b"x")
        with unfinished(tmp_path / "a.csv", shared=True):
            pass
    write_atomically(tmp_path / "a.csv", b"x")
    assert sorted(os.listdir(tmp_path)) == ["a", "a.csv", "b.csv"]


@locks
def test_a_temporary_folder_is_its_users_alone_and_that_of_a_killed_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / ".bagwise.0123abcd.unfinished"
    left.mkdir()
    (left / "rows").touch()
    with temporary_folder() as folder:
        assert list(tmp_path.iterdir()) == [folder]
        assert folder.stat().st_mode & 0o777 == 0o700
        with temporary_folder() as second:
            assert second != folder
            assert folder.is_dir()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", ["ENOSPC", "EIO", "EACCES"])
def test_what_fails_while_a_file_is_written_names_it_and_says_what_to_do(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    monkeypatch.setattr(files.os, "fsync", failing)
    with pytest.raises(OSError, match=r"x\.csv") as caught:
        write_atomically(tmp_path / "x.csv", b"1")
    assert caught.value.filename == str(tmp_path / "x.csv")
    assert worded(caught.value).endswith("and rerun the command.")
    assert not list(tmp_path.iterdir())


def test_the_order_in_which_arrays_are_given_changes_no_byte(tmp_path: Path) -> None:
    arrays = {"b": np.ones(3), "a": np.zeros(2), "n": np.array(7)}
    save_arrays(tmp_path / "one", arrays, {"format": 1})
    again, _ = load_arrays(tmp_path / "one")
    assert list(again) != list(arrays)
    save_arrays(tmp_path / "two", again, {"format": 1})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_lack_of_memory_is_recognized_in_the_words_of_libraries_and_behind_other_errors() -> None:
    behind = InputError("rows.csv cannot be read")
    behind.__cause__ = pa.ArrowException("Failed to launch worker thread: Resource temporarily ...")
    of_library = ImportError("lib.so: failed to map segment from shared object")
    for error in (behind, of_library, MemoryError(), OSError(errno.ENOMEM, "x")):
        assert is_lack_of_memory(error)
    for other in (InputError("out of memory"), ImportError("no such file"), OSError(28, "x")):
        assert not is_lack_of_memory(other)
