"""HTML pages about models and about sweeps, each one file without outside requests."""

from bagwise.extras import require

require("matplotlib", "plots")
require("jinja2", "plots")

from bagwise.reports.model_page import Answers, model_report  # noqa: E402
from bagwise.reports.sweep_page import sweep_report  # noqa: E402

__all__ = ["Answers", "model_report", "sweep_report"]
