"""Training, fits and predictions on a real Ray of this machine, whose processes are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from bagwise import ray_cluster
from bagwise.checks import Rule
from bagwise.cli import app
from bagwise.methods import METHODS
from bagwise.paper.run import read_result
from bagwise.registry import PLUGINS
from bagwise.tables.use import predict_on_ray as ray_predicting
from bagwise.training import ray_training
from bagwise.training.distributed import WorkerError, launched
from bagwise.training.tensor_files import load_tensors

# Ray's own, of its start and its sockets.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def command(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of one machine with two cores, for all tests here."""
    from ray.cluster_utils import Cluster

    arguments = {
        "num_cpus": 2,
        "include_dashboard": False,
        "object_store_memory": 100 << 20,
        # Processes that may never be needed cost as much as others.
        "_system_config": {"enable_worker_prestart": False, "prestart_worker_first_driver": False},
    }
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    yield cluster.address
    cluster.shutdown()


FRAGILE = """
import os
import signal
from pathlib import Path

from bagwise.methods import RC, register

rank = os.environ.get("RANK", "0")
log = Path(FOLDER) / ("epochs" + rank)


class Counted(RC):
    def __init__(self):
        super().__init__()

    def begin_epoch(self, epoch, generator):
        with log.open("a") as file:
            file.write(str(epoch))
        self.left = 3

    def loss(self, logits, batch):
        self.left -= 1
        if rank == "1" and log.read_text() == "12" and not self.left:
            self.break_down()
        return super().loss(logits, batch)


@register("fragile")
class Fragile(Counted):
    def break_down(self):
        os.kill(os.getpid(), signal.SIGKILL)


@register("mistaken")
class Mistaken(Counted):
    def break_down(self):
        raise TypeError("the second worker cannot go on")
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with methods, in the current folder."""
    name = "methods_that_break"
    (tmp_path / f"{name}.py").write_text(f"FOLDER = {str(tmp_path)!r}\n{FRAGILE}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PLUGINS, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield name
    sys.modules.pop(name, None)
    for method in ("fragile", "mistaken"):
        METHODS.pop(method, None)


TRAIN = ("train", "--dataset", "digits", "--model", "linear", "--bag-size", "16")
TRAIN += ("--epochs", "3", "--method")


def test_a_worker_of_ray_train_is_killed_and_the_run_ends_as_that_of_one_process(
    address: str, plugin: str, tmp_path: Path
) -> None:
    on_ray = ("--ray-address", address, "--workers", 2)
    code, output = command("--plugin", plugin, *TRAIN, "fragile", "--out", "together", *on_ray)
    assert code == 0, output
    assert "best epoch chosen by" in output
    for rank in "01":  # it was killed in the second epoch, and not from the beginning again
        assert (tmp_path / f"epochs{rank}").read_text() == "1223"
    assert {path.name for path in Path("together").iterdir()} == {
        "result.json",
        "model.safetensors",
    }
    (tmp_path / "epochs0").unlink()
    assert command(*TRAIN, "fragile", "--out", "alone")[0] == 0
    histories = [read_result(Path(out) / "result.json").history for out in ("together", "alone")]
    for row, expected in zip(*histories, strict=True):
        del row["seconds"], expected["seconds"]
        assert row == pytest.approx(expected, rel=1e-5)
    weights, expected = (
        load_tensors(Path(out) / "model.safetensors")[0] for out in ("together", "alone")
    )
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-5)


def test_an_error_of_one_worker_is_one_message_and_is_not_tried_again(
    address: str, plugin: str, tmp_path: Path
) -> None:
    code, output = command(
        *("--plugin", plugin, *TRAIN, "mistaken", "--out", "runs"),
        *("--ray-address", address, "--workers", 2),
    )
    assert (code, output) == (3, "Error: TypeError: the second worker cannot go on")
    assert (tmp_path / "epochs1").read_text() == "12"
    assert {path.name for path in Path("runs").iterdir()} == {"checkpoint.safetensors"}


def test_a_run_is_given_up_when_workers_are_lost_again_and_again_without_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"epoch": 1.0}
    lost = [
        ray_training._State([row] * n, [], False, "the process of worker 1 died") for n in (2, 3, 3)
    ]
    monkeypatch.setattr(ray_training, "cluster", lambda *_: contextlib.nullcontext(2))
    for name in ("_new_board", "_trainer"):
        monkeypatch.setattr(ray_training, name, lambda *_: None)
    monkeypatch.setattr(ray_training, "_watched", lambda *_: lost.pop(0))
    with pytest.raises(WorkerError, match="worker 1 died, 3 times without an epoch between"):
        ray_training.train_on_ray(print, tmp_path, 2, "cc", 9)
    assert not lost
    assert not list(tmp_path.iterdir())


