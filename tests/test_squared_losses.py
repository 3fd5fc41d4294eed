"""RC with any loss of instances, and CC with squared error over all label counts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from bagwise import (
    BagData,
    Bags,
    Groupings,
    bag_posterior,
    cc_loss,
    cc_squared_loss,
    rc_loss,
)
from bagwise.losses.multisets import multisets
from bagwise.methods import Batch, make_method
from oracles import labelings, random_bags


def hinge(logits: torch.Tensor) -> torch.Tensor:
    """A loss that is neither a likelihood nor proper: how far a label's logit is below 1."""
    return (1 - logits).clamp(min=0)


def loss_of(name: object, logits: np.ndarray, label: int) -> float:
    """The loss of one instance, written out."""
    p = np.exp(logits) / np.exp(logits).sum()
    if name == "cross_entropy":
        return -math.log(p[label])
    if name == "squared_error":
        return sum((float(y == label) - p[y]) ** 2 for y in range(len(p)))
    return max(0.0, 1 - logits[label])


@pytest.mark.parametrize("instance_loss", ["cross_entropy", "squared_error", hinge])
def test_rc_is_the_mean_over_labelings_of_the_supervised_loss(instance_loss: object) -> None:
    sizes = [2, 4, 3]
    logits, bags = random_bags(1, sizes, 3)
    stored = random_bags(2, sizes, 3)[0].log_softmax(-1)
    expected = []
    for b in range(3):
        rows, z = bags.rows([b]), logits[bags.rows([b])].numpy()
        probabilities, losses = [], []
        for labels in labelings(bags.counts[b]):
            probabilities.append(
                math.exp(sum(stored[k, y] for k, y in zip(rows, labels, strict=True)))
            )
            losses.append(sum(loss_of(instance_loss, z[k], y) for k, y in enumerate(labels)))
        expected.append(np.average(losses, weights=probabilities))
    found = rc_loss(logits, bags, stored, instance_loss=instance_loss, reduction="none")
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)
    total = rc_loss(logits, bags, stored, instance_loss=instance_loss, reduction="sum")
    assert total.item() == pytest.approx(sum(expected), rel=1e-9)
    mean = rc_loss(logits, bags, stored, instance_loss=instance_loss)
    assert mean.item() == pytest.approx(sum(expected) / 9, rel=1e-9)


@pytest.mark.parametrize("instance_loss", ["squared_error", hinge])
def test_gradients_of_rc_with_other_losses_are_finite_differences(instance_loss: object) -> None:
    logits, bags = random_bags(3, [3, 2], 3)
    stored = random_bags(4, [3, 2], 3)[0].log_softmax(-1)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: rc_loss(z, bags, stored, instance_loss=instance_loss), logits
    )


@pytest.mark.parametrize("instance_loss", ["squared_error", hinge])
def test_rc_of_groupings_takes_other_losses(instance_loss: object) -> None:
    logits, bags = random_bags(5, [3, 3], 2)
    stored = logits.flip(0).log_softmax(-1)
    groupings = Groupings({"one": (np.repeat([0, 1], 3), bags)})
    for reduction in ("mean", "sum"):
        found = rc_loss(logits, groupings, stored, instance_loss=instance_loss, reduction=reduction)
        alone = rc_loss(logits, bags, stored, instance_loss=instance_loss, reduction=reduction)
        torch.testing.assert_close(found, alone)
    weighted = Bags([3, 3], 2 * bags.counts, weights=[2] * 6)
    both = Groupings({"one": (np.repeat([0, 1], 3), weighted)})
    found = rc_loss(logits, both, stored, instance_loss=instance_loss)
    torch.testing.assert_close(
        found, rc_loss(logits, weighted, stored, instance_loss=instance_loss)
    )


def test_a_label_that_a_bag_lacks_may_have_an_infinite_loss() -> None:
    bags, logits = Bags([2], [[2, 0]]), torch.zeros(2, 2)
    found = rc_loss(logits, bags, logits, instance_loss=lambda z: z.new_tensor([1.0, math.inf]) + z)
    assert found.item() == 1


def test_losses_of_instances_that_cannot_be_used_are_named() -> None:
    logits, bags = random_bags(1, [2, 1], 3)
    with pytest.raises(ValueError, match=r"instance_loss is 'hinge'; choose .*function of logits"):
        rc_loss(logits, bags, logits, instance_loss="hinge")
    for wrong, said in ((lambda z: z.sum(1), r"\(3,\)"), (lambda z: 1.0, "float")):
        with pytest.raises(ValueError, match=rf"returned .*{said}.* for logits of shape \(3, 3\)"):
            rc_loss(logits, bags, logits, instance_loss=wrong)


