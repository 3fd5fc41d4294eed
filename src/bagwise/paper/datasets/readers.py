"""Readers of IDX and CIFAR files that trust nothing they are given."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from bagwise.errors import InputError

Bytes = npt.NDArray[np.uint8]

_LARGEST = 2**30  # no file of these data sets unpacks to more
_CIFAR_ROW = 1 + 3 * 32 * 32
_CIFAR_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_CIFAR_TEST = "test_batch.bin"


# What tarfile ends in beside its own errors, for instance at a header that declares a huge size.
_UNPACKABLE = (
    tarfile.TarError,
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)


class DataFileError(InputError):
    """A data file is not what it should be."""


def read_idx(path: Path, dimensions: int) -> Bytes:
    """An IDX file of bytes with so many dimensions, gzipped: (N, ...).

    The header's magic number, the shape it declares and the length of what follows are checked; no
    more is unpacked than the header declares.
    """
    try:
        with gzip.open(path) as file:
            header = file.read(4 + 4 * dimensions)
            if len(header) < 4 + 4 * dimensions:
                raise DataFileError(f"{path} ends within its header; it is truncated.")
            magic, *shape = struct.unpack(f">{1 + dimensions}I", header)
            if magic != 0x0800 + dimensions:
                raise DataFileError(
                    f"{path} begins with {magic:#010x}; {0x0800 + dimensions:#010x} is expected: "
                    f"an IDX file of bytes in {dimensions} dimensions."
                )
            size = 1
            for length in shape:
                size *= length
            if not 0 < size <= _LARGEST:
                raise DataFileError(f"{path} declares the shape {shape}, which cannot be right.")
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise DataFileError(f"{path} cannot be unpacked: {error}.") from error
    if len(content) != size:
        state = "truncated" if len(content) < size else "too long"
        raise DataFileError(
            f"{path} is {state}: its header declares {size} bytes of shape {shape}."
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_idx_pair(images: Path, labels: Path, n_classes: int) -> tuple[Bytes, Bytes]:
    """(N, 1, height, width) images and (N,) labels that belong together."""
    pixels, numbers = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(numbers):
        raise DataFileError(
            f"{images} has {len(pixels)} images, but {labels} has {len(numbers)} labels."
        )
    _check_labels(numbers, n_classes, labels)
    return pixels[:, None], numbers


def read_cifar10(path: Path) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Training images and labels, test images and labels of CIFAR-10's binary version.

    Args:
        path: the folder with the six .bin files, or the .tar.gz, which is read in place: nothing
            is extracted.
    """
    parts = _cifar_folder(path) if path.is_dir() else _cifar_archive(path)
    train = [_cifar_rows(parts[name], f"{path}: {name}") for name in _CIFAR_TRAIN]
    test_images, test_labels = _cifar_rows(parts[_CIFAR_TEST], f"{path}: {_CIFAR_TEST}")
    images, labels = (np.concatenate(column) for column in zip(*train, strict=True))
    return images, labels, test_images, test_labels


def _cifar_folder(path: Path) -> dict[str, bytes]:
    found = {}
    for name in (*_CIFAR_TRAIN, _CIFAR_TEST):
        if not (path / name).is_file():
            raise DataFileError(f"{path} has no {name}; all six .bin files are needed.")
        with (path / name).open("rb") as file:
            found[name] = file.read(10_000 * _CIFAR_ROW + 1)
    return found


def _cifar_archive(path: Path) -> dict[str, bytes]:
    wanted = {*_CIFAR_TRAIN, _CIFAR_TEST}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                place = PurePosixPath(member.name)
                if place.is_absolute() or ".." in place.parts or member.issym() or member.islnk():
                    raise DataFileError(
                        f"{path} has the member {member.name!r}, which points outside the archive; "
                        "it is not the official file."
                    )
                if place.name in wanted and member.isfile():
                    file = archive.extractfile(member)
                    found[place.name] = (file or io.BytesIO()).read(10_000 * _CIFAR_ROW + 1)
    except DataFileError:
        raise
    except _UNPACKABLE as error:
        raise DataFileError(f"{path} cannot be unpacked: {error}.") from error
    if missing := sorted(wanted - found.keys()):
        raise DataFileError(f"{path} lacks {', '.join(missing)}; it is incomplete.")
    return found


def _cifar_rows(content: bytes, place: str) -> tuple[Bytes, Bytes]:
    if not content or len(content) % _CIFAR_ROW or len(content) > 10_000 * _CIFAR_ROW:
        raise DataFileError(
            f"{place} has {len(content)} bytes; up to 10000 rows of {_CIFAR_ROW} are expected."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR_ROW)
    _check_labels(rows[:, 0], 10, place)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def _check_labels(labels: Bytes, n_classes: int, place: object) -> None:
    if labels.max() >= n_classes:
        row = int(np.argmax(labels >= n_classes))
        raise DataFileError(
            f"{place} gives row {row} the label {labels[row]}; 0 .. {n_classes - 1} are expected."
        )
