"""A loop of one's own on two processes, with DDP and with FSDP2: both find what one process finds.

python examples/ddp_fsdp.py                                          # starts two processes
torchrun --nproc-per-node 2 examples/ddp_fsdp.py --device cuda       # or is started by torchrun

`BagBatchSampler` gives each process its own batches of whole bags. Both DDP and FSDP average the
gradients of processes, whose batches differ in size: so each divides its sum of losses by the
instances of all of them and multiplies by their number.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from bagwise import BagBatchSampler, BagDataset, Bags, cc_loss, collate_bags


def bags_of_digits() -> tuple[BagDataset, torch.Tensor]:
    """1,200 digits in bags of 1 to 30, and their labels."""
    images, targets = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    sizes = [1 + n % 30 for n in range(80)]
    order = order[: sum(sizes)]
    inputs, labels = torch.tensor(images).float()[order] / 16, torch.tensor(targets)[order]
    return BagDataset(inputs, Bags.from_labels(labels, sizes, n_classes=10)), labels


def network() -> nn.Sequential:
    """The same weights in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def wrapped(model: nn.Module, how: str, device: str) -> nn.Module:
    """The model on all processes: whole in each ("DDP"), or a part of its weights in each."""
    if how == "DDP":
        return DistributedDataParallel(model)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in (*model.children(), model):
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return model


def train(
    model: nn.Module, batches: Callable[[], Iterable[Any]], device: str, epochs: int
) -> list[torch.Tensor]:
    """A loop for one process or several; returns the weights, whole on each of them."""
    is_alone = not isinstance(model, DistributedDataParallel | FSDPModule)
    workers = 1 if is_alone else dist.get_world_size()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for inputs, bags in batches():
            total = torch.tensor(float(bags.n_instances), device=device)
            if not is_alone:
                dist.all_reduce(total)
            optimizer.zero_grad()
            logits = model(inputs.to(device))
            (cc_loss(logits, bags, reduction="sum") * workers / total).backward()
            optimizer.step()
    weights = [weight.detach() for weight in model.parameters()]
    return [w.full_tensor().cpu() if isinstance(w, DTensor) else w.cpu() for w in weights]


def work(arguments: argparse.Namespace) -> None:
    """What each process does."""
    device = arguments.device
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    is_first, workers = dist.get_rank() == 0, dist.get_world_size()
    dataset, labels = bags_of_digits()

    def sampler(rank: int | None = None) -> BagBatchSampler:
        return BagBatchSampler(dataset.bags, 64, seed=0, rank=rank, replicas=workers)

    of_all = [sampler(rank) for rank in range(workers)]

    def all_batches() -> Iterator[Any]:
        for together in zip(*of_all, strict=True):
            yield collate_bags([dataset[bag] for batch in together for bag in batch])

    expected = None
    for how in ("one process", "DDP", "FSDP2"):
        model, batches = network().to(device), all_batches
        if how != "one process":
            model = wrapped(model, how, device)
            loader = DataLoader(dataset, batch_sampler=sampler(), collate_fn=collate_bags)
            batches = partial(iter, loader)
        found = train(model, batches, device, arguments.epochs)
        expected = found if expected is None else expected
        here = [w.to_local() if isinstance(w, DTensor) else w for w in model.parameters()]
        difference = max((a - b).abs().max() for a, b in zip(found, expected, strict=True))
        tested = network()
        tested.load_state_dict(dict(zip(tested.state_dict(), found, strict=True)))
        right = (tested(dataset.inputs).argmax(-1) == labels).float().mean()
        if is_first:
            print(
                f"{how:11}  {sum(w.numel() for w in here):5,} weights in a process  "
                f"accuracy {right:.3f}  difference of weights to one process {difference:.0e}"
            )
    dist.destroy_process_group()


def main() -> None:
    """Start two processes, unless torchrun did."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        work(arguments)
        return
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*start, *sys.argv], check=True)


if __name__ == "__main__":
    main()
