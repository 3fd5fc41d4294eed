"""Errors and warnings in the terms of the command line."""

from __future__ import annotations

import errno
import re
import shlex

from bagwise.errors import BagwiseError, BagwiseWarning, Option

_NAMES = {"method_options": "set", "weights": "row_counts"}  # whose keyword in Python differs

_FULL = "Make room there, or choose another place, and rerun the command."
_CLOSED = "Change what the system permits there, or choose another place, and rerun the command."
_TODO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _CLOSED,
    errno.EPERM: _CLOSED,
    errno.EROFS: _CLOSED,
    errno.EIO: "Check the disk, or choose another place, and rerun the command.",
}


def word_option(option: Option) -> str:
    """An option of a message as the command line has it.

    >>> [word_option(Option(*x)) for x in (("labels_are", "counts"), ("skip_unmatched", True))]
    ['--labels-are counts', '--skip-unmatched']
    >>> word_option(Option("ordered", {"size": ["S", "M"]}))
    "--ordered 'size=S<M'"
    """
    flag, value = "--" + _NAMES.get(option.name, option.name).replace("_", "-"), option.value
    if value is None or value is True:
        return flag
    if hasattr(value, "width"):  # noise; to import its class takes numpy
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(value).__name__).lower()
        return f"--noise {kind}:{value.width:g}{' --clipped' if value.clipped else ''}"
    if hasattr(value, "decimals"):  # the number of decimals is that of the file
        value = "rounded"
    if isinstance(value, dict):
        value = [f"{name}={'<'.join(levels)}" for name, levels in value.items()]
    return f"{flag} {shlex.quote(','.join(value) if isinstance(value, list) else str(value))}"


def worded(message: object) -> str:
    """An error or a warning in the words of the command line."""
    if isinstance(message, BagwiseError | BagwiseWarning):
        return message.worded(word_option)
    if isinstance(message, OSError) and message.filename is not None and message.errno in _TODO:
        return f"{message.filename}: {message.strerror}. {_TODO[message.errno]}"
    return str(message)