def test_what_is_no_address_is_named(tmp_path: Path) -> None:
    train = (*TRAIN, "cc", "--out", tmp_path / "runs", "--ray-address", "nowhere")
    code, output = command(*train)
    assert code in (2, 3)
    assert "the address of Ray is nowhere; HOST:PORT is expected" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", 2], "--workers says how many processes of Ray work; add --ray."),
        (["--ray", "--workers", 0], "--workers is 0; a number from 1 is expected."),
        (["--ray", "--device", "meta"], "device is 'meta'"),
        (["--ray-address", "127.0.0.1:1", "--device", "cuda:1"], "with Ray cpu or cuda"),
        (["--ray", "--engine", "no"], "engine is 'no'; choose one of"),
    ],
)
def test_mistakes_are_found_before_ray_is_started(
    arguments: list[Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray is started"))
    code, output = command(*TRAIN, "cc", "--out", tmp_path / "runs", *arguments)
    assert code in (2, 3)
    assert message in output


def test_more_workers_than_cores_or_gpus_are_refused(address: str, tmp_path: Path) -> None:
    train = (*TRAIN, "cc", "--out", tmp_path / "runs")
    code, output = command(*train, "--ray-address", address, "--workers", 3)
    assert code in (2, 3)
    assert "3 workers need a core each, and Ray has 2; give fewer --workers." in output
    code, output = command(*train, "--ray-address", address, "--device", "cuda")
    assert code in (2, 3)
    assert "1 workers need a GPU each, and Ray has 0" in output
    assert not list((tmp_path / "runs").iterdir())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 patients of 20 wards, in one file and in four, and the counts of the wards."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    ward = rng.integers(20, size=300)
    sick = (rng.random(300) < 0.2 + 0.3 * (ward % 3)).astype(int)
    rows = pa.table(
        {
            "patient": [f"P{i:03d}" for i in range(300)],
            "ward": [f"W{w:02d}" for w in ward],
            "blood": rng.normal(size=300) + 2.5 * sick,
            "group": np.array(["A", "B", "0"])[rng.integers(3, size=300)],
        }
    )
    counts = np.array([np.bincount(sick[ward == w], minlength=2) for w in range(20)])
    names = [f"W{w:02d}" for w in range(20)]
    bags = pa.table({"ward": names, "healthy": counts[:, 0], "sick": counts[:, 1]})
    pcsv.write_csv(bags, folder / "bags.csv")
    pq.write_table(rows, folder / "rows.parquet")
    pq.write_table(rows.slice(0, 100), folder / "b.parquet")
    pcsv.write_csv(rows.slice(100, 150), folder / "a.csv")
    pcsv.write_csv(rows.slice(0, 0), folder / "d.csv")
    pq.write_table(rows.slice(250, 50), folder / "c.parquet")
    return folder


@pytest.fixture(scope="module")
def models(table: Path, address: str) -> tuple[Path, Path]:
    """The model of a fit in this process, and of one on Ray."""
    fit = ("fit", table / "rows.parquet", "--bag", "ward", "--labels", table / "bags.csv")
    on_ray = ("--ray-address", address)
    made = table / "alone", table / "on ray"
    for out, more in zip(made, ((), on_ray), strict=True):
        code, output = command(*fit, "--exclude", "patient", "--model", "mlp", "--out", out, *more)
        assert code == 0, output
    return made


def test_a_fit_on_ray_is_the_fit_of_one_process(models: tuple[Path, Path]) -> None:
    tensors = [load_tensors(model / "model.safetensors")[0] for model in models]
    torch.testing.assert_close(*tensors, rtol=0, atol=0)
    facts = [json.loads((model / "fit.json").read_text()) for model in models]
    for fact in facts:
        del fact["command"], fact["seconds"]
    assert facts[0] == facts[1]
    assert len(facts[0]["tried"]) > 1


def test_another_ray_on_this_machine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in one process disturb each other, so that none is started here."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("ray.init", lambda **settings: asked.append(settings))
    monkeypatch.setattr("ray.shutdown", lambda: None)
    monkeypatch.setattr(ray_cluster, "n_cores", lambda: 1)
    with ray_cluster.cluster(None, 1):
        pass
    assert [settings["address"] for settings in asked] == ["local"]  # None would take the other


def in_this_process(function: Any, tasks: Any, *shared: Any, **_: Any) -> Iterator[Any]:
    """As `ray_cluster.do_all`, the last first: nobody says in which order tasks end."""
    for name, arguments in reversed(tasks.items()):
        yield name, function(*shared, *arguments), None


def test_predictions_on_ray_are_those_of_one_process_though_one_of_ray_is_killed(
    table: Path,
    models: tuple[Path, Path],
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [table / name for name in ("b.parquet", "a.csv", "d.csv", "c.parquet")]
    mark, predicted = tmp_path / "died", ray_predicting._predicted

    def die_once(*task: Any) -> Any:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return predicted(*task)

    monkeypatch.setattr(ray_predicting, "_predicted", die_once)
    code, output = command(
        *("predict", models[0], *files, "--out", tmp_path / "parts"),
        *("--ray-address", address, "--workers", 2),
    )
    assert code == 0, output
    assert mark.exists()
    assert "300 rows are in" in output
    assert command("predict", models[0], *files, "--out", tmp_path / "one.parquet")[0] == 0
    parts = sorted((tmp_path / "parts").iterdir())
    assert [part.name for part in parts] == [
        "00000-b.parquet",
        "00001-a.parquet",
        "00002-d.parquet",
        "00003-c.parquet",
    ]
    together = pa.concat_tables([pq.read_table(part) for part in parts])
    assert together.equals(pq.read_table(tmp_path / "one.parquet"))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_is_wrong_with_a_file_is_one_message_and_leaves_the_former_predictions(
    table: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_predicting, "cluster", lambda *_: contextlib.nullcontext(2))
    monkeypatch.setattr(ray_predicting, "do_all", in_this_process)
    out = tmp_path / "parts"
    predict = ("predict", models[0], table / "b.parquet")
    assert command(*predict, "--out", out, "--ray")[0] == 0
    content = (table / "b.parquet").read_bytes()
    middle = len(content) // 3
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(content[:100] + bytes(middle) + content[100 + middle :])
    code, output = command(*predict, broken, "--out", out, "--ray")
    assert code in (2, 3), output
    assert output.startswith("Error: ")
    assert f"{broken} cannot be read" in output
    assert [path.name for path in out.iterdir()] == ["00000-b.parquet"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    files = (table / "a.csv", table / "b.parquet")
    assert command("predict", models[0], *files, "--out", out, "--ray")[0] == 0
    assert sorted(path.name for path in out.iterdir()) == ["00000-a.parquet", "00001-b.parquet"]


def test_with_force_predictions_on_ray_replace_a_folder_of_other_files(
    table: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_predicting, "cluster", lambda *_: contextlib.nullcontext(2))
    monkeypatch.setattr(ray_predicting, "do_all", in_this_process)
    out = tmp_path / "other"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    predict = ("predict", models[0], table / "b.parquet", "--ray", "--out", out)
    code, output = command(*predict)
    assert (code, "--force" in output) == (3, True)
    assert command(*predict, "--force")[0] == 0
    assert [path.name for path in out.iterdir()] == ["00000-b.parquet"]


@pytest.mark.parametrize(
    "error",
    [Exception("The current node timed out\nduring startup."), RuntimeError(), ValueError()],
)
def test_a_ray_that_does_not_start_is_one_line(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(**_: Any) -> None:
        raise error

    monkeypatch.setattr("ray.init", failing)
    out = ("--out", tmp_path / "run")
    code, output = command("train", "--dataset", "digits", "--epochs", "1", "--ray", *out)
    assert code in (2, 3)
    assert output.startswith("Error: Ray cannot be started here: ")
    assert "\n" not in output


def test_outputs_that_predictions_on_ray_cannot_have_are_refused(
    table: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray is started"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    predict = ("predict", models[0], table / "b.parquet", "--ray")
    for arguments, message in (
        (["--out", tmp_path / "one.parquet"], "with Ray the output is a folder"),
        (["--out", other], "holds notes.txt, which is not a prediction"),
        (["--out", table / "bags.csv"], "with Ray the output is a folder"),
        (["--out", tmp_path / "x", "--labels", table / "bags.csv"], "every file is by itself"),
        (["--out", models[0], "--force"], "is the model itself"),
        (["--out", tmp_path, "--force"], "holds other, which is not a file"),
    ):
        code, output = command(*predict, *arguments)
        assert code in (2, 3)
        assert message in output
    assert (other / "notes.txt").read_text() == "mine"


def test_workers_of_torchrun_have_a_gpu_each_and_talk_by_nccl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []
    for name, value in {"RANK": 3, "WORLD_SIZE": 4, "MASTER_ADDR": "x", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("LOCAL_RANK", "1")
    there = Rule("one of two GPUs", lambda name: name in ("cuda:0", "cuda:1"))
    monkeypatch.setattr("bagwise.training.distributed.DEVICE", there)
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", done.append)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: done.append("end"))
    with launched("cuda") as place:
        assert place == (False, "cuda:1")
        assert done == ["cuda:1", "cpu:gloo,cuda:nccl"]
    with launched("cpu") as place:
        assert place == (False, "cpu")
    assert done[2:] == ["end", "gloo", "end"]
    with pytest.raises(ValueError, match="several workers would share it; give cuda"):
        launched("cuda:1").__enter__()
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="device is 'cuda:2'; one of two GPUs is expected"):
        launched("cuda").__enter__()
