"""Messages carry options and places, which are worded where they are shown."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from bagwise import DiscreteGaussian, Laplace
from bagwise.errors import BagwiseWarning, InputError, Option, Place
from bagwise.labels.label_spec import LabelSpec, Rounded


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
        {"kind": "counts", "colour": "red"},
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
