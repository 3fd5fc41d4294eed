"""Posteriors of arrays, and of tensors: the same numbers."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from bagwise import Bags, Posterior, bag_posterior, most_probable_labeling
from bagwise.autograd.bag_tensors import expected_counts, most, tensors_of
from bagwise.posterior import ENGINES, _kernels, log_likelihoods
from oracles import random_bags

KINDS = {
    "counts": Bags([4, 1, 5], [[1, 2, 1], [0, 1, 0], [2, 0, 3]]),
    "labels": Bags([4, 6], [[1, 2, 1], [2, 1, 3]]).with_labels([1, *[-1] * 8, 0]),
    "ranges": Bags.from_ranges([[0, 1, 1], [2, 0, 0]], [[2, 4, 3], [3, 2, 4]], [4, 6]),
}


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_and_tensors_have_the_same_posterior(kind: str, engine: str) -> None:
    if (kind, engine) == ("ranges", "device"):
        return  # which it refuses
    log_probs = np.random.default_rng(0).normal(size=(10, 3))
    of_array = bag_posterior(log_probs, KINDS[kind], engine)
    of_tensor = bag_posterior(torch.from_numpy(log_probs), KINDS[kind], engine)
    for array, tensor in zip(of_array[:3], of_tensor[:3], strict=True):
        assert isinstance(array, np.ndarray)
        np.testing.assert_array_equal(array, tensor.numpy())
    assert of_array.engine == of_tensor.engine


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_and_tensors_have_the_same_labeling(kind: str) -> None:
    log_probs = np.random.default_rng(1).normal(size=(10, 3))
    found = most_probable_labeling(log_probs, KINDS[kind])
    assert found.dtype == np.int64
    assert (
        found.tolist() == most_probable_labeling(torch.from_numpy(log_probs), KINDS[kind]).tolist()
    )


def test_any_array_of_floating_numbers_is_taken_and_left_as_it_was() -> None:
    plain = np.random.default_rng(2).normal(size=(10, 3)).astype(np.float16).astype(np.float64)
    expected = bag_posterior(plain, KINDS["counts"])
    locked = plain.copy()
    locked.setflags(write=False)
    twice = np.repeat(plain, 2, axis=0)
    for array in (
        locked,
        np.asfortranarray(plain),
        twice[::2],
        plain.astype(np.float16),
        plain.astype(">f8"),
    ):
        found = bag_posterior(array, KINDS["counts"])
        assert found.weights.dtype == np.float64
        np.testing.assert_array_equal(found.weights, expected.weights)
    np.testing.assert_array_equal(locked, plain)


def test_huge_entries_of_an_array_are_shifted_and_shifted_back() -> None:
    log_probs = np.random.default_rng(3).normal(size=(10, 3))
    found = bag_posterior(log_probs + 1e14, KINDS["counts"])
    expected = bag_posterior(log_probs, KINDS["counts"])
    np.testing.assert_allclose(found.log_likelihood - 1e14 * np.array([4, 1, 5]), 0, atol=10)
    np.testing.assert_allclose(found.weights, expected.weights, atol=0.05)  # 1e14 has two decimals
    with pytest.raises(ValueError, match=r"log_probs\[0, 0\] is nan \(bag 0\)"):
        bag_posterior(np.full((10, 3), np.nan), KINDS["counts"])
    with pytest.raises(ValueError, match="no labeling of bag 0"):
        bag_posterior(np.tile([0.0, -np.inf, 0.0], (10, 1)), KINDS["counts"])


def test_log_likelihoods_are_those_of_normalized_rows() -> None:
    logits, bags = random_bags(4, [4, 3], 3)
    expected = bag_posterior(logits.log_softmax(-1), bags).log_likelihood
    np.testing.assert_allclose(log_likelihoods(logits.numpy() + 5, bags), expected, rtol=1e-12)


def test_an_engine_of_a_user_is_given_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    def even(log_probs: torch.Tensor, bags: Bags) -> Posterior[torch.Tensor]:
        return Posterior(torch.zeros(len(bags)), log_probs.softmax(-1).detach(), asked="even")

    monkeypatch.setitem(ENGINES, "even", even)
    found = bag_posterior(np.zeros((10, 3)), KINDS["counts"], "even")
    assert isinstance(found.log_likelihood, np.ndarray)
    np.testing.assert_array_equal(found.weights, np.full((10, 3), 1 / 3))
    assert found.engine == ["even"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_bags_older_than_the_bridge_get_the_same_tensors(kind: str) -> None:
    bags = KINDS[kind]
    old = bags.select([1, 0])
    del old.tensors
    assert old.tensors is None
    for found, expected in zip(tensors_of(old), tensors_of(bags.select([1, 0])), strict=True):
        assert (found is None) == (expected is None)
        assert found is None or torch.equal(found, expected)
    np.testing.assert_array_equal(expected_counts(old), old.expected_counts)
    np.testing.assert_array_equal(most(old), old.max_counts)


def test_threads_are_those_of_pytorch_or_those_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _kernels.most_threads() == torch.get_num_threads()
    monkeypatch.delitem(sys.modules, "torch")
    for asked, expected in (("3", 3), ("5,2", 5), ("0", None), ("many", None), ("", None)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        found = _kernels.most_threads()
        assert found == expected if expected else found >= 1
