"""Several workers train as one process does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from bagwise import (
    BagBatchSampler,
    BagData,
    Bags,
    Groupings,
    LLPClassifier,
    TrainingOptions,
    cc_loss,
    train,
)
from bagwise.methods import Batch, Method, make_method
from bagwise.paper.run import read_result
from bagwise.storage.spread_rows import SpreadRows
from bagwise.storage.stored_rows import StoredRows
from bagwise.training import Callback, DivergedError, JsonLines
from bagwise.training.distributed import Together, WorkerError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning"),  # of a compiler
    pytest.mark.filterwarnings("ignore:this batch is a single bag"),  # of small batches
]

WORKERS = 2


def ragged(images: bool = False, labels: bool = False, sizes: Any = None) -> BagData:
    random = torch.Generator().manual_seed(3)
    sizes = [1, 3, 7, 2, 12, 5, 4, 1, 6, 9] if sizes is None else sizes
    truth = torch.randint(3, (sum(sizes),), generator=random)
    shape = (1, 6, 6) if images else (4,)
    inputs = torch.randn(len(truth), *shape, generator=random)
    inputs += truth.reshape(-1, *[1] * len(shape))
    known = truth.clone()
    known[::4] = -1
    return BagData(inputs, Bags.from_labels(truth, sizes, n_classes=3), known if labels else None)


def grouped(weighted: bool) -> BagData:
    """The same rows in two groupings, or with weights."""
    data = ragged(labels=True)
    truth = Bags.from_labels(ragged().bags.bag_of_row % 3, data.bags.sizes, n_classes=3)
    if weighted:
        return BagData(data.inputs, Bags(truth.sizes, 2 * truth.counts, [2] * len(data)))
    other = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)) // 10
    order = other.argsort(stable=True)
    counts = Bags.from_labels(data.bags.bag_of_row[order] % 3, other.bincount(), n_classes=3)
    groupings = Groupings({"own": (data.bags.bag_of_row, truth), "other": (other.numpy(), counts)})
    return BagData.of_groupings(data.inputs, groupings)


def spread(data: BagData) -> BagData:
    """The same bags; of several workers, each has the rows of some."""
    rows, sizes = data.inputs.numpy(), data.bags.sizes
    whole = StoredRows(rows, data.bags.offsets[:-1], sizes, 1 << 30)
    if not dist.is_initialized():
        return BagData(whole, data.bags)
    begins = np.array([0, 2, len(sizes)])
    rank = dist.get_rank()
    own = whole.select(np.arange(*begins[rank : rank + 2]))
    return BagData(SpreadRows(own, begins, rank, sizes, rows[:4]), data.bags)


def network(images: bool = False, normalized: bool = False) -> nn.Module:
    torch.manual_seed(5)
    norm: nn.Module = nn.BatchNorm1d(8) if normalized else nn.Identity()
    return nn.Sequential(
        nn.Flatten(), nn.Linear(36 if images else 4, 8), norm, nn.ReLU(), nn.Linear(8, 3)
    )


class Normalized2d(nn.Module):
    """Batch normalization of images; one weight is never used, and has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        # Without a bias: its gradient is nothing but rounding, which Adam makes a step of.
        self.conv, self.norm = nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3)
        self.last, self.unused = nn.Linear(48, 3), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.norm(self.conv(x)).relu().flatten(1))
        return logits


