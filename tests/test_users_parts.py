"""What users hand to `train` and the estimator: mistakes are named, nothing is silently wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from bagwise import (
    BagData,
    BagDataset,
    Bags,
    LLPClassifier,
    TrainingOptions,
    bag_posterior,
    cc_loss,
    collate_bags,
    train,
)
from bagwise.methods import Batch, Method
from bagwise.networks import Standardize, make_model
from bagwise.posterior import ENGINES, Posterior

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 2, 240)
ROWS = RANDOM.normal(size=(240, 4)) + 2 * LABELS[:, None]
WARDS = RANDOM.permutation(240) // 8
COUNTS = {ward: np.bincount(LABELS[ward == WARDS], minlength=2) for ward in range(30)}
INPUTS = torch.randn(8, 3)
DATA = BagData(INPUTS, Bags([4, 4], [[1, 3], [2, 2]]))
OPTIONS = TrainingOptions(epochs=1)


def fitted(data: BagData = DATA, method: Any = "cc", **others: Any) -> Any:
    given = {"model": nn.Linear(3, 2), "options": OPTIONS, "progress": False} | others
    return train(given.pop("model"), data, method, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"epochs": 3}}, "options is a dict; a TrainingOptions is expected"),
        ({"data": (INPUTS, DATA.bags)}, "data is a tuple; a BagData is expected"),
        ({"model": DATA}, "model is a BagData; a Module is expected"),
        ({"model": nn.ReLU()}, "no parameter that requires a gradient"),
        ({"callbacks": [print]}, "callbacks holds a builtin_function_or_method; a .*Callback"),
        ({"device": "meta"}, "device is 'meta'"),
        ({"device": "cuda:99"}, "device is 'cuda:99'"),
        (
            {"validation": BagData(torch.zeros(1, 3), Bags([1], [[0, 0, 1]]))},
            "the bags of validation have 3 classes, those of data 2",
        ),
        ({"data": BagData(INPUTS.double(), DATA.bags)}, "inputs of torch.float64 .*inputs.float"),
        ({"data": BagData(INPUTS.long(), DATA.bags)}, "cannot take inputs of torch.int64"),
    ],
)
def test_mistakes_in_calls_of_train_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        fitted(**given)


def test_an_optimizer_of_several_evaluations_is_refused() -> None:
    options = TrainingOptions(epochs=1, optimizer=torch.optim.LBFGS)
    with pytest.raises(TypeError, match="LBFGS evaluates the loss several times"):
        fitted(options=options)


class Own(Method):
    """A method whose parts are set by tests."""

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        assert batch.bags is not None
        return cc_loss(logits, batch.bags)


class WithoutGradient(Own):
    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return super().loss(logits.detach(), batch)


class ForgetfulConstructor(Own):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (WithoutGradient(), "the loss of method 'WithoutGradient' has no gradient"),
        (ForgetfulConstructor(), r"ForgetfulConstructor does not call super\(\).__init__\(\)"),
    ],
)
def test_mistakes_in_methods_are_named(method: Method, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fitted(method=method)


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({"train_loss": 99.0}, "has 'train_loss', which is a name of what `train` measures"),
        ({"lr": -5.0}, "has 'lr'"),
        ({"epoch": 7}, "has 'epoch'"),
        ({"sureness": torch.tensor(1.0)}, "a Tensor as 'sureness'; a number is expected"),
    ],
)
def test_a_method_measures_under_names_of_its_own(
    measured: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Own, "epoch_metrics", lambda self: measured)
    with pytest.raises((TypeError, ValueError), match=message):
        fitted(method=Own())


@pytest.mark.parametrize("view", [lambda inputs, _: None, lambda inputs, _: inputs[:2]])
def test_an_augmentation_that_loses_instances_is_named(view: Any) -> None:
    with pytest.raises(TypeError, match=r"an augmentation returns what has (type|shape)"):
        fitted(options=TrainingOptions(epochs=1, augment=view))


def test_a_second_view_made_in_place_leaves_the_first_alone() -> None:
    seen = []

    class TwoOfThem(Own):
        has_second_view = True

        def second_view(self, inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            return inputs.zero_()

    def noted(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        seen.append(inputs.abs().sum().item())
        return inputs

    fitted(method=TwoOfThem(), options=TrainingOptions(epochs=1, augment=noted))
    assert seen == [pytest.approx(INPUTS.abs().sum().item())]


def test_a_factory_that_makes_no_network_is_named() -> None:
    with pytest.raises(TypeError, match=r"makes a NoneType; a torch.nn.Module is expected"):
        make_model(lambda shape, n_classes: None, (3,), 2)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (lambda log_probs: (log_probs,), "engine 'own' returns a tuple; a Posterior"),
        (
            lambda log_probs: Posterior(
                log_probs.sum(), log_probs.exp(), torch.zeros(2), ("own", "own")
            ),
            r"log-likelihood of shape \(\) and weights of shape \(8, 2\); \(2,\) and \(8, 2\)",
        ),
    ],
)
def test_an_engine_that_returns_something_else_is_named(
    found: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "own", lambda log_probs, bags: found(log_probs))
    with pytest.raises((TypeError, ValueError), match=message):
        bag_posterior(torch.zeros(8, 2), DATA.bags, "own")


def test_labels_that_contradict_the_counts_are_doubted() -> None:
    with pytest.warns(UserWarning, match=r"labels and counts contradict.*sorted by bag"):
        BagData(torch.zeros(4, 1), Bags([4], [[4, 0]]), torch.tensor([1, 1, 1, 1]))


def test_data_of_bags_are_compared_by_identity() -> None:
    same = BagData(INPUTS, DATA.bags)
    assert same != DATA
    assert len({same, DATA}) == 2


def test_bags_of_different_kinds_are_not_put_together() -> None:
    with pytest.raises(ValueError, match=r"item 1 has counts of shape \(3,\) and item 0 \(2,\)"):
        collate_bags([(torch.zeros(2, 4), [1, 1]), (torch.zeros(1, 4), [0, 0, 1])])
    with pytest.raises(ValueError, match=r"item 1 has instances of shape \(5,\) and item 0 \(4,\)"):
        collate_bags([(torch.zeros(2, 4), [1, 1]), (torch.zeros(1, 5), [0, 1])])
    with pytest.raises(TypeError, match="the instances of a bag are a dict; give one dictionary"):
        collate_bags([({"image": torch.zeros(2, 4)}, [1, 1])])
    with pytest.raises(TypeError):
        BagDataset(INPUTS, DATA.bags)[0:2]  # type: ignore[index]


@pytest.mark.slow
def test_batches_of_loader_processes_are_like_those_made_here() -> None:
    dataset = BagDataset(INPUTS, DATA.bags)
    loader = DataLoader(dataset, batch_size=2, collate_fn=collate_bags, num_workers=1)
    inputs, bags = next(iter(loader))
    assert torch.equal(inputs, INPUTS)
    assert bags == DATA.bags
    assert not bags.sizes.flags.writeable


@pytest.mark.parametrize("kind", [float, "Int64"])
def test_rows_without_a_bag_may_be_gaps_of_a_column_of_numbers(kind: Any) -> None:
    lone = WARDS == 3
    named = [None if alone else int(ward) for ward, alone in zip(WARDS, lone, strict=True)]
    gaps = pd.array(np.where(lone, np.nan, WARDS), dtype=kind) if kind == "Int64" else None
    bags = np.where(lone, np.nan, WARDS) if gaps is None else gaps
    labels = np.where(lone, LABELS.astype(float), np.nan)
    model = LLPClassifier(model="linear", epochs=2, random_state=0)
    with_none = model.fit(ROWS, named, COUNTS, row_labels=labels).predict_proba(ROWS)
    with_gaps = model.fit(ROWS, bags, COUNTS, row_labels=labels).predict_proba(ROWS)
    np.testing.assert_array_equal(with_gaps, with_none)
    with pytest.raises(ValueError, match=r"the bag of row .* is missing; give every row a bag id"):
        model.fit(ROWS, bags, COUNTS)


@pytest.mark.parametrize("change", [lambda x: x + 1e4, lambda x: x * 1e-13, lambda x: x * 1e-30])
def test_small_differences_are_differences(change: Any) -> None:
    """1e-3 beside 1e4 is far more than double precision rounds."""
    column = torch.randn(200, 1, dtype=torch.float64) * 1e-3
    found = Standardize.of(change(column))(change(column))
    torch.testing.assert_close(found.std(), torch.tensor(1.0), atol=0.1, rtol=0)
    constant = change(torch.full((200, 1), 0.1, dtype=torch.float64))
    assert Standardize.of(constant)(constant).abs().max() < 1e-6
