from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from nbclient import NotebookClient
from typer.testing import CliRunner

from bagwise.cli import app

ROOT = Path(__file__).parent.parent
KEEP = """
probabilities.to_csv("frames.csv", index=False)
polars_probabilities.write_csv("polars.csv")
labels.to_csv("frame_labels.csv", index=False)
shares.to_csv("frame_shares.csv", index=False)
"""


@pytest.mark.slow
def test_the_notebook_has_the_numbers_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make = [sys.executable, ROOT / "examples" / "make_table.py", "breast_cancer", "--out", "data/"]
    subprocess.run(make, check=True)
    known = ("--bag", "ward", "--labels", "data/bags.csv")
    for line in (
        ("fit", "data/rows.csv", *known, "--out", "model"),
        ("predict", "model", "data/test.csv", "--out", "predictions.csv"),
        ("label", "model", "data/rows.csv", *known, "--out", "labels.csv"),
        ("estimate", "model", "data/rows.csv", "--by", "ward", "--out", "shares.csv"),
    ):
        assert CliRunner().invoke(app, list(line)).exit_code == 0
    book = nbformat.read(ROOT / "examples" / "tables.ipynb", as_version=4)
    book.cells.append(nbformat.v4.new_code_cell(KEEP))
    NotebookClient(book, timeout=600, kernel_name="python3").execute()
    files = pd.read_csv("predictions.csv")
    for name in ("frames.csv", "polars.csv"):
        frame = pd.read_csv(name)
        for label in frame.columns:
            np.testing.assert_array_equal(frame[label], files[f"p_{label}"])
    ours, theirs = pd.read_csv("frame_labels.csv"), pd.read_csv("labels.csv")
    for column in ours.columns:
        np.testing.assert_array_equal(ours[column], theirs[column])
    ours, theirs = pd.read_csv("frame_shares.csv"), pd.read_csv("shares.csv")
    for column in ("share", "low", "high"):
        np.testing.assert_allclose(ours[column], theirs[column], rtol=1e-7)  # eight digits there
