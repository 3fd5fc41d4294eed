"""Packages that only some users need, and what to say where one is missing."""

from __future__ import annotations

from importlib import import_module

from bagwise.errors import BagwiseError


class MissingExtraError(BagwiseError, ImportError):
    """A package of one of Bagwise's extras is not installed."""


def require(module: str, extra: str) -> None:
    """Import a module, or say which extra brings it.

    >>> require("absent", "ray")
    Traceback (most recent call last):
    bagwise.extras.MissingExtraError: absent is not installed; pip install "bagwise[ray]" brings it.
    """
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # it is there, and lacks something itself
        raise MissingExtraError(
            f'{module} is not installed; pip install "bagwise[{extra}]" brings it.'
        ) from None
