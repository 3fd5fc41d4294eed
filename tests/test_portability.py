"""What not every system has: forks, /proc, locks on files."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bagwise
from bagwise import memory_size
from bagwise.storage import locks


def refuse(*_: object) -> None:
    raise AssertionError("this system has no fork")


def without_proc(path: Any, *args: Any, **kwargs: Any) -> Any:
    if str(path) == "/proc/self/statm":  # others of /proc are read by other packages
        raise FileNotFoundError(path)
    return OPEN(path, *args, **kwargs)


OPEN = builtins.open


@pytest.mark.parametrize("memory", [None, "100MB"])
def test_a_table_is_fitted_and_used_without_forks_proc_and_locks(
    memory: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.delattr(locks, "fcntl", raising=False)
    monkeypatch.setattr(os, "fork", refuse, raising=False)
    monkeypatch.setattr(builtins, "open", without_proc)
    for name in ("_PROC", "_GROUPS"):
        monkeypatch.setattr(memory_size, name, tmp_path / "nowhere")
    random = np.random.default_rng(0)
    age = np.sort(random.normal(size=60))
    yes = random.random(60) < np.linspace(0.1, 0.9, 60)
    ward = np.arange(60) // 6
    rows = "ward,age\n" + "".join(f"{w},{a}\n" for w, a in zip(ward, age, strict=True))
    (tmp_path / "rows.csv").write_text(rows, encoding="utf-8")
    counts = pa.table({"ward": np.arange(10), "no": np.bincount(ward, ~yes).astype(int)})
    counts = counts.append_column("yes", pa.array(np.bincount(ward, yes).astype(int)))
    out = tmp_path / "model"
    bagwise.fit(
        tmp_path / "rows.csv",
        bag="ward",
        labels=counts,
        model="linear",
        out=out,
        memory=memory,
        progress=False,
    )
    labels = bagwise.load(out).predict(pa.table({"age": [-2.0, 2.0]}))
    assert labels.to_pylist() == ["no", "yes"]
