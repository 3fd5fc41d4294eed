"""From tables in files to bags, and from models to predictions."""

from bagwise.extras import require

require("pyarrow", "tables")

from bagwise.tables.match.bag_table import BagTable, read_bags  # noqa: E402
from bagwise.tables.model.table_model import TableModel  # noqa: E402
from bagwise.tables.sort.table_rows import StoredBags, stored_bags  # noqa: E402
from bagwise.tables.use.predict import predict_table  # noqa: E402

__all__ = ["BagTable", "StoredBags", "TableModel", "predict_table", "read_bags", "stored_bags"]
