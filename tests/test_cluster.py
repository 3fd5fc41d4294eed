"""Linear models of rows that the workers of two Ray nodes share: those of one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

import bagwise
from bagwise.errors import InputError
from bagwise.limits import LIMITS, Limits
from bagwise.tables.cluster import worker_pool
from bagwise.tables.cluster.worker_pool import Workers
from fitted import fit_table

# Ray's own, of its start and its sockets.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

N, B = 1500, 100
# A small table counts as one that no worker may have as a whole.
LARGE = Limits(linear_cells=9_000, cross_validated=500, few_bags=2, linear_cells_at_once=3_000)
WEIGHTS, COVARIANCE = 1e-8, 1e-9  # by which a model of several workers may differ


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two machines, as far as Ray knows, and a third that can be lost."""
    from ray.cluster_utils import Cluster

    arguments = {"num_cpus": 2, "object_store_memory": 100 << 20}
    quick = {
        "enable_worker_prestart": False,
        "prestart_worker_first_driver": False,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
    }
    head = {**arguments, "include_dashboard": False, "_system_config": quick}
    found = Cluster(initialize_head=True, head_node_args=head)
    found.add_node(**arguments)
    yield found
    found.shutdown()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], str, Path]:
    """Numbers, some missing, a heavy tail, categories, and counts of three classes."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    ward = np.append(np.arange(B), rng.integers(B, size=N - B))
    x, income = rng.normal(size=N), rng.lognormal(sigma=1.5, size=N)
    town = rng.integers(6, size=N)
    scores = np.stack([x, (town == 2) - x, np.log(income)], axis=1)
    labels = (scores + rng.gumbel(size=(N, 3))).argmax(axis=1)
    x[rng.random(N) < 0.1] = np.nan
    names = np.array([f"W{w:02d}" for w in range(B)])
    rows = pa.table(
        {
            "ward": names[ward],
            "x": pa.array(x, from_pandas=True),
            "income": income,
            "town": np.array(list("ABCDEF"))[town],
            "row": np.arange(N),
        }
    )
    pq.write_table(rows.slice(0, 900), folder / "a.parquet", row_group_size=250)
    pcsv.write_csv(rows.slice(900), folder / "b.csv")
    counts = np.array([np.bincount(labels[ward == w], minlength=3) for w in range(B)])
    pcsv.write_csv(
        pa.table({"ward": names, **{c: counts[:, i] for i, c in enumerate("pqr")}}),
        folder / "counts.csv",
    )
    noisy = counts + rng.integers(-2, 3, size=counts.shape)
    pcsv.write_csv(
        pa.table({"ward": names, **{c: noisy[:, i] for i, c in enumerate("pqr")}}),
        folder / "noisy.csv",
    )
    return [folder / "a.parquet", folder / "b.csv"], "ward", folder / "counts.csv"


def fit_on(nodes: Any, *where: Any, workers: int = 3, **options: Any) -> Any:
    options = {"model": "linear", **options}
    return fit_table(*where, ray=nodes.address, workers=workers, **options)


def assert_same(ours: Any, theirs: Any) -> None:
    assert ours.columns.left_out == theirs.columns.left_out
    assert ours.columns.encoded_names == theirs.columns.encoded_names
    np.testing.assert_allclose(ours.model.weights, theirs.model.weights, atol=WEIGHTS)
    np.testing.assert_allclose(ours.model.intercept, theirs.model.intercept, atol=WEIGHTS)
    np.testing.assert_allclose(ours.intervals.matrix, theirs.intervals.matrix, atol=COVARIANCE)
    np.testing.assert_allclose(
        ours.intervals.posterior, theirs.intervals.posterior, atol=COVARIANCE
    )
    facts = [asdict(replace(fitted.facts, seconds=0.0, command="")) for fitted in (ours, theirs)]
    assert_close(*facts)


def assert_close(one: Any, other: Any) -> None:
    """Equal but for rounding errors of numbers."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-8, nan_ok=True)
    else:
        assert one == other


@pytest.fixture(scope="module")
def alone(table: Any) -> Any:
    """The model of one process that may not have all rows at once, either."""
    fitted = fit_table(*table, model="linear", limits=LARGE)
    assert fitted.facts.tried[1].some_bags
    assert "log income" in fitted.columns.encoded_names
    return fitted


