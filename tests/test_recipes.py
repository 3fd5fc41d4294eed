"""The recipes of examples/ for loops, trainers, compilers, several processes and export."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"


def lines_of(name: str, *options: str) -> list[str]:
    """What a recipe prints: about ten lines."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *options],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert 3 <= len(lines) <= 12
    return lines


def needs(*packages: str) -> Any:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def number(lines: list[str], pattern: str) -> float:
    (found,) = [match for line in lines if (match := re.search(pattern, line))]
    return float(found[1])


def test_half_precision_finds_what_full_precision_finds() -> None:
    rows = [line.split() for line in lines_of("mixed_precision.py")[2:]]
    assert [row[0] for row in rows] == ["full", "bf16", "fp16"]
    assert min(float(row[2]) for row in rows) > 0.9
    assert all(0 < float(row[3]) < 0.02 for row in rows[1:])
    assert [int(row[1]) > 0 for row in rows] == [False, False, True]  # fp16 lowers its scale


@needs("lightning")
def test_lightning_learns_on_two_processes() -> None:
    lines = lines_of("lightning_loop.py")
    assert any(line.startswith("processes: 2,") for line in lines)
    assert number(lines, r"accuracy .*: (\S+)") > 0.9
    losses = [float(line.split()[-1]) for line in lines if line.startswith("epoch")]
    assert losses == sorted(losses, reverse=True)


@needs("transformers", "accelerate")
def test_hugging_face_learns_texts_from_bags() -> None:
    lines = lines_of("hugging_face.py")
    assert number(lines, r"accuracy .*: (\S+)") > 0.8
    best = number(lines, r"best loss .*: (\S+)")
    assert all(best <= float(line.split()[-1]) for line in lines if line.startswith("epoch"))


def test_ragged_batches_are_one_compiled_graph() -> None:
    lines = lines_of("compiled_step.py")
    assert number(lines, r"compiled graphs: (\d+)") == 1
    assert number(lines, r"graph breaks: (\d+)") == 0
    assert number(lines, r"different \(bags, instances\): (\d+)") > 50
    assert number(lines, r"largest difference .*: (\S+)") < 1e-5


def test_ddp_and_fsdp2_find_what_one_process_finds() -> None:
    lines = lines_of("ddp_fsdp.py", "--epochs", "5")
    weights = [int(line.split("weights")[0].split()[-1].replace(",", "")) for line in lines]
    assert weights[0] == weights[1] == 2 * weights[2]  # FSDP2 has half of them in a process
    assert all(float(line.split()[-1]) < 1e-4 for line in lines)


@needs("onnx", "onnxruntime", "onnxscript")
def test_an_exported_classifier_has_equal_probabilities() -> None:
    lines = lines_of("onnx_export.py")
    differences = [float(line.split()[-1]) for line in lines if "rows: largest difference" in line]
    assert len(differences) == 3
    assert max(differences) < 1e-5
    assert number(lines, r"accuracy of the exported model: (\S+)") > 0.9
