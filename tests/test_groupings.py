"""Several groupings of the same rows: joint posterior, composite likelihood, losses."""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import Bags, Groupings, Laplace, bag_posterior, most_probable_labeling
from bagwise.bags.potentials import of_counts
from bagwise.errors import InputError, InputTypeError
from bagwise.losses import (
    cc_loss,
    cc_squared_loss,
    dllp_loss,
    llpfc_loss,
    ot_loss,
    pll_cc_loss,
    pll_loss,
    pvc_loss,
    rc_loss,
)
from oracles import enumerate_groupings

TIGHT = {"settled": 1e-11, "max_rounds": 3000, "damping": 0.5}


def counted(labels: np.ndarray, bag_of_row: np.ndarray, C: int, weights: np.ndarray) -> np.ndarray:
    """(B, C) counts of labels (of rows written out) by bag."""
    counts = np.zeros((bag_of_row.max() + 1, C), np.int64)
    of_instance = np.repeat(bag_of_row, weights)
    np.add.at(counts, (of_instance[of_instance >= 0], labels[of_instance >= 0]), 1)
    return counts


def made(
    seed: int,
    bags_of_rows: dict[str, list[int]],
    C: int,
    s: float = 2.0,
    noisy: str = "",
    weights: list[int] | None = None,
) -> tuple[np.ndarray, Groupings]:
    """Log-probabilities s * onehot + sqrt(s) * noise of true labels, and groupings of them."""
    rng = np.random.default_rng(seed)
    N = len(next(iter(bags_of_rows.values())))
    m = np.ones(N, np.int64) if weights is None else np.array(weights)
    labels = rng.integers(C, size=m.sum())
    of_rows = labels[np.cumsum(m) - m]
    log_p = s * np.eye(C)[of_rows] + s**0.5 * rng.normal(size=(N, C))
    groupings = {}
    for name, given_ in bags_of_rows.items():
        of_row = np.array(given_)
        counts = counted(labels, of_row, C, m)
        order = np.argsort(of_row, kind="stable")[np.count_nonzero(of_row < 0) :]
        sizes, w = np.bincount(of_row[of_row >= 0]), m[order]
        bags = Bags(sizes, counts, weights=w)
        if name == noisy:
            observed = counts + rng.laplace(size=counts.shape)
            bags = Bags.from_noisy_counts(observed, sizes, Laplace(1.0), weights=w)
        groupings[name] = (of_row, bags)
    return log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True), Groupings(groupings)


CROSSED = {"line": [0, 0, 0, 1, 1, 1, 2, 2, 2], "column": [0, 1, 2, 0, 1, 2, 0, 1, 2]}
NESTED = {"ward": [0, 0, 1, 1, 2, 2, 3], "county": [0, 0, 0, 0, 1, 1, 1]}
PARTIAL = {"ward": [0, 0, 1, 1, 1, -1, -1], "age": [-1, -1, -1, 0, 0, 0, 1]}
THREE = {
    "a": [0, 0, 0, 1, 1, 1, 2, 2],
    "b": [0, 1, 1, 0, 0, -1, 1, 0],
    "c": [0, 0, 1, 1, 1, 1, 0, 0],
}


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("noisy", ["", "ward"])
@pytest.mark.parametrize("s", [0.3, 2.0])
def test_without_loops_the_joint_posterior_is_exact(C: int, noisy: str, s: float) -> None:
    """Bags of the one grouping share no more than one row with bags of the other, in no circle."""
    tree = {"ward": [0, 0, 0, 1, 1, 1, -1], "age": [-1, 0, -1, 0, 1, -1, 1]}
    log_p, groupings = made(3, tree, C, s, noisy)
    found = bag_posterior(log_p, groupings, **TIGHT)
    log_likelihood, weights = enumerate_groupings(log_p, groupings)
    assert found.converged
    np.testing.assert_allclose(found.weights, weights, atol=1e-9)
    assert found.log_likelihood == pytest.approx(log_likelihood, abs=1e-9)


