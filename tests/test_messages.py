"""Messages carry options and places, which are worded where they are shown."""

from __future__ import annotations

import ast
import io
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bagwise
from bagwise import DiscreteGaussian, Laplace
from bagwise.cli import app
from bagwise.cli.app import user_errors
from bagwise.errors import BagwiseWarning, InputError, Option, Place
from bagwise.labels.label_spec import LabelSpec, Rounded

PACKAGE = Path(bagwise.__file__).parent
OPTION = r"(?<![-\w])--[a-z]"


def test_an_error_survives_pickling_with_its_parts() -> None:
    error = InputError(Place("bag", 3), " is empty; say ", Option("labels_are", Laplace(4)), ".")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "bag 3 is empty; say labels_are=Laplace(4)."
    assert str(again.with_names(bag=list("abcd"))).startswith("bag 'd' is empty; say labels_are=")
    assert again.worded(lambda option: f"--{option.name}") == "bag 3 is empty; say --labels_are."


def test_places_are_named_only_where_names_are_given() -> None:
    error = InputError(Place("row", 1), " of ", Place("bag", 0), " has ", Place("class", 1), ".")
    assert str(error.with_names(row=[7, 8], class_=["no", "yes"])) == (
        "row 8 of bag 0 has class 'yes'."
    )


@pytest.mark.parametrize("made", [InputError, BagwiseWarning])
def test_plain_text_is_a_message(made: type[Exception]) -> None:
    assert str(made("all is 7; 8 is expected.")) == "all is 7; 8 is expected."


@pytest.mark.parametrize(
    "spec",
    [
        LabelSpec(),
        LabelSpec("counts"),
        LabelSpec("rounded", decimals=1, percent=True),
        LabelSpec.of(DiscreteGaussian(2.5, clipped=True)),
    ],
)
def test_a_label_spec_survives_json(spec: LabelSpec) -> None:
    assert LabelSpec.from_json(spec.to_json()) == spec


def test_widths_of_bags_survive_json() -> None:
    widths = np.array([[1.0], [2.0]])
    again = LabelSpec.from_json(LabelSpec.of(Laplace(widths)).to_json())
    assert again.noise is not None
    assert np.array_equal(again.noise.widths((2, 1)), widths)


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"kind": "noisy"},
        {"kind": "counts", "noise": "laplace", "width": 4},
        {"kind": "noisy", "noise": "laplace"},
        {"kind": "noisy", "noise": "laplace", "width": -1},
        {"kind": "noisy", "noise": "laplace", "width": ["x"]},
        {"kind": "noisy", "noise": "uniform", "width": 1},
        {"kind": "rounded", "decimals": "2"},
        {"kind": "counts", "color": "red"},
    ],
)
def test_a_damaged_label_spec_is_an_error(damaged: dict[str, object]) -> None:
    with pytest.raises(InputError):
        LabelSpec.from_json(damaged)


def test_what_users_say_becomes_a_spec() -> None:
    assert LabelSpec.of(Rounded(2)) == LabelSpec("rounded", decimals=2)
    assert LabelSpec.of(LabelSpec("sample")).kind == "sample"
    with pytest.raises(InputError, match=r"labels_are is 'noisy'; one of .*Laplace\(4\)"):
        LabelSpec.of("noisy")  # type: ignore[arg-type]


