"""From tables in files to bags, and from models to predictions."""

from bagwise.extras import require

require("pyarrow", "tables")

from bagwise.tabular.bag_table import BagTable, read_bags  # noqa: E402
from bagwise.tabular.reading import StoredBags, stored_bags  # noqa: E402

__all__ = ["BagTable", "StoredBags", "read_bags", "stored_bags"]
