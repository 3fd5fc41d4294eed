"""Time of a training step of each method as a multiple of a supervised step.

A step is what `bagwise.train` does for a batch: the perceptron 784-300-300-300-300-10 on 256
instances, loss, backward pass, Adam. Methods and supervised learning are timed in turn, in one run
of about a minute, and each row is printed as soon as it is known. Another program on the same cores
disturbs wall time; the ratio of processor time, which it disturbs less, is shown beside it.
"""

from __future__ import annotations

import statistics
import time

import torch

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.networks import mlp

METHODS = ("rc", "cc", "rc_approx", "cc_approx", "dllp", "ot", "llpfc", "pll")
SIZES = (2, 8, 16, 32, 64, 128)
AT_MOST = {(method, K): 1.15 for method in ("rc", "cc") for K in SIZES if K != 32}
ROUNDS = 5
BATCHES = 16


def milliseconds_a_step(method: str, data: BagData) -> tuple[float, float]:
    """Wall time and processor time."""
    model = mlp((784,), 10)
    wall, processor = time.perf_counter(), time.process_time()
    train(model, data, method, TrainingOptions(epochs=1), progress=False)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return 1e3 * wall / BATCHES, 1e3 * processor / BATCHES


def generated(K: int) -> BagData:
    labels = torch.randint(10, (256 * BATCHES,))
    inputs = torch.randn(len(labels), 784) + labels[:, None] / 10
    bags = Bags.from_labels(labels, [K] * (len(labels) // K), n_classes=10)
    return BagData(inputs, bags, labels)


def main() -> None:
    torch.manual_seed(0)
    print("Time of a training step / time of a supervised step, median of rounds")
    print(
        f"{'K':>4} {'method':>12} {'ratio':>7} {'processor':>10} {'ms a step':>10} {'at most':>8}"
    )
    for K in SIZES:
        data = generated(K)
        for method in METHODS:
            rounds = [
                (milliseconds_a_step("supervised", data), milliseconds_a_step(method, data))
                for _ in range(1 + ROUNDS)
            ][1:]  # the first one warms up
            ratio, processor = (
                statistics.median(own[i] / supervised[i] for supervised, own in rounds)
                for i in (0, 1)
            )
            step = statistics.median(own[0] for _, own in rounds)
            most = AT_MOST.get((method, K))
            met = "" if most is None else f"{most:8.2f}{'' if ratio <= most else ' MISSED'}"
            print(
                f"{K:4} {method:>12} {ratio:7.2f} {processor:10.2f} {step:10.1f} {met}", flush=True
            )


if __name__ == "__main__":
    main()
