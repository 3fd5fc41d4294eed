"""Random bags of every kind that the constructors know, all of them true of some labeling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bagwise import Bags, DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
KINDS = ("exact", "hidden", "ranges", "noise", "rounded", "sample")
_NOISES = (Laplace, DiscreteLaplace, Gaussian, DiscreteGaussian)
_SCALES = (0.0, 0.1, 1.0, 3.0, 10.0, 30.0)


class Problem(NamedTuple):
    """Log-probabilities (N, C), bags of them, and the label of each row; -1 where those that a row
    with a weight stands for have several.
    """

    log_probs: Floats
    bags: Bags
    labels: Ints


def problem(rng: np.random.Generator, most_bags: int = 64) -> Problem:
    """A batch of bags, of one kind or of several."""
    C = int(rng.choice([1, 2, 2, 3, 3, 4, 5, 8, 15]))
    largest = int(rng.choice([1, 4, 8, 12, 12, 30, 90]))
    sizes = rng.integers(1, largest + 1, size=rng.integers(1, most_bags + 1))
    sizes = sizes[: max(1, int(np.searchsorted(np.cumsum(sizes) * C, 4000)))]
    bags, labels = some_bags(rng, C, sizes)
    N = len(labels)
    log_probs = rng.choice(_SCALES) * rng.standard_normal((N, C))
    if rng.random() < 0.4:  # informed
        known = np.flatnonzero(labels >= 0)
        log_probs[known, labels[known]] += rng.choice(_SCALES)
    if rng.random() < 0.1:  # ties
        log_probs = np.round(log_probs)
    if rng.random() < 0.1:  # impossible labels; the true ones stay possible
        forbidden = rng.random((N, C)) < rng.choice([0.1, 0.5, 0.9])
        forbidden[labels < 0] = False
        forbidden[np.arange(N), labels] = False
        log_probs[forbidden] = -np.inf
    top = log_probs.max(axis=1, keepdims=True)
    log_probs -= top + np.log(np.exp(log_probs - top).sum(axis=1, keepdims=True))
    return Problem(log_probs, bags, labels)


def some_bags(rng: np.random.Generator, C: int, sizes: Ints) -> tuple[Bags, Ints]:
    """Bags of these sizes, and the rows' labels."""
    N = int(sizes.sum())
    weights = None
    if rng.random() < 0.25:
        weights = np.minimum(rng.geometric(rng.choice([0.3, 0.7]), size=N), 30)
    copies = np.ones(N, np.int64) if weights is None else weights
    labels = rng.integers(C, size=N)
    if rng.random() < 0.3:  # some classes are rare
        labels = np.minimum(rng.geometric(0.6, size=N) - 1, C - 1)
    alike = rng.random(N) < 0.6  # of rows with a weight: whether all of them have one label
    every = np.where(np.repeat(alike, copies), np.repeat(labels, copies), 0)
    every[~np.repeat(alike, copies)] = rng.integers(C, size=(copies * ~alike).sum())
    firsts = np.cumsum(copies) - copies
    labels = np.where(alike | (copies == 1), every[firsts], -1)
    bag = np.repeat(np.repeat(np.arange(len(sizes)), sizes), copies)
    counts = np.bincount(bag * C + every, minlength=len(sizes) * C).reshape(-1, C)
    kinds = [KINDS[rng.integers(len(KINDS))]]
    if rng.random() < 0.15:
        kinds = list(rng.choice(KINDS, size=3))
    cuts = np.linspace(0, len(sizes), len(kinds) + 1).astype(int)
    rows = np.concatenate([[0], np.cumsum(sizes)])
    parts = []
    for kind, begin, end in zip(kinds, cuts[:-1], cuts[1:], strict=True):
        if begin == end:
            continue
        own = None if weights is None else weights[rows[begin] : rows[end]]
        parts.append(of_kind(rng, kind, counts[begin:end], sizes[begin:end], own))
    bags = parts[0] if len(parts) == 1 else Bags.join(parts)
    if rng.random() < 0.2:
        told = (labels >= 0) & (rng.random(N) < rng.choice([0.1, 0.5, 1.0]))
        bags = bags.with_labels(np.where(told, labels, -1))
    return bags, labels


def of_kind(
    rng: np.random.Generator, kind: str, counts: Ints, sizes: Ints, weights: Ints | None
) -> Bags:
    """Bags that have these counts, of which only so much is told."""
    shape = counts.shape
    totals = counts.sum(axis=1)
    gaps = rng.random(shape) < rng.choice([0.0, 0.1, 0.4])
    if kind == "hidden":
        return Bags(sizes, np.where(gaps, np.nan, counts), weights)
    if kind == "ranges":
        low = np.maximum(counts - rng.integers(0, 4, size=shape), 0)
        high = counts + rng.integers(0, 4, size=shape)
        other = rng.random(shape) < 0.2
        low, high = np.where(gaps, np.nan, low), np.where(other, np.nan, high)
        return Bags.from_ranges(low, high, sizes, weights)
    if kind == "noise":
        noise = _NOISES[rng.integers(len(_NOISES))]
        shapes = ((), (shape[1],), (shape[0], 1), shape)
        width = np.exp(rng.normal(0.5, 1.5, size=shapes[rng.integers(4)]))
        drawn = rng.laplace(size=shape) * width
        noisy = counts + (np.rint(drawn) if noise.whole else drawn)
        clipped = bool(rng.random() < 0.2)
        noisy = np.maximum(noisy, 0) if clipped else noisy
        noisy = np.where(gaps, np.nan, noisy)
        return Bags.from_noisy_counts(noisy, sizes, noise(width, clipped), weights)
    if kind == "rounded":
        decimals = int(rng.integers(0, 5))
        shares = np.round(counts / totals[:, None], decimals)
        return Bags.from_proportions(
            np.where(gaps, np.nan, shares), sizes, decimals=decimals, weights=weights
        )
    if kind == "sample":
        others = rng.integers(0, rng.choice([1, 3, 50, 3000]), size=shape)
        return Bags.from_sample(counts + others, sizes, weights)
    return Bags(sizes, counts, weights)
