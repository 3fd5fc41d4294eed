"""What a training step is made of: mixed precision, accumulated gradients, compiled models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bagwise import BagData, Bags, Groupings, InputError, LLPClassifier, TrainingOptions, train
from bagwise.methods import CC, Batch, Method
from bagwise.training import Callback, DivergedError, TrainingResult
from bagwise.training.run_state import CHECKPOINT
from bagwise.training.tensor_files import load_tensors, save_tensors

# What PyTorch says of its own modules when a compiler is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")

RANDOM = torch.Generator().manual_seed(0)
LABELS = torch.randint(3, (120,), generator=RANDOM)
INPUTS = torch.randn(120, 4, generator=RANDOM) + 2 * nn.functional.one_hot(LABELS, 4)
DATA = BagData(INPUTS, Bags.from_labels(LABELS, [5] * 24))


class Loud(CC):
    """CC whose gradients are too large for the scale that fp16 begins with."""

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return 300 * super().loss(logits, batch)


class Killed(Callback):
    def on_epoch_end(self, row: Any, model: nn.Module) -> None:
        if row["epoch"] == 2:
            raise KeyboardInterrupt


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
    )


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def run(
    model: nn.Module, method: str | Method = "cc", data: BagData = DATA, **options: Any
) -> TrainingResult:
    kept = {name: options.pop(name, None) for name in ("checkpoint", "validation")}
    callbacks = options.pop("callbacks", ())
    settings = TrainingOptions(**{"epochs": 4, "lr": 0.02, "batch_instances": 20, **options})
    return train(model, data, method, settings, callbacks=callbacks, progress=False, **kept)


def rows_of(result: TrainingResult) -> list[dict[str, float]]:
    return [{**row, "seconds": 0} for row in result.history]


def assert_same(one: TrainingResult, other: TrainingResult) -> None:
    assert rows_of(one) == rows_of(other)
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name])


# --- accumulated gradients


@pytest.mark.parametrize("method", ["cc", "rc", "dllp", "llpfc", "ot", "pll"])
@pytest.mark.parametrize("options", [{}, {"clip": 0.05, "average": 0.9}])
def test_accumulated_batches_are_one_step_of_as_many_bags(
    method: str, options: dict[str, Any]
) -> None:
    parts = run(linear(), method, accumulate_batches=3, **options)  # 6 batches: 3 and 3
    whole = run(linear(), method, batch_instances=60, **options)
    torch.testing.assert_close(parts.model.state_dict(), whole.model.state_dict())
    for row, other in zip(rows_of(parts), rows_of(whole), strict=True):
        assert row["lr"] == other["lr"]
    single = run(linear(), method, **options)
    assert not torch.allclose(single.model.state_dict()["weight"], whole.model.weight, rtol=1e-3)


def test_ragged_batches_count_by_their_instances_and_the_last_step_has_what_is_left() -> None:
    """Against a loop written out: sums of losses, divided by all instances of a step."""
    sizes = [1, 9, 4, 12, 2, 7, 5, 3, 11, 6]
    weights = torch.randint(1, 4, (60,), generator=RANDOM).numpy()
    bags = Bags.from_labels(LABELS[:60], sizes, n_classes=3, weights=weights)
    data, seen = BagData(INPUTS[:60], bags), []

    class Seen(CC):
        def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
            assert batch.bags is not None
            seen.append((batch.rows, batch.bags))
            return super().loss(logits, batch)

    options = {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.0, "epochs": 2}
    result = run(linear(), Seen(), data, batch_instances=12, accumulate_batches=4, **options)
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    steps = 0
    for epoch in (seen[: len(seen) // 2], seen[len(seen) // 2 :]):
        assert len(epoch) % 4
        for first in range(0, len(epoch), 4):
            step = epoch[first : first + 4]
            optimizer.zero_grad()
            for rows, of_batch in step:
                loss = CC().loss(model(data.inputs[rows]), Batch(rows, of_batch))
                (loss * of_batch.total / sum(one.total for _, one in step)).backward()
            optimizer.step()
            steps += 1
    assert steps == 2 * -(-len(seen) // 8)
    torch.testing.assert_close(result.model.state_dict(), model.state_dict())


def test_parts_of_large_bags_and_rows_of_several_groupings_accumulate_too() -> None:
    order = LABELS.argsort()  # bags that differ
    large = BagData(INPUTS[order], Bags.from_labels(LABELS[order], [45, 40, 35]))
    ids = np.arange(120) // 5
    other = np.random.default_rng(0).permutation(120) // 10
    counts = [np.bincount(LABELS.numpy()[other == b], minlength=3) for b in range(12)]
    groupings = Groupings({"own": (ids, DATA.bags), "other": (other, Bags([10] * 12, counts))})
    for data in (large, BagData.of_groupings(INPUTS, groupings)):
        result = run(linear(), "cc", data, accumulate_batches=4, epochs=60)
        assert (result.model(INPUTS).argmax(1) == LABELS).float().mean() > 0.7


def test_a_step_that_is_larger_than_an_epoch_is_one_step() -> None:
    many = run(linear(), accumulate_batches=1000)
    torch.testing.assert_close(
        many.model.state_dict(), run(linear(), batch_instances=120).model.state_dict()
    )


# --- mixed precision


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.half)])
def test_training_in_half_precision_learns_and_evaluates_in_full(
    precision: str, dtype: torch.dtype
) -> None:
    model, seen = network(), set()
    model[4].register_forward_hook(lambda _, x, y: seen.add((model.training, y.dtype)))
    result = run(model, validation=DATA, precision=precision, epochs=25)
    assert seen == {(True, dtype), (False, torch.float32)}
    assert all(weight.dtype == torch.float32 for weight in result.model.parameters())
    assert (result.model(INPUTS).argmax(1) == LABELS).float().mean() > 0.8
    full = run(network(), validation=DATA, epochs=25)
    losses = [row["val_bag_loss"] for row in result.history]
    assert losses != [row["val_bag_loss"] for row in full.history]
    assert losses == pytest.approx([row["val_bag_loss"] for row in full.history], abs=0.1)


def test_gradients_too_large_for_fp16_lower_the_scale_and_nothing_else(tmp_path: Path) -> None:
    run(network(), Loud(), precision="fp16", average=0.9, checkpoint=tmp_path, epochs=1)
    _, facts = load_tensors(tmp_path / CHECKPOINT)
    left_out = np.log2(2**16 / facts["scaler"]["scale"])
    assert left_out >= 1
    assert facts["scaler"]["steps"] == facts["steps"] == 6 - left_out  # the average follows steps


@pytest.mark.parametrize("half", [torch.half, torch.double])
def test_half_precision_of_other_weights_is_refused(half: torch.dtype) -> None:
    data = BagData(INPUTS.to(half), DATA.bags)
    with pytest.raises(InputError, match=r'precision="fp16" is for weights in float32, and weight'):
        run(linear().to(half), data=data, precision="fp16")


def test_numbers_that_fp16_does_not_have_are_named() -> None:
    data = BagData(INPUTS * 1e5, DATA.bags)
    with pytest.raises(DivergedError, match=r"epoch 1, batch 1\. Numbers of fp16 end at 65504"):
        run(linear(), data=data, precision="fp16")
    with pytest.raises(DivergedError, match=r"the gradient became NaN .* Numbers of fp16 end"):
        run(_NoGradient(), precision="fp16", epochs=100)


class _NaN(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("nan")


class _NoGradient(nn.Linear):
    """A model whose gradient is never finite."""

    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = _NaN.apply(super().forward(x))
        return found


def test_a_checkpoint_without_its_scale_is_damaged(tmp_path: Path) -> None:
    run(linear(), precision="fp16", checkpoint=tmp_path, epochs=1)
    tensors, facts = load_tensors(tmp_path / CHECKPOINT)
    for scaler in (None, {"scale": -1.0, "steps": 1}, {"scale": 2.0}):
        changed = {name: value for name, value in facts.items() if name not in ("scaler", "digest")}
        save_tensors(
            tmp_path / CHECKPOINT, tensors, changed | ({"scaler": scaler} if scaler else {})
        )
        with pytest.raises(InputError, match=r"is damaged: .*sca"):
            run(linear(), precision="fp16", checkpoint=tmp_path)


# --- resuming

WAYS: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16", "average": 0.9},
    "accumulated": {"accumulate_batches": 4, "schedule": "one_cycle", "clip": 0.5},
    "all": {"accumulate_batches": 2, "precision": "fp16", "drop_last": True, "average": 0.5},
    "compiled": {"compile": True},
    "all compiled": {"compile": True, "precision": "bf16", "accumulate_batches": 2},
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.slow if "comp" in way else ()) for way in WAYS]
)
def test_a_stopped_run_ends_bit_for_bit_the_same(way: str, tmp_path: Path) -> None:
    sizes = [5, 2, 9, 1, 7, 6, 12, 3, 8, 7]
    data = BagData(INPUTS[:60], Bags.from_labels(LABELS[:60], sizes))

    def once(**more: Any) -> TrainingResult:
        torch._dynamo.reset()  # as in a new process
        return run(network(), Loud(), data, batch_bags=3, validation=DATA, **WAYS[way], **more)

    expected = once()
    assert rows_of(expected) != rows_of(run(network(), Loud(), data, batch_bags=3, validation=DATA))
    with pytest.raises(KeyboardInterrupt):
        once(checkpoint=tmp_path, callbacks=[Killed()])
    assert_same(once(checkpoint=tmp_path), expected)
    other = {name: value for name, value in WAYS[way].items() if name != "average"}
    name = next(iter(other))
    with pytest.raises(InputError, match=f"another run: {name} was {other[name]!r} and is now"):
        run(network(), Loud(), data, batch_bags=3, validation=DATA, checkpoint=tmp_path,
            **WAYS[way] | {name: getattr(TrainingOptions(), name)})  # fmt: skip


# --- compiled models


@pytest.mark.slow
def test_a_compiled_model_has_the_same_losses_and_stays_what_it_is() -> None:
    sizes = [5, 2, 9, 1, 7, 6, 12, 3, 8, 7]
    data = BagData(INPUTS[:60], Bags.from_labels(LABELS[:60], sizes))
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = run(model, data=data, batch_bags=3)
    model.load_state_dict(start)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    result = run(model, data=data, batch_bags=3, compile=True)
    assert result.model is model
    assert not isinstance(result.model, torch._dynamo.OptimizedModule)
    for row, other in zip(rows_of(result), rows_of(expected), strict=True):
        assert row == pytest.approx(other, rel=1e-4)
    torch.testing.assert_close(
        result.model.state_dict(), {**model.state_dict()}, rtol=1e-4, atol=1e-5
    )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1  # one for all sizes


@pytest.mark.slow
def test_the_estimator_takes_them_too(tmp_path: Path) -> None:
    options = {"precision": "bf16", "accumulate_batches": 2, "compile": True}
    counts = dict(enumerate(DATA.bags.counts))
    model = LLPClassifier(model="linear", epochs=2, random_state=0, **options)
    model.fit(INPUTS.numpy(), DATA.bags.bag_of_row, counts).save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    assert {name: getattr(again, name) for name in options} == options
    assert (again.predict(INPUTS.numpy()) == model.predict(INPUTS.numpy())).all()


def test_a_model_that_cannot_be_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.compile

    def without_compiler(model: Any, **options: Any) -> Any:
        def backend(graph: Any, examples: Any) -> Any:
            raise RuntimeError("no C++ compiler was found")

        return real(model, backend=backend, **options)

    monkeypatch.setattr(torch, "compile", without_compiler)
    with pytest.raises(InputError, match=r"cannot compile the model: .*no C\+\+ compiler"):
        run(network(), compile=True)
    wrong = nn.Sequential(nn.Linear(5, 3))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run(wrong, compile=True)
