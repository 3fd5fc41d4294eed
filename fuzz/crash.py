"""Kill, disturb and crowd commands at every operation on files, and compare what they leave.

    python fuzz/crash.py              # all of it, and the logs in results/reliability
    python fuzz/crash.py --only fit --part kills

Linux only. Anything that is not as it should be is printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from children import Child, Outcome, Sandbox, Tree
from crash_commands import CLUSTER, Command, commands
from crash_texts import FOUND, LOGS
from file_shim import FAULTS, Act, Operation, failing, killing, killing_worker
from filelock import FileLock
from small_download import serve

from bagwise.methods import METHODS

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from reliability_log import LOGS as LOG_FOLDER
from reliability_log import write_log

_WARM = ("linear", "perceptron", "--memory", "estimate", "explain", "report", "figures", "label")
_NOTES = ("Note: ", "Rows are ")  # lines of commands that go well, too
_HIDDEN = ".unfinished"
SAME = {
    *(f"train, {method}" for method in METHODS if method not in ("cc", "llpfc")),
    *("fit --memory, with a perceptron, over a model", "fit --memory --store"),
    *("fit, of standard input", "fit --ray, linear"),
}
"""Commands that write as others do: how they fail is the same, too."""


@dataclass
class Tally:
    """What was tried with a command, and what failed."""

    tried: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)


Task = tuple[str, Command]
"""A part, and a command."""


class Trials:
    """All trials of one command.

    Attributes:
        operations: of an undisturbed run.
        reference: what that leaves.
    """

    def __init__(self, box: Sandbox, command: Command) -> None:
        self.box, self.command, self.tally = box, command, Tally()
        box.reset(command)
        self._kept = box.home / "kept"
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(box.place, self._kept)
        self.before = box.tree()
        log = box.home / "operations"

        def note(operation: Operation) -> None:
            with log.open("a") as file:
                file.write(f"{operation.number}\t{operation.kind}\t{operation.size}\t")
                file.write(f"{operation.path.removeprefix(str(box.place))}\n")

        log.write_text("")
        box.must(command, note)
        lines = [line.split("\t") for line in log.read_text().splitlines()]
        self.operations = [
            Operation(int(n), kind, path, int(size)) for n, kind, size, path in lines
        ]
        self.reference = box.tree()

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def run(
        self, act: Act = lambda _: None, before: Callable[[], object] = lambda: None
    ) -> Outcome:
        """The command, once more."""
        return self.box.start(self.command, act, before=before).wait()

    def begin(self, act: Act, name: str) -> Child:
        """The same, not waited for."""
        return self.box.start(self.command, act, name)

    def restore(self) -> None:
        """What was there before the command."""
        self.box.restore(self._kept)

    def fail(self, what: str, *outcomes: Outcome) -> None:
        """Note and print what is not as it should be."""
        texts = [f"exit code {o.code}: {o.errors.strip()[-1500:]}" for o in outcomes]
        self.tally.failed.append(what)
        print(f"FAILED {self.command.name}: {what}", *texts, sep="\n    ", flush=True)

    def must_end_the_same(self, what: str) -> bool:
        """Run the command again: it works, and leaves what an undisturbed run leaves."""
        again = self.run()
        if again.code != 0:
            self.fail(f"{what}, and the next run fails", again)
            return False
        if differences := different(self.reference, self.box.tree()):
            self.fail(f"{what}, and the next run leaves {differences}", again)
            return False
        return True


def different(one: Tree, other: Tree) -> list[str]:
    """Paths that only one has, or whose files differ."""
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))


def kills(trials: Trials, step: int = 1) -> None:
    """Killed before each operation, and with each write half done."""
    for operation in list(trials)[::step]:
        for torn in (False, True):
            if torn and operation.size < 2:
                continue
            what = f"killed at {shown(operation)}{', half written' * torn}"
            trials.restore()
            done = trials.run(killing(operation.number, torn))
            trials.tally.tried["half written" if torn else "killed"] += 1
            if done.code != -9:
                trials.fail(f"{what}, but it was not", done)
            else:
                trials.must_end_the_same(what)
        if trials.command.arguments[0] == "sweep":
            lose_worker(trials, operation)


def lose_worker(trials: Trials, operation: Operation) -> None:
    """The worker that does an operation is killed alone: the command replaces it."""
    what = f"worker killed at {shown(operation)}"
    trials.restore()
    done = trials.run(killing_worker(operation.number))
    trials.tally.tried["killed"] += 1
    if done.code != 0 or different(trials.reference, trials.box.tree()):
        trials.fail(f"{what}: {different(trials.reference, trials.box.tree())}", done)
    else:
        trials.must_end_the_same(what)


def shown(operation: Operation) -> str:
    """What and where."""
    return f"operation {operation.number}, {operation.kind} of {operation.path}"


def faults(trials: Trials, step: int = 1) -> None:
    """Failing at each operation, in each way in which it can fail."""
    points = [(o, fault) for o in trials for fault, kinds in FAULTS.items() if o.kind in kinds]
    for operation, fault in points[::step]:
        if fault == "short write" and operation.size < 2:
            continue
        what = f"{fault} at {shown(operation)}"
        trials.restore()
        done = trials.run(failing(operation.number, fault))
        trials.tally.tried[fault] += 1
        after = trials.box.tree()
        if problem := unclear(trials, done) or damage(trials, after, done.code == 0):
            trials.fail(f"{what}: {problem}", done)
        elif fault == "short write" and done.code != 0:
            trials.fail(f"{what}: it should go on", done)
        else:
            trials.must_end_the_same(what)


def unclear(trials: Trials, done: Outcome) -> str:
    """What is wrong with how a disturbed command ended; empty if nothing is."""
    if done.code == 0:
        return ""
    lines = [line for line in done.errors.splitlines() if not line.startswith(_NOTES)]
    if trials.command.arguments[0] == "sweep" and done.code == 1:  # some runs failed
        return "" if str(trials.box.place) in done.output or " w" in done.output else "no path"
    if done.code != 3:
        return f"exit code {done.code}"
    if "could not be downloaded" in done.errors:  # beside the bars of the download
        lines = [line for line in lines if line.startswith("Error: ")]
    if len(lines) != 1 or not lines[0].startswith("Error: "):
        return f"{len(lines)} lines"
    given = trials.command.arguments
    outs = [after for option, after in pairwise(given) if option in ("--out", "--figure")]
    if not any(path in lines[0] for path in (str(trials.box.place), *outs)):
        return "no path is named"
    if _HIDDEN in lines[0] and "could not be downloaded" not in lines[0]:
        return "a hidden file is named"
    if not any(word in lines[0] for word in ("rerun", "choose", "give", "wait", "Put ")):
        return "it does not say what to do"
    return ""


def damage(trials: Trials, after: Tree, is_done: bool) -> str:
    """Which file is neither as it was nor as it will be; empty if none is."""
    for path, digest in after.items():
        hidden = any(part.startswith(".") for part in Path(path).parts)
        if hidden or not digest or any(state in path for state in trials.command.states):
            continue
        if digest not in (trials.before.get(path), trials.reference.get(path)):
            return f"{path} is neither the old nor the new one"
    lost = [path for path in trials.before if path not in after and path in trials.reference]
    missing = [path for path in trials.reference if is_done and path not in after]
    return f"{lost or missing} is gone" if lost or missing else ""


def pairs(trials: Trials, step: int = 1) -> None:
    """A second process, while a first one waits before an operation."""
    for operation in list(trials)[:: step * (1 if len(trials.operations) < 20 else 3)]:
        what = f"a second process during {shown(operation)}"
        trials.restore()
        ready, go = os.pipe(), os.pipe()

        def waiting(now: Operation, number: int = operation.number) -> None:
            if now.number == number:
                os.write(ready[1], b"x")  # noqa: B023
                os.read(go[0], 1)  # noqa: B023

        first = trials.begin(waiting, "first")
        os.read(ready[0], 1)
        second = trials.run()
        os.write(go[1], b"x")
        ended = first.wait()
        for handle in (*ready, *go):
            os.close(handle)
        is_sweep = trials.command.arguments[0] == "sweep"  # which tells it of each run
        said = second.output if is_sweep else second.errors
        refused = second.code == (1 if is_sweep else 3) and "another" in said
        trials.tally.tried["refused" if refused else "both ended"] += 1
        problem = unclear(trials, second) or unclear(trials, ended)
        if problem or (second.code != 0 and not refused):
            trials.fail(f"{what}: {problem}", ended, second)
        elif damaged := damage(trials, trials.box.tree(), is_done=True):
            trials.fail(f"{what}: {damaged}", ended, second)
        else:
            trials.must_end_the_same(what)


def memory(trials: Trials, step: int = 1) -> None:
    """With little more memory than the process has already."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    for more in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)[::step]:
        limit = now + (more << 20)
        what = f"{more} MiB more memory"
        trials.restore()
        done = trials.run(
            before=lambda limit=limit: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        )
        trials.tally.tried["little memory" if done.code else "enough memory"] += 1
        lines = [line for line in done.errors.splitlines() if not line.startswith(_NOTES)]
        if done.code and not (
            done.code == 3 and len(lines) == 1 and lines[0].startswith("Error: there is not enough")
        ):
            trials.fail(what, done)
        elif damaged := damage(trials, trials.box.tree(), done.code == 0):
            trials.fail(f"{what}: {damaged}", done)
        else:
            trials.must_end_the_same(what)


