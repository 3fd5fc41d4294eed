from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from shutil import ignore_patterns
from typing import Any

import pytest
from PIL import Image

import bagwise.demo
from bagwise.methods import PAPER_METHODS
from bagwise.training import TrainingOptions

pytestmark = pytest.mark.slow

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


def test_four_exact_groupings_give_every_label_away_and_noisy_ones_none() -> None:
    lines = [line.split() for line in output_of("disclosure.py").splitlines()[1:]]
    proved = {(line[0], line[1]): line[-1] for line in lines}
    assert proved["4", "exact"] == "100.0%"
    assert proved["4", "epsilon"] == "0.0%"


def test_a_new_method_is_one_class() -> None:
    found = accuracies(output_of("new_method.py"))
    assert len(found) == 3
    assert min(found) > 0.95


def test_images_on_disk_train_through_workers_killed_and_resumed(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "images_on_disk.py")]
    whole = subprocess.run(
        [*command, "--epochs", "3", "--folder", "whole"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert whole.returncode == 0, whole.stderr
    assert len(list((tmp_path / "whole").glob("slide-*/*.png"))) == 1797
    stopped = tmp_path / "stopped" / "run" / "history.jsonl"
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped", ignore=ignore_patterns("run"))
    process = subprocess.Popen([*command, "--epochs", "3", "--folder", "stopped"], cwd=tmp_path)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (stopped.exists() and stopped.read_text()):
        time.sleep(0.02)
    process.kill()  # while its workers are fetching
    process.wait()
    assert 1 <= len(epochs_in(stopped)) <= 2
    done = subprocess.run(
        [*command, "--epochs", "3", "--folder", "stopped"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert epochs_in(stopped) == epochs_in(tmp_path / "whole" / "run" / "history.jsonl")
    assert done.stdout == whole.stdout


def epochs_in(path: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_the_demo_uses_each_method_once_before_it_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the seconds of the first one are mostly those of compiling kernels."""
    calls: list[tuple[str, bool]] = []
    real = bagwise.demo.run

    def run(method: str, K: int, seed: int = 0, options: Any = None) -> Any:
        timed = options.epochs > 1
        calls.append((method, timed))
        return real(method, K, seed, TrainingOptions(epochs=1)) if timed else ([], 0.0)

    monkeypatch.setattr(bagwise.demo, "run", run)
    bagwise.demo.main(tmp_path / "digits.png", sizes=[bagwise.demo.SHOWN_SIZE])
    assert calls == [(name, timed) for timed in (False, True) for name in PAPER_METHODS]


def test_the_demo_shows_a_table_and_draws_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bagwise.demo.main(tmp_path / "out" / "digits.png", epochs=2)
    shown = capsys.readouterr().out
    for name in ("Supervised", "RC_Approx", "CC", "DLLP", "LLPFC", "OT", "PLL", "K = 64"):
        assert name in shown
    with Image.open(tmp_path / "out" / "digits.png") as picture:
        assert picture.size[0] > 1000
