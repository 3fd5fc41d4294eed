"""Means of scores are not shares, and are not taken for such without a word."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from bagwise import LLPClassifier, read_bags
from bagwise.bags import bags_of_other_rows

SIZES = np.random.default_rng(0).integers(15, 40, 40)
MEANS = 0.55 + 0.06 * np.random.default_rng(1).normal(size=40)
SHARES = np.random.default_rng(2).binomial(SIZES, 0.55) / SIZES


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    rng, lines = np.random.default_rng(3), []
    for school, size in enumerate(SIZES):
        lines += [f"S{school:02d},{x:.3f}" for x in rng.normal(size=size)]
    (tmp_path / "rows.csv").write_text("\n".join(["school,ses", *lines]) + "\n")
    return tmp_path / "rows.csv"


def labels(folder: Path, name: str, texts: list[str]) -> Path:
    lines = [f"S{school:02d},{text}" for school, text in enumerate(texts)]
    (folder / "labels.csv").write_text("\n".join([f"school,{name}", *lines]) + "\n")
    return folder / "labels.csv"


@pytest.mark.parametrize(("scale", "shown"), [(1, "{:.2f}"), (1, "{:.4f}"), (100, "{:.1f}")])
def test_means_are_refused_and_only_shares_that_are_said_to_be_some_are_taken(
    rows: Path, scale: float, shown: str
) -> None:
    file = labels(rows.parent, "mean_score", [shown.format(scale * x) for x in MEANS])
    with pytest.raises(ValueError, match="Nothing can be learned from means"):
        read_bags(rows, "school", file)
    with pytest.raises(
        ValueError, match=r"no share of its \d+ rows, and so for .* learned from means and"
    ):
        read_bags(rows, "school", file, classes="mean_score,OTHER")
    with pytest.warns(UserWarning, match="The nearest counts are taken.*from means or other"):
        read_bags(rows, "school", file, classes="mean_score,OTHER", labels_are="proportions")


def test_means_of_other_scales_are_refused_without_advice_that_makes_sense_of_them(
    rows: Path,
) -> None:
    file = labels(rows.parent, "mean_score", [f"{500 + 300 * x:.1f}" for x in MEANS])
    for labels_are in ("auto", "proportions"):
        with pytest.raises(ValueError, match="neither a count of these rows nor a share") as found:
            read_bags(rows, "school", file, classes="mean_score,OTHER", labels_are=labels_are)
        assert "proportions" not in str(found.value)


def test_a_mean_that_could_be_a_share_is_doubted_by_its_name(rows: Path) -> None:
    file = labels(rows.parent, "Mean score", [f"{x:.1f}" for x in MEANS])
    with pytest.warns(UserWarning, match="Nothing can be learned from it if it is a mean"):
        read_bags(rows, "school", file, classes="Mean score,OTHER", labels_are="proportions")


@pytest.mark.parametrize("decimals", [1, 2, 3, 4, 12])
@pytest.mark.parametrize("cut", [np.round, lambda x, d: np.floor(x * 10**d + 1e-9) / 10**d])
def test_shares_of_the_rows_are_never_doubted(rows: Path, decimals: int, cut: object) -> None:
    shares = cut(SHARES, decimals)  # type: ignore[operator]
    assert not len(bags_of_other_rows(shares[:, None], SIZES))
    assert not len(bags_of_other_rows(np.stack([shares, 1 - shares], axis=1), SIZES))
    if decimals > 1:
        file = labels(rows.parent, "yes", [f"{x:.{decimals}f}" for x in shares])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_bags(rows, "school", file, classes="yes,no")


def test_shares_of_three_classes_may_be_adjusted_to_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    counts = np.stack([rng.multinomial(size, [0.2, 0.3, 0.5]) for size in SIZES])
    shares = (counts / SIZES[:, None]).round(3)
    shares[:, 0] = (1 - shares[:, 1:].sum(axis=1)).round(3)
    assert not len(bags_of_other_rows(shares, SIZES))
    others = rng.dirichlet([20, 30, 50], size=40).round(3)
    assert len(bags_of_other_rows(others, SIZES)) > 20


def test_a_few_bags_that_lost_a_row_are_no_reason_to_doubt() -> None:
    shares = SHARES.copy()
    shares[:2] = 0.12345
    assert not len(bags_of_other_rows(shares.round(4)[:, None], SIZES))


def test_the_classifier_doubts_means_too() -> None:
    ids = np.repeat(np.arange(40), SIZES)
    X = np.random.default_rng(0).normal(size=(len(ids), 2))
    model = LLPClassifier(model="linear", epochs=1)
    with pytest.warns(UserWarning, match=r"so in \d+ of 40 bags.* not means or the like"):
        model.fit(X, ids, dict(enumerate(MEANS.round(4))))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X, ids, dict(enumerate(SHARES.round(4))))
