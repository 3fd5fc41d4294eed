"""What the order of lines, rows, files and columns may change, and what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bagwise import LLPClassifier, stored_bags
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.model.linear_model import LinearModel
from fitted import fit_table

N_BAGS = 23


@pytest.fixture(scope="module")
def lines() -> tuple[list[str], list[str]]:
    """Lines of a table and of its label file, each without the header; ids are of mixed kinds."""
    rng = np.random.default_rng(5)
    names = [f"{'' if b % 2 else 'ward '}{b}" for b in range(N_BAGS)]
    rows, labels = [], []
    for b, name in enumerate(names):
        X = rng.normal(size=(int(rng.integers(4, 12)), 2)) + (b % 3 - 1)
        sick = X[:, 0] + rng.logistic(size=len(X)) > 0
        kind = rng.choice(["a", "b", "c"], size=len(X))
        rows += [f"{name},{x:.4f},{z:.4f},{k}" for (x, z), k in zip(X, kind, strict=True)]
        labels.append(f"{name},{(~sick).sum()},{sick.sum()}")
    return rows, labels


def written(folder: Path, rows: list[str], labels: list[str]) -> tuple[Path, str, Path]:
    (folder / "rows.csv").write_text("\n".join(["ward,x,z,kind", *rows]) + "\n")
    (folder / "bags.csv").write_text("\n".join(["ward,healthy,sick", *labels]) + "\n")
    return folder / "rows.csv", "ward", folder / "bags.csv"


def shuffled(items: list[str], seed: int = 1) -> list[str]:
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]


@pytest.fixture(scope="module")
def model(
    tmp_path_factory: pytest.TempPathFactory, lines: tuple[list[str], list[str]]
) -> FittedTable:
    return fit_table(*written(tmp_path_factory.mktemp("order"), *lines), model="linear")


def state(model: FittedTable) -> dict[str, npt.NDArray[Any]]:
    if isinstance(model.model, LinearModel):
        return {"weights": model.model.weights, "intercept": model.model.intercept}
    return {name: x.numpy() for name, x in model.model.classifier.model_.state_dict().items()}


def same_model(one: FittedTable, other: FittedTable) -> None:
    """Bit for bit."""
    assert all(np.array_equal(x, state(other)[name]) for name, x in state(one).items())
    assert one.held_out == other.held_out
    assert one.columns.to_json() == other.columns.to_json()
    assert one.facts.tried == other.facts.tried


def test_bags_of_a_label_file_are_sorted_whatever_the_order_of_its_lines(tmp_path: Path) -> None:
    names = ["10", "9", "ward 10", "ward 9", "9.5", "-1", "007", "7", "é"]
    wide = tmp_path / "wide.csv"
    found = []
    for seed in range(3):
        text = [f"{name},1,{place}" for place, name in enumerate(names)]
        wide.write_text("\n".join(["b,no,yes", *shuffled(text, seed)]) + "\n")
        found.append(read_labels(wide, ["b"]))
    assert found[0].ids == ["-1", "007", "7", "9", "9.5", "10", "ward 9", "ward 10", "é"]
    assert all(one.ids == found[0].ids for one in found)
    assert all((one.numbers == found[0].numbers).all() for one in found)
    assert found[0].numbers[:, 1].tolist() == [names.index(name) for name in found[0].ids]


@pytest.mark.parametrize(
    "options", [{"model": "linear"}, {"model": "mlp", "epochs": 2, "lr": 0.01}]
)
def test_the_order_of_lines_in_the_label_file_does_not_change_the_model(
    tmp_path: Path, lines: tuple[list[str], list[str]], options: dict[str, Any]
) -> None:
    rows, labels = lines
    one = fit_table(*written(tmp_path, rows, labels), **options)
    same_model(one, fit_table(*written(tmp_path, rows, shuffled(labels)), **options))


def test_a_long_label_file_in_any_order_makes_the_model_of_a_wide_one(
    tmp_path: Path, lines: tuple[list[str], list[str]], model: FittedTable
) -> None:
    rows, labels = lines
    long = [
        f"{name},{label},{count}"
        for name, *counts in (line.split(",") for line in labels)
        for label, count in zip(["healthy", "sick"], counts, strict=True)
    ]
    paths = written(tmp_path, rows, labels)
    paths[2].write_text("\n".join(["ward,state,number", *shuffled(long)]) + "\n")
    same_model(model, fit_table(*paths, model="linear"))


def test_class_columns_in_another_order_make_the_same_model(
    tmp_path: Path, lines: tuple[list[str], list[str]], model: FittedTable
) -> None:
    rows, labels = lines
    paths = written(tmp_path, rows, labels)
    turned = [f"{name},{sick},{healthy}" for name, healthy, sick in (x.split(",") for x in labels)]
    paths[2].write_text("\n".join(["ward,sick,healthy", *turned]) + "\n")
    same_model(model, fit_table(*paths, model="linear"))


def test_the_order_of_rows_changes_the_model_by_rounding_alone(
    tmp_path: Path, lines: tuple[list[str], list[str]], model: FittedTable
) -> None:
    rows, labels = lines
    other = fit_table(*written(tmp_path, shuffled(rows), labels), model="linear")
    assert model.facts.settings.ridge == other.facts.settings.ridge
    for name, x in state(model).items():
        np.testing.assert_allclose(x, state(other)[name], rtol=1e-3, atol=1e-4)


def test_files_in_another_order_are_the_same_table(
    tmp_path: Path, lines: tuple[list[str], list[str]]
) -> None:
    """Whole bags change places here, and rows of a bag keep theirs: not even rounding differs."""
    rows, labels = lines
    begin = next(n for n, row in enumerate(rows) if row.startswith("ward 10,"))
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for file, part in zip(files, (rows[:begin], rows[begin:]), strict=True):
        file.write_text("\n".join(["ward,x,z,kind", *part]) + "\n")
    _, key, bags = written(tmp_path, rows, labels)
    one, other = (fit_table(order, key, bags, model="linear") for order in (files, files[::-1]))
    for name, x in state(one).items():
        np.testing.assert_allclose(x, state(other)[name], rtol=1e-4, atol=1e-5)


def test_a_store_and_its_model_are_the_same_for_any_order_of_the_label_file(
    tmp_path: Path, lines: tuple[list[str], list[str]], model: FittedTable
) -> None:
    rows, labels = lines
    one = stored_bags(*written(tmp_path, rows, labels), tmp_path / "sorted", "100MB")
    sorted_at = (tmp_path / "sorted" / "rows").stat().st_mtime_ns
    other = stored_bags(*written_labels(tmp_path, shuffled(labels)), tmp_path / "sorted", "100MB")
    assert one.ids.tolist() == other.ids.tolist()
    assert one.data.bags.fingerprint() == other.data.bags.fingerprint()
    assert (tmp_path / "sorted" / "rows").stat().st_mtime_ns == sorted_at, "sorted again"
    paths, store = written_labels(tmp_path, labels), tmp_path / "sorted"
    same_model(model, fit_table(*paths, memory="100MB", store=store, model="linear"))


def written_labels(folder: Path, labels: list[str]) -> tuple[Path, str, Path]:
    (folder / "bags.csv").write_text("\n".join(["ward,healthy,sick", *labels]) + "\n")
    return folder / "rows.csv", "ward", folder / "bags.csv"


def test_the_classifier_does_not_mind_the_order_of_a_mapping() -> None:
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(60, 3)), np.repeat(["b", "a", "10", "9", "c", "d"], 10)
    counts = {name: {"yes": b + 1, "no": 9 - b} for b, name in enumerate(dict.fromkeys(ids))}
    turned = {name: dict(reversed(counts[name].items())) for name in reversed(list(counts))}
    one, other = (
        LLPClassifier(epochs=2, random_state=0).fit(X, ids, given) for given in (counts, turned)
    )
    assert one.classes_.tolist() == other.classes_.tolist()
    assert (one.predict_proba(X) == other.predict_proba(X)).all()
