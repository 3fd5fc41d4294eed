"""How many threads PyTorch takes for the steps of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bagwise.bags import Bags
from bagwise.training_options import TrainingOptions

SMALL = 1000  # rows of a step, below which threads are not worth waiting for each other


@contextmanager
def threads_for(options: TrainingOptions, bags: Bags) -> Iterator[None]:
    """One thread while a model is trained in small batches, otherwise as many as there were.

    A small step is over in milliseconds, and its threads wait for each other by spinning. Where
    other work runs on the machine, or where a container may use fewer cores than it sees, that
    takes ten times as long as the step itself.
    """
    before = torch.get_num_threads()
    rows = max(options.batch_instances, options.batch_bags * float(bags.sizes.mean()))
    if rows < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
