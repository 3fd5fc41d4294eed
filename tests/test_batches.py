from __future__ import annotations

import gc
import math
import platform
import subprocess
import sys
import weakref
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.limits import LIMITS, Limits
from bagwise.methods import Batch, make_method
from bagwise.networks import mlp
from bagwise.training.memory import instances_that_fit


def batch_sizes(
    model: nn.Module,
    data: BagData,
    method: Any = "cc",
    limits: Limits = LIMITS,
    **options: Any,
) -> list[int]:
    """Bags in each batch that `train` makes."""
    sizes: list[int] = []
    method = make_method(method)
    loss = method.loss

    def spy(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        sizes.append(0 if batch.bags is None else len(batch.bags))
        return loss(logits, batch)

    method.loss = spy
    how = TrainingOptions(epochs=1, **options)
    train(model, data, method, how, progress=False, limits=limits)
    return sizes


def bags_of(*sizes: int, shape: tuple[int, ...] = (5,)) -> BagData:
    labels = torch.arange(sum(sizes)) % 2
    return BagData(torch.randn(len(labels), *shape), Bags.from_labels(labels, sizes, n_classes=2))


def test_no_bag_is_alone_in_a_batch_if_several_are_asked_for() -> None:
    table = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.warns(UserWarning, match="single bag"):
        assert set(batch_sizes(table, bags_of(*[300] * 17))) == {1}  # the paper's batches
    assert sorted(batch_sizes(table, bags_of(*[300] * 17), batch_bags=8)) == [8, 9]
    assert sorted(batch_sizes(table, bags_of(*[64] * 9), batch_bags=2)) == [4, 5]
    assert batch_sizes(table, bags_of(*[128] * 7)) == [2, 2, 3]  # nor is one left over
    assert batch_sizes(table, bags_of(*[300] * 12), batch_bags=8) == [6, 6]  # not one step only
    assert batch_sizes(table, bags_of(300, 300, 300), batch_bags=8) == [3]
    with pytest.warns(UserWarning, match="single bag"):
        assert batch_sizes(table, bags_of(300), batch_bags=8) == [1]
    ragged = batch_sizes(table, bags_of(2000, *[1] * 300), batch_bags=8)
    assert sum(ragged) == 301
    assert min(ragged) >= 8


def test_a_model_without_batch_normalization_takes_its_steps_by_instances() -> None:
    data = bags_of(*[300] * 17)
    for model in (nn.Linear(5, 2), nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 2))):
        assert batch_sizes(model, data, batch_bags=8, batch_instances=300) == [1] * 17
        assert batch_sizes(model, data, batch_bags=8, batch_instances=256) == [1] * 34  # parts


def test_memory_goes_before_the_number_of_bags() -> None:
    data = bags_of(*[100] * 12, shape=(2, 8, 8))
    model = nn.Sequential(
        nn.Conv2d(2, 50, 3), nn.BatchNorm2d(50), nn.ReLU(), nn.Flatten(), nn.Linear(1800, 2)
    )
    assert batch_sizes(model, data, batch_instances=50, batch_bags=6) == [6, 6]
    a_row = 4 * (2 * 8 * 8 + 2 * 50 * 6 * 6)  # bytes of the input and of two hidden layers
    few = partial(batch_sizes, model, data, batch_bags=6, limits=Limits(step_bytes=250 * a_row))
    assert few(batch_instances=50) == [2] * 6
    assert few(batch_instances=400) == [4] * 3


def test_llpfc_mixes_single_instances_whatever_the_number_of_bags() -> None:
    data = bags_of(*[300] * 6)
    assert batch_sizes(nn.Linear(5, 2), data, "llpfc", batch_bags=4) == [0] * math.ceil(1800 / 256)


def test_counting_memory_leaves_the_model_and_random_numbers_as_they_were() -> None:
    class Noise(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs + torch.randn_like(inputs)

    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), Noise(), nn.Linear(4, 2))
    inputs = torch.randn(30, 5)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    assert instances_that_fit(model, inputs, budget=1) == 1
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.slow
@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="only glibc can be told to")
def test_a_process_of_runs_gets_freed_memory_only_once_from_the_system() -> None:
    script = (
        "import resource, sys, torch\n"
        "from bagwise.training.memory import keep_freed\n"
        "keep_freed() if sys.argv[1] == 'keep' else None\n"
        "for _ in range(4): torch.ones(20_000_000)\n"  # small things may lie between at first
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "torch.ones(20_000_000)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    pages = {
        way: int(subprocess.check_output([sys.executable, "-c", script, way]))
        for way in ("keep", "plain")
    }
    assert pages["keep"] < 100 < 10_000 < pages["plain"], "80 MB are 19,500 pages"


def test_to_count_the_memory_of_a_step_keeps_none_of_it() -> None:
    model = mlp((3,), 2)
    weight = weakref.ref(model[1].weight)
    instances_that_fit(model, torch.zeros(9, 3))
    del model
    gc.collect()
    assert weight() is None
