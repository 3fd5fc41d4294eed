"""Search at random for what breaks, for as long as there is time: `make fuzz MINUTES=60`.

    python fuzz/run.py --minutes 60                              # every target, an equal time each
    python fuzz/run.py --minutes 10 --target engines --seed 500  # one of them, from a seed on
    python fuzz/run.py --target engines --again 512              # do again what failed

A target makes the inputs of one seed after the other, in a process of its own: what crashes it, or
takes a quarter of an hour for one seed, is a failure of that seed, too. Every run is added to
build/fuzz/runs.jsonl, what failed to build/fuzz/failures.txt. The exit code is 1 if anything did.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "fuzz"
PATIENCE = 900  # seconds for a seed, which may compile kernels on a busy machine
TARGETS = {  # where each is, in the order in which they are run
    "engines": "engines",
    "tensors": "engine_tensors",
    "groupings": "engine_groupings",
    "labels": "texts",
    "guided labels": "guided",
    "rows": "texts",
    "options": "texts",
    "model folders": "folders",
    "other files": "other_files",
    "frames and files": "differential",
    "command and Python": "differential",
    "old models": "differential",
}

Step = Callable[[int], int]
"""step(seed) makes the inputs of a seed and returns how many they were; it raises what is wrong."""
Make = Callable[[Path], Step]
"""Sets a target up in an empty folder."""


def child(target: str, seed: int, seconds: float, state: Path) -> None:
    """Run seeds until the time is over; the file `state` says how far it has come at any moment."""
    with tempfile.TemporaryDirectory() as folder, state.open("w") as file:
        made: dict[str, Make] = import_module(TARGETS[target]).MAKE
        step = made[target](Path(folder))
        end, begin = time.monotonic() + seconds, sum(os.times()[:4])
        done: dict[str, Any] = {"seed": seed, "inputs": 0, "failed": 0, "cpu": 0.0}
        while time.monotonic() < end:
            done["cpu"] = round(sum(os.times()[:4]) - begin, 2)  # with that of its processes
            os.pwrite(file.fileno(), json.dumps(done).ljust(200).encode(), 0)
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            try:
                done["inputs"] += step(done["seed"])
            except Exception:
                done["failed"] += 1
                report(target, done["seed"], traceback.format_exc())
            done["seed"] += 1
        faulthandler.cancel_dump_traceback_later()
        os.pwrite(file.fileno(), json.dumps(done).ljust(200).encode(), 0)


def report(target: str, seed: int, what: str) -> None:
    """Say what failed, and how to do it again."""
    again = f'python fuzz/run.py --target "{target}" --again {seed}'
    text = f"{what.strip()}\n  {again}\n\n"
    print(text, end="", file=sys.stderr, flush=True)
    with (OUT / "failures.txt").open("a") as file:
        file.write(text)


def run(target: str, seed: int, minutes: float) -> dict[str, Any]:
    """Run a target in processes of its own: the next one goes on behind a seed that ended one."""
    state = OUT / f"{target}.state"
    total: dict[str, Any] = {"target": target, "first": seed, "inputs": 0, "failed": 0, "cpu": 0.0}
    end, said = time.monotonic() + 60 * minutes, {"seed": seed}
    while (left := end - time.monotonic()) > 0:
        first = str(said["seed"])
        command = [sys.executable, __file__, "--target", target, "--seed", first]
        code = subprocess.call([*command, "--child", str(left)], cwd=ROOT)
        text = state.read_text() if state.exists() else ""
        if not text:
            raise SystemExit(f"the target {target!r} could not be set up.")
        said = json.loads(text)
        for name in ("inputs", "failed", "cpu"):
            total[name] += said[name]
        if code:
            total["failed"] += 1
            report(target, said["seed"], f"the process ended with {code}, or took {PATIENCE} s")
            said["seed"] += 1
    return {**total, "next": said["seed"], "date": str(date.today()), "commit": commit()}


def commit() -> str:
    """The commit that is run, with a plus where the code has changed since."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    changed = subprocess.call([*git, "diff", "--quiet", "HEAD", "--", "src", "fuzz"])
    return name + "+" * changed


def main() -> int:
    """Run the targets, or do one seed again."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, nargs="*", default=list(TARGETS))
    parser.add_argument("--seed", type=int, default=0, help="the first of each target")
    parser.add_argument("--again", type=int, help="do this seed of the target again")
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if options.child is not None:
        (target,) = options.target
        child(target, options.seed, options.child, OUT / f"{target}.state")
        return 0
    if options.again is not None:
        (target,) = options.target
        with tempfile.TemporaryDirectory() as folder:
            import_module(TARGETS[target]).MAKE[target](Path(folder))(options.again)
        return 0
    failed = 0
    print(f"{'target':20}{'inputs':>12}{'failed':>8}{'CPU s':>9}  seeds")
    for target in options.target:
        if target.startswith("guided") and not find_spec("atheris"):
            print(f'{target:20} left out: it needs pip install "bagwise[fuzz]"')
            continue
        done = run(target, options.seed, options.minutes / len(options.target))
        with (OUT / "runs.jsonl").open("a") as file:
            file.write(json.dumps(done) + "\n")
        seeds = f"{done['first']} to {done['next'] - 1}"
        print(f"{target:20}{done['inputs']:12,}{done['failed']:8,}{done['cpu']:9,.0f}  {seeds}")
        failed += done["failed"]
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
