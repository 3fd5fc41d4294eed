"""Inputs of the fuzzing targets, some of which once failed: `make fuzz` searches for more."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

FUZZ = Path(__file__).parent.parent / "fuzz"
sys.path.append(str(FUZZ))

import folders  # noqa: E402
import texts  # noqa: E402

import engines  # noqa: E402

FILES = sorted(path for path in (FUZZ / "corpus").glob("*/*"))
REFUSED = {
    "infinite.csv",
    "deep.toml",
    "escape_in_a_short_row.csv",
    "list_as_method.toml",
    "long_name.toml",
    "many_digits.toml",
    "range_as_total.csv",
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_files_are_read_or_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    make, _ = texts.READ[file.parent.name]
    read = make(tmp_path)
    outcomes = {texts.attempt(read, file.read_bytes(), Random(seed)) for seed in range(12)}
    assert ("read" in outcomes) == (file.name not in REFUSED)


@pytest.mark.parametrize("name", texts.READ)
def test_damaged_files_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    make, kind = texts.READ[name]
    assert texts.steps(make(tmp_path), kind, name)(0) == texts.AT_A_TIME


def test_damaged_model_folders_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    step = folders.make(tmp_path)
    assert sum(map(step, range(4))) == 4 * folders.AT_A_TIME


@pytest.mark.parametrize("seed", [1, 15, 24])  # 15, 24: transport was no upper bound
def test_engines_agree(seed: int) -> None:
    assert engines.step(seed) > 0
