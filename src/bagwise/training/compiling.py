"""A model compiled for the steps of a training."""

from __future__ import annotations

import torch
from torch import nn

from bagwise.errors import InputError, Option
from bagwise.training.precision import computing_in
from bagwise.training.randomness import seeded
from bagwise.training.requirements import dtypes_named
from bagwise.training_options import Precision


def compiled(
    model: nn.Module, inputs: torch.Tensor, precision: Precision, device: torch.device
) -> nn.Module:
    """The model compiled for batches of any size, by a look at these inputs.

    They should be the same in a run that goes on: what is compiled may depend on the first batch.
    The model, the original of what is returned, stays as it is.
    """
    from torch._dynamo.exc import TorchDynamoException  # takes a second

    made = torch.compile(model, dynamic=True)
    was_training = model.training
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.train()
    try:
        with seeded(0, device), dtypes_named(model, inputs), computing_in(precision, device):
            try:
                made(inputs)
            except TorchDynamoException as error:
                model(inputs)  # a mistake in the model itself is said in its own words
                said = [line.strip() for line in str(error).splitlines() if line.strip()]
                raise InputError(
                    f"torch.compile cannot compile the model: {' '.join(said[:2])}. Leave out ",
                    Option("compile"),
                    ", or compile parts of the model yourself.",
                ) from error
    finally:
        model.train(was_training)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
    assert isinstance(made, nn.Module)
    return made
