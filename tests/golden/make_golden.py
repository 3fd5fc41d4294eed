"""Make the tables, models, outputs and transcripts of this folder with the installed Bagwise.

    python make_golden.py [FOLDER]

FOLDER is this file's own if not given. What is there is made by the code of version 0.1, before its
redesign; tests/test_golden.py compares later code with it. Do not make it anew without need.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]


def write(path: Path, rows: Rows, delimiter: str = ",") -> None:
    """A table; None is an empty cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def without(rows: Rows, *names: str) -> Rows:
    """The rows without some columns."""
    return [{name: row[name] for name in row if name not in names} for row in rows]


def counted(rows: Rows, bag: Sequence[str], truth: str, classes: Sequence[str]) -> Rows:
    """The label file of a table: each bag's columns, and a count of each class."""
    counts: dict[tuple[Any, ...], dict[str, int]] = {}
    for row in rows:
        key = tuple(row[name] for name in bag)
        counts.setdefault(key, dict.fromkeys(classes, 0))[row[truth]] += 1
    return [{**dict(zip(bag, key, strict=True)), **own} for key, own in sorted(counts.items())]


# The tables.


def patients(folder: Path) -> None:
    """Two classes; numbers, a heavy tail, missing values, true and false, text, dates, an order."""
    rng = np.random.default_rng(11)
    n, wards = 480, 26
    level = rng.normal(size=wards)
    rows: Rows = []
    for i in range(n):
        w = i if i < wards else min(int(rng.geometric(0.08)) - 1, wards - 1)
        blood = level[w] + rng.normal()
        smoker, town, size = rng.random() < 0.35, int(rng.integers(4)), int(rng.integers(3))
        days = int(rng.integers(1500))
        logit = 1.3 * blood + 0.9 * smoker + 0.5 * size + 0.4 * (town == 1) - days / 1500 - 0.6
        rows.append(
            {
                "patient": f"P{i:03d}",
                "ward": f"{w:03d}",  # 007 stays 007
                "blood": "" if rng.random() < 0.05 else "NA" if i % 90 == 7 else f"{blood:.3f}",
                "income": f"{np.exp(rng.normal(3 + 0.2 * blood, 1.1)):.1f}",
                "smoker": "true" if smoker else "false",
                "town": ("Elm", "Oak, upper", "São", "Łódź")[town] if i % 37 else None,
                "size": "SML"[size],
                "admitted": str(date(2019, 1, 1) + timedelta(days)) if i % 41 else "",
                "clinic": "north",
                "truth": "sick" if rng.random() < 1 / (1 + np.exp(-logit)) else "well",
            }
        )
    old, new = rows[:360], rows[360:]
    write(folder / "patients.csv", without(old, "truth"))
    write(folder / "patients_new.csv", new)
    counts = counted(old, ["ward"], "truth", ["well", "sick"])
    write(folder / "patients_counts.csv", counts)
    one = [{"ward": row["ward"], "sick": row["sick"]} for row in counts]
    write(folder / "patients_one_class.csv", one)
    noisy = []
    for row in counts:  # the difference of two geometric numbers is discrete Laplace of scale 1.5
        a = rng.geometric(1 - np.exp(-1 / 1.5), size=(2, 2))
        noisy.append({**row, "well": row["well"] + a[0, 0] - a[0, 1]})
        noisy[-1]["sick"] += a[1, 0] - a[1, 1]
    write(folder / "patients_noisy.csv", noisy)

    def hidden(count: int, i: int) -> str:
        kinds = ["<5", "0-4", "fewer than 5"] if count < 5 else [f"{count}", f"{count}", ">=5"]
        return "*" if i == 4 else kinds[i % 3]

    ranges = [
        {"ward": row["ward"], "well": hidden(row["well"], i), "sick": hidden(row["sick"], i + 1)}
        for i, row in enumerate(counts)
    ]
    write(folder / "patients_ranges.csv", ranges)
    bounds = [
        {
            "ward": row["ward"],
            "sick_low": max(row["sick"] - i % 3, 0),
            "sick_high": row["sick"] + 2 if i % 4 else "",
            "well_low": "",
            "well_high": row["well"] + 1,
        }
        for i, row in enumerate(counts)
    ]
    write(folder / "patients_bounds.csv", bounds)