def squared_by_enumeration(log_p: torch.Tensor, counts: np.ndarray) -> torch.Tensor:
    """Of one bag, from the labelings of all counts."""
    K, C = log_p.shape
    q: dict[tuple[int, ...], torch.Tensor] = {}
    for labels in itertools.product(range(C), repeat=K):
        of = tuple(np.bincount(labels, minlength=C).tolist())
        q[of] = q.get(of, torch.zeros(())) + log_p[torch.arange(K), list(labels)].sum().exp()
    return torch.stack([(float(of == tuple(counts)) - p) ** 2 for of, p in q.items()]).sum()


@pytest.mark.parametrize("C", [2, 3, 4])
def test_cc_with_squared_error_sums_over_all_counts_of_a_bag(C: int) -> None:
    sizes = [2, 5, 1, 2]
    logits, bags = random_bags(C, sizes, C)
    logits.requires_grad_()
    log_p = logits.log_softmax(-1)
    expected = torch.stack(
        [squared_by_enumeration(log_p[bags.rows([b])], bags.counts[b]) for b in range(4)]
    )
    found = cc_squared_loss(logits, bags, reduction="none")
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(cc_squared_loss(logits, bags), expected.sum() / 10)
    torch.testing.assert_close(cc_squared_loss(logits, bags, reduction="sum"), expected.sum())
    gradients = [torch.autograd.grad(x.sum(), logits)[0] for x in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_the_probabilities_of_all_counts_are_those_of_the_posterior() -> None:
    logits, _ = random_bags(6, [6], 3)
    log_p = logits.log_softmax(-1)
    each = [
        cc_squared_loss(logits, Bags([6], [counts]), reduction="sum") for counts in multisets(6, 3)
    ]
    q = [
        bag_posterior(log_p, Bags([6], [counts]), "exact").log_likelihood.exp()
        for counts in multisets(6, 3)
    ]
    squares = sum(p.square() for p in q)
    torch.testing.assert_close(torch.stack(each), torch.cat([1 - 2 * p + squares for p in q]))


def test_expected_squared_error_is_least_at_the_truth_and_that_of_the_true_counts_is_not() -> None:
    truth, _ = random_bags(7, [4], 3, spread=1.0)
    kinds = [Bags([4], [counts]) for counts in multisets(4, 3)]
    chances = [(-cc_loss(truth, bags, reduction="sum")).exp() for bags in kinds]
    z = truth.clone().requires_grad_()
    whole = sum(p * cc_squared_loss(z, bags) for p, bags in zip(chances, kinds, strict=True))
    alone = sum(
        p * (1 - (-cc_loss(z, bags, reduction="sum")).exp()) ** 2
        for p, bags in zip(chances, kinds, strict=True)
    )
    torch.testing.assert_close(torch.autograd.grad(whole, z)[0], torch.zeros_like(z))
    assert torch.autograd.grad(alone, z)[0].abs().max() > 1e-3


def test_bags_that_squared_error_is_not_for_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"bag 1 of 20 instances and 5 classes can have 10,626 .*cc"
    ):
        cc_squared_loss(torch.zeros(22, 5), Bags([2, 20], [[2, 0, 0, 0, 0], [4] * 5]))
    ranges = Bags.from_ranges([[0, 0]], [[2, 2]], [2])
    with pytest.raises(ValueError, match=r"exact counts alone.*use cc_loss"):
        cc_squared_loss(torch.zeros(2, 2), ranges)


@pytest.mark.parametrize(("name", "engine"), [("rc", "auto"), ("rc_approx", "multinomial")])
def test_methods_learn_from_squared_error_by_name(name: str, engine: str) -> None:
    logits, bags = random_bags(2, [3, 4], 3)
    data, batch = BagData(logits, bags), Batch(torch.arange(7), bags)
    method = make_method(name, instance_loss="squared_error")
    method.begin(data, torch.device("cpu"))
    stored = method.kept["log_probs"].clone()
    found = method.loss(logits, batch)
    weights = bag_posterior(stored, bags, engine).weights
    p = logits.softmax(-1)
    by_hand = sum(
        weights[k, c] * (p[k] - torch.eye(3)[c]).square().sum() for k in range(7) for c in range(3)
    )
    torch.testing.assert_close(found, by_hand / 7, check_dtype=False, rtol=1e-6, atol=0)
    with pytest.raises(ValueError, match=r"instance_loss is 'hinge'; one of .*squared_error"):
        make_method(name, instance_loss="hinge")