PARTS = {"kills": kills, "faults": faults, "pairs": pairs, "memory": memory}


def sandbox(home: Path) -> Sandbox:
    """A sandbox, with all loaded that commands need, and a data set to download."""
    home.mkdir()
    serve(home / "served")
    box = Sandbox(home)
    for command in commands():
        if any(word in command.name for word in _WARM):
            box.warm(command)
    gc.collect()
    gc.freeze()  # children need not look through all of it
    return box


def shared_out(box: Sandbox, tasks: list[Task], step: int, processes: int, with_log: bool) -> bool:
    """Try tasks by several processes, each with a sandbox of its own; whether all passed."""
    children = []
    for number in range(processes):
        if not (pid := os.fork()):
            box.move(box.home.with_name(f"box-{number}"))
            passed = [attempt(box, *task, step, with_log) for task in tasks]
            os._exit(not all(passed))
        children.append(pid)
    return not any(os.waitpid(pid, 0)[1] for pid in children)


def attempt(box: Sandbox, part: str, command: Command, step: int, with_log: bool) -> bool:
    """Try a task that no other process has taken, and log it; whether all passed."""
    try:
        (box.home.parent / f"{part}, {command.name}.taken").mkdir()
    except FileExistsError:
        return True
    trials, started = Trials(box, command), time.monotonic()
    PARTS[part](trials, step)
    tally, seconds = trials.tally, time.monotonic() - started
    print(f"{command.name}, {part}: {dict(tally.tried)} in {seconds:.0f} s", flush=True)
    if with_log:
        with FileLock(box.home.parent / "lock"):
            write(part, command.name, tally, seconds)
    return not tally.failed


