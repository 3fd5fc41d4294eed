from __future__ import annotations

import gzip
import io
import os
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch

from bagwise.paper.datasets import (
    SOURCES,
    DataFileError,
    DatasetNotFoundError,
    find,
    folders,
    load_dataset,
)
from bagwise.paper.datasets.readers import read_cifar10, read_idx, read_idx_pair

RNG = np.random.default_rng(0)


def idx(array: np.ndarray, magic: int | None = None, shape: tuple[int, ...] | None = None) -> bytes:
    shape = shape or array.shape
    header = struct.pack(f">{1 + len(shape)}I", magic or 0x0800 + len(shape), *shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist_like(folder: Path, n_train: int = 50, n_test: int = 20) -> None:
    folder.mkdir(parents=True)
    for prefix, n in (("train", n_train), ("t10k", n_test)):
        images = RNG.integers(256, size=(n, 28, 28))
        labels = RNG.integers(10, size=n)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(array)))


def cifar_files(rows: int = 7) -> dict[str, bytes]:
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    content = {}
    for name in names:
        table = RNG.integers(256, size=(rows, 3073))
        table[:, 0] %= 10
        content[name] = table.astype(np.uint8).tobytes()
    return content


def write_archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_digits_are_embedded_and_standardized() -> None:
    digits = load_dataset("digits")
    assert digits.train_inputs.mean().abs() < 1e-4
    assert digits.train_inputs.std() == pytest.approx(1, abs=1e-3)
    assert len(digits.train_labels) + len(digits.test_labels) == 1797


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "kmnist"])
def test_idx_files_are_read_and_standardized_by_the_training_split(
    name: str, tmp_path: Path
) -> None:
    write_mnist_like(tmp_path / name)
    data = load_dataset(name, tmp_path)
    assert data.train_inputs.shape == (50, 1, 28, 28)
    assert data.test_inputs.shape == (20, 1, 28, 28)
    assert data.train_inputs.dtype == torch.float32
    assert data.train_labels.dtype == torch.int64
    assert data.train_inputs.mean().abs() < 1e-5
    assert data.train_inputs.std(correction=0) == pytest.approx(1, abs=1e-5)
    raw = read_idx(tmp_path / name / "t10k-images-idx3-ubyte.gz", 3)
    train = read_idx(tmp_path / name / "train-images-idx3-ubyte.gz", 3)
    expected = (raw - train.mean()) / train.std()
    np.testing.assert_allclose(data.test_inputs[:, 0].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "kmnist"])
def test_raw_data_sets_have_the_pixels_of_the_files(name: str, tmp_path: Path) -> None:
    write_mnist_like(tmp_path / name)
    data = load_dataset(f"{name}-raw", tmp_path)
    pixels = read_idx(tmp_path / name / "t10k-images-idx3-ubyte.gz", 3)
    assert data.name == f"{name}-raw"
    assert data.train_inputs.dtype == torch.float32
    np.testing.assert_array_equal(data.test_inputs[:, 0].numpy(), pixels)
    assert torch.equal(data.train_labels, load_dataset(name, tmp_path).train_labels)


def test_folders_are_looked_at_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setattr(pooch, "os_cache", lambda _: cache)
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path / "env"))
    expected = [tmp_path / "given/kmnist", tmp_path / "env/kmnist", cache / "kmnist"]
    assert folders("kmnist", tmp_path / "given") == expected
    assert folders("fashion-mnist")[-1] == Path("/usr/share/datasets/fashion-mnist")
    assert find("kmnist") is None
    for root in ("cache", "env", "given"):
        write_mnist_like(tmp_path / root / "kmnist")
        assert find("kmnist", tmp_path / "given") == tmp_path / root / "kmnist"


def test_absent_files_and_no_network_are_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*args: object, **kwargs: object) -> None:
        tried.append(args[0])
        raise OSError("no route to host")

    tried: list[object] = []
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path / "cache")
    monkeypatch.setattr(pooch, "retrieve", no_network)
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    with pytest.raises(DatasetNotFoundError) as error:
        load_dataset("mnist", tmp_path / "given")
    text = str(error.value)
    for part in ("MNIST is not on", "no route", "train-images-idx3", "given/mnist", "data_dir"):
        assert part in text
    assert len(tried) == len(SOURCES["mnist"].mirrors)


def test_downloads_go_to_the_cache_with_their_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retrieve(url: str, known_hash: str, fname: str, path: Path, progressbar: bool) -> None:
        if "lecun" in url:
            raise OSError("gone")
        assert known_hash == SOURCES["mnist"].hashes[fname]
        shutil.copy(tmp_path / "net" / fname, path)

    write_mnist_like(tmp_path / "net")
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path / "cache")
    monkeypatch.setattr(pooch, "retrieve", retrieve)
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    assert len(load_dataset("mnist").train_labels) == 50
    files = {path.name for path in (tmp_path / "cache" / "mnist").iterdir()}
    assert files == set(SOURCES["mnist"].hashes)


