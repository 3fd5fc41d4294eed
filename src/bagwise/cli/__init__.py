"""The command line: bagwise ..."""

# isort: skip_file
# Help lists the commands in this order: those for tables first.
from bagwise.cli import fit_command, predict_commands, explain_commands
from bagwise.cli import report_command, paper_commands
from bagwise.cli.app import app

__all__ = [
    "app",
    "explain_commands",
    "fit_command",
    "paper_commands",
    "predict_commands",
    "report_command",
]
