"""The paper's data sets, standardized and raw, and scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits

from bagwise.errors import InputError, InputTypeError
from bagwise.networks import Standardize
from bagwise.paper.datasets.catalog import SOURCES, DatasetNotFoundError, fetch, find, folders
from bagwise.paper.datasets.readers import DataFileError, read_cifar10, read_idx_pair
from bagwise.registry import Registry

__all__ = [
    "DATASETS",
    "SOURCES",
    "DataFileError",
    "Dataset",
    "DatasetNotFoundError",
    "find",
    "folders",
    "load_dataset",
    "published_name",
    "standardized",
]


@dataclass(frozen=True)
class Dataset:
    """Images and labels, in the published split.

    Attributes:
        train_inputs: (N, channels, height, width) floats, standardized by channel with the
            statistics of the training split; pixels from 0 to 255 in raw data sets.
        test_inputs: like the training inputs, with the same statistics.
    """

    name: str
    train_inputs: torch.Tensor
    train_labels: torch.Tensor
    test_inputs: torch.Tensor
    test_labels: torch.Tensor
    n_classes: int = 10

    def __post_init__(self) -> None:
        parts = {
            "training": (self.train_inputs, self.train_labels),
            "test": (self.test_inputs, self.test_labels),
        }
        for part, (inputs, labels) in parts.items():
            if len(inputs) != len(labels) or not len(labels):
                raise InputError(
                    f"the {part} split of {self.name} has {len(inputs)} inputs and {len(labels)} "
                    "labels; one label for each input, and at least one, is expected."
                )
            if not inputs.dtype == torch.float32:
                raise InputError(
                    f"the {part} inputs of {self.name} are {inputs.dtype}; torch.float32 is "
                    "expected."
                )
        if self.train_inputs.shape[1:] != self.test_inputs.shape[1:]:
            raise InputError(
                f"training inputs of {self.name} have shape {tuple(self.train_inputs.shape[1:])}, "
                f"test inputs {tuple(self.test_inputs.shape[1:])}; the same is expected."
            )


Loader = Callable[[Path | None, bool], Dataset]
"""loader(data_dir or None, whether to show progress) reads a data set."""

DATASETS = Registry[Loader]("dataset", "bagwise.datasets")


_RAW = "-raw"


def published_name(name: str) -> str:
    """What a data set is called in the paper, whatever is done with its pixels.

    >>> published_name("mnist-raw"), published_name("mnist")
    ('mnist', 'mnist')
    """
    return name.removesuffix(_RAW)


def load_dataset(name: str, data_dir: str | Path | None = None, progress: bool = True) -> Dataset:
    """Read a data set, downloading it where it is nowhere on this machine.

    Args:
        name: digits (embedded), mnist, fashion-mnist, kmnist, cifar10, or a registered one. The
            last four also as mnist-raw and so on: with the pixels from 0 to 255 that the paper's
            authors train on.
        data_dir: a folder with a folder of that name; looked at before $BAGWISE_DATA, the user's
            cache and the system's data sets.
        progress: show a progress bar for downloads.

    >>> digits = load_dataset("digits")
    >>> digits.train_inputs.shape, digits.test_inputs.shape
    (torch.Size([1437, 1, 8, 8]), torch.Size([360, 1, 8, 8]))
    """
    found = DATASETS[name](None if data_dir is None else Path(data_dir), progress)
    if not isinstance(found, Dataset):
        raise InputTypeError(
            f"the loader of {name!r} returned a {type(found).__name__}; a Dataset is expected."
        )
    return found


@DATASETS.register("digits")
def _digits(data_dir: Path | None, progress: bool) -> Dataset:
    """scikit-learn's digits: every fifth one is for testing."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8)
    test = np.arange(len(labels)) % 5 == 0
    return standardized("digits", images[~test], labels[~test], images[test], labels[test])


Images = npt.NDArray[np.generic]
Arrays = tuple[Images, Images, Images, Images]
"""Training images and labels, test images and labels."""


def _idx(name: str, data_dir: Path | None, progress: bool) -> Arrays:
    folder = fetch(name, data_dir, progress)
    files = [folder / file for file in SOURCES[name].hashes]
    train_images, train_labels = read_idx_pair(files[0], files[1], 10)
    test_images, test_labels = read_idx_pair(files[2], files[3], 10)
    for file, images in ((files[0], train_images), (files[2], test_images)):
        if images.shape[2:] != (28, 28):
            size = " x ".join(map(str, images.shape[2:]))
            raise DataFileError(f"{file} has images of {size} pixels; 28 x 28 are expected.")
    return train_images, train_labels, test_images, test_labels


def _cifar10(name: str, data_dir: Path | None, progress: bool) -> Arrays:
    source = SOURCES[name]
    folder = fetch(name, data_dir, progress)
    unpacked = folder / str(source.unpacked)
    return read_cifar10(unpacked if unpacked.is_dir() else folder / next(iter(source.hashes)))


def standardized(
    name: str,
    train_images: Images,
    train_labels: Images,
    test_images: Images,
    test_labels: Images,
) -> Dataset:
    """A data set of images (N, channels, height, width), by channel as training images are."""
    pixels = raw(name, train_images, train_labels, test_images, test_labels)
    standardize = Standardize.of(pixels.train_inputs, plain=True)
    return replace(
        pixels,
        train_inputs=standardize(pixels.train_inputs),
        test_inputs=standardize(pixels.test_inputs),
    )


def raw(
    name: str,
    train_images: Images,
    train_labels: Images,
    test_images: Images,
    test_labels: Images,
) -> Dataset:
    """A data set of images (N, channels, height, width) with the pixels that their files have."""
    train_pixels, test_pixels = (
        torch.from_numpy(images.astype(np.float32)) for images in (train_images, test_images)
    )
    if (train_pixels == train_pixels[:1, :, :1, :1]).all(dim=(0, 2, 3)).any():
        raise DataFileError(f"all training images of {name} are alike; the files are damaged.")
    return Dataset(
        name,
        train_pixels,
        torch.from_numpy(train_labels.astype(np.int64)),
        test_pixels,
        torch.from_numpy(test_labels.astype(np.int64)),
    )


def _load(name: str, data_dir: Path | None, progress: bool) -> Dataset:
    """One of the paper's data sets, standardized unless its name asks for raw pixels."""
    source = published_name(name)
    read = _cifar10 if source == "cifar10" else _idx
    return (standardized if name == source else raw)(name, *read(source, data_dir, progress))


for _name in SOURCES:
    DATASETS[_name] = partial(_load, _name)
    DATASETS[_name + _RAW] = partial(_load, _name + _RAW)
