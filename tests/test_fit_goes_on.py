"""A fit that was stopped at any moment goes on there, and ends with the same model."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bagwise import InputError, LLPClassifier
from bagwise.cli import app
from bagwise.estimator import network_candidates as tuning
from bagwise.storage import model_folder
from bagwise.storage.journal import Workspace
from bagwise.tables.model.fitted_table import FittedTable

FOLDS, EPOCHS = 5, 3
OPTIONS = ("--model", "linear", "--lr", "0.03")

# Runs fits one after the other, each in a child process of its own that dies, without any clean-up,
# just before the n-th change of the given kind to a file of the given name.
DRIVER = """
import functools, json, os, sys
import torch, torch._dynamo  # once for all children; Adam imports it
import bagwise.cli
from bagwise import Bags, LLPClassifier, cc_loss
from bagwise.limits import Limits
import bagwise.table_model

cc_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))  # loads its kernels

def child(arguments, large, moment, report):
    changes, trainings = [], []
    fit_bags = LLPClassifier.fit_bags

    def counted(*rest, **named):
        trainings.append(1)
        return fit_bags(*rest, **named)

    def watch(event, details):
        if moment and event == moment[0]:
            path = details[1] if event == "os.rename" else details[0]
            if os.path.basename(path) == moment[1]:
                changes.append(path)
                if len(changes) == moment[2]:
                    os._exit(9)

    LLPClassifier.fit_bags = counted
    if large:
        limits = Limits(cross_validated=0, few_bags=0)
        bagwise.table_model.fit = functools.partial(bagwise.table_model.fit, limits=limits)
    sys.addaudithook(watch)
    try:
        bagwise.cli.app(arguments)
    except SystemExit as exit:
        with open(report, "w") as file:
            json.dump(len(trainings), file)
        os._exit(exit.code)

codes = []
for task in json.loads(sys.argv[1]):
    pid = os.fork()
    if not pid:
        child(*task)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("CODES", json.dumps(codes))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten bags of six, their counts, and the model of an undisturbed fit."""
    folder = tmp_path_factory.mktemp("fits")
    rng = np.random.default_rng(0)
    rows = [f"B{i % 10},{x:.3f}" for i, x in enumerate(rng.normal(size=60))]
    (folder / "rows.csv").write_text("\n".join(["bag,x", *rows]) + "\n")
    counts = [f"B{b},{b % 5 + 1},{5 - b % 5}" for b in range(10)]
    (folder / "bags.csv").write_text("\n".join(["bag,no,yes", *counts]) + "\n")
    assert fit(folder, folder / "whole").exit_code == 0
    return folder


def arguments(made: Path, out: Path, *more: str, epochs: int = EPOCHS) -> list[str]:
    labels = ("--bag", "bag", "--labels", str(made / "bags.csv"))
    options = (*OPTIONS, "--epochs", str(epochs))
    return ["fit", str(made / "rows.csv"), *labels, "--out", str(out), *options, *more]


def fit(made: Path, out: Path, *more: str) -> Any:
    return CliRunner().invoke(app, arguments(made, out, *more))


def content(model: Path) -> list[Any]:
    """All that a model folder holds, but for the times that were measured."""
    config, facts = (json.loads((model / name).read_text()) for name in ("config.json", "fit.json"))
    for row in config.get("history", []):
        del row["seconds"]
    del facts["seconds"], facts["command"]
    tensors, columns = (
        (model / name).read_bytes() for name in ("model.safetensors", "columns.json")
    )
    return [sorted(path.name for path in model.iterdir()), config, facts, tensors, columns]


def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every training."""
    real, done = LLPClassifier.fit_bags, []

    def fit_bags(self: LLPClassifier, *rest: Any, **named: Any) -> LLPClassifier:
        done.append(1)
        return real(self, *rest, **named)

    monkeypatch.setattr(LLPClassifier, "fit_bags", fit_bags)
    return done