def wines(folder: Path) -> None:
    """Three classes, a bag of two columns, and a long label file."""
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(12)
    order = rng.permutation(len(y))
    place = np.argsort(np.argsort(X[:, 12] + 300 * rng.normal(size=len(y)))) * 20 // len(y)
    rows: Rows = [
        {
            "region": ("north", "south", "east", "west")[place[i] % 4],
            "cellar": int(place[i]) // 4 + 1,
            "alcohol": X[i, 0],
            "acid": X[i, 1],
            "ash": X[i, 2],
            "phenols": X[i, 5],
            "colour": round(X[i, 9], 2),
            "proline": int(X[i, 12]),
            "kind": ("red", "white", "green")[y[i]],
        }
        for i in order
    ]
    old, new = rows[:138], rows[138:]
    write(folder / "wines.csv", without(old, "kind"))
    write(folder / "wines_new.csv", new)
    bag, kinds = ["region", "cellar"], ["red", "white", "green"]
    counts = counted(old, bag, "kind", kinds)
    write(folder / "wines_counts.csv", counts)
    long = [
        {"region": row["region"], "cellar": row["cellar"], "kind": kind, "number": row[kind]}
        for row in counts
        for kind in kinds
        if row[kind]
    ]
    write(folder / "wines_long.csv", long)


def shops(folder: Path) -> None:
    """Three classes; semicolons, decimal commas, percent signs, day first, yes and No; codes that
    are categories; labels of some rows, and some of these without a bag.
    """
    rng = np.random.default_rng(13)
    n, chains = 400, 25
    level = rng.normal(size=(chains, 2))
    names = ["low", "mid", "high spend"]
    slopes = np.array([[0, 0], [1.0, 0.4], [1.8, -0.9]])
    rows: Rows = []
    for i in range(n):
        c = i % chains
        x = level[c] + rng.normal(size=2)
        online, code = rng.random() < 0.5, int(rng.choice([7, 21, 40]))
        logits = slopes @ x + np.array([0, 0.6 * online, 0.8 * (code == 21) - 0.5])
        kind = names[int(np.argmax(logits + rng.gumbel(size=3)))]
        number = f"{1200 + 400 * x[0]:,.1f}".translate(str.maketrans(",.", ".,"))
        lone = 300 <= i < 306
        known = lone or (i < 300 and i % 13 == 5)
        rows.append(
            {
                "shop": i,
                "chain": None if lone else f"chain {c:02d}",
                "turnover": None if i % 29 == 3 else number,
                "margin": f"{20 + 4 * x[1]:.1f} %".replace(".", ","),
                "online": (("yes", "Yes", "TRUE") if online else ("no", "No", "f"))[i % 3],
                "code": code,
                "opened": f"{date(2015, 1, 1) + timedelta(int(rng.integers(2000))):%d.%m.%Y}",
                "checked": kind if known else None,
                "truth": kind,
            }
        )
    old, new = rows[:300], rows[306:]
    write(folder / "shops.csv", without(rows[:306], "truth"), ";")
    write(folder / "shops_new.csv", without(new, "checked"), ";")
    counts = counted(old, ["chain"], "truth", names)
    write(folder / "shops_counts.tsv", counts, "\t")
    shares: dict[str, Rows] = {"percent": [], "shares": []}
    for row in counts:
        total = sum(row[name] for name in names)
        own = {name: row[name] / total for name in names}
        whole = {name: f"{100 * share:.0f} %" for name, share in own.items()}
        tenths = {name: f"{share:.1f}".replace(".", ",") for name, share in own.items()}
        shares["percent"].append({"chain": row["chain"], **whole})
        shares["shares"].append({"chain": row["chain"], **tenths})
    for kind, table in shares.items():
        write(folder / f"shops_{kind}.csv", table, ";")
    sample = [
        {"chain": row["chain"]} | {name: 10 * row[name] + int(rng.integers(8)) for name in names}
        for row in counts
    ]
    write(folder / "shops_groups.csv", sample)


