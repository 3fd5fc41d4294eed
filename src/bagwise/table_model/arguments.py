"""Arguments that a function passes on, checked where a user gives them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from bagwise.errors import InputTypeError

OUTPUT = ("keep", "force", "escape_formulas")  # of predictions that go to a file or a stream


def check_arguments(
    function: str, given: Iterable[str], known: Iterable[str], has_output: bool = True
) -> None:
    """Refuse arguments that a function does not have, or that are about an output it has not.

    >>> check_arguments("fit", ["epoch"], ["epochs", "lr"])
    Traceback (most recent call last):
    bagwise.errors.InputTypeError: fit has no argument 'epoch'. Did you mean epochs?
    """
    known = list(known)
    for name in given:
        if name in OUTPUT and name in known and not has_output:
            raise InputTypeError(f"{name} is about an output file; give {function} out=, too.")
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise InputTypeError(f"{function} has no argument {name!r}.{hint}")