def test_the_model_of_three_workers_is_that_of_one_process(
    nodes: Any, table: Any, alone: Any
) -> None:
    assert_same(fit_on(nodes, *table, limits=LARGE), alone)


def test_inexact_counts_are_learned_from_alike(nodes: Any, table: Any) -> None:
    files, bag, counts = table
    noisy = {
        "labels": counts.with_name("noisy.csv"),
        "labels_are": bagwise.Laplace(1),
        "limits": LARGE,
    }
    theirs = fit_table(files, bag, model="linear", **noisy)
    assert_same(fit_on(nodes, files, bag, **noisy, workers=2), theirs)


def test_bags_that_labels_lack_are_left_out_alike(nodes: Any, table: Any, tmp_path: Path) -> None:
    files, bag, counts = table
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("\n".join(counts.read_text().split("\n")[:95]) + '\n"none",1,1,1\n')
    options = {"skip_unmatched": True, "limits": LARGE}
    theirs = fit_table(files, bag, fewer, model="linear", **options)
    assert theirs.facts.data.bags_left_out == B - 94 + 1
    assert_same(fit_on(nodes, files, bag, fewer, **options), theirs)


def test_a_table_that_one_worker_may_have_is_fitted_by_one(nodes: Any, table: Any) -> None:
    """It is averaged over the prior, as it is in one process."""
    theirs = fit_table(*table, model="linear")
    assert theirs.facts.settings.averaged
    assert_same(fit_on(nodes, *table), theirs)


