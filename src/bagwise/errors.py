"""Errors that a user can put right, told apart from those that only a developer can."""

from __future__ import annotations

import errno


class BagwiseError(Exception):
    """Something a user can put right; the message says what happened and what to do.

    The command line shows the message alone. Any other exception is a bug of Bagwise, or of a
    function that was passed to it, and is shown with its traceback.
    """


class InputError(BagwiseError, ValueError):
    """Something that was given cannot be used: a value, a file, a combination of options."""


class UsageError(InputError):
    """An argument or an option cannot be used, whatever the data are."""


class InputTypeError(InputError, TypeError):
    """Something that was given is of another type than is expected."""


class DamagedError(InputError):
    """A file that Bagwise wrote is not as it was written."""


def is_lack_of_memory(error: Exception) -> bool:
    """Whether an error says that memory is used up; PyTorch and the system have words of it."""
    if isinstance(error, MemoryError):  # of Python, numpy and Arrow
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = ("allocate memory", "not enough memory", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)