@pytest.mark.parametrize("weights", [None, [1, 2, 1, 1, 1, 2, 1]])
@pytest.mark.parametrize("noisy", ["", "county"])
@pytest.mark.parametrize(
    "bags_of_rows",
    [
        NESTED,
        {"ward": [0, 0, 1, 1, -1, -1, 2], "county": [0, 0, 0, 0, 0, 1, 1]},  # a hidden ward
        {"ward": [0, 0, 1, 1, -1, 2, 2], "county": [0, 0, 0, 0, 0, 1, 1], "all": [0] * 7},
        {"ward": [0, 0, 0, 1, 1, 1, 1], "county": [0, 0, 0, 1, 1, 1, 1]},  # the same twice
    ],
)
def test_nested_groupings_are_exact(
    bags_of_rows: dict[str, list[int]], noisy: str, weights: list[int] | None
) -> None:
    log_p, groupings = made(2, bags_of_rows, 2 if weights else 3, 1.0, noisy, weights)
    found = bag_posterior(log_p, groupings, "exact")
    log_likelihood, true = enumerate_groupings(log_p, groupings)
    assert (found.rounds, found.converged) == (1, True)
    np.testing.assert_allclose(found.weights, true, atol=1e-9)
    assert found.log_likelihood == pytest.approx(log_likelihood, abs=1e-9)


def test_inner_bags_that_exceed_the_outer_one_are_refused_however_they_are_connected() -> None:
    ward, age = [0, 0, 1, 1, -1], [-1, 0, 0, 1, 1]
    groupings = Groupings(
        {
            "ward": (ward, Bags([2, 2], [[2, 0], [1, 1]])),
            "county": ([0, 0, 0, 0, 1], Bags([4, 1], [[3, 1], [0, 1]])),
            "age": (age, Bags([2, 2], [[2, 0], [0, 2]])),
        }
    )
    assert bag_posterior(np.zeros((5, 2)), groupings).weights[4].argmax() == 1
    known = groupings.groupings[1].bags.potentials or of_counts(np.array([[3, 1]]), np.array([4]))
    with pytest.raises(InputError, match="bags inside it have"):
        known.less(np.array([[4, 0]]))


@pytest.mark.parametrize(
    ("bags_of_rows", "C", "noisy", "weights"),
    [
        (CROSSED, 2, "", None),
        (CROSSED, 3, "", None),
        (NESTED, 3, "ward", None),
        (PARTIAL, 3, "", None),
        (THREE, 3, "", None),
        (CROSSED, 2, "line", None),
        (THREE, 3, "b", None),
        ({"x": [0, 0, 1, 1, -1], "y": [0, 1, 0, 1, 1]}, 2, "", [2, 1, 3, 2, 1]),
        ({"x": [0, 0, 1, 1, -1], "y": [0, 1, 0, 1, 1]}, 3, "y", [2, 1, 2, 2, 1]),
    ],
)
def test_joint_posterior_is_closer_to_enumeration_than_any_grouping_alone(
    bags_of_rows: dict[str, list[int]], C: int, noisy: str, weights: list[int] | None
) -> None:
    off, off_log, alone = [], [], []
    G, N = len(bags_of_rows), len(next(iter(bags_of_rows.values())))
    for seed in range(6):
        log_p, groupings = made(seed, bags_of_rows, C, 2.0, noisy, weights)
        found = bag_posterior(log_p, groupings, damping=0.5, messages=np.zeros((G, N, C)))
        log_likelihood, true = enumerate_groupings(log_p, groupings)
        off.append(np.abs(found.weights - true).sum(1).mean())
        off_log.append(abs(found.log_likelihood - log_likelihood))
        composite = bag_posterior(log_p, groupings, joint=False)
        alone.append(np.abs(composite.weights - true).sum(1).mean())
        np.testing.assert_allclose(found.weights.sum(1), 1.0)
    assert np.mean(off) < 0.08
    assert np.mean(off_log) < 1.0  # nats: counts that follow from others are counted twice
    assert np.mean(off) < np.mean(alone)


