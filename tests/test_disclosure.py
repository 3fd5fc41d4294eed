"""How many labels counts give away, against the list of all labelings."""

from __future__ import annotations

import numpy as np
import pytest

from bagwise import Bags, Disclosure, DiscreteLaplace, Groupings, disclosure
from bagwise.errors import InputError, InputTypeError
from oracles import enumerate_groupings

LINE, COLUMN = np.arange(9) // 3, np.arange(9) % 3
EVEN = np.log([0.5, 0.5])


def crossed(seed: int) -> Groupings:
    labels = (np.random.default_rng(seed).random(9) < 0.7).astype(int)
    found = {}
    for name, of_row in (("line", LINE), ("column", COLUMN)):
        ones = np.bincount(of_row, labels).astype(int)
        found[name] = (of_row, Bags([3] * 3, np.stack([3 - ones, ones], axis=1)))
    return Groupings(found)


def test_a_label_is_proved_where_every_labeling_with_the_counts_has_it() -> None:
    proved = 0
    for seed in range(12):
        groupings = crossed(seed)
        _, exact = enumerate_groupings(np.tile(EVEN, (9, 1)), groupings)
        found = disclosure(EVEN, groupings)
        certain = exact.max(axis=1) > 1 - 1e-9
        np.testing.assert_array_equal(found.proved, np.where(certain, exact.argmax(axis=1), -1))
        assert found.complete
        assert found.share_proved == pytest.approx(certain.mean())
        assert not (certain & ~found.sure).any()
        proved += certain.sum()
    assert 0 < proved < 12 * 9


def test_a_label_is_sure_where_its_posterior_is_above_the_level() -> None:
    rng = np.random.default_rng(0)
    log_p = np.log(rng.dirichlet([0.3, 0.3], size=9))
    bags = Bags([4, 5], [[2, 2], [1, 4]])
    by_bag = Groupings({"bag": (np.repeat([0, 1], [4, 5]), bags)})
    _, exact = enumerate_groupings(log_p, by_bag)
    for level in (0.6, 0.9, 0.99):
        found = disclosure(log_p, bags, level=level)
        np.testing.assert_array_equal(found.sure, exact.max(axis=1) > level)
        np.testing.assert_array_equal(found.sure_before, np.exp(log_p).max(axis=1) > level)


def test_noisy_counts_prove_nothing_and_say_so() -> None:
    noisy = Bags.from_noisy_counts([[0.0, 3.0]] * 3, [3] * 3, DiscreteLaplace(2.0))
    found = disclosure(EVEN, noisy)
    assert (found.proved == -1).all()
    assert str(found).splitlines()[2] == "  0 labels (0.0%) for certain, whatever one believes."


def test_rows_stand_for_people_and_given_labels_are_not_counted() -> None:
    bags = Bags([3, 2], [[9, 0], [1, 2]], weights=[2, 3, 4, 1, 2]).with_labels([0, -1, -1, -1, -1])
    found = disclosure(EVEN, bags)
    assert found.share_proved == pytest.approx(7 / 10)
    assert found.proved.tolist() == [-1, 0, 0, -1, -1]
    assert str(found).startswith("Of 10 rows, the counts give away:\n  7 labels (70.0%)")


def test_what_was_not_proved_with_more_classes_is_said() -> None:
    three = Groupings(
        {
            "a": ([0, 0, 1, 1], Bags([2, 2], [[1, 1, 0], [1, 1, 0]])),
            "b": ([0, 1, 0, 1], Bags([2, 2], [[1, 1, 0], [1, 1, 0]])),
        }
    )
    found = disclosure(np.zeros(3), three)
    assert isinstance(found, Disclosure)
    assert not found.complete
    assert "there may be more" in str(found)


def test_what_cannot_be_audited_is_named() -> None:
    bags = Bags([2], [[1, 1]])
    with pytest.raises(InputError, match=r"log_probs has shape \(3,\); \(2, 2\) is expected"):
        disclosure(np.zeros(3), bags)
    with pytest.raises(InputError, match=r"level is 0\.3"):
        disclosure(EVEN, bags, level=0.3)
    with pytest.raises(InputError, match="labels of all rows are given"):
        disclosure(EVEN, bags.with_labels([0, 1]))
    with pytest.raises(InputTypeError, match="counts is a list"):
        disclosure(EVEN, [[1, 1]])  # type: ignore[arg-type]
