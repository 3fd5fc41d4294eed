"""Whatever a user gives a command by mistake is answered in one line, and a bug never is."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from bagwise import __version__
from bagwise.cli import app
from bagwise.errors import BagwiseError
from bagwise.paper.run import execute
from bagwise.paper.settings import RunSettings

HUGE = "9" * 400
FIT = ("--bag", "ward", "--labels", "bags.csv", "--out", "new")
LABEL = ("--bag", "ward", "--labels", "bags.csv", "--out", "labels.csv")
TRAIN = ("train", "--dataset", "digits", "--epochs", "1", "--out", "new")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 120 rows in 12 bags, its counts, a model of it, and a run."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    ward, sick = np.arange(120) % 12, rng.random(120) < 0.4
    x = rng.normal(size=120) + 2 * sick
    lines = [
        f"W{w},{value:.3f},{'SML'[i % 3]}" for i, (w, value) in enumerate(zip(ward, x, strict=True))
    ]
    (folder / "rows.csv").write_text("\n".join(["ward,blood,size", *lines]) + "\n")
    counts = [f"W{w},{(~sick[ward == w]).sum()},{sick[ward == w].sum()}" for w in range(12)]
    (folder / "bags.csv").write_text("\n".join(["ward,no,yes", *counts]) + "\n")
    names = ["--model", "linear", "--out", folder / "model"]
    done = run("fit", folder / "rows.csv", "--bag", "ward", "--labels", folder / "bags.csv", *names)
    assert done.exit_code == 0, done.output
    execute(RunSettings("digits", "linear", "cc", 8, 1e-2, 1, 0), folder / "run")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a command may work in and a test may spoil."""
    folder = Path(shutil.copytree(made, tmp_path / "here"))
    monkeypatch.chdir(folder)
    return folder


def refuses(*arguments: object) -> str:
    """The one line of a command that a user got wrong."""
    done = run(*arguments)
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    lines = done.stderr.splitlines()
    assert done.exit_code in (2, 3), done.output
    assert lines[-1].startswith("Error: "), done.output
    assert "Traceback" not in done.output
    return lines[-1]


def refuses_briefly(*arguments: object) -> None:
    """The same of mistakes that the parser of options may find too, which shows the usage first."""
    assert len(refuses(*arguments)) > len("Error: .")


FITS = {
    "a setting without a value": ("--set", "epsilon"),
    "a setting without a name": ("--set", "=3"),
    "an unknown option of the method": ("--set", "color=3"),
    "an option of another type": ("--method", "ot", "--set", "epsilon=high"),
    "an option that is a list": ("--method", "ot", "--set", "epsilon=[1,2]"),
    "an option that is null": ("--method", "ot", "--set", "epsilon=null"),
    "an option that is NaN": ("--method", "ot", "--set", "epsilon=NaN"),
    "an option beyond all numbers": ("--method", "ot", "--set", f"epsilon={HUGE}"),
    "an option deep in brackets": ("--method", "ot", "--set", "epsilon=" + "[" * 99_999),
    "an unknown method": ("--method", "magic"),
    "an unknown engine": ("--engine", "steam"),
    "an unknown model": ("--model", "oracle"),
    "a rate that is not a number": ("--lr", "nan"),
    "a rate below 0": ("--lr", "-1"),
    "an infinite rate": ("--lr", "inf"),
    "no epochs": ("--epochs", "0"),
    "more epochs than numbers": ("--epochs", HUGE),
    "a negative seed": ("--seed", "-1"),
    "a seed beyond all numbers": ("--seed", HUGE),
    "memory that is no size": ("--memory", "plenty"),
    "memory beyond all numbers": ("--memory", f"{HUGE}GB"),
    "noise without a width": ("--noise", "laplace"),
    "noise of width NaN": ("--noise", "laplace:nan"),
    "noise of infinite width": ("--noise", "laplace:1e999"),
    "noise of an unknown kind": ("--noise", "pink:3"),
    "what labels are, unknown": ("--labels-are", "gospel"),
    "an order without an equals sign": ("--ordered", "size"),
    "an order with a value twice": ("--ordered", "size=S<S"),
    "an order of an unknown column": ("--ordered", "weight=S<M"),
    "an unknown column to learn from": ("--features", "weight"),
    "all columns left out": ("--exclude", "blood,size"),
    "a class twice": ("--classes", "yes,yes"),
    "an unknown class": ("--classes", "maybe,perhaps"),
    "a bag without a name": ("--bag", ""),
    "an unknown bag": ("--bag", "house"),
    "the bag as a label": ("--row-labels", "ward"),
    "an unknown label": ("--row-labels", "truth"),
    "a file for the model": ("--out", "rows.csv"),
    "a folder of other things": ("--out", "."),
    "a name that is too long": ("--out", "x" * 5000),
    "a URI for the model": ("--out", "s3://bucket/model"),
    "a store within the model": ("--memory", "1GB", "--store", "new/store"),
    "a store that is a file": ("--memory", "1GB", "--store", "rows.csv"),
    "workers without Ray": ("--workers", "3"),
}


