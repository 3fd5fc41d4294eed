"""The command line: bagwise ..."""

from bagwise.cli import experiments, reports, tables
from bagwise.cli.app import app

__all__ = ["app", "experiments", "reports", "tables"]
