"""From tables in files to bags, and from models to predictions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise.extras import require

require("pyarrow", "tables")

if TYPE_CHECKING:
    from bagwise.tables.match.bag_table import BagTable, read_bags
    from bagwise.tables.model.fitted_table import FittedTable

__all__ = ["BagTable", "FittedTable", "read_bags"]

# Imported when first used: to predict, nothing is needed of what reads bags and fits models.
_FILES = {
    "BagTable": "match.bag_table",
    "FittedTable": "model.fitted_table",
    "read_bags": "match.bag_table",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
