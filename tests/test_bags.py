from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from bagwise import Bags, Laplace, bag_posterior
from bagwise.autograd.bag_tensors import tensors_of
from bagwise.errors import DamagedError


@pytest.mark.parametrize("kind", [list, np.asarray, torch.tensor, np.float32, torch.FloatTensor])
def test_sizes_and_counts_may_be_lists_arrays_or_tensors(kind: Any) -> None:
    bags = Bags(kind([3, 2]), kind([[2, 1], [0, 2]]))
    assert bags == Bags([3, 2], [[2, 1], [0, 2]])
    assert bags.sizes.dtype == bags.counts.dtype == np.int64
    assert (bags.n_instances, bags.n_classes, len(bags)) == (5, 2, 2)
    assert bags.bag_of_row.tolist() == [0, 0, 0, 1, 1]


def test_arrays_that_may_not_be_written_are_taken_without_a_warning() -> None:
    sizes, counts, proportions = np.array([3]), np.array([[2, 1]]), np.array([[0.5, 0.5]])
    for array in (sizes, counts, proportions):
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bags = Bags(sizes, counts)
        assert tensors_of(bags.select([0])).low.tolist() == [[2, 1]]
        assert Bags.from_proportions(proportions, [2]).counts.tolist() == [[1, 1]]


def test_arrays_cannot_be_changed_afterwards() -> None:
    counts = np.array([[2, 1]])
    bags = Bags([3], counts)
    counts[0, 0] = 7
    assert bags.counts[0, 0] == 2
    with pytest.raises(ValueError, match="read-only"):
        bags.counts[0, 0] = 7