@pytest.mark.parametrize("options", FITS.values(), ids=FITS.keys())
def test_fit_answers_each_mistake_in_one_line(options: tuple[str, ...], here: Path) -> None:
    refuses_briefly("fit", "rows.csv", *FIT, *options)


def _parquet(**columns: Any) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table(columns), path)


def _cut(path: Path) -> None:
    _parquet(ward=["W1"] * 99, blood=[1.0] * 99, size=["S"] * 99)(path)
    path.write_bytes(path.read_bytes()[:-20])


TABLES: dict[str, tuple[str, bytes | Callable[[Path], object]]] = {
    "nothing": ("bad.csv", b""),
    "a header alone": ("bad.csv", b"ward,blood,size\n"),
    "bytes": ("bad.csv", bytes(range(256)) * 9),
    "zeros": ("bad.csv", bytes(999)),
    "a header in Latin-1": ("bad.csv", "ward,größe\nW1,2\n".encode("latin-1")),
    "rows in Latin-1": ("bad.csv", "ward,blood,size\nW1,2,größe\n".encode("latin-1")),
    "UTF-16": ("bad.csv", "ward,blood,size\nW1,2,S\n".encode("utf-16")),
    "rows of other lengths": ("bad.csv", b"ward,blood,size\nW1,2,S\nW1,2,S,4\n"),
    "an open quotation mark": ("bad.csv", b'ward,blood,size\n"W1,2,S\nW1,2,S\n'),
    "the same column twice": ("bad.csv", b"ward,blood,blood\nW1,2,3\n"),
    "another kind of file": ("bad.xlsx", b"PK\3\4"),
    "a Parquet file of text": ("bad.parquet", b"ward,blood,size\nW1,2,S\n"),
    "a Parquet file cut off": ("bad.parquet", _cut),
    "a Parquet file without rows": ("bad.parquet", _parquet(ward=pa.array([], pa.string()))),
    "a Parquet file without columns": ("bad.parquet", _parquet()),
    "lists as bags": ("bad.parquet", _parquet(ward=[[1], [2]], blood=[1.0, 2.0], size=["S", "M"])),
    "gzip that is none": ("bad.csv.gz", b"ward,blood,size\nW1,2,S\n"),
}


ON_ROWS = ("predict", "label", "evaluate", "estimate", "explain")


@pytest.mark.parametrize(
    ("command", "name", "content"),
    [("fit", *table) for table in TABLES.values()]
    + [(ON_ROWS[i % len(ON_ROWS)], *table) for i, table in enumerate(TABLES.values())],
    ids=[*TABLES, *TABLES],
)
def test_every_command_answers_a_bad_table_in_one_line(
    command: str, name: str, content: bytes | Callable[[Path], object], here: Path
) -> None:
    if callable(content):
        content(here / name)
    else:
        (here / name).write_bytes(content)
    bags = ("--bag", "ward", "--labels", "bags.csv")
    arguments = {
        "fit": ("fit", name, *FIT),
        "predict": ("predict", "model", name, "--out", "new.csv"),
        "label": ("label", "model", name, *LABEL),
        "evaluate": ("evaluate", "model", name, "--truth", "size"),
        "estimate": ("estimate", "model", name, "--by", "size"),
        "explain": ("explain", "model", name, *bags),
    }
    refuses_briefly(*arguments[command])


