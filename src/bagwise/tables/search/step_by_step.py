"""What is asked of models that are trained step by step, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bagwise.tables.model.linear_model import LinearModel

if TYPE_CHECKING:
    from bagwise.estimator.table_networks import NetworkModel


@dataclass(frozen=True)
class StepByStep:
    """How models are trained.

    Attributes:
        method: its name.
        engine: how it computes posteriors.
        options: others of the method.
        lr: learning rate; None for several that are tried.
        epochs: None for a number that is chosen.
        seed: of everything random.
    """

    method: str = "cc"
    engine: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    lr: float | None = None
    epochs: int | None = None
    seed: int = 0

    @property
    def is_asked_for(self) -> bool:
        """Whether something is given that maximum likelihood has no use for."""
        given = (self.method, self.engine, dict(self.options), self.lr, self.epochs)
        return given != ("cc", "auto", {}, None, None)


@dataclass(frozen=True)
class Trained:
    """A model that was trained.

    Attributes:
        model: the model.
        epochs: after which its weights were taken.
        history: what was measured in each epoch.
    """

    model: LinearModel | NetworkModel
    epochs: int
    history: list[dict[str, float]]
