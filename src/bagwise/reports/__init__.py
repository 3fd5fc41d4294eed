"""HTML pages about models, each one file without outside requests, and pictures for notebooks."""

from bagwise.extras import require

require("matplotlib", "plots")
require("jinja2", "plots")

from bagwise.reports.model_page import Answers, model_report  # noqa: E402

__all__ = ["Answers", "model_report"]
