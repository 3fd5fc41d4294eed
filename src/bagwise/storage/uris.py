"""URIs among paths, and the credentials in them, which nothing may show."""

from __future__ import annotations

import re
from pathlib import Path

from bagwise.errors import InputError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^\s'\"]+")
_SECRET = re.compile(
    r"([?&;][^=&;#]*(?:pass|secret|token|key|credential|sig)[^=&;#]*=)[^&;#]*", re.IGNORECASE
)
_HIDDEN = "***"


def scheme_of(place: object) -> str:
    """How a URI begins, in small letters; empty for a path.

    >>> scheme_of("s3://bucket/rows"), scheme_of(Path("s3://bucket/rows")), scheme_of("C:/rows")
    ('s3', 's3', '')
    """
    found = _SCHEME.match(str(place))
    return found[1].lower() if found else ""


def refuse_uri(path: Path) -> None:
    """Raise an InputError where an output should go elsewhere than to this machine."""
    if scheme := scheme_of(path):
        raise InputError(
            f"the output begins with {scheme}:, as a URI does; Bagwise writes to files and folders "
            "of this machine. Give a path, and copy the result."
        )


def masked(text: str) -> str:
    """The same text without passwords and keys in its URIs.

    A user's name stays, unless it is a key of an object store.

    >>> masked("postgresql://ann:pa/ss@db/polls::voters")
    'postgresql://ann:***@db/polls::voters'
    >>> masked("give s3://AKIA:secret@bucket/rows?secret_key=x&region=eu")
    'give s3://***@bucket/rows?secret_key=***&region=eu'
    """
    return _URI.sub(lambda found: _masked(found[0]), text)


def _masked(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    user, at, place = rest.rpartition("@")
    if at:
        name, colon, _ = user.partition(":")
        shown = _HIDDEN if not scheme.lower().startswith("postgres") else name
        if colon and shown != _HIDDEN:
            shown += f":{_HIDDEN}"
        rest = f"{shown}@{place}"
    return _SECRET.sub(rf"\1{_HIDDEN}", f"{scheme}://{rest}")
