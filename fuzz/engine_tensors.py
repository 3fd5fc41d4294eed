"""Tensors of every precision at absurd scales through every engine and the labeling, and their
gradients. One input is one bag that one engine computes.

What an engine says is proved of its answer (`Posterior.bound`) is compared with the exact one.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch

from bagwise import Bags, bag_posterior, most_probable_labeling
from bagwise.posterior import ENGINES, lattice_states

ENTRIES = 4000  # numbers in a call, at most: most calls are small, so that there can be many
EXACT_STATES = 2e5
SCALES = (0.0, 0.1, 1.0, 5.0, 30.0, 150.0, 1e3, 1e6, 1e12, 1e30)
PRECISIONS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FEWER = (1.01, 2.0, 8.0)  # times fewer states than a bag's lattice has: `auto` has to prune it
LARGEST = 1e6  # of log-probabilities beyond which rounding alone moves weights
TOLERATED = ("belief propagation did not converge",)


def problem(rng: np.random.Generator) -> tuple[torch.Tensor, Bags]:
    """Log-probabilities and bags, from ordinary to absurd."""
    C = int(rng.integers(1, 21))
    largest = int(rng.choice([3, 20, 60, 200]))
    sizes = rng.integers(1, largest + 1, size=rng.integers(1, 5))
    while sizes.sum() * C > ENTRIES and len(sizes) > 1:
        sizes = sizes[:-1]
    N = int(sizes.sum())
    labels = rng.integers(C, size=N)
    if rng.random() < 0.3:  # some classes are rare
        labels = np.minimum(rng.geometric(0.5, size=N) - 1, C - 1)
    logits = rng.choice(SCALES) * rng.standard_normal((N, C))
    if rng.random() < 0.3:  # informed
        logits[np.arange(N), labels] += rng.choice(SCALES)
    if rng.random() < 0.2:  # one class of another scale
        logits[:, rng.integers(C)] *= rng.choice(SCALES)
    if rng.random() < 0.2:  # ties
        logits = np.round(logits)
    if rng.random() < 0.1:  # equal instances
        logits[:] = logits[rng.integers(N)]
    if rng.random() < 0.15:  # impossible labels, the counts staying possible
        forbidden = rng.random((N, C)) < rng.choice([0.1, 0.5, 0.9])
        forbidden[np.arange(N), labels] = False
        logits[forbidden] = -np.inf
    log_probs = torch.from_numpy(logits)
    if rng.random() < 0.7:
        log_probs = log_probs.log_softmax(-1)
    dtype = PRECISIONS[rng.integers(len(PRECISIONS))]
    smallest = torch.finfo(dtype)
    log_probs = torch.where(
        log_probs.isinf(), log_probs, log_probs.clamp(smallest.min, smallest.max)
    ).to(dtype)
    return log_probs, Bags.from_labels(labels, sizes, n_classes=C)


def step(seed: int) -> int:
    """One random call, and what must hold of its answer; returns its number of bags."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    log_probs, bags = problem(rng)
    name = [*ENGINES, "labeling"][rng.integers(len(ENGINES) + 1)]
    if name == "exact" and lattice_states(bags).max() > EXACT_STATES:
        name = "auto"
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        if name == "labeling":
            check_labeling(log_probs, bags)
        else:
            check_posterior(log_probs, bags, name)
            if name in ("exact", "auto", "bethe"):
                check_bound(log_probs, bags, float(rng.choice(FEWER)))
    for warning in noted:
        if not str(warning.message).startswith(TOLERATED):
            raise AssertionError(f"warning: {warning.message}")
    return len(bags)


def check_labeling(log_probs: torch.Tensor, bags: Bags) -> None:
    """The labels have the counts, and none that is impossible."""
    labels = most_probable_labeling(log_probs, bags)
    assert Bags.from_labels(labels, bags.sizes, bags.n_classes) == bags, "other counts"
    assert (log_probs[torch.arange(len(labels)), labels] > -torch.inf).all(), "an impossible label"


def check_posterior(log_probs: torch.Tensor, bags: Bags, engine: str) -> None:
    """Finite, rows sum to 1, columns to the counts, nothing impossible; a finite gradient."""
    log_probs = log_probs.requires_grad_()
    post = bag_posterior(log_probs, bags, engine=engine)
    post.log_likelihood.sum().backward()
    weights = post.weights.double()
    assert weights.isfinite().all(), "weights are not finite"
    assert (weights >= 0).all(), "negative weights"
    assert (weights.sum(1) - 1).abs().max() < 1e-5, "rows do not sum to 1"
    if engine != "device":  # to it, -inf is a very small number
        assert (weights[log_probs == -torch.inf] == 0).all(), "weight on an impossible label"
    assert not post.log_likelihood.isnan().any(), "the log-likelihood is NaN"
    if engine in ("exact", "bethe", "auto"):
        columns = np.add.reduceat(weights.numpy(), bags.offsets[:-1], axis=0)
        off = np.abs(columns - bags.counts).max()
        assert off < 1e-4 + 1e-6 * bags.sizes.max(), f"columns are off by {off:.2g}"
    if log_probs.dtype == torch.float64:
        assert torch.isfinite(log_probs.grad).all(), "the gradient is not finite"


def check_bound(log_probs: torch.Tensor, bags: Bags, fewer: float) -> None:
    """What `auto` says is proved of each bag is true, where the exact answer can be had."""
    log_probs = log_probs.detach().double()
    states = lattice_states(bags)
    limit = states[states <= EXACT_STATES].max(initial=1.0) / fewer
    post = bag_posterior(log_probs, bags, "auto", max_states=max(int(limit), 1))
    assert post.bound is not None
    bound = post.bound.numpy()
    proved = bound < np.inf
    assert (bound >= 0).all(), "a bound is negative or NaN"
    assert (bound[proved] <= 5e-7).all(), "a bound is above the tolerance"
    assert [engine != "bethe" for engine in post.engine] == proved.tolist(), "another engine's"
    small = proved & (states <= EXACT_STATES)
    finite = log_probs[log_probs > -torch.inf].abs().max().item()
    if not small.any() or finite > LARGEST:
        return
    index = np.flatnonzero(small)
    rows = np.isin(bags.bag_of_row, index)
    exact = bag_posterior(log_probs[torch.from_numpy(rows)], bags.select(index), "exact")
    assert (exact.bound == 0).all(), "exact, but not proved"
    rounding = 1e-9 + 1e-14 * bags.sizes[index] * finite
    off = exact.log_likelihood.numpy() - post.log_likelihood.numpy()[index]
    assert (off >= -rounding).all(), f"P(S|X) is {-off.min():.2g} too large"
    assert (off <= np.log1p(bound[index]) + rounding).all(), "P(S|X) is outside of its bound"
    distance = np.abs(exact.weights.numpy() - post.weights.numpy()[rows]).sum(1)
    most = np.repeat(2 * bound[index] + rounding, bags.sizes[index])
    assert (distance <= most).all(), f"weights are {(distance - most).max():.2g} outside"


MAKE = {"tensors": lambda _: step}
