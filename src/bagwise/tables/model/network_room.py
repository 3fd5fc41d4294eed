"""The one door from tables to PyTorch, opened only for a model that needs it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bagwise.errors import InputError
from bagwise.extras import MissingExtraError, require

REMEDY = 'pip install "bagwise[torch]"'


def there_is_torch() -> bool:
    """Whether PyTorch is installed; it is not imported."""
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):  # something else is in its place
        return False


def network_room(what: str) -> Any:
    """The module that trains networks on tables and reads them from folders.

    Args:
        what: needs it, for the message where PyTorch is missing.
    """
    try:
        require("torch", "torch")
    except MissingExtraError as error:
        raise InputError(f"{what} needs PyTorch: {REMEDY}") from error
    return import_module("bagwise.estimator.table_networks")