def test_bag_effects_and_rows_in_files(nodes: Any, table: Any, tmp_path: Path) -> None:
    options = {"bag_effects": True, "memory": "400MB"}
    theirs = fit_table(*table, model="linear", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bagwise.tables.cluster.worker._IN_MEMORY", 10**9)
        ours = fit_on(nodes, *table, **options, store=tmp_path)
    assert ours.facts.settings.bag_effects == pytest.approx(theirs.facts.settings.bag_effects)
    np.testing.assert_allclose(ours.model.weights, theirs.model.weights, atol=1e-6)
    assert list(tmp_path.iterdir()) == []  # workers have removed theirs


@pytest.mark.parametrize(("method", "call"), [("read", 1), ("deal", 1), ("likelihood", 4)])
def test_a_worker_that_dies_is_replaced(
    method: str, call: int, nodes: Any, table: Any, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    killed = []
    called = Workers._called

    def killing(self: Workers, name: str, arguments: Any) -> Any:
        calls[name] = calls.get(name, 0) + 1
        if (name, calls[name]) == (method, call):
            killed.append(ray.get(self._actors[1].ping.remote()))
            os.kill(killed[0], signal.SIGKILL)
        return called(self, name, arguments)

    calls: dict[str, int] = {}
    monkeypatch.setattr(Workers, "_called", killing)
    assert_same(fit_on(nodes, *table, limits=LARGE, workers=2), alone)
    assert killed


def test_a_worker_that_dies_again_and_again_is_given_up(
    nodes: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    called = Workers._called

    def killing(self: Workers, name: str, arguments: Any) -> Any:
        if name == "read":
            os.kill(ray.get(self._actors[0].ping.remote()), signal.SIGKILL)
        return called(self, name, arguments)

    monkeypatch.setattr(Workers, "_called", killing)
    with pytest.raises(InputError, match="a worker died 3 times; out of memory"):
        fit_on(nodes, *table, workers=1)


def test_a_node_is_lost_in_the_middle_of_a_fit(
    nodes: Any, table: Any, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = nodes.add_node(num_cpus=2, object_store_memory=100 << 20)
    passes, places = [0], []
    called = Workers._called

    def losing(self: Workers, name: str, arguments: Any) -> Any:
        passes[0] += name == "likelihood"
        if passes[0] == 5 and third in nodes.list_all_nodes():
            found = called(self, "ping", dict.fromkeys(range(6), ()))
            raylet = third.all_processes["raylet"][0].process.pid
            places.extend(pid for pid in found.values() if _parent(pid) == raylet)
            nodes.remove_node(third, allow_graceful=False)
        return called(self, name, arguments)

    monkeypatch.setattr(Workers, "_called", losing)
    assert_same(fit_on(nodes, *table, limits=LARGE, workers=6), alone)
    assert passes[0] > 10
    assert places  # some workers were there


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_no_row_comes_to_the_driver(
    nodes: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of bags and coefficients do, but no array with the rows' numbers."""
    import ray

    shapes, get = [], ray.get

    def looking(call: Any) -> Any:
        found = get(call)
        todo = [found]
        while todo:
            item = todo.pop()
            if isinstance(item, np.ndarray):
                shapes.append(item.shape)
            elif isinstance(item, list | tuple):
                todo += item
            elif isinstance(item, dict):
                todo += item.values()
        return found

    monkeypatch.setattr(worker_pool, "_get", looking)
    fitted = fit_on(nodes, *table, limits=LARGE)
    width = len(fitted.columns.encoded_names)
    assert (width + 1, 2) in shapes  # gradients
    assert not [shape for shape in shapes if len(shape) == 2 and width <= shape[1] < width + 2]


@pytest.mark.parametrize(
    "change",
    [
        {"features": ["x", "height"]},
        {"bag": "precinct"},
        {"ordered": {"town": ["A", "B", "C"]}},
        {"labels": "fewer"},
        {"files": "broken"},
        {"memory": 64_000_000},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_wrong_is_said_in_the_same_words(
    change: dict[str, Any], nodes: Any, table: Any, tmp_path: Path
) -> None:
    files, bag, labels = table
    options: dict[str, Any] = {"bag": bag, "labels": labels, "model": "linear", **change}
    if change.get("labels"):
        options["labels"] = tmp_path / "fewer.csv"
        options["labels"].write_text("\n".join(labels.read_text().split("\n")[:90]))
    if options.pop("files", None):
        text = files[1].read_text().split("\n")
        text[400] = text[400].replace(text[400].split(",")[2], "a lot")
        files = [files[0], tmp_path / "b.csv"]
        files[1].write_text("\n".join(text))
    said = []
    for on_ray in ({}, {"ray": nodes.address, "workers": 2}):
        with pytest.raises(InputError) as error:
            fit_table(files, **options, **on_ray)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_more_workers_than_cores_are_refused(nodes: Any, table: Any) -> None:
    with pytest.raises(InputError, match="9 workers need a core each, and Ray has 4; give fewer"):
        fit_on(nodes, *table, workers=9)


def test_what_cannot_be_learned_from_rows_that_are_spread_is_refused(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray is started"))
    for options in (
        {"model": "linear", "row_labels": "town"},
        {"model": "linear", "weights": "row"},
        {"model": "linear", "context": "mean(x)"},
    ):
        with pytest.raises(InputError, match=r"needs them together|cannot be learned from with"):
            fit_table(*table, ray=True, **options)
    with pytest.raises(InputError, match="workers of a cluster share the rows of files"):
        fit_table("polls.duckdb::rows", *table[1:], ray=True, model="linear")


@pytest.mark.parametrize("limits", [LARGE, LIMITS], ids=["all workers", "one worker"])
def test_a_perceptron_of_workers_is_that_of_one_process(
    limits: Limits, nodes: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large table all train together, of a small one a worker does. One of them dies first."""
    import ray

    steps: dict[str, Any] = {"model": "mlp", "lr": 0.01, "epochs": 2, "memory": "400MB"}
    alone = fit_table(*table, limits=limits, **steps)
    killed = []
    called = Workers._called

    def killing(self: Workers, name: str, arguments: Any) -> Any:
        if name in ("with_own", "apply") and not killed:
            killed.append(ray.get(self._actors[1].ping.remote()))
            os.kill(killed[0], signal.SIGKILL)
        return called(self, name, arguments)

    monkeypatch.setattr(Workers, "_called", killing)
    ours = fit_on(nodes, *table, limits=limits, workers=2, **steps)
    assert killed
    # In single precision rounding grows from step to step; tests/test_workers.py is stricter.
    losses = [[point.train for point in fit.facts.curve] for fit in (ours, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    found = [fit.facts.held_out.log_likelihood for fit in (ours, alone)]
    assert found[0] == pytest.approx(found[1], rel=0.02)
