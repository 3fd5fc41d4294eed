"""Tensors and facts in one file: safetensors with JSON in its header, written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from bagwise.checks import shown
from bagwise.errors import DamagedError, InputError
from bagwise.storage.locks import TakenError, hold

_FACTS = "bagwise"
_DIGESTS = "digests"
_UNFINISHED = ".unfinished"  # how names of what is being written end
LARGE = 1 << 24  # bytes of tensors above which they are written without a copy
# How safetensors names the types that Bagwise keeps, in the order in which it writes them.
_KINDS = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path` in one step: it is there whole, or as it was before."""
    write_pieces(path, [content])


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """The same, of content that comes in pieces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(path) as temporary:
        fill(temporary, pieces)
        temporary.replace(path)


def fill(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write content to a file, and wait until it is on the disk."""
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def refuse_foreign(path: Path, is_own: Callable[[Path], bool], force: bool = False) -> None:
    """Raise a ValueError where an output would replace a file that its command did not write.

    Args:
        path: of the output.
        is_own: whether a file is of the kind that the command writes.
        force: any file may be replaced.
    """
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"{path} is no file that can be replaced; choose another name.")
    if force or path.stat().st_size == 0 or is_own(path):
        return
    raise InputError(
        f"{path} is there already, and was not written by this command; choose another name, or "
        "replace it with --force."
    )


def begins(path: Path, most: int = 1 << 16) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(most)


@contextmanager
def unfinished(path: Path, folder: bool = False) -> Iterator[Path]:
    """A new hidden file beside `path`, or a folder, to be filled and moved to its place within.

    All that Bagwise writes is written this way. What is still there in the end is removed. Whoever
    fills it has locked it; what nobody has locked was left by a process that was killed, and is
    removed by the next one that writes anything in the same folder.
    """
    remove_leftovers(path.parent)
    temporary, handle = new_beside(path, folder)
    try:
        yield temporary
    finally:
        remove(temporary)
        if handle is not None:
            os.close(handle)


def new_beside(path: Path, folder: bool = False) -> tuple[Path, int | None]:
    """A new, empty, hidden file or folder beside `path`, and the handle that locks it.

    The system gives it the permissions of any new file: asking for the umask would mean to change
    it for a moment, for all threads.
    """
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_UNFINISHED}")
        if folder:
            temporary.mkdir()
        else:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        with suppress(TakenError, FileNotFoundError):  # it was taken for a leftover just now
            return temporary, hold(temporary)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes have left unfinished in a folder."""
    if not folder.is_dir():
        return
    for left in folder.glob(f".*.{'[0-9a-f]' * 8}{_UNFINISHED}"):
        with suppress(TakenError, OSError):  # somebody is filling it, or it is gone
            handle = hold(left)
            if handle is not None:
                try:
                    remove(left)
                finally:
                    os.close(handle)


def remove(path: Path) -> None:
    """A file, or a folder with all it holds; nothing if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def save_tensors(
    path: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any], large: int = LARGE
) -> None:
    """Write tensors, and facts that JSON can hold, to one file; more than `large` bytes in pieces.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_tensors(Path(folder) / "x.safetensors", {"x": torch.ones(2)}, {"epoch": 3})
    ...     load_tensors(Path(folder) / "x.safetensors")
    ({'x': tensor([1., 1.])}, {'epoch': 3})
    """
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in any order, and equal files would differ.
    content = facts | {_DIGESTS: _digests(own, facts)}
    metadata = {_FACTS: json.dumps(content)}
    known = all(tensor.dtype in _KINDS for tensor in own.values())
    if known and sum(tensor.nbytes for tensor in own.values()) > large:
        write_pieces(path, _in_pieces(own, metadata, large))
        return
    write_atomically(
        path, save({name: tensor.clone() for name, tensor in own.items()}, metadata=metadata)
    )


def _in_pieces(
    tensors: dict[str, torch.Tensor], metadata: dict[str, str], size: int
) -> Iterator[bytes | memoryview]:
    """The same bytes as those of `safetensors.torch.save`, which would copy all tensors twice:
    some of them may lie in files because memory has no room for them.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    order = list(_KINDS)
    names = sorted(tensors, key=lambda name: (order.index(tensors[name].dtype), name))
    place = 0
    for name in names:
        tensor, end = tensors[name], place + tensors[name].nbytes
        shape, place_ = list(tensor.shape), [place, end]
        header[name] = {"dtype": _KINDS[tensor.dtype], "shape": shape, "data_offsets": place_}
        place = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        flat = tensors[name].reshape(-1).view(torch.uint8)
        yield from (piece.numpy().data for piece in torch.split(flat, size))


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What `save_tensors` wrote. A file that is something else is a ValueError that names it."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})[_FACTS])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, LookupError, AttributeError, ValueError, RecursionError) as error:
        raise DamagedError(
            f"{path} is damaged or was not written by Bagwise ({error}); "
            "restore it from a copy, or delete it and start again."
        ) from error
    if not isinstance(facts, dict):
        raise DamagedError(f"{path} was not written by Bagwise; delete it and start again.")
    facts.pop(_DIGESTS, None)
    return tensors, facts


def verify(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Compare what `load_tensors` read with the digests it was written with.

    To be called when names and shapes are known to fit, which says more about what is wrong. Files
    of earlier versions have no digests.
    """
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()[_FACTS])
    wanted = facts.pop(_DIGESTS, None)
    if wanted is None:
        return
    if not isinstance(wanted, dict):
        raise DamagedError(f"{_DIGESTS} is {shown(wanted)}; a table of names is expected.")
    found = _digests(tensors, facts)
    for name in sorted({*found, *wanted}):
        if found.get(name) != wanted.get(name):
            what = "is missing" if name not in found else "is not as it was written"
            raise DamagedError(f"{name!r} {what}")


def _digests(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> dict[str, str]:
    """A short digest of each tensor's type, shape and content, and of the facts: safetensors has
    none, and a flipped bit would be trained on.
    """
    found = {_FACTS: hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()}
    for name, tensor in tensors.items():
        digest = hashlib.blake2b(_described(tensor).encode(), digest_size=8)
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        found[name] = digest.hexdigest()
    return found


def compare(tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Names, types and shapes must be the same; the first difference is a ValueError.

    >>> compare({"weight": torch.ones(2)}, {"weight": torch.ones(3)})
    Traceback (most recent call last):
    bagwise.errors.InputError: 'weight' is float32 (2,); float32 (3,) is expected
    """
    for name in expected:
        if name not in tensors:
            raise InputError(f"{name!r} is missing")
    for name, tensor in tensors.items():
        if name not in expected:
            raise InputError(f"{name!r} is unknown")
        if _described(tensor) != (wanted := _described(expected[name])):
            raise InputError(f"{name!r} is {_described(tensor)}; {wanted} is expected")


def require_finite(tensors: dict[str, torch.Tensor]) -> None:
    """Weights with NaN or infinity are a ValueError: training never keeps such."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{name!r} has NaN or infinite values, which training never keeps")


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def prefixed(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors with `prefix.` before each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those tensors whose name begins with `prefix.`, without it."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)
    }