def moments(large: bool) -> dict[tuple[str, str, int], int]:
    """(kind of change, name, which one) at which a fit is killed -> trainings finished before."""
    write, finished = "os.rename", 1 if large else FOLDS
    found = {
        (write, "fold-linear-0.03-0.safetensors", 1): 0,
        (write, "checkpoint.safetensors", 1): finished,
        (write, "checkpoint.safetensors", EPOCHS): finished,
        (write, "model.safetensors", 1): finished,
        (write, "model", 1): finished,
        ("shutil.rmtree", "model", 1): finished,  # the former model, which was swapped for the new
        ("shutil.rmtree", ".out.fitting", 1): finished,
    }
    if not large:
        found[write, "fold-linear-0.03-4.safetensors", 1] = 4
    return found


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_killed_fit_ends_bit_for_bit_the_same_and_repeats_nothing(
    made: Path, tmp_path: Path
) -> None:
    tasks: list[Any] = []
    for large in (False, True):
        whole = tmp_path / f"whole-{large}"
        tasks.append((arguments(made, whole), large, None, f"{whole}.json"))
        for i, moment in enumerate(moments(large)):
            folder = tmp_path / f"{large}-{i}"
            shutil.copytree(made / "whole", folder / "out")
            (folder / "out" / "columns.json").write_text("{}")  # the former model is another one
            for end in (moment, None):
                tasks.append((arguments(made, folder / "out"), large, end, f"{folder}.json"))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(tasks)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    codes = json.loads(done.stdout.rsplit("CODES", 1)[1])
    assert codes == [9 if moment else 0 for _, _, moment, _ in tasks], done.stderr
    for large in (False, True):
        whole = tmp_path / f"whole-{large}"
        trainings = json.loads(Path(f"{whole}.json").read_text())
        for i, (moment, finished) in enumerate(moments(large).items()):
            folder = tmp_path / f"{large}-{i}"
            assert content(folder / "out") == content(whole), moment
            assert os.listdir(folder) == ["out"], moment
            again = json.loads(Path(f"{folder}.json").read_text())
            assert again == trainings - finished, moment


def test_ctrl_c_says_that_the_same_command_goes_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = tuning.train_fold, []

    def stop_at_the_third(*rest: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*rest)

    monkeypatch.setattr(tuning, "train_fold", stop_at_the_third)
    result = fit(made, tmp_path / "m")
    assert result.exit_code == 130
    assert result.output == (
        f"Stopped. 2 finished parts of the work are kept in {tmp_path / '.m.fitting'}; rerun "
        "the command to resume.\n"
    )
    assert os.listdir(tmp_path) == [".m.fitting"]
    assert fit(made, tmp_path / "m").exit_code == 0
    assert len(calls) == FOLDS + 1  # the third once more
    assert content(tmp_path / "m") == content(made / "whole")
    assert os.listdir(tmp_path) == ["m"]


def test_ctrl_c_before_any_work_leaves_nothing(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*rest: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "train_fold", stop)
    result = fit(made, tmp_path / "m")
    assert result.exit_code == 130
    assert result.output == "Stopped. Nothing was finished yet; the command will start anew.\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for others")
def test_a_real_ctrl_c_says_what_is_kept_and_how_to_go_on(made: Path, tmp_path: Path) -> None:
    out, home = tmp_path / "m", tmp_path / ".m.fitting"
    with subprocess.Popen(
        [sys.executable, "-m", "bagwise", *arguments(made, out, epochs=300)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            for _ in range(1200):  # until something is kept
                if list(home.rglob("*.safetensors")) or process.poll() is not None:
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            output, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert (output, said.count("\n")) == ("", 1)
    assert said.startswith("Stopped. ")
    assert said.endswith(f"kept in {home}; rerun the command to resume.\n")
    assert os.listdir(tmp_path) == [".m.fitting"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "answer"),
    [
        ("bagwise.cli", "Stopped."),
        (
            "bagwise.tables.fitting",
            "Stopped. Nothing was finished yet; the command will start anew.",
        ),
    ],
)
def test_ctrl_c_while_bagwise_is_being_loaded_is_answered(module: str, answer: str) -> None:
    program = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from bagwise.__main__ import main\n"
        "sys.argv[1:] = 'fit r.csv --bag b --labels l.csv --out m'.split()\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{answer}\n")


def stopped_before_saving(
    made: Path, out: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> Any:
    with monkeypatch.context() as patch:

        def full(*rest: Any, **named: Any) -> None:
            raise error

        patch.setattr("bagwise.storage.model_folder.save_arrays", full)
        return fit(made, out)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), InputError("in the way")], ids=repr
)
def test_an_error_while_saving_loses_no_work(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    out = tmp_path / "m"
    shutil.copytree(made / "whole", out)
    result = stopped_before_saving(made, out, monkeypatch, error)
    assert result.exit_code in (2, 3)
    assert result.output.startswith("Error: ")
    assert content(out) == content(made / "whole")
    done = trainings(monkeypatch)
    assert fit(made, out).exit_code == 0
    assert len(done) == 1  # the last training, all of whose epochs are there
    assert os.listdir(tmp_path) == ["m"]


def test_another_fit_begins_anew(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_before_saving(made, tmp_path / "m", monkeypatch, KeyboardInterrupt())
    done = trainings(monkeypatch)
    assert fit(made, tmp_path / "m", "--seed", "1").exit_code == 0
    assert len(done) == FOLDS + 1
    assert os.listdir(tmp_path) == ["m"]


def test_a_model_moved_aside_by_a_killed_fit_comes_back_at_the_next_of_any_kind(
    tmp_path: Path,
) -> None:
    (tmp_path / ".m.fitting" / "former").mkdir(parents=True)
    (tmp_path / ".m.fitting" / "former" / "config.json").write_text("{}")
    with pytest.raises(RuntimeError), Workspace(tmp_path / "m", {}):
        raise RuntimeError
    assert os.listdir(tmp_path) == ["m"]
    assert os.listdir(tmp_path / "m") == ["config.json"]


def _flip(path: Path) -> None:
    spoilt = bytearray(path.read_bytes())
    spoilt[-1] ^= 1
    path.write_bytes(spoilt)


def _folder(path: Path) -> None:
    path.unlink()
    (path / "deep").mkdir(parents=True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(b"\xff" * 100),
        lambda path: path.write_text("{}"),
        _folder,
    ],
    ids=["empty", "cut", "noise", "json", "a folder"],
)
def test_what_is_damaged_in_the_work_folder_is_done_again(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], Any]
) -> None:
    out = tmp_path / "m"
    stopped_before_saving(made, out, monkeypatch, KeyboardInterrupt())
    kept = sorted(path for path in (tmp_path / ".m.fitting").rglob("*.safetensors"))
    assert len(kept) == FOLDS + 1
    for path in kept:
        if spoil is not _folder or path.parent.name != "training":
            spoil(path)
    result = fit(made, out)
    assert (result.exit_code, os.listdir(tmp_path)) == (0, ["m"]), result.output
    assert content(out) == content(made / "whole")