def schools(folder: Path) -> None:
    """Two classes, schools that differ beyond their pupils, new pupils of these and of others."""
    rng = np.random.default_rng(14)
    effect, level = 1.3 * rng.normal(size=40), 0.6 * rng.normal(size=(40, 2))
    rows: Rows = []
    for i in range(560):
        s = i % 30 if i < 480 else i % 40
        x = level[s] + rng.normal(size=2)
        passed = rng.random() < 1 / (1 + np.exp(-(1.4 * x[0] - x[1] + effect[s])))
        rows.append(
            {
                "school": f"S{s:02d}",
                "x": f"{x[0]:.3f}",
                "z": f"{x[1]:.3f}",
                "sex": ("girl", "boy")[int(rng.integers(2))],
                "truth": "pass" if passed else "fail",
            }
        )
    old, new = rows[:420], rows[480:]
    write(folder / "schools.csv", without(old, "truth"))
    write(folder / "schools_new.csv", new)
    write(folder / "schools_counts.csv", counted(old, ["school"], "truth", ["fail", "pass"]))
    share = 1 / (1 + np.exp(-effect))
    shares = [
        {"school": f"S{s:02d}", "fail": f"{1 - p:.3f}", "pass": f"{p:.3f}"}
        for s, p in enumerate(share)
    ]
    write(folder / "schools_shares.csv", shares)


def spoilt(folder: Path) -> None:
    """Files with mistakes, made of those above."""

    def lines(name: str) -> list[str]:
        return (folder / name).read_text(encoding="utf-8").splitlines()

    def save(name: str, text: Iterable[str]) -> None:
        (folder / "bad").mkdir(exist_ok=True)
        (folder / "bad" / name).write_text("\n".join(text) + "\n", encoding="utf-8")

    counts, new = lines("patients_counts.csv"), lines("patients_new.csv")[:20]
    save("bag_missing.csv", [line for line in counts if not line.startswith("003,")])
    save("bag_twice.csv", [*counts, counts[4]])
    well, sick = map(int, counts[6].split(",")[1:])
    save("sum.csv", [*counts[:6], f"005,{well + 2},{sick}", *counts[7:]])
    save("words.csv", [*counts[:6], "005,several,4", *counts[7:]])
    score = [f"{line[:3]},{0.123457 * int(line[:3]):.6f}" for line in counts[1:9]]
    save("score.csv", ["ward,sick", *score, *(f"{line[:3]},0.5" for line in counts[9:])])
    save("no_blood.csv", [re.sub(r"^([^,]*,[^,]*),[^,]*", r"\1", line) for line in new])
    cells = new[9].split(",")
    save("blood_words.csv", [*new[:9], ",".join([*cells[:2], "plenty", *cells[3:]]), *new[10:]])
    save("odd_truth.csv", [*new[:5], new[5].rsplit(",", 1)[0] + ",cured", *new[6:]])
    checked = lines("shops.csv")[:30]
    place = next(i for i, line in enumerate(checked) if line.endswith(";mid"))
    save("odd_check.csv", [*checked[:place], checked[place][:-3] + "none", *checked[place + 1 :]])


# The models: the options of fit, then what other commands take.

SIZE = ("--ordered", "size=S<M<L")
WARD = ("--bag", "ward", "--labels")
NOISE = ("--noise", "discrete-laplace:1.5")
CHAIN = ("--bag", "chain", "--labels")
CELLAR = ("--bag", "region,cellar", "--labels")
LINEAR = ("--model", "linear")

