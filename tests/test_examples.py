from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import bagwise.demo

EXAMPLES = Path(__file__).parent.parent / "examples"


def output_of(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracies(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"(?:0|1)\.\d{3}", text)]


def test_the_estimator_takes_ten_lines() -> None:
    found = accuracies(output_of("estimator.py"))
    assert min(found) > 0.9
    code = [
        line
        for line in (EXAMPLES / "estimator.py").read_text().split('"""')[2].splitlines()
        if line.strip()
    ]
    assert len(code) <= 11


def test_the_loss_takes_five_changed_lines() -> None:
    assert min(accuracies(output_of("pytorch_loop.py"))) > 0.95
    code = (EXAMPLES / "pytorch_loop.py").read_text()
    assert sum(line.endswith("# bags") for line in code.splitlines()) <= 5


def test_a_new_method_is_one_class() -> None:
    found = accuracies(output_of("new_method.py"))
    assert len(found) == 3
    assert min(found) > 0.95


def test_the_demo_shows_a_table_and_draws_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bagwise.demo, "EPOCHS", 2)
    bagwise.demo.main(tmp_path / "out" / "digits.png")
    shown = capsys.readouterr().out
    for name in ("Supervised", "RC_Approx", "CC", "DLLP", "LLPFC", "OT", "PLL", "K = 64"):
        assert name in shown
    with Image.open(tmp_path / "out" / "digits.png") as picture:
        assert picture.size[0] > 1000
