from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bagwise.training.loop
from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.demo import digits_in_bags, run
from bagwise.estimator.bag_folds import split_bags
from bagwise.methods import OT, Batch, Method
from bagwise.networks import Standardize, mlp
from bagwise.training import DivergedError, TrainingResult
from bagwise.training.run_state import CHECKPOINT
from bagwise.training.tensor_files import load_tensors


def small_run(method: Any = "cc", checkpoint: Path | None = None, **options: Any) -> TrainingResult:
    data, test = digits_in_bags(8)
    data, validation = split_bags(data, 0.2, seed=0)
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(64, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(0.2))
    model = nn.Sequential(Standardize.of(data.inputs), body, nn.Linear(40, 10))
    settings = {"epochs": 4, "lr": 3e-3, **options}
    return train(
        model,
        data,
        method,
        TrainingOptions(**settings),
        validation=validation,
        test=test,
        checkpoint=checkpoint,
        progress=False,
    )


def without_seconds(result: TrainingResult) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]


def assert_same_run(found: TrainingResult, expected: TrainingResult) -> None:
    assert without_seconds(found) == without_seconds(expected)
    assert found.best_epoch == expected.best_epoch
    weights = expected.model.state_dict()
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


@pytest.mark.parametrize("method", ["rc", "cc", "llpfc"])
def test_one_seed_gives_one_result_whatever_the_caller_drew_before(method: str) -> None:
    first = small_run(method)
    torch.rand(7)
    assert_same_run(small_run(method), first)
    assert without_seconds(small_run(method, seed=1)) != without_seconds(first)


