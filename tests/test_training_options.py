"""Optimizers, schedules, augmentation, callbacks, devices."""

from __future__ import annotations

import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bagwise import BagData, Bags, InputError, LLPClassifier, TrainingOptions, train
from bagwise.data.inputs import on_device
from bagwise.methods import CC, Batch
from bagwise.networks import Standardize
from bagwise.training import Callback, DivergedError, JsonLines, TensorBoard, TrainingResult
from bagwise.training import randomness as generators
from bagwise.training.tally import Tally

RANDOM = torch.Generator().manual_seed(0)
LABELS = torch.randint(3, (90,), generator=RANDOM)
INPUTS = torch.randn(90, 4, generator=RANDOM) + 2 * nn.functional.one_hot(LABELS, 4)
DATA = BagData(INPUTS, Bags.from_labels(LABELS, [5] * 18), LABELS)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Each test draws the same ones, whichever ran before it."""
    RANDOM.manual_seed(1)


def noise(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)


def rmsprop(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5)


def rprop(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Rprop(parameters, lr=0.01)


def run(checkpoint: Path | None = None, callbacks: Any = (), **options: Any) -> TrainingResult:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    settings = TrainingOptions(**{"epochs": 6, "lr": 0.01, "batch_instances": 20, **options})
    return train(
        model,
        DATA,
        "cc",
        settings,
        validation=DATA,
        checkpoint=checkpoint,
        callbacks=callbacks,
        progress=False,
    )


def assert_same(one: TrainingResult, other: TrainingResult) -> None:
    for ours, theirs in zip(one.history, other.history, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name])


class Killed(Callback):
    """Ends a run after some epochs, as a kill would."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_end(self, row: Any, model: nn.Module) -> None:
        if row["epoch"] == self.epochs:
            raise KeyboardInterrupt


WAYS: dict[str, dict[str, Any]] = {
    "sgd with momentum": {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9}},
    "plain sgd": {"optimizer": "sgd"},
    "adamw": {"optimizer": "adamw", "optimizer_options": {"betas": (0.8, 0.9), "amsgrad": True}},
    "a factory": {"optimizer": rmsprop},
    "a factory with more state": {"optimizer": rprop},
    "cosine": {"schedule": "cosine"},
    "step": {"schedule": "step", "schedule_options": {"step_size": 2, "gamma": 0.5}},
    "plateau": {"schedule": "plateau", "schedule_options": {"patience": 0, "threshold": 0.5}},
    "a schedule of one's own": {
        "schedule": partial(torch.optim.lr_scheduler.CosineAnnealingWarmRestarts, T_0=2)
    },
    "one cycle of a factory": {"optimizer": rmsprop, "schedule": "one_cycle"},
    "augmented": {"augment": noise},
    "full batches": {"drop_last": True},
    "averaged": {"average": 0.9, "augment": noise, "schedule": "polynomial"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_stopped_twice_ends_bit_for_bit_the_same(way: str, tmp_path: Path) -> None:
    expected = run(**WAYS[way])
    for epochs in (1, 4):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, [Killed(epochs)], **WAYS[way])
    assert_same(run(tmp_path, **WAYS[way]), expected)


def test_every_way_trains_differently() -> None:
    finals = {way: run(**options).history[-1]["train_loss"] for way, options in WAYS.items()}
    assert len({*finals.values(), run().history[-1]["train_loss"]}) == len(WAYS) + 1


def test_drop_last_leaves_out_what_does_not_fill_a_batch() -> None:
    class Counted(CC):
        def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
            steps.append(len(batch.rows))
            return super().loss(logits, batch)

    for batch, expected in ((20, [20] * 4), (30, [30] * 3), (90, [90]), (200, [90])):
        for model in (nn.Linear(4, 3), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))):
            steps: list[int] = []
            options = TrainingOptions(epochs=1, batch_instances=batch, drop_last=True)
            train(model, DATA, Counted(), options, progress=False)
            assert steps == expected
    steps = []
    options = TrainingOptions(epochs=1, batch_instances=20)
    train(nn.Linear(4, 3), DATA, Counted(), options, progress=False)
    assert steps == [20, 20, 20, 20, 10]


def rates(**options: Any) -> list[float]:
    return [row["lr"] for row in run(**options).history]


