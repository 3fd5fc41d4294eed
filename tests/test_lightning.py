"""`BagBatchSampler` under Lightning, on two processes, by the example's module."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bagwise import BagBatchSampler, cc_loss

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("lightning") is None, reason="lightning is not installed"
    ),
]
EPOCHS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the loop wrote: in a process of its own, as Lightning starts others and warns a lot."""
    place = tmp_path_factory.mktemp("lightning")
    script = Path(__file__).with_name("lightning_runs.py")
    subprocess.run([sys.executable, script, place], check=True, capture_output=True, timeout=300)
    return place


def seen(folder: Path, name: str) -> list[list[dict[str, Any]]]:
    """Of each of the two processes: epoch, rows and loss of every step."""
    return [torch.load(folder / name / f"found{rank}")["seen"] for rank in range(2)]


def rows(steps: list[dict[str, Any]], epoch: int) -> list[list[int]]:
    return [step["rows"] for step in steps if step["epoch"] == epoch]


def test_each_process_trains_on_its_own_batches(folder: Path) -> None:
    from lightning_runs import BAGS

    first, second = seen(folder, "whole")
    for epoch in range(EPOCHS):
        shares = rows(first, epoch), rows(second, epoch)
        assert len(shares[0]) == len(shares[1])
        all_rows = [row for share in shares for batch in share for row in batch]
        assert set(all_rows) == set(range(BAGS.n_instances))
        twice = len(all_rows) - BAGS.n_instances
        assert twice <= len(shares[1][-1])  # one batch at most comes twice


def test_each_epoch_has_an_order_of_its_own_also_after_a_restart(folder: Path) -> None:
    from lightning_runs import BAGS

    whole, resumed = seen(folder, "whole"), seen(folder, "resumed")
    for rank in range(2):
        sampler = BagBatchSampler(BAGS, max_instances=8, seed=3, rank=rank, replicas=2)
        expected = [[BAGS.rows(batch).tolist() for batch in sampler] for _ in range(EPOCHS)]
        assert [rows(whole[rank], epoch) for epoch in range(EPOCHS)] == expected
        assert expected[0] != expected[1] != expected[2]
        assert [rows(resumed[rank], epoch) for epoch in range(EPOCHS)] == [[], *expected[1:]]


def test_two_processes_learn_what_one_learns_from_the_same_batches(folder: Path) -> None:
    from lightning_runs import BAGS, inputs, network

    model, features = network(), inputs()[:, :5]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for steps in zip(*seen(folder, "whole"), strict=True):
        both = [row for step in steps for row in step["rows"]]
        bags = list(dict.fromkeys(BAGS.bag_of_row[both].tolist()))
        if len(BAGS.rows(bags)) < len(both):  # both processes have the same bags
            bags *= 2
        optimizer.zero_grad()
        loss = cc_loss(model(features[BAGS.rows(bags)]), BAGS.select(bags))
        assert sum(step["loss"] for step in steps) / 2 == pytest.approx(loss.item(), rel=1e-5)
        loss.backward()
        optimizer.step()
    for rank in range(2):
        found = torch.load(folder / "whole" / f"found{rank}")["network"]
        torch.testing.assert_close(found["weight"], model.weight.detach())


def test_lightning_says_that_it_cannot_replace_the_sampler(folder: Path) -> None:
    assert "set `Trainer(use_distributed_sampler=False)`" in (folder / "refused").read_text()