def test_training_leaves_the_callers_random_numbers_alone() -> None:
    data, _ = digits_in_bags(8)
    torch.manual_seed(5)
    model = mlp((64,), 10)
    before = torch.get_rng_state()
    train(model, data, "cc", TrainingOptions(epochs=1), progress=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_history_has_what_is_known() -> None:
    history = small_run().history
    assert [row["epoch"] for row in history] == [1, 2, 3, 4]
    for row in history:
        assert set(row) == {
            "epoch", "train_loss", "lr", "train_accuracy", "val_bag_loss", "val_accuracy",
            "test_bag_loss", "test_accuracy", "seconds",
        }  # fmt: skip
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert history[-1]["test_accuracy"] > 0.6


@pytest.mark.parametrize(("select", "sign"), [("bag_loss", 1), ("accuracy", -1)])
def test_the_best_epochs_weights_are_kept(select: str, sign: int) -> None:
    # A rate this high makes later epochs worse than the best one.
    result = small_run(select=select, lr=0.2, epochs=6)
    scores = [sign * row[f"val_{select}"] for row in result.history]
    assert result.best_epoch == 1 + scores.index(min(scores))
    assert not result.model.training
    _, test = digits_in_bags(8)
    found = result.model(test.inputs).argmax(1)
    accuracy = (found == test.labels).double().mean().item()
    assert accuracy == pytest.approx(result.history[result.best_epoch - 1]["test_accuracy"])


def test_patience_stops_early() -> None:
    result = small_run(lr=0.3, epochs=40, patience=2)
    assert len(result.history) == result.best_epoch + 2 < 40


def test_without_validation_the_last_epoch_is_kept() -> None:
    data, _ = digits_in_bags(16)
    options = TrainingOptions(epochs=3)
    assert train(mlp((64,), 10), data, "cc", options, progress=False).best_epoch == 3


def test_a_one_cycle_schedule_rises_and_falls() -> None:
    rates = [row["lr"] for row in small_run(schedule="one_cycle", epochs=10).history]
    assert max(rates) == pytest.approx(3e-3, rel=0.1)
    assert 1 < rates.index(max(rates)) < 5
    assert rates[-1] < 1e-4


def test_averaged_weights_are_what_is_validated_and_kept() -> None:
    plain, averaged = small_run(select="last"), small_run(select="last", average=0.99)
    losses = [[row["train_loss"] for row in result.history] for result in (plain, averaged)]
    assert losses[0] == losses[1]  # the same steps are made
    assert without_seconds(plain) != without_seconds(averaged)
    gap = averaged.model[2].weight - plain.model[2].weight
    assert 0 < gap.abs().max() < 0.1


def test_gradients_are_clipped_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    step = torch.optim.Adam.step

    def spy(optimizer: torch.optim.Adam) -> None:
        grads = [p.grad.flatten() for p in optimizer.param_groups[0]["params"]]
        norms.append(torch.cat(grads).norm().item())
        step(optimizer)

    monkeypatch.setattr(torch.optim.Adam, "step", spy)
    small_run(epochs=2)
    plain = sorted(norms)
    clip = plain[len(plain) // 2]  # half of the steps are longer
    norms.clear()
    small_run(epochs=2, clip=clip)
    assert plain[-1] > 1.01 * clip
    assert len(norms) == len(plain)
    assert max(norms) == pytest.approx(clip, rel=1e-3)  # long steps are shortened to it
    assert min(norms) < 0.99 * clip  # and short ones left alone


@pytest.mark.parametrize("method", ["rc", "cc", "llpfc"])
@pytest.mark.parametrize(
    "options", [{}, {"average": 0.9, "schedule": "one_cycle", "batch_bags": 50}]
)
def test_a_run_interrupted_after_any_epoch_ends_as_if_it_had_not_been(
    method: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = small_run(method, **options)
    original = bagwise.training.loop.totals
    for stop in (1, 3):
        folder = tmp_path / str(stop)
        # Twice an epoch a data set is evaluated; break off in the epoch after `stop`.
        calls = iter(range(2 * stop))

        def totals(*args: Any, calls: Iterator[int] = calls) -> torch.Tensor:
            next(calls)
            return original(*args)

        monkeypatch.setattr(bagwise.training.loop, "totals", totals)
        with pytest.raises(StopIteration):
            small_run(method, folder, **options)
        monkeypatch.setattr(bagwise.training.loop, "totals", original)
        assert len(load_tensors(folder / CHECKPOINT)[1]["history"]) == stop
        assert_same_run(small_run(method, folder, **options), expected)
        assert_same_run(small_run(method, folder, **options), expected)  # done: not run again


KILLED = """
import sys
from pathlib import Path
import torch
torch.set_num_threads({threads})  # sums depend on it
sys.path.insert(0, {tests!r})
from test_training import small_run
small_run({method!r}, Path({folder!r}), epochs=12)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rc", "cc", "llpfc"])
def test_a_run_killed_at_several_moments_ends_bit_for_bit_the_same(
    method: str, tmp_path: Path
) -> None:
    expected = small_run(method, epochs=12)
    code = KILLED.format(
        tests=str(Path(__file__).parent),
        threads=torch.get_num_threads(),
        method=method,
        folder=str(tmp_path),
    )
    checkpoint = tmp_path / CHECKPOINT
    for moment in range(3):
        process = subprocess.Popen([sys.executable, "-c", code])
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            now = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
            if now != before:  # one epoch further: strike a little later, at any place
                time.sleep(0.013 * moment)
                break
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = len(load_tensors(checkpoint)[1]["history"])
    assert done >= 1
    assert_same_run(small_run(method, tmp_path, epochs=12), expected)


def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    small_run("cc", tmp_path, epochs=2)
    assert_same_run(small_run("cc", tmp_path, epochs=4), small_run("cc", epochs=4))


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    small_run("cc", tmp_path, epochs=1)
    with pytest.raises(ValueError, match=r"another run: lr was 0.003 and is now 0.01.*folder"):
        small_run("cc", tmp_path, epochs=1, lr=0.01)
    with pytest.raises(ValueError, match="method was 'cc' and is now 'rc'"):
        small_run("rc", tmp_path, epochs=1)
    with pytest.raises(ValueError, match="another run: batch_bags was nothing and is now 2"):
        small_run("cc", tmp_path, epochs=1, batch_bags=2)
    small_run("cc", tmp_path / "several", epochs=1, batch_bags=2)
    with pytest.raises(ValueError, match="another run: batch_bags was 2 and is now nothing"):
        small_run("cc", tmp_path / "several", epochs=1)


def test_checkpoints_that_know_nothing_of_batch_bags_stay_good(tmp_path: Path) -> None:
    small_run("cc", tmp_path, epochs=1)
    _, facts = load_tensors(tmp_path / CHECKPOINT)
    assert set(facts["identity"]["options"]) == {
        "lr", "weight_decay", "batch_instances", "schedule", "average", "clip", "select",
        "patience", "seed",
    }  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"garbage" * 100, None])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes | None) -> None:
    small_run("cc", tmp_path, epochs=1)
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is damaged"):
        small_run("cc", tmp_path, epochs=1)


class _Spoilt(Method):
    """CC until its 40th batch, then NaN."""

    name = "spoilt"

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        self.calls += 1
        return logits.square().mean() * (math.nan if self.calls == 40 else 1)


def test_a_loss_that_turns_nan_stops_with_place_and_cause(tmp_path: Path) -> None:
    per_epoch = math.ceil(142 / 32)
    place = f"epoch {1 + 39 // per_epoch}, batch {1 + 39 % per_epoch}"
    with pytest.raises(DivergedError, match=rf"the loss became NaN.* in {place}\..*learning rate"):
        small_run(_Spoilt(), tmp_path, epochs=20)
    _, facts = load_tensors(tmp_path / CHECKPOINT)
    assert len(facts["history"]) == 39 // per_epoch
    assert all(math.isfinite(row["train_loss"]) for row in facts["history"])


def test_a_model_that_blows_up_stops_the_run_too() -> None:
    data = BagData(1e30 * torch.randn(64, 5), Bags([8] * 8, [[4, 4]] * 8))
    model = nn.Sequential(nn.Linear(5, 50), nn.Linear(50, 2))
    with pytest.raises(
        DivergedError, match=r"(the model's output|a weight) .*epoch \d.*standardized"
    ):
        train(model, data, "cc", TrainingOptions(lr=1e20, epochs=3), progress=False)


def test_selection_by_accuracy_needs_labels() -> None:
    data = BagData(torch.randn(8, 2), Bags([4, 4], [[2, 2], [1, 3]]))
    with pytest.raises(ValueError, match=r'select="accuracy" needs labels.*bag_loss'):
        train(nn.Linear(2, 2), data, "cc", TrainingOptions(select="accuracy"), validation=data)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0},
        {"lr": -1.0},
        {"batch_bags": 0},
        {"batch_bags": 2.5},
        {"select": "luck"},
        {"average": 1.0},
        {"schedule": "up"},
    ],
)
def test_senseless_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        TrainingOptions(**options)


def test_cc_and_rc_come_close_to_supervised_learning_in_few_epochs() -> None:
    options = TrainingOptions(epochs=20, lr=3e-3, schedule="one_cycle")
    accuracy = {
        method: run(method, 16, 0, options)[0][-1]["test_accuracy"]
        for method in ("supervised", "cc", "rc")
    }
    assert accuracy["cc"] >= accuracy["supervised"] - 0.015
    assert accuracy["rc"] >= accuracy["supervised"] - 0.015


@pytest.mark.slow
@pytest.mark.parametrize("K", [8, 16, 32])
def test_cc_and_rc_come_close_to_supervised_learning_on_digits(K: int) -> None:
    options = TrainingOptions(epochs=70, lr=3e-3)
    accuracy = {
        method: np.mean(
            [run(method, K, seed, options)[0][-1]["test_accuracy"] for seed in range(3)]
        )
        for method in ("supervised", "cc", "rc")
    }
    assert accuracy["cc"] >= accuracy["supervised"] - 0.015
    assert accuracy["rc"] >= accuracy["supervised"] - 0.015
    assert accuracy["cc"] >= 0.97


def test_weights_broken_by_the_last_step_are_never_kept(tmp_path: Path) -> None:
    data = BagData(torch.randn(64, 5), Bags([8] * 8, [[4, 4]] * 8))
    options = TrainingOptions(epochs=1, lr=1e38)
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 2))
    with torch.no_grad():
        model[0].weight.fill_(3e38)
    with pytest.raises(DivergedError):
        train(model, data, "cc", options, checkpoint=tmp_path, progress=False)
    assert not (tmp_path / CHECKPOINT).exists()


def test_other_data_or_method_options_are_another_run(tmp_path: Path) -> None:
    data, test = digits_in_bags(16)
    other = BagData(data.inputs + 1, data.bags, data.labels)

    def go(data: BagData, method: Any, epochs: int = 2) -> TrainingResult:
        torch.manual_seed(0)
        options = TrainingOptions(epochs=epochs)
        return train(
            mlp((64,), 10), data, method, options, test=test, checkpoint=tmp_path, progress=False
        )

    go(data, OT(epsilon=0.5))
    with pytest.raises(ValueError, match=r"the training data was '\w+' and is now '\w+'"):
        go(other, OT(epsilon=0.5))
    with pytest.raises(ValueError, match=r"epsilon was '0.5' and is now '1.0'"):
        go(data, OT())
    with pytest.raises(ValueError, match="has 2 epochs already, and only 1"):
        go(data, OT(epsilon=0.5), epochs=1)


def test_tensors_a_method_adds_later_survive(tmp_path: Path) -> None:
    class Counting(Method):
        name = "counting"

        def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
            self.kept["n"] = self.kept.get("n", torch.zeros(())) + 1
            return logits.square().mean()

    small_run(Counting(), tmp_path, epochs=1)
    method = Counting()
    small_run(method, tmp_path, epochs=2)
    per_epoch = math.ceil(142 / 32)
    assert method.kept["n"] == 2 * per_epoch


def test_a_model_with_the_wrong_number_of_outputs_is_named() -> None:
    data = BagData(torch.randn(8, 2), Bags([4, 4], [[2, 2], [1, 3]]))
    with pytest.raises(ValueError, match=r"returns \(8, 3\) for 8 instances of 2 classes"):
        train(nn.Linear(2, 3), data, "cc", progress=False)


@pytest.mark.parametrize(("given", "kind"), [((1,), "tuple"), ({}, "dict"), (None, "NoneType")])
def test_a_model_that_returns_no_tensor_is_named(given: Any, kind: str) -> None:
    class Other(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> Any:
            return given

    data = BagData(torch.randn(8, 2), Bags([4, 4], [[2, 2], [1, 3]]))
    with pytest.raises(TypeError, match=rf"returns a {kind}; a tensor of logits, \(8, 2\)"):
        train(Other(2, 2), data, "cc", progress=False)


@pytest.mark.parametrize(("size", "kind"), [((8,), r"shape \(8,\)"), (None, "type float")])
def test_a_loss_that_is_not_one_number_is_named(size: tuple[int] | None, kind: str) -> None:
    class Wrong(Method):
        def loss(self, logits: torch.Tensor, batch: Batch) -> Any:
            return 1.0 if size is None else logits.sum(1)

    data = BagData(torch.randn(8, 2), Bags([4, 4], [[2, 2], [1, 3]]))
    with pytest.raises(TypeError, match=rf"the loss of method 'Wrong' has {kind}; a tensor"):
        train(nn.Linear(2, 2), data, Wrong(), progress=False)


def test_a_file_in_place_of_a_checkpoint_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ValueError, match=r"run, which is a file; a folder is expected"):
        small_run("cc", tmp_path / "run")