def run(name: str) -> dict[str, Any]:
    """One training run: the history, the weights and what the method keeps."""
    options: dict[str, Any] = {"epochs": 3, "lr": 0.02, "batch_instances": 16}
    data, model, validation = ragged(), network(), ragged(labels=True)
    method = make_method(name if name in METHODS else "cc")
    if name == "rc":
        options |= {"schedule": "one_cycle", "clip": 0.1}
        method = make_method("rc", record_gap=True)
    elif name == "supervised":
        data = ragged(labels=True)
    elif name == "two_views":
        method = make_method("two_views", start=0, ramp=1, teacher=True)
        data, validation = ragged(images=True), ragged(images=True, labels=True)
        options |= {"augment": "weak", "average": 0.9, "batch_bags": 3}
        model = Normalized2d()
    elif name == "normalized":
        model = network(normalized=True)
        options |= {"batch_bags": 3, "optimizer": "sgd"}
    elif name == "single instances":  # fewer than workers in a batch
        options |= {"batch_instances": 1}
    elif name == "accumulated":  # some batches have fewer instances than there are workers
        options |= {"batch_instances": 4, "accumulate_batches": 3, "clip": 0.1}
    elif name in MIXED:
        model = network(normalized=True)
        options |= {"batch_bags": 3, "optimizer": "sgd", "precision": name, "average": 0.9}
    elif name == "compiled":
        options |= {"compile": True}
    elif name == "large bags":  # trained in parts
        data, validation = ragged(sizes=[40, 3, 30, 5]), ragged(sizes=[7], labels=True)
    elif name in ("weighted", "joint cc", "joint rc"):
        data = grouped(weighted=name == "weighted")
        method = make_method(name.split()[-1] if name != "weighted" else "rc")
    elif name == "dataset":
        data = BagData(TensorDataset(data.inputs), data.bags)
    elif name.startswith("spread"):  # a worker has the rows of its own bags alone
        data = spread(ragged(sizes=[40, 3, 30, 5] if "large bags" in name else None))
        validation = data.select(np.array([1, 2]))
        if "normalized" in name:  # with small batches, of which a worker may have no row
            model = network(normalized=True)
            options |= {"batch_instances": 8, "optimizer": "sgd"}
    result = train(
        model, data, method, TrainingOptions(**options), validation=validation, progress=False
    )
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
    weights = {f"weight {k}": v for k, v in result.model.state_dict().items()}
    return {"history": history, "best": result.best_epoch, "tensors": weights | method.kept}


METHODS = ("cc", "rc", "dllp", "llpfc", "ot", "mixbag", "supervised", "two_views")
RUNS = (
    *METHODS,
    *("normalized", "single instances", "large bags", "dataset"),
    *("weighted", "joint cc", "joint rc"),
    *("accumulated", "compiled"),
    *("spread", "spread, normalized", "spread, large bags"),
)
MIXED = ("bf16", "fp16")


def fitted(random_state: int | None) -> dict[str, Any]:
    data = ragged(sizes=[4] * 60)
    shares = data.bags.proportions
    classifier = LLPClassifier(model="linear", epochs=2, random_state=random_state)
    classifier.fit(data.inputs.numpy(), data.bags.bag_of_row, shares)
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in classifier.history_]
    return {"history": history, "tensors": dict(classifier.model_.state_dict())}


class Diverging(Method):
    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return logits.sum() * float("nan")


class Broken(Callback):
    def on_epoch_end(self, row: Any, model: nn.Module) -> None:
        raise OSError("the disk is full")


