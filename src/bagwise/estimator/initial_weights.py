"""Which initial weights go to which column and class: by what these hold, not by their names."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def placed_by_content(body: nn.Module, columns: torch.Tensor, totals: Iterable[float]) -> None:
    """Deal out the initial weights of a network for a table anew.

    The generator draws them column by column and class by class. Dealt out in the order of the
    columns' moments and of the classes' totals, each column and class has the same ones wherever it
    stands and whatever it is called. Those that are alike in this keep their places.

    Args:
        body: its first and last linear layers are changed in place.
        columns: (N, d) inputs.
        totals: (C,) how often each class occurs.

    >>> body = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 2))
    >>> body[0].weight.data = torch.tensor([[1., 2.]])
    >>> body[1].weight.data = torch.tensor([[3.], [4.]])
    >>> placed_by_content(body, torch.tensor([[5., 0.], [7., 1.]]), [9, 8])
    >>> body[0].weight.tolist(), body[1].weight.tolist()
    ([[2.0, 1.0]], [[4.0], [3.0]])
    """
    layers = [module for module in body.modules() if isinstance(module, nn.Linear)]
    by_column = _places([_moments(column) for column in columns.T])
    by_class = _places([[float(total)] for total in totals])
    with torch.no_grad():
        layers[0].weight[:] = layers[0].weight[:, by_column].clone()
        layers[-1].weight[:] = layers[-1].weight[by_class].clone()
        layers[-1].bias[:] = layers[-1].bias[by_class].clone()


def _moments(column: torch.Tensor) -> list[float]:
    """Mean, variance and third moment."""
    values = column.double()
    centered = values - values.mean()
    return [float(x) for x in (values.mean(), centered.square().mean(), centered.pow(3).mean())]


def _places(keys: Iterable[list[float]]) -> list[int]:
    """Where each thing stands when they are sorted by their keys; numbers that differ by rounding
    alone are equal, and things with equal keys keep their order.
    """
    rounded = [[float(f"{number:.9g}") for number in key] for key in keys]
    places = [0] * len(rounded)
    for place, thing in enumerate(sorted(range(len(rounded)), key=rounded.__getitem__)):
        places[thing] = place
    return places
