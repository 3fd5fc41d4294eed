"""Files by URI: s3://, gs:// and file://."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from bagwise.errors import InputError, is_lack_of_memory
from bagwise.storage.uris import masked, scheme_of
from bagwise.tables.read.table_files import RemoteFile, is_table

_STORES = ("s3", "gs")
_RETRIES = "retry_limit_seconds=30"  # instead of a quarter of an hour
_NO_BUCKET = ("NO_SUCH_BUCKET", "does not exist", "not found", "NOT_FOUND")
_NO_RIGHT = ("ACCESS_DENIED", "FORBIDDEN", "HTTP status 403", "PERMISSION_DENIED", "code 403")
_BAD_KEY = ("INVALID_ACCESS_KEY", "SIGNATURE", "UNAUTHENTICATED", "INVALID_CLIENT_TOKEN")
_NO_NETWORK = (
    *("NETWORK_CONNECTION", "Could not connect", "resolve host", "UNAVAILABLE", "timed out"),
)


def local_path(uri: str) -> str:
    """The path that a file:// URI stands for.

    >>> local_path("file:///data/my%20rows.csv")
    '/data/my rows.csv'
    """
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise InputError(
            f"{uri} names the machine {parts.netloc!r}; a file on this one is expected, which has "
            "three slashes: file:///data/rows.csv."
        )
    return unquote(parts.path)


def remote_files(uri: str) -> list[RemoteFile]:
    """The files that a URI means: one file, all below a folder, or those that fit a pattern.

    Options of the file system stand behind a question mark: `?endpoint_override=...&scheme=http`.
    Names that begin with `_` or `.` are left out, as they are in folders of this machine.
    """
    import pyarrow.fs as pafs

    filesystem, path, shown = _opened(uri)
    try:
        found = list(_listed(filesystem, path))
        bucket = path.partition("/")[0]
        if not found and filesystem.get_file_info(bucket).type == pafs.FileType.NotFound:
            raise OSError(_NO_BUCKET[0])
    except (OSError, pa.ArrowException) as error:
        raise unreadable(shown, error) from error
    scheme = f"{scheme_of(uri)}://"
    files = [
        RemoteFile(scheme + info.path, info.path, filesystem, info.size, info.mtime_ns or 0)
        for info in found
    ]
    return sorted(files, key=lambda file: PurePosixPath(file.path).parts)


def is_remote_folder(uri: str) -> bool:
    """Whether a URI means a folder."""
    import pyarrow.fs as pafs

    filesystem, path, shown = _opened(uri)
    try:
        return bool(filesystem.get_file_info(path).type == pafs.FileType.Directory)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(shown, error) from error


def _opened(uri: str) -> tuple[Any, str, str]:
    """The file system, the path or pattern in it, and the URI as it is shown."""
    import pyarrow.fs as pafs  # which takes a while, and is seldom needed

    scheme = scheme_of(uri)
    if scheme not in _STORES:
        known = "s3://, gs://, file:// and postgresql:// can be read"
        raise InputError(f"{masked(uri)} begins with {scheme}://, which is not known; {known}.")
    if not uri.lower().startswith(f"{scheme}://"):
        raise InputError(
            f"{uri} was a URI before it became a path, which has one slash; give it as text."
        )
    place, _, options = uri[len(scheme) + 3 :].partition("?")
    bucket, _, path = place.partition("/")
    name = bucket.rpartition("@")[2]
    if not name:
        raise InputError(f"{masked(uri)} names no bucket; {scheme}://BUCKET/PATH is expected.")
    shown = f"{scheme}://{name}/{path}"
    if scheme == "gs" and "retry_limit_seconds" not in options:
        options = f"{options}&{_RETRIES}".lstrip("&")
    try:
        filesystem, _ = pafs.FileSystem.from_uri(f"{scheme}://{bucket}/?{options}".rstrip("?"))
    except (OSError, pa.ArrowException) as error:
        raise unreadable(shown, error) from error
    return filesystem, f"{name}/{path}".rstrip("/"), shown


def _listed(filesystem: Any, path: str) -> Iterator[Any]:
    """What is there of a path or a pattern, tables only where a folder is meant."""
    import pyarrow.fs as pafs

    if not is_pattern(path):
        info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.File:
            yield info
            return
        if info.type != pafs.FileType.Directory:
            return
    parts = path.split("/")
    fixed = next((n for n, part in enumerate(parts) if is_pattern(part)), len(parts))
    base = "/".join(parts[:fixed])
    matches = _matcher(parts[fixed:])
    selector = pafs.FileSelector(base, allow_not_found=True, recursive=True)
    for info in filesystem.get_file_info(selector):
        below = PurePosixPath(info.path).parts[fixed:]
        hidden = any(part.startswith(("_", ".")) for part in below)
        if info.type != pafs.FileType.File or hidden or not matches(below):
            continue
        if is_table(PurePosixPath(info.path)):  # type: ignore[arg-type]  # has a name, too
            yield info


def is_pattern(text: str) -> bool:
    """Whether a path has marks that stand for other letters.

    >>> is_pattern("data/*.csv"), is_pattern("data/rows.csv")
    (True, False)
    """
    return any(mark in text for mark in "*[")


def _matcher(pattern: list[str]) -> Any:
    """Whether a path below a folder fits a pattern, or is within a folder that does."""
    text = ""
    for part in pattern:
        text += r"(?:[^/]+/)*" if part == "**" else _regex(part) + "/"
    fits = re.compile(text)
    return lambda below: fits.match("/".join(below) + "/") is not None


def _regex(part: str) -> str:
    """A part of a path with * for any letters, ? for one, and [abc] for one of these."""
    pieces = re.split(r"(\*|\?|\[[^]]+\])", part)
    kinds = {"*": "[^/]*", "?": "[^/]"}
    return "".join(
        kinds.get(piece) or (piece.replace("[!", "[^") if piece[:1] == "[" else re.escape(piece))
        for piece in pieces
    )


def unreadable(place: str, error: Exception) -> Exception:
    """What an object store's error says, in words."""
    if is_lack_of_memory(error):
        return error
    reason = str(error)
    bucket = place.partition("://")[2].partition("/")[0]
    if any(sign in reason for sign in _NO_RIGHT):
        return InputError(
            f"{place} may not be read with the credentials that were found. Check the rights of "
            "the user or role: AWS_PROFILE, AWS_ACCESS_KEY_ID or GOOGLE_APPLICATION_CREDENTIALS."
        )
    if any(sign in reason for sign in _BAD_KEY):
        return InputError(
            f"{place} cannot be read: the store does not accept the credentials. Check "
            "AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "GOOGLE_APPLICATION_CREDENTIALS."
        )
    if any(sign in reason for sign in _NO_NETWORK):
        return InputError(
            f"{place} cannot be read: the object store does not answer. Check the network, and "
            "AWS_ENDPOINT_URL if it is set."
        )
    if any(sign in reason for sign in _NO_BUCKET):
        return InputError(f"there is no bucket {bucket!r}, which {place} names.")
    line = masked(reason.strip().split("\n")[0])
    return InputError(f"{place} cannot be read: {line}")
