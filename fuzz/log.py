"""Write results/reliability/fuzz.json and differential.json of the runs in build/fuzz/runs.jsonl.

    python fuzz/log.py [OTHER/runs.jsonl ...]

Only runs of the code as it was committed count. What failed, and its fix, is listed here.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from run import OUT, ROOT, TARGETS

sys.path.append(str(ROOT / "benchmarks"))

from reliability_log import write_log

INPUTS = {
    "engines": "a bag that an engine computes",
    "tensors": "a bag of tensors of any precision and scale",
    "groupings": "a bag of one of several groupings",
    "labels": "a damaged label file",
    "guided labels": "a label file, mutated where it reaches new code",
    "rows": "a damaged table of rows: read, matched or predicted",
    "options": "a damaged TOML file: options of a fit, or a sweep",
    "model folders": "a model folder with a damaged file",
    "other files": "a damaged result, export, state of a run or data set",
    "frames and files": "an answer for a frame, and that for a file",
    "command and Python": "an answer of a command, and that of a method",
    "old models": "what a model of version 0.1 says, and what it said then",
}
FAILED = (
    "Seeds failed by a defect that is listed, or by a check that asked too much (an engine that "
    "had warned, a text `TRUE` that the comparison took for a truth value); both were corrected."
)
CALLS = ("engines", "tensors", "groupings")
DIFFERENTIAL = ("frames and files", "command and Python", "old models")
FOUND = [
    (
        "`transport` returned too low a value where its iterations had not settled: no upper bound "
        "of log P(S|X).",
        "It returns the dual value, which is a bound after any number of iterations.",
    ),
    (
        "`device` gave NaN where a class had no weight left, from logits of about 10,000 on.",
        "The factors that balance columns stay finite.",
    ),
    (
        "Options with very deep lists or numbers of 5,000 digits ended in a traceback.",
        "They are refused in one line.",
    ),
    (
        "A list in place of a sweep's method ended in a traceback.",
        "It is refused in one line that names the field.",
    ),
    (
        "In Python, a damaged fit.json was refused without the name of the file.",
        "The message names it.",
    ),
    (
        "A fit.json of the first format with a huge number ended in a traceback.",
        "It is refused as damaged.",
    ),
    (
        "A range such as 5+ in the column of totals ended in a traceback.",
        "It is refused in one line that names the column.",
    ),
    (
        "1e400 was infinite in label files with decimal commas, and unknown in others.",
        "It is unknown in all of them.",
    ),
    (
        "Relative numbers near 1e308 became shares of 0, with a warning of numpy.",
        "Numbers that cannot be added up are refused.",
    ),
]


def table(targets: list[str], runs: list[dict[str, Any]]) -> list[tuple[str, str, int, float, int]]:
    """A row for each target: what one input is, how many, CPU minutes and failed seeds."""
    total: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for run in runs:
        for name in ("inputs", "cpu", "failed"):
            total[run["target"]][name] += run[name]
    return [
        (
            name,
            INPUTS[name],
            int(total[name]["inputs"]),
            round(total[name]["cpu"] / 60, 1),
            int(total[name]["failed"]),
        )
        for name in targets
        if total[name]["inputs"]
    ]


def main() -> None:
    """Write both logs."""
    files = [OUT / "runs.jsonl", *map(Path, sys.argv[1:])]
    lines = [line for file in files for line in file.read_text().splitlines()]
    runs = [run for line in lines if not (run := json.loads(line))["commit"].endswith("+")]
    columns = ["target", "one input", "inputs", "CPU minutes", "failed seeds"]
    repeat = "`python fuzz/run.py --target NAME --again SEED` repeats an input."
    rows = table([name for name in TARGETS if name not in DIFFERENTIAL], runs)
    calls = sum(row[2] for row in rows if row[0] in CALLS)
    damaged = sum(row[2] for row in rows) - calls
    hours = sum(row[3] for row in rows) / 60
    text = [
        f"{calls:,} calls of engines and {damaged:,} damaged files, in {hours:.2f} CPU hours.",
        "A call is one bag that one engine computes. Counts are exact, hidden, ranges, noisy, "
        "rounded or of a sample; rows may have weights and known labels.",
        "A file is read and what comes of it is sane, or it is refused in one line.",
        f"{repeat} {FAILED}",
    ]
    command = "make fuzz MINUTES=60"
    write_log("fuzz", "Random inputs", command, text, columns, rows, FOUND)
    rows = table(list(DIFFERENTIAL), runs)
    hours = sum(row[3] for row in rows) / 60
    text = [
        f"{sum(row[2] for row in rows):,} comparisons, in {hours:.2f} CPU hours.",
        "Answers in memory agree to 1e-9, those that went through a file of text to 2e-6.",
        "Every engine is compared with `exact` by the target `engines` of the random inputs.",
        f"{repeat} {FAILED}",
    ]
    write_log("differential", "The same question in several ways", command, text, columns, rows)


if __name__ == "__main__":
    main()
