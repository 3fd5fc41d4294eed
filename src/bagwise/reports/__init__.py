"""HTML pages about models and about sweeps, each one file without outside requests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise.extras import require

require("matplotlib", "plots")
require("jinja2", "plots")

if TYPE_CHECKING:
    from bagwise.reports.model_page import Answers, model_report
    from bagwise.reports.sweep_page import sweep_report

__all__ = ["Answers", "model_report", "sweep_report"]


def __getattr__(name: str) -> Any:
    """A page, imported when it is used: that of a sweep needs PyTorch, that of a model does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = "sweep_page" if name == "sweep_report" else "model_page"
    return getattr(import_module(f"{__name__}.{file}"), name)
