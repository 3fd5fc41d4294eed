"""Slow and plain transcriptions of the definitions, to compare with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logsumexp

from bagwise import Bags, Groupings

Floats = npt.NDArray[np.float64]


def labelings(counts: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """(L, K) all labelings with these counts."""
    labels = np.repeat(np.arange(len(np.asarray(counts))), counts)
    return np.array(sorted(set(itertools.permutations(labels.tolist()))))


def enumerate_bag(log_probs: Floats, counts: npt.ArrayLike) -> tuple[float, Floats]:
    """log P(S|X) and the weights of one bag, summing over all its labelings in the log domain."""
    K, C = log_probs.shape
    all_labels = labelings(counts)
    scores = log_probs[np.arange(K), all_labels].sum(axis=1)
    log_likelihood = float(logsumexp(scores))
    weights = np.zeros((K, C))
    share = np.exp(scores - log_likelihood)
    for k in range(K):
        np.add.at(weights[k], all_labels[:, k], share)
    return log_likelihood, weights


def enumerate_bags(log_probs: torch.Tensor, bags: Bags) -> tuple[Floats, Floats]:
    """The same for every bag: (B,), (N, C)."""
    parts = [
        enumerate_bag(rows, counts)
        for rows, counts in zip(
            np.split(log_probs.double().numpy(), bags.offsets[1:-1]), bags.counts, strict=True
        )
    ]
    return np.array([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def multinomial_bag(log_probs: torch.Tensor, counts: npt.ArrayLike) -> tuple[torch.Tensor, Floats]:
    """Section 5 of the paper term by term, from normalized log-probabilities, with autograd."""
    K, C = log_probs.shape
    p = log_probs.exp()
    terms, weights = [], []
    for k in range(K):
        others = (p.sum(0) - p[k]) / max(K - 1, 1)
        q = []
        for y in range(C):
            rest = np.array(counts, dtype=int)
            rest[y] -= 1
            if rest[y] < 0:
                q.append(torch.zeros((), dtype=p.dtype))
                continue
            coefficient = math.factorial(K - 1) / math.prod(math.factorial(m) for m in rest)
            q.append(p[k, y] * coefficient * torch.prod(others ** torch.tensor(rest)))
        total = torch.stack(q)
        terms.append(total.sum().log())
        weights.append((total / total.sum()).detach().numpy())
    return torch.stack(terms).mean(), np.stack(weights)


def random_bags(
    seed: int, sizes: list[int], C: int, spread: float = 2.0
) -> tuple[torch.Tensor, Bags]:
    """Log-probabilities (not normalized) and bags of random labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(C, (sum(sizes),), generator=generator)
    logits = spread * torch.randn(sum(sizes), C, generator=generator, dtype=torch.float64)
    return logits, Bags.from_labels(labels, sizes, n_classes=C)


def informed_bags(
    seed: int, K: int, n_bags: int, s: float, C: int = 10
) -> tuple[torch.Tensor, Bags]:
    """Logits s * onehot(y) + sqrt(s) * noise: the larger s, the more often they are right."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(C, (K * n_bags,), generator=generator)
    noise = torch.randn(K * n_bags, C, generator=generator, dtype=torch.float64)
    logits = s * torch.nn.functional.one_hot(labels, C) + s**0.5 * noise
    return logits.log_softmax(-1), Bags.from_labels(labels, [K] * n_bags, n_classes=C)


def enumerate_groupings(log_probs: Floats, groupings: Groupings) -> tuple[float, Floats]:
    """log P of all groupings' counts together and the weights, over all labelings of all rows."""
    C = log_probs.shape[1]
    rows = np.repeat(np.arange(len(log_probs)), groupings.copies)
    labels = np.array(list(itertools.product(range(C), repeat=len(rows))))
    scores = log_probs[rows, labels].sum(axis=1)
    for grouping in groupings:
        bags = grouping.bags
        for b in range(len(bags)):
            inside = labels[:, grouping.bag_of_row[rows] == b]
            for c in range(C):
                window = np.zeros(1)
                if bags.potentials is not None:
                    begins = bags.potentials.begins[b * C + c : b * C + c + 2]
                    window = bags.potentials.log_f[begins[0] : begins[1]]
                place = (inside == c).sum(axis=1) - bags.min_counts[b, c]
                possible = (place >= 0) & (place < len(window))
                scores = scores + np.where(
                    possible, window[np.clip(place, 0, len(window) - 1)], -np.inf
                )
    log_likelihood = float(logsumexp(scores))
    share = np.exp(scores - log_likelihood)
    weights = np.zeros_like(log_probs)
    for i, k in enumerate(rows):
        np.add.at(weights[k], labels[:, i], share / groupings.copies[k])
    return log_likelihood, weights
