from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel
from typer.testing import CliRunner

import bagwise.training.loop
from bagwise.cli import app
from bagwise.methods import METHODS
from bagwise.paper.accuracy import collect
from bagwise.paper.accuracy_table import render
from bagwise.paper.datasets import Dataset, load_dataset
from bagwise.paper.export import read_runs
from bagwise.paper.published import in_paper, paper_best, paper_results
from bagwise.paper.run import RESULT, RunResult, execute, protocol_data, read_result
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep import local_backend, run_sweep, take_over
from bagwise.paper.sweep_file import read_sweep

RUN = RunSettings("digits", "linear", "cc", 8, 1e-2, 2, 0)
SWEEP = """
datasets = ["digits"]
models = ["linear"]
methods = ["supervised", "cc", "dllp"]
bag_sizes = [8, 16]
seeds = [0, 1]
lrs = [1e-3, 1e-2]
epochs = 6

[pilot]
epochs = 1

[[override]]
method = "cc"
bag_size = 16
engine = "bethe"
"""


def write_sweep(folder: Path, text: str = SWEEP) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def command(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_protocol_holds_out_a_tenth_and_draws_bags_at_random() -> None:
    data = load_dataset("digits")
    training, held_out, test = protocol_data(data, 8, seed=0)
    assert len(held_out) == round(0.1 * 1437) // 8 * 8
    assert len(training) == (1437 - 144) // 8 * 8
    assert set(test.bags.sizes) == {1}
    assert (training.bags.sizes == 8).all()
    other, _, _ = protocol_data(data, 8, seed=1)
    assert not np.array_equal(other.bags.counts, training.bags.counts)
    with pytest.raises(ValueError, match="144 instances of digits do not fill a bag of 200"):
        protocol_data(data, 200, seed=0)
    again, _, _ = protocol_data(data, 8, seed=0)
    assert again.fingerprint() == training.fingerprint()


def test_settings_name_runs_and_refuse_nonsense() -> None:
    assert RUN.name != replace(RUN, seed=1).name
    assert replace(RUN, method="dllp", engine="exact") == replace(RUN, method="dllp")
    assert replace(RUN, method="supervised").bag_size == 1
    for change, message in (
        ({"dataset": "x"}, "dataset is 'x'"),
        ({"bag_size": 0}, "bag_size is 0"),
        ({"lr": -1.0}, "lr is -1"),
        ({"engine": "magic"}, "engine is 'magic'"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(RUN, **change)


def test_a_run_records_both_selections_and_is_not_done_twice(tmp_path: Path) -> None:
    result = execute(replace(RUN, method="rc", epochs=3), tmp_path)
    assert {"train_loss", "train_accuracy", "test_accuracy", "weight_distance"} <= set(
        result.history[0]
    )
    for select, sign in (("accuracy", 1), ("bag_loss", -1)):
        scores = [sign * row[f"val_{select}"] for row in result.history]
        assert sign * result.best_row(select)[f"val_{select}"] == max(scores)
    assert result.versions["torch"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [RESULT]
    before = (tmp_path / RESULT).stat().st_mtime_ns
    assert execute(result.settings, tmp_path) == result
    assert (tmp_path / RESULT).stat().st_mtime_ns == before


def test_a_sweep_file_becomes_runs(tmp_path: Path) -> None:
    sweep = read_sweep(write_sweep(tmp_path))
    runs = sweep.runs
    assert len(runs) == (1 + 2 * 2) * 2 * 2  # supervised has no bag size
    assert {r.engine for r in runs if (r.method, r.bag_size) == ("cc", 16)} == {"bethe"}
    assert {r.engine for r in runs if (r.method, r.bag_size) == ("cc", 8)} == {"auto"}
    rates = sweep.rates()
    pilots = sweep.pilot_runs(0, rates)
    assert len(pilots) == 5 * 2
    assert {(run.epochs, run.seed) for run in pilots} == {(1, 0)}
    scores = {run: run.lr if run.method == "cc" else -run.lr for run in pilots}
    survivors = sweep.full_runs(sweep.surviving_rates(0, rates, scores))
    assert len(survivors) == 5 * 2
    assert {r.lr for r in survivors if r.method == "cc"} == {1e-2}
    assert {r.lr for r in survivors if r.method == "dllp"} == {1e-3}


def test_an_override_sets_views_and_options_of_methods(tmp_path: Path) -> None:
    text = SWEEP.replace('"dllp"]', '"dllp", "two_views"]').replace(
        'engine = "bethe"\n',
        """engine = "bethe"
[[override]]
method = "two_views"
augment = "weak"
method_options = { target = "argmax", start = 2 }
""",
    )
    runs = read_sweep(write_sweep(tmp_path, text)).runs
    ours = [run for run in runs if run.method == "two_views"]
    assert {run.augment for run in ours} == {"weak"}
    assert {run.method_options for run in ours} == {(("start", 2), ("target", "argmax"))}
    assert {(r.augment, r.method_options) for r in runs if r.method != "two_views"} == {(None, ())}
    assert replace(RUN, augment="weak").name != RUN.name
    with pytest.raises(ValueError, match="augment is 'weka'; choose one of weak"):
        replace(RUN, augment="weka")
    elsewhere = replace(RUN, augment="weka", check_names=False)
    with pytest.raises(ValueError, match="augment is 'weka'"):
        elsewhere.require_known()


def test_rates_are_halved_from_stage_to_stage(tmp_path: Path) -> None:
    text = SWEEP.replace("lrs = [1e-3, 1e-2]", "lrs = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]")
    text = text.replace("[pilot]\nepochs = 1", "[pilot]\nstages = [1, 2, 4]")
    sweep = read_sweep(write_sweep(tmp_path, text))
    rates = sweep.rates()
    for stage, (epochs, before, left) in enumerate([(1, 5, 3), (2, 3, 2), (4, 2, 1)]):
        pilots = sweep.pilot_runs(stage, rates)
        assert {run.epochs for run in pilots} == {epochs}
        assert len(pilots) == 5 * before
        scores = {run: -abs(run.lr - 1e-3) for run in pilots if run.lr != 1e-5}  # that one failed
        rates = sweep.surviving_rates(stage, rates, scores)
        assert {len(of_cell) for of_cell in rates.values()} == {left}
    assert {run.lr for run in sweep.full_runs(rates)} == {1e-3}
    nothing_left = sweep.surviving_rates(0, sweep.rates(), {})  # all failed: all go on
    assert nothing_left == sweep.rates()


def test_the_example_sweep_is_the_papers_grid() -> None:
    sweep = read_sweep(Path(__file__).parent.parent / "results" / "linear" / "sweep.toml")
    one_rate = [run for run in sweep.runs if run.lr == 1e-3]
    assert len(one_rate) == 3 * (8 * 7 + 1) * 3
    engines = {(run.bag_size, run.engine) for run in one_rate if run.method in ("rc", "cc")}
    assert engines == {(K, "exact" if K <= 16 else "bethe") for K in (2, 4, 8, 16, 32, 64, 128)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epochs = 6", ""), "epochs is missing"),
        (('methods = ["supervised", "cc", "dllp"]', 'methods = ["c"]'), "method is 'c'; choose"),
        (("[pilot]\nepochs = 1", "[pilot]\nlength = 1"), r"\[pilot\].*length"),
        (("[pilot]\nepochs = 1", "[pilot]\nkeep = 1"), r"\[pilot\] needs epochs = 3 .* or stages"),
        (("[pilot]\nepochs = 1", "[pilot]\nstages = [9, 3]"), r"stages is \[9, 3\]; the later"),
        (("seeds = [0, 1]", "seeds = 0"), "seeds is 0; a list"),
        (("lrs", "learning_rates"), "unknown setting 'learning_rates'"),
        (('engine = "bethe"', "sede = 1"), r"\[\[override\]\] cannot set sede"),
        (("datasets", "datasets ="), r"sweep\.toml: "),
        (("[pilot]\nepochs = 1", "[pilot]\nepochs = 7"), "stage of 7 epochs, and runs .* have 6"),
        (('method = "cc"', 'method = "dllp"'), "sets 'engine', which is not an option of dllp"),
        (
            ('engine = "bethe"', "method_options = {epsilonn = 1}"),
            "sets 'epsilonn', which is not an option of cc",
        ),
        (("epochs = 6", 'epochs = 6\nmethod.engine = ["exact"]'), "as a setting of its own"),
        (("epochs = 6", "epochs = 6\noptimizer_options = {beta = 1}"), "optimizer 'adam': .*beta"),
        (("epochs = 6", 'epochs = 6\nschedule = "step"'), "schedule 'step': .*step_size"),
        (("seeds = [0, 1]", "seeds = [-1]"), "seed is -1; a whole number from 0"),
    ],
)
def test_mistakes_in_a_sweep_file_are_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    path = write_sweep(tmp_path, SWEEP.replace(*change))
    with pytest.raises(ValueError, match=message):
        read_sweep(path)
    code, output = command("sweep", path, "--out", tmp_path / "runs")
    assert code in (2, 3)
    assert "Error: " in output
    assert not (tmp_path / "runs").exists()


def in_this_process(
    runs: list[RunSettings], folder: Path, data_dir: str | None, _: Callable[[int], None]
) -> Iterator[tuple[RunSettings, None]]:
    """A backend of a sweep that starts no process."""
    for run in runs:
        execute(run, folder / run.name, data_dir)
        yield run, None


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    sweep = read_sweep(write_sweep(folder))
    report = run_sweep(sweep, folder / "runs", backend=in_this_process, progress=False)
    assert not report.failed
    return folder


def tables(folder: Path) -> str:
    return "".join(
        command("table", folder / "runs", "--format", style, "--select", select)[1]
        for style in ("text", "csv")
        for select in ("accuracy", "bag_loss")
    )


def _stop_in_the_middle(run: RunSettings, folder: Path, data_dir: str | None, device: str) -> None:
    """Do the run; those of seed 1 stay where they are after two epochs, and say so."""
    original = bagwise.training.loop.save_run

    def save_run(place: Path, state: Any, identity: dict[str, Any]) -> None:
        original(place, state, identity)
        if len(state.history) == 2:
            (folder / "waiting").touch()
            while True:
                time.sleep(1)

    if run.seed == 1:
        bagwise.training.loop.save_run = save_run
    folder.mkdir(parents=True, exist_ok=True)
    execute(run, folder, data_dir)


STOPPED = """
import sys
sys.path.insert(0, {tests!r})
import test_experiments
from bagwise.cli import app
from bagwise.paper import sweep
if __name__ == "__main__":
    sweep._do = test_experiments._stop_in_the_middle
    app({arguments!r})
"""


@pytest.mark.slow
def test_a_sweep_killed_in_the_middle_ends_with_the_same_table(
    finished: Path, tmp_path: Path
) -> None:
    path = write_sweep(tmp_path)
    runs = tmp_path / "runs"
    arguments = ["sweep", str(path), "--out", str(runs), "--processes", "2"]
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED.format(tests=str(Path(__file__).parent), arguments=arguments))
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
    deadline = time.monotonic() + 240
    while len(list(runs.rglob("waiting"))) < 2:  # both workers are in the middle of a run
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = {found: found.stat().st_mtime_ns for found in runs.rglob(RESULT)}
    assert len(done) == 10 + 2  # the pilots, and the runs before the second one of seed 1
    assert len(list(runs.rglob("checkpoint.safetensors"))) == 2
    code, _ = command(*arguments)
    assert code == 0
    assert tables(tmp_path) == tables(finished)
    for found, moment in done.items():
        assert found.stat().st_mtime_ns == moment  # no run was done twice


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write_sweep(tmp_path)
    for arguments in (
        ("sweep", path, "--out", tmp_path / "runs"),
        ("train", "--dataset", "digits", "--out", tmp_path / "runs"),
    ):
        code, output = command(*arguments, "--device", "cuda:7")
        assert code in (2, 3)
        assert "device is 'cuda:7'; the name of a device of this machine" in " ".join(
            output.split()
        )
        assert not list(tmp_path.rglob(RESULT))


@pytest.mark.slow
def test_a_failed_run_is_reported_and_does_not_stop_the_others(tmp_path: Path) -> None:
    text = SWEEP.replace('["supervised", "cc", "dllp"]', '["cc", "llpfc"]').replace(
        "bag_sizes = [8, 16]", "bag_sizes = [8, 140]"
    )  # nine bags of 140: too few for LLPFC's groups of ten
    text = text.replace("lrs = [1e-3, 1e-2]", "lrs = [1e-2]").replace("epochs = 6", "epochs = 1")
    path = write_sweep(tmp_path, text)
    code, output = command("sweep", path, "--out", tmp_path / "runs")
    assert code == 1
    assert "6 runs done, 2 failed" in output
    assert "only 9" in output
    assert len(list((tmp_path / "runs").rglob("error.txt"))) == 2


def _die_once(run: RunSettings, folder: Path, data_dir: str | None, device: str) -> None:
    mark = folder.parent / "died"
    if run.seed == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    folder.mkdir(parents=True, exist_ok=True)
    execute(run, folder, data_dir)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagwise.paper.sweep._do", _die_once)
    runs = [replace(RUN, seed=seed, epochs=1) for seed in range(3)]
    running: list[int] = []
    outcomes = dict(local_backend(2)(runs, tmp_path, None, running.append))
    assert (tmp_path / "died").exists()
    assert outcomes == dict.fromkeys(runs)
    assert running[0] == 2
    assert running[-1] == 0
    assert len(list(tmp_path.rglob(RESULT))) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, of its start and its sockets
def test_a_sweep_on_ray_gives_the_same_table_though_a_worker_is_killed(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "died"

    def die_once(run: RunSettings, data_dir: str | None, device: str) -> RunResult:
        if run.seed == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(run, None, data_dir, device=device)

    monkeypatch.setattr("bagwise.paper.ray_backend.run_remotely", die_once)
    path = write_sweep(tmp_path)
    code, output = command("sweep", path, "--out", tmp_path / "runs", "--ray", "--processes", "2")
    assert code == 0, output
    assert mark.exists()
    assert tables(tmp_path) == tables(finished)


def fake(
    method: str, K: int, accuracies: list[float], lr: float = 1e-3, **changes: Any
) -> list[RunResult]:
    results = []
    for seed, accuracy in enumerate(accuracies):
        settings = RunSettings("mnist", "linear", method, K, lr, 5, seed, **changes)
        share = accuracy / 100
        row = {"epoch": 1.0, "val_accuracy": share, "val_bag_loss": 1.0, "test_accuracy": share}
        results.append(RunResult(settings, [row], 1.0, {}))
    return results


def test_cells_have_mean_deviation_best_and_significance() -> None:
    ours, worse, same = [91.0, 92.0, 93.0], [81.0, 82.2, 82.9], [91.5, 91.0, 93.5]
    results = [
        *fake("cc", 16, ours, engine="exact"),
        *fake("cc", 16, [10.0, 10.0, 10.0], lr=1e-1, engine="exact"),  # rejected by validation
        *fake("rc", 16, [90.0, 91.0, 92.0], engine="bethe"),
        *fake("dllp", 16, worse),
        *fake("ot", 16, same),
        *fake("llpfc", 16, [95.0, 96.1, 97.0]),
        *fake("supervised", 1, [99.0]),
    ]
    (block,) = collect(results)
    cell = block.cells["cc", 16]
    assert (cell.mean, cell.std, cell.lr) == (92.0, 1.0, 1e-3)
    assert block.best(16) == "llpfc"
    assert ttest_rel(ours, same).pvalue > 0.05
    assert [block.mark(m, 16) for m in ("cc", "dllp", "ot", "llpfc")] == ["", "●", "", "○"]
    text = render(block, "text", paper=True)
    assert "*96.0 ± 1.0 ○ (71.6)" in text
    assert "91.0 ± 1.0 b (NA)" in text
    assert "  99.0 (91.1)" in text
    assert "**96.0 ± 1.0 ○**" in render(block, "markdown")
    assert r"\mathbf{96.0 \pm 1.0\circ}" in render(block, "latex")
    (last,) = [line for line in text.splitlines() if line.startswith("paper's best")]
    assert last.split()[-3:] == ["91.4", "±", "0.2"]  # cc is at 92.0
    (block,) = collect(fake("cc", 16, [90.8, 90.7]))
    assert "91.4 ± 0.2 ▼" in render(block, "markdown", paper=True)
    (block,) = collect(results)
    row = "mnist,linear,dllp,16,-,0.001,3,82.033,0.961,better,-16.967,89.8,0.5,,-1.300"
    assert row in render(block, "csv", paper=True).splitlines()


def test_the_papers_tables_are_complete() -> None:
    known = paper_results()
    assert known["kmnist", "linear", "llpfc", 64] == (50.2, 2.4, "○")
    assert known["cifar10", "resnet32", "cc", 8] == (78.5, 0.3, "")
    assert known["mnist", "linear", "dllp", 32] == (53.9, 13.6, "●")
    assert known["mnist", "mlp", "rc", 16] is None  # NA
    assert ("mnist", "mlp", "pll", 16) not in known
    assert paper_best("mnist", "linear", 128) == (81.4, 8.6, "")
    assert len(known) == 400
    numeric = [cell for cell in known.values() if cell]
    assert len(numeric) == 400 - 8 * 2 * 4
    marks = [cell.mark for cell in numeric]
    assert (marks.count("●"), marks.count("○")) == (65, 11)


def test_tables_show_the_papers_marks_and_tell_na_from_what_it_does_not_have() -> None:
    results = [
        *fake("supervised", 1, [93.0]),
        *fake("cc", 32, [92.5], engine="exact"),
        *fake("dllp", 32, [92.0]),
        *fake("pll", 32, [60.0]),
    ]
    (block,) = collect(results)
    text = render(block, "markdown", paper=True)
    for cell in ("| **92.5** (NA) |", "| 92.0 (53.9 ●) |", "| 60.0 |"):
        assert cell in text
    assert r"$92.0$ (53.9 $\bullet$)" in render(block, "latex", paper=True)
    gaps = render(block, "markdown", paper=True, gap=True)
    for cell in ("| 0.0 (0.0) |", "**-0.5** (NA) |", "| -1.0 (-37.2 ●) |", "| -33.0 |"):
        assert cell in gaps
    (block,) = collect(results[1:])
    with pytest.raises(ValueError, match="no run of supervised learning for mnist, linear"):
        render(block, gap=True)


def test_raw_pixels_have_a_table_of_their_own_beside_the_same_figures_of_the_paper() -> None:
    results = fake("dllp", 32, [92.0])
    raw = [replace(r, settings=replace(r.settings, dataset="mnist-raw")) for r in results]
    blocks = collect([*results, *raw])
    assert [block.dataset for block in blocks] == ["mnist", "mnist-raw"]
    for block in blocks:
        assert "(53.9 ●)" in render(block, paper=True)


def test_train_shows_the_result_and_goes_on(tmp_path: Path) -> None:
    arguments = (
        "train",
        "--dataset",
        "digits",
        "--model",
        "linear",
        "--epochs",
        "3",
        "--lr",
        "0.01",
    )
    code, output = command(*arguments, "--out", tmp_path / "a")
    assert code == 0
    assert "test accuracy" in output
    assert {path.name for path in (tmp_path / "a").iterdir()} == {RESULT, "model.safetensors"}
    assert command(*arguments, "--out", tmp_path / "a") == (code, output)
    code, output = command(*arguments, "--out", tmp_path / "a", "--seed", "1")
    assert code in (2, 3)
    assert "another run" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--dataset", "digit", "--out", "x"), "dataset is 'digit'; choose one of"),
        (("train", "--dataset", "digits", "--method", "x", "--out", "x"), "method is 'x'"),
        (("train", "--dataset", "digits", "--lr", "0", "--out", "x"), "lr is 0.0"),
        (
            ("train", "--dataset", "digits", "--method", "ot", "--engine", "exact", "--out", "x"),
            "engine is 'exact', but the method 'ot' takes none",
        ),
        (("train", "--dataset", "digits", "--model", "convnet2", "--out", "x"), "model is"),
        (("table", "nowhere"), "no result below nowhere"),
        (("sweep", "nowhere.toml", "--out", "x"), "nowhere.toml"),
    ],
)
def test_mistakes_end_with_code_two_and_no_traceback(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = command(*arguments)
    assert code in (2, 3)
    assert message in output
    assert "Traceback" not in output
    assert not list(tmp_path.iterdir())


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / RESULT).write_text(json.dumps({"format": 1}))
    with pytest.raises(ValueError, match=r"result\.json is not a result"):
        read_result(tmp_path / RESULT)
    assert command("table", tmp_path)[0] in (2, 3)


def test_datasets_shows_what_is_there() -> None:
    code, output = command("datasets")
    assert code == 0
    assert "digits" in output
    assert "embedded" in output
    assert "fashion-mnist" in output


def test_exported_runs_give_the_same_tables_and_curves(finished: Path, tmp_path: Path) -> None:
    code, output = command("export", finished / "runs", "--out", tmp_path)
    assert code == 0
    assert [Path(line).name for line in output.split()] == ["runs.csv", "epochs.csv"]
    for options in ((), ("--select", "bag_loss"), ("--format", "csv")):
        assert command("table", tmp_path, *options) == command("table", finished / "runs", *options)
    ours, theirs = (read_runs(folder) for folder in (tmp_path, finished / "runs"))
    for run, original in zip(ours, theirs, strict=True):
        assert run.settings == original.settings
        assert run.versions == original.versions
        for row, expected in zip(run.history, original.history, strict=True):
            assert row == pytest.approx(expected, rel=1e-7)
    text = (tmp_path / "runs.csv").read_text()
    (tmp_path / "runs.csv").write_text(text.replace("-e6-s0", "-e7-s0"))
    code, output = command("table", tmp_path)
    assert code in (2, 3)
    assert "runs.csv" in output


def test_exported_runs_count_as_done(finished: Path, tmp_path: Path) -> None:
    command("export", finished / "runs", "--out", tmp_path / "exported")
    longer = SWEEP.replace('"dllp"]', '"dllp", "ot"]')
    plan = read_sweep(write_sweep(tmp_path, longer))
    assert take_over(plan, read_runs(tmp_path / "exported"), tmp_path / "runs") == 10 + 10
    asked = []

    def backend(runs: list[RunSettings], *_: Any) -> Any:
        asked.extend(runs)
        return iter(())

    run_sweep(plan, tmp_path / "runs", backend=backend, progress=False)
    assert {run.method for run in asked} == {"ot"}
    assert tables(tmp_path) == tables(finished)
    code, output = command(
        *("sweep", finished / "sweep.toml", "--out", tmp_path / "other"),
        *("--done", tmp_path / "exported"),
    )
    assert code == 0
    assert "20 runs were done before" in output
    assert not list((tmp_path / "other").rglob("checkpoint*"))


@pytest.mark.parametrize(
    ("name", "file"), [("export", "epochs.csv"), ("figures", "accuracy-by-bag-size.png")]
)
def test_other_files_of_these_names_are_replaced_only_by_force(
    finished: Path, tmp_path: Path, name: str, file: str
) -> None:
    (tmp_path / file).write_text("mine,1\n")
    code, output = command(name, finished / "runs", "--out", tmp_path)
    assert code in (2, 3)
    assert "--force" in output
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert command(name, finished / "runs", "--out", tmp_path, "--force")[0] == 0
    assert "mine" not in (tmp_path / file).read_bytes().decode(errors="replace")
    assert command(name, finished / "runs", "--out", tmp_path)[0] == 0  # its own output


def test_figures_are_drawn_from_a_sweep(finished: Path, tmp_path: Path) -> None:
    code, output = command("figures", finished / "runs", "--out", tmp_path)
    assert code == 0
    assert [Path(line).name for line in output.split()] == [
        "test-accuracy.png",  # no RC, OT, LLPFC
        "accuracy-by-bag-size.png",
    ]
    for method in ("rc", "rc_approx", "ot", "llpfc"):
        execute(replace(RUN, method=method), tmp_path / "runs" / method)
    code, output = command("figures", tmp_path / "runs", "--out", tmp_path / "all")
    names = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert names == [
        "loss-and-accuracy.png",
        "ot-training.png",
        "test-accuracy.png",
        "weight-gap.png",
    ]


def test_runs_of_several_folders_are_shown_together(finished: Path, tmp_path: Path) -> None:
    execute(replace(RUN, bag_size=4), tmp_path / "other" / "one")
    both = command("table", finished / "runs", tmp_path / "other", finished / "runs")
    assert both[0] == 0
    assert "K = 4" in both[1]
    assert command("export", finished / "runs", tmp_path / "other", "--out", tmp_path)[0] == 0
    assert command("table", tmp_path) == both
    code, output = command("table", finished / "runs", tmp_path / "nothing")
    assert code in (2, 3)
    assert f"no result below {tmp_path / 'nothing'}" in output


@pytest.mark.parametrize("condition", ['bag_size = "16"', "bag_size = 17"])
def test_an_override_for_no_run_is_noted(tmp_path: Path, condition: str) -> None:
    path = write_sweep(tmp_path, SWEEP.replace("bag_size = 16", condition))
    with pytest.warns(
        UserWarning, match="method = 'cc', bag_size = .* is for no run of this sweep"
    ):
        read_sweep(path)


def test_exported_runs_and_their_originals_are_the_same_runs(
    finished: Path, tmp_path: Path
) -> None:
    command("export", finished / "runs", "--out", tmp_path)
    assert command("table", finished / "runs", tmp_path) == command("table", finished / "runs")


def test_a_table_says_how_epochs_were_chosen(finished: Path) -> None:
    assert "are chosen by validation labels." in command("table", finished / "runs")[1]
    _, output = command("table", finished / "runs", "--select", "bag_loss")
    assert "are chosen by the likelihood of held-out bags, without labels." in output


def test_longer_runs_of_fewer_seeds_are_noted() -> None:
    results = fake("cc", 16, [90.0, 91.0, 92.0])
    stray = fake("cc", 16, [20.0])[0]
    longer = replace(stray.settings, epochs=stray.settings.epochs + 1)
    (block,) = collect([*results, replace(stray, settings=longer)])
    (note,) = block.notes()
    assert "CC, K = 16: 3 seeds of" in note
    assert "are left out, as one has" in note
    (block,) = collect(results)
    assert block.notes() == []


def test_equal_means_are_all_the_best_and_engines_are_named() -> None:
    results = [*fake("cc", 16, [90.0], engine="multinomial"), *fake("dllp", 16, [90.0])]
    (block,) = collect(results)
    text = render(block, "text")
    assert "*90.0 m" in text
    assert text.count("*90.0") == 2


def test_names_of_users_are_escaped_in_latex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS["dllp"], "title", "50% & #1_x")
    (block,) = collect(fake("dllp", 16, [90.0]))
    assert r"50\% \& \#1\_x & $\mathbf{90.0}$" in render(block, "latex")


