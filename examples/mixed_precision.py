"""A plain loop in half precision that adds up the gradients of several batches for each step.

python examples/mixed_precision.py
python examples/mixed_precision.py --device cuda

Half precision makes large models fit and GPUs fast; on a CPU it shows that the result is the same.
`bagwise.train` does all of this with `TrainingOptions(precision="fp16", accumulate_batches=4)`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

from bagwise import BagBatchSampler, BagDataset, Bags, cc_loss, collate_bags

TYPES = {"full": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def bags_of_digits() -> tuple[BagDataset, torch.Tensor, torch.Tensor]:
    """1,200 digits in bags of 1 to 30, and the others with their labels."""
    images, targets = load_digits(return_X_y=True)
    random = torch.Generator().manual_seed(0)
    order = torch.randperm(len(images), generator=random)
    inputs, labels = torch.tensor(images).float()[order] / 16, torch.tensor(targets)[order]
    sizes = [1 + n % 30 for n in range(1000)]
    while sum(sizes) > 1200:
        sizes.pop()
    n = sum(sizes)
    return (
        BagDataset(inputs[:n], Bags.from_labels(labels[:n], sizes, n_classes=10)),
        inputs[n:],
        labels[n:],
    )


def together(batches: Iterator[Any], n: int) -> Iterator[list[Any]]:
    """The batches of each step; the last step has what is left."""
    while some := list(islice(batches, n)):
        yield some


def trained(precision: str, dataset: BagDataset, device: str, epochs: int) -> tuple[nn.Module, int]:
    """A perceptron, and how many steps were left out because gradients were too large for fp16."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16", init_scale=2.0**24)
    sampler = BagBatchSampler(dataset.bags, max_instances=64, seed=0)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate_bags)
    left_out = 0
    for _ in range(epochs):
        for batches in together(iter(loader), 4):
            # Batches differ in size: sums over instances add up to the mean of them all.
            total = sum(bags.n_instances for _, bags in batches)
            optimizer.zero_grad()
            for inputs, bags in batches:
                with torch.autocast(device, TYPES[precision], enabled=precision != "full"):
                    logits = model(inputs.to(device))
                loss = cc_loss(logits, bags, reduction="sum") / total  # in single precision
                scaler.scale(loss).backward()
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            left_out += scaler.get_scale() < before
    return model, left_out


def main() -> None:
    """Train in each precision."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()
    dataset, inputs, labels = bags_of_digits()
    print(f"{dataset.bags}; steps of 4 batches of up to 64 instances")
    print("precision  steps left out  accuracy  mean difference of probabilities to full precision")
    expected = None
    for precision in TYPES:
        model, left_out = trained(precision, dataset, arguments.device, arguments.epochs)
        with torch.no_grad():
            probabilities = model.cpu()(inputs).softmax(-1)
        expected = probabilities if expected is None else expected
        accuracy = (probabilities.argmax(-1) == labels).float().mean()
        difference = (probabilities - expected).abs().mean()
        print(f"{precision:9}  {left_out:14}  {accuracy:8.3f}  {difference:.4f}")


if __name__ == "__main__":
    main()
