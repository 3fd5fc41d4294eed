"""Other software on the same problems, in the same run: POT, thewalrus, enumeration of labelings.

Each row has the time of both and the largest difference of their answers:

python benchmarks/page.py --only others --out others.md
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bagwise import Bags, bag_posterior, cc_loss
from common import digits, generated, picture, seconds, table

INSTANCES = 256
CLASSES = 10
Row = tuple[int, float, float, float]  # K, milliseconds of both, largest difference


def against(
    sizes: tuple[int, ...],
    ours: Callable[[torch.Tensor, Bags], np.ndarray],
    theirs: Callable[[torch.Tensor, Bags], Callable[[], np.ndarray]],
    instances: int = INSTANCES,
) -> list[Row]:
    """Both on the same bags; `theirs` prepares what it may and returns what is timed."""
    rows = []
    for K in sizes:
        torch.manual_seed(K)
        log_probs, bags = generated([K] * max(instances // K, 1), CLASSES)
        log_probs = log_probs.double()
        other = theirs(log_probs, bags)
        difference = float(np.abs(ours(log_probs, bags) - other()).max())

        def own(log_probs=log_probs, bags=bags) -> np.ndarray:
            return ours(log_probs, bags)

        rows.append((K, 1e3 * seconds(own), 1e3 * seconds(other), difference))
    return rows


def sinkhorn(log_probs: torch.Tensor, bags: Bags) -> Callable[[], np.ndarray]:
    """Weights of `transport` by POT: epsilon 1, 75 iterations, in the domain of logarithms."""
    import ot

    parts = np.split(log_probs.numpy(), bags.offsets[1:-1])

    def plans() -> np.ndarray:
        found = np.zeros(log_probs.shape)
        for b, part in enumerate(parts):
            present = np.flatnonzero(bags.counts[b])
            found[bags.offsets[b] : bags.offsets[b + 1], present] = ot.sinkhorn(
                np.ones(len(part)),
                bags.counts[b, present].astype(float),
                -part[:, present],
                1.0,
                method="sinkhorn_log",
                numItermax=75,
                stopThr=0,
                warn=False,
            )
        return found

    return plans


def permanents(log_probs: torch.Tensor, bags: Bags) -> Callable[[], np.ndarray]:
    """Weights by permanents: w[k, c] = p[k, c] n_c per(without row k, one column c) / per(all)."""
    from thewalrus import perm

    parts = np.split(log_probs.exp().numpy(), bags.offsets[1:-1])

    def weights() -> np.ndarray:
        found = np.zeros(log_probs.shape)
        for b, p in enumerate(parts):
            labels = np.repeat(np.arange(CLASSES), bags.counts[b])
            whole = perm(p[:, labels])
            for c in np.flatnonzero(bags.counts[b]):
                others = np.delete(labels, np.argmax(labels == c))
                for k in range(len(p)):
                    rest = perm(np.delete(p, k, axis=0)[:, others])
                    share = p[k, c] * bags.counts[b, c] * rest / whole
                    found[bags.offsets[b] + k, c] = share
        return found

    return weights


def labelings(counts: np.ndarray) -> torch.Tensor:
    """(L, K) every labeling that has these counts."""

    def rest(left: list[int], length: int) -> list[list[int]]:
        if length == 0:
            return [[]]
        found = []
        for c, n in enumerate(left):
            if n:
                fewer = [*left[:c], n - 1, *left[c + 1 :]]
                found += [[c, *tail] for tail in rest(fewer, length - 1)]
        return found

    return torch.tensor(rest(counts.tolist(), int(counts.sum())))


def enumeration(log_probs: torch.Tensor, bags: Bags) -> Callable[[], np.ndarray]:
    """The gradient of CC as the paper writes it: a sum over all labelings, listed beforehand."""
    listed = [labelings(counts) for counts in bags.counts]
    logits = log_probs.clone().requires_grad_()

    def gradient() -> np.ndarray:
        log_p = logits.log_softmax(-1)
        loss = log_p.new_zeros(())
        for (begin, end), of_bag in zip(itertools.pairwise(bags.offsets), listed, strict=True):
            rows = torch.arange(end - begin)
            loss = loss - log_p[begin:end][rows, of_bag].sum(1).logsumexp(0)
        (found,) = torch.autograd.grad(loss / len(log_p), logits)
        return found.numpy()

    return gradient


def own_gradient(log_probs: torch.Tensor, bags: Bags) -> np.ndarray:
    logits = log_probs.clone().requires_grad_()
    (found,) = torch.autograd.grad(cc_loss(logits, bags), logits)
    return found.numpy()


def own_weights(engine: str) -> Callable[[torch.Tensor, Bags], np.ndarray]:
    return lambda log_probs, bags: bag_posterior(log_probs, bags, engine).weights.numpy()


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    cases = (
        ("POT's Sinkhorn", (4,) if tiny else (8, 16, 64, 256), own_weights("transport"), sinkhorn),
        ("permanents by thewalrus", (3,) if tiny else (4, 8, 12), own_weights("exact"), permanents),
        ("all labelings, listed", (3,) if tiny else (2, 4, 6, 8), own_gradient, enumeration),
    )
    text = {
        "POT's Sinkhorn": "The weights of OT (`transport`) and [POT](https://pythonot.github.io)'s "
        "`ot.sinkhorn`, epsilon 1,\n75 iterations:",
        "permanents by thewalrus": "Exact weights (`exact`) and permanents by "
        "[thewalrus](https://the-walrus.readthedocs.io), one for each\ninstance and class:",
        "all labelings, listed": "The gradient of CC, and the same by adding up all labelings of a "
        "bag, as the paper writes it\n(the labelings are listed beforehand, each once). RC's "
        "weights are the same sums:",
    }
    parts, lines = [], {}
    for name, sizes, ours, theirs in cases:
        try:
            rows = against(sizes, ours, theirs, 8 if tiny else INSTANCES)
        except ModuleNotFoundError as missing:
            parts.append(f"{text[name]} not measured: {missing.name} is not installed.\n")
            continue
        lines[name] = [(K, other / own) for K, own, other, _ in rows]
        cells = ((K, digits(a), digits(b), digits(b / a), f"{d:.0e}") for K, a, b, d in rows)
        columns = ("K", "Bagwise, ms", f"{name}, ms", "times as long", "largest difference")
        parts.append(f"{text[name]}\n\n{table(columns, cells)}")
    shown = ""
    if lines:
        shown = picture(
            pictures / "others.png",
            lines,
            ("instances of a bag, K", "time / Bagwise's time"),
            f"Other software, {CLASSES} classes",
            at_most=1.0,
        )
    return (
        f"## Other software\n\n{INSTANCES} instances of {CLASSES} classes, double precision.\n\n"
        f"{shown}\n" + "\n".join(parts) + "\nA bag of 8 has up to 40,320 labelings.\n"
    )
