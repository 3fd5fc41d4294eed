"""Models that are saved without the counts of single bags, to be shared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pytest
from typer.testing import CliRunner

import bagwise
from bagwise.cli import app
from bagwise.errors import InputError


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=240)
    yes = (x + rng.logistic(size=240) / 3 > 0).astype(int)
    ward = np.arange(240) // 20
    count = np.bincount(ward, yes).astype(int)
    names = [f"Ward-{w}" for w in range(12)]
    rows = pa.table({"ward": [names[w] for w in ward], "x": x})
    return rows, pa.table({"ward": names, "no": 20 - count, "yes": count})


def test_no_file_names_a_bag_and_predictions_are_the_same(
    tmp_path: Path, tables: tuple[pa.Table, pa.Table]
) -> None:
    rows, labels = tables
    how = {"bag": "ward", "labels": labels, "model": "linear", "progress": False}
    model = bagwise.fit(rows, **how)
    assert model.facts.has_counts
    bagwise.fit(rows, **how, keep_counts=False, out=tmp_path / "shared")
    names = sorted(path.name for path in (tmp_path / "shared").iterdir())
    assert "held_out_bags.csv" not in names
    for name in names:
        assert b"Ward-" not in (tmp_path / "shared" / name).read_bytes(), name
    shared = bagwise.load(tmp_path / "shared")
    np.testing.assert_array_equal(
        np.asarray(shared.predict_proba(rows)), np.asarray(model.predict_proba(rows))
    )
    assert shared.summary() == model.summary()


def test_its_report_says_that_counts_are_left_out(
    tmp_path: Path, tables: tuple[pa.Table, pa.Table]
) -> None:
    rows, labels = tables
    model = bagwise.fit(rows, "ward", labels, model="linear", progress=False, keep_counts=False)
    model.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("saved without the counts of single bags") == 3
    assert "Ward-" not in page
    assert "No bag's counts" not in page
    for draw in (model.plot_held_out, model.plot_calibration):
        with pytest.raises(InputError, match="Fit it with keep_counts=True"):
            draw()


def test_the_command_line_leaves_them_out(
    tmp_path: Path, tables: tuple[pa.Table, pa.Table]
) -> None:
    for name, table in zip(("rows", "labels"), tables, strict=True):
        pcsv.write_csv(table, tmp_path / f"{name}.csv")
    out = tmp_path / "model"
    command = ["fit", f"{tmp_path}/rows.csv", "--bag", "ward", "--labels", f"{tmp_path}/labels.csv"]
    command += ["--model", "linear", "--no-keep-counts", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "held_out_bags.csv" not in done.output
    assert not (out / "held_out_bags.csv").exists()


def test_keep_counts_is_true_or_false(tables: tuple[pa.Table, pa.Table]) -> None:
    rows, labels = tables
    with pytest.raises(InputError, match="keep_counts is 'no'"):
        bagwise.fit(rows, "ward", labels, progress=False, keep_counts="no")