def test_weighted_rows_are_rows_written_out() -> None:
    bags_of_rows = {"x": [0, 0, 1, 1, -1], "y": [0, 1, 0, 1, 1]}
    m = [2, 1, 3, 2, 1]
    log_p, groupings = made(1, bags_of_rows, 3, 2.0, "", m)
    written = Groupings(
        {g.name: (np.repeat(g.bag_of_row, m), g.bags.written_out()) for g in groupings}
    )
    for how, rows in (({"joint": False}, 0), ({"max_rounds": 20}, 5)):
        begin = [{"messages": np.zeros((2, n, 3))} if rows else {} for n in (5, sum(m))]
        one = bag_posterior(log_p, groupings, "exact", **how, **begin[0])
        two = bag_posterior(np.repeat(log_p, m, 0), written, "exact", **how, **begin[1])
        np.testing.assert_allclose(np.repeat(one.weights, m, 0), two.weights, atol=1e-9)
        assert one.log_likelihood == pytest.approx(two.log_likelihood, abs=1e-9)


@pytest.mark.parametrize("engine", ["auto", "exact", "bethe", "multinomial", "transport"])
def test_one_grouping_gives_the_posterior_of_its_bags(engine: str) -> None:
    of_row = [2, 0, 1, 0, 1, 2, 2]
    log_p, groupings = made(0, {"only": of_row}, 3, noisy="")
    (g,) = groupings
    expected = bag_posterior(log_p[g.rows], g.bags, engine)
    for joint in (True, False):
        found = bag_posterior(log_p, groupings, engine, joint=joint)
        np.testing.assert_allclose(found.weights[g.rows], expected.weights, rtol=0, atol=1e-12)
        assert found.log_likelihood == pytest.approx(expected.log_likelihood.sum(), abs=1e-12)
        assert (found.rounds, found.converged) == (1, True)


@pytest.mark.parametrize("bags_of_rows", [CROSSED, NESTED, PARTIAL, THREE])
@pytest.mark.parametrize("noisy", [False, True])
def test_gradient_of_the_joint_log_likelihood_is_the_posterior(
    bags_of_rows: dict[str, list[int]], noisy: bool
) -> None:
    name = next(iter(bags_of_rows)) if noisy else ""
    m = (1 + np.arange(len(next(iter(bags_of_rows.values())))) % 2).tolist()
    log_p, groupings = made(0, bags_of_rows, 3, 2.0, name, m)
    found = bag_posterior(log_p, groupings, "exact", **TIGHT)
    assert found.converged
    for k, c in [(0, 0), (3, 1), (5, 2), (6, 1)]:
        moved = [log_p.copy(), log_p.copy()]
        moved[0][k, c] += 1e-5
        moved[1][k, c] -= 1e-5
        up, down = (bag_posterior(z, groupings, "exact", **TIGHT).log_likelihood for z in moved)
        assert (up - down) / 2e-5 == pytest.approx(m[k] * found.weights[k, c], abs=1e-6)


def test_gradients_of_tensors() -> None:
    log_p, groupings = made(5, CROSSED, 2, 2.0, "line", [1, 2, 1, 1, 1, 3, 1, 1, 1])
    m = torch.tensor(groupings.copies)[:, None]
    logits = torch.from_numpy(log_p).requires_grad_()
    found = bag_posterior(logits, groupings, **TIGHT)
    found.log_likelihood.backward()
    torch.testing.assert_close(logits.grad, m * found.weights)
    with pytest.raises(RuntimeError):
        torch.autograd.functional.hessian(
            lambda z: bag_posterior(z, groupings).log_likelihood, logits.detach()
        )
    logits.grad = None
    found = bag_posterior(logits, groupings, joint=False)
    found.log_likelihood.backward()
    degrees = torch.tensor(groupings.degrees)[:, None]
    torch.testing.assert_close(logits.grad, m * degrees * found.weights)


