"""A row of weight m is the same as m identical rows, at the cost of one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, Laplace, bag_posterior, most_probable_labeling
from bagwise.errors import InputError
from bagwise.losses import (
    cc_loss,
    cc_squared_loss,
    dllp_loss,
    ot_loss,
    pll_cc_loss,
    pll_loss,
    pvc_loss,
    rc_loss,
)
from bagwise.posterior import ENGINES, Posterior
from bagwise.posterior.poisson_binomial import count_intervals, count_probabilities

RNG = np.random.default_rng


def weighted_bags(
    seed: int, sizes: list[int], C: int, most: int = 5, kind: str = "exact", spread: float = 1.0
) -> tuple[np.ndarray, Bags]:
    """Log-probabilities, and bags of rows that stand for 1 to `most` instances."""
    rng = RNG(seed)
    N = sum(sizes)
    log_p = spread * rng.normal(size=(N, C))
    log_p -= np.logaddexp.reduce(log_p, axis=1, keepdims=True)
    weights = rng.integers(1, most + 1, size=N)
    labels = rng.integers(C, size=weights.sum())
    totals = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
    counts = Bags.from_labels(labels, totals, n_classes=C).counts
    if kind == "noisy":
        noisy = counts + rng.laplace(size=counts.shape)
        return log_p, Bags.from_noisy_counts(noisy, sizes, Laplace(1.0), weights=weights)
    if kind == "ranges":
        low, high = np.maximum(counts - 1, 0), counts + 1
        return log_p, Bags.from_ranges(low, high, sizes, weights=weights)
    return log_p, Bags(sizes, counts, weights=weights)


def compare(log_p: np.ndarray, bags: Bags, within: float, engine: str, **options: float) -> None:
    found = bag_posterior(log_p, bags, engine, **options)
    written = bag_posterior(np.repeat(log_p, bags.copies, 0), bags.written_out(), engine, **options)
    np.testing.assert_allclose(found.log_likelihood, written.log_likelihood, atol=within)
    of_rows = np.repeat(found.weights, bags.copies, 0)
    np.testing.assert_allclose(of_rows, written.weights, atol=within)
    np.testing.assert_allclose(found.weights.sum(1), 1.0, atol=1e-9)


@pytest.mark.parametrize("kind", ["exact", "noisy", "ranges"])
@pytest.mark.parametrize("engine", ["auto", "exact", "multinomial", "transport"])
def test_every_engine_gives_the_answer_of_rows_written_out(engine: str, kind: str) -> None:
    for seed, C in enumerate((2, 3, 4)):
        log_p, bags = weighted_bags(seed, [3, 1, 4], C, kind=kind)
        compare(log_p, bags, 1e-10, engine)


@pytest.mark.parametrize("kind", ["exact", "noisy", "ranges"])
@pytest.mark.parametrize(("C", "most"), [(2, 40), (3, 9), (4, 30)])
def test_bethe_gives_the_answer_of_rows_written_out(C: int, most: int, kind: str) -> None:
    log_p, bags = weighted_bags(C, [3, 1, 6, 4], C, most, kind)
    pairs = (bags.max_counts > 0).sum(
        1
    ) == 2  # which are exact; with single rows only large bags are
    for index in (np.flatnonzero(pairs), np.flatnonzero(~pairs)):
        if len(index):
            some, rows = bags.select(index), log_p[bags.rows(index)]
            if pairs[index[0]]:
                found = bag_posterior(rows, some, "bethe").weights
                expected = bag_posterior(rows, some, "exact").weights
                np.testing.assert_allclose(found, expected, atol=1e-7)
            else:
                compare(rows, some, 1e-6, "bethe", tolerance=1e-9)


@pytest.mark.parametrize(("kind", "tolerance"), [("exact", 1e-9), ("noisy", 1e-5)])
def test_bethe_of_large_weighted_bags_is_that_of_rows_written_out(
    kind: str, tolerance: float
) -> None:
    log_p, bags = weighted_bags(0, [8], 3, 800, kind)
    assert bags.total > 2048
    compare(log_p, bags, 100 * tolerance, "bethe", tolerance=tolerance)


def test_two_classes_are_exact_in_bags_of_any_total() -> None:
    log_p, bags = weighted_bags(1, [5, 9], 2, 300)
    compare(log_p, bags, 1e-10, "auto")


def test_auto_prunes_weighted_bags_as_written_out_ones() -> None:
    labels = np.arange(12) % 6
    weights = 1 + np.arange(12) % 7
    bags = Bags.from_labels(labels, [12], weights=weights)
    log_p = 14 * np.eye(6)[labels] + RNG(0).normal(size=(12, 6))
    assert bag_posterior(log_p, bags).engine == ["pruned"]
    compare(log_p, bags, 1e-6, "auto")


def test_bags_without_weights_above_one_are_computed_as_before() -> None:
    log_p, bags = weighted_bags(0, [30, 40], 4, most=1)
    assert bags.weights is None
    joined = Bags.join([bags, Bags([1], [[2, 0, 0, 0]], weights=[2])])
    both = bag_posterior(np.concatenate([log_p, np.zeros((1, 4))]), joined, "bethe")
    alone = bag_posterior(log_p, bags, "bethe")
    np.testing.assert_array_equal(both.weights[:-1], alone.weights)


@pytest.mark.parametrize("engine", ["exact", "bethe", "multinomial", "transport"])
def test_impossible_labels_and_huge_values_of_weighted_rows(engine: str) -> None:
    bags = Bags([3, 2], [[2, 5, 1], [1, 3, 2]], weights=[2, 4, 2, 3, 3])
    log_p = RNG(3).normal(size=(5, 3))
    log_p[0] = -np.inf, 0.0, -np.inf
    compare(log_p, bags, 1e-6, engine, **({"tolerance": 1e-9} if engine == "bethe" else {}))
    labeled = bags.with_labels([1, -1, -1, -1, -1])
    found = bag_posterior(RNG(3).normal(size=(5, 3)), labeled, engine)
    np.testing.assert_array_equal(found.weights[0], [0, 1, 0])
    if engine in ("exact", "transport"):
        compare(1e14 * (1 + RNG(4).random((5, 3)).round(2)), bags, 1e-6, engine)


def test_impossible_counts_of_weighted_rows_are_named() -> None:
    log_p = np.array([[0.0, -np.inf], [0.0, 0.0]])
    with pytest.raises(InputError, match="no labeling of bag 0 has its counts"):
        bag_posterior(log_p, Bags([2], [[2, 3]], weights=[3, 2]))


@given(st.integers(0, 10_000), st.integers(2, 4), st.sampled_from(["exact", "ranges", "noisy"]))
def test_weights_times_copies_sum_to_the_counts(seed: int, C: int, kind: str) -> None:
    log_p, bags = weighted_bags(seed, [2, 3], C, 4, kind, spread=3.0)
    compare(log_p, bags, 1e-9, "exact")
    found = bag_posterior(log_p, bags, "exact").weights * bags.copies[:, None]
    sums = np.add.reduceat(found, bags.offsets[:-1])
    if kind == "exact":
        np.testing.assert_allclose(sums, bags.counts, atol=1e-9)
    np.testing.assert_allclose(sums.sum(1), bags.totals)


@pytest.mark.parametrize("engine", ["auto", "exact", "multinomial", "transport"])
def test_gradient_of_the_log_likelihood_is_that_of_all_copies(engine: str) -> None:
    log_p, bags = weighted_bags(5, [3, 4], 3)
    options = {"iterations": 3000} if engine == "transport" else {}
    given_ = torch.from_numpy(log_p).requires_grad_()
    scale = torch.tensor([1.0, 2.0])
    post = bag_posterior(given_, bags, engine, **options)
    (scale * post.log_likelihood).sum().backward()
    if engine != "multinomial":
        by_bag = scale.double()[torch.from_numpy(bags.bag_of_row)] * torch.tensor(bags.copies)
        torch.testing.assert_close(given_.grad, by_bag[:, None] * post.weights)
    step = 1e-6
    for k, c in [(0, 0), (2, 1), (5, 2)]:
        moved = [log_p.copy(), log_p.copy()]
        moved[0][k, c] += step
        moved[1][k, c] -= step
        up, down = (bag_posterior(p, bags, engine, **options).log_likelihood for p in moved)
        slope = (scale.numpy() * (up - down)).sum() / (2 * step)
        assert given_.grad is not None
        assert slope == pytest.approx(given_.grad[k, c].item(), abs=1e-6)


@pytest.mark.parametrize("kind", ["exact", "noisy"])
def test_second_derivatives_of_weighted_rows(kind: str) -> None:
    log_p, bags = weighted_bags(6, [2, 3], 3, 3, kind)
    given_ = torch.from_numpy(log_p).requires_grad_()

    def value(x: torch.Tensor) -> torch.Tensor:
        return bag_posterior(x, bags, "exact").log_likelihood

    assert torch.autograd.gradcheck(value, given_)
    assert torch.autograd.gradgradcheck(value, given_)


LOSSES: dict[str, Callable[[torch.Tensor, Bags, torch.Tensor, str], torch.Tensor]] = {
    "cc": lambda z, bags, _, r: cc_loss(z, bags, reduction=r),
    "cc_approx": lambda z, bags, _, r: cc_loss(z, bags, "multinomial", reduction=r),
    "rc": lambda z, bags, stored, r: rc_loss(z, bags, stored, reduction=r),
    "rc_squared": lambda z, bags, stored, r: rc_loss(
        z, bags, stored, instance_loss="squared_error", reduction=r
    ),
    "cc_squared": lambda z, bags, _, r: cc_squared_loss(z, bags, reduction=r),
    "ot": lambda z, bags, stored, r: ot_loss(z, bags, stored, reduction=r),
    "pll": lambda z, bags, stored, r: pll_loss(z, bags, stored, reduction=r),
    "pll_cc": lambda z, bags, _, r: pll_cc_loss(z, bags, reduction=r),
    "dllp": lambda z, bags, _, r: dllp_loss(z, bags, reduction=r),
    "pvc": lambda z, bags, _, r: pvc_loss(z, bags, reduction=r),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_and_its_gradient_are_those_of_rows_written_out(
    name: str, reduction: str
) -> None:
    log_p, bags = weighted_bags(7, [3, 2, 4], 3)
    stored = torch.from_numpy(RNG(1).normal(size=log_p.shape)).log_softmax(-1)
    rows = torch.from_numpy(np.repeat(np.arange(len(log_p)), bags.copies))
    of_weights, of_rows = (torch.from_numpy(log_p.copy()).requires_grad_() for _ in range(2))
    one = LOSSES[name](of_weights, bags, stored, reduction)
    two = LOSSES[name](of_rows[rows], bags.written_out(), stored[rows], reduction)
    torch.testing.assert_close(one, two, rtol=0, atol=1e-10)
    for value in (one, two):
        value.sum().backward()
    torch.testing.assert_close(of_weights.grad, of_rows.grad, rtol=0, atol=1e-10)


def test_compiled_losses_take_weighted_rows() -> None:
    log_p, bags = weighted_bags(8, [3, 2], 3)
    logits = torch.from_numpy(log_p).requires_grad_()
    for loss in (cc_loss, pvc_loss):
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
        (expected,) = torch.autograd.grad(loss(logits, bags), logits)
        (found,) = torch.autograd.grad(compiled(logits, bags), logits)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["exact", "ranges", "noisy"])
@given(seed=st.integers(0, 10_000))
def test_labeling_is_as_probable_as_the_best_of_rows_written_out(kind: str, seed: int) -> None:
    log_p, bags = weighted_bags(seed, [4, 1, 3], 3, 6, kind)
    found = most_probable_labeling(log_p, bags)
    np.testing.assert_array_equal(found.sum(1), bags.copies)
    rows = np.repeat(log_p, bags.copies, 0)
    labels = most_probable_labeling(rows, bags.written_out())
    sums = np.add.reduceat(found, bags.offsets[:-1])
    best = rows[np.arange(len(rows)), labels].sum()
    mine = (found * log_p).sum()
    if bags.potentials is not None:
        written = Bags.from_labels(labels, bags.totals, n_classes=3).counts
        for counts, sign in ((sums, 1), (written, -1)):
            places = bags.potentials.begins[:-1] + (counts - bags.min_counts).ravel()
            mine += sign * bags.potentials.log_f[places].sum()
    else:
        np.testing.assert_array_equal(sums, bags.counts)
    assert mine == pytest.approx(best, abs=1e-9)


def test_labeling_of_a_tensor_is_counts_too() -> None:
    bags = Bags([2], [[4, 3]], weights=[5, 2])
    found = most_probable_labeling(torch.tensor([[0.9, 0.1], [0.8, 0.2]]).log(), bags)
    assert found.tolist() == [[4, 1], [0, 2]]


def test_engines_of_users_are_given_rows_written_out() -> None:
    def even(log_probs: torch.Tensor, bags: Bags) -> Posterior[torch.Tensor]:
        assert bags.weights is None
        sums = log_probs.new_zeros(len(bags)).index_add(
            0, torch.tensor(bags.bag_of_row), log_probs.sum(1)
        )
        return Posterior(sums, log_probs.softmax(-1).detach())

    ENGINES["even"] = even
    try:
        log_p, bags = weighted_bags(9, [2, 3], 3)
        found = bag_posterior(log_p, bags, "even")
    finally:
        del ENGINES["even"]
    assert found.weights.shape == log_p.shape
    expected = np.add.reduceat(log_p.sum(1) * bags.copies, bags.offsets[:-1])
    np.testing.assert_allclose(found.log_likelihood, expected)


def test_probabilities_of_counts_under_a_model_alone() -> None:
    log_p, bags = weighted_bags(2, [3, 2], 3)
    rows, written = np.repeat(log_p, bags.copies, 0), bags.written_out()
    for function in (count_probabilities, count_intervals):
        for one, two in zip(function(log_p, bags), function(rows, written), strict=True):
            np.testing.assert_allclose(one, two)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([3.7, 1, 1], r"weights\[0\] is 3.7.*Survey weights are not supported"),
        ([1, 0, 2], r"weights\[1\] is 0"),
        ([1, np.nan, 2], r"weights\[1\] is nan"),
        ([1, 2], "there are 2 weights for 3 rows"),
        ([2, 1, 1], "the counts of bag 0 sum to 2, but its weights sum to 3"),
    ],
)
def test_wrong_weights_are_refused(weights: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Bags([2, 1], [[1, 1], [0, 1]], weights=weights)


@pytest.mark.parametrize("kind", ["exact", "noisy", "ranges"])
def test_weights_are_carried_by_everything_that_makes_bags(kind: str) -> None:
    _, bags = weighted_bags(3, [3, 2, 4], 3, kind=kind)
    some = bags.select([2, 0])
    np.testing.assert_array_equal(some.copies, bags.copies[bags.rows([2, 0])])
    assert Bags.join([bags.select([0]), bags.select([1, 2])]) == bags
    labels = np.full(9, -1)
    labels[3] = (
        int(bags.max_counts[1].argmax()) if bags.max_counts[1].max() >= bags.copies[3] else -1
    )
    for other in (pickle.loads(pickle.dumps(bags)), copy.deepcopy(bags)):
        assert other == bags
        assert other.fingerprint() == bags.fingerprint()
    np.testing.assert_array_equal(bags.with_labels(labels).copies, bags.copies)
    np.testing.assert_array_equal(bags.of_classes(np.arange(3)).copies, bags.copies)
    assert [list(index) for index in bags.batches(max_instances=5)] == [[0, 1], [2]]
    assert bags != bags.written_out()
    np.testing.assert_allclose(bags.proportions.sum(1), 1.0)
    assert "in 9 rows" in repr(bags)


def test_constructors_count_the_instances_that_rows_stand_for() -> None:
    weights = [30, 70]
    rounded = Bags.from_proportions([[0.33, 0.67]], [2], decimals=2, weights=weights)
    assert rounded.counts.tolist() == [[33, 67]]
    assert Bags.from_proportions([[0.25, 0.75]], [2], weights=weights).counts.tolist() == [[25, 75]]
    sample = Bags.from_sample([[300, 100]], [2], weights=weights)
    np.testing.assert_allclose(sample.expected_counts, [[75, 25]])
    gaps = Bags([2], [[20, np.nan, np.nan]], weights=weights)
    assert gaps.max_counts.tolist() == [[20, 80, 80]]
    assert Bags.from_labels([0, 1], [2], weights=weights).counts.tolist() == [[30, 70]]


def test_a_part_of_a_weighted_bag_is_that_of_rows_written_out() -> None:
    bags = Bags([4], [[6, 4]], weights=[1, 2, 3, 4]).with_labels([0, -1, -1, -1])
    part = bags.part([0, 2], shares=[0.4, 0.6])
    written = bags.written_out().part([0, 3, 4, 5], shares=[0.4, 0.6])
    assert part.written_out() == written
    np.testing.assert_allclose(part.expected_counts, written.expected_counts)
    assert part.copies.tolist() == [1, 3]


def test_labels_of_weighted_rows_must_fit_the_counts() -> None:
    bags = Bags([3], [[3, 4]], weights=[2, 2, 3])
    assert bags.with_labels([0, -1, -1]).row_labels is not None
    with pytest.raises(InputError, match="row 1 is labeled class 0, but bag 0 has at most 3"):
        bags.with_labels([0, 0, -1])