LABEL_FILES = {
    "nothing": b"",
    "a header alone": b"ward,no,yes\n",
    "text": b"ward,no,yes\nW1,few,many\n",
    "numbers below 0": b"ward,no,yes\nW1,-5,15\n",
    "infinity": b"ward,no,yes\nW1,inf,3\n",
    "numbers beyond all": f"ward,no,yes\nW1,{HUGE},3\n".encode(),
    "numbers near the largest": b"ward,no,yes\nW1,1e308,1e308\n",
    "halves": b"ward,no,yes\nW1,2.5,7.5\n",
    "a bag twice": b"ward,no,yes\nW1,5,5\nW1,5,5\n",
    "one class": b"ward,no\nW1,10\n",
    "ranges that run backwards": b"ward,no,yes\nW1,9-2,3\n",
    "ranges beyond all numbers": f"ward,no,yes\nW1,1-{HUGE},3\n".encode(),
    "Latin-1": "ward,nö,yes\nW1,3,7\n".encode("latin-1"),
    "bytes": bytes(range(256)) * 9,
}


ON_COUNTS = ("label", "estimate", "explain", "report")


@pytest.mark.parametrize(
    ("command", "content"),
    [("fit", content) for content in LABEL_FILES.values()]
    + [(ON_COUNTS[i % len(ON_COUNTS)], content) for i, content in enumerate(LABEL_FILES.values())],
    ids=[*LABEL_FILES, *LABEL_FILES],
)
def test_every_command_answers_a_bad_label_file_in_one_line(
    command: str, content: bytes, here: Path
) -> None:
    (here / "bad.csv").write_bytes(content)
    known = ("rows.csv", "--bag", "ward", "--labels", "bad.csv")
    arguments: dict[str, tuple[str, ...]] = {
        "fit": ("fit", *known, "--out", "new"),
        "label": ("label", "model", *known, "--out", "labels.csv"),
        "estimate": ("estimate", "model", *known, "--by", "size"),
        "explain": ("explain", "model", *known),
        "report": ("report", "model", *known),
    }
    refuses_briefly(*arguments[command])


