"""Methods that begin as CC and go on as RC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bagwise import BagData, TrainingOptions, train
from bagwise.methods import Batch, make_method
from bagwise.training import TrainingResult
from oracles import random_bags

CPU = torch.device("cpu")
PAIRS = [("cc_then_rc", "cc", "rc"), ("cc_approx_then_rc_approx", "cc_approx", "rc_approx")]


def trained(method: Any, epochs: int = 6, checkpoint: Path | None = None) -> TrainingResult:
    torch.manual_seed(0)
    logits, bags = random_bags(0, [4] * 30, 3)
    options = TrainingOptions(epochs=epochs, lr=0.05, batch_instances=24)
    data = BagData(logits.float(), bags)
    return train(nn.Linear(3, 3), data, method, options, checkpoint=checkpoint, progress=False)


def losses(result: TrainingResult) -> list[float]:
    return [row["train_loss"] for row in result.history]


@pytest.mark.parametrize(("name", "first", "then"), PAIRS)
def test_the_first_epochs_are_those_of_cc_and_the_others_are_not(
    name: str, first: str, then: str
) -> None:
    found = trained(make_method(name, switch=0.5))
    assert losses(found)[:3] == losses(trained(first))[:3]
    assert losses(found)[3] != losses(trained(first))[3]
    assert losses(trained(make_method(name, switch=0.0))) == losses(trained(then))
    assert losses(trained(make_method(name, switch=1.0))) == losses(trained(first))


@pytest.mark.parametrize(("name", "first", "then"), PAIRS)
def test_the_weights_of_rc_come_from_what_cc_saw_last(name: str, first: str, then: str) -> None:
    logits, bags = random_bags(1, [3, 4], 3)
    data, batch = BagData(logits.float(), bags), Batch(torch.arange(7), bags)
    generator = torch.Generator()
    both, rc = make_method(name), make_method(then)
    both.n_epochs = 2
    for method in (both, rc):
        method.begin(data, CPU)
    both.begin_epoch(1, generator)
    before, after = logits.float(), logits.flip(0).float()
    assert both.loss(before, batch) == make_method(first).loss(before, batch)
    rc.kept["log_probs"].copy_(before.log_softmax(-1))
    both.begin_epoch(2, generator)
    assert both.loss(after, batch) == rc.loss(after, batch)


@pytest.mark.parametrize("done", [1, 3, 4])
def test_a_stopped_run_resumes_on_either_side_of_the_switch(done: int, tmp_path: Path) -> None:
    expected = trained("cc_then_rc")

    class StopError(Exception):
        pass

    class Stopping:
        def on_train_begin(self, history: Any, model: nn.Module) -> None: ...

        def on_epoch_end(self, row: Any, model: nn.Module) -> None:
            if row["epoch"] == done:
                raise StopError

        def on_train_end(self, history: Any, model: nn.Module) -> None: ...

    torch.manual_seed(0)
    logits, bags = random_bags(0, [4] * 30, 3)
    options = TrainingOptions(epochs=6, lr=0.05, batch_instances=24)
    with pytest.raises(StopError):
        train(
            *(nn.Linear(3, 3), BagData(logits.float(), bags), "cc_then_rc", options),
            checkpoint=tmp_path,
            callbacks=[Stopping()],
            progress=False,
        )
    found = trained("cc_then_rc", checkpoint=tmp_path)
    assert losses(found) == losses(expected)
    torch.testing.assert_close(found.model.weight, expected.model.weight, rtol=0, atol=0)


def test_a_run_that_is_made_longer_switches_where_it_was_going_to(tmp_path: Path) -> None:
    trained("cc_then_rc", 4, tmp_path)
    found = trained("cc_then_rc", 8, tmp_path)
    assert losses(found)[:4] == losses(trained("cc_then_rc", 4))
    assert losses(found)[2] != losses(trained("cc"))[2]
    again = trained("cc_then_rc", 8)  # it would have switched after four
    assert losses(again)[3] == losses(trained("cc"))[3]


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_a_switch_is_a_share(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"switch is .*; a number from 0 to 1"):
        make_method("cc_then_rc", switch=wrong)
