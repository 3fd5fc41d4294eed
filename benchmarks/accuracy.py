"""How far each engine's posterior is from the exact one, on generated bags.

Labels are uniform over 10 classes, logits are s * onehot(y) + sqrt(s) * N(0, 1): s tells how well
informed the classifier is. Shown is the mean L1 distance of an instance's weights to the exact
weights, and for bethe also the largest error of the log-likelihood, in nats. The second table
compares what bethe returns as a gradient, its weights, with the derivative of its corrected value
(by central differences), and both with the exact gradient. With --potentials, counts that are not
exact: discrete Laplace noise of some scales, ranges of one more or less, and cells under 3 hidden.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bagwise import Bags, DiscreteLaplace, bag_posterior
from common import table

ENGINES = {
    "multinomial (paper)": {"engine": "multinomial"},
    "transport": {"engine": "transport"},
    "bethe, plain": {"engine": "bethe", "correction": False},
    "bethe": {"engine": "bethe"},
    "auto": {"engine": "auto"},
}
SOFT_BAGS = {(8, 3): 60, (16, 3): 60, (32, 3): 30, (64, 3): 8, (8, 6): 40, (16, 5): 15}
SCALES = (0.3, 1.0, 3.0)
STRENGTHS = (0.3, 1.0, 2.0, 4.0, 8.0)
BAGS = {8: 200, 16: 100, 32: 12}
COLUMNS = ("K", "s", *ENGINES, "bethe: worst log P error")


def generated(K: int, n_bags: int, s: float, C: int = 10) -> tuple[torch.Tensor, Bags]:
    labels = torch.randint(C, (K * n_bags,))
    logits = s * torch.nn.functional.one_hot(labels, C) + s**0.5 * torch.randn(len(labels), C)
    return logits.double().log_softmax(-1), Bags.from_labels(labels, [K] * n_bags, n_classes=C)


def soft(bags: Bags) -> dict[str, Bags]:
    """The same bags, known less well."""
    rng = np.random.default_rng(0)
    found = {"exact counts": bags}
    for scale in SCALES:
        stop = 1 - np.exp(-1 / scale)
        noise = rng.geometric(stop, bags.counts.shape) - rng.geometric(stop, bags.counts.shape)
        noisy = Bags.from_noisy_counts(bags.counts + noise, bags.sizes, DiscreteLaplace(scale))
        found[f"noise of scale {scale:g}"] = noisy
    n = bags.counts
    found["one more or less"] = Bags.from_ranges(np.maximum(n - 1, 0), n + 1, bags.sizes)
    hidden = (n > 0) & (n < 3)
    low, high = np.where(hidden, 1, n), np.where(hidden, 2, n)
    found["cells under 3 hidden"] = Bags.from_ranges(low, high, bags.sizes)
    return found


def compare_potentials(console: Console) -> None:
    names = list(soft(Bags([1], [[1, 0]])))
    shown = Table(title="bethe: mean L1 distance of weights / mean error of log P, mean over s")
    for name in ("K", "C", "correction", *names):
        shown.add_column(name, justify="right")
    for (K, C), n_bags in track(SOFT_BAGS.items(), description="potentials", transient=True):
        torch.manual_seed(0)
        errors = np.zeros((2, len(names), 2))
        for s in STRENGTHS:
            log_probs, bags = generated(K, n_bags, s, C)
            for i, known in enumerate(soft(bags).values()):
                exact = bag_posterior(log_probs, known, "exact", max_states=2**26)
                for j, correction in enumerate((False, True)):
                    post = bag_posterior(log_probs, known, "bethe", correction=correction)
                    distance = (post.weights - exact.weights).abs().sum(1).mean().item()
                    error = (post.log_likelihood - exact.log_likelihood).abs().mean().item()
                    errors[j, i] += np.array([distance, error]) / len(STRENGTHS)
        for j, name in enumerate(("no", "yes")):
            cells = (f"{d:.4f} / {e:.3f}" for d, e in errors[j])
            shown.add_row(str(K), str(C), name, *cells, end_section=j == 1)
    console.print(shown)


def gradient_of_value(log_probs: torch.Tensor, bags: Bags, h: float = 1e-3) -> torch.Tensor:
    """The derivative of bethe's corrected value of one bag, by central differences."""
    steps = h * torch.eye(log_probs.numel(), dtype=log_probs.dtype).reshape(-1, *log_probs.shape)
    moved = torch.cat([log_probs + steps, log_probs - steps])
    copies = bags.select([0] * len(moved))
    options = {"engine": "bethe", "tolerance": 1e-10, "max_iterations": 10_000}
    up, down = bag_posterior(moved.flatten(0, 1), copies, **options).log_likelihood.chunk(2)
    return ((up - down) / (2 * h)).reshape(log_probs.shape)


def compare_gradients(console: Console) -> None:
    shown = Table(title="Mean L1 distance of an instance's gradient of bethe's log-likelihood")
    for name in ("K", "weights to value's", "weights to exact", "value's to exact"):
        shown.add_column(name, justify="right")
    torch.manual_seed(0)
    for K in BAGS:
        distances = []
        for s in STRENGTHS:
            log_probs, bags = generated(K, 2, s)
            for b in range(2):
                rows, one = log_probs[b * K : (b + 1) * K], bags.select([b])
                value = gradient_of_value(rows, one)
                weights = bag_posterior(rows, one, engine="bethe").weights
                exact = bag_posterior(rows, one, engine="exact").weights
                pairs = ((weights, value), (weights, exact), (value, exact))
                distances.append([(x - y).abs().sum(1).mean().item() for x, y in pairs])
        shown.add_row(str(K), *(f"{d:.4f}" for d in torch.tensor(distances).mean(0).tolist()))
    console.print(shown)


def distances(tiny: bool) -> Iterator[tuple[str, ...]]:
    """K, s, each engine's mean L1 distance, and bethe's worst error of log P."""
    torch.manual_seed(0)
    cells = [(K, s) for K in BAGS for s in STRENGTHS]
    for K, s in cells[:1] if tiny else cells:
        log_probs, bags = generated(K, 2 if tiny else BAGS[K], s)
        exact = bag_posterior(log_probs, bags, engine="exact")
        found = [bag_posterior(log_probs, bags, **options) for options in ENGINES.values()]
        off = [(post.weights - exact.weights).abs().sum(1).mean().item() for post in found]
        worst = (found[-2].log_likelihood - exact.log_likelihood).abs().max().item()
        yield (str(K), f"{s:g}", *(f"{d:.4f}" for d in off), f"{worst:.2f}")


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    return (
        "## How far from exact\n\nMean L1 distance of an instance's weights to the exact ones, and "
        "the worst error of bethe's log P, in\nnats; 10 classes, log-probabilities s onehot(y) + "
        "sqrt(s) N(0, 1), normalized. Bags of `auto` that are\nnot computed exactly are those of "
        "`bethe`.\n\n" + table(COLUMNS, distances(tiny))
    )


def main() -> None:
    console = Console()
    if "--potentials" in sys.argv[1:]:
        compare_potentials(console)
        return
    rows = list(distances(tiny=False))
    shown = Table(title="Mean L1 distance of an instance's weights to the exact posterior")
    for name in COLUMNS:
        shown.add_column(name, justify="right")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        shown.add_row(*row, end_section=following is None or following[0] != row[0])
    console.print(shown)
    compare_gradients(console)


if __name__ == "__main__":
    main()
