"""A model's folder and other files that are replaced: what a kill leaves, and who may read them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bagwise import LLPClassifier
from bagwise.estimator import saving
from bagwise.storage import files
from bagwise.storage.array_files import load_arrays, save_arrays, verify
from bagwise.storage.files import remove_leftovers, unfinished, write_atomically
from bagwise.training.tensor_files import load_tensors, save_tensors


def small(epochs: int) -> LLPClassifier:
    X = np.random.default_rng(0).normal(size=(20, 2))
    counts = {bag: [2, 2] for bag in range(5)}
    model = LLPClassifier(model="linear", epochs=epochs, validation_fraction=0, random_state=0)
    return model.fit(X, np.arange(20) // 4, counts)


# Save a second model over copies of the first, killed each time at one call to the folders later.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)  # the process is forked
from bagwise.estimator import saving
from bagwise.storage import model_folder as archive
from test_archive import small

left = []

def counted(function):
    def call(*arguments, **options):
        if left and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if left:
            left[0] -= 1
        return function(*arguments, **options)
    return call

if not {exchange}:
    archive._exchange = lambda *_: False
first, model, folder = small(1), small(2), Path({folder!r})
first.save(folder / "first")
Path.rename, Path.mkdir = counted(Path.rename), counted(Path.mkdir)
archive._exchange = counted(archive._exchange)
archive.write_atomically = counted(archive.write_atomically)
saving.save_tensors = counted(saving.save_tensors)
remove = shutil.rmtree
shutil.rmtree = counted(remove)
for moment in range(30):
    shutil.copytree(folder / "first", folder / str(moment) / "model")
    child = os.fork()
    if not child:
        left.append(moment)
        model.save(folder / str(moment) / "model")
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [True, False])
def test_a_kill_while_a_model_is_replaced_leaves_the_old_or_the_new_one(
    exchange: bool, tmp_path: Path
) -> None:
    code = KILLED.format(tests=str(Path(__file__).parent), exchange=exchange, folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", code], check=True)
    found = []
    again = small(1)
    for moment in range(len(list(tmp_path.iterdir())) - 1):
        place = tmp_path / str(moment) / "model"
        found.append(len(LLPClassifier.load(place).history_))
        again.save(place)
        assert [path.name for path in place.parent.iterdir()] == ["model"]  # nothing is left over
    assert found == sorted(found)
    assert set(found) == {1, 2}
    assert len(found) > 5


def test_a_model_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    small(1).save(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    small(2).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert len(LLPClassifier.load(tmp_path / "real").history_) == 2


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_files_and_folders_have_the_permissions_of_the_umask(
    umask: int, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", b"x")
        small(1).save(tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes.pop(tmp_path / "model") == 0o777 & ~umask
    assert set(modes.values()) == {0o666 & ~umask}
    assert len(modes) == 4


def test_writing_never_changes_the_umask_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> int:
        raise AssertionError("another thread would make its files with this umask")

    monkeypatch.setattr(os, "umask", refuse)
    write_atomically(tmp_path / "file", b"x")
    small(1).save(tmp_path / "model")


def test_threads_that_write_one_file_leave_one_of_their_versions(tmp_path: Path) -> None:
    versions = [bytes([letter]) * 10_000 for letter in b"abcd"]
    threads = [
        threading.Thread(target=write_atomically, args=(tmp_path / "file", version))
        for version in versions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_bytes() in versions
    assert len(list(tmp_path.iterdir())) == 1


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = ["result.json", ".result.json", ".result.json.bak", ".other.json.0123abcd"]
    for name in (*kept, ".result.json.0123abcd.unfinished", ".other.csv.01234567.unfinished"):
        (tmp_path / name).touch()
    (tmp_path / ".model.89abcdef.unfinished" / "parts").mkdir(parents=True)
    with unfinished(tmp_path / "mine") as own, unfinished(tmp_path / "m", folder=True) as folder:
        remove_leftovers(tmp_path)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == sorted([*kept, own.name, folder.name])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_any_write_removes_what_was_left_beside(tmp_path: Path) -> None:
    (tmp_path / ".other.csv.01234567.unfinished").touch()
    write_atomically(tmp_path / "result.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_temporary_file_taken_for_a_leftover_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may look between its making and its locking."""
    real, taken = files.hold, []

    def hold(path: Path) -> int | None:
        if not taken:
            taken.append(path)
            path.unlink()
        return real(path)

    monkeypatch.setattr(files, "hold", hold)
    write_atomically(tmp_path / "result.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_failed_save_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(1).save(tmp_path / "model")

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(saving, "save_tensors", full)
    with pytest.raises(OSError, match="no space"):
        small(2).save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert len(LLPClassifier.load(tmp_path / "model").history_) == 1


def test_arrays_that_are_written_piece_by_piece_make_the_same_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = {
        "b": np.arange(10),
        "a": rng.random((3, 4)),
        "e": np.zeros((0, 2), dtype=np.float32),
        "c": rng.random((7, 2)).T,
        "d": np.array([True, False]),
        "z": np.arange(5, dtype=np.uint8),
        "y": np.arange(3, dtype=np.int32),
        "x": np.array(1.5),
    }
    facts = {"name": "Größe", "epoch": 3}
    save_arrays(tmp_path / "whole", made, facts)
    save_arrays(tmp_path / "pieces", made, facts, large=16)
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()
    found, said = load_arrays(tmp_path / "pieces")
    assert said == facts
    assert all((found[name] == array).all() for name, array in made.items())


def test_tensors_and_arrays_are_the_same_in_files(tmp_path: Path) -> None:
    made = {"a": torch.rand(3, 4).t(), "b": torch.tensor([True]), "c": torch.tensor(2)}
    save_tensors(tmp_path / "tensors", made, {"epoch": 3})
    save_arrays(tmp_path / "arrays", {name: x.numpy() for name, x in made.items()}, {"epoch": 3})
    assert (tmp_path / "tensors").read_bytes() == (tmp_path / "arrays").read_bytes()


def test_tensors_of_types_that_numpy_lacks_are_kept(tmp_path: Path) -> None:
    made = {"a": torch.rand(3).bfloat16(), "b": torch.ones(2)}
    save_tensors(tmp_path / "x", made, {})
    found, _ = load_tensors(tmp_path / "x")
    verify(tmp_path / "x", found)
    assert all(torch.equal(found[name], tensor) for name, tensor in made.items())
    found["a"][0] += 1
    with pytest.raises(ValueError, match="'a' is not as it was written"):
        verify(tmp_path / "x", found)