def failures(rank: int) -> list[str]:
    """What is said where workers cannot go on: an error on every one of them."""
    said = []
    plain, compiled = TrainingOptions(epochs=1), TrainingOptions(epochs=1, compile=True)
    for method, data, callbacks, options in (
        (Diverging(), ragged(), [], plain),
        ("cc", ragged(sizes=[3] * (3 + rank)), [], plain),
        ("cc", ragged(), [Broken()], plain),
        ("cc", ragged(), [], compiled),
    ):
        try:
            model = network(normalized=options is compiled)
            train(model, data, method, options, callbacks=callbacks, progress=False)
        except (DivergedError, WorkerError, OSError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def shared_loss(batch: list[int]) -> float:
    """A worker's loss in a loop of one's own, as docs/pytorch.md has it."""
    data = ragged()
    bags = data.bags.select(batch)
    total = torch.tensor(float(bags.n_instances))
    dist.all_reduce(total)
    logits = network()(data.inputs[data.bags.rows(batch)])
    return (cc_loss(logits, bags, reduction="sum") * WORKERS / total).item()


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    place = Path(folder)
    sampler = BagBatchSampler(ragged().bags, 12, seed=4)  # before there is a process group
    dist.init_process_group("gloo", f"file://{place}/meet", rank=rank, world_size=WORKERS)
    found: dict[str, Any] = {name: run(name) for name in (*RUNS, *MIXED)}
    found["fitted"] = fitted(0)
    found["by chance"] = fitted(None)
    found["failures"] = failures(rank)
    found["sampled"] = [[(batch, shared_loss(batch)) for batch in sampler] for _ in range(2)]
    running = iter(sampler)
    next(running)
    again = BagBatchSampler(ragged().bags, 12, seed=4)
    again.load_state_dict(sampler.state_dict())
    found["left"] = [list(running), list(again)]
    options = TrainingOptions(epochs=1)
    lines = JsonLines(place / f"history{rank}")
    train(network(), ragged(), "rc", options, callbacks=[lines], checkpoint=place, progress=False)
    resumed = train(
        network(), ragged(), "rc", TrainingOptions(epochs=2), checkpoint=place, progress=False
    )
    found["resumed"] = {"history": resumed.history, "tensors": resumed.model.state_dict()}
    shard = Together(torch.device("cpu")).shard(ragged())
    assert shard is not None
    found["shard"] = shard.bags.sizes.tolist()
    alone = Together(torch.device("cpu")).shard(ragged(sizes=[3]))
    found["nothing to evaluate"] = alone is None
    torch.save(found, place / f"found{rank}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """What two workers found, and the folder they worked in."""
    folder = tmp_path_factory.mktemp("workers")
    torch.multiprocessing.spawn(worker, (str(folder),), nprocs=WORKERS)
    return folder, [torch.load(folder / f"found{rank}") for rank in range(WORKERS)]


@pytest.mark.slow
def test_each_worker_resumes_within_an_epoch(found: tuple[Path, list[dict[str, Any]]]) -> None:
    left = [each["left"] for each in found[1]]
    assert all(len(expected) > 0 and resumed == expected for expected, resumed in left)
    assert left[0] != left[1]


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.get("best") == expected.get("best")
    assert len(found["history"]) == len(expected["history"])
    for row, other in zip(found["history"], expected["history"], strict=True):
        assert row.keys() == other.keys()
        assert row == pytest.approx(other, rel=1e-5, abs=1e-6)
    assert found["tensors"].keys() == expected["tensors"].keys()
    for name, tensor in found["tensors"].items():
        torch.testing.assert_close(
            tensor,
            expected["tensors"][name],
            rtol=1e-5,
            atol=1e-5,
            msg=lambda m, n=name: f"{n}: {m}",
        )


@pytest.mark.parametrize("name", RUNS)
def test_workers_find_what_one_process_finds(name: str, found: Any) -> None:
    expected = run(name)
    for one in found[1]:
        assert_close(one[name], expected)


@pytest.mark.parametrize("name", MIXED)
def test_workers_find_nearly_the_same_in_half_precision(name: str, found: Any) -> None:
    """Weights' gradients are sums in half precision, which are rounded before they are added."""
    expected = run(name)
    for one in found[1]:
        for row, other in zip(one[name]["history"], expected["history"], strict=True):
            assert row == pytest.approx(other, rel=0.01, abs=0.01)


def test_all_workers_end_with_the_same_weights_to_the_last_digit(found: Any) -> None:
    first, second = found[1]
    for name in (*RUNS, *MIXED):
        for tensor, other in zip(
            first[name]["tensors"].values(), second[name]["tensors"].values(), strict=True
        ):
            assert torch.equal(tensor, other)


def test_the_estimator_is_the_same_on_all_workers_also_without_a_seed(found: Any) -> None:
    expected = fitted(0)
    first, second = found[1]
    assert_close(first["fitted"], expected)
    assert_close(second["fitted"], expected)
    assert_close(second["by chance"], first["by chance"])


def test_errors_are_errors_of_all_workers(found: Any) -> None:
    first, second = (one["failures"] for one in found[1])
    assert first[0] == second[0]
    assert first[0].startswith("DivergedError: the loss became NaN")
    assert first[1] == second[1]
    assert "(9, 3)" in first[1]
    assert "(12, 4)" in first[1]
    assert first[2] == "OSError: the disk is full"
    assert second[2].startswith("WorkerError: the first worker failed")
    assert first[3] == second[3]
    assert "batch normalization, which cannot be compiled for several workers" in first[3]


def test_the_first_worker_alone_writes_and_all_go_on_from_its_checkpoint(found: Any) -> None:
    folder, (first, second) = found
    assert [path.name for path in folder.glob("history*")] == ["history0"]
    assert len((folder / "history0").read_text().splitlines()) == 1
    result = train(network(), ragged(), "rc", TrainingOptions(epochs=2), progress=False)
    for row in result.history:
        del row["seconds"]
    for one in (first, second):
        for row in one["resumed"]["history"]:
            row.pop("seconds", None)
        assert_close(
            one["resumed"], {"history": result.history, "tensors": result.model.state_dict()}
        )


def test_every_bag_is_evaluated_by_one_worker(found: Any) -> None:
    first, second = (one["shard"] for one in found[1])
    assert first + second == ragged().bags.sizes.tolist()
    assert abs(sum(first) - sum(second)) <= 12  # as whole bags allow
    assert [one["nothing to evaluate"] for one in found[1]].count(True) == 1


def test_a_sampler_made_before_the_process_group_gives_each_worker_its_own_batches(
    found: Any,
) -> None:
    data, model = ragged(), network()
    first, second = (one["sampled"] for one in found[1])
    assert [batch for batch, _ in first[0]] != [batch for batch, _ in first[1]]
    for ours, theirs in zip(first, second, strict=True):
        for (batch, loss), (other, other_loss) in zip(ours, theirs, strict=True):
            assert batch != other
            both = batch + other
            alone = cc_loss(model(data.inputs[data.bags.rows(both)]), data.bags.select(both))
            assert (loss + other_loss) / 2 == pytest.approx(alone.item(), rel=1e-5)
        everything = {bag for batch, _ in ours + theirs for bag in batch}
        assert everything == set(range(len(data.bags)))


FRAGILE = """
import os
import signal
from pathlib import Path

from bagwise.methods import RC, register

rank = os.environ.get("RANK", "0")
log = Path(__file__).with_name("epochs" + rank)


@register("fragile")
class Fragile(RC):
    def __init__(self):
        super().__init__()

    def begin_epoch(self, epoch, generator):
        with log.open("a") as file:
            file.write(str(epoch))
        self.left = 3

    def loss(self, logits, batch):
        self.left -= 1
        if rank == "1" and log.read_text() == "12" and not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(logits, batch)
"""


def test_a_worker_of_torchrun_is_killed_and_the_run_goes_on_to_the_same_result(
    tmp_path: Path,
) -> None:
    (tmp_path / "fragile_method.py").write_text(FRAGILE)
    torchrun = "--standalone --nproc-per-node 2 --monitor-interval 0.1 -m bagwise"
    settings = "--plugin fragile_method train --dataset digits --model linear --method fragile"
    settings += " --bag-size 16 --epochs 3 --out "

    def start(launcher: str, out: str) -> subprocess.CompletedProcess[str]:
        command = f"{launcher} {settings}{out}"
        return subprocess.run(
            [sys.executable, "-m", *command.split()],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    assert start(f"torch.distributed.run {torchrun}", "together").returncode != 0
    assert (tmp_path / "epochs1").read_text() == "12"  # and no further
    done = start(f"torch.distributed.run {torchrun}", "together")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "epochs0").read_text() == "1223"  # not from the beginning
    assert done.stdout.count("best epoch chosen by") == 1  # one of the workers speaks
    assert start("bagwise", "alone").returncode == 0
    results = [read_result(tmp_path / out / "result.json") for out in ("together", "alone")]
    for result in results:
        for row in result.history:
            del row["seconds"]
    together, alone = (result.history for result in results)
    assert together == [pytest.approx(row, rel=1e-5) for row in alone]
    assert not (tmp_path / "together" / "checkpoint.safetensors").exists()
    assert (tmp_path / "together" / "model.safetensors").exists()
