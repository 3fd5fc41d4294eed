"""Tables in an object store, against a local server that speaks as Amazon's does."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import bagwise
from bagwise.errors import InputError
from bagwise.tables.read.paths import paths_of
from bagwise.tables.read.source import open_rows
from bagwise.tables.read.streaming import streamed_rows
from test_table_places import command, content, counts_of, fitted, guide, rows

ROOT = Path(__file__).parent.parent
SERVER = shutil.which("moto_server", path=f"{ROOT / '.venv-s3' / 'bin'}:{os.environ['PATH']}")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SERVER is None, reason="moto_server is not installed; make .venv-s3/ready"),
]
NO_PROXY = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert SERVER is not None
    server = subprocess.Popen(
        [SERVER, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> pafs.FileSystem:
    """A store with a bucket of several tables."""
    store = pafs.S3FileSystem(
        access_key="writer",
        secret_key="topsecret",
        endpoint_override=f"http://{endpoint}",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    store.create_dir("polls")
    store.create_dir("polls/empty")
    table = rows()
    pq.write_to_dataset(table, "polls/voters", partition_cols=["ward"], filesystem=store)
    for name, text in (("_SUCCESS", b""), (".hidden.parquet", b"no table")):
        with store.open_output_stream(f"polls/voters/{name}") as file:
            file.write(text)
    store.create_dir("polls/years")
    for place, part in enumerate(range(0, 480, 240)):
        with store.open_output_stream(f"polls/years/{2020 + place}.csv.gz") as file:
            pcsv.write_csv(table.slice(part, 240), file)
    with store.open_output_stream("polls/rows.feather", compression=None) as file:
        feather.write_feather(table, file)
    with store.open_output_stream("polls/results.csv") as file:
        pcsv.write_csv(counts_of(table), file)
    return store


@pytest.fixture
def here(
    bucket: pafs.FileSystem, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder in which commands run that find the server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in NO_PROXY.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_guide_for_object_stores(here: Path) -> None:
    for line in guide("s3://polls"):
        command(line)
    pq.write_to_dataset(rows(), here / "voters", partition_cols=["ward"])
    pcsv.write_csv(counts_of(rows()), here / "results.csv")
    command("bagwise fit voters --bag ward --labels results.csv --exclude id,votes --out other")
    one, other = (bagwise.load(here / name) for name in ("model", "other"))
    assert one.effects().equals(other.effects())
    assert one.facts.data.files[0].startswith("s3://polls/voters/ward=W00/")
    assert pcsv.read_csv(here / "predictions.csv").num_rows == 480
    labels = "--bag ward --labels s3://polls/results.csv"
    command(f"bagwise label model s3://polls/voters {labels} --out labels.csv")
    command(f"bagwise estimate model s3://polls/rows.feather --by town {labels}")
    command(
        f"bagwise fit s3://polls/years {labels} --exclude id,votes --model linear "
        "--memory 200MB --out large"
    )
    assert bagwise.load(here / "large").facts.data.rows == 480


@pytest.mark.parametrize(
    ("given", "files"),
    [
        ("s3://polls/voters", 16),
        ("s3://polls/voters/", 16),
        ("s3://polls/voters/ward=W0*", 10),
        ("s3://polls/voters/ward=W0[1-3]/*.parquet", 3),
        ("s3://polls/**/*.parquet", 16),
        ("s3://polls/years/2020.csv.gz", 1),
        ("s3://polls/*.feather", 1),
    ],
)
def test_folders_and_patterns(given: str, files: int, here: Path) -> None:
    assert len(paths_of(given)) == files


def test_rows_are_those_of_files_here(here: Path) -> None:
    table = rows()
    for read in (open_rows, lambda place: streamed_rows(place, [], 10**9)):
        found = content(read("s3://polls/rows.feather"))
        assert found == table.to_pydict()
        found = content(read("s3://polls/voters"), ["id", "ward"])
        assert dict(zip(found["id"], found["ward"], strict=True)) == dict(
            zip(table["id"].to_pylist(), table["ward"].to_pylist(), strict=True)
        )
    found = content(streamed_rows("s3://polls/years", [], 10**9))
    np.testing.assert_array_equal(found["age"], table["age"].to_numpy())


def test_options_and_keys_may_stand_in_the_uri_and_are_kept_secret(
    bucket: pafs.FileSystem, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    options = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
    uri = f"s3://reader:topsecret@polls/voters?{options}"
    line = f"bagwise fit '{uri}' --bag ward --labels results.csv --exclude id,votes --out model"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["bagwise", "fit", uri])
    pcsv.write_csv(counts_of(rows()), tmp_path / "results.csv")
    command(f"{line} --model linear")
    command("bagwise report model --out report.html")
    files = [*(tmp_path / "model").iterdir(), tmp_path / "report.html"]
    assert not any(b"topsecret" in file.read_bytes() for file in files)
    kept = json.loads((tmp_path / "model" / "fit.json").read_text())
    assert "s3://polls/voters/ward=W00" in json.dumps(kept)
    with pytest.raises(InputError) as error:
        open_rows(uri.replace("voters", "nothing"))
    assert str(error.value).startswith("there is no file s3://***@polls/nothing")


def test_a_fit_with_memory_starts_anew_where_an_object_has_changed(
    here: Path, bucket: pafs.FileSystem
) -> None:
    labels, how = counts_of(rows()), {"memory": "200MB", "store": here / "store"}
    bucket.create_dir("polls/changing")
    pq.write_table(rows(), "polls/changing/rows.parquet", filesystem=bucket)
    one = fitted("s3://polls/changing", labels, **how)
    before = (here / "store" / "rows").stat().st_mtime_ns
    same = fitted("s3://polls/changing", labels, **how)
    assert one.effects().equals(same.effects())
    assert (here / "store" / "rows").stat().st_mtime_ns == before
    changed = rows().set_column(2, "age", pa.array(np.arange(480) % 70))
    pq.write_table(changed, "polls/changing/rows.parquet", filesystem=bucket)
    other = fitted("s3://polls/changing", labels, **how)
    assert not one.effects().equals(other.effects())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("s3://absent/rows", r"there is no bucket 'absent', which s3://absent/rows names"),
        ("s3://polls/nothing", "there is no file s3://polls/nothing"),
        ("s3://polls/years/*.parquet", r"there is no file s3://polls/years/\*.parquet"),
        ("s3://polls/empty", "is a folder without tables; files that end in .csv"),
        ("s3://polls", "has files of several formats: "),
        ("s3://polls/voters/_SUCCESS", "is of an unknown kind"),
        ("s3://polls/voters/.hidden.parquet", "cannot be read: Parquet magic bytes not found"),
        (["s3://polls/years/2020.csv.gz", "s3://polls/results.csv"], "has no column"),
    ],
)
def test_what_cannot_be_read_is_named(given: str | list[str], message: str, here: Path) -> None:
    with pytest.raises(InputError, match=message):
        open_rows(given)


def test_a_store_that_is_not_there_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(InputError, match=r"the object store does not answer.*AWS_ENDPOINT_URL"):
        open_rows("s3://polls/voters")
