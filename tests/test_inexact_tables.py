"""Tables with counts that are not exact, and with labels of some rows."""

from __future__ import annotations

import csv
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from typer.testing import CliRunner

from bagwise import Bags, DiscreteLaplace, Laplace, LLPClassifier, read_bags
from bagwise.cli import app
from bagwise.labels.label_spec import LabelSpec
from bagwise.tables.assess.baseline import baseline_log_likelihoods, overall_shares
from bagwise.tables.assess.held_out import assess, held_out_table, surprising_bags
from bagwise.tables.labels.cells import cells_of
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.search import linear_candidates as linear
from bagwise.tables.use.share_bounds import duncan_davis
from bagwise.wording.table_words import label_numbers
from fitted import fit_table, sign

B, K = 30, 12
WARDS = [f"w{b}" for b in range(B)]


def command(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(x) for x in arguments], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def done(*arguments: Any) -> str:
    code, output = command(*arguments)
    assert code == 0, output
    return output


def refused(*arguments: Any) -> str:
    code, output = command(*arguments)
    assert code in (2, 3), output
    assert output.startswith("Error: ")
    assert output.count("\n") == 1
    return output


def write(path: Path, header: list[str], rows: list[list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def table_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


class Made:
    """A table whose labels depend on two features, and its counts in several forms."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        self.folder = folder
        X = rng.normal(size=(B, K, 2)) + rng.normal(size=(B, 1, 2))
        self.y = (X.sum(axis=2) + 0.5 * rng.logistic(size=(B, K)) > 0).astype(int)
        self.n = self.y.sum(axis=1)
        cells = [[w, *x.round(3)] for w, own in zip(WARDS, X, strict=True) for x in own]
        self.rows = write(folder / "rows.csv", ["ward", "a", "b"], cells)
        known = rng.random(B * K) < 0.2
        labels = [
            ("yes" if y else "no") if k else "" for y, k in zip(self.y.flat, known, strict=True)
        ]
        cells = [[*row, label] for row, label in zip(cells, labels, strict=True)]
        self.n_labeled = int(known.sum()) + 2
        cells += [["", 2.0, 2.0, "yes"], ["", -2.0, -2.0, "no"]]
        self.labeled = write(folder / "labeled.csv", ["ward", "a", "b", "truth"], cells)
        pairs = list(zip(WARDS, self.n.tolist(), strict=True))
        both = ["ward", "no", "yes"]
        q = 1 - math.exp(-1 / 2)
        noise = rng.geometric(q, (B, 2)) - rng.geometric(q, (B, 2))
        self.exact = write(folder / "exact.csv", both, [[w, K - n, n] for w, n in pairs])
        self.noisy = write(
            folder / "noisy.csv",
            both,
            [[w, K - n + e[0], n + e[1]] for (w, n), e in zip(pairs, noise.tolist(), strict=True)],
        )
        self.ranges = write(
            folder / "ranges.csv",
            ["ward", "yes_low", "yes_high"],
            [[w, n // 3 * 3, n // 3 * 3 + 2 if n < 9 else ""] for w, n in pairs],
        )
        self.cells = write(
            folder / "cells.csv",
            ["ward", "no", "yes", "other"],
            [[w, K - n, n if n >= 5 else "<5", "<5" if n < 5 else 0] for w, n in pairs],
        )
        self.percent = write(
            folder / "percent.csv",
            both,
            [[w, round(100 * (K - n) / K), round(100 * n / K)] for w, n in pairs],
        )
        self.group = write(
            folder / "group.csv",
            ["ward", "yes", "total"],
            [[w, 50 * n + 3, 50 * K + 9] for w, n in pairs],
        )
        self.unknown = write(
            folder / "unknown.csv",
            ["ward", "no", "yes", "other"],
            [[w, K - n, "*" if b % 2 else n, "" if b % 2 else 0] for b, (w, n) in enumerate(pairs)],
        )

    def kinds(self) -> list[tuple[Path, list[str], str]]:
        """Label file, options, and how the counts are then said to be known."""
        two = ["--classes", "yes,no"]
        return [
            (self.noisy, ["--noise", "discrete-laplace:2"], "discrete Laplace noise of width 2"),
            (self.ranges, ["--labels-are", "ranges", *two], "ranges of counts"),
            (self.cells, [], "ranges of counts"),
            (self.unknown, ["--labels-are", "counts"], "counts, some of which are not known"),
            (self.group, ["--labels-are", "sample", *two], "counts of larger groups"),
        ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("inexact"))


def numbers_in(text: str) -> Any:
    """Cells of a column as (low, high)."""
    import pyarrow as pa

    found = cells_of(pa.chunked_array([[text, "7"]]), "x")
    return None if found is None else (found.low[0], found.high[0])


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("<5", 0, 4),
        ("< 5", 0, 4),
        ("Fewer than 5", 0, 4),
        ("less than 5", 0, 4),
        ("<=5", 0, 5),
        ("≤ 5", 0, 5),
        ("at most 5", 0, 5),
        ("5 or fewer", 0, 5),
        ("1-4", 1, 4),
        ("1 to 4", 1, 4),
        ("1\u20134", 1, 4),
        (">=10", 10, np.nan),
        ("10+", 10, np.nan),
        (">9", 10, np.nan),
        ("more than 9", 10, np.nan),
        ("*", np.nan, np.nan),
        ("", np.nan, np.nan),
        (" 3 ", 3, 3),
        ("2.5", 2.5, 2.5),
        ("-3", -3, -3),
    ],
)
def test_cells_are_numbers_ranges_or_unknown(text: str, low: float, high: float) -> None:
    np.testing.assert_array_equal(numbers_in(text), (low, high))


@pytest.mark.parametrize("text", ["many", "<five", "1-2-3", "5 <", "<2.5"])
def test_other_texts_are_no_numbers(text: str) -> None:
    assert numbers_in(text) is None


def test_every_kind_of_count_is_fitted_labeled_and_estimated(made: Made, tmp_path: Path) -> None:
    for place, (labels, options, words) in enumerate(made.kinds()):
        model = tmp_path / f"model{place}"
        fit = ("fit", made.rows, "--bag", "ward", "--labels", labels, "--model", "linear")
        output = done(*fit, *options, "--out", model)
        assert words in output
        assert "predicted and given shares" in output
        facts = FittedTable.load(model).facts
        assert words in label_numbers(facts.data.labels)
        assert facts.data.inexact_bags > 0
        assert facts.verdict == "learned"
        assert facts.held_out.covered_bags == len(facts.held_out.bags) - facts.data.inexact_bags
        header = (model / "held_out_bags.csv").read_text().split("\n")[0]
        assert "expected_yes,least_yes,most_yes,predicted_yes,low_yes,high_yes" in header
        known = (
            "--bag",
            "ward",
            "--labels",
            labels,
            *(o for o in options if o not in ("--classes", "yes,no")),
        )
        output = done(
            "label", model, made.rows, *known, "--out", tmp_path / "labels.csv", "--force"
        )
        assert words in output
        assert "need not match them exactly" in output
        rows = list(table_of(tmp_path / "labels.csv"))
        right = np.mean(
            [(row["label"] == "yes") == y for row, y in zip(rows, made.y.flat, strict=True)]
        )
        assert right > 0.75, labels
        output = done(
            "estimate",
            model,
            made.rows,
            "--by",
            "ward",
            *known,
            "--out",
            tmp_path / "s.csv",
            "--force",
        )
        for row in table_of(tmp_path / "s.csv"):
            true = made.n[WARDS.index(row["ward"])] / K
            if row["class"] == "yes":
                assert (
                    float(row["least"]) - 1e-6 <= true <= float(row["most"]) + 1e-6
                    or "sample" in options
                )
    known = ("--bag", "ward", "--labels", made.noisy, "--noise", "discrete-laplace:2")
    done("report", tmp_path / "model0", made.rows, *known, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "noisy counts, discrete Laplace noise of width 2" in page
    assert "The true shares are not known" in page
    assert "<title>" in page


def test_ranges_that_leave_one_count_are_exact_counts(made: Made, tmp_path: Path) -> None:
    labels = write(
        tmp_path / "l.csv",
        ["ward", "no", "yes"],
        [[w, K - n, "<5" if n < 5 else n] for w, n in zip(WARDS, made.n, strict=True)],
    )
    with pytest.warns(UserWarning, match="such as '<5' are read as ranges of counts"):
        table = read_bags(made.rows, "ward", labels)
    assert [table.proportions[w]["yes"] for w in WARDS] == made.n.tolist()


def test_what_read_bags_gives_is_what_the_classifier_takes(made: Made) -> None:
    for labels, are, classes in (
        (made.noisy, DiscreteLaplace(2), None),
        (made.percent, "rounded", None),
        (made.ranges, "ranges", "yes,no"),
        (made.group, "sample", "yes,no"),
        (made.unknown, "counts", None),
    ):
        X, bags, proportions, _ = read_bags(
            made.rows, "ward", labels, labels_are=are, classes=classes
        )
        model = LLPClassifier(model="linear", epochs=60, lr=0.05, random_state=0)
        model.fit(X, bags, proportions, labels_are=are)
        assert np.mean((model.predict(X) == "yes") == made.y.ravel()) > 0.75, labels


def test_rounded_shares_have_the_decimals_of_the_file(made: Made, tmp_path: Path) -> None:
    rows = [[w, f"{n / K:.1f}", f"{1 - n / K:.1f}"] for w, n in zip(WARDS, made.n, strict=True)]
    found = read_labels(
        write(tmp_path / "l.csv", ["ward", "yes", "no"], rows), ["ward"], labels_are="rounded"
    )
    assert found.label_spec == LabelSpec("rounded", decimals=1)
    pure = write(tmp_path / "pure.csv", ["ward", "yes", "no"], [["a", 1, 0], ["b", 0, 1]])
    with pytest.raises(ValueError, match="all 0 or 1"):
        read_labels(pure, ["ward"], labels_are="rounded")


def test_a_bag_of_which_nothing_is_known_is_as_if_it_were_not_there(
    made: Made, tmp_path: Path
) -> None:
    rows = [
        [w, "" if w == "w3" else K - n, "*" if w == "w3" else n]
        for w, n in zip(WARDS, made.n, strict=True)
    ]
    labels = write(tmp_path / "l.csv", ["ward", "no", "yes"], rows)
    fit = (
        "fit",
        made.rows,
        "--bag",
        "ward",
        "--labels",
        labels,
        "--labels-are",
        "counts",
        "--model",
        "linear",
    )
    assert "does not have 'w3'" in refused(*fit, "--out", tmp_path / "m")
    output = done(*fit, "--skip-unmatched", "--out", tmp_path / "m")
    assert "no number for any class of bag 'w3'" in output


MISTAKES = {
    "noise is missing": (["--labels-are", "noisy"], None, "needs --noise"),
    "noise of what": (["--noise", "laplace:4", "--labels-are", "rounded"], None, "is rounded"),
    "unknown noise": (["--noise", "poisson:4"], None, "laplace:4, discrete-laplace:4"),
    "no width": (["--noise", "laplace"], None, "a positive number"),
    "negative width": (["--noise", "laplace:-1"], None, "a positive number"),
    "clipped alone": (["--clipped"], None, "--clipped is about noisy counts"),
    "clipped but negative": (["--noise", "laplace:2", "--clipped"], ["-3", "15"], "--clipped out"),
    "fractions of whole noise": (["--noise", "discrete-laplace:2"], ["3.5", "9"], "whole"),
    "range among shares": ([], ["<5", "0.25"], "ranges of shares are not read"),
    "range among noisy": (["--noise", "laplace:2"], ["<5", "9"], "read among counts"),
    "reversed cell": ([], ["4-1", "9"], "the lower bound comes first"),
    "no ranges there": (["--labels-are", "ranges"], None, "'no_low' and 'no_high'"),
    "empty in auto": ([], ["", "9"], "say --labels-are counts"),
    "sample smaller than rows": (["--labels-are", "sample"], ["3", "4"], "'w0' sum to 7, but"),
    "share of no count": (["--labels-are", "rounded"], ["0.777", "0.223"], "class 'no'"),
    "ranges that cannot be": ([], ["<5", "<5"], "bag 'w0' has 12 instances"),
    "counts that do not sum": ([], ["5", "5"], "--labels-are sample if the rows are"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named(case: str, made: Made, tmp_path: Path) -> None:
    options, first, message = MISTAKES[case]
    rows = [[w, K - n, n] for w, n in zip(WARDS, made.n, strict=True)]
    if first is not None:
        rows[0] = ["w0", *first]
    labels = write(tmp_path / "l.csv", ["ward", "no", "yes"], rows)
    fit = ("fit", made.rows, "--bag", "ward", "--labels", labels, "--out", tmp_path / "m")
    assert message in refused(*fit, *options)


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (["yes_low", "yes_high"], [7, 3], "7 in 'yes_low' and 3 in 'yes_high' for bag 'w0'"),
        (["yes_low", "no"], [7, 3], "a column 'yes_low', but no 'yes_high'"),
        (["yes_high", "no"], [7, 3], "a column 'yes_high', but no 'yes_low'"),
        (["yes_low", "yes_high"], ["<3", 3], "the column 'yes_low' of"),
        (["maybe_low", "maybe_high"], [1, 3], "no columns 'yes_low' and 'yes_high'"),
    ],
)
def test_bounds_that_cannot_be_name_their_columns(
    header: list[str], row: list[Any], message: str, made: Made, tmp_path: Path
) -> None:
    labels = write(tmp_path / "l.csv", ["ward", *header], [["w0", *row]])
    fit = ("fit", made.rows, "--bag", "ward", "--labels", labels, "--out", tmp_path / "m")
    assert message in refused(*fit, "--labels-are", "ranges", "--classes", "yes,no")


def test_predict_and_bag_effects_refuse_what_they_cannot_allow_for(
    made: Made, tmp_path: Path
) -> None:
    fit = ("fit", made.rows, "--bag", "ward", "--labels", made.noisy, "--noise", "laplace:2")
    assert "bag effects need exact counts" in refused(
        *fit, "--bag-effects", "--out", tmp_path / "m"
    )
    done(*fit, "--model", "linear", "--out", tmp_path / "m")
    known = ("--bag", "ward", "--labels", made.noisy, "--noise", "laplace:2")
    predict = ("predict", tmp_path / "m", made.rows, *known, "--out", tmp_path / "p.csv")
    assert "cannot allow for noise" in refused(*predict)


def test_methods_that_take_expected_counts_for_exact_say_so(made: Made) -> None:
    with pytest.warns(UserWarning, match="the method dllp learns from the counts to be expected"):
        fit_table(
            made.rows,
            "ward",
            made.noisy,
            labels_are=Laplace(2),
            method="dllp",
            model="linear",
            lr=0.03,
            epochs=1,
        )


def test_labeled_rows_are_learned_from_and_are_no_feature(made: Made, tmp_path: Path) -> None:
    for labels, options in ((made.exact, ()), (made.noisy, ("--noise", "laplace:2"))):
        fit = ("fit", made.labeled, "--bag", "ward", "--labels", labels, "--row-labels", "truth")
        output = done(*fit, *options, "--model", "linear", "--out", tmp_path / "m")
        assert "labeled rows" in output
        model = FittedTable.load(tmp_path / "m")
        facts = model.facts
        assert model.columns.names == ["a", "b"]
        assert facts.data.labeled_rows == made.n_labeled
        assert facts.data.n_bags == B + 2
        assert len(facts.held_out.bags) == B
        assert "row 361" not in (tmp_path / "m" / "held_out_bags.csv").read_text()
    done(
        *fit[:4],
        "--labels",
        made.exact,
        "--row-labels",
        "truth",
        "--bag-effects",
        "--out",
        tmp_path / "e",
    )
    effects = FittedTable.load(tmp_path / "e").known_bags
    assert effects is not None
    assert list(effects.names) == WARDS


def test_a_perceptron_learns_from_labeled_rows(made: Made) -> None:
    fitted = fit_table(
        made.labeled,
        "ward",
        made.ranges,
        classes="yes,no",
        labels_are="ranges",
        row_labels="truth",
        model="mlp",
        lr=0.003,
        epochs=5,
    )
    assert fitted.facts.data.labeled_rows == made.n_labeled
    assert fitted.facts.settings.model == "mlp"


@pytest.mark.parametrize(
    ("row", "label", "options", "message"),
    [
        (0, "perhaps", (), "the column 'truth' has 'perhaps' in row 1; the classes are no, yes"),
        (5, "contradiction", (), "but bag 'w0' has at most"),
        (None, "", (), "has no label; leave --row-labels out"),
        (None, "no column", ("--row-labels", "nothing"), "no column 'nothing'"),
        (None, "feature", ("--features", "a,truth"), "both a feature and excluded"),
    ],
)
def test_labels_of_rows_that_cannot_be_name_row_and_bag(
    row: int | None, label: str, options: tuple[str, ...], message: str, made: Made, tmp_path: Path
) -> None:
    header, *rows = list(csv.reader(made.labeled.read_text().splitlines()))
    rows = [[*cells[:3], ""] for cells in rows[: B * K]]
    if label == "contradiction":
        rows[:K] = [[*cells[:3], "yes"] for cells in rows[:K]]
    elif row is not None:
        rows[row][3] = label
    elif label:
        rows[0][3] = "yes" if made.y[0, 0] else "no"
    table = write(tmp_path / "t.csv", header, rows)
    fit = ("fit", table, "--bag", "ward", "--labels", made.exact, "--out", tmp_path / "m")
    named = () if "--row-labels" in options else ("--row-labels", "truth")
    output = refused(*fit, *named, *options)
    assert message in output
    if label == "contradiction":
        assert f"row {made.n[0] + 1} is labeled class 'yes'" in output


def test_a_killed_fit_with_another_noise_is_not_gone_on_with(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    own = linear.averaged
    monkeypatch.setattr(linear, "averaged", lambda *x, **y: calls.append(1) or own(*x, **y))
    monkeypatch.setattr("bagwise.tables.fitting.assess", lambda *x: 1 / 0)
    for width, new in ((2, 1), (2, 0), (3, 1)):
        calls.clear()
        with pytest.raises(ZeroDivisionError):
            fit_table(
                made.rows,
                "ward",
                made.noisy,
                labels_are=Laplace(width),
                model="linear",
                out=tmp_path / "m",
            )
        assert len(calls) == new, width


def test_what_is_known_of_counts_is_kept_and_checked(made: Made, tmp_path: Path) -> None:
    fit_table(
        made.rows, "ward", made.noisy, labels_are=Laplace(2), model="linear", out=tmp_path / "m"
    )
    path = tmp_path / "m" / "fit.json"
    content = json.loads(path.read_text())
    noisy = {"kind": "noisy", "noise": "laplace", "width": 2, "clipped": False}
    assert content["data"]["labels"] == noisy
    for name, wrong in (
        ("labels", 3),
        ("labels", {"kind": "odd"}),
        ("inexact_bags", -1),
        ("labeled_rows", "x"),
    ):
        shutil.copytree(tmp_path / "m", tmp_path / name, dirs_exist_ok=True)
        damaged = content | {"data": content["data"] | {name: wrong}}
        (tmp_path / name / "fit.json").write_text(json.dumps(damaged))
        with pytest.raises(ValueError, match=name):
            FittedTable.load(tmp_path / name).facts  # noqa: B018
    for name in ("labels", "inexact_bags", "labeled_rows"):
        del content["data"][name]
    del content["held_out"]["covered_bags"]
    path.write_text(json.dumps(content))
    sign(tmp_path / "m")
    facts = FittedTable.load(tmp_path / "m").facts  # as an earlier version wrote it
    assert (facts.data.labels, facts.data.labeled_rows) == ({}, 0)


def some_bags() -> Bags:
    exact = Bags([3, 2], [[1, 2], [2, 0]])
    soft = Bags.from_ranges([[0, 1]], [[1, 3]], [3])
    noisy = Bags.from_noisy_counts([[4.2, -0.5]], [3], Laplace(1.5))
    return Bags.join([exact, soft, noisy]).with_labels([-1, 1, -1, 0, -1, 1, -1, -1, -1, 0, -1])


def test_the_baseline_is_the_likelihood_of_all_that_is_known() -> None:
    bags, shares = some_bags(), np.array([0.3, 0.7])
    labels = bags.row_labels
    assert labels is not None
    assert bags.potentials is not None
    for b, found in enumerate(baseline_log_likelihoods(bags, shares)):
        rows = range(bags.offsets[b], bags.offsets[b + 1])
        total = 0.0
        for y in itertools.product(range(2), repeat=len(rows)):
            if any(labels[k] not in (-1, c) for k, c in zip(rows, y, strict=True)):
                continue
            value = math.prod(shares[c] for c in y)
            for c in range(2):
                m, cell = y.count(c), 2 * b + c
                window = bags.potentials.log_f[
                    bags.potentials.begins[cell] : bags.potentials.begins[cell + 1]
                ]
                place = m - bags.min_counts[b, c]
                value *= math.exp(window[place]) if 0 <= place < len(window) else 0.0
            total += value
        assert found == pytest.approx(math.log(total), abs=1e-9)


def test_overall_shares_are_the_most_probable_ones() -> None:
    rng = np.random.default_rng(0)
    counts = rng.binomial(20, 0.1, 200)
    noisy = np.stack([20 - counts, counts], axis=1) + rng.laplace(scale=3, size=(200, 2))
    bags = Bags.from_noisy_counts(noisy, [20] * 200, Laplace(3))
    found = overall_shares(bags)
    best = baseline_log_likelihoods(bags, found).sum()
    for step in (-0.01, 0.01):
        assert baseline_log_likelihoods(bags, found + np.array([-step, step])).sum() < best
    assert found[1] == pytest.approx(0.1, abs=0.03)
    assert bags.proportions.mean(axis=0)[1] > 0.12  # what is expected of each bag alone


def test_bounds_of_groups_hold_every_count_that_is_possible() -> None:
    bags, group = Bags.from_ranges([[1, 0]], [[2, 3]], [4]), np.array([0, 0, 0, 1])
    found = duncan_davis(group, 2, bags)
    shares = {(g, c): [] for g in range(2) for c in range(2)}
    for y in itertools.product(range(2), repeat=4):
        if 1 <= y.count(0) <= 2 and y.count(1) <= 3:
            for g, c in shares:
                own = [label for label, at in zip(y, group, strict=True) if at == g]
                shares[g, c].append(own.count(c) / len(own))
    for (g, c), there in shares.items():
        np.testing.assert_allclose(found[g, c], [min(there), max(there)])


def test_a_class_that_nobody_counted_is_judged_by_no_bag() -> None:
    bags = Bags([9] * 4, [[3, np.nan, np.nan]] * 4)
    facts = assess(np.full((36, 3), np.log(1 / 3)), bags, np.array(list("abcd")), np.ones(3) / 3)
    assert facts.error[0] == pytest.approx(0, abs=1e-6)
    assert facts.error[1:] == [None, None]
    assert facts.bags[0].true[1:] == [None, None]
    assert facts.coverage == []
    table = held_out_table(
        np.full((36, 3), np.log(1 / 3)), bags, np.array(list("abcd")), ["x", "y", "z"]
    )
    assert table.split("\n")[1].startswith("a,9,3,3,3,3,")


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_sharp_potentials_surprise_as_counts_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(8, [0.3, 0.3, 0.4], size=6)
    log_probs = log_softmax(rng.normal(size=(56, 3)), axis=-1)
    ids = np.arange(7)
    soft = Bags.from_ranges([[0, 0, 0]], [[8, 8, 8]], [8])  # says nothing: never a surprise
    both = Bags.join([Bags([8] * 6, counts), soft])
    found = {bag.bag: bag.surprise for bag in surprising_bags(log_probs, both, ids)}
    alone = surprising_bags(log_probs[:48], Bags([8] * 6, counts), ids[:6])
    assert {bag.bag: pytest.approx(bag.surprise) for bag in alone} == found


def test_wrong_noisy_counts_stand_out() -> None:
    log_probs = np.log(np.tile([0.9, 0.1], (200, 1)))
    counts = np.tile([18.0, 2.0], (10, 1)) + np.random.default_rng(0).laplace(size=(10, 2))
    counts[4] = [2, 18]
    bags = Bags.from_noisy_counts(counts, [20] * 10, Laplace(1))
    found = surprising_bags(log_probs, bags, np.arange(10))
    assert found[0].bag == "4"
    assert found[0].surprise > 5
    assert all(bag.surprise < 3 for bag in found[1:])