OTHERS = {
    "a pattern that fits nothing": ("predict", "model", "*.nothing", "--out", "p.csv"),
    "a folder of nothing as a table": ("predict", "model", "run", "--out", "p.csv"),
    "a table in a place of no kind": ("predict", "model", "ftp://host/rows.csv", "--out", "p.csv"),
    "a database that is not there": ("predict", "model", "w.duckdb::rows", "--out", "p.csv"),
    "a database beside a file": (
        "predict",
        "model",
        "w.duckdb::rows",
        "rows.csv",
        "--out",
        "p.csv",
    ),
    "a model that is not there": ("predict", "nowhere", "rows.csv", "--out", "p.csv"),
    "a model that is a file": ("predict", "rows.csv", "rows.csv", "--out", "p.csv"),
    "a model that is a run": ("predict", "run", "rows.csv", "--out", "p.csv"),
    "predictions of another kind": ("predict", "model", "rows.csv", "--out", "p.docx"),
    "predictions into a folder": ("predict", "model", "rows.csv", "--out", "model"),
    "predictions over the input": ("predict", "model", "rows.csv", "--out", "rows.csv"),
    "predictions below a file": ("predict", "model", "rows.csv", "--out", "rows.csv/p.csv"),
    "predictions to a URI": ("predict", "model", "rows.csv", "--out", "s3://bucket/p.csv"),
    "unknown columns to keep": ("predict", "model", "rows.csv", "--out", "p.csv", "--keep", "age"),
    "effects to a URI": ("explain", "model", "--out", "gs://bucket/effects.csv"),
    "an unknown truth": ("evaluate", "model", "rows.csv", "--truth", "truth"),
    "a truth of other classes": ("evaluate", "model", "rows.csv", "--truth", "size"),
    "groups of nothing": ("estimate", "model", "rows.csv", "--by", ""),
    "groups of an unknown column": ("estimate", "model", "rows.csv", "--by", "age"),
    "a picture of another kind": ("estimate", "model", "rows.csv", "--by", "size", "--figure", "a"),
    "rows without counts": ("explain", "model", "rows.csv"),
    "counts without bags": ("explain", "model", "rows.csv", "--labels", "bags.csv"),
    "effects over another file": ("explain", "model", "--out", "rows.csv"),
    "a report of nothing": ("report", "nowhere"),
    "a report over another file": ("report", "model", "--out", "rows.csv"),
    "a report below a file": ("report", "model", "--out", "rows.csv/r.html"),
    "a report of a folder of other things": ("report", "."),
    "a table of nothing": ("table", "nowhere"),
    "figures of nothing": ("figures", "nowhere", "--out", "f"),
    "figures in a file": ("figures", "run", "--out", "rows.csv"),
    "an export of nothing": ("export", "nowhere", "--out", "e"),
    "an export in a file": ("export", "run", "--out", "rows.csv"),
    "an unknown data set": ("train", "--dataset", "moons", "--out", "new"),
    "bags of 0": (*TRAIN, "--bag-size", "0"),
    "bags larger than the data": (*TRAIN, "--bag-size", "99999"),
    "an unknown device": (*TRAIN, "--device", "abacus"),
    "a device that is not here": (*TRAIN, "--device", "cuda:99"),
    "a device without numbers": (*TRAIN, "--device", "meta"),
    "an unknown optimizer": (*TRAIN, "--optimizer", "luck"),
    "an unknown schedule": (*TRAIN, "--schedule", "never"),
    "an unknown augmentation": (*TRAIN, "--augment", "blur"),
    "an average beyond 1": (*TRAIN, "--average", "2"),
    "clipping at NaN": (*TRAIN, "--clip", "nan"),
    "a rate that makes it diverge": (*TRAIN, "--lr", "1e99", "--optimizer", "sgd"),
    "a run's folder that is a file": (*TRAIN, "--out", "rows.csv"),
    "the folder of another run": (*TRAIN, "--out", "run"),
    "a batch of nothing": (*TRAIN, "--batch-instances", "0"),
    "an unknown option of the optimizer": (*TRAIN, "--optimizer-set", "color=3"),
    "betas that are text": (*TRAIN, "--optimizer-set", "betas=high"),
    "one beta": (*TRAIN, "--optimizer-set", "betas=[0.9]"),
    "betas beyond 1": (*TRAIN, "--optimizer-set", "betas=[2,3]"),
    "a negative eps": (*TRAIN, "--optimizer-set", "eps=-1"),
    "a rate given twice": (*TRAIN, "--optimizer-set", "lr=high"),
    "a momentum of text": (*TRAIN, "--optimizer", "sgd", "--optimizer-set", "momentum=high"),
    "Nesterov without momentum": (*TRAIN, "--optimizer", "sgd", "--optimizer-set", "nesterov=true"),
    "two ways of computing": (
        *TRAIN,
        "--optimizer-set",
        "fused=true",
        "--optimizer-set",
        "foreach=true",
    ),
    "a capturable optimizer": (*TRAIN, "--optimizer-set", "capturable=true"),
    "parameters given twice": (*TRAIN, "--optimizer-set", "params=3"),
    "an option of a constant schedule": (*TRAIN, "--schedule-set", "gamma=3"),
    "an unknown option of the schedule": (*TRAIN, "--schedule", "step", "--schedule-set", "a=3"),
    "a schedule without its option": (*TRAIN, "--schedule", "step"),
    "steps of 0": (*TRAIN, "--schedule", "step", "--schedule-set", "step_size=0"),
    "steps of text": (*TRAIN, "--schedule", "step", "--schedule-set", "step_size=often"),
    "a cosine of no epochs": (*TRAIN, "--schedule", "cosine", "--schedule-set", "T_max=0"),
    "a cosine of text": (*TRAIN, "--schedule", "cosine", "--schedule-set", "T_max=long"),
    "a plateau of another kind": (*TRAIN, "--schedule", "plateau", "--schedule-set", "mode=flat"),
    "a plateau that rises": (*TRAIN, "--schedule", "plateau", "--schedule-set", "factor=3"),
    "a sweep that is not there": ("sweep", "nothing.toml", "--out", "s"),
    "a sweep that is a folder": ("sweep", "run", "--out", "s"),
    "a plugin that is not there": ("--plugin", "nothing_there", "table", "run"),
    "a plugin without a name": ("--plugin", "", "table", "run"),
    "a plugin relative to nothing": ("--plugin", ".here", "table", "run"),
    "a plugin that is no name": ("--plugin", "../x y.py", "table", "run"),
    "a plugin that cannot be parsed": ("--plugin", "unparsable", "table", "run"),
    "a plugin that ends Python": ("--plugin", "ending", "table", "run"),
}


