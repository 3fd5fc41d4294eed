"""Which methods find the true probabilities as bags grow, which lose what, and where they stop.

    python benchmarks/theory.py FOLDER

The truth is P(y|x) = softmax(W x), the model has the same form and is fitted to all bags at once.
How far it is from the truth is measured on fresh x. Each line of FOLDER/runs.csv is one fit; fits
that are there already are not done again, so that a stopped run goes on. At the end theory_page.py
makes table.md and theory.png of what there is.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize

from bagwise import (
    Bags,
    bag_posterior,
    cc_loss,
    cc_squared_loss,
    dllp_loss,
    llpfc_loss,
    pll_cc_loss,
)
from bagwise.losses.multisets import multiset_probabilities
from bagwise.methods.llpfc import transition_matrices
from theory_page import write_page

KEY = ("C", "K", "bags", "seed", "method")
MEASURED = ("l1", "squared", "excess", "bag_excess", "norm", "settled", "cpu_seconds")
CASES = tuple((C, K) for C in (2, 3, 5) for K in (2, 4, 8))
NUMBERS = (200, 800, 3200, 12_800)
SEEDS = range(5)
D = 5  # features, and a constant
FRESH, FRESH_BAGS = 20_000, 2000
TOO_LONG = (5, 8, 12_800)  # for squared error of all counts: a minute a fit
CHUNK = 1600  # bags of squared error at a time, for memory

Array = np.ndarray
Loss = Callable[[torch.Tensor], torch.Tensor]


def features(n: int, rng: np.random.Generator) -> Array:
    """(n, D + 1) uniform numbers of mean 0 and variance 1, and a constant 1."""
    return np.column_stack([rng.uniform(-(3**0.5), 3**0.5, size=(n, D)), np.ones(n)])


def log_softmax(logits: Array) -> Array:
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def true_weights(C: int, seed: int) -> Array:
    """(D + 1, C), whose logits have a standard deviation of about 2; classes sum to 0."""
    W = np.random.default_rng((seed, C)).normal(scale=2 / D**0.5, size=(D + 1, C))
    return W - W.mean(axis=1, keepdims=True)


@dataclass
class Sample:
    """Bags whose instances are drawn independently, with labels from the truth."""

    X: Array
    labels: Array
    bags: Bags

    @classmethod
    def draw(cls, W: Array, K: int, n: int, rng: np.random.Generator) -> Sample:
        """n bags of K."""
        X = features(n * K, rng)
        p = np.exp(log_softmax(X @ W))
        labels = (p.cumsum(axis=1) < rng.random((n * K, 1))).sum(axis=1).clip(max=W.shape[1] - 1)
        bags = Bags.from_labels(torch.tensor(labels), [K] * n, n_classes=W.shape[1])
        return cls(X, labels, bags)


def with_last(theta: Array) -> Array:
    """(D + 1, C) from all classes but the last, which has zeros."""
    return np.column_stack([theta.reshape(D + 1, -1), np.zeros(D + 1)])


def least(loss: Loss, sample: Sample) -> tuple[Array, bool]:
    """The weights where a loss of logits is least, by L-BFGS from zeros."""
    X, C = torch.from_numpy(sample.X), sample.bags.n_classes

    def value(theta: Array) -> tuple[float, Array]:
        W = torch.from_numpy(with_last(theta)).requires_grad_()
        found = loss(X @ W)
        found.backward()
        return found.item(), W.grad[:, :-1].numpy().ravel()

    start = np.zeros((D + 1) * (C - 1))
    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-13, "gtol": 1e-7}
    found = minimize(value, start, jac=True, method="L-BFGS-B", options=options)
    return with_last(found.x), bool(np.abs(found.jac).max() < 1e-4)


def fixed_point(engine: str, sample: Sample, start: Array | None = None) -> tuple[Array, bool]:
    """The weights where stored probabilities no longer change.

    There the gradient X'(w - p) of the cross-entropy against the posterior w of p is zero. From
    the start, or zeros, where w are the proportions, it takes Newton steps on that cross-entropy,
    w being renewed after each, with Anderson acceleration.
    """
    X, bags, C = sample.X, sample.bags, sample.bags.n_classes
    some = X[:: max(len(X) // 4000, 1)]

    def step(theta: Array) -> Array:
        log_p = log_softmax(X @ with_last(theta))
        w = bag_posterior(log_p, bags, engine).weights
        gradient = X.T @ (w - np.exp(log_p))[:, :-1] / len(X)
        p = np.exp(log_softmax(some @ with_last(theta)))[:, :-1]
        outer = some[:, :, None] * some[:, None, :]
        H = -np.einsum("nij,nc,nd->icjd", outer, p, p) / len(some)
        for c in range(C - 1):
            H[:, c, :, c] += np.tensordot(p[:, c], outer, 1) / len(some)
        H = H.reshape(2 * ((D + 1) * (C - 1),))
        return np.linalg.solve(H + 1e-9 * np.eye(len(H)), gradient.ravel())

    theta = np.zeros((D + 1) * (C - 1)) if start is None else start[:, :-1].ravel()
    thetas, steps, plain = [], [], 0
    for _ in range(400):
        f = step(theta)
        if np.abs(f).max() < 1e-6:
            return with_last(theta), True
        if steps and np.linalg.norm(f) > 2 * np.linalg.norm(steps[-1]):
            theta, f = thetas[-1], steps[-1]  # too bold: some plain steps from the last one
            thetas, steps, plain = [], [], 10
        thetas, steps = [*thetas[-6:], theta], [*steps[-6:], f]
        theta = theta + f
        plain -= 1
        if len(steps) > 1 and plain < 0:
            dF = np.diff(steps, axis=0).T
            dX = np.diff(thetas, axis=0).T
            theta = theta - (dX + dF) @ np.linalg.lstsq(dF, f, rcond=1e-8)[0]
    return with_last(theta), False


def supervised(logits: torch.Tensor, sample: Sample) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, torch.from_numpy(sample.labels))


def squared(logits: torch.Tensor, sample: Sample) -> torch.Tensor:
    """Squared error of all counts, some bags at a time: most of the memory is freed between."""
    bags, values = sample.bags, []
    for index in np.array_split(np.arange(len(bags)), -(-len(bags) // CHUNK)):
        values.append(
            torch.utils.checkpoint.checkpoint(
                partial(cc_squared_loss, bags=bags.select(index), reduction="sum"),
                logits[torch.from_numpy(bags.rows(index))],
                use_reentrant=False,
            )
        )
    return torch.stack(values).sum() / len(bags)


def squared_of_true_counts(logits: torch.Tensor, sample: Sample) -> torch.Tensor:
    """(1 - q_S)^2."""
    q = bag_posterior(logits.log_softmax(-1), sample.bags).log_likelihood.exp()
    return (1 - q).square().mean()


def llpfc(sample: Sample) -> Loss:
    """With one random grouping of the bags."""
    bags, C = sample.bags, sample.bags.n_classes
    order = np.random.default_rng(0).permutation(len(bags))[: len(bags) // C * C]
    transitions = transition_matrices(torch.tensor(bags.proportions[order]).reshape(-1, C, C))
    rows = torch.from_numpy(bags.rows(order))
    place = torch.arange(len(order)).repeat_interleave(torch.tensor(bags.sizes[order]))
    return lambda logits: llpfc_loss(logits[rows], place % C, transitions, place // C)


def fitted(method: str, sample: Sample) -> tuple[Array, bool]:
    """The weights by one method, and whether they settled."""
    engines = {"rc": "auto", "rc_approx": "multinomial", "ot": "transport"}
    if method in engines:
        return fixed_point(engines[method], sample)
    if method == "cc_approx_then_rc_approx":
        return fixed_point("multinomial", sample, fitted("cc_approx", sample)[0])
    losses: dict[str, Loss] = {
        "supervised": partial(supervised, sample=sample),
        "cc": partial(cc_loss, bags=sample.bags),
        "cc_approx": partial(cc_loss, bags=sample.bags, engine="multinomial"),
        "dllp": partial(dllp_loss, bags=sample.bags),
        "pll_cc": partial(pll_cc_loss, bags=sample.bags),
        "cc_squared": partial(squared, sample=sample),
        "squared_of_true_counts": partial(squared_of_true_counts, sample=sample),
    }
    return least(llpfc(sample) if method == "llpfc" else losses[method], sample)


METHODS = (
    *("supervised", "cc", "rc", "cc_squared", "dllp", "cc_approx", "rc_approx", "llpfc", "ot"),
    *("squared_of_true_counts", "cc_approx_then_rc_approx", "pll_cc"),
)


def distances(W: Array, found: Array, K: int, rng: np.random.Generator) -> list[float]:
    """L1 and squared distance of P(.|x), excess risk of an instance and of a bag, and the norm."""
    x = features(FRESH, rng)
    log_p, log_f = log_softmax(x @ W), log_softmax(x @ found)
    off = np.exp(log_f) - np.exp(log_p)
    excess = (np.exp(log_p) * (log_p - log_f)).sum(axis=1)
    x = features(FRESH_BAGS * K, rng)
    q, of = (
        multiset_probabilities(torch.from_numpy(np.exp(log_softmax(x @ w))).view(-1, K, W.shape[1]))
        for w in (W, found)
    )
    bag_excess = (q * (q.clamp(min=1e-300).log() - of.clamp(min=1e-300).log())).sum(1)
    norm = np.linalg.norm(found - found.mean(axis=1, keepdims=True), axis=0).max()
    means = (np.abs(off).sum(axis=1), (off**2).sum(axis=1), excess, bag_excess.numpy())
    return [*(float(values.mean()) for values in means), float(norm)]


def cases() -> Iterator[tuple[int, int, int, int]]:
    """(C, K, bags, seed), one seed after the other."""
    for seed in SEEDS:
        for C, K in CASES:
            for n in NUMBERS:
                yield C, K, n, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.csv"
    if not path.exists():
        path.write_text(",".join(KEY + MEASURED) + "\n")
    with path.open() as file:
        done = {tuple(row[field] for field in KEY) for row in csv.DictReader(file)}
    torch.set_num_threads(1)
    for C, K, n, seed in cases():
        missing = [m for m in METHODS if (*map(str, (C, K, n, seed)), m) not in done]
        if (C, K, n) == TOO_LONG and "cc_squared" in missing:
            missing.remove("cc_squared")
        if not missing:
            continue
        W = true_weights(C, seed)
        sample = Sample.draw(W, K, n, np.random.default_rng((seed, C, K, n)))
        for method in missing:
            started = time.process_time()
            found, settled = fitted(method, sample)
            seconds = time.process_time() - started
            values = distances(W, found, K, np.random.default_rng((seed, 1)))
            line = [C, K, n, seed, method, *(f"{v:.6g}" for v in values), settled]
            with path.open("a") as file:
                csv.writer(file, lineterminator="\n").writerow([*line, f"{seconds:.2f}"])
            print(*line, f"{seconds:.2f}", flush=True)
    norms = {
        (C, seed): float(np.linalg.norm(true_weights(C, seed), axis=0).max())
        for C in {C for C, _ in CASES}
        for seed in SEEDS
    }
    write_page(folder, norms)


if __name__ == "__main__":
    main()
