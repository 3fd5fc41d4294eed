"""A column of survey weights is noted; the weight of a body is not."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

from bagwise.tables.encode.learn_columns import ColumnLearner

RNG = np.random.default_rng(0)
EXPANSION = RNG.lognormal(6, 1, 100)


def learn(name: str, values: np.ndarray, **options: list[str]) -> list[str]:
    batch = pa.RecordBatch.from_pydict({name: values, "x": RNG.normal(size=len(values))})
    learner = ColumnLearner(batch.schema, **options)
    learner.update(batch.select(learner.names))
    return learner.finish().names


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pweight", EXPANSION),
        ("Survey weight", EXPANSION),
        ("sampling_weight", EXPANSION),
        ("fnlwgt", EXPANSION.round()),
        ("expansion_factor", EXPANSION),
        ("W_FSTUWT", EXPANSION),
        ("wt", EXPANSION / EXPANSION.mean()),
    ],
)
def test_survey_weights_are_noted_and_stay_a_feature_unless_excluded(
    name: str, values: np.ndarray
) -> None:
    with pytest.warns(UserWarning, match=f'{name!r} looks like survey weights.* exclude="{name}"'):
        assert learn(name, values) == [name, "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learn(name, values, exclude=[name]) == ["x"]
        assert learn(name, values, features=[name, "x"]) == [name, "x"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("weight", RNG.normal(75, 12, 100)),
        ("wt", RNG.normal(3.2, 0.9, 100)),
        ("weight_kg", RNG.normal(75, 12, 100)),
        ("birth_weight", RNG.normal(3.2, 0.5, 100)),
        ("body weight", RNG.normal(75, 12, 100)),
        ("pweight", RNG.normal(0, 1, 100)),
        ("pweight", np.tile([1.0, 2.0], 50)),
    ],
)
def test_weights_of_bodies_and_what_can_be_no_weights_are_not_noted(
    name: str, values: np.ndarray
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learn(name, values)


def test_whole_numbers_may_be_counts_of_identical_rows() -> None:
    with pytest.warns(UserWarning, match='Say weights="fnlwgt" if it is the number of identical'):
        learn("fnlwgt", EXPANSION.round())
    with pytest.warns(UserWarning, match="is not a feature.$"):
        learn("fnlwgt", EXPANSION)
