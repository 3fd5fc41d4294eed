"""Labels that counts rule out, against the list of all labelings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bagwise import Bags, Groupings, Laplace, bag_posterior
from bagwise.bags.possible_labels import possible_labels
from bagwise.errors import InputError

CROSSED = {"line": np.arange(9) // 3, "column": np.arange(9) % 3}
THREE = {**CROSSED, "half": np.array([0, 0, 0, 0, 1, 1, 1, 1, -1])}
NESTED = {"ward": np.arange(8) // 2, "county": np.arange(8) // 4, "age": np.arange(8) % 3}


def grouped(
    seed: int, of_rows: dict[str, np.ndarray], C: int, slack: int = 0, weights: bool = False
) -> Groupings:
    """Groupings with the counts of random labels, as ranges where there is slack."""
    rng = np.random.default_rng(seed)
    N = len(next(iter(of_rows.values())))
    copies = rng.integers(1, 3, size=N) if weights else np.ones(N, np.int64)
    of_instance = np.repeat(np.arange(N), copies)
    labels = rng.choice(C, size=len(of_instance), p=np.append(np.full(C - 1, 0.3 / (C - 1)), 0.7))
    found = {}
    for name, of_row in of_rows.items():
        counts = np.zeros((of_row.max() + 1, C), np.int64)
        there = of_row[of_instance] >= 0
        np.add.at(counts, (of_row[of_instance][there], labels[there]), 1)
        sizes = np.bincount(of_row[of_row >= 0])
        order = np.argsort(of_row, kind="stable")[np.count_nonzero(of_row < 0) :]
        bags = Bags(sizes, counts, weights=copies[order])
        if slack:
            off = rng.integers(0, slack + 1, size=counts.shape)
            bags = Bags.from_ranges(np.maximum(counts - off, 0), counts + off, sizes)
        found[name] = (of_row, bags)
    return Groupings(found)


def listed(groupings: Groupings) -> np.ndarray:
    """(N, C) labels that rows have in some labeling within all bounds, by listing them all."""
    C, of_instance = (
        groupings.n_classes,
        np.repeat(np.arange(groupings.n_instances), groupings.copies),
    )
    labels = np.array(list(itertools.product(range(C), repeat=len(of_instance))), np.int8)
    for g in groupings:
        for b, c in itertools.product(range(len(g.bags)), range(C)):
            m = (labels[:, g.bag_of_row[of_instance] == b] == c).sum(axis=1)
            labels = labels[(m >= g.bags.min_counts[b, c]) & (m <= g.bags.max_counts[b, c])]
    found = np.zeros((groupings.n_instances, C), np.bool_)
    for c in range(C):
        np.logical_or.at(found[:, c], of_instance, (labels == c).any(axis=0))
    return found


@pytest.mark.parametrize("slack", [0, 1])
@pytest.mark.parametrize("of_rows", [CROSSED, NESTED], ids=["crossed", "nested"])
def test_all_that_two_groupings_of_two_classes_prove_is_found(
    of_rows: dict[str, np.ndarray], slack: int
) -> None:
    ruled_out = 0
    for seed in range(10):
        groupings = grouped(seed, of_rows, 2, slack)
        found = possible_labels(groupings)
        if of_rows is CROSSED:
            np.testing.assert_array_equal(found, listed(groupings))
        assert not (listed(groupings) & ~found).any()
        ruled_out += (~found).sum()
    assert ruled_out > 0


@pytest.mark.parametrize(("C", "weights"), [(3, False), (2, True)])
def test_no_possible_label_is_ruled_out(C: int, weights: bool) -> None:
    missed = ruled_out = 0
    for seed in range(5):
        groupings = grouped(seed, CROSSED if weights else THREE, C, weights=weights)
        if groupings.copies.sum() > 15:
            continue
        exact = listed(groupings)
        for by_program in (False, True):
            found = possible_labels(groupings, by_program=by_program)
            assert not (exact & ~found).any()
        ruled_out += (~exact).sum()
        missed += (found & ~exact).sum()
    assert ruled_out > 0
    assert missed <= 0.05 * ruled_out


def test_known_labels_help_to_prove_others() -> None:
    bags = Bags([2, 2], [[1, 1], [1, 1]]).with_labels([1, -1, -1, -1])
    groupings = Groupings(
        {"ward": ([0, 0, 1, 1], bags), "age": ([0, 1, 0, 1], Bags([2, 2], [[1, 1], [1, 1]]))}
    )
    assert possible_labels(groupings).argmax(axis=1).tolist() == [1, 0, 0, 1]
    assert possible_labels(groupings).sum() == 4


def test_noisy_counts_prove_nothing() -> None:
    noisy = Bags.from_noisy_counts([[0.0, 2.0], [2.0, 0.0]], [2, 2], Laplace(1.0))
    groupings = Groupings({"ward": ([0, 0, 1, 1], noisy), "age": ([0, 1, 0, 1], noisy)})
    assert possible_labels(groupings).all()


def test_counts_that_no_labels_have_are_an_error() -> None:
    more = 2500  # bags of one row, so that `Groupings` does not look for contradictions itself
    bags = Bags([2, 2, *[1] * more], [[0, 2], [2, 0], *[[1, 0]] * more])
    alone = range(2, more + 2)
    groupings = Groupings(
        {"ward": ([0, 0, 1, 1, *alone], bags), "age": ([0, 1, 0, 1, *alone], bags)}
    )
    with pytest.raises(InputError, match="contradict each other"):
        possible_labels(groupings)


def test_the_joint_posterior_settles_where_counts_prove_labels() -> None:
    """Without proofs, weights approach 0 and 1 as slowly as one over the rounds."""
    copies = np.array([3, 2, 1, 1, 3, 2, 2, 2, 3])
    counts = {"line": [[4, 2], [4, 2], [4, 3]], "column": [[4, 2], [6, 1], [2, 4]]}
    groupings = Groupings(
        {
            name: (
                of_row,
                Bags([3] * 3, counts[name], weights=copies[np.argsort(of_row, kind="stable")]),
            )
            for name, of_row in CROSSED.items()
        }
    )
    log_p = np.log(np.random.default_rng(0).dirichlet([3, 3], size=9))
    posterior = bag_posterior(log_p, groupings)
    assert posterior.converged
    assert posterior.rounds < 40
    assert (posterior.weights[~possible_labels(groupings)] == 0).all()