IMAGES = RNG.integers(256, size=(3, 4, 4))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(idx(IMAGES))[:-9], "cannot be unpacked"),
        (gzip.compress(idx(IMAGES)[:-1]), "truncated"),
        (gzip.compress(idx(IMAGES)[:9]), "within its header"),
        (gzip.compress(idx(IMAGES) + b"x"), "too long"),
        (gzip.compress(idx(IMAGES, magic=0x0D03)), "begins with 0x00000d03"),
        (gzip.compress(idx(IMAGES, shape=(2**31, 2**31, 2))), "cannot be right"),
        (gzip.compress(idx(IMAGES, shape=(0, 4, 4))), "cannot be right"),
        (idx(IMAGES), "cannot be unpacked"),
        (b"", "within its header"),
    ],
    ids=["cut", "short", "header", "long", "magic", "huge", "nothing", "plain", "empty"],
)
def test_bad_idx_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        read_idx(path, 3)


def test_no_more_is_unpacked_than_declared(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(idx(IMAGES) + bytes(200_000_000), 1))
    with pytest.raises(DataFileError, match="too long"):
        read_idx(path, 3)


def test_wrong_labels_and_counts_are_refused(tmp_path: Path) -> None:
    images, labels = tmp_path / "images.gz", tmp_path / "labels.gz"
    images.write_bytes(gzip.compress(idx(IMAGES)))
    labels.write_bytes(gzip.compress(idx(np.array([1, 10, 2]))))
    with pytest.raises(DataFileError, match=r"row 1 the label 10; 0 \.\. 9"):
        read_idx_pair(images, labels, 10)
    labels.write_bytes(gzip.compress(idx(np.array([1, 2]))))
    with pytest.raises(DataFileError, match=r"3 images, but .* 2 labels"):
        read_idx_pair(images, labels, 10)


def test_cifar_is_read_from_a_folder_and_from_the_archive(tmp_path: Path) -> None:
    files = cifar_files()
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    archive = write_archive(
        tmp_path / "cifar-10-binary.tar.gz",
        {f"cifar-10-batches-bin/{name}": content for name, content in files.items()},
    )
    for a, b in zip(read_cifar10(folder), read_cifar10(archive), strict=True):
        np.testing.assert_array_equal(a, b)
    images, labels, test_images, _ = read_cifar10(folder)
    first = np.frombuffer(files["data_batch_1.bin"], np.uint8)
    assert labels[0] == first[0]
    np.testing.assert_array_equal(images[0].ravel(), first[1:3073])
    assert (len(images), len(test_images)) == (35, 7)
    data = load_dataset("cifar10", tmp_path)
    assert data.train_inputs.shape == (35, 3, 32, 32)
    np.testing.assert_allclose(data.train_inputs.mean((0, 2, 3)).numpy(), 0, atol=1e-5)


def test_bad_cifar_files_are_refused(tmp_path: Path) -> None:
    files = cifar_files()

    def refused(members: dict[str, bytes], message: str) -> None:
        with pytest.raises(DataFileError, match=message):
            read_cifar10(write_archive(tmp_path / "x.tar.gz", members))

    refused({**files, "test_batch.bin": files["test_batch.bin"][:-1]}, "test_batch.bin has")
    refused({**files, "data_batch_2.bin": bytes(3073 * 10_001)}, "data_batch_2.bin has")
    refused({**files, "data_batch_3.bin": b"\x0b" + bytes(3072)}, "label 11")
    refused({"data_batch_1.bin": files["data_batch_1.bin"]}, "lacks data_batch_2.bin")
    refused({"../data_batch_1.bin": b"", **files}, "points outside")
    refused({"/etc/passwd": b"", **files}, "points outside")
    (tmp_path / "y.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(DataFileError, match="cannot be unpacked"):
        read_cifar10(tmp_path / "y.tar.gz")
    with pytest.raises(DataFileError, match="has no data_batch_1"):
        read_cifar10(tmp_path)
    with tarfile.open(tmp_path / "z.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("data_batch_1.bin")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(DataFileError, match="points outside"):
        read_cifar10(tmp_path / "z.tar.gz")


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(ValueError, match="'imagenet'; choose one of digits, mnist"):
        load_dataset("imagenet")


@pytest.mark.parametrize("name", list(SOURCES))
def test_the_real_files_where_they_are_at_hand(name: str) -> None:
    if find(name) is None:
        pytest.skip(f"{name} is not in $BAGWISE_DATA ({os.environ.get('BAGWISE_DATA')})")
    data = load_dataset(name)
    sizes = (50_000, 10_000) if name == "cifar10" else (60_000, 10_000)
    assert (len(data.train_labels), len(data.test_labels)) == sizes
    counts = torch.bincount(data.test_labels)
    assert len(counts) == 10
    assert counts.min() > 800