def test_composite_likelihood_is_the_sum_of_the_groupings() -> None:
    log_p, groupings = made(6, PARTIAL, 3)
    found = bag_posterior(log_p, groupings, joint=False)
    posts = [bag_posterior(log_p[g.rows], g.bags) for g in groupings]
    assert found.log_likelihood == pytest.approx(sum(p.log_likelihood.sum() for p in posts))
    weights = np.zeros_like(log_p)
    for g, post in zip(groupings, posts, strict=True):
        weights[g.rows] += post.weights
    weights[3:5] /= 2
    np.testing.assert_allclose(found.weights, weights)


def test_rows_in_no_grouping_keep_their_probabilities() -> None:
    log_p, groupings = made(7, {"a": [0, 0, -1], "b": [0, 0, -1]}, 2)
    for joint in (True, False):
        found = bag_posterior(log_p, groupings, joint=joint)
        np.testing.assert_allclose(found.weights[2], np.exp(log_p[2]))


def test_known_labels_are_certain_in_all_groupings() -> None:
    log_p, groupings = made(8, CROSSED, 3)
    _, true = enumerate_groupings(log_p, groupings)
    label = int(true[4].argmax())
    known = {}
    for g in groupings:
        labels = np.where(g.rows == 4, label, -1) if g.name == "line" else np.full(9, -1)
        known[g.name] = (g.bag_of_row, g.bags.with_labels(labels))
    with_label = Groupings(known)
    found = bag_posterior(log_p, with_label, **TIGHT)
    np.testing.assert_array_equal(found.weights[4], np.eye(3)[label])
    log_p[4] = np.where(np.arange(3) == label, 0.0, -np.inf)
    log_likelihood, true = enumerate_groupings(log_p, groupings)
    same = bag_posterior(log_p, groupings, **TIGHT)
    np.testing.assert_allclose(same.weights, found.weights, atol=1e-9)
    assert np.abs(same.weights - true).sum(1).mean() < 0.05
    assert abs(same.log_likelihood - log_likelihood) < 0.3


def test_messages_that_do_not_settle_are_warned_of_and_can_be_gone_on_from() -> None:
    log_p, groupings = made(9, CROSSED, 3, 0.3)
    with pytest.warns(RuntimeWarning, match="did not settle to 0.0001 in 2 rounds.*max_rounds"):
        first = bag_posterior(log_p, groupings, max_rounds=2)
    assert (first.rounds, first.converged) == (2, False)
    kept = first.messages.copy()
    for _ in range(400):
        kept = bag_posterior(log_p, groupings, max_rounds=1, messages=kept, damping=0.5).messages
    at_once = bag_posterior(log_p, groupings, **TIGHT)
    step_by_step = bag_posterior(log_p, groupings, max_rounds=1, messages=kept)
    assert at_once.converged
    assert step_by_step.converged
    np.testing.assert_allclose(step_by_step.weights, at_once.weights, atol=1e-6)
    assert step_by_step.log_likelihood == pytest.approx(at_once.log_likelihood, abs=1e-9)
    with pytest.raises(InputError, match=r"messages has shape \(2, 9\)"):
        bag_posterior(log_p, groupings, messages=np.zeros((2, 9)))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 4), st.floats(0.1, 20), st.booleans())
