"""What holds for any bag, whatever the engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, bag_posterior
from oracles import enumerate_bags, random_bags

ENGINES = ["exact", "bethe", "multinomial", "transport"]
# What each engine promises of the columns' sums; the multinomial stand-in promises nothing.
COLUMN_TOLERANCE = {"exact": 1e-9, "bethe": 1e-6, "transport": 1e-3}
# Belief propagation stops at a tolerance, so equal problems may end a little apart.
SAME = {"exact": 1e-9, "bethe": 5e-2, "multinomial": 1e-9, "transport": 1e-9}

problems = st.tuples(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.integers(1, 5),
    st.floats(0.0, 4.0),
)
engines = st.sampled_from(ENGINES)


@given(problems, engines)
def test_rows_sum_to_one_and_columns_to_the_counts(
    problem: tuple[int, list[int], int, float], engine: str
) -> None:
    log_probs, bags = random_bags(*problem)
    options = {"iterations": 5000} if engine == "transport" else {}
    post = bag_posterior(log_probs, bags, engine=engine, **options)
    assert (post.weights >= 0).all()
    np.testing.assert_allclose(post.weights.sum(1).numpy(), 1, atol=1e-9)
    assert (post.weights.numpy()[bags.counts[bags.bag_of_row] == 0] == 0).all()
    if engine in COLUMN_TOLERANCE:
        columns = np.add.reduceat(post.weights.numpy(), bags.offsets[:-1], axis=0)
        np.testing.assert_allclose(columns, bags.counts, atol=COLUMN_TOLERANCE[engine])


@given(problems, engines)
def test_permuting_instances_or_classes_permutes_the_answer(
    problem: tuple[int, list[int], int, float], engine: str
) -> None:
    log_probs, bags = random_bags(*problem)
    rng = np.random.default_rng(problem[0])
    rows = np.concatenate(
        [rng.permutation(part) for part in np.split(np.arange(len(log_probs)), bags.offsets[1:-1])]
    )
    classes = rng.permutation(bags.n_classes)
    post = bag_posterior(log_probs, bags, engine=engine)
    moved = bag_posterior(
        log_probs[rows][:, classes], Bags(bags.sizes, bags.counts[:, classes]), engine=engine
    )
    expected = post.weights.numpy()[rows][:, classes]
    np.testing.assert_allclose(moved.weights.numpy(), expected, atol=SAME[engine])
    np.testing.assert_allclose(
        moved.log_likelihood.numpy(), post.log_likelihood.numpy(), atol=SAME[engine]
    )


@given(problems, engines)
def test_scaling_a_row_changes_no_weight_and_the_likelihood_by_that_factor(
    problem: tuple[int, list[int], int, float], engine: str
) -> None:
    log_probs, bags = random_bags(*problem)
    shift = torch.tensor(np.random.default_rng(problem[0]).normal(size=len(log_probs)) * 20)
    post = bag_posterior(log_probs, bags, engine=engine)
    moved = bag_posterior(log_probs + shift[:, None], bags, engine=engine)
    torch.testing.assert_close(moved.weights, post.weights, atol=1e-8, rtol=0)
    expected = post.log_likelihood.numpy() + np.add.reduceat(shift.numpy(), bags.offsets[:-1])
    np.testing.assert_allclose(moved.log_likelihood.numpy(), expected, atol=1e-7)


@given(problems, st.sampled_from(["exact", "bethe", "transport"]))
def test_scaling_a_class_changes_no_weight_and_the_likelihood_by_a_known_factor(
    problem: tuple[int, list[int], int, float], engine: str
) -> None:
    log_probs, bags = random_bags(*problem)
    shift = torch.tensor(np.random.default_rng(problem[0]).normal(size=bags.n_classes) * 3)
    options = {"iterations": 5000} if engine == "transport" else {}
    post = bag_posterior(log_probs, bags, engine=engine, **options)
    moved = bag_posterior(log_probs + shift, bags, engine=engine, **options)
    atol = {"exact": 1e-9, "bethe": 5e-2, "transport": 1e-3}[engine]
    torch.testing.assert_close(moved.weights, post.weights, atol=atol, rtol=0)
    expected = post.log_likelihood.numpy() + bags.counts @ shift.numpy()
    np.testing.assert_allclose(moved.log_likelihood.numpy(), expected, atol=max(atol, 1e-8))


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
def test_bags_of_one_and_of_one_class_are_certain(engine: str) -> None:
    log_probs, _ = random_bags(0, [1, 1, 4], 3)
    bags = Bags([1, 1, 4], [[0, 1, 0], [1, 0, 0], [0, 0, 4]])
    post = bag_posterior(log_probs, bags, engine=engine)
    labels = torch.tensor([1, 0, 2, 2, 2, 2])
    expected = torch.eye(3, dtype=torch.float64)[labels]
    torch.testing.assert_close(post.weights, expected, atol=1e-12, rtol=0)
    own = log_probs[torch.arange(6), labels].numpy()
    if engine == "multinomial":  # its one-class bags take the log of a mean, not the mean of a log
        own, post = own[:2], post._replace(log_likelihood=post.log_likelihood[:2])
        np.testing.assert_allclose(post.log_likelihood.numpy(), own, atol=1e-12)
    else:
        sums = np.add.reduceat(own, bags.offsets[:-1])
        np.testing.assert_allclose(post.log_likelihood.numpy(), sums, atol=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.floats(0, 10))
def test_multinomial_equals_exact_for_bags_of_two(seed: int, C: int, spread: float) -> None:
    log_probs, bags = random_bags(seed, [2, 2, 2], C, spread)
    exact = bag_posterior(log_probs, bags, engine="exact")
    approximate = bag_posterior(log_probs, bags, engine="multinomial")
    torch.testing.assert_close(approximate.weights, exact.weights, atol=1e-9, rtol=0)
    torch.testing.assert_close(
        approximate.log_likelihood, exact.log_likelihood, atol=1e-9, rtol=1e-9
    )


@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.sampled_from([10.0, 300.0, 5e3]))
def test_exact_is_right_at_extreme_log_probabilities(seed: int, C: int, spread: float) -> None:
    log_probs, bags = random_bags(seed, [6, 2, 5, 1], C, spread)
    post = bag_posterior(log_probs, bags, engine="exact")
    log_likelihood, weights = enumerate_bags(log_probs, bags)
    np.testing.assert_allclose(post.log_likelihood.numpy(), log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-9)
