"""Two views of an instance, PVC and mixtures of bags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bagwise import BagData, Bags, DiscreteLaplace, TrainingOptions, pvc_loss, train, view_loss
from bagwise.methods import Batch, make_method
from bagwise.methods.mixbag import Mixtures
from bagwise.training import Callback, TrainingResult
from oracles import enumerate_bags, labelings, random_bags

CPU = torch.device("cpu")
RANDOM = torch.Generator().manual_seed(0)
LABELS = torch.randint(3, (60,), generator=RANDOM)
IMAGES = torch.randn(60, 1, 6, 6, generator=RANDOM) + LABELS[:, None, None, None]
DATA = BagData(IMAGES, Bags.from_labels(LABELS, [5] * 12), LABELS)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Each test draws the same ones, whichever ran before it."""
    RANDOM.manual_seed(1)


def one_hot(labels: Any) -> np.ndarray:
    return np.eye(3)[np.asarray(labels)]


def entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


@pytest.mark.parametrize("teacher", [False, True])
@pytest.mark.parametrize("target", ["posterior", "argmax", "labeling", "prediction"])
def test_the_loss_of_two_views_is_its_formula(target: str, teacher: bool) -> None:
    logits, bags = random_bags(0, [4, 5, 3], 3)
    strong, taught = (torch.randn(12, 3, dtype=torch.float64, generator=RANDOM) for _ in range(2))
    said = (taught if teacher else logits).log_softmax(-1)
    _, posterior = enumerate_bags(said, bags)
    sure = said.exp().numpy() if target == "prediction" else posterior
    if target == "posterior":
        labels = posterior
    elif target == "labeling":
        best = []
        for rows, counts in zip(
            np.split(said.numpy(), bags.offsets[1:-1]), bags.counts, strict=True
        ):
            ways = labelings(counts)
            best.append(ways[rows[np.arange(len(rows)), ways].sum(1).argmax()])
        labels = one_hot(np.concatenate(best))
    else:
        labels = one_hot(sure.argmax(-1))
    counts = (1 - entropy(sure) / np.log(3)) * (sure.max(-1) >= 0.5)
    crossed = -(labels * strong.log_softmax(-1).numpy()).sum(-1)
    log_likelihood, _ = enumerate_bags(logits.log_softmax(-1), bags)
    expected = (-log_likelihood.sum() + 2 * 0.5 * (counts * crossed).sum()) / 12

    method = make_method(
        "two_views",
        engine="exact",
        target=target,
        weight=2.0,
        start=3,
        ramp=1,
        threshold=0.5,
        teacher=teacher,
    )
    method.begin_epoch(4, RANDOM)
    batch = Batch(
        torch.arange(12), bags, second_logits=strong, teacher_logits=taught if teacher else None
    )
    assert method.loss(logits, batch).item() == pytest.approx(expected, rel=1e-9)


def test_mean_matching_can_take_the_place_of_the_likelihood() -> None:
    logits, bags = random_bags(1, [4, 4], 3)
    batch = Batch(torch.arange(8), bags, second_logits=logits.flip(0))
    values = []
    for bag_loss in ("cc", "dllp"):
        method = make_method("two_views", bag_loss=bag_loss, start=0, ramp=0)
        method.begin_epoch(1, RANDOM)
        values.append(method.loss(logits, batch) - make_method(bag_loss).loss(logits, batch))
    torch.testing.assert_close(values[0], values[1])
    assert values[0] > 0


def test_labels_of_the_weak_view_have_no_gradient() -> None:
    weights = torch.tensor([[0.7, 0.3]], requires_grad=True)
    strong = torch.zeros(1, 2, requires_grad=True)
    view_loss(strong, weights).backward()
    assert weights.grad is None
    assert strong.grad is not None


def test_the_strong_view_waits_and_then_grows() -> None:
    method = make_method("two_views", start=2, ramp=3)
    seen = []
    for epoch in range(1, 9):
        method.begin_epoch(epoch, RANDOM)
        seen.append((method.second_view(IMAGES, RANDOM) is not None, method._factor))
    assert [asked for asked, _ in seen] == [False] * 2 + [True] * 6
    assert [factor for _, factor in seen] == [0, 0, 0.25, 0.5, 0.75, 1, 1, 1]


class Killed(Callback):
    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_end(self, row: Any, model: nn.Module) -> None:
        if row["epoch"] == self.epochs:
            raise KeyboardInterrupt


WAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "weak views": ("cc", {}, {"augment": "weak"}),
    "weak views of rc": ("rc", {}, {"augment": "weak_flip"}),
    "two views": ("two_views", {"start": 1, "ramp": 2}, {"augment": "weak"}),
    "two views, averaged teacher": (
        "two_views",
        {"start": 1, "ramp": 0, "teacher": True},
        {"augment": "weak", "average": 0.8, "schedule": "one_cycle"},
    ),
    "strong views alone": ("two_views", {"start": 0, "strong": "strong_flip"}, {}),
    "mixtures": ("mixbag", {}, {}),
    "pvc": ("pvc", {}, {}),
}


