"""Methods that begin as CC and go on as RC, beside both, on real images.

    python benchmarks/switching.py FOLDER [--data DIR]

Each line of FOLDER/switching.csv is one run; runs that are there already are not done again. The
accuracy is that of the last epoch. benchmarks/theory.py then makes the table.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path

import torch

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.networks import Standardize, make_model
from bagwise.paper.datasets import Dataset, load_dataset

KEY = ("dataset", "model", "K", "method", "seed")
METHODS = ("cc", "rc", "cc_then_rc", "cc_approx", "rc_approx", "cc_approx_then_rc_approx")
CASES = (("digits", "linear"), ("digits", "mlp"), ("kmnist", "linear"))
EPOCHS = {"digits": 60, "kmnist": 6}
RATES = {("digits", "linear"): 0.01, ("digits", "mlp"): 0.001, ("kmnist", "linear"): 0.001}


def runs() -> Iterator[tuple[str, ...]]:
    """All runs, one seed after the other."""
    for seed in range(3):
        for dataset, model in CASES:
            for K, method in itertools.product(("16", "64", "128"), METHODS):
                yield dataset, model, K, method, str(seed)


def accuracy(run: tuple[str, ...], data: Dataset) -> float:
    """Of test images, after training on random bags."""
    dataset, model, bag_size, method, seed = run
    K, torch_seed = int(bag_size), int(seed)
    order = torch.randperm(
        len(data.train_labels), generator=torch.Generator().manual_seed(torch_seed)
    )
    order = order[: len(order) // K * K]
    inputs, labels = data.train_inputs[order].flatten(1), data.train_labels[order]
    bags = Bags.from_labels(labels, [K] * (len(order) // K), n_classes=data.n_classes)
    torch.manual_seed(torch_seed)
    network = torch.nn.Sequential(
        Standardize.of(inputs), make_model(model, tuple(inputs.shape[1:]), data.n_classes)
    )
    options = TrainingOptions(
        epochs=EPOCHS[dataset], lr=RATES[dataset, model], batch_bags=8, seed=torch_seed
    )
    network = train(network, BagData(inputs, bags), method, options, progress=False).model
    with torch.no_grad():
        right = network(data.test_inputs.flatten(1)).argmax(1) == data.test_labels
    return float(right.float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", default=None, help="folder of the data sets")
    arguments = parser.parse_args()
    path = arguments.folder / "switching.csv"
    if not path.exists():
        path.write_text(",".join((*KEY, "test_accuracy")) + "\n")
    with path.open() as file:
        done = {tuple(row[field] for field in KEY) for row in csv.DictReader(file)}
    torch.set_num_threads(1)
    data: dict[str, Dataset] = {}
    for run in runs():
        if run in done:
            continue
        if run[0] not in data:
            data[run[0]] = load_dataset(run[0], arguments.data)
        line = ",".join((*run, f"{accuracy(run, data[run[0]]):.4f}"))
        with path.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