def test_rates_are_those_of_pytorch_s_schedules() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    for name, own, given in (
        ("cosine", torch.optim.lr_scheduler.CosineAnnealingLR, {"T_max": 6}),
        ("exponential", torch.optim.lr_scheduler.ExponentialLR, {"gamma": 0.7}),
        ("linear", torch.optim.lr_scheduler.LinearLR, {"total_iters": 3}),
        ("multistep", torch.optim.lr_scheduler.MultiStepLR, {"milestones": [1, 4]}),
        ("polynomial", torch.optim.lr_scheduler.PolynomialLR, {"power": 2, "total_iters": 6}),
    ):
        optimizer = torch.optim.Adam([parameter], lr=0.01)
        schedule = own(optimizer, **given)
        expected = []
        for _ in range(6):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        unset = {} if name == "cosine" else given
        assert rates(schedule=name, schedule_options=unset) == pytest.approx(expected)
    assert rates() == [0.01] * 6


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    run(tmp_path, epochs=1)
    for options, said in (
        ({"optimizer": "adamw"}, "optimizer was nothing and is now 'adamw'"),
        ({"optimizer_options": {"amsgrad": True}}, "optimizer_options"),
        ({"augment": noise}, "augment was nothing and is now 'test_training_options.noise'"),
        ({"schedule": "step", "schedule_options": {"step_size": 1}}, "schedule"),
    ):
        with pytest.raises(ValueError, match=said):
            run(tmp_path, **options)
    run(tmp_path, epochs=2, workers=3)  # who fetches makes no difference


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"optimizer": "adamax"}, "optimizer is 'adamax'; one of adam, adamw, sgd or a function"),
        ({"schedule": "triangle"}, "schedule is 'triangle'; one of constant, one_cycle, cosine"),
        ({"optimizer_options": {"momentum": 1}}, r"optimizer 'adam'.*momentum"),
        ({"optimizer_options": [1]}, "optimizer_options is .1.; a mapping"),
        ({"optimizer": rmsprop, "optimizer_options": {"a": 1}}, "optimizer is .*takes none"),
        ({"schedule_options": {"gamma": 1}}, "schedule is 'constant', which takes none"),
        ({"schedule": "step"}, r"schedule 'step'.*step_size.*see schedule_options"),
        ({"augment": 3}, "augment is 3; a name or a function of inputs and a generator or None"),
        ({"workers": -1}, "workers is -1"),
        ({"precision": "half"}, "precision is 'half'; one of full, bf16, fp16"),
        ({"accumulate_batches": 0}, "accumulate_batches is 0; a whole number from 1"),
        ({"compile": "yes"}, "compile is 'yes'; True or False"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        run(**options)
    with pytest.raises(TypeError, match="factory returned a int"):
        run(optimizer=lambda parameters: 3)


def test_the_estimator_takes_them_too(tmp_path: Path) -> None:
    ids = DATA.bags.bag_of_row
    counts = dict(enumerate(DATA.bags.counts))
    common: dict[str, Any] = {"model": "linear", "epochs": 30, "lr": 0.05, "random_state": 0}
    plain = LLPClassifier(**common).fit(INPUTS.numpy(), ids, counts)
    other = LLPClassifier(
        **common,
        optimizer="sgd",
        optimizer_options={"momentum": 0.9},
        schedule="step",
        schedule_options={"step_size": 10},
        augment=noise,
    ).fit(INPUTS.numpy(), ids, counts)
    assert [row["lr"] for row in other.history_[9:11]] == pytest.approx([0.05, 0.005])
    assert other.history_[-1]["train_loss"] != plain.history_[-1]["train_loss"]
    other.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    assert again.optimizer_options == {"momentum": 0.9}
    assert again.augment == "function noise"  # not saved itself, but not forgotten
    with pytest.raises(InputError, match="augment is 'function noise'"):
        again.fit(INPUTS.numpy(), ids, counts)
    assert (again.predict(INPUTS.numpy()) == other.predict(INPUTS.numpy())).all()


# --- callbacks


def test_callbacks_see_every_epoch_and_the_model_that_is_kept() -> None:
    seen: list[Any] = []

    class Watching(Callback):
        def on_train_begin(self, history: Any, model: nn.Module) -> None:
            seen.append(len(history))

        def on_epoch_end(self, row: Any, model: nn.Module) -> None:
            seen.append((row["epoch"], "val_accuracy" in row, row["seconds"] > 0))
            self.weights = [tensor.clone() for tensor in model.state_dict().values()]

        def on_train_end(self, history: Any, model: nn.Module) -> None:
            seen.append(len(history))

    callback = Watching()
    result = run(callbacks=[callback], epochs=2, select="last", average=0.5)
    assert seen == [0, (1, True, True), (2, True, True), 2]
    for tensor, kept in zip(result.model.state_dict().values(), callback.weights, strict=True):
        assert torch.equal(tensor, kept)


def test_json_lines_have_each_epoch_once_also_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "history.jsonl"
    for epochs in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, [JsonLines(path), Killed(epochs)])
    with path.open("a") as file:
        file.write('{"epoch": 5, "half')  # of an epoch that was not saved
    result = run(tmp_path, [JsonLines(path)])
    assert [json.loads(line) for line in path.read_text().splitlines()] == result.history