def run(way: str, checkpoint: Path | None = None, callbacks: Any = ()) -> TrainingResult:
    name, method_options, options = WAYS[way]
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    )
    return train(
        model,
        DATA,
        make_method(name, **method_options),
        TrainingOptions(epochs=5, lr=0.01, batch_instances=20, **options),
        validation=DATA,
        checkpoint=checkpoint,
        callbacks=callbacks,
        progress=False,
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_run_killed_twice_ends_bit_for_bit_the_same(way: str, tmp_path: Path) -> None:
    expected = run(way)
    for epochs in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            run(way, tmp_path, [Killed(epochs)])
    found = run(way, tmp_path)
    for ours, theirs in zip(found.history, expected.history, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, expected.model.state_dict()[name])


def test_every_way_learns_something_of_its_own() -> None:
    finals = {way: run(way).history[-1] for way in WAYS}
    assert len({row["train_loss"] for row in finals.values()}) == len(WAYS)
    assert all(row["val_accuracy"] > 0.5 for row in finals.values())


def test_a_teacher_needs_an_averaged_model() -> None:
    with pytest.raises(
        ValueError, match=r"'two_views' learns from the averaged model.*average=0.99"
    ):
        train(nn.Linear(36, 3), DATA, make_method("two_views", teacher=True), progress=False)


def test_views_of_tables_are_refused_before_training() -> None:
    data = BagData(IMAGES.flatten(1), DATA.bags)
    with pytest.raises(ValueError, match=r"shape \(60, 36\), and the view 'strong' is of images"):
        train(nn.Linear(36, 3), data, "two_views", progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "best"}, "target is 'best'; one of posterior, argmax, labeling, prediction"),
        ({"bag_loss": "rc"}, "bag_loss is 'rc'; one of cc, dllp is expected"),
        ({"strong": "string"}, "strong is 'string'; one of weak"),
        ({"weight": -1}, "weight is -1; a number of 0 or more"),
        ({"threshold": 1.5}, "threshold is 1.5; a number of 0 or more and less than 1"),
        ({"start": 1.5}, "start is 1.5; a whole number"),
        ({"teacher": "yes"}, "teacher is 'yes'; True or False"),
        ({"engine": "exakt"}, "'exakt'"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_method("two_views", **options)


def poisson_binomial(p: np.ndarray) -> np.ndarray:
    found = np.ones(1)
    for yes in p:
        found = np.convolve(found, [1 - yes, yes])
    return found


def test_pvc_is_the_likelihood_of_each_count_apart() -> None:
    logits, bags = random_bags(2, [3, 6, 1, 9], 4)
    expected = [
        -sum(np.log(poisson_binomial(p[:, c])[n[c]]) for c in range(4))
        for p, n in zip(
            np.split(logits.softmax(-1).numpy(), bags.offsets[1:-1]), bags.counts, strict=True
        )
    ]
    np.testing.assert_allclose(pvc_loss(logits, bags, reduction="none"), expected, rtol=1e-9)
    assert pvc_loss(logits, bags).item() == pytest.approx(sum(expected) / 19)


def test_pvc_has_the_gradient_of_finite_differences() -> None:
    logits, bags = random_bags(3, [3, 4], 3)
    assert torch.autograd.gradcheck(
        lambda value: pvc_loss(value, bags), logits.double().requires_grad_()
    )


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e8])
def test_pvc_of_extreme_logits_has_finite_gradients(scale: float) -> None:
    logits, bags = random_bags(4, [3, 4], 3)
    logits = (logits * scale).float().requires_grad_()
    value = pvc_loss(logits, bags)
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["pvc", "mixbag"])
def test_methods_of_exact_counts_refuse_others(name: str) -> None:
    noisy = Bags.from_noisy_counts([[2, 1], [1, 3]], [3, 3], DiscreteLaplace(1))
    data = BagData(torch.zeros(6, 2), noisy)
    with pytest.raises(ValueError, match=r"some are not exact.*use cc or rc"):
        train(nn.Linear(2, 2), data, name, progress=False)


def test_mixtures_have_the_shares_that_are_expected() -> None:
    labels = torch.randint(3, (90,), generator=RANDOM)
    sizes = np.array([20, 5, 40, 1, 24])
    bags = Bags.from_labels(labels, sizes)
    true, mixtures = [], []
    for _ in range(2000):
        found = Mixtures.draw(bags, RANDOM)
        assert found.mixture.bincount(minlength=5).tolist() == found.sizes.tolist()
        sums = torch.zeros(5, 3).index_add(0, found.mixture, torch.eye(3)[labels[found.rows]])
        true.append(sums / found.sizes[:, None])
        mixtures.append(found)
        pairs = found.mixture * 1000 + found.rows
        assert len(pairs.unique()) == len(pairs)  # no instance twice
    off = torch.stack(true) - torch.stack([m.expected for m in mixtures])
    expected = torch.stack([m.deviation for m in mixtures])
    assert off.mean(0).abs().max() < 0.01
    torch.testing.assert_close(
        off.square().mean(0), expected.square().mean(0), rtol=0.1, atol=2e-4, check_dtype=False
    )


def test_a_mixture_within_its_interval_teaches_nothing() -> None:
    logits, bags = random_bags(5, [6, 6, 6], 3)
    logits = logits.float().requires_grad_()
    batch = Batch(torch.arange(18), bags)
    gradients = []
    for z in (1e6, 0.0):
        method = make_method("mixbag", z=z)
        # No mixture of these draws takes a whole bag, whose shares are known exactly.
        method.begin_epoch(1, torch.Generator().manual_seed(0))
        gradients.append(torch.autograd.grad(method.loss(logits, batch), logits)[0])
    alone = torch.autograd.grad(make_method("dllp").loss(logits, batch), logits)[0]
    torch.testing.assert_close(gradients[0], alone, rtol=1e-4, atol=1e-7)
    assert (gradients[1] - alone).abs().max() > 1e-3
