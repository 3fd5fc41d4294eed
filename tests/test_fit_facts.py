"""What a fit found is kept as codes and numbers, and worded in one place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from bagwise import Bags
from bagwise.errors import InputError
from bagwise.tables.assess.held_out import assess
from bagwise.tables.encode.columns import LeftOut
from bagwise.tables.model.fit_facts import Coverage, FitFacts, Tried
from bagwise.tables.model.fit_file import from_json, label_codes, to_json
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.model.student_t import student_t
from bagwise.wording import fit_words, table_words

HERE = Path(__file__).parent
FOLDERS = sorted((HERE / "golden" / "models").iterdir()) + sorted(
    path for path in (HERE / "old_models").iterdir() if (path / "fit.json").exists()
)


def content_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "fit.json").read_text())
    return content


@pytest.fixture
def facts() -> FitFacts:
    return from_json(content_of(HERE / "golden" / "models" / "linear2"))


def texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The texts of JSON content, and where they are; places in lists are left out."""
    if isinstance(value, str):
        yield place, value
    for name, item in value.items() if isinstance(value, dict) else ():
        yield from texts(item, f"{place}.{name}" if place else name)
    for item in value if isinstance(value, list) else ():
        yield from texts(item, place)


NAMES = {  # of the user's own things
    "command", "bagwise", "data.files", "data.bag_columns", "data.classes", "held_out.bags.bag",
    "data.bags_left_out_names", "surprising.bag", "verdict.limitations.rare_classes",
}  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_files_of_format_1_become_codes_with_the_same_numbers(folder: Path) -> None:
    old = content_of(folder)
    assert old["format"] == 1
    found = from_json(old)
    new = json.loads(json.dumps(to_json(found)))
    assert from_json(new) == found
    for place, text in texts(new):
        assert place in NAMES or re.fullmatch(r"[a-z0-9_-]+", text), (place, text)
    for name in ("log_likelihood", "baseline", "gain_error", "error", "correlation", "bags"):
        assert new["held_out"][name] == old["held_out"][name]
    shares = {f"{round(100 * c.level)} %": c.share for c in found.held_out.coverage}
    assert shares == old["held_out"]["coverage"]
    assert [t.bag_loss for t in found.tried] == [loss for *_, loss in old["tried"]]
    first, settings = found.tried[0], found.settings
    if settings.ridge is not None:
        assert first.ridge == pytest.approx(settings.ridge, rel=0.01)
    assert (first.lr, first.tau) == (settings.lr, settings.bag_effects)
    for name in ("data", "settings", "surprising", "seconds", "folds"):
        if name in ("data", "settings"):  # newer versions say more
            same = {k: v for k, v in old[name].items() if k in new[name]}
            assert {k: new[name][k] for k in same} == same
        else:
            assert new[name] == old[name]


def test_label_words_of_format_1_become_codes() -> None:
    found = from_json(content_of(HERE / "golden" / "models" / "noisy")).data.labels
    assert found == {"kind": "noisy", "noise": "discrete-laplace", "width": 1.5, "clipped": False}
    for words in (
        "noisy counts, Gaussian noise of width 2, clipped at 0",
        "noisy counts, discrete Gaussian noise of widths 1 to 2.5",
        "percentages rounded to whole numbers",
        "shares rounded to 1 decimal",
        "shares rounded to 2 decimals",
        "ranges of counts",
        "counts of larger groups, of which the rows are a random sample",
        "counts, some of which are not known",
    ):
        assert table_words.label_numbers(label_codes(words)) == words
    assert label_codes("") == {}


