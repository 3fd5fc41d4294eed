"""Time and memory of the engines.

The first table gives the time of one posterior of 256 instances and 10 classes as a multiple of one
supervised training step (forward, backward, Adam) of the perceptron 784-300-300-300-300-10 on 256
instances. Both are timed in turn, in the same run; the table shows the median ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from bagwise import Bags, bag_posterior
from bagwise.posterior import lattice_states

console = Console()


def seconds(function: Callable[[], object], at_least: float = 0.05) -> float:
    """Mean time of a call, over calls that together take `at_least` seconds."""
    calls, start = 0, time.perf_counter()
    while True:
        function()
        calls += 1
        elapsed = time.perf_counter() - start
        if elapsed > at_least:
            return elapsed / calls


def supervised_step() -> Callable[[], None]:
    widths = [784, 300, 300, 300, 300]
    layers: list[torch.nn.Module] = []
    for d_in, d_out in pairwise(widths):
        layers += [torch.nn.Linear(d_in, d_out), torch.nn.BatchNorm1d(d_out), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(300, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    inputs, labels = torch.randn(256, 784), torch.randint(10, (256,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


def generated(sizes: list[int], C: int, s: float = 2.0) -> tuple[torch.Tensor, Bags]:
    labels = torch.randint(C, (sum(sizes),))
    noise = torch.randn(len(labels), C)
    logits = s * torch.nn.functional.one_hot(labels, C) + s**0.5 * noise
    return logits.log_softmax(-1), Bags.from_labels(labels, sizes, n_classes=C)


def against_a_training_step() -> None:
    targets = {
        ("exact", 2): 0.05,
        ("exact", 4): 0.05,
        ("exact", 8): 0.05,
        ("exact", 16): 0.3,
        ("exact", 32): 20,
        ("bethe", 16): None,
        ("bethe", 32): None,
        ("bethe", 64): 0.5,
        ("bethe", 128): 0.5,
        ("bethe", 256): None,
        ("multinomial", 64): None,
        ("transport", 64): None,
        ("auto", 32): None,
    }
    step = supervised_step()
    step()
    table = Table(title="256 instances, 10 classes: time of a posterior / time of a training step")
    for name in ("engine", "K", "ratio", "at most", "ms", "ms a step"):
        table.add_column(name, justify="right")
    for (engine, K), most in targets.items():
        log_probs, bags = generated([K] * (256 // K), 10)

        def posterior(log_probs=log_probs, bags=bags, engine=engine) -> None:
            bag_posterior(log_probs, bags, engine=engine)

        posterior()
        rounds = [(seconds(posterior), seconds(step)) for _ in range(9)]
        ratio = statistics.median(a / b for a, b in rounds)
        own, steps = (statistics.median(times) * 1e3 for times in zip(*rounds, strict=True))
        met = "" if most is None else f"{most:g} {'' if ratio <= most else 'MISSED'}"
        table.add_row(engine, str(K), f"{ratio:.3f}", met, f"{own:.2f}", f"{steps:.1f}")
    console.print(table)


def growth() -> None:
    table = Table(title="Growth: one bag, milliseconds and memory beyond a small bag's")
    for name in ("engine", "C", "K", "states", "ms", "MB"):
        table.add_column(name, justify="right")
    cases = [("exact", 2, K) for K in (100, 1000, 4000)]
    cases += [("exact", 3, K) for K in (30, 100, 300)]
    cases += [("exact", 10, 32)]
    cases += [("bethe", 10, K) for K in (64, 256, 1024, 4096)]
    cases += [("bethe", C, 256) for C in (2, 30, 100, 1000)]
    cases += [("auto", 2, 10**k) for k in (3, 4, 5, 6)]
    cases += [("auto", 10, 10_000), ("auto", 10, 100_000)]
    for engine, C, K in cases:
        out = subprocess.run(
            [sys.executable, __file__, "--one", engine, str(C), str(K)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        states = f"{float(out[0]):.2e}" if engine == "exact" else ""
        table.add_row(engine, str(C), str(K), states, f"{float(out[1]):.1f}", out[2])
    console.print(table)


def one(engine: str, C: int, K: int) -> None:
    """Print states, milliseconds and megabytes of one call, alone in its process.

    At C = 10 and K = 32 the call has 8 bags, as in the first table: the memory is that of a batch.
    """
    torch.manual_seed(0)
    log_probs, bags = generated([5], C)
    bag_posterior(log_probs, bags, engine=engine)
    before = peak_memory(reset=True)
    log_probs, bags = generated([K] * (8 if K == 32 else 1), C)

    def posterior() -> None:
        bag_posterior(log_probs, bags, engine=engine, **options)

    options = {"max_states": 2**27} if engine == "exact" else {}
    posterior()
    took = statistics.median(seconds(posterior, 0.02) for _ in range(3))
    print(lattice_states(bags).max(), took * 1e3, round(peak_memory() - before))


def peak_memory(reset: bool = False) -> float:
    """Largest resident size of this process so far, in MB (Linux), or since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 1000


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        torch.manual_seed(0)
        against_a_training_step()
        growth()