# name: the table, how its labels are known, further options of fit, groups for estimate, columns
# that label keeps
MODELS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], str, str]] = {
    "linear2": (
        "patients", (*WARD, "inputs/patients_counts.csv"), (*SIZE, *LINEAR), "town", "patient,ward"
    ),
    "linear3": (
        "wines", (*CELLAR, "inputs/wines_long.csv"), LINEAR, "region", "region,cellar"
    ),
    "effects": (
        "schools", ("--bag", "school", "--labels", "inputs/schools_counts.csv"), ("--bag-effects",),
        "sex", "school",
    ),
    "noisy": (
        "patients", (*WARD, "inputs/patients_noisy.csv", *NOISE), (*SIZE, *LINEAR), "smoker",
        "patient",
    ),
    "ranges": (
        "patients", (*WARD, "inputs/patients_ranges.csv", "--labels-are", "counts"),
        (*SIZE, *LINEAR), "town,smoker", "patient",
    ),
    "bounds": (
        "patients", (*WARD, "inputs/patients_bounds.csv", "--labels-are", "ranges"),
        ("--exclude", "patient,income", *LINEAR), "size", "patient",
    ),
    "rounded": (
        "shops", (*CHAIN, "inputs/shops_shares.csv", "--labels-are", "rounded", "--skip-unmatched"),
        ("--categorical", "code", "--exclude", "checked", *LINEAR), "code", "shop",
    ),
    "sample": (
        "shops", (*CHAIN, "inputs/shops_groups.csv", "--labels-are", "sample", "--skip-unmatched"),
        ("--features", "turnover,margin", *LINEAR), "online", "shop",
    ),
    "row_labels": (
        "shops", (*CHAIN, "inputs/shops_counts.tsv", "--row-labels", "checked"),
        ("--categorical", "code", *LINEAR), "online", "shop,checked",
    ),
    "steps": (
        "patients", (*WARD, "inputs/patients_one_class.csv"),
        ("--classes", "sick,well", *SIZE, *LINEAR, "--lr", "1e-2", "--epochs", "5"), "smoker",
        "patient",
    ),
    "perceptron": (
        "wines", (*CELLAR, "inputs/wines_counts.csv"),
        ("--model", "mlp", "--epochs", "3", "--lr", "1e-3"), "region", "cellar",
    ),
    "steps3": (
        "wines", (*CELLAR, "inputs/wines_counts.csv"), (*LINEAR, "--lr", "0.03", "--epochs", "15"),
        "region", "cellar",
    ),
    "auto": ("wines", (*CELLAR, "inputs/wines_counts.csv"), (), "region", "cellar"),
}  # fmt: skip
# Folders that are not kept, to save space (that of the perceptron has 1.1 MB); what they say is.
NOT_KEPT = ("perceptron", "auto", "bounds", "sample")
LEFT_OUT = {  # to save space, too, or as a model has no intervals
    "perceptron": ("explain",),
    "steps": ("explain",),
    "rounded": ("evaluate", "estimate"),
    "bounds": ("label", "evaluate", "estimate"),
    "sample": ("label", "evaluate", "estimate"),
    "steps3": ("label", "evaluate", "estimate", "explain"),
    "auto": ("label", "evaluate", "estimate", "explain"),
}

Step = tuple[str, list[str]]