@pytest.mark.parametrize("arguments", OTHERS.values(), ids=OTHERS.keys())
def test_every_other_mistake_is_one_line(arguments: tuple[str, ...], here: Path) -> None:
    (here / "unparsable.py").write_text("def (")
    (here / "ending.py").write_text("raise SystemExit(0)")
    refuses_briefly(*arguments)


SWEEP = {
    "datasets": ["digits"], "models": ["linear"], "methods": ["cc"], "bag_sizes": [8],
    "lrs": [0.01], "epochs": 1,
}  # fmt: skip
SWEEPS: dict[str, bytes | dict[str, str]] = {
    "bytes": bytes(range(256)),
    "Latin-1": "datasets = ['größe']".encode("latin-1"),
    "half a line": b"datasets = [",
    "a key twice": b"epochs = 1\nepochs = 2",
    "depth": b"a = " + b"[" * 99_999,
    "a date as a data set": {"datasets": "[2024-01-01]"},
    "tables as methods": {"methods": "[{a = 1}]"},
    "lists as models": {"models": "[['linear']]"},
    "numbers as methods": {"methods": "[3]"},
    "infinite bags": {"bag_sizes": "[inf]"},
    "true bags": {"bag_sizes": "[true]"},
    "huge bags": {"bag_sizes": f"[{HUGE}]"},
    "rates that are no numbers": {"lrs": "[nan]"},
    "a time as epochs": {"epochs": "12:30:00"},
    "a list as epochs": {"epochs": "[1]"},
    "an unknown selection": {"select": "[1]"},
    "options of text": {"method_options": "'none'"},
    "an option of a date": {"method": "{epsilon = [2024-01-01]}", "methods": "['ot']"},
    "a pilot of text": {"pilot": "'short'"},
    "stages of text": {"pilot": "{stages = 'long'}"},
    "overrides of text": {"override": "'all'"},
    "an override of a date": {"override": "[{method = 'cc', epochs = 2024-01-01}]"},
    "optimizer options of text": {"optimizer_options": "'fast'"},
    "betas of one": {"optimizer_options": "{betas = [0.9]}"},
    "negative betas": {"optimizer_options": "{betas = [-1, -1]}"},
}


@pytest.mark.parametrize("content", SWEEPS.values(), ids=SWEEPS.keys())
def test_a_bad_sweep_file_is_one_line(content: bytes | dict[str, str], here: Path) -> None:
    if isinstance(content, dict):
        whole = {name: json.dumps(value) for name, value in SWEEP.items()} | content
        content = "\n".join(f"{name} = {value}" for name, value in whole.items()).encode()
    (here / "bad.toml").write_bytes(content)
    assert "bad.toml" in refuses("sweep", "bad.toml", "--out", "s")


def planted(*_: object, **__: object) -> None:
    """A mistake of a developer: numpy says of it what it also says of a user's arrays."""
    np.zeros(2) + np.zeros(3)


