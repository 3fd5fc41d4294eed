from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import bagwise
from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.cli import app
from bagwise.paper.datasets import DataFileError, load_dataset
from bagwise.paper.datasets.readers import read_cifar10
from bagwise.paper.run import RESULT, execute, read_result
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep_file import read_sweep
from bagwise.storage.array_files import load_arrays, save_arrays
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.training import TrainingResult
from bagwise.training.run_state import CHECKPOINT
from bagwise.training.tensor_files import load_tensors, save_tensors
from fitted import fit_table

RUN = RunSettings("digits", "linear", "cc", 8, 1e-2, 2, 0)
HUGE = 10**400
DEEP = "[" * 100_000


def one_line_error(*arguments: object) -> str:
    """The message of a command that must fail as users' mistakes do."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in (2, 3)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


Edit = Callable[[Any], object]


def edited(path: Path, edit: Edit) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    execute(RUN, folder)
    return (folder / RESULT).read_text()


def last(content: Any) -> dict[str, Any]:
    row: dict[str, Any] = content["history"][-1]
    return row


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (lambda c: last(c).pop("test_accuracy"), r"history\[1\]\.test_accuracy is missing"),
        (lambda c: last(c).update(val_accuracy=float("nan")), r"history\[1\]\.val_accuracy is nan"),
        (lambda c: last(c).update(val_bag_loss="low"), r"val_bag_loss is 'low'"),
        (lambda c: last(c).update(train_loss=HUGE), r"train_loss is 1000"),
        (lambda c: last(c).update(val_bag_loss=HUGE), r"val_bag_loss is 1000"),
        (lambda c: last(c).update(val_bag_loss=float("-inf")), r"val_bag_loss is -inf"),
        (lambda c: last(c).update(weight_distance=[1]), r"weight_distance is \[1\]"),
        (lambda c: last(c).update(mine="x"), r"history\[1\]\.'mine' is 'x'"),
        (lambda c: last(c).update(epoch=1), r"history\[1\]\.epoch is 1; 2 is expected"),
        (lambda c: c["history"].pop(), "history has 1 epochs; 2 are expected"),
        (lambda c: c.update(history=[]), r"history is \[\]; a list of at least 1"),
        (lambda c: c.update(seconds=True), "seconds is True"),
        (lambda c: c.update(versions={}), r"versions\.bagwise is missing"),
        (lambda c: c.update(format=2), "format is 2"),
        (lambda c: c.update(more=1), "'more' is unknown"),
        (lambda c: c["settings"].pop("lr"), "lr is missing"),
        (lambda c: c["settings"].update(lr=[1e-3]), r"lr is \[0.001\]"),
        (lambda c: c["settings"].update(bag_size=True), "bag_size is True"),
        (lambda c: c["settings"].update(epochs=HUGE), "epochs is 1000"),
        (lambda c: c["settings"].update(seed=0.5), "seed is 0.5"),
        (lambda c: c["settings"].update(average="much"), "average is 'much'"),
        (lambda c: c["settings"].update(method={}), "method is {}"),
        (lambda c: c["settings"].update(dataset="a\nb"), "dataset is"),
        (lambda c: c["settings"].update(model="\ud800"), "model is"),
        (lambda c: c["settings"].update(rate=1), "unknown setting 'rate'"),
    ],
)
def test_a_damaged_result_is_one_line_that_names_file_and_field(
    result: str, edit: Edit, field: str, tmp_path: Path
) -> None:
    path = tmp_path / RESULT
    path.write_text(result)
    edited(path, edit)
    with pytest.raises(ValueError, match=field):
        read_result(path)
    assert str(path) in one_line_error("table", tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", DEEP.encode(), b"[]", b"1" * 5000, b"null"])
def test_what_is_no_result_at_all_is_named_by_every_command(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "runs" / RESULT
    path.parent.mkdir()
    path.write_bytes(content)
    out = ("--out", tmp_path / "out")
    for command in (("table",), ("figures", *out), ("report", *out), ("export", *out)):
        name, *options = command
        assert str(path) in one_line_error(name, path.parent, *options)


@pytest.mark.parametrize(
    ("name", "old", "new", "field"),
    [
        ("runs.csv", ",2,0,auto", ",two,0,auto", "epochs is 'two'"),
        ("runs.csv", "bag_size", "bag_sizes", "no column bag_size"),
        ("runs.csv", ",8,", ",8,8,", "line 2 has 25 values, not 24"),
        ("runs.csv", "constant", "zigzag", "schedule is 'zigzag'"),
        ("runs.csv", "run,", '"run,', "unexpected end of data"),
        ("runs.csv", "digits", "d\udcff", "decode"),
        ("epochs.csv", "test_accuracy", "accuracy", r"history\[0\]\.test_accuracy is missing"),
        ("epochs.csv", "\ndigits-linear-cc-K8-lr0.01-e2-s0", "\nother", "has no epoch of the run"),
        ("epochs.csv", ",0.01,", ",fast,", "lr is 'fast'"),
        ("epochs.csv", ",2,", ",1,", r"history\[1\]\.epoch is 1.0; 2 is expected"),
        ("epochs.csv", ",2,", ",nan,", r"history\[1\]\.epoch is nan"),
    ],
)
def test_damaged_exported_runs_are_one_line_that_names_file_and_field(
    result: str, name: str, old: str, new: str, field: str, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / RESULT).write_text(result)
    exported = tmp_path / "exported"
    arguments = ["export", str(tmp_path / "runs"), "--out", str(exported)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    text = (exported / name).read_text()
    assert old in text
    (exported / name).write_bytes(text.replace(old, new).encode(errors="surrogateescape"))
    line = one_line_error("table", exported)
    assert name in line
    with pytest.raises(ValueError, match=field):
        raise ValueError(line)


SWEEP = """datasets = ["digits"]
models = ["linear"]
methods = ["cc"]
bag_sizes = [8]
lrs = [1e-3]
epochs = 6
[pilot]
epochs = 1
[[override]]
method = "cc"
engine = "exact"
"""


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("[8]", "[[8]]", r"bag_size is \[8\]"),
        ("[8]", "[true]", "bag_size is True"),
        ("[1e-3]", "[nan]", "lr is nan"),
        ("[1e-3]", f"[{HUGE}]", "lr is 1000"),
        ('["cc"]', '[["cc"]]', r"method is \['cc'\]"),
        ('["digits"]', "[1979-05-27]", "dataset is datetime"),
        ("epochs = 6", "epochs = {a = 1}", "epochs is {'a': 1}"),
        ("epochs = 6", "epochs = 6\nseeds = [0.5]", "seed is 0.5"),
        ("epochs = 6", "epochs = 6\nselect = []", r"select is \[\]"),
        ("epochs = 6", f"epochs = {DEEP}", "recursion"),
        ("epochs = 6", "epochs = " + "1" * 5000, "digits"),
        ("epochs = 6", 'epochs = 6\nweight_decay = "none"', "weight_decay is 'none'"),
        ("epochs = 1\n", 'epochs = "1"\n', r"\[pilot\]\.epochs is '1'"),
        ("epochs = 1\n", "epochs = 1\nseeds = 0\n", r"\[pilot\]\.seeds is 0"),
        ("epochs = 1\n", "epochs = 1\nkeep = 0\n", r"\[pilot\]\.keep is 0"),
        ("[pilot]\nepochs = 1", "pilot = 1", "pilot"),
        ("[[override]]", "[override]", "override is {"),
        ('engine = "exact"', "engine = [1]", r"engine is \[1\]"),
        ("epochs = 6", "epochs = 6 # \udcff", "decode"),
    ],
)
def test_a_damaged_sweep_file_is_one_line_that_names_file_and_field(
    old: str, new: str, field: str, tmp_path: Path
) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    assert len(read_sweep(path).runs) == 1
    path.write_bytes(SWEEP.replace(old, new, 1).encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=field):
        read_sweep(path)
    assert str(path) in one_line_error("sweep", path, "--out", tmp_path / "runs")


def run_on(folder: Path, epochs: int, method: str = "rc", **options: Any) -> TrainingResult:
    labels = torch.arange(40) % 3
    data = BagData(labels[:, None] + torch.zeros(40, 4), Bags.from_labels(labels, [5] * 8), labels)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    settings = TrainingOptions(epochs=epochs, **options)
    return train(
        model,
        data,
        method,
        settings,
        validation=data,
        test=data,
        checkpoint=folder,
        progress=False,
    )


Tensors = dict[str, torch.Tensor]


def turned(name: str) -> Callable[[Tensors, Any], object]:
    return lambda t, _: t.update({name: t[name].reshape(-1)[None]})


def retyped(name: str) -> Callable[[Tensors, Any], object]:
    return lambda t, _: t.update({name: t[name].half()})


def filled(name: str, value: float) -> Callable[[Tensors, Any], object]:
    return lambda t, _: t.update({name: torch.full_like(t[name], value)})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t, _: t.pop("model.0.weight"), "'model.0.weight' is missing"),
        (lambda t, _: t.pop("best.0.weight"), "'best.0.weight' is missing"),
        (lambda t, _: t.pop("average.0.bias"), "'average.0.bias' is missing"),
        (lambda t, _: t.pop("optimizer.0.exp_avg"), "'optimizer.0.exp_avg' is missing"),
        (lambda t, _: t.pop("method.log_probs"), "'method.log_probs' is missing"),
        (lambda t, _: t.pop("random.order"), "'random.order' is missing"),
        (lambda t, _: t.update({"optimizer.99.step": torch.ones(())}), "'optimizer.99.step' is un"),
        (lambda t, _: t.update({"model.x": torch.ones(())}), "'model.x' is unknown"),
        (turned("model.0.weight"), r"'model.0.weight' is float32 \(1, 24\); float32 \(6, 4\)"),
        (turned("optimizer.0.exp_avg_sq"), r"'optimizer.0.exp_avg_sq' is float32 \(1, 24\)"),
        (turned("method.log_probs"), r"'method.log_probs' is float32 \(1, 120\)"),
        (retyped("optimizer.1.exp_avg"), "'optimizer.1.exp_avg' is float16"),
        (retyped("random.torch"), "'random.torch' is float16"),
        (filled("random.torch", 255), "'random.torch' is not a state of a random generator"),
        (filled("best.0.weight", float("nan")), "'best.0.weight' has NaN"),
        (filled("optimizer.0.exp_avg", float("nan")), "'optimizer.0.exp_avg' has NaN"),
        (lambda _, f: f.pop("steps"), "steps is missing"),
        (lambda _, f: f.update(steps=0.5), "steps is 0.5"),
        (lambda _, f: f.update(best_epoch=3), "best_epoch is 3"),
        (lambda _, f: f.update(history=[]), r"history is \[\]; a list of at least 1"),
        (lambda _, f: f["history"][1].pop("val_bag_loss"), r"history\[1\].val_bag_loss is missing"),
        (lambda _, f: f["history"][0].pop("test_accuracy"), "test_accuracy is missing"),
        (lambda _, f: f["history"][1].update(val_accuracy=HUGE), "val_accuracy is 1000"),
        (lambda _, f: f["history"].pop(0), r"history\[0\].epoch is 2"),
        (lambda _, f: f["history"][0].update(seconds=None), "seconds is None"),
    ],
)
def test_a_damaged_run_state_is_refused_before_anything_of_the_run_changes(
    edit: Callable[[Tensors, Any], object], message: str, tmp_path: Path
) -> None:
    run_on(tmp_path, 2, average=0.9)
    path = tmp_path / CHECKPOINT
    tensors, facts = load_tensors(path)
    edit(tensors, facts)
    save_tensors(path, tensors, facts)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"checkpoint\.safetensors is damaged: .*{message}"):
        run_on(tmp_path, 3, average=0.9)
    assert path.read_bytes() == before


def test_a_refused_run_state_leaves_model_and_method_alone(tmp_path: Path) -> None:
    run_on(tmp_path, 1)
    path = tmp_path / CHECKPOINT
    tensors, facts = load_tensors(path)
    del tensors["random.torch"]  # what used to be looked at last
    save_tensors(path, tensors, facts)
    labels = torch.arange(40) % 3
    data = BagData(labels[:, None] + torch.zeros(40, 4), Bags.from_labels(labels, [5] * 8), labels)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    options = TrainingOptions(epochs=2)
    with pytest.raises(ValueError, match=r"random\.torch"):
        train(model, data, "rc", options, validation=data, test=data, checkpoint=tmp_path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_one_flipped_bit_of_a_run_state_is_noticed(tmp_path: Path) -> None:
    run_on(tmp_path, 1, "llpfc")
    path = tmp_path / CHECKPOINT
    content = bytearray(path.read_bytes())
    content[-3] ^= 16
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"damaged: '[a-z0-9_.]+' is not as it was written"):
        run_on(tmp_path, 2, "llpfc")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a model that was fitted to a table, and the table."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=100)
    x = y + rng.normal(size=100)
    rows = "\n".join(f"{k // 10},{x[k]:.3f}" for k in range(100))
    (folder / "rows.csv").write_text(f"bag,x\n{rows}\n")
    ones = [int(y[10 * b : 10 * b + 10].sum()) for b in range(10)]
    lines = "\n".join(f"{b},{10 - n},{n}" for b, n in enumerate(ones))
    (folder / "bags.csv").write_text(f"bag,no,yes\n{lines}\n")
    fitted = fit_table(
        folder / "rows.csv", "bag", folder / "bags.csv", model="mlp", lr=0.1, epochs=2
    )
    fitted.save(folder / "model")
    return {path.name: path.read_bytes() for path in (folder / "model").iterdir()}


@pytest.fixture
def model(saved: dict[str, bytes], tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in saved.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["params"].update(standardize=1), "params.standardize is 1"),
        (lambda c: c["params"].update(lr="fast"), "params.lr is 'fast'"),
        (lambda c: c["params"].update(epochs=HUGE), "params.epochs is 1000"),
        (lambda c: c["params"].update(device=5), "params.device is 5"),
        (lambda c: c["params"].update(model="os.system"), "'os.system', which does not exist here"),
        (lambda c: c["params"].pop("model"), "params.model is missing"),
        (lambda c: c["params"].pop("method"), "params.method is missing"),
        (
            lambda c: (c["params"].update(method="ot"), c.update(method_options={"x": 1})),
            "method_options: ",
        ),
        (lambda c: c.update(classes=[[1], [2]]), r"classes\[0\] is \[1\]"),
        (lambda c: c.update(classes=["a", "b", HUGE]), r"classes\[2\] is 1000"),
        (lambda c: c.update(classes_dtype="<U999999999"), "classes_dtype is '<U999999999'"),
        (lambda c: c.update(classes_dtype="<U1"), "classes are not of the type <U1"),
        (lambda c: c.update(classes_dtype="<i8"), "classes are not of the type int64"),
        (lambda c: c.update(classes_dtype="V8"), "classes_dtype is 'V8'"),
        (lambda c: c.update(shape=[5_000_000, 2]), "n_features_in is 1"),
        (lambda c: c.update(shape=[5_000_000, 5_000_000]), "the product of shape"),
        (lambda c: c.update(shape=[True]), r"shape\[0\] is True"),
        (lambda c: c.update(n_features_in=HUGE), "n_features_in is 1000"),
        (
            lambda c: c.update(feature_names_in=["a", "b"]),
            r"feature_names_in is \['a', 'b'\]; a list of ",
        ),
        (lambda c: c.update(best_epoch=-1), "best_epoch is -1"),
        (lambda c: c.update(history=[[]]), r"history\[0\] is \[\]"),
    ],
)
def test_a_damaged_config_is_one_line_that_names_file_and_field(
    model: Path, edit: Edit, message: str
) -> None:
    edited(model / "config.json", edit)
    with pytest.raises(ValueError, match=message):
        FittedTable.load(model)
    line = one_line_error("report", model, "--out", model.parent / "r.html")
    assert str(model / "config.json") in line


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.pop("kind"), "kind is None; linear or network is expected"),
        (lambda c: c.update(kind="tree"), "kind is 'tree'"),
        (lambda c: c.update(kind=["linear"]), "kind is \\['linear'\\]"),
        (lambda c: c.update(classes=["no", 1]), r"classes\[1\] is 1"),
        (lambda c: c.update(classes=["no", "no"]), "a class is there twice"),
        (lambda c: c.update(n_features=HUGE), "n_features is 1000"),
        (lambda c: c.update(temperature="hot"), "temperature is 'hot'"),
        (lambda c: c["maximum_likelihood"].pop("ridge"), "maximum_likelihood.ridge is missing"),
        (lambda c: c["maximum_likelihood"].update(history=[[]]), r"history\[0\] is \[\]"),
        (lambda c: c.update(evil=1), "'evil' is unknown"),
    ],
)
def test_a_damaged_config_of_a_linear_model_is_one_line(
    precincts: Path, tmp_path: Path, edit: Edit, message: str
) -> None:
    model = Path(shutil.copytree(precincts / "m", tmp_path / "m"))
    edited(model / "config.json", edit)
    line = one_line_error("predict", model, precincts / "rows.csv", "--out", tmp_path / "p.csv")
    assert str(model / "config.json") in line
    with pytest.raises(ValueError, match=message):
        raise ValueError(line)


@pytest.mark.parametrize("device", ["meta", "cuda:77"])
def test_a_device_that_is_not_here_is_named(model: Path, device: str) -> None:
    edited(model / "config.json", lambda c: c["params"].update(device=device))
    line = one_line_error("report", model, "--out", model.parent / "r.html")
    assert f"the model in {model} computes on the device '{device}', which is not here" in line


def test_weights_that_are_not_numbers_are_refused(model: Path) -> None:
    path = model / "model.safetensors"
    tensors, facts = load_arrays(path)
    save_arrays(path, {k: v * float("nan") for k, v in tensors.items()}, facts)
    with pytest.raises(ValueError, match=r"model\.safetensors .* has NaN"):
        FittedTable.load(model)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda f: f["data"].pop("shares"), "data.shares is missing"),
        (lambda f: f["data"]["shares"].append(0.1), "data.shares is .* 0.1]; a list of 2"),
        (lambda f: f["data"]["sizes"].update(median=float("nan")), "data.sizes.median is nan"),
        (lambda f: f["data"]["sizes"]["histogram"].update(edges=[1, 1]), "histogram.edges"),
        (lambda f: f["held_out"]["bags"][0].update(size=0), r"held_out.bags\[0\].size is 0"),
        (lambda f: f["held_out"].update(calibration=[]), r"held_out.calibration is \[\]"),
        (lambda f: f["held_out"].update(log_likelihood=HUGE), "log_likelihood is 1000"),
        (lambda f: f["curve"][0].update(train="x"), r"curve\[0\].train is 'x'"),
        (lambda f: f["tried"][0].update(model=0.1), r"tried\[0\].model is 0.1; text"),
        (lambda f: f.update(tried=[["mlp", "x"]]), r"tried\[0\] is \['mlp', 'x'\]"),
        (lambda f: f["held_out"].pop("gain_error"), "held_out.gain_error is missing"),
        (lambda f: f.update(seconds=True), "seconds is True"),
        (lambda f: f["settings"].update(lr=None), "settings.lr is None"),
    ],
)
def test_damaged_facts_of_a_fit_are_one_line_that_names_file_and_field(
    model: Path, edit: Edit, message: str
) -> None:
    edited(model / "fit.json", edit)
    line = one_line_error("report", model, "--out", model.parent / "r.html")
    assert str(model / "fit.json") in line
    with pytest.raises(ValueError, match=message):
        raise ValueError(line)
    with pytest.raises(ValueError, match=f"^{re.escape(str(model / 'fit.json'))} is damaged: "):
        bagwise.load(model).summary()


def cifar_with(size: int, path: Path, kind: bytes = tarfile.REGTYPE) -> Path:
    """An archive of one member whose header declares this size."""
    member = tarfile.TarInfo("data_batch_1.bin")
    member.type = kind
    member.size = size
    path.write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    return path


@pytest.mark.parametrize("size", [2**40, 2**63, 2**80])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_an_archive_that_declares_a_huge_member_is_refused(
    size: int, kind: bytes, tmp_path: Path
) -> None:
    with pytest.raises(DataFileError, match=r"x\.tar\.gz"):
        read_cifar10(cifar_with(size, tmp_path / "x.tar.gz", kind))


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    for prefix, side in (("train", 28), ("t10k", 27)):
        images = io.BytesIO()
        for number in (0x0803, 4, side, side):
            images.write(number.to_bytes(4, "big"))
        images.write(bytes(range(4)) * side * side)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images.getvalue()))
        labels = (0x0801).to_bytes(4, "big") + (4).to_bytes(4, "big") + bytes(range(4))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    with pytest.raises(DataFileError, match=r"t10k-images.* 27 x 27 pixels; 28 x 28"):
        load_dataset("mnist", tmp_path)


def test_results_of_models_and_methods_that_are_not_known_here_are_read(
    result: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs" / RESULT
    path.parent.mkdir()
    path.write_text(result)
    names = {"dataset": "wards", "model": "transformer", "method": "<mine> $x$"}
    edited(path, lambda c: c["settings"].update(names))
    found = read_result(path)
    assert found.settings.model == "transformer"
    for arguments in (
        ("table", path.parent),
        ("figures", path.parent, "--out", tmp_path / "figures"),
        ("report", path.parent, "--out", tmp_path / "report.html"),
        ("export", path.parent, "--out", tmp_path / "exported"),
        ("table", tmp_path / "exported"),
    ):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.output
    assert "&lt;mine&gt; $x$" in (tmp_path / "report.html").read_text()
    with pytest.raises(ValueError, match="dataset is 'wards'; choose one of"):
        execute(found.settings, tmp_path / "again")  # to do such a run they must be known
    with pytest.raises(ValueError, match="model is 'transformer'"):
        replace(RUN, model="transformer")
