"""From tables in files to bags, and from models to predictions."""

from bagwise.extras import require

require("pyarrow", "tables")

from bagwise.tabular.bag_table import BagTable, read_bags  # noqa: E402

__all__ = ["BagTable", "read_bags"]
