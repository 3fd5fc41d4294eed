"""Where a fit keeps each piece of work that is done, so that it can go on when it was stopped."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bagwise.errors import DamagedError, InputError
from bagwise.storage.array_files import Arrays, load_arrays, save_arrays, verify
from bagwise.storage.files import remove, sync
from bagwise.storage.locks import only_one
from bagwise.storage.model_folder import refuse_other_things, replace_folder


def _home(out: Path) -> Path:
    return out.with_name(f".{out.name}.fitting")


def kept(out: Path) -> tuple[Path, list[Path]]:
    """The folder beside a model's that keeps the work of a fit that was stopped, and the files in
    it, each of a finished part.
    """
    home = _home(Path(os.path.realpath(out)))
    return home, sorted(home.rglob("*.safetensors"))


@contextmanager
def alone(out: Path | None) -> Iterator[None]:
    """Within it, no other process fits a model to the same folder.

    The lock is on the folder for unfinished work, and ends with the process.
    """
    if out is None:
        yield
        return
    home = _home(Path(os.path.realpath(out)))
    _refuse_in_the_way(home)
    new = [folder for folder in home.parents if not folder.exists()]
    taken = f"another fit is writing {out}; wait until it has ended, or choose another folder."
    with only_one(home, taken):
        try:
            yield
        finally:
            for folder in (home, *new):
                with suppress(OSError):  # it is gone, or something is kept in it
                    folder.rmdir()


def _refuse_in_the_way(home: Path) -> None:
    if os.path.lexists(home) and not home.is_dir():
        raise InputError(f"{home} is in the way of the folder for unfinished work; move it away.")


class Workspace:
    """A hidden folder beside the model's; it is gone when the model has been saved.

    Whatever stops a fit before, an error too, leaves it, and the same fit goes on from there. What
    another fit has left is removed, and what is damaged is done again.

    Args:
        out: the model's folder; None keeps nothing.
        identity: what must be the same for a fit to go on; JSON.

    Attributes:
        folder: where work is kept.
    """

    def __init__(self, out: Path | None, identity: dict[str, Any]) -> None:
        self._out = None if out is None else Path(os.path.realpath(out))
        self.folder: Path | None = None
        if self._out is not None:
            digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=8)
            self._home = _home(self._out)
            self.folder = self._home / digest.hexdigest()

    def __enter__(self) -> Workspace:
        if self._out is None or not os.path.lexists(self._home):
            return self
        _refuse_in_the_way(self._home)
        former = self._home / "former"
        if former.exists() and not self._out.exists():
            former.rename(self._out)  # an earlier version was killed while replacing it
        for entry in self._home.iterdir():
            if entry != self.folder:
                remove(entry)
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            for folder in (self.folder, self._home):
                with suppress(OSError):  # nothing was kept, or something was
                    folder.rmdir()

    @property
    def checkpoint(self) -> Path | None:
        """A folder for the state of the last training."""
        return None if self.folder is None else self.folder / "training"

    def forget_checkpoint(self) -> None:
        """Remove the state of the last training."""
        if self.checkpoint is not None:
            remove(self.checkpoint)

    def once(self, name: str, work: Callable[[], Arrays]) -> Arrays:
        """What `work` returns, or returned when the same fit did it before."""
        if self.folder is None:
            return work()
        path = self.folder / f"{name}.safetensors"
        if (kept := self._kept(path)) is not None:
            return kept
        result = work()
        save_arrays(path, result, {})
        return result

    def has(self, name: str) -> bool:
        """Whether the same fit did this before."""
        return self.folder is not None and (
            self._kept(self.folder / f"{name}.safetensors") is not None
        )

    def _kept(self, path: Path) -> Arrays | None:
        if path.is_file():
            with suppress(DamagedError):
                arrays, _ = load_arrays(path)
                verify(path, arrays)
                return arrays
        remove(path)  # if it is there at all, it is damaged
        return None

    def publish(self, save: Callable[[Path], None]) -> None:
        """Have the model saved, put it in its place, and remove all work.

        Args:
            save: writes the model to a folder that is not there yet.
        """
        if self.folder is None or self._out is None:
            return
        new = self.folder / "model"
        remove(new)
        save(new)
        for path in (*new.iterdir(), new):
            sync(path)
        refuse_other_things(self._out)
        replace_folder(new, self._out)
        sync(self._out.parent)
        shutil.rmtree(self._home, ignore_errors=True)