def test_tensorboard_files_have_every_curve(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, [TensorBoard(tmp_path / "board"), Killed(2)])
        result = run(tmp_path, [TensorBoard(tmp_path / "board")])
        found = EventAccumulator(str(tmp_path / "board")).Reload()
        events = found.Scalars("val_bag_loss")
    assert [event.step for event in events] == [1, 2, 3, 4, 5, 6]
    expected = [row["val_bag_loss"] for row in result.history]
    assert [event.value for event in events] == pytest.approx(expected, rel=1e-6)


# --- devices: nothing here can run on one, but what goes where can be seen


def test_double_precision_stays_on_the_cpu() -> None:
    standardize = Standardize.of(torch.randn(5, 3, dtype=torch.float64))
    assert standardize.mean.dtype == torch.float64
    assert standardize.to("cpu").mean.dtype == torch.float64
    assert {t.dtype for t in standardize.to("meta").state_dict().values()} == {torch.float32}
    assert on_device(torch.zeros(2, dtype=torch.float64), "meta").dtype == torch.float32
    assert on_device(torch.zeros(2, dtype=torch.float64), "cpu").dtype == torch.float64
    assert on_device(torch.zeros(2, dtype=torch.int64), "meta").dtype == torch.int64


def test_integers_are_standardized_too() -> None:
    pixels = torch.tensor([[0, 200], [100, 255]], dtype=torch.uint8)
    found = Standardize.of(pixels)(pixels)
    torch.testing.assert_close(found, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_generators_of_a_device_are_put_back_and_saved(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = torch.device(kind)
    there = {"state": torch.tensor([1, 2])}

    def set_state(state: torch.Tensor, *_: Any) -> None:
        there["state"] = state

    module = getattr(torch, kind)
    monkeypatch.setattr(module, "get_rng_state", lambda *_: there["state"])
    monkeypatch.setattr(module, "set_rng_state", set_state)
    with generators.seeded(3, device):
        there["state"] = torch.tensor([5, 6])
        saved = generators.states(device)
    assert there["state"].tolist() == [1, 2]
    assert saved["device"].tolist() == [5, 6]
    generators.restore(saved, device)
    assert there["state"].tolist() == [5, 6]
    generators.restore({"torch": torch.get_rng_state()}, device)  # of a run on the CPU
    assert there["state"].tolist() == [5, 6]


def test_elsewhere_an_epoch_is_looked_at_when_it_ends() -> None:
    tally = Tally(4, torch.device("cuda"))
    batch = Batch(torch.arange(2), None, torch.tensor([0, -1]))
    good, bad = torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([[float("nan"), 1.0]] * 2)
    for logits in (good, bad, good):
        loss = tally.watched(logits, logits.mean)
        tally.add(loss, logits, batch)
    assert tally.accuracy() == pytest.approx(1.0, abs=0.4)
    with pytest.raises(DivergedError, match=r"model's output became NaN .* epoch 4, batch 2"):
        tally.means()

    def refuse() -> torch.Tensor:
        raise ValueError("log_probs has NaN")

    with pytest.raises(DivergedError, match="epoch 4, batch 4"):  # the posterior looks at once
        tally.watched(bad, refuse)
    with pytest.raises(ValueError, match="log_probs has NaN"):
        tally.watched(good, refuse)