def test_a_data_set_has_a_label_for_each_input() -> None:
    images, labels = torch.zeros(5, 1, 8, 8), torch.zeros(5, dtype=torch.long)
    with pytest.raises(ValueError, match="training split of mine has 5 inputs and 3 labels"):
        Dataset("mine", images, labels[:3], images, labels)
    with pytest.raises(ValueError, match="test split of mine has 0 inputs and 0 labels"):
        Dataset("mine", images, labels, images[:0], labels[:0])
    with pytest.raises(ValueError, match=r"test inputs of mine are torch.float64"):
        Dataset("mine", images, labels, images.double(), labels)
    with pytest.raises(ValueError, match=r"shape \(1, 8, 8\), test inputs \(8, 8\)"):
        Dataset("mine", images, labels, images[:, 0], labels)


def test_a_method_of_whole_bags_says_how_large_a_batch_must_be(tmp_path: Path) -> None:
    digits = ("train", "--dataset", "digits", "--model", "linear", "--bag-size", 64, "--epochs", 1)
    pvc = (*digits, "--method", "pvc", "--out", tmp_path / "pvc")
    code, output = command(*pvc, "--batch-instances", 32)
    assert code in (2, 3)
    assert "needs whole bags; set batch_instances, now 32, to 64" in " ".join(output.split())
    assert command(*pvc, "--batch-instances", 64)[0] == 0


