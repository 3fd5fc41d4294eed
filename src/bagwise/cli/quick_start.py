"""What commands do without, to start quickly."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


def without_pandas() -> None:
    """Keep pyarrow from importing pandas for its first array, which takes a third of a second.

    Commands read and write files. Who needs pandas after all, imports it as ever.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, finder := _NoPandas())
    try:
        pa.array([0])  # where it is not found now, pyarrow looks for it again if it has to
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Say that there is no pandas, and nothing about others."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)
