"""The command line: bagwise ..."""

from bagwise.cli import experiments, explaining, reports, tables
from bagwise.cli.app import app

__all__ = ["app", "experiments", "explaining", "reports", "tables"]
