"""What benchmarks of fits on a Ray cluster share: a generated table, nodes, and what a fit takes.

All nodes are on this machine. A worker's CPU time is that of its process, so that it does not
matter what else runs here; memory is what no file backs, of all processes of a node, together with
its object store.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

import bagwise
from bagwise.table_model import TableModel
from bagwise.tables.cluster.worker_pool import Workers

BATCH, STORE = 50_000, 100 << 20
# Reserved memory is memory that is used: one arena, and the system's allocator.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def generate(folder: Path, rows: int, columns: int, bag_size: int, seed: int = 0) -> Path:
    """Two classes; the rows of a bag are all over the table, whose files have 500,000 rows."""
    rng = np.random.default_rng(seed)
    bags = max(rows // bag_size, 20)
    names = [f"x{i}" for i in range(columns)]
    slopes = rng.normal(size=columns) / columns**0.5
    levels = rng.normal(size=bags)
    counts = np.zeros((bags, 2), dtype=np.int64)
    folder.mkdir(parents=True)
    for file, first in enumerate(range(0, rows, 10 * BATCH)):
        last = min(first + 10 * BATCH, rows)
        schema = pa.schema([("bag", pa.int64()), *((name, pa.float32()) for name in names)])
        path = folder / f"{file:05d}.parquet"
        with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
            for start in range(first, last, BATCH):
                n = min(BATCH, last - start)
                bag = rng.integers(bags, size=n)
                X = rng.standard_normal((columns, n), dtype=np.float32)
                X[0] += levels[bag]
                y = (slopes @ X + 0.5 * levels[bag] + rng.logistic(size=n) > 0).astype(np.int64)
                np.add.at(counts, (bag, y), 1)
                arrays = [pa.array(bag), *(pa.array(column) for column in X)]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    there = np.flatnonzero(counts.sum(axis=1))
    labels = {"bag": there, "no": counts[there, 0], "yes": counts[there, 1]}
    pcsv.write_csv(pa.table(labels), folder / "labels.csv")
    return folder


@contextmanager
def nodes(n: int, cores: int = 1, limit: int | None = None) -> Iterator[Any]:
    """A Ray cluster of so many nodes, beside a head without cores.

    Args:
        limit: bytes of private writable memory that each process of the nodes may have.
    """
    from ray.cluster_utils import Cluster

    system = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    with patch.dict(os.environ, QUIET):
        found = Cluster(initialize_head=True, head_node_args={**head, "_system_config": system})
        for _ in range(n):
            node = found.add_node(num_cpus=cores, object_store_memory=STORE)
            if limit is not None:  # workers, which it starts later, have the same
                raylet = node.all_processes["raylet"][0].process.pid
                resource.prlimit(raylet, resource.RLIMIT_DATA, (limit, limit))
        try:
            yield found
        finally:
            found.shutdown()


@dataclass
class Taken:
    """What a fit took.

    Attributes:
        seconds: from beginning to end.
        cpu: CPU seconds of all workers by what they did, but for the start of their processes.
        rows: that all workers together passed over, of what they were asked to do for the fit.
        busiest: CPU seconds of the worker that had most.
        driver: CPU seconds of this process.
        most: bytes of memory, of the node that had most.
        most_of_driver: bytes of memory of this process beyond what it had before.
    """

    seconds: float = 0.0
    cpu: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    busiest: float = 0.0
    driver: float = 0.0
    most: int = 0
    most_of_driver: int = 0


def fit(there: Any, folder: Path, workers: int, **options: Any) -> tuple[TableModel, Taken]:
    """A fit by so many workers of a cluster, and what it took."""
    import ray

    taken, called, left = Taken(), Workers._called, Workers.__exit__
    pids: list[int] = []
    bags: dict[Any, int] = {}
    at_start: dict[int, float] = {}
    of_workers: dict[int, float] = {}

    def watched(self: Workers, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> Any:
        if not pids:
            found = called(self, "ping", dict.fromkeys(range(len(self)), ()))
            pids.extend(found.values())
            at_start.update(_cpu(pids))
        name = next(iter(arguments.values()))[3] if method == "likelihood" else method
        if method == "likelihood":
            for index, *_ in arguments.values():
                bags.setdefault(index, 0)
                bags[index] = bags[index] or len(ray.get(index))
                taken.rows[name] += bags[index]
        before = _cpu(pids)
        done = called(self, method, arguments)
        taken.cpu[name] += sum(_cpu(pids).values()) - sum(before.values())
        return done

    def ending(self: Workers, *error: object) -> None:
        of_workers.update({pid: cpu - at_start[pid] for pid, cpu in _cpu(pids).items()})
        left(self, *error)

    began, cpu = time.perf_counter(), time.process_time()
    with (
        patch.object(Workers, "_called", watched),
        patch.object(Workers, "__exit__", ending),
        _memory(there, taken),
    ):
        model = bagwise.fit(
            folder / "*.parquet",
            bag="bag",
            labels=folder / "labels.csv",
            model="linear",
            progress=False,
            ray=there.address,
            workers=workers,
            **options,
        )
    taken.seconds = time.perf_counter() - began
    taken.driver = time.process_time() - cpu
    taken.busiest = max(of_workers.values())
    data = model.fitted.facts.data
    for name in taken.rows:  # until here they were bags
        taken.rows[name] = round(taken.rows[name] * data.rows / data.n_bags)
    taken.cpu["send"] = sum(of_workers.values()) - sum(taken.cpu.values())
    return model, taken


def _cpu(pids: list[int]) -> dict[int, float]:
    """CPU seconds of processes that are there."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            found[pid] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return found


@contextmanager
def _memory(there: Any, taken: Taken) -> Iterator[None]:
    """Look at the memory of nodes ten times a second."""
    ended = threading.Event()
    before = _status(os.getpid(), "RssAnon")

    def look() -> None:
        while not ended.wait(0.1):
            for node in there.worker_nodes:
                if "raylet" not in node.all_processes:
                    continue
                raylet = node.all_processes["raylet"][0].process.pid
                taken.most = max(taken.most, _of_node(raylet))
            own = _status(os.getpid(), "RssAnon") - before
            taken.most_of_driver = max(taken.most_of_driver, own)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _of_node(raylet: int) -> int:
    """Memory of a node: all its processes, and what is in its object store."""
    return sum(_status(pid, "RssAnon") for pid in _below(raylet)) + _status(raylet, "RssShmem")


def _below(pid: int) -> list[int]:
    """A process, and those that it and they have started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [other for child in task.read_text().split() for other in _below(int(child))]
    return found


def _status(pid: int, name: str) -> int:
    """Bytes that /proc says of a process; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)
