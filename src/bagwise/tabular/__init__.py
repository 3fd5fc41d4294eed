"""From tables in files to bags, and from models to predictions."""

from bagwise.tabular.bag_table import BagTable, read_bags

__all__ = ["BagTable", "read_bags"]
