"""Arrays and facts in one file: safetensors with JSON in its header, written atomically."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bagwise.checks import shown
from bagwise.errors import DamagedError, InputError
from bagwise.storage.files import write_atomically, write_pieces

Arrays = dict[str, npt.NDArray[Any]]

LARGE = 1 << 24  # bytes of arrays above which they are written without a copy
_FACTS = "bagwise"
_DIGESTS = "digests"
# How safetensors names the types that Bagwise keeps, in the order in which it writes them.
_KINDS = {"int64": "I64", "float64": "F64", "float32": "F32", "int32": "I32", "uint8": "U8"}
_KINDS["bool"] = "BOOL"

Named = Mapping[str, Any]
"""Arrays, or tensors of PyTorch, by name."""


def save_arrays(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], facts: dict[str, Any], large: int = LARGE
) -> None:
    """Write arrays, and facts that JSON can hold, to one file; more than `large` bytes in pieces.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_arrays(Path(folder) / "x.safetensors", {"x": np.ones(2)}, {"epoch": 3})
    ...     load_arrays(Path(folder) / "x.safetensors")
    ({'x': array([1., 1.])}, {'epoch': 3})
    """
    own = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata = metadata_of(own, facts)
    known = all(array.dtype.name in _KINDS for array in own.values())
    if known and sum(array.nbytes for array in own.values()) > large:
        write_pieces(path, _in_pieces(own, metadata, large))
    else:
        write_atomically(path, save(own, metadata=metadata))


def metadata_of(arrays: Named, facts: dict[str, Any]) -> dict[str, str]:
    """The facts, with a digest of everything, as safetensors keeps them in its header."""
    # One entry only: safetensors writes several in any order, and equal files would differ.
    return {_FACTS: json.dumps(facts | {_DIGESTS: _digests(arrays, facts)})}


def _in_pieces(arrays: Arrays, metadata: dict[str, str], size: int) -> Iterator[bytes | memoryview]:
    """The same bytes as those of `safetensors.numpy.save`, which would copy all arrays twice: some
    of them may lie in files because memory has no room for them.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    order = list(_KINDS)
    names = sorted(arrays, key=lambda name: (order.index(arrays[name].dtype.name), name))
    place = 0
    for name in names:
        array, end = arrays[name], place + arrays[name].nbytes
        kind, shape = _KINDS[array.dtype.name], list(array.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        content = _bytes(arrays[name])
        yield from (content[begin : begin + size] for begin in range(0, len(content), size))


def load_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """What `save_arrays` wrote. A file that is something else is a ValueError that names it."""
    return read_file(path, "np")


def read_file(path: Path, framework: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays ("np") or tensors ("pt"), and the facts beside them."""
    try:
        with safe_open(path, framework=framework) as file:
            facts = json.loads((file.metadata() or {})[_FACTS])
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (
        SafetensorError,
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise DamagedError(
            f"{path} is damaged or was not written by Bagwise ({error}); "
            "restore it from a copy, or delete it and start again."
        ) from error
    if not isinstance(facts, dict):
        raise DamagedError(f"{path} was not written by Bagwise; delete it and start again.")
    facts.pop(_DIGESTS, None)
    return found, facts


def verify(path: Path, arrays: Named) -> None:
    """Compare what was read from a file with the digests it was written with.

    To be called when names and shapes are known to fit, which says more about what is wrong. Files
    of earlier versions have no digests.
    """
    with safe_open(path, framework="np") as file:
        facts = json.loads(file.metadata()[_FACTS])
    wanted = facts.pop(_DIGESTS, None)
    if wanted is None:
        return
    if not isinstance(wanted, dict):
        raise DamagedError(f"{_DIGESTS} is {shown(wanted)}; a table of names is expected.")
    found = _digests(arrays, facts)
    for name in sorted({*found, *wanted}):
        if found.get(name) != wanted.get(name):
            what = "is missing" if name not in found else "is not as it was written"
            raise DamagedError(f"{name!r} {what}")


def _digests(arrays: Named, facts: dict[str, Any]) -> dict[str, str]:
    """A short digest of each array's type, shape and content, and of the facts: safetensors has
    none, and a flipped bit would be trained on.
    """
    found = {_FACTS: hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()}
    for name, array in sorted(arrays.items()):  # what is read again is in another order
        digest = hashlib.blake2b(_described(array).encode(), digest_size=8)
        digest.update(_bytes(array))
        found[name] = digest.hexdigest()
    return found


def compare(arrays: Named, expected: Named) -> None:
    """Names, types and shapes must be those of other arrays, or of `shape_of`; the first difference
    is a ValueError.

    >>> compare({"weight": np.ones(2)}, {"weight": shape_of("float64", 3)})
    Traceback (most recent call last):
    bagwise.errors.InputError: 'weight' is float64 (2,); float64 (3,) is expected
    """
    for name in expected:
        if name not in arrays:
            raise InputError(f"{name!r} is missing")
    for name, array in arrays.items():
        if name not in expected:
            raise InputError(f"{name!r} is unknown")
        shape, wanted = _described(array), expected[name]
        wanted = wanted if isinstance(wanted, str) else _described(wanted)
        if shape != wanted:
            raise InputError(f"{name!r} is {shape}; {wanted} is expected")


def shape_of(kind: str, *sizes: int) -> str:
    """A type and a shape as `compare` has them.

    >>> shape_of("float64", 3)
    'float64 (3,)'
    """
    return f"{kind} {sizes}"


def require_finite(arrays: Named) -> None:
    """Numbers that are NaN or infinite are a ValueError: a fit never keeps such."""
    for name, array in arrays.items():
        if "float" in str(array.dtype) and not (abs(array) < np.inf).all():
            raise InputError(f"{name!r} has NaN or infinite values, which training never keeps")


def _described(array: Any) -> str:
    return shape_of(str(array.dtype).removeprefix("torch."), *array.shape)


def _bytes(array: Any) -> memoryview:
    if isinstance(array, np.ndarray):
        return np.asarray(array, order="C").reshape(-1).view(np.uint8).data
    content: memoryview = array.reshape(-1).view(sys.modules["torch"].uint8).numpy().data
    return content