def steps(name: str) -> list[Step]:
    """The commands for one model, by name."""
    table, known, options, by, keep = MODELS[name]
    rows, new = f"inputs/{table}.csv", f"inputs/{table}_new.csv"
    model, out = f"models/{name}", f"outputs/{name}"
    truth = "kind" if table == "wines" else "truth"
    found = {
        "fit": [rows, *known, *options, "--out", model],
        "predict": [model, new, "--out", f"{out}/predict.csv"],
        "label": [model, rows, *known, "--out", f"{out}/label.csv", "--keep", keep],
        "evaluate": [model, new, "--target", truth],
        "estimate": [model, rows, "--by", by, "--out", f"{out}/estimate.csv"],
        "explain": [model, "--out", f"{out}/explain.csv"],
    }
    for command in LEFT_OUT.get(name, ()):
        del found[command]
    steps = [(f"{name} {command}", [command, *rest]) for command, rest in found.items()]
    if name in ("linear2", "linear3", "ranges", "perceptron"):
        end = [rows, *known, "--out"]
        steps += [
            (f"{name} bounds", ["estimate", model, *end, f"{out}/bounds.csv", "--by", by]),
            (f"{name} importance", ["explain", model, *end, f"{out}/importance.csv"]),
        ]
    if name == "rounded":
        percent = [rows, *CHAIN, "inputs/shops_percent.csv", "--skip-unmatched", "--keep", keep]
        file = f"{out}/label_percent.csv"
        steps.append((f"{name} label_percent", ["label", model, *percent, "--out", file]))
    if name in ("effects", "linear2"):
        labels = {"effects": "schools_shares.csv", "linear2": "patients_counts.csv"}[name]
        known_shares = ["--bag", known[1], "--labels", f"inputs/{labels}"]
        file = f"{out}/predict_known.csv"
        steps.append(
            (f"{name} predict_known", ["predict", model, new, *known_shares, "--out", file])
        )
    if name == "effects":  # schools that the model knows, and others
        file = f"{out}/estimate_new.csv"
        steps.append(
            (f"{name} estimate_new", ["estimate", model, new, "--by", "school", "--out", file])
        )
    return steps


# What users get wrong: a name, what the message must name, the command.

ROWS, COUNTS, NEW = "inputs/patients.csv", "inputs/patients_counts.csv", "inputs/patients_new.csv"
FIT = ("fit", ROWS, *WARD)
OUT = ("--out", "models/none")
FITTED, FILE = "models/linear2", ("--out", "outputs/none.csv")
MISTAKES: list[tuple[str, list[str], tuple[str, ...]]] = [
    ("no such bag column", ["house"], ("fit", ROWS, "--bag", "house", "--labels", COUNTS, *OUT)),
    ("a bag without counts", ["003"], (*FIT, "inputs/bad/bag_missing.csv", *OUT)),
    ("a bag twice", ["003"], (*FIT, "inputs/bad/bag_twice.csv", *OUT)),
    ("counts that do not sum", ["005"], (*FIT, "inputs/bad/sum.csv", *OUT)),
    ("words for a count", ["well", "several"], (*FIT, "inputs/bad/words.csv", *OUT)),
    ("a score for a share", ["score.csv"],
     (*FIT, "inputs/bad/score.csv", "--classes", "sick,well", *OUT)),
    ("no such kind of labels", ["gospel"], (*FIT, COUNTS, "--labels-are", "gospel", *OUT)),
    ("no such noise", ["pink"], (*FIT, COUNTS, "--noise", "pink:3", *OUT)),
    ("noise without a width", ["laplace"], (*FIT, COUNTS, "--noise", "laplace", *OUT)),
    ("no such table", ["nowhere.csv"], ("fit", "inputs/nowhere.csv", *WARD, COUNTS, *OUT)),
    ("no such label file", ["nowhere.csv"], (*FIT, "inputs/nowhere.csv", *OUT)),
    ("no such class", ["cured"], (*FIT, COUNTS, "--classes", "well,cured", *OUT)),
    ("no such feature", ["height"], (*FIT, COUNTS, "--features", "height", *OUT)),
    ("a value outside the order", ["size", "L"], (*FIT, COUNTS, "--ordered", "size=S<M", *OUT)),
    ("no such model", ["oracle"], (*FIT, COUNTS, "--model", "oracle", *OUT)),
    ("a rate below 0", ["-1"], (*FIT, COUNTS, "--lr", "-1", *OUT)),
    ("no such option", ["--colour"], (*FIT, COUNTS, "--colour", "red", *OUT)),
    ("bag effects of noisy counts", ["effects"],
     (*FIT, "inputs/patients_noisy.csv", *NOISE, "--bag-effects", *OUT)),
    ("a row's label that is not a class", ["none"],
     ("fit", "inputs/bad/odd_check.csv", *CHAIN, "inputs/shops_counts.tsv",
      "--row-labels", "checked", *OUT)),
    ("the model's folder is a folder of inputs", ["inputs"], (*FIT, COUNTS, "--out", "inputs")),
    ("no such model folder", ["nowhere"], ("predict", "models/nowhere", NEW, *FILE)),
    ("a folder that is not a model", ["inputs"], ("predict", "inputs", NEW, *FILE)),
    ("the output is the input", ["patients_new.csv"], ("predict", FITTED, NEW, "--out", NEW)),
    ("the output is another's file", ["wines.csv"],
     ("predict", FITTED, NEW, "--out", "inputs/wines.csv")),
    ("no such kind of output", ["none.xyz"],
     ("predict", FITTED, NEW, "--out", "outputs/none.xyz")),
    ("a column is missing", ["blood"], ("predict", FITTED, "inputs/bad/no_blood.csv", *FILE)),
    ("a word among numbers", ["blood", "plenty"],
     ("predict", FITTED, "inputs/bad/blood_words.csv", *FILE)),
    ("no such column to keep", ["height"], ("predict", FITTED, NEW, "--keep", "height", *FILE)),
    ("labels of other counts", ["005"],
     ("label", FITTED, ROWS, *WARD, "inputs/bad/sum.csv", *FILE)),
    ("labels of other classes", ["high spend"],
     ("label", FITTED, ROWS, *CHAIN, "inputs/shops_counts.tsv", *FILE)),
    ("no such target", ["outcome"], ("evaluate", FITTED, NEW, "--target", "outcome")),
    ("a true label that is not a class", ["cured"],
     ("evaluate", FITTED, "inputs/bad/odd_truth.csv", "--target", "truth")),
    ("no such group", ["planet"], ("estimate", FITTED, ROWS, "--by", "planet")),
    ("effects of a model without intervals", ["intervals"], ("explain", "models/steps")),
    ("rows without counts", ["--labels"], ("explain", FITTED, ROWS)),
]  # fmt: skip