@pytest.mark.parametrize(
    ("sizes", "counts", "message"),
    [
        ([2, 3], [[1, 1], [1, 1]], r"counts of bag 1 sum to 2, but its size is 3: \[1, 1\]"),
        ([2, 3], [[1, 1], [4, -1]], r"bag 1 has a negative count: \[4, -1\]"),
        ([2], [[1.5, 0.5]], r"counts\[0, 0\] is 1.5; .*from_proportions"),
        ([2.5], [[1, 1]], r"sizes\[0\] is 2.5"),
        ([2, 0], [[1, 1], [0, 0]], "bag 1 has size 0; leave empty bags out"),
        ([2], [[1, 1], [1, 1]], "1 bags and counts 2"),
        ([[2]], [[1, 1]], r"sizes has shape \(1, 1\)"),
        ([2], [1, 1], r"counts has shape \(2,\).*\(bags, classes\)"),
        ([2], [[float("inf"), 2]], r"counts\[0, 0\] is inf"),
        ([2, 2], [[1, 1], [2]], "rows of different lengths"),
        ([], np.zeros((0, 3)), "at least one bag"),
        ([1], [["a"]], "counts holds .* numbers are needed"),
    ],
)
def test_bad_counts_are_named(sizes: Any, counts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bags(sizes, counts)


@pytest.mark.parametrize(
    ("labels", "sizes", "n_classes", "message"),
    [
        ([0, 1, 2], [2], None, "sizes sum to 2, but there are 3 labels"),
        ([0, 3], [2], 3, r"label of row 1 is 3; labels must lie in 0 \.\. 2"),
        ([0, -1], [2], None, "label of row 1 is -1"),
        ([0, 1], [2, 0], None, "bag 1 has size 0"),
    ],
)
def test_bad_labels_are_named(labels: Any, sizes: Any, n_classes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bags.from_labels(labels, sizes, n_classes)


@pytest.mark.parametrize(
    ("proportions", "sizes", "options", "message"),
    [
        ([[0.5, 0.4]], [10], {}, r"bag 0 sum to 0.9: \[0.5, 0.4\]"),
        ([[0.5, 0.5], [0.3, 0.7]], [2, 3], {}, r"bag 1 times its size 3 .* \[0.9, 2.1\].*nearest"),
        ([[1.2, -0.2]], [10], {}, "bag 0 has a negative proportion"),
        ([[5, 5]], [10], {}, r"sum to 10.*Bags\(sizes, counts\)"),
        ([[0.5, 0.5]], [2, 2], {}, "2 bags and proportions 1"),
        ([[0.5, 0.5]], [2], {"rounding": "up"}, "'up'"),
    ],
)
def test_bad_proportions_are_named(
    proportions: Any, sizes: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Bags.from_proportions(proportions, sizes, **options)


counts = st.lists(st.lists(st.integers(0, 400), min_size=3, max_size=3), min_size=1).filter(
    lambda rows: all(sum(row) > 0 for row in rows)
)


@given(counts, st.sampled_from([np.float32, np.float64]))
def test_exact_proportions_give_back_the_counts(rows: list[list[int]], dtype: Any) -> None:
    table = np.array(rows)
    sizes = table.sum(axis=1)
    proportions = (table / sizes[:, None]).astype(dtype)
    for rounding in ("exact", "nearest"):
        assert (Bags.from_proportions(proportions, sizes, rounding).counts == table).all()


@given(counts)
@example([[1, 1, 198]])  # shares of .005 are rounded to 0
def test_rounded_proportions_give_counts_less_than_one_rounding_step_off(
    rows: list[list[int]],
) -> None:
    table = np.array(rows)
    sizes = table.sum(axis=1)
    rounded = np.round(table / sizes[:, None], 2)
    found = Bags.from_proportions(rounded, sizes, rounding="nearest")
    assert (found.sizes == sizes).all()
    step = 0.005 * sizes[:, None]
    assert (np.abs(found.counts - table) <= 1 + 5 * step).all()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 20), st.randoms())
def test_batches_are_whole_bags_within_the_budget(
    sizes: list[int], budget: int, random: Any
) -> None:
    bags = Bags(sizes, np.array(sizes)[:, None])
    order = list(range(len(sizes)))
    random.shuffle(order)
    batches = list(bags.batches(budget, order))
    assert np.concatenate(batches).tolist() == order
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        total = bags.sizes[batch].sum()
        assert total <= budget or len(batch) == 1
        if following is not None:  # the next bag did not fit any more
            assert total + bags.sizes[following[0]] > budget


@given(
    st.lists(st.integers(1, 9) | st.just(40), min_size=1, max_size=30),
    st.integers(1, 20),
    st.integers(2, 6),
    st.none() | st.integers(1, 100),
)
def test_batches_hold_several_bags_as_far_as_memory_allows(
    sizes: list[int], budget: int, several: int, most: int | None
) -> None:
    bags = Bags(sizes, np.array(sizes)[:, None])
    batches = list(bags.batches(budget, bags=several, most=most))
    assert np.concatenate(batches).tolist() == list(range(len(sizes)))
    totals = [int(bags.sizes[batch].sum()) for batch in batches]
    limit = sum(sizes) if most is None else most
    for i, (batch, total) in enumerate(zip(batches, totals, strict=True)):
        assert total <= max(budget, limit) or len(batch) == 1
        if len(batch) < several:  # neither its neighbor nor the batch before has room for more
            assert i + 1 == len(batches) or total + bags.sizes[batches[i + 1][0]] > limit
            assert i == 0 or total + totals[i - 1] > limit


@pytest.mark.parametrize("big", [0, 17, 299, 300])
def test_a_huge_bag_among_single_rows_is_not_alone(big: int) -> None:
    sizes = np.ones(301, dtype=int)
    sizes[big] = 20_000
    bags = Bags(sizes, sizes[:, None])
    batches = list(bags.batches(256, bags=8, most=50_000))
    assert min(len(batch) for batch in batches) >= 8
    assert len(batches) <= 4


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_selected_bags_come_with_their_rows(sizes: list[int], data: Any) -> None:
    labels = np.arange(sum(sizes)) % 3
    bags = Bags.from_labels(labels, sizes, n_classes=3)
    index = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1))
    chosen = bags.select(index)
    assert chosen == Bags.from_labels(labels[bags.rows(index)], chosen.sizes, n_classes=3)


def test_a_bag_that_does_not_exist_is_named() -> None:
    with pytest.raises(IndexError, match="no bag 2; there are 2 bags"):
        Bags([1, 1], [[1], [1]]).rows([0, 2])