def test_a_damaged_file_of_format_1_is_named() -> None:
    content = content_of(HERE / "golden" / "models" / "linear2")
    del content["held_out"]["coverage"]
    with pytest.raises(InputError, match="coverage"):
        from_json(content)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("data", "n_bags"), 10**30, "data.n_bags is 10000.*; a whole number <= "),
        (("data", "files"), "rows.csv", "data.files is 'rows.csv'; a list is expected"),
        (("data", "classes"), ["\ud800", "b"], r"data.classes\[0\] is .*; text is expected"),
        (("held_out", "gain_error"), -1, "held_out.gain_error is -1; a number >= 0"),
        (("held_out", "coverage"), [{"level": 95, "share": 1}], r"coverage\[0\].level is 95"),
        (("held_out", "baseline_error"), [0.1], r"held_out.baseline_error is \[0.1\]; a list of 2"),
        (("settings", "temperature"), 0, "settings.temperature is 0; a number > 0"),
        (("settings", "model"), None, "settings.model is None; text is expected"),
    ],
)
def test_a_wrong_field_is_named(
    facts: FitFacts, place: tuple[str, str], value: Any, message: str
) -> None:
    content = to_json(facts)
    content[place[0]][place[1]] = value
    with pytest.raises(InputError, match=message):
        from_json(content)


def test_wrong_codes_of_labels_are_named() -> None:
    content = to_json(from_json(content_of(HERE / "golden" / "models" / "noisy")))
    content["data"]["labels"] |= {"noise": 3}
    with pytest.raises(InputError, match=r"data\.labels\.noise is 3"):
        from_json(content)


def test_errors_of_the_overall_shares_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 9, size=12)
    labels = rng.integers(3, size=sizes.sum())
    bags = Bags.from_labels(labels, sizes, n_classes=3)
    p = rng.dirichlet(np.ones(3), size=sizes.sum())
    shares = np.array([0.2, 0.3, 0.5])
    found = assess(np.log(p), bags, np.arange(12).astype(str), shares)
    ours, guessed = np.zeros(3), np.zeros(3)
    row = 0
    for size in sizes:
        true = np.bincount(labels[row : row + size], minlength=3) / size
        ours += np.abs(p[row : row + size].mean(axis=0) - true) / 12
        guessed += np.abs(shares - true) / 12
        row += size
    np.testing.assert_allclose(np.array(found.error, dtype=float), ours)
    np.testing.assert_allclose(np.array(found.baseline_error, dtype=float), guessed)


def test_the_verdict_is_a_code_and_an_analysts_sentence(facts: FitFacts) -> None:
    held_out = replace(
        facts.held_out,
        log_likelihood=-0.1,
        baseline=-0.5,
        gain_error=0.1,
        error=[0.029, 0.029],
        baseline_error=[0.18, 0.18],
        coverage=[Coverage(0.5, 0.52), Coverage(0.95, 0.96)],
    )
    good = replace(facts, held_out=held_out)
    assert (good.verdict, good.is_doubtful) == ("learned", False)
    assert fit_words.verdict(good) == (
        "On bags it has not seen, predicted shares are off by 2.9 points on average; guessing the "
        "overall shares is off by 18. The model beats the overall shares: it makes the counts of "
        "these bags more likely, by more than chance explains."
    )
    assert fit_words.doubt(good) == ""
    assert "-0.1000; the overall shares: -0.5000" in fit_words.likelihood(good)
    assert fit_words.calibration(good) == (
        "Calibration: 96% of the held-out counts lie in their 95% intervals, 52% in the 50% ones."
    )
    chance = replace(good, held_out=replace(held_out, log_likelihood=-0.45))
    assert (chance.verdict, chance.is_doubtful) == ("chance", True)
    for words in (fit_words.verdict(chance), fit_words.doubt(chance)):
        assert "may beat the overall shares only by chance" in words
    nothing = replace(good, held_out=replace(held_out, log_likelihood=-0.6))
    assert nothing.verdict == "nothing"
    for words in (fit_words.verdict(nothing), fit_words.doubt(nothing)):
        assert "does not beat the overall shares" in words
    assert "Even so, the model does not beat" in fit_words.verdict(nothing)
    sure = replace(good, held_out=replace(held_out, coverage=[Coverage(0.95, 0.6)]))
    assert sure.is_overconfident
    for words in (fit_words.verdict(sure), fit_words.doubt(sure)):
        assert "too sure of itself: only 60%" in words
    unknown = replace(good, held_out=replace(held_out, error=[None, None]))
    assert fit_words.verdict(unknown).startswith("The model beats")


