"""The exact engine in PyTorch's own operations, for accelerators: shift and add over the lattice.

A state of the lattice says how many of the rows so far are of each class but the most frequent,
whose number follows. All bags take their steps together, row after row, in lattices padded to the
largest; one state more, at the end, is never reached and has probability 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from bagwise.autograd.device_bethe import odds, tilted

_TILT_ROUNDS = 8
_TILT_STEPS = 4


class Lattices(NamedTuple):
    """Lattices of G bags, padded: S states, K steps, A classes, of which the last is left out.

    Attributes:
        states: (S + 1,) 0, 1, ... and the state that is never reached.
        strides: (G, A - 1) by how much a state's number grows with a class's.
    """

    states: torch.Tensor
    strides: torch.Tensor


def exact_of_padded(
    log_p: torch.Tensor, copies: torch.Tensor, counts: torch.Tensor, lattices: Lattices
) -> tuple[torch.Tensor, torch.Tensor]:
    """log P(S|X) (G,) and the weights (G, K, A); see `PaddedBags` for what is given.

    Rows are counted once: `copies` are 1, and 0 for padding.
    """
    p, scale = _tilted(log_p, copies, counts)
    before, after, end = _neighbors(counts, lattices)
    G, K, A = p.shape
    S = lattices.states.shape[0]
    padding = torch.zeros_like(counts)
    padding[:, -1] = 1  # a padded row is of the class left out: the state stays
    p = torch.where(copies > 0, p, padding[:, None])
    here = torch.where(lattices.states == 0, 1, 0).to(p.dtype).expand(G, S)
    forward = []
    for k in range(K):
        forward.append(here)
        come = here.gather(1, before).view(G, A, S)
        here = (p[:, k, :, None] * come).sum(1)
    probability = here.gather(1, end)
    least = torch.finfo(p.dtype).tiny
    there = (lattices.states == end).to(p.dtype)
    weights = []
    for k in reversed(range(K)):
        go = there.gather(1, after).view(G, A, S)
        weights.append(p[:, k] * (forward[k][:, None] * go).sum(-1))
        there = (p[:, k, :, None] * go).sum(1)
    w = torch.stack(weights[::-1], 1)
    reached = w.sum(-1, keepdim=True)
    # Where the tilt has failed and the counts are out of single precision's reach, the tilted
    # probabilities are the better answer.
    w = torch.where(reached > least, w / reached.clamp(min=least), p)
    log_likelihood = probability[:, 0].clamp(min=least).log() + scale
    return log_likelihood, w


def _tilted(
    log_p: torch.Tensor, copies: torch.Tensor, counts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (G, K, A) whose columns sum to the counts, nearly, and by how much (G,) that
    changes log P(S|X).
    """
    log_x = torch.zeros_like(counts)
    occurs = counts > 0
    for _ in range(_TILT_ROUNDS):
        logits = odds(log_p, log_x[:, None].expand_as(log_p)).logits
        solved = tilted(logits, copies, counts, log_x, _TILT_STEPS)
        log_x = torch.where(occurs, (log_x + solved) / 2, 0)
    z = log_p + log_x[:, None]
    total = z.logsumexp(-1, keepdim=True)
    scale = (copies * total)[..., 0].sum(1) - (counts * log_x).sum(-1)
    return (z - total).exp(), scale


def _neighbors(
    counts: torch.Tensor, lattices: Lattices
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each state (G, A S) from which it is reached by a row of a class, and which is reached
    from it; and (G, 1) the state of the counts.
    """
    states, strides = lattices
    S = states.shape[0]
    sides = counts[:, :-1].long() + 1
    end = (strides * (sides - 1)).sum(-1, keepdim=True)
    number = states // strides[..., None] % sides[..., None]  # (G, A - 1, S)
    inside = (states <= end)[:, None]
    never = S - 1
    before = torch.where(inside & (number > 0), states - strides[..., None], never)
    after = torch.where(inside & (number < sides[..., None] - 1), states + strides[..., None], never)
    stay = torch.where(inside, states, never)
    found = [torch.cat([moved, stay], 1).flatten(1) for moved in (before, after)]
    return found[0], found[1], end
