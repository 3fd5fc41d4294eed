"""Time and memory of the engines.

The first table gives the time of one posterior of 256 instances and 10 classes as a multiple of one
supervised training step (forward, backward, Adam) of the perceptron 784-300-300-300-300-10 on 256
instances. Both are timed in turn, in the same run; the table shows the median ratio. The second
gives time and memory of one bag, by its size and classes, each in a process of its own.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch

from bagwise import bag_posterior
from bagwise.posterior import lattice_states
from common import digits, generated, picture, seconds, table

AT_MOST = {
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
    ("auto", 64): None,
}
GROWTH = [
    *(("exact", 2, K) for K in (100, 1000, 4000)),
    *(("exact", 3, K) for K in (30, 100, 300)),
    ("exact", 4, 60),
    ("exact", 10, 16),
    ("exact", 10, 32),
    *(("bethe", 10, K) for K in (64, 256, 1024, 4096)),
    *(("bethe", C, 256) for C in (2, 30, 100, 1000)),
    *(("auto", 2, 10**k) for k in (3, 4, 5, 6)),
    ("auto", 3, 10_000),
    *(("auto", 10, K) for K in (1000, 10_000, 100_000)),
]
TINY = ("auto", 2, 100)
OPTIONS = {"exact": {"max_states": 2**27}}


class Ratio(NamedTuple):
    """A posterior of 256 instances of 10 classes, and a supervised training step."""

    engine: str
    K: int
    ratio: float
    milliseconds: float
    step: float
    met: str


class Cost(NamedTuple):
    """One bag: milliseconds, and megabytes beyond those of a small bag."""

    engine: str
    C: int
    K: int
    states: str
    milliseconds: float
    megabytes: float


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


def ratios(tiny: bool) -> Iterator[Ratio]:
    torch.manual_seed(0)
    step = supervised_step()
    step()
    for engine, K in list(AT_MOST)[: 1 if tiny else None]:
        log_probs, bags = generated([K] * (256 // K), 10)

        def posterior(log_probs=log_probs, bags=bags, engine=engine) -> None:
            bag_posterior(log_probs, bags, engine=engine)

        posterior()
        times = [(seconds(posterior), seconds(step)) for _ in range(1 if tiny else 9)]
        ratio = statistics.median(a / b for a, b in times)
        own, whole = (statistics.median(x) * 1e3 for x in zip(*times, strict=True))
        most = AT_MOST[engine, K]
        met = "" if most is None else f"{most:g}{'' if ratio <= most else ' MISSED'}"
        yield Ratio(engine, K, ratio, own, whole, met)


def growth(tiny: bool) -> Iterator[Cost]:
    wanted = [TINY] if tiny else GROWTH
    for engine, C, K in wanted:  # here, so that no process below has to compile a kernel
        bag_posterior(*generated([K], C), engine=engine, **OPTIONS.get(engine, {}))
    for engine, C, K in wanted:
        out = subprocess.run(
            [sys.executable, __file__, "--one", engine, str(C), str(K)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        states = f"{float(out[0]):.2e}" if engine == "exact" else ""
        yield Cost(engine, C, K, states, float(out[1]), float(out[2]))


def one(engine: str, C: int, K: int) -> None:
    """Print states, milliseconds and megabytes of one call, alone in its process."""
    torch.manual_seed(0)
    log_probs, bags = generated([5], C)
    bag_posterior(log_probs, bags, engine=engine)
    before = peak_memory(reset=True)
    log_probs, bags = generated([K], C)

    def posterior() -> None:
        bag_posterior(log_probs, bags, engine=engine, **OPTIONS.get(engine, {}))

    posterior()
    took = statistics.median(seconds(posterior, 0.02) for _ in range(3))
    print(lattice_states(bags).max(), took * 1e3, round(peak_memory() - before))


def peak_memory(reset: bool = False) -> float:
    """Largest resident size of this process so far, in MB (Linux), or since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 1000


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    of_steps = table(
        ("engine", "K", "ratio", "at most", "ms", "ms a step"),
        (
            (x.engine, x.K, f"{x.ratio:.3f}", x.met, f"{x.milliseconds:.2f}", f"{x.step:.1f}")
            for x in ratios(tiny)
        ),
    )
    costs = list(growth(tiny))
    lines: dict[str, list[tuple[float, float]]] = {}
    for x in costs:
        lines.setdefault(f"{x.engine}, C = {x.C}", []).append((x.K, x.milliseconds))
    lines = {name: points for name, points in lines.items() if len(points) > 1 or tiny}
    of_bags = table(
        ("engine", "C", "K", "states", "ms", "MB"),
        ((*x[:4], digits(x.milliseconds), f"{x.megabytes:.0f}") for x in costs),
    )
    return (
        "## Engines\n\nA posterior of 256 instances and 10 classes, as a multiple of a supervised "
        f"training step on them:\n\n{of_steps}\n"
        "One bag, with log-probabilities 2 onehot(y) + sqrt(2) N(0, 1), normalized; memory is what "
        "a call\nneeds beyond a bag of five, log-probabilities and answer included:\n\n"
        + picture(
            pictures / "engines.png",
            lines,
            ("instances of a bag, K", "milliseconds"),
            "The posterior of one bag",
        )
        + f"\n{of_bags}"
    )


def main() -> None:
    print("256 instances, 10 classes: time of a posterior / time of a training step")
    for x in ratios(tiny=False):
        print(f"{x.engine:>12} {x.K:4} {x.ratio:8.3f} {x.milliseconds:9.2f} ms {x.met}", flush=True)
    print("One bag: engine, classes, instances, milliseconds, megabytes beyond a small bag's")
    for y in growth(tiny=False):
        print(
            f"{y.engine:>12} {y.C:5} {y.K:8} {y.milliseconds:10.1f} {y.megabytes:7.0f}", flush=True
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
