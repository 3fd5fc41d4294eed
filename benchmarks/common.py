"""What the benchmarks share: generated bags, timing, tables and pictures of docs/benchmarks.md."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch

from bagwise import Bags

# Okabe and Ito's colors, which color-blind readers tell apart; markers differ as well.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
PACKAGES = ("torch", "numpy", "numba", "scipy", "pyarrow", "POT", "thewalrus")


def generated(sizes: Sequence[int], C: int, s: float = 2.0) -> tuple[torch.Tensor, Bags]:
    """Log-probabilities s * onehot(y) + sqrt(s) * N(0, 1), normalized, and the bags of the y."""
    labels = torch.randint(C, (sum(sizes),))
    noise = torch.randn(len(labels), C)
    logits = s * torch.nn.functional.one_hot(labels, C) + s**0.5 * noise
    return logits.log_softmax(-1), Bags.from_labels(labels, sizes, n_classes=C)


def seconds(function: Callable[[], object], at_least: float = 0.05) -> float:
    """Mean time of a call, over calls that together take `at_least` seconds."""
    calls, start = 0, time.perf_counter()
    while True:
        function()
        calls += 1
        elapsed = time.perf_counter() - start
        if elapsed > at_least:
            return elapsed / calls


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A markdown table; numbers stand right."""
    lines = [" | ".join(columns), " | ".join("---:" for _ in columns)]
    lines += [" | ".join(str(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def digits(number: float) -> str:
    """Three digits, without an exponent where that is readable."""
    return f"{number:.3g}" if abs(number) < 100 else f"{number:,.0f}"


def picture(
    path: Path,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    labels: tuple[str, str],
    title: str,
    at_most: float | None = None,
    log: str = "xy",
) -> str:
    """Draw lines through points; returns the markdown that shows the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for i, (name, points) in enumerate(lines.items()):
        x, y = zip(*sorted(points), strict=True)
        axes.plot(x, y, color=COLORS[i % 7], marker=MARKERS[i % 7], label=name)
    if at_most is not None:
        axes.axhline(at_most, color="#777777", linestyle="--", label=f"{at_most:g}")
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    ticks = sorted({x for points in lines.values() for x, _ in points})
    if len(ticks) < 10:
        axes.set_xticks(ticks, [f"{x:,}" for x in ticks])
        axes.minorticks_off()
    axes.set(xlabel=labels[0], ylabel=labels[1], title=title)
    axes.grid(color="#dddddd")
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return f"![{title}]({path.parent.name}/{path.name})\n"


def machine() -> str:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        model = named[0].split(":")[1].strip() if named else model
    others = (
        f", load of {os.getloadavg()[0]:.1f} when it began" if hasattr(os, "getloadavg") else ""
    )
    return (
        f"{model}, {os.cpu_count()} cores, PyTorch's threads: {torch.get_num_threads()}{others}; "
        f"Python {platform.python_version()}, {', '.join(_versions())}."
    )


def _versions() -> list[str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return found
