"""Counts that are not exact: potentials against enumeration, scipy and finite differences."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import (
    Bags,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    bag_posterior,
    cc_loss,
    dllp_loss,
    most_probable_labeling,
    ot_loss,
    pll_loss,
    rc_loss,
)
from bagwise.bags import Potentials

nan = float("nan")


def log_potential(bags: Bags, bag: int, c: int, m: int) -> float:
    """log f_c(m), read from the flat arrays."""
    known = bags.potentials
    if known is None:
        return 0.0 if m == bags.counts[bag, c] else -np.inf
    i = m - known.low[bag, c]
    cell = bag * bags.n_classes + c
    width = known.begins[cell + 1] - known.begins[cell]
    return float(known.log_f[known.begins[cell] + i]) if 0 <= i < width else -np.inf


def labelings(
    bags: Bags, bag: int, log_p: npt.NDArray[np.float64]
) -> Iterator[tuple[tuple[int, ...], float]]:
    K, C = log_p.shape
    for y in itertools.product(range(C), repeat=K):
        value = sum(log_p[k, c] for k, c in enumerate(y))
        value += sum(log_potential(bags, bag, c, y.count(c)) for c in range(C))
        if value > -np.inf:
            yield y, value


def enumerated(
    log_probs: torch.Tensor, bags: Bags
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """P(S|X) and the weights, straight from their definition."""
    p = log_probs.double().numpy()
    log_likelihood, weights = np.empty(len(bags)), np.zeros(p.shape)
    for bag in range(len(bags)):
        begin = bags.offsets[bag]
        found = list(labelings(bags, bag, p[begin : bags.offsets[bag + 1]]))
        total = np.logaddexp.reduce([value for _, value in found])
        log_likelihood[bag] = total
        for y, value in found:
            for k, c in enumerate(y):
                weights[begin + k, c] += np.exp(value - total)
    return log_likelihood, weights


def kinds() -> dict[str, Bags]:
    """Two ragged bags of three classes, known in every way there is."""
    sizes = [5, 3]
    noisy = [[3.6, -1.2, 1.9], [0.4, 2.2, nan]]
    whole = [[4, -1, 2], [0, 2, nan]]
    return {
        "laplace": Bags.from_noisy_counts(noisy, sizes, Laplace(1.5)),
        "laplace by class": Bags.from_noisy_counts(noisy, sizes, Laplace([0.5, 2.0, 4.0])),
        "discrete laplace": Bags.from_noisy_counts(whole, sizes, DiscreteLaplace([[1.0], [3.0]])),
        "gaussian": Bags.from_noisy_counts(noisy, sizes, Gaussian(0.8)),
        "discrete gaussian": Bags.from_noisy_counts(whole, sizes, DiscreteGaussian(1.3)),
        "clipped": Bags.from_noisy_counts(
            [[3, 0, 2], [0, 2, 0]], sizes, DiscreteLaplace(2.0, clipped=True)
        ),
        "ranges": Bags.from_ranges([[1, 0, 0], [0, nan, 1]], [[3, 2, 4], [2, nan, 2]], sizes),
        "rounded": Bags.from_proportions([[0.2, 0.4, 0.4], [0.7, nan, nan]], sizes, decimals=1),
        "sample": Bags.from_sample([[7, 2, 5], [1, 1, 2]], sizes),
        "unknown": Bags(sizes, [[2, nan, nan], [nan, nan, nan]]),
        "mixed": Bags.join(
            [Bags([5], [[2, 1, 2]]), Bags.from_ranges([[0, 0, 1]], [[2, 2, 2]], [3])]
        ),
    }


KINDS = kinds()


def some_log_probs(n: int, C: int, seed: int = 0, sharpness: float = 1.5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(n, C, generator=generator, dtype=torch.float64)
    return logits.log_softmax(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["exact", "auto"])
def test_exact_agrees_with_enumeration(kind: str, engine: str) -> None:
    bags = KINDS[kind]
    for seed in range(3):
        log_probs = some_log_probs(8, 3, seed)
        if seed == 2:
            log_probs[1, 0] = log_probs[6, 2] = -np.inf
        post = bag_posterior(log_probs, bags, engine)
        log_likelihood, weights = enumerated(log_probs, bags)
        np.testing.assert_allclose(
            post.log_likelihood.numpy(), log_likelihood, rtol=1e-10, atol=1e-10
        )
        np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_bethe_is_close_to_enumeration(kind: str) -> None:
    bags = KINDS[kind]
    for seed in range(3):
        log_probs = some_log_probs(8, 3, seed, sharpness=1.0)
        if seed == 2:
            log_probs[1, 0] = log_probs[6, 2] = -np.inf
        post = bag_posterior(log_probs, bags, "bethe")
        log_likelihood, weights = enumerated(log_probs, bags)
        assert np.abs(post.weights.numpy() - weights).sum(axis=1).mean() < 0.15
        soft = ~bags.is_sharp
        np.testing.assert_allclose(
            post.log_likelihood.numpy()[soft], log_likelihood[soft], atol=0.3
        )
        np.testing.assert_allclose(post.weights.sum(1).numpy(), 1, atol=1e-9)


def test_a_sharp_potential_is_todays_answer_bit_for_bit() -> None:
    sharp = Bags([5, 3], [[2, 1, 2], [0, 3, 0]])
    soft = Bags.join([sharp, Bags.from_ranges([[0, 0, 0]], [[2, 2, 2]], [2])])
    log_probs = some_log_probs(10, 3)
    for engine in ("exact", "bethe", "auto"):
        alone = bag_posterior(log_probs[:8], sharp, engine)
        among = bag_posterior(log_probs, soft, engine)
        assert torch.equal(alone.weights, among.weights[:8])
        assert torch.equal(alone.log_likelihood, among.log_likelihood[:2])


def test_narrow_potentials_lead_to_sharp_counts() -> None:
    """The code for potentials, not only that for counts, where noise is next to nothing."""
    counts = np.array([[2, 1, 2], [0, 3, 0]])
    nearly = Bags.from_noisy_counts(counts, [5, 3], Laplace(0.02))
    log_probs = some_log_probs(8, 3)
    exact = bag_posterior(log_probs, Bags([5, 3], counts), "exact").weights
    assert not nearly.is_sharp.any()
    found = bag_posterior(log_probs, nearly, "exact").weights
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind: str) -> None:
    log_probs = some_log_probs(8, 3).requires_grad_()

    def value(x: torch.Tensor) -> torch.Tensor:
        return bag_posterior(x, KINDS[kind], "exact").log_likelihood

    assert torch.autograd.gradcheck(value, (log_probs,))
    assert torch.autograd.gradgradcheck(value, (log_probs,))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_exact_agrees_with_enumeration_for_any_ranges(data: st.DataObject) -> None:
    C = data.draw(st.integers(2, 4))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    labels = [[data.draw(st.integers(0, C - 1)) for _ in range(K)] for K in sizes]
    counts = np.array([np.bincount(of_bag, minlength=C) for of_bag in labels])
    below, above = (
        np.array([[data.draw(st.integers(0, 2)) for _ in range(C)] for _ in sizes]) for _ in "ab"
    )
    bags = Bags.from_ranges(np.maximum(counts - below, 0), counts + above, sizes)
    sharpness = data.draw(st.sampled_from([0.1, 2.0, 30.0, 3000.0]))
    log_probs = some_log_probs(sum(sizes), C, data.draw(st.integers(0, 99)), sharpness)
    post = bag_posterior(log_probs, bags, "exact")
    log_likelihood, weights = enumerated(log_probs, bags)
    np.testing.assert_allclose(post.log_likelihood.numpy(), log_likelihood, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-8)
    bethe = bag_posterior(log_probs, bags, "bethe")
    assert bethe.log_likelihood.isfinite().all()
    np.testing.assert_allclose(bethe.weights.sum(1).numpy(), 1, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_labeling_is_the_most_probable_of_all(kind: str) -> None:
    bags = KINDS[kind]
    for seed in range(4):
        log_probs = some_log_probs(8, 3, seed)
        if seed == 3:
            log_probs[1, 0] = log_probs[6, 2] = -np.inf
        found = most_probable_labeling(log_probs, bags).numpy()
        for bag in range(len(bags)):
            rows = slice(bags.offsets[bag], bags.offsets[bag + 1])
            values = dict(labelings(bags, bag, log_probs[rows].numpy()))
            assert values[tuple(found[rows].tolist())] == pytest.approx(max(values.values()))


def test_bags_with_potentials_are_selected_joined_and_told_apart() -> None:
    bags = KINDS["laplace"]
    log_probs = some_log_probs(8, 3)
    both = bag_posterior(log_probs, bags, "exact")
    turned = bags.select([1, 0])
    other = bag_posterior(log_probs[bags.rows([1, 0])], turned, "exact")
    torch.testing.assert_close(other.log_likelihood, both.log_likelihood.flip(0))
    assert Bags.join([bags.select([0]), bags.select([1])]) == bags
    assert turned != bags
    assert len({found.fingerprint() for found in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize(
    ("noise", "twin"),
    [
        (Laplace(1.7), scipy.stats.laplace(scale=1.7)),
        (Gaussian(1.7), scipy.stats.norm(scale=1.7)),
        (DiscreteLaplace(1.7), scipy.stats.dlaplace(1 / 1.7)),
    ],
)
def test_noise_has_the_probabilities_of_scipy(noise: Laplace, twin: object) -> None:
    x = np.arange(-30.0, 31.0)
    log_prob = twin.logpmf(x) if noise.whole else twin.logpdf(x)  # type: ignore[attr-defined]
    np.testing.assert_allclose(noise.log_prob(x, np.array(1.7)), log_prob)
    np.testing.assert_allclose(noise.log_cdf(x, np.array(1.7)), twin.logcdf(x), atol=1e-12)  # type: ignore[attr-defined]


@pytest.mark.parametrize("std", [0.3, 1.0, 4.0])
def test_discrete_gaussian_noise_is_a_normalized_sum(std: float) -> None:
    x = np.arange(-200.0, 201.0)
    log_weights = -0.5 * (x / std) ** 2
    expected = log_weights - np.logaddexp.reduce(log_weights)
    noise, width = DiscreteGaussian(std), np.array(std)
    np.testing.assert_allclose(noise.log_prob(x, width), expected)
    near = np.abs(x) < 8 * std
    np.testing.assert_allclose(
        noise.log_cdf(x[near], width), np.logaddexp.accumulate(expected)[near], atol=1e-12
    )


def test_what_is_clipped_may_have_been_any_number_below_zero() -> None:
    bags = Bags.from_noisy_counts([[0, 3]], [3], DiscreteLaplace(1.0, clipped=True))
    for m in range(4):
        tail = scipy.stats.dlaplace(1.0).logcdf(-m)
        assert log_potential(bags, 0, 0, m) == pytest.approx(tail)


def test_expected_counts_sum_to_the_size_and_stay_within_the_windows() -> None:
    for bags in KINDS.values():
        np.testing.assert_allclose(bags.expected_counts.sum(axis=1), bags.sizes)
        assert (bags.expected_counts >= bags.min_counts - 1e-9).all()
        assert (bags.expected_counts <= bags.max_counts + 1e-9).all()


@pytest.mark.parametrize("noise", [Laplace, DiscreteLaplace, Gaussian, DiscreteGaussian])
@pytest.mark.parametrize("width", [1e-4, 0.02, 1.0, 1e6])
def test_noisy_counts_that_are_far_off_are_improbable_and_not_impossible(
    noise: type[Laplace], width: float
) -> None:
    observed, sizes = [[9, 9, -2], [1, 1, 0], [5000, 5000, 60]], [5, 4, 50]
    bags = Bags.from_noisy_counts(observed, sizes, noise(width))
    np.testing.assert_allclose(bags.expected_counts.sum(axis=1), sizes)
    assert (bags.expected_counts >= bags.min_counts - 1e-9).all()
    assert (bags.expected_counts <= bags.max_counts + 1e-9).all()
    for engine in ("exact", "bethe"):
        post = bag_posterior(some_log_probs(59, 3), bags, engine)
        assert post.log_likelihood.isfinite().all()
        assert post.weights.isfinite().all()


def test_a_sample_has_the_probability_of_the_hypergeometric_distribution() -> None:
    """Also with a class that the group does not have: all samples together have probability 1."""
    group, K = [4, 0, 3], 3
    one_hot = torch.full((K, 3), -np.inf, dtype=torch.float64)
    total = 0.0
    for m in range(K + 1):
        log_probs = one_hot.clone()
        log_probs[range(K), [0] * m + [2] * (K - m)] = 0.0
        found = bag_posterior(log_probs, Bags.from_sample([group], [K])).log_likelihood.exp().item()
        assert found == pytest.approx(scipy.stats.hypergeom(7, 4, K).pmf(m))
        total += found
    assert total == pytest.approx(1)


def test_wide_discrete_noise_that_is_clipped_is_as_good_as_normal() -> None:
    width, x = 9999.0, np.array([0.0, -1.0, -9999.0, 9999.0])
    added = DiscreteGaussian(width).log_cdf(x, np.array(width))
    np.testing.assert_allclose(DiscreteGaussian(1e4).log_cdf(x, np.array(1e4)), added, atol=2e-4)
    np.testing.assert_allclose(added, scipy.stats.norm(scale=width).logcdf(x + 0.5), atol=1e-8)
    assert np.isfinite(DiscreteGaussian(1e12).log_cdf(x, np.array(1e12))).all()


def test_what_follows_from_the_other_counts_is_known_exactly() -> None:
    bags = Bags([5, 2], [[2, nan, 1], [0, 1, 1]])
    assert bags.potentials is None
    assert bags.counts.tolist() == [[2, 2, 1], [0, 1, 1]]
    assert Bags.from_sample([[3, 2]], [5]).counts.tolist() == [[3, 2]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bags([3], [[2, nan, 2]]), "at least 4"),
        (lambda: Bags([3], [[-1, nan, 2]]), "negative count"),
        (lambda: Bags([3], [[0.5, nan, 2]]), "whole numbers"),
        (lambda: Bags.from_ranges([[2, 0]], [[1, 3]], [3]), "must not be above"),
        (lambda: Bags.from_ranges([[0, 0]], [[1, 1]], [3]), "at most 2 together"),
        (lambda: Bags.from_ranges([[2, 2]], [[3, 3]], [3]), "at least 4"),
        (lambda: Bags.from_ranges([[0, 0]], [[1, 1, 1]], [3]), "both need"),
        (lambda: Bags.from_sample([[1, 1]], [3]), "a sample is no larger"),
        (lambda: Bags.from_sample([[-1, 9]], [3]), "negative count"),
        (lambda: Bags.from_proportions([[0.5, 0.5]], [3], decimals=2), "rounded to 2 decimals"),
        (lambda: Bags.from_proportions([[0.3, 0.3]], [10], decimals=1), "at most 6 together"),
        (
            lambda: Bags.from_noisy_counts([[1.5, 2]], [3], DiscreteLaplace(1)),
            "bag 0 .* whole numbers",
        ),
        (lambda: Bags.from_noisy_counts([[-1, 2]], [3], Laplace(1, clipped=True)), "below 0"),
        (lambda: Bags.from_noisy_counts([[1, 2]], [3], Laplace([1.0, 2.0, 3.0])), "does not fit"),
        (lambda: Laplace(0.0), "positive number"),
    ],
)
def test_what_cannot_be_is_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_counts_that_are_not_exact_are_never_guessed_silently() -> None:
    with pytest.raises(ValueError, match="not known exactly"):
        _ = KINDS["laplace"].counts


def test_losses_take_bags_whose_counts_are_not_exact() -> None:
    log_probs = some_log_probs(8, 3)
    for bags in KINDS.values():
        for loss in (cc_loss, dllp_loss):
            logits = log_probs.clone().requires_grad_()
            loss(logits, bags).backward()
            assert logits.grad is not None
            assert logits.grad.isfinite().all()
        for loss in (rc_loss, ot_loss, pll_loss):
            assert loss(log_probs, bags, log_probs).isfinite()
        for engine in ("multinomial", "transport"):
            assert bag_posterior(log_probs, bags, engine).weights.isfinite().all()


def test_transport_and_dllp_use_the_expected_counts() -> None:
    bags = KINDS["sample"]
    log_probs = some_log_probs(8, 3)
    weights = bag_posterior(log_probs, bags, "transport", iterations=500).weights.numpy()
    np.testing.assert_allclose(
        np.add.reduceat(weights, bags.offsets[:-1]), bags.expected_counts, atol=1e-6
    )
    shares = np.add.reduceat(log_probs.exp().numpy(), bags.offsets[:-1]) / bags.sizes[:, None]
    by_hand = -(bags.expected_counts * np.log(shares)).sum() / 8
    assert dllp_loss(log_probs, bags).item() == pytest.approx(by_hand)


def test_known_labels_have_one_hot_weights_and_the_gradient_of_cross_entropy() -> None:
    bags = Bags([4, 3], [[2, 1, 1], [0, 2, 1]])
    labels = [-1, 2, -1, 0, 1, -1, -1]
    log_probs = some_log_probs(7, 3)
    masked = log_probs.clone()
    for row, label in enumerate(labels):
        if label >= 0:
            masked[row] = -np.inf
            masked[row, label] = log_probs[row, label]
    log_likelihood, weights = enumerated(masked, bags)
    post = bag_posterior(log_probs, bags.with_labels(labels), "exact")
    np.testing.assert_allclose(post.log_likelihood.numpy(), log_likelihood)
    np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-12)
    logits = log_probs.clone().requires_grad_()
    cc_loss(logits, bags.with_labels(labels), reduction="sum").backward()
    expected = log_probs.exp()[3] - torch.eye(3, dtype=torch.float64)[0]
    torch.testing.assert_close(logits.grad[3], expected)  # type: ignore[index]
    selected = bags.with_labels(labels).select([1])
    np.testing.assert_array_equal(selected.row_labels, [1, -1, -1])


def test_a_label_that_contradicts_the_counts_is_named_with_row_and_bag() -> None:
    bags = Bags([3, 2], [[2, 1], [0, 2]])
    with pytest.raises(ValueError, match="row 3 is labeled class 0, but bag 1"):
        bags.with_labels([-1, -1, -1, 0, -1])
    with pytest.raises(ValueError, match="the labels of bag 0"):
        Bags.from_ranges([[2, 0, 0]], [[3, 1, 1]], [3]).with_labels([1, 2, -1])
    noisy = Bags.from_noisy_counts([[0.2, 1.9]], [2], Laplace(1.0))
    assert noisy.with_labels([0, -1]).row_labels is not None


def rest_enumerated(
    p: npt.NDArray[np.float64], n: list[int], rest: int, shares: list[float]
) -> npt.NDArray[np.float64]:
    """Weights of the part, summing over all labelings of the part and of the rest."""
    K, C = p.shape
    weights = np.zeros((K, C))
    for y in itertools.product(range(C), repeat=K + rest):
        if [y.count(c) for c in range(C)] == n:
            value = np.prod([p[k, y[k]] for k in range(K)])
            value *= np.prod([shares[c] for c in y[K:]])
            for k in range(K):
                weights[k, y[k]] += value
    return weights / weights.sum(axis=1, keepdims=True)


def test_a_part_of_a_bag_knows_what_the_rest_leaves_it() -> None:
    p = some_log_probs(4, 3).exp().numpy()
    shares = [0.5, 0.2, 0.3]
    whole = Bags([7], [[3, 2, 2]])
    part = whole.part([0, 2, 4, 6], shares)
    found = bag_posterior(torch.from_numpy(p).log(), part, "exact").weights
    np.testing.assert_allclose(found, rest_enumerated(p, [3, 2, 2], 3, shares), atol=1e-10)
    labeled = whole.with_labels([-1, 1, -1, -1, -1, 0, -1]).part([0, 2, 4, 6], shares)
    found = bag_posterior(torch.from_numpy(p).log(), labeled, "exact").weights
    np.testing.assert_allclose(found, rest_enumerated(p, [2, 1, 2], 1, shares), atol=1e-10)


def test_a_part_of_a_bag_with_potentials_is_like_one_with_counts_where_they_are_narrow() -> None:
    log_p = some_log_probs(6, 2)
    counts, shares = [[40, 60]], [0.35, 0.65]
    sharp = Bags([100], counts).part(range(6), shares)
    nearly = Bags.from_noisy_counts(counts, [100], Gaussian(0.05)).part(range(6), shares)
    weights = [bag_posterior(log_p, bags, "exact").weights for bags in (sharp, nearly)]
    torch.testing.assert_close(weights[0], weights[1], atol=0.02, rtol=0)
    vague = Bags.from_noisy_counts(counts, [100], Gaussian(50.0)).part(range(6), shares)
    loose = bag_posterior(log_p, vague, "exact").weights
    torch.testing.assert_close(loose, log_p.exp(), atol=0.05, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shares", [[0.5, 0.2, 0.3], [0.0, 1e-9, 1.0]])
def test_the_potential_of_a_part_is_a_sum_over_what_the_rest_may_have(
    kind: str, shares: list[float]
) -> None:
    """f(m) = sum_n f(n) Poisson(n - m; rate), also where the model is sure of what cannot be."""
    whole = KINDS[kind].select([0])
    part = whole.part([4, 1, 0], shares)
    rates = 2 * np.maximum(shares, 1e-12) / np.maximum(shares, 1e-12).sum()
    for c in range(3):
        found, expected = np.empty(4), np.empty(4)
        for m in range(4):
            terms = [
                log_potential(whole, 0, c, m + r) + scipy.stats.poisson(rates[c]).logpmf(r)
                for r in range(3)
            ]
            found[m] = log_potential(part, 0, c, m)
            expected[m] = np.logaddexp.reduce(terms)
        possible = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(found), possible)
        difference = found[possible] - expected[possible]
        np.testing.assert_allclose(difference, difference[0], atol=1e-9)
    all_of_it = whole.part(range(5), shares)
    assert all_of_it.select([0]) == whole


@pytest.mark.parametrize(
    "whole",
    [
        Bags([1000], [[500, 500, 0]]),
        Bags([1000], [[480, 480, 40]]),
        Bags.from_ranges([[470, 470, 30]], [[490, 490, 50]], [1000]),
        Bags.from_noisy_counts([[480, 480, 40]], [1000], Laplace(0.5)),
        Bags([10**6], [[480_000, 480_000, 40_000]]),
        Bags.from_noisy_counts([[480_000, 480_000, 40_000]], [10**6], Laplace(100.0)),
    ],
)
def test_a_part_is_possible_however_wrong_the_model_is(whole: Bags) -> None:
    log_probs = some_log_probs(256, 3)
    for shares in ([0, 0, 1], [1e-9, 1, 1e-9], [1, 1, 1]):
        post = bag_posterior(log_probs, whole.part(range(256), shares), "bethe")
        assert post.log_likelihood.isfinite().all()
        np.testing.assert_allclose(post.weights.sum(1), 1, atol=1e-9)


def with_a_gap() -> Bags:
    log_f = np.array([0.0, -np.inf, -1.0, 0.0, 0.5, -np.inf, 2.0, 0.0, 0.0, 0.0, 0.0])
    windows = np.array([0, 3, 7, 11])
    return Bags.of_potentials(Potentials(np.array([3]), np.zeros((1, 3), np.int64), windows, log_f))


def test_counts_between_possible_ones_may_be_impossible() -> None:
    bags, log_probs = with_a_gap(), some_log_probs(3, 3)
    log_probs[0, 1] = log_probs[1, 1] = -np.inf
    post = bag_posterior(log_probs, bags, "exact")
    log_likelihood, weights = enumerated(log_probs, bags)
    np.testing.assert_allclose(post.log_likelihood.numpy(), log_likelihood)
    np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-12)
    assert bags.expected_counts.sum() == pytest.approx(3)
    with pytest.raises(ValueError, match="log-concave"):
        most_probable_labeling(log_probs, bags)


def test_potentials_that_fall_and_rise_again_have_no_labeling() -> None:
    bumpy = Potentials(
        np.array([2]), np.array([[0, 0]]), np.array([0, 3, 6]), np.array([0.0, -9, 0, 0, -9, 0])
    )
    with pytest.raises(ValueError, match="log-concave"):
        most_probable_labeling(torch.zeros(2, 2), Bags.of_potentials(bumpy))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["exact", "bethe", "multinomial", "transport"])
def test_rows_that_rule_out_all_classes_but_one_are_known_labels(kind: str, engine: str) -> None:
    bags, log_probs = KINDS[kind], some_log_probs(8, 3)
    labels = np.array([0, 0, 2, -1, 2, 1, -1, 1])
    masked = log_probs.clone()
    for row in np.flatnonzero(labels >= 0):
        masked[row, np.arange(3) != labels[row]] = -np.inf
    if (np.bincount(labels[:5][labels[:5] >= 0], minlength=3) > bags.max_counts[0]).any() or (
        np.bincount(labels[5:][labels[5:] >= 0], minlength=3) > bags.max_counts[1]
    ).any():
        labels, masked = np.where(np.arange(8) == 2, 2, -1), log_probs.clone()
        masked[2, :2] = -np.inf
    expected = bag_posterior(log_probs, bags.with_labels(labels), engine)
    found = bag_posterior(masked.requires_grad_(), bags, engine)
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.log_likelihood, expected.log_likelihood, rtol=1e-6, atol=1e-9)
    found.log_likelihood.sum().backward()
    assert masked.grad is not None
    assert masked.grad.isfinite().all()


@pytest.mark.parametrize("engine", ["exact", "bethe", "multinomial", "transport"])
@given(data=st.data())
def test_weights_are_shares_of_what_is_possible_whatever_is_ruled_out(
    engine: str, data: st.DataObject
) -> None:
    K, C = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    labels = np.array(data.draw(st.lists(st.integers(0, C - 1), min_size=K, max_size=K)))
    n = np.bincount(labels, minlength=C)
    low = np.maximum(n - data.draw(st.integers(0, 2)), 0)
    high = np.minimum(n + data.draw(st.integers(0, 2)), K)
    allowed = data.draw(st.lists(st.booleans(), min_size=K * C, max_size=K * C))
    possible = np.array(allowed).reshape(K, C) | (np.arange(C) == labels[:, None])
    log_probs = some_log_probs(K, C).masked_fill(torch.tensor(~possible), -np.inf).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where -inf makes belief propagation slow
        post = bag_posterior(log_probs, Bags.from_ranges([low], [high], [K]), engine)
    assert post.log_likelihood.isfinite().all()
    assert (post.weights.detach().numpy()[~possible] == 0).all()
    torch.testing.assert_close(post.weights.sum(1), torch.ones(K, dtype=torch.float64))
    post.log_likelihood.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.isfinite().all()