def test_mixbag_mixes_bags_that_fill_a_batch(tmp_path: Path) -> None:
    losses = []
    for method in ("mixbag", "dllp"):
        run = replace(RUN, method=method, bag_size=140, epochs=1, engine="-")
        losses.append(execute(run, tmp_path / method).history[0]["train_loss"])
    assert losses[0] != pytest.approx(losses[1], rel=0.1), "a mixture is a second loss"


def test_train_takes_options_of_optimizer_and_schedule(tmp_path: Path) -> None:
    digits = ("train", "--dataset", "digits", "--model", "linear", "--bag-size", 8, "--epochs", 1)
    more = ("--schedule", "step", "--schedule-set", "step_size=1", "--clip", 1)
    betas = ("--optimizer-set", "betas=[0.8, 0.9]", "--weight-decay", 0)
    assert command(*digits, *more, *betas, "--out", tmp_path / "run")[0] == 0
    settings = json.loads((tmp_path / "run" / "result.json").read_text())["settings"]
    assert settings["optimizer_options"] == [["betas", [0.8, 0.9]]]
    code, output = command(*digits, "--optimizer-set", "betas", "--out", tmp_path / "other")
    assert code in (2, 3)
    assert "--optimizer-set is 'betas'; NAME=VALUE is expected" in output


