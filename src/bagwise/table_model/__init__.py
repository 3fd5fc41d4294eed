"""One model of a table: fit it to frames or files, look at it, use it, save it."""

from bagwise.extras import require

require("pyarrow", "tables")

from bagwise.table_model.model import TableModel  # noqa: E402
from bagwise.table_model.opening import fit, load  # noqa: E402

__all__ = ["TableModel", "fit", "load"]
