"""The training loop, and what it needs: options, batches that fit memory, evaluation, run state."""

from bagwise.training.loop import DivergedError, Row, TrainingResult, train
from bagwise.training.options import TrainingOptions

__all__ = ["DivergedError", "Row", "TrainingOptions", "TrainingResult", "train"]
