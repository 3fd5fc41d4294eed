"""Bagwise's losses beside those that people would use instead, written out in PyTorch.

A step is the perceptron 784-300-300-300-300-10 on 256 instances in bags of K: forward pass, loss,
backward pass, Adam. All losses take turns, in one thread, and CPU time is counted.

python benchmarks/page.py --only losses --out losses.md
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from bagwise import Bags, cc_loss, dllp_loss, pvc_loss, rc_loss
from bagwise.networks import mlp
from common import digits, generated, picture, table

C, INSTANCES = 10, 256
SIZES = (16, 64, 128)
Loss = Callable[[torch.Tensor, Bags], torch.Tensor]


class StoredRC:
    """`rc_loss` with what the model last said of the same rows; at first, the bag's shares."""

    def __init__(self) -> None:
        self.stored: torch.Tensor | None = None

    def __call__(self, logits: torch.Tensor, bags: Bags) -> torch.Tensor:
        """As RC trains: the current probabilities replace those that are stored."""
        if self.stored is None:
            self.stored = torch.tensor(bags.proportions).to(logits).log()[bags.bag_of_row]
        loss = rc_loss(logits, bags, self.stored)
        self.stored = logits.detach().log_softmax(-1)
        return loss


def in_bags(logits: torch.Tensor, bags: Bags) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, K, C) probabilities and (B, C) counts of bags of one size."""
    probs = logits.softmax(-1).reshape(len(bags), -1, logits.shape[1])
    return probs, torch.tensor(bags.counts).to(logits)


def pvc_by_fft(logits: torch.Tensor, bags: Bags) -> torch.Tensor:
    """-sum_c log P(S_c = n_c) / K: each count is Poisson binomial, and its probability a term of
    the discrete Fourier transform of prod_k (1 - p_k + p_k e^(2 pi i t / (K + 1))).
    """
    probs, counts = in_bags(logits, bags)
    K = probs.shape[1]
    angles = 2 * torch.pi / (K + 1) * torch.arange(K + 1, dtype=probs.dtype)
    roots = torch.polar(torch.ones_like(angles), angles)[:, None, None]
    characteristic = (1 + probs[:, None] * (roots - 1)).prod(2)  # (B, K + 1, C)
    distribution = torch.fft.fft(characteristic, dim=1).real / (K + 1)
    found = distribution.gather(1, counts.long()[:, None])
    return -found.clamp(min=1e-12).log().sum() / len(logits)


def three_moments(logits: torch.Tensor, bags: Bags) -> torch.Tensor:
    """sum_r sum_c (E[(S_c / K)^r] - (n_c / K)^r)^2, r = 1, 2, 3, the mean over bags."""
    probs, counts = in_bags(logits, bags)
    K = probs.shape[1]
    mean, spread = probs.sum(1), probs * (1 - probs)
    variance, third = spread.sum(1), (spread * (1 - 2 * probs)).sum(1)
    moments = (mean, mean**2 + variance, mean**3 + 3 * mean * variance + third)
    errors = [((moment - counts**r) / K**r).square() for r, moment in enumerate(moments, 1)]
    return torch.stack(errors).sum((0, 2)).mean()


def plain_dllp(logits: torch.Tensor, bags: Bags) -> torch.Tensor:
    """Cross-entropy of the shares of a bag and its mean probabilities."""
    probs, counts = in_bags(logits, bags)
    return -(counts / probs.shape[1] * probs.mean(1).clamp(min=1e-30).log()).sum(-1).mean()


def llp_learn() -> Loss:
    """The loss of `llp_learn.dllp.DLLP`, which takes one bag."""
    if "torchvision" not in sys.modules:  # it asks for a network that is not used here
        models = types.ModuleType("torchvision.models")
        models.resnet18 = None
        sys.modules |= {"torchvision": types.ModuleType("torchvision"), models.__name__: models}
    from llp_learn.dllp._classes import KLLossLLP

    of_bag = KLLossLLP()

    def loss(logits: torch.Tensor, bags: Bags) -> torch.Tensor:
        shares = torch.tensor(bags.proportions).to(logits)
        parts = logits.split(bags.sizes.tolist())
        losses = [of_bag(part, own) for part, own in zip(parts, shares, strict=True)]
        return torch.stack(losses).mean()

    return loss


def losses() -> dict[str, Callable[[], Loss]]:
    """What makes each loss: RC begins anew with each model."""
    found: dict[str, Callable[[], Loss]] = {
        "`cc_loss`": lambda: cc_loss,
        "`rc_loss`": StoredRC,
        "`dllp_loss`": lambda: dllp_loss,
        "PVC by FFT": lambda: pvc_by_fft,
        "3 moments": lambda: three_moments,
        "plain DLLP": lambda: plain_dllp,
    }
    try:
        theirs = llp_learn()
    except ModuleNotFoundError:
        return found
    return found | {"llp-learn's DLLP": lambda: theirs}


def step(model: nn.Module, inputs: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor]):
    """What is timed: a step of training."""
    optimizer = torch.optim.Adam(model.parameters())

    def run() -> None:
        optimizer.zero_grad()
        loss(model(inputs)).backward()
        optimizer.step()

    return run


def alone(logits: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor]):
    """What is timed: the loss alone, forwards and backwards."""
    leaf = logits.clone().requires_grad_()

    def run() -> None:
        leaf.grad = None
        loss(leaf).backward()

    return run


def processor_times(
    calls: list[Callable[[], None]], rounds: int, repeats: int
) -> list[list[float]]:
    """CPU milliseconds of each call in each round, after a round that warms up."""
    found = []
    for _ in range(1 + rounds):
        row = []
        for call in calls:
            started = time.process_time()
            for _ in range(repeats):
                call()
            row.append(1e3 * (time.process_time() - started) / repeats)
        found.append(row)
    return found[1:]


def timed(K: int, tiny: bool) -> list[tuple[str, float, float]]:
    """Of each loss: CPU milliseconds alone, and its step by that of a supervised one."""
    rounds, repeats = (1, 1) if tiny else (7, 8)
    torch.manual_seed(K)
    logits, bags = generated([K] * (INSTANCES // K), C)
    labels, inputs = torch.randint(C, (INSTANCES,)), torch.randn(INSTANCES, 784)
    made = {name: make() for name, make in losses().items()}
    of_bags = [lambda x, loss=loss: loss(x, bags) for loss in made.values()]
    every = [lambda x: cross_entropy(x, labels), *of_bags]
    steps = processor_times([step(mlp((784,), C), inputs, x) for x in every], rounds, repeats)
    alones = processor_times([alone(logits, x) for x in of_bags], rounds, repeats)
    return [
        (
            name,
            statistics.median(row[i] for row in alones),
            statistics.median(row[i + 1] / row[0] for row in steps),
        )
        for i, name in enumerate(made)
    ]


def accuracy(make: Callable[[], Loss], K: int, seed: int, epochs: int) -> float:
    """On 297 digits, after training on bags of the others, all of a batch's bags at once."""
    images, targets = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    inputs, labels = torch.tensor(images).float()[order] / 16, torch.tensor(targets)[order]
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rows = torch.arange(1500 // K * K).split(INSTANCES // K * K)
    batches = [
        (inputs[index], Bags.from_labels(labels[index], [K] * (len(index) // K), n_classes=C))
        for index in rows
    ]
    of_batch = [make() for _ in batches]  # each remembers its own rows
    for _ in range(epochs):
        for (x, bags), loss in zip(batches, of_batch, strict=True):
            optimizer.zero_grad()
            loss(model(x), bags).backward()
            optimizer.step()
    with torch.no_grad():
        return float((model(inputs[1500:]).argmax(-1) == labels[1500:]).float().mean())


def same_as_ours(K: int) -> float:
    """The largest difference of PVC and DLLP, as written here, to Bagwise's own."""
    logits, bags = generated([K] * 4, C)
    pairs = ((pvc_by_fft, pvc_loss), (plain_dllp, dllp_loss))
    return max(
        abs(float(theirs(logits.double(), bags)) - float(ours(logits.double(), bags)))
        for theirs, ours in pairs
    )


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    sizes, seeds, epochs = ((4,), 1, 1) if tiny else (SIZES, 3, 60)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {K: timed(K, tiny) for K in sizes}
        right = {
            (K, name): statistics.mean(accuracy(make, K, seed, epochs) for seed in range(seeds))
            for K, (name, make) in itertools.product(sizes, losses().items())
        }
    finally:
        torch.set_num_threads(threads)
    lines: dict[str, list[tuple[float, float]]] = {}
    for K, rows in found.items():
        for name, _, ratio in rows:
            lines.setdefault(name.strip("`"), []).append((K, ratio))
    cells = (
        (K, name, digits(ms), f"{ratio:.2f}", f"{100 * right[K, name]:.1f}")
        for K, rows in found.items()
        for name, ms, ratio in rows
    )
    columns = ("K", "loss", "loss alone, CPU ms", "step / supervised step", "accuracy, %")
    missing = "" if "llp-learn's DLLP" in lines else (
        "\nllp-learn is not installed; `pip install --no-deps llp-learn` is enough to measure it.\n"
    )  # fmt: skip
    return (
        "## Other losses\n\nWhat people would use instead, written out in PyTorch "
        "(`benchmarks/losses.py` has each in a few lines):\n\n"
        "- PVC by FFT: the probability of each class's count apart, from its characteristic "
        "function;\n- 3 moments: the first three moments of each count;\n- plain DLLP: mean "
        "probabilities against shares;\n- [llp-learn](https://pypi.org/project/llp-learn) 1.6.0: "
        "the loss of its DLLP, which averages log-probabilities, and takes\n  one bag at a time. "
        "It asks for versions of PyTorch and numpy from 2023, and is installed without them.\n\n"
        f"{INSTANCES} instances of {C} classes in bags of K, single precision, one thread. The "
        "loss alone is forwards and backwards on given\nlogits. A step is that of the perceptron "
        "784-300-300-300-300-10 with Adam, by CPU time, as a multiple of a supervised\nstep; "
        "medians of rounds in which all take turns. Accuracy: scikit-learn's digits, a perceptron "
        "64-300-10, Adam with a rate of .001,\n"
        f"{epochs} epochs of 1,500 digits, 297 for the test, mean of {seeds} seeds; the same for "
        "all losses, tuned for none.\n\n"
        + picture(
            pictures / "losses.png",
            lines,
            ("instances of a bag, K", "CPU time / that of a supervised step"),
            "A training step with other losses",
            at_most=1.0,
            log="x",
        )
        + "\n"
        + table(columns, cells)
        + missing
        + "\nPVC and DLLP, as they are written out, differ from `pvc_loss` and `dllp_loss` by "
        f"{max(same_as_ours(K) for K in sizes):.0e} at most, in double precision.\n"
    )
