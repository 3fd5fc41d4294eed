"""Renew what an intended change of the mathematics alters, and nothing else.

    python tests/golden/renew.py

outputs/ has what the kept models say: of these, the shares of `estimate` are written anew. refits/
has what models say that are fitted by today's code, and is made as a whole. Look at the difference
before it is committed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from bagwise.cli import app

GOLDEN = Path(__file__).resolve().parent


def given(command: list[str]) -> None:
    """Run a command in the working folder."""
    done = CliRunner().invoke(app, command, env={"COLUMNS": "100"})
    if done.exit_code:
        raise SystemExit(f"{command} failed:\n{done.output}")


def main() -> None:
    """Renew both folders."""
    said = json.loads((GOLDEN / "transcripts.json").read_text(encoding="utf-8"))
    done = {one["name"]: one["command"] for one in said if "names" not in one}
    shutil.rmtree(GOLDEN / "refits", ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name in ("inputs", "models"):
            shutil.copytree(GOLDEN / name, name)
        for command in done.values():
            if command[0] == "estimate" and Path(command[1]).exists():
                given(command)
                out = command[command.index("--out") + 1]
                shutil.copy(out, GOLDEN / out)
        shutil.rmtree("models")
        for name, fit in done.items():
            if not name.endswith(" fit"):
                continue
            given(fit)
            for other, command in done.items():
                used = command[0] not in ("fit", "evaluate") and "--out" in command
                if used and other.split()[0] == name.split()[0]:
                    given(command)
                    out = command[command.index("--out") + 1]
                    (GOLDEN / "refits" / out).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(out, GOLDEN / "refits" / out)


if __name__ == "__main__":
    main()
