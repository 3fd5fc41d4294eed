"""A training step as one compiled graph, for ragged batches of any size.

python examples/compiled_step.py

Model and loss are compiled together, `fullgraph=True`: nothing is left to Python.
`dynamic=True` compiles once for any number of bags and instances; without it, there are two graphs:
one for the first batch, and one for all others. PyTorch needs a C++ compiler for it.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch._dynamo.utils import counters

from bagwise import BagBatchSampler, BagDataset, Bags, cc_loss, collate_bags


def ragged_digits() -> tuple[torch.Tensor, torch.Tensor, Bags]:
    """Digits in bags of 1 to 40."""
    images, targets = load_digits(return_X_y=True)
    random = torch.Generator().manual_seed(0)
    order = torch.randperm(len(images), generator=random)
    inputs, labels = torch.tensor(images).float()[order] / 16, torch.tensor(targets)[order]
    sizes: list[int] = []
    while sum(sizes) < len(inputs):
        drawn = int(torch.randint(1, 41, (), generator=random))
        sizes.append(min(drawn, len(inputs) - sum(sizes)))
    return inputs, labels, Bags.from_labels(labels, sizes, n_classes=10)


def main(epochs: int = 10) -> None:
    """Train compiled, and compare each loss with that of the step as it is."""
    inputs, labels, bags = ragged_digits()
    dataset = BagDataset(inputs, bags)
    sampler = BagBatchSampler(bags, max_instances=256, seed=0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_of(inputs: torch.Tensor, bags: Bags) -> torch.Tensor:
        return cc_loss(model(inputs), bags)

    compiled = torch.compile(loss_of, fullgraph=True, dynamic=True)
    shapes, differences, losses = set(), [], []
    for _ in range(epochs):
        losses = []
        for index in sampler:
            batch, bags_of_batch = collate_bags([dataset[bag] for bag in index])
            loss = compiled(batch, bags_of_batch)
            with torch.no_grad():
                differences.append((loss - loss_of(batch, bags_of_batch)).abs().item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            shapes.add((len(bags_of_batch), len(batch)))
    with torch.no_grad():
        right = model(inputs).argmax(-1) == labels
    print(f"{bags}")
    print(f"steps: {len(differences)}")
    print(f"batches of different (bags, instances): {len(shapes)}, e.g. {sorted(shapes)[:3]}")
    print(f"compiled graphs: {counters['stats']['unique_graphs']}")
    print(f"graph breaks: {sum(counters['graph_break'].values())}")
    print(f"largest difference to the loss of the step as it is: {max(differences):.0e}")
    print(f"loss in the last epoch: {sum(losses) / len(losses):.3f}")
    print(f"accuracy: {right.float().mean():.3f}")


if __name__ == "__main__":
    main()