def test_results_that_a_disk_has_changed_are_not_believed(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_before_saving(made, tmp_path / "m", monkeypatch, KeyboardInterrupt())
    for path in (tmp_path / ".m.fitting").glob("*/*.safetensors"):
        _flip(path)
    assert fit(made, tmp_path / "m").exit_code == 0
    assert content(tmp_path / "m") == content(made / "whole")


def test_work_of_another_run_under_the_same_names_is_done_again(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, more in (("m", ()), ("other", ("--seed", "5"))):
        with monkeypatch.context() as patch:
            patch.setattr(FittedTable, "save", None)
            CliRunner().invoke(app, arguments(made, tmp_path / name, *more))
    (own,), (other,) = ((tmp_path / f".{name}.fitting").iterdir() for name in ("m", "other"))
    shutil.rmtree(own / "training")
    shutil.copytree(other / "training", own / "training")
    assert fit(made, tmp_path / "m").exit_code == 0
    assert content(tmp_path / "m") == content(made / "whole")


def test_a_file_in_the_place_of_the_work_folder_is_named(made: Path, tmp_path: Path) -> None:
    (tmp_path / ".m.fitting").write_text("mine")
    result = fit(made, tmp_path / "m")
    assert result.exit_code in (2, 3)
    assert result.output.startswith(f"Error: {tmp_path / '.m.fitting'} is in the way")
    assert result.output.count("\n") == 1
    assert os.listdir(tmp_path) == [".m.fitting"]


@pytest.mark.parametrize("there", [True, False], ids=["to a model", "to nothing"])
def test_a_symbolic_link_is_followed(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    target, link = tmp_path / "disk" / "model", tmp_path / "link"
    target.parent.mkdir()
    if there:
        shutil.copytree(made / "whole", target)
        (target / "columns.json").write_text("{}")
    link.symlink_to(target)
    stopped_before_saving(made, link, monkeypatch, KeyboardInterrupt())
    assert fit(made, link).exit_code == 0
    assert link.is_symlink()
    assert content(target) == content(made / "whole")
    assert sorted(path.name for path in tmp_path.rglob(".*")) == []
    FittedTable.load(link).save(link)
    assert link.is_symlink()
    assert content(target) == content(made / "whole")


def test_links_that_lead_nowhere_good_are_refused_at_once(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for name, target, problem in (
        ("loop", "loop", "leads to itself"),
        ("to-a-file", "file", "holds other things"),
        ("below-a-file", "file/m", "cannot be written"),
    ):
        link = tmp_path / name
        link.symlink_to(tmp_path / target)
        result = fit(made, link)
        assert result.exit_code in (2, 3)
        assert problem in result.output
        assert result.output.count("\n") == 1
        assert link.is_symlink()
        link.unlink()
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_link_into_folders_that_are_not_there_yet_makes_them(made: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk" / "new" / "model")
    assert fit(made, link).exit_code == 0
    assert link.is_symlink()
    assert content(tmp_path / "disk" / "new" / "model") == content(made / "whole")
    assert sorted(path.name for path in tmp_path.rglob(".*")) == []


@pytest.mark.parametrize("swaps", [True, False])
def test_a_new_model_replaces_the_former_also_where_folders_cannot_be_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    if not swaps:
        monkeypatch.setattr(model_folder, "_exchange", lambda one, other: False)
    (tmp_path / ".m.aside" / "left by a kill").mkdir(parents=True)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "fit.json").write_text("former")

    def save(place: Path) -> None:
        place.mkdir(parents=True)
        (place / "fit.json").write_text("new")

    with Workspace(tmp_path / "m", {}) as work:
        work.publish(save)
    assert os.listdir(tmp_path) == ["m"]
    assert (tmp_path / "m" / "fit.json").read_text() == "new"