def test_weights_are_probabilities_whatever_the_groupings(
    seed: int, C: int, s: float, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    N = 8
    of_rows = {}
    for name in "abc":
        found = rng.integers(-1, 3, size=N)
        found[rng.permutation(N)[:3]] = 0, 1, 2
        of_rows[name] = found.tolist()
    m = rng.integers(1, 3, size=N).tolist() if weighted else None
    log_p, groupings = made(seed, of_rows, C, s, "b", m)
    kept = bag_posterior(log_p, groupings, messages=np.zeros((3, N, C)))  # without a warning
    assert np.isfinite(kept.log_likelihood)
    assert np.isfinite(kept.messages).all()
    np.testing.assert_allclose(kept.weights.sum(1), 1.0)
    for g in groupings:
        if kept.converged and g.name != "b":
            sums = np.zeros((len(g.bags), C))
            np.add.at(
                sums, g.bag_of_row[g.rows], (groupings.copies[:, None] * kept.weights)[g.rows]
            )
            np.testing.assert_allclose(sums, g.bags.counts, atol=0.02)


def test_losses_are_per_instance_and_keep_messages() -> None:
    log_p, groupings = made(10, CROSSED, 3, 2.0, "", [1, 2, 1, 1, 1, 1, 1, 1, 2])
    logits = torch.from_numpy(3 + log_p).requires_grad_()
    joint = bag_posterior(log_p, groupings)
    loss = cc_loss(logits, groupings)
    assert loss.item() == pytest.approx(-joint.log_likelihood / 11, abs=1e-9)
    loss.backward()
    slope = groupings.copies[:, None] * (np.exp(log_p) - joint.weights) / 11
    np.testing.assert_allclose(logits.grad, slope, atol=1e-9)
    composite = bag_posterior(log_p, groupings, joint=False)
    assert cc_loss(logits, groupings, joint=False).item() == pytest.approx(
        -composite.log_likelihood / 22
    )
    assert cc_loss(logits, groupings, reduction="sum").item() == pytest.approx(11 * loss.item())
    messages = np.zeros((2, 9, 3))
    for _ in range(200):
        kept = cc_loss(logits, groupings, messages=messages, max_rounds=1)
    assert kept.item() == pytest.approx(loss.item(), abs=1e-5)
    assert messages.any()
    with pytest.raises(InputError, match="reduction"):
        cc_loss(logits, groupings, reduction="none")
    assert cc_loss(logits * torch.nan, groupings).isnan()


def test_rc_loss_of_stored_probabilities_of_now_has_the_gradient_of_cc_loss() -> None:
    """With weights, and with a row that is in no bag."""
    partial = {"a": [0, 0, 0, 1, 1, -1], "b": [0, 1, 0, 1, 0, -1]}
    log_p, groupings = made(3, partial, 3, 1.0, "", [1, 2, 1, 1, 3, 1])
    one, two = (torch.from_numpy(2 + log_p).requires_grad_() for _ in range(2))
    rc_loss(one, groupings, torch.from_numpy(log_p)).backward()
    cc_loss(two, groupings).backward()
    np.testing.assert_allclose(one.grad, two.grad, atol=1e-9)
    assert one.grad is not None
    assert not one.grad[5].any()
    messages = np.zeros((2, 6, 3))
    rc_loss(one, groupings, torch.from_numpy(log_p), messages=messages, max_rounds=1)
    assert messages.any()
    with pytest.raises(InputError, match='reduction is "none"'):
        rc_loss(one, groupings, torch.from_numpy(log_p), reduction="none")


def test_stacked_rows_have_the_composite_likelihood_whatever_is_known_of_the_bags() -> None:
    log_p, groupings = made(14, THREE, 3, 1.0, "b", [1, 2, 1, 1, 3, 1, 1, 2])
    ranges = groupings.groupings[2].bags
    low, high = ranges.counts - 1, ranges.counts + 1
    known = {g.name: (g.bag_of_row, g.bags) for g in groupings}
    ranges = Bags.from_ranges(low.clip(0), high, ranges.sizes, weights=ranges.weights)
    groupings = Groupings(known | {"c": (known["c"][0], ranges)})
    rows, bags = groupings.stacked()
    assert len(bags) == 3 + 2 + 2
    assert bags.is_sharp.tolist() == [True] * 3 + [False] * 4
    np.testing.assert_array_equal(rows, np.concatenate([g.rows for g in groupings]))
    np.testing.assert_array_equal(bags.weights, groupings.weights[rows])
    found = bag_posterior(log_p[rows], bags).log_likelihood
    for at, g in zip([0, 3, 5], groupings, strict=True):
        alone = bag_posterior(log_p[g.rows], g.bags).log_likelihood
        np.testing.assert_allclose(found[at : at + len(g.bags)], alone)
    composite = bag_posterior(log_p, groupings, joint=False)
    assert found.sum() == pytest.approx(composite.log_likelihood)


def test_a_label_that_one_grouping_knows_is_known_in_all() -> None:
    line, column = [0, 0, 1, 1], [0, 1, 0, 1]
    two = Bags([2, 2], [[1, 1], [1, 1]])
    groupings = Groupings(
        {"line": (line, two), "column": (column, two.with_labels([-1, 0, -1, -1]))}
    )
    rows, bags = groupings.stacked()
    np.testing.assert_array_equal(bags.row_labels, [-1, -1, 0, -1, -1, 0, -1, -1])
    assert rows[2] == rows[5] == 2
    with pytest.raises(InputError, match="'line': row 2 is labeled class 0, but bag 1 has"):
        Groupings(
            {
                "line": (line, Bags([2, 2], [[2, 0], [0, 2]])),
                "column": (column, two.with_labels([-1, 0, -1, -1])),
            }
        )


ROWS = [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        (
            (ROWS, Bags([2, 2], [[1, 1], [2, 0]])),
            ([0, 1, 0, 1], Bags([2, 2], [[1, 1], [1, 1]])),
            r"bags 0, 1 of 'one' and bags 0, 1 of 'two'.*class 0 are 3 and 2",
        ),
        (
            (ROWS, Bags([2, 2], [[2, 0], [0, 2]])),
            ([0, 0, 0, -1], Bags([3], [[1, 2]])),
            r"bag 0 of 'one' and bag 0 of 'two'.*class 0 are 2 and 1",
        ),
        (
            (ROWS, Bags([2, 2], [[2, 0], [0, 2]])),
            ([-1, -1, 0, 0], Bags.from_ranges([[1, 0]], [[2, 2]], [2])),
            r"bag 1 of 'one' and bag 0 of 'two'",
        ),
    ],
)
def test_contradictions_between_groupings_name_the_bags(
    one: tuple[list[int], Bags], two: tuple[list[int], Bags], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Groupings({"one": one, "two": two})


def test_groupings_are_refused_only_if_no_labels_give_their_counts() -> None:
    rng = np.random.default_rng(0)
    all_labels = np.array(list(product(range(2), repeat=9)))
    told = missed = 0  # contradictions that no two groupings show
    for _ in range(150):
        given, possible = {}, np.ones(len(all_labels), np.bool_)
        for name in ("ward", "age", "sex"):
            of_row = rng.permutation(np.repeat([0, 1, 2], 3))
            counts = np.bincount(of_row[rng.permutation(9)[:4]], minlength=3)
            given[name] = (of_row, Bags([3] * 3, np.stack([3 - counts, counts], axis=1)))
            for bag, count in enumerate(counts):
                possible &= all_labels[:, of_row == bag].sum(axis=1) == count
        refused = [
            _is_refused({name: given[name] for name in names})
            for names in (*combinations(given, 2), tuple(given))
        ]
        assert not (possible.any() and any(refused))
        if not possible.any() and not any(refused[:-1]):
            told, missed = told + refused[-1], missed + (not refused[-1])
    assert (told, missed) == (21, 1)  # where whole numbers alone contradict, it is missed


def _is_refused(given: dict[str, tuple[np.ndarray, Bags]]) -> bool:
    try:
        Groupings(given)
    except InputError:
        return True
    return False


def test_contradictions_that_no_two_bags_show_name_a_change_that_mends_them() -> None:
    # Rows 3, 4, 5 and 0, 1, 5 are of class 0, so that only row 2 can be of class 1.
    ward, sex = [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0]
    counts = [[1, 2], [3, 0]], [[3, 0], [1, 2]]
    given = {"ward": (ward, Bags([3, 3], counts[0])), "sex": (sex, Bags([3, 3], counts[1]))}
    with pytest.raises(InputError, match=r"'ward', 'sex' contradict.*would do: [+-]1 for class"):
        Groupings(given)


def test_noisy_counts_may_contradict() -> None:
    noisy = Bags.from_noisy_counts([[3, -1], [0, 2]], [2, 2], Laplace(1.0))
    groupings = Groupings(
        {"one": (ROWS, Bags([2, 2], [[1, 1], [2, 0]])), "two": ([0, 1, 0, 1], noisy)}
    )
    assert np.isfinite(bag_posterior(np.zeros((4, 2)), groupings).log_likelihood)


@pytest.mark.parametrize(
    ("groupings", "message"),
    [
        ({}, "there is no grouping"),
        ({"a": (ROWS, Bags([3, 1], [[3, 0], [1, 0]]))}, "bag 0 of grouping 'a' has 3 rows, but 2"),
        ({"a": ([0, 0, 5], Bags([2], [[1, 1]]))}, "row 2 is in bag 5 of grouping 'a'"),
        (
            {"a": ([0, 0], Bags([2], [[1, 1]])), "b": ([0], Bags([1], [[1, 0]]))},
            "'a' has 2 rows and 'b' 1",
        ),
        (
            {
                "a": ([0, 0], Bags([2], [[2, 1]], weights=[2, 1])),
                "b": ([0, 0], Bags([2], [[2, 1]], weights=[1, 2])),
            },
            "the weight of row 0 is 1 in grouping 'b' and 2 in another",
        ),
    ],
)
def test_wrong_groupings_are_refused(
    groupings: dict[str, tuple[list[int], Bags]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Groupings(groupings)


def test_errors_of_a_bag_name_its_grouping() -> None:
    log_p, groupings = made(0, CROSSED, 2)
    log_p[0] = np.nan
    with pytest.raises(InputError, match=r"log_probs\[0, 0\] is nan"):
        bag_posterior(log_p, groupings)
    with pytest.raises(InputError, match=r"grouping 'line': .*max_states"):
        bag_posterior(np.zeros((9, 2)), groupings, "exact", max_states=1)
    with pytest.raises(InputError, match="no option 'iterations'"):
        bag_posterior(np.zeros((9, 2)), groupings, iterations=3)


@pytest.mark.parametrize(
    "loss", [dllp_loss, pvc_loss, ot_loss, pll_loss, pll_cc_loss, cc_squared_loss]
)
def test_losses_of_one_grouping_name_what_takes_several(loss: Any) -> None:
    _, groupings = made(0, CROSSED, 2)
    stored = [torch.zeros(9, 2)] if loss in (ot_loss, pll_loss) else []
    with pytest.raises(InputTypeError, match=rf"{loss.__name__} takes one grouping.*stacked\(\)"):
        loss(torch.zeros(9, 2), groupings, *stored)
    rows, bags = groupings.stacked()
    assert torch.isfinite(loss(torch.zeros(9, 2)[rows], bags, *(x[rows] for x in stored)))


def test_what_else_takes_no_groupings_says_so() -> None:
    log_p, groupings = made(0, CROSSED, 2)
    for values in (log_p, torch.from_numpy(log_p)):
        with pytest.raises(InputTypeError, match="most_probable_labeling takes one grouping"):
            most_probable_labeling(values, groupings)  # type: ignore[call-overload]
    with pytest.raises(InputTypeError, match=r"noisy_labels is a Groupings; a torch\.Tensor"):
        llpfc_loss(torch.zeros(9, 2), groupings, torch.ones(9, 2, 2))  # type: ignore[arg-type]


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).parent.parent / "docs" / "groupings.md"
    code = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(code) > 3
    known: dict[str, object] = {}
    for part in code:
        exec(part, known)
