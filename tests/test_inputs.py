"""Rows in the forms scikit-learn has them: sparse, read-only, memory-mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bagwise import BagKFold, LLPClassifier, bag_scorer
from bagwise.limits import Limits

rng = np.random.default_rng(0)
y = rng.integers(2, size=240)
DENSE = np.where(rng.random((240, 30)) < 0.2, rng.normal(size=(240, 30)) + y[:, None], 0.0)
BAGS = np.arange(240) // 6
COUNTS = {b: np.bincount(y[b == BAGS], minlength=2) for b in range(40)}


def quick(**options: Any) -> LLPClassifier:
    return LLPClassifier(**{"model": "linear", "epochs": 5, "random_state": 0, **options})


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("standardize", [True, False])
def test_sparse_rows_give_what_dense_ones_give(
    kind: str, container: Any, standardize: bool
) -> None:
    rows = container(DENSE).asformat(kind)
    expected = quick(standardize=standardize).fit(DENSE, BAGS, COUNTS)
    found = quick(standardize=standardize).fit(rows, BAGS, COUNTS)
    np.testing.assert_array_equal(found.predict_proba(rows), expected.predict_proba(DENSE))
    np.testing.assert_array_equal(found.decision_function(rows), expected.decision_function(DENSE))
    assert found.predict(rows).tolist() == expected.predict(DENSE).tolist()
    assert found.score(rows, y) == expected.score(DENSE, y)
    assert found.bag_score(rows, BAGS, COUNTS) == expected.bag_score(DENSE, BAGS, COUNTS)
    for one, other in zip(
        found.label_bags(rows, BAGS, COUNTS), expected.label_bags(DENSE, BAGS, COUNTS), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_sparse_rows_may_validate_and_be_cross_validated() -> None:
    rows = sparse.csr_array(DENSE)
    model = quick().fit(rows, BAGS, COUNTS, validation=(rows[:60], BAGS[:60], COUNTS))
    assert "val_bag_loss" in model.history_[0]
    scores = cross_val_score(
        quick(),
        rows,
        BAGS,
        cv=BagKFold(3),
        scoring=bag_scorer(COUNTS),
        params={"proportions": COUNTS},
    )
    assert np.isfinite(scores).all()


def test_the_sparse_output_of_transformers_is_taken() -> None:
    words = np.array(["red green", "blue yellow"])[y]
    texts = [f"{word} number {n % 3 + 10}" for n, word in enumerate(words)]
    model = make_pipeline(TfidfVectorizer(), quick(lr=0.05, epochs=20))
    assert sparse.issparse(model[0].fit_transform(texts))
    assert model.fit(texts, BAGS, llpclassifier__proportions=COUNTS).score(texts, y) > 0.95
    table = pd.DataFrame({"word": words, "n": np.arange(240.0)})
    columns = make_column_transformer(
        (OneHotEncoder(), ["word"]), (StandardScaler(), ["n"]), sparse_threshold=1.0
    )
    assert sparse.issparse(columns.fit_transform(table))
    mixed = make_pipeline(columns, quick(lr=0.05, epochs=20))
    assert mixed.fit(table, BAGS, llpclassifier__proportions=COUNTS).score(table, y) > 0.95


def test_rows_too_many_to_be_made_dense_are_refused_before_memory_is_taken() -> None:
    wide = sparse.csr_array((40, 10**9), dtype=np.float64)
    message = r"40 rows and 1000000000 columns.* 298\.0 GiB, and at most 1 GiB.*TruncatedSVD"
    with pytest.raises(ValueError, match=message):
        quick().fit(wide, np.arange(40) // 4, {b: [2, 2] for b in range(10)})


def test_prediction_makes_a_few_rows_dense_at_a_time() -> None:
    rows = sparse.csr_array(DENSE)
    model = quick().fit(rows, BAGS, COUNTS)
    expected = model.predict_proba(rows)
    model._limits = Limits(dense_bytes=7 * 30 * 8, dense_piece_bytes=7 * 30 * 8)
    np.testing.assert_allclose(model.predict_proba(rows), expected, rtol=1e-5)
    assert np.isfinite(model.bag_score(rows, BAGS, COUNTS))
    with pytest.raises(ValueError, match="at most"):
        model.fit(rows, BAGS, COUNTS)


def test_bad_sparse_rows_are_named() -> None:
    spoilt = sparse.csr_array(DENSE)
    spoilt.data[0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(spoilt, BAGS, COUNTS)
    model = quick().fit(sparse.csr_array(DENSE), BAGS, COUNTS)
    with pytest.raises(ValueError, match="29 features"):
        model.predict(sparse.csr_array(DENSE[:, 1:]))


@pytest.fixture
def only_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch warns of memory that cannot be written to, but only once a process."""
    make = torch.from_numpy

    def checked(array: npt.NDArray[Any]) -> torch.Tensor:
        assert array.flags.writeable
        return make(array)

    monkeypatch.setattr(torch, "from_numpy", checked)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = array.copy()
    array.setflags(write=False)
    return array


@pytest.mark.usefixtures("only_writable")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["read-only", "memory map", "frame", "sparse"])
def test_what_cannot_be_written_to_is_taken_without_a_warning(
    kind: Any, form: str, tmp_path: Path
) -> None:
    rows: Any = _read_only(DENSE.astype(kind))
    ids: Any = _read_only(BAGS)
    counts: Any = _read_only(np.stack(list(COUNTS.values())))
    if form == "memory map":
        joblib.dump((rows, ids, counts), tmp_path / "data")
        rows, ids, counts = joblib.load(tmp_path / "data", mmap_mode="r")
    elif form == "frame":
        rows, ids, counts = pd.DataFrame(rows), pd.Series(ids), pd.DataFrame(counts)
    elif form == "sparse":
        rows = sparse.csr_array(rows)
        for part in (rows.data, rows.indices, rows.indptr):
            part.setflags(write=False)
    model = quick(epochs=1).fit(rows, ids, counts)
    for given in (rows[:1], rows):  # one row as well, which is contiguous in every order
        assert np.isfinite(model.predict_proba(given)).all()
        assert len(model.predict(given)) == given.shape[0]
    assert np.isfinite(model.bag_score(rows, ids, counts))
    model.label_bags(rows, ids, counts)
    assert np.isfinite(bag_scorer(counts)(model, rows, ids))
    quick(epochs=1).fit(rows, _read_only(y))
