"""The exact engine in PyTorch's own operations, for accelerators: shift and add over the lattice.

A state of the lattice says how many of the rows so far are of each class but the most frequent,
whose number follows. All bags take their steps together, row after row, in lattices padded to the
largest; one state more, at the end, is never reached and has probability 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from bagwise.autograd.device_bethe import PaddedBags, tilt_round

STEPS = 8  # rows that are computed at a time: one program serves all numbers of rows
_TILT_ROUNDS = 8


class Lattices(NamedTuple):
    """Lattices of G bags, padded: S states, and A classes, of which the last is left out.

    Attributes:
        states: (S + 1,) 0, 1, ... and the state that is never reached.
        strides: (G, A - 1) by how much a state's number grows with a class's.
    """

    states: torch.Tensor
    strides: torch.Tensor


def exact_of_padded(
    bags: PaddedBags,
    lattices: Lattices,
    call: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """log P(S|X) (G,), and logarithms (G, K, A) of the weights; of rows that count once.

    `call` gives the function that is called for one of these.
    """
    log_p, copies, counts = bags[:3]
    log_x = torch.zeros_like(counts)
    for _ in range(_TILT_ROUNDS):
        log_x = call(tilt_round)(log_p, copies, counts, log_x)
    p, scale = call(_tilted)(log_p, copies, counts, log_x)
    here, there, before, after, end = call(_neighbors)(counts, *lattices)
    runs = p.split(STEPS, 1)
    forward = list[torch.Tensor]()
    for rows in runs:
        here, passed = call(_steps)(here, before, rows)
        forward.append(passed)
    weights = list[torch.Tensor]()
    for rows, passed in zip(reversed(runs), reversed(forward), strict=True):
        there, of_rows = call(_steps_back)(there, after, rows, passed)
        weights.append(of_rows)
    log_likelihood, log_w = call(_result)(p, here, end, scale, torch.cat(weights[::-1], 1))
    return log_likelihood, log_w


def _tilted(
    log_p: torch.Tensor, copies: torch.Tensor, counts: torch.Tensor, log_x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (G, K, A) whose columns sum to the counts, nearly, and by how much (G,) that
    changes log P(S|X). A padded row is of the class left out: it stays where it is.
    """
    z = log_p + log_x[:, None]
    total = z.logsumexp(-1, keepdim=True)
    scale = (copies * total)[..., 0].sum(1) - (counts * log_x).sum(-1)
    left_out = torch.arange(counts.shape[-1], device=counts.device) == counts.shape[-1] - 1
    return torch.where(copies > 0, (z - total).exp(), left_out.to(z.dtype)), scale


def _steps(
    here: torch.Tensor, before: torch.Tensor, p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (G, S) of the states after some rows (G, k, A), and (k, G, S) before each."""
    passed = []
    for of_row in p.unbind(1):
        passed.append(here)
        come = here.gather(1, before).view(*of_row.shape, -1)
        here = (of_row[..., None] * come).sum(1)
    return here, torch.stack(passed)


def _steps_back(
    there: torch.Tensor, after: torch.Tensor, p: torch.Tensor, passed: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (G, S) of the counts from the states before some rows, given those after them;
    and (G, k, A) of these rows' labels, together with the counts.
    """
    weights = []
    for k in reversed(range(p.shape[1])):
        go = there.gather(1, after).view(*p[:, k].shape, -1)
        weights.append(p[:, k] * (passed[k][:, None] * go).sum(-1))
        there = (p[:, k, :, None] * go).sum(1)
    return there, torch.stack(weights[::-1], 1)


def _result(
    p: torch.Tensor, here: torch.Tensor, end: torch.Tensor, scale: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `exact_of_padded` returns.

    Where the tilt has failed and the counts are out of the numbers' reach, the tilted probabilities
    are the better answer.
    """
    least = torch.finfo(p.dtype).tiny
    reached = w.sum(-1, keepdim=True)
    log_likelihood = here.gather(1, end)[:, 0].clamp(min=least).log() + scale
    return log_likelihood, torch.where(reached > least, w, p).log()


def _neighbors(
    counts: torch.Tensor, states: torch.Tensor, strides: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Probabilities (G, S) of the states before all rows and after them; (G, A S) for each class,
    from which state one is reached by a row of that class, and which is reached from it; and (G, 1)
    the state of the counts.
    """
    sides = counts[:, :-1].long() + 1
    end = (strides * (sides - 1)).sum(-1, keepdim=True)
    number = states // strides[..., None] % sides[..., None]  # (G, A - 1, S)
    inside = (states <= end)[:, None]
    never = states.shape[0] - 1
    before = torch.where(inside & (number > 0), states - strides[..., None], never)
    after = torch.where(
        inside & (number < sides[..., None] - 1), states + strides[..., None], never
    )
    stay = torch.where(inside, states, never)
    first = (states == 0).to(counts.dtype).expand(len(counts), -1).contiguous()
    last = (states == end).to(counts.dtype)
    return (
        first,
        last,
        torch.cat([before, stay], 1).flatten(1),
        torch.cat([after, stay], 1).flatten(1),
        end,
    )
