"""Which files a data set consists of, where they may lie and where they come from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bagwise.extras import require
from bagwise.storage.files import remove_leftovers, unfinished

_IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


@dataclass(frozen=True)
class Source:
    """A data set on disk and on the net.

    Attributes:
        hashes: file name -> checksum, for downloads.
        mirrors: addresses to try, each followed by a file name; the official one first.
        system_folder: where a package of the operating system puts the files.
        unpacked: a folder that may stand in for the files.
    """

    title: str
    hashes: dict[str, str]
    mirrors: tuple[str, ...]
    system_folder: Path | None = None
    unpacked: str | None = None


def _idx(*sha256: str) -> dict[str, str]:
    return {name: f"sha256:{digest}" for name, digest in zip(_IDX_FILES, sha256, strict=True)}


SOURCES = {
    "mnist": Source(
        "MNIST",
        _idx(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        (
            "http://yann.lecun.com/exdb/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "fashion-mnist": Source(
        "Fashion-MNIST",
        _idx(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        system_folder=Path("/usr/share/datasets/fashion-mnist"),
    ),
    "kmnist": Source(
        "Kuzushiji-MNIST",
        _idx(
            "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
            "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
            "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
        ),
        ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
    ),
    "cifar10": Source(
        "CIFAR-10",
        {"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
        ("https://www.cs.toronto.edu/~kriz/",),
        unpacked="cifar-10-batches-bin",
    ),
}


class DatasetNotFoundError(FileNotFoundError):
    """The files of a data set are nowhere, and cannot be downloaded."""


def folders(name: str, data_dir: Path | None = None) -> list[Path]:
    """Where the files of a data set are looked for, in order: the cache comes last but one."""
    roots = [data_dir, os.environ.get("BAGWISE_DATA"), _cache()]
    found = [Path(root) / name for root in roots if root]
    system_folder = SOURCES[name].system_folder
    return found + ([system_folder] if system_folder else [])


def _cache() -> Path:
    require("pooch", "datasets")
    import pooch

    return Path(pooch.os_cache("bagwise"))


def find(name: str, data_dir: Path | None = None) -> Path | None:
    """The first folder that has all files of the data set, or what stands in for them."""
    source = SOURCES[name]
    for folder in folders(name, data_dir):
        if source.unpacked and (folder / source.unpacked).is_dir():
            return folder
        if all((folder / file).is_file() for file in source.hashes):
            return folder
    return None


def fetch(name: str, data_dir: Path | None = None, progress: bool = True) -> Path:
    """The folder of the data set's files, downloaded to the user's cache if they are nowhere."""
    found = find(name, data_dir)
    if found is not None:
        remove_leftovers(found)  # of a download that was killed when all was there
        return found
    import pooch

    source = SOURCES[name]
    cache = _cache() / name
    problems = []
    for file, known_hash in source.hashes.items():
        for mirror in source.mirrors:
            try:
                cache.mkdir(parents=True, exist_ok=True)
                with unfinished(cache / file, folder=True, shared=True) as new:
                    pooch.retrieve(
                        mirror + file, known_hash, fname=file, path=new, progressbar=progress
                    )
                    (new / file).replace(cache / file)
                break
            except Exception as error:  # any way a download can fail: try the next mirror
                problems.append(f"{mirror}: {error}")
        else:
            raise DatasetNotFoundError(_absent(name, data_dir, problems[-1]))
    return cache


def _absent(name: str, data_dir: Path | None, problem: str) -> str:
    source = SOURCES[name]
    files = ", ".join(source.hashes)
    if source.unpacked:
        files += f" (or the folder {source.unpacked} from it)"
    places = "\n".join(f"  {folder}" for folder in folders(name, data_dir))
    return (
        f"{source.title} is not on this machine and could not be downloaded ({problem}).\n"
        f"Put {files} into one of\n{places}\n"
        "or name another folder with data_dir or $BAGWISE_DATA (the files go into a folder "
        f"{name} there)."
    )