@pytest.mark.parametrize("degrees", [1, 1.5, 2, 9, 29.5, 1000, 1e6])
def test_quantiles_of_students_t_are_those_of_scipy(degrees: float) -> None:
    for level in (0.5, 0.95, 0.99):
        expected = stdtrit(degrees, (1 + level) / 2)
        assert student_t(degrees, level) == pytest.approx(expected, rel=1e-5)
    assert student_t(0.9) == np.inf


def test_few_bags_need_a_larger_gain(facts: FitFacts) -> None:
    """Of 3 bags, 4.3 standard errors, not 2; bags that share rows are fewer."""
    held_out = replace(facts.held_out, log_likelihood=-0.1, baseline=-0.5, gain_error=0.1)
    for n_bags, degrees, found in (
        (3, None, "chance"),  # 4 standard errors, and 4.3 are needed
        (4, None, "learned"),  # 3.2
        (8, 2.0, "chance"),
        (2, 0.0, "chance"),
    ):
        some = replace(facts, held_out=replace(held_out, n_bags=n_bags, degrees=degrees))
        assert some.verdict == found
    low, high = replace(held_out, n_bags=3, degrees=None).gain_interval
    assert (low, high) == pytest.approx((0.4 - 0.4303, 0.4 + 0.4303), abs=1e-4)


def test_coefficients_against_bags_are_part_of_the_verdict(facts: FitFacts) -> None:
    data = replace(facts.data, n_bags=10, n_features=22, bags_left_out=0, labeled_rows=0)
    many = replace(facts, data=data)
    assert many.is_undetermined
    assert "It has 23 coefficients from 10 bags, which do not determine" in fit_words.verdict(many)
    assert "coefficients" not in "".join(fit_words.limitations(many).values())  # not said twice
    assert fit_words.coefficients_note(many) == (
        "23 coefficients from 10 bags: probabilities of single rows depend partly on the prior."
    )
    enough = replace(many, data=replace(data, n_bags=24))
    assert "determine" not in fit_words.verdict(enough)
    assert fit_words.coefficients_note(enough) == ""
    assert "may be too narrow" in fit_words.coefficients_note(enough, of_intervals=True)
    labeled = replace(many, data=replace(data, labeled_rows=500))
    assert not labeled.is_undetermined


def test_limitations_are_codes_and_one_line(facts: FitFacts) -> None:
    data = replace(facts.data, n_bags=20, n_features=4, bags_left_out=0, rounding=0.0)
    few = replace(facts, data=data)
    assert few.limitations == {"few_bags": 20}
    assert fit_words.paragraphs(few)[-1] == "Limitations: only 20 bags."
    many = replace(few, data=replace(data, n_bags=40, n_features=29))
    assert many.limitations == {"many_coefficients": 30}
    steps = replace(many, settings=replace(facts.settings, ridge=None, lr=0.1, epochs=3))
    assert steps.limitations == {}
    fine = fit_words.paragraphs(steps)
    assert not any("Limitations" in text for text in fine)


@pytest.mark.parametrize(
    ("tried", "words"),
    [
        (Tried("linear", 0.1, ridge=3.1623), "ridge 3.16"),
        (Tried("linear", 0.1, ridge=1, tau=0.5), "bag effects, ridge 1"),
        (Tried("linear", 0.1, ridge=1, some_bags=True), "ridge 1, only some of the bags"),
        (
            Tried("mlp", 0.1, lr=0.003, epochs=1, folds=2),
            "learning rate 0.003, 1 epoch, stopped after 2 of 5 folds",
        ),
    ],
)
def test_candidates_in_words(tried: Tried, words: str) -> None:
    assert fit_words.candidate(tried, folds=5) == words


def test_columns_left_out_in_earlier_formats_keep_their_sentence() -> None:
    columns = FittedTable.load(HERE / "golden" / "models" / "linear2").columns
    sentence = "almost every row has another text"
    assert columns.left_out["patient"] == LeftOut("as_written", sentence)
    assert table_words.left_out(columns.left_out["patient"]) == sentence
    again = type(columns).from_json(json.loads(json.dumps(columns.to_json())))
    assert again == columns