def main() -> None:
    """All of it, or a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="commands whose names begin so")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--step", type=int, default=1, help="each so many-th point; no logs then")
    parser.add_argument("--missing", action="store_true", help="only what no log has as passed")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    given = parser.parse_args()
    fast = "/dev/shm" if os.path.isdir("/dev/shm") else None
    chosen = [command for command in commands() if command.name.startswith(given.only)]
    tasks = [
        (part, command)
        for part in given.part or PARTS
        for command in chosen
        if part == "kills" or command.name not in SAME
    ]
    if given.missing:
        tasks = [(part, command) for part, command in tasks if not is_logged(part, command.name)]
    with tempfile.TemporaryDirectory(dir=fast) as folder:
        box = sandbox(Path(folder) / "box")
        if any(CLUSTER in command.arguments for command in chosen):
            box.start_cluster()
        sys.exit(not shared_out(box, tasks, given.step, given.processes, given.step == 1))


def logged(part: str) -> dict[str, list[Any]]:
    """The rows of a log, by command."""
    path = LOG_FOLDER / f"crash-{part}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return {row[0]: row for row in rows}


def is_logged(part: str, name: str) -> bool:
    """Whether a command has passed all that was tried."""
    _, *tried, passed, _ = logged(part).get(name, ["", 1, 0, 0])
    return bool(sum(tried) == passed)


def write(part: str, name: str, tally: Tally, seconds: float) -> None:
    """Put a row into the log of a part, and sum up."""
    title, counted, text = LOGS[part]
    rows = logged(part)
    passed = tally.tried.total() - len(tally.failed)
    rows[name] = [name, *(tally.tried[column] for column in counted), passed, round(seconds)]
    own = [rows[command.name] for command in commands() if command.name in rows]
    *tried, passed, seconds = (sum(row[i] for row in own) for i in range(1, len(counted) + 3))
    write_log(
        f"crash-{part}",
        title,
        f"python fuzz/crash.py --part {part}    # all parts: make crash",
        [*text, f"{sum(tried):,} points, {passed:,} passed, in {seconds:,} seconds of processes."],
        ["command", *counted, "passed", "seconds"],
        [*own, ["all", *tried, passed, seconds]],
        FOUND[part],
        packages=("bagwise", "numpy", "torch", "pyarrow"),
    )


if __name__ == "__main__":
    main()
