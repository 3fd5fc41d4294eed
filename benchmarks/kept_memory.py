"""Steps of image models in a process that keeps the memory it frees, as those of runs do.

CPU time of a step with it by that without, both in processes of their own, in turn, and how often
the system had to hand out a page of memory during a step.

python benchmarks/kept_memory.py                  # resnet32 and lenet5, a few minutes
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time

import torch

from bagwise import Bags, cc_loss
from bagwise.networks import make_model
from bagwise.training.memory import keep_freed

SHAPES = {"resnet32": (3, 32, 32), "lenet5": (1, 28, 28)}
STEPS = {"resnet32": 6, "lenet5": 60}
WARM_UP = 3


def measure(name: str, kept: bool) -> tuple[float, float]:
    """Median seconds of the processor, and mean page faults, of a step of 256 images."""
    torch.set_num_threads(1)
    if kept:
        keep_freed()
    model = make_model(name, SHAPES[name], 10)
    images, labels = torch.randn(256, *SHAPES[name]), torch.randint(10, (256,))
    bags = Bags.from_labels(labels, [16] * 16, n_classes=10)
    seconds, faults = [], []
    for _ in range(WARM_UP + STEPS[name]):
        begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        cc_loss(model(images), bags).backward()
        model.zero_grad()
        seconds.append(time.process_time() - begun)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return statistics.median(seconds[WARM_UP:]), statistics.mean(faults[WARM_UP:])


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], sys.argv[2] == "kept")))
        return
    for name in SHAPES:
        found: dict[str, list[list[float]]] = {"plain": [], "kept": []}
        for _ in range(3):
            for way, rows in found.items():
                command = [sys.executable, __file__, name, way]
                rows.append(json.loads(subprocess.check_output(command)))
        plain, kept = (
            [statistics.median(column) for column in zip(*found[way], strict=True)]
            for way in ("plain", "kept")
        )
        print(
            f"{name}: {kept[0] / plain[0]:.2f} of the time ({kept[0]:.3f} s instead of "
            f"{plain[0]:.3f}); pages a step: {kept[1]:.0f} instead of {plain[1]:.0f}"
        )


if __name__ == "__main__":
    main()
