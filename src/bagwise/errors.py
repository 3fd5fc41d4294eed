"""Errors that a user can put right, told apart from those that only a developer can."""

from __future__ import annotations


class BagwiseError(Exception):
    """Something a user can put right; the message says what happened and what to do.

    The command line shows the message alone. Any other exception is a bug of Bagwise, or of a
    function that was passed to it, and is shown with its traceback.
    """


class InputError(BagwiseError, ValueError):
    """Something that was given cannot be used: a value, a file, a combination of options."""