RULE = re.compile("[\u2500-\u257f]+\n")  # between the lines of a table: left out, to save space


def run(command: Sequence[str]) -> dict[str, Any]:
    """What a command says, without a terminal, in lines of 100 characters."""
    from typer.testing import CliRunner

    from bagwise.cli import app

    done = CliRunner().invoke(app, list(command), env={"COLUMNS": "100"}, prog_name="bagwise")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    stdout = re.sub(r"\d+(?= s in all\))", "#", done.stdout)  # another number each time
    lines = [line for line in stdout.splitlines(keepends=True) if not RULE.fullmatch(line)]
    stdout = "".join(lines)
    return {
        "command": list(command), "exit": done.exit_code, "stdout": stdout, "stderr": done.stderr
    }  # fmt: skip


def shorten(path: Path) -> None:
    """Leave seven digits of probabilities, to save space."""
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        for row in rows:
            named = zip(head, row, strict=True)
            writer.writerow(
                f"{round(float(cell), 7):.7g}" if name.startswith("p_") else cell
                for name, cell in named
            )


def main(folder: Path) -> None:
    """Make all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("inputs", "models", "outputs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    os.chdir(folder)
    for make in (patients, wines, shops, schools, spoilt):
        make(Path("inputs"))
    found = []
    for model in MODELS:
        for name, command in steps(model):
            found.append({"name": name, **run(command)})
            if found[-1]["exit"]:
                raise SystemExit(f"{name}: {found[-1]['stderr']}")
    for name, names, command in MISTAKES:
        said = run(command)
        text = said["stdout"] + said["stderr"]
        if said["exit"] == 0 or not all(word in text for word in names):
            raise SystemExit(f"{name}: {said}")
        found.append({"name": name, "names": names, **said})
    for model in NOT_KEPT:
        shutil.rmtree(Path("models") / model)
    for path in Path("outputs").rglob("*.csv"):
        shorten(path)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    Path("transcripts.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
