"""The command line: bagwise ..."""

# Help lists the commands in this order: those for tables first.
from bagwise.cli import tables, predicting, explaining, reports, experiments  # isort: skip
from bagwise.cli.app import app

__all__ = ["app", "experiments", "explaining", "predicting", "reports", "tables"]
