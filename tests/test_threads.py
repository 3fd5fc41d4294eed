"""Small tables are fitted with one thread: others would only wait for each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from bagwise import Bags, LLPClassifier
from bagwise.data import BagData
from bagwise.likelihood import fit_linear
from bagwise.likelihood.objective import BagLikelihood
from bagwise.training import Callback, TrainingOptions
from bagwise.training.threads import threads_for


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    with threadpool_limits(3, "blas"):
        yield
    torch.set_num_threads(before)


class Noting(Callback):
    """Notes how many threads PyTorch may use."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def on_epoch_end(self, row: Any, model: torch.nn.Module) -> None:
        self.seen.add(torch.get_num_threads())


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("size", "expected"), [(10, 1), (125, 3)])
def test_steps_of_a_thousand_rows_are_shared_by_threads_smaller_ones_not(
    size: int, expected: int
) -> None:
    X = torch.randn(12 * size, 2, generator=torch.Generator().manual_seed(0))
    bags = Bags.from_labels((X[:, 0] > 0).long().numpy(), [size] * 12)
    noting = Noting()
    split = np.arange(8), np.arange(8, 12)
    classes = np.array(["no", "yes"])
    classifier = LLPClassifier(model="mlp", epochs=1, random_state=0)
    kept, held_out = (BagData(X, bags).select(part) for part in split)
    classifier.fit_bags(kept, classes, held_out, callbacks=[noting])
    assert noting.seen == {expected}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_threads_are_as_before_also_after_an_error() -> None:
    bags = Bags([2], [[1, 1]])
    with contextlib.suppress(KeyError), threads_for(TrainingOptions(), bags):
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("shape", "expected"), [((40, 1), 1), ((5000, 200), 3)])
def test_small_likelihoods_are_maximized_with_one_thread(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], expected: int
) -> None:
    def used() -> set[int]:
        return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}

    if used() != {3}:
        pytest.skip("the number of threads of this BLAS cannot be set to three")
    seen: list[set[int]] = []
    real = BagLikelihood.evaluate

    def evaluate(self: BagLikelihood, *rest: Any) -> Any:
        seen.append(used())
        return real(self, *rest)

    monkeypatch.setattr(BagLikelihood, "evaluate", evaluate)
    X = np.random.default_rng(0).normal(size=shape)
    fit_linear(X, Bags.from_labels((X[:, 0] > 0).astype(int), [4] * (shape[0] // 4)))
    assert seen
    assert all(found == {expected} for found in seen)
    assert used() == {3}