ROWS = "ward,age\n" + "".join(
    f"ward {w},{20 + (7 * w + 11 * n * n) % 31}\n" for w in range(4) for n in range(5)
)
COUNTS = "ward,no,yes\nward 0,3,2\nward 1,2,3\nward 2,1,4\nward 3,0,5\n"
MISTAKES = {
    "a bag that only one table has": (
        ROWS,
        COUNTS.replace("ward 3", "ward 7"),
        {},
        (),
        ("'ward 7'", "with skip_unmatched=True."),
        ("'ward 7'", "with --skip-unmatched."),
    ),
    "counts of other rows": (
        ROWS,
        COUNTS.replace("ward 2,1", "ward 2,9"),
        {},
        (),
        ("bag 'ward 2' sum to 13", 'labels_are="relative"', "labels_are=Laplace(4)"),
        ("bag 'ward 2' sum to 13", "--labels-are relative", "--noise laplace:4"),
    ),
    "one class alone": (
        ROWS,
        "ward,yes\nward 0,2\nward 1,3\nward 2,4\nward 3,5\n",
        {},
        (),
        ('classes=["yes", "OTHER"]',),
        ("--classes yes,OTHER",),
    ),
    "a count that nobody knows": (
        ROWS,
        COUNTS.replace("ward 0,3", "ward 0,"),
        {},
        (),
        ('say labels_are="counts":',),
        ("say --labels-are counts:",),
    ),
    "clipped counts below 0": (
        ROWS,
        COUNTS.replace("ward 3,0", "ward 3,-2"),
        {"labels_are": Laplace(2, clipped=True)},
        ("--noise", "laplace:2", "--clipped"),
        ("bag 'ward 3'", "leave clipped=True out"),
        ("bag 'ward 3'", "leave --clipped out"),
    ),
    "shares that no count rounds to": (
        ROWS,
        "ward,no,yes\nward 0,.33,.67\nward 1,.4,.6\nward 2,.2,.8\nward 3,0,1\n",
        {"labels_are": "rounded"},
        ("--labels-are", "rounded"),
        ("bag 'ward 0' is a share of 0.33 (class 'no')", 'labels_are="proportions"'),
        ("bag 'ward 0' is a share of 0.33 (class 'no')", "--labels-are proportions"),
    ),
    "text among numbers": (
        ROWS.replace("ward 1,27\n", "ward 1,old\n"),
        COUNTS,
        {},
        (),
        ('exclude="age"', 'categorical="age"'),
        ("--exclude age", "--categorical age"),
    ),
    "bag effects of noisy counts": (
        ROWS,
        COUNTS,
        {"labels_are": Laplace(2), "bag_effects": True},
        ("--noise", "laplace:2", "--bag-effects"),
        ("Leave bag_effects=True out",),
        ("Leave --bag-effects out",),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_worded_in_the_terms_of_whoever_made_it(mistake: str, tmp_path: Path) -> None:
    rows, counts, options, flags, for_python, for_terminal = MISTAKES[mistake]
    frames = (pd.read_csv(io.StringIO(text)) for text in (rows, counts))
    with pytest.raises(InputError) as found:
        bagwise.fit(next(frames), "ward", next(frames), progress=False, **options)
    assert not re.search(OPTION, str(found.value))
    for words in for_python:
        assert words in str(found.value)
    (tmp_path / "rows.csv").write_text(rows)
    (tmp_path / "counts.csv").write_text(counts)
    files = (tmp_path / "rows.csv", "--bag", "ward", "--labels", tmp_path / "counts.csv")
    done = CliRunner().invoke(app, ["fit", *map(str, files), "--out", str(tmp_path / "m"), *flags])
    assert done.exit_code == 3
    for words in for_terminal:
        assert words in done.output
    assert "labels_are=" not in done.output


def test_a_warning_is_worded_in_the_terms_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with user_errors():
        warnings.warn(BagwiseWarning("say ", Option("labels_are", Rounded(2)), "."), stacklevel=1)
        warnings.warn(
            BagwiseWarning("use ", Option("exclude", "sampling weight"), "."), stacklevel=1
        )
    assert capsys.readouterr().err == (
        "Note: say --labels-are rounded.\nNote: use --exclude 'sampling weight'.\n"
    )


def texts(path: Path) -> list[str]:
    """The texts of a module, without docstrings and whole commands: `bagwise fit --bag-effects`."""
    tree = ast.parse(path.read_text())
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(tree) if isinstance(node, nodes)]
    docstrings = {ast.get_docstring(node, clean=False) for node in documented}
    found = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    shown = [text for text in found if isinstance(text, str) and text not in docstrings]
    return [re.sub("`bagwise [^`]*`", "", text) for text in shown]


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "cli"],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_only_the_command_line_names_its_options(path: Path) -> None:
    assert [text for text in texts(path) if re.search(OPTION, text)] == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "tables" / "encode").glob("*.py")), ids=str)
def test_notes_about_columns_are_worded_in_wording_alone(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    notes = [x for x in calls if getattr(x.func, "attr", "") in ("warn", "_note")]
    texts = [x.value for note in notes for x in ast.walk(note) if isinstance(x, ast.Constant)]
    assert [text for text in texts if re.search("[a-z]{2}", str(text))] == []


def test_notes_that_a_store_keeps_are_worded_in_the_terms_of_the_command_line(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"ward": np.repeat(np.arange(40), 10), "fnlwgt": rng.lognormal(size=400)})
    rows.assign(age=rng.normal(size=400)).to_csv(tmp_path / "rows.csv", index=False)
    counts = pd.DataFrame({"ward": np.arange(40), "no": 4, "yes": 6})
    counts.to_csv(tmp_path / "counts.csv", index=False)
    files = (tmp_path / "rows.csv", "--bag", "ward", "--labels", tmp_path / "counts.csv")
    store = ("--memory", "100MB", "--store", tmp_path / "store", "--model", "linear")
    command = ["fit", *files, *store, "--out", tmp_path / "m"]
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 0, done.output
    assert "Leave it out with --exclude fnlwgt if it is not a feature." in done.output