RESULTS = Path(__file__).parent.parent / "results"


@pytest.mark.parametrize("file", sorted(RESULTS.rglob("*.toml")), ids=lambda f: f.parent.name)
def test_committed_sweeps_can_be_read(file: Path) -> None:
    assert read_sweep(file).runs


def test_the_authors_protocol_is_committed() -> None:
    runs = [
        run
        for name in ("paper", "paper-cifar10")
        for run in read_sweep(RESULTS / "replication" / f"{name}.toml").runs
    ]
    assert {run.lr for run in runs} == {10.0**-n for n in range(1, 7)}
    assert {run.dataset for run in runs} == {
        f"{name}-raw" for name in ("mnist", "fashion-mnist", "kmnist", "cifar10")
    }
    assert {(run.batch_instances, run.drop_last, run.optimizer) for run in runs} == {
        (256, True, "adam")
    }
    assert {(run.weight_decay, run.epochs, run.schedule) for run in runs} == {
        (1e-5, 500, "constant")
    }
    columns = {(*in_paper(run.dataset, run.model), run.method, run.bag_size) for run in runs}
    assert columns == set(paper_results())


def test_runs_of_the_papers_data_are_drawn_beside_it(tmp_path: Path) -> None:
    code, output = command("figures", RESULTS / "cifar10", "--out", tmp_path)
    assert code == 0
    assert "beside-the-paper.png" in output
    assert command("report", RESULTS / "cifar10", "--out", tmp_path / "report.html")[0] == 0
    assert "beside the paper&#39;s best" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("select", ["accuracy", "bag_loss"])
