"""The training loop, and what it needs: options, batches that fit memory, evaluation, run state."""

from bagwise.training.callbacks import Callback, JsonLines, TensorBoard
from bagwise.training.loop import Row, TrainingResult, train
from bagwise.training.tally import DivergedError
from bagwise.training_options import TrainingOptions

__all__ = [
    "Callback",
    "DivergedError",
    "JsonLines",
    "Row",
    "TensorBoard",
    "TrainingOptions",
    "TrainingResult",
    "train",
]
