"""Where a fit that may take long keeps what it has done, so that it can go on when killed."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from bagwise.checkpoint import write_atomically
from bagwise.tables.tuning import Trial

_TRIALS = "trials.json"


class Workspace:
    """A hidden folder beside the model's; it is gone when the fit has ended, well or in an error.

    Only a fit that was killed or interrupted leaves it, and the same fit goes on from there.

    Args:
        out: the model's folder; None keeps nothing.
        identity: what must be the same for a fit to go on; JSON.
    """

    def __init__(self, out: Path | None, identity: dict[str, Any]) -> None:
        self._folder = None if out is None else out.parent / f".{out.name}.fitting"
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))

    def __enter__(self) -> Workspace:
        if self._folder is not None and self._folder.exists() and self.trials() is None:
            shutil.rmtree(self._folder)  # of another fit
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._folder is not None and (kind is None or issubclass(kind, Exception)):
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def checkpoint(self) -> Path | None:
        """A folder for the state of the last training."""
        return None if self._folder is None else self._folder / "training"

    def trials(self) -> list[Trial] | None:
        """What was tried by the same fit, if it got that far."""
        if self._folder is None:
            return None
        try:
            content = json.loads((self._folder / _TRIALS).read_text())
            if content["identity"] != self._identity:
                return None
            return [
                Trial(**trial | {name: tuple(trial[name]) for name in ("curve", "parts")})
                for trial in content["trials"]
            ]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, trials: list[Trial]) -> list[Trial]:
        """Keep what was tried."""
        if self._folder is not None:
            content = {"identity": self._identity, "trials": [asdict(trial) for trial in trials]}
            write_atomically(self._folder / _TRIALS, json.dumps(content).encode())
        return trials