@pytest.mark.parametrize("page", ["linear", "mlp", "cifar10", "leaderboard", "replication"])
def test_the_committed_tables_are_made_from_the_committed_runs(page: str, select: str) -> None:
    name = {"accuracy": "table.md", "bag_loss": "table-bag-loss.md"}[select]
    paper = () if page == "leaderboard" else ("--paper",)
    how = (*paper, "--format", "markdown", "--select", select)
    code, output = command("table", RESULTS / page, *how)
    assert code == 0
    lines = output.splitlines(keepends=True)
    table = "".join(line for line in lines if not line.startswith("Note: "))  # to standard error
    assert table == (RESULTS / page / name).read_text()


@pytest.mark.slow
def test_the_committed_overview_is_made_from_the_committed_runs(tmp_path: Path) -> None:
    script = RESULTS.parent / "benchmarks" / "paper_overview.py"
    subprocess.run([sys.executable, script, "--out", tmp_path / "overview.md"], check=True)
    assert (tmp_path / "overview.md").read_text() == (RESULTS / "overview.md").read_text()


@pytest.mark.slow
def test_the_runs_of_the_linear_model_are_all_there() -> None:
    folder = RESULTS / "linear"
    done = {run.settings for run in read_runs(folder)}
    sweep = read_sweep(folder / "sweep.toml")
    assert done >= set(sweep.pilot_runs(0, sweep.rates()))
    assert len(done) == 2 * 513
