"""HTML pages about models and about sweeps, each one file without outside requests."""

from bagwise.reports.model import model_report
from bagwise.reports.sweep import sweep_report

__all__ = ["model_report", "sweep_report"]