DO_SWEEP = ("sweep", "s.toml", "--out", "s")
PREDICT = ("predict", "model", "rows.csv", "--out", "p.csv")
BUGS = {
    "reading labels": ("bagwise.tables.labels.cells.numbers_of", ("fit", "rows.csv", *FIT)),
    "making a method": (
        "bagwise.methods.direct.CC.__init__",
        ("fit", "rows.csv", *FIT, "--lr", "0.1"),
    ),
    "reading columns": ("bagwise.tables.encode.columns._made", PREDICT),
    "reading settings": ("bagwise.storage.model_folder.check_config", PREDICT),
    "reading weights": ("bagwise.tables.model.linear_model.require_finite", PREDICT),
    "reading intervals": ("bagwise.tables.model.interval_file.require_finite", PREDICT),
    "reading facts": ("bagwise.tables.model.fit_file.from_json", ("report", "model")),
    "showing doubts": ("bagwise.tables.model.fit_file.from_json", PREDICT),
    "reading digests": ("bagwise.storage.array_files._digests", PREDICT),
    "looking at a former output": (
        "bagwise.tables.read.dialect._header",
        (*PREDICT[:-1], "old.csv"),
    ),
    "reading a result": ("bagwise.paper.run.check_history", ("table", "run")),
    "reading a sweep": (
        "bagwise.paper.sweep_file._method_options",
        ("sweep", "s.toml", "--out", "s"),
    ),
    "computing a loss": ("bagwise.methods.direct.CC.loss", TRAIN),
    "words of options": (
        "bagwise.tables.labels.label_file._refuse_repeated",
        ("fit", "rows.csv", *FIT),
    ),
}


@pytest.mark.parametrize(("place", "arguments"), BUGS.values(), ids=BUGS.keys())
def test_a_bug_at_any_depth_is_a_traceback_that_says_what_to_send(
    place: str, arguments: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "s.toml").write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in SWEEP.items()))
    (here / "old.csv").write_text("label\n")
    monkeypatch.setattr(place, planted)
    monkeypatch.setattr("sys.argv", ["bagwise", *arguments])
    done = run(*arguments)
    assert done.exit_code == 1
    assert isinstance(done.exception, ValueError)
    assert not isinstance(done.exception, BagwiseError)
    assert "broadcast" in str(done.exception)
    assert "Error:" not in done.output
    last = traceback.format_exception(done.exception)[-1]
    assert last.startswith(f"This is a bug in Bagwise {__version__}")
    assert shlex.join(["bagwise", *arguments]) in last


@pytest.mark.slow
def test_a_bug_of_the_installed_command_ends_with_the_note_and_code_1(here: Path) -> None:
    (here / "buggy.py").write_text("from bagwise.paper import run\nrun.check_history = None\n")
    whole = [sys.executable, "-m", "bagwise", "--plugin", "buggy", "table", "run"]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith("This is a bug in Bagwise")
    assert "--plugin buggy table run" in done.stderr.splitlines()[-1]


def _of_numpy() -> None:
    np.empty((10**7, 10**7))


def _of_torch() -> None:
    torch.empty(10**15)


def _of_arrow() -> None:
    raise pa.ArrowMemoryError("malloc of size 64 failed")


def _of_python() -> None:
    raise MemoryError


def _of_the_system() -> None:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize("fail", [_of_numpy, _of_torch, _of_arrow, _of_python, _of_the_system])
@pytest.mark.parametrize(
    ("place", "arguments", "advice"),
    [
        ("bagwise.tables.rows_to_fit.rows_in_memory", ("fit", "rows.csv", *FIT), "--memory 2GB"),
        ("bagwise.tables.read.source.FileSource._batches", PREDICT, "fewer rows"),
        ("bagwise.paper.run.make_model", TRAIN, "--batch-instances"),
    ],
)
def test_too_little_memory_is_one_line_that_says_what_to_do(
    place: str,
    arguments: tuple[str, ...],
    advice: str,
    fail: Callable[[], None],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, lambda *_, **__: fail())
    done = run(*arguments)
    assert done.exit_code in (2, 3), done.output
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: there is not enough memory (")
    assert advice in last