@pytest.mark.parametrize(
    ("rows", "shares", "message"),
    [
        ([0, 3], [1, 1], r"rows\[1\] is 3; the bag has instances 0 to 2"),
        ([-1], [1, 1], r"rows\[0\] is -1"),
        ([1, 2, 1], [1, 1], "row 1 is given 2 times"),
        ([], [1, 1], "selects no instance"),
        ([0], [1, 1, 1], "3 shares for 2 classes"),
        ([0], [1.5, -0.5], r"shares\[1\] is -0.5; shares must be 0 or more"),
    ],
)
def test_what_is_no_part_of_a_bag_is_named(rows: Any, shares: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bags([3], [[2, 1]]).part(rows, shares)


def test_any_iterable_of_bags_is_joined() -> None:
    parts = [Bags([1], [[0, 1]]), Bags([2], [[1, 1]])]
    assert Bags.join(part for part in parts) == Bags.join(parts)
    with pytest.raises(ValueError, match="no bags to join"):
        Bags.join([])


def test_expected_counts_know_the_known_labels() -> None:
    bags = Bags.from_ranges([[0, 0]], [[4, 4]], [4]).with_labels([0, 0, 0, -1])
    np.testing.assert_allclose(bags.expected_counts, [[3.5, 0.5]], atol=1e-8)
    whole = Bags.from_ranges([[6, 0]], [[8, 10]], [10]).with_labels([0] * 5 + [-1] * 5)
    np.testing.assert_allclose(whole.expected_counts, [[7, 3]], atol=1e-8)
    np.testing.assert_allclose(whole.part(range(5, 10), [0.5, 0.5]).expected_counts, [[2, 3]])
    np.testing.assert_allclose(whole.part(range(3, 8), [0.5, 0.5]).expected_counts, [[3.2, 1.8]])
    for engine in ("multinomial", "transport"):
        post = bag_posterior(torch.zeros(4, 2), bags, engine)
        assert post.log_likelihood.isfinite().all()
        assert (post.weights[3] > 0.2).all(), "both labels are possible"
        torch.testing.assert_close(post.weights[:3], torch.tensor([[1.0, 0.0]]).expand(3, 2))


@pytest.mark.parametrize(
    "bags",
    [
        Bags([4, 1], [[1, 3], [1, 0]]),
        Bags([4], [[1, 3]]).with_labels([0, -1, -1, -1]),
        Bags.from_ranges([[6, 0]], [[8, 10]], [10]).with_labels([0] * 5 + [-1] * 5),
        Bags.from_noisy_counts([[2.5, 9.1], [0.3, np.nan]], [2, 1], Laplace(2), weights=[7, 4, 2]),
    ],
)
@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda bags: pickle.loads(pickle.dumps(bags)),
        lambda bags: reloaded(bags),
    ],
)
def test_copies_are_equal_and_nobody_can_write_to_them(bags: Bags, copied: Any) -> None:
    found = copied(bags)
    assert found == bags
    np.testing.assert_array_equal(found.expected_counts, bags.expected_counts)
    labels, expected = tensors_of(found).labels, tensors_of(bags).labels
    assert (labels is None) == (expected is None)
    assert labels is None or torch.equal(labels, expected)
    for array in (found.sizes, found.min_counts):
        assert not array.flags.writeable, "kernels are compiled for arrays that are read alone"


def reloaded(bags: Bags) -> Bags:
    """Saved and loaded by PyTorch, which then takes no code from the file."""
    file = io.BytesIO()
    torch.save({"bags": bags}, file)
    file.seek(0)
    found: Bags = torch.load(file, weights_only=True)["bags"]
    return found


@pytest.mark.parametrize(
    ("place", "instead"),
    [
        (0, [4, 0]),
        (0, [4, 2**60]),
        (1, [1, 3, 1]),
        (1, [1, 4, 1, 0]),
        (1, [-1, 5, 1, 0]),
        (2, [1.0, 3.0, 1.0, 0.0, 0.0, 9.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]),
        (3, [0, 2, -1, -1, -1]),
        (3, [0]),
        (4, [1, 1, 1, 1, 0]),
        (4, [1, 1]),
    ],
)
def test_damaged_bags_are_not_loaded(place: int, instead: list[float]) -> None:
    make, arrays = Bags([4, 1], [[1, 3], [1, 0]]).__reduce__()
    assert make(*arrays) == Bags([4, 1], [[1, 3], [1, 0]])
    damaged = list(arrays)
    damaged[place] = np.array(instead).tobytes()
    with pytest.raises(DamagedError, match="not as they were saved; save them again"):
        make(*damaged)


def test_counts_may_have_gaps_as_other_libraries_write_them() -> None:
    expected = Bags([4], [[np.nan, 1, 2]])
    assert Bags([4], [[None, 1, 2]]) == expected
    assert Bags([4], np.ma.masked_array([[7, 1, 2]], mask=[[1, 0, 0]])) == expected
    frame = pd.DataFrame(
        {c: pd.array([n], dtype="Int64") for c, n in zip("abc", (pd.NA, 1, 2), strict=False)}
    )
    assert Bags(pd.Series([4], dtype="Int64"), frame) == expected
    with pytest.raises(ValueError, match="counts holds object values; numbers are needed"):
        Bags([4], np.array([["1", 3]], dtype=object))
