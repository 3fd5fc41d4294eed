"""The bethe engine in PyTorch's own operations, all bags and classes at once, for accelerators.

A fixed number of rounds, no branch on a number and no shape that depends on one: nothing waits for
the device. Tensors are padded: G bags, K rows at most, A classes at most. A padded row counts 0
times and a padded class has count 0 and log-probabilities of -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

_ROUNDS = (4, 4)  # until the first fixed point, and from there to that of the corrected one
_DAMPING = 0.3  # share of the old message: all classes at once would overshoot
_TILT_ROUNDS = 4  # before them, of messages that are the same for all instances of a class
_TILT_STEPS = 2  # of Newton in a round, which begins where the last one ended
_FIRST_TILT_STEPS = 4
_LONGEST = 4.0  # step of Newton
_LARGEST = 60.0  # logarithm of a ratio
_BALANCE_STEPS = 4
_NOTHING = -1e30  # logarithm of the share of a class that no instance is of
_JITTER = 1e-5  # on the diagonal of covariances, which may be singular; in counts squared


class PaddedBags(NamedTuple):
    """Bags of one batch, padded.

    Attributes:
        log_p: (G, K, A) log-probabilities, each row's largest 0.
        copies: (G, K, 1) how often each row counts; 0 for padding.
        counts: (G, A) of classes by count, the most frequent last.
        is_factor: (G, A) the classes that send messages. Of two classes one is enough, and then the
            answer is exact; of one class, none.
        circle: (4, T) points t = 0 and t > 0 of the characteristic function, cos t, sin t, and the
            share of a point in P(N = n), twice that of t = 0 for t > 0.
    """

    log_p: torch.Tensor
    copies: torch.Tensor
    counts: torch.Tensor
    is_factor: torch.Tensor
    circle: torch.Tensor


def circle_of(nodes: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """`PaddedBags.circle` for nodes 0, 1, ..., T - 1."""
    M = 2 * nodes.shape[0] - 1
    t = nodes.to(kind) * (2 * math.pi / M)
    return torch.stack([t, t.cos(), t.sin(), (nodes.clamp(max=1) + 1).to(kind) / M])


def bethe_of_padded(
    bags: PaddedBags, call: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """log P(S|X) (G,), and logarithms (G, K, A) of the weights times a factor for each row, as
    `bethe_posterior` has them; `call` gives the function that is called for one of these.
    """
    log_x = torch.zeros_like(bags.counts)
    for _ in range(_TILT_ROUNDS):
        log_x = call(tilt_round)(*bags[:3], log_x)
    tilt, messages = call(_begin)(*bags, log_x)
    for _ in range(_ROUNDS[0]):
        tilt, messages = call(_round)(*bags, tilt, messages)
    value, log_p = call(_corrected)(*bags, tilt, messages)
    bags = bags._replace(log_p=log_p)
    for _ in range(_ROUNDS[1]):
        tilt, messages = call(_round)(*bags, tilt, messages)
    return value, log_p + messages


def tilt_round(
    log_p: torch.Tensor, copies: torch.Tensor, counts: torch.Tensor, log_x: torch.Tensor
) -> torch.Tensor:
    """Half the way to the factors (G, A) that each class needs while the others keep theirs."""
    logits = odds(log_p, log_x[:, None].expand_as(log_p)).logits
    x = nearer(logits, copies, counts, log_x, threshold(logits, copies, counts))
    solved = tilted(logits, copies, counts, x)
    return torch.where(counts > 0, (log_x + solved) / 2, 0)


def _begin(
    log_p: torch.Tensor,
    copies: torch.Tensor,
    counts: torch.Tensor,
    is_factor: torch.Tensor,
    circle: torch.Tensor,
    log_x: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The tilt (G, A) and the messages (G, K, A) before the first round.

    With no messages, a classifier that is sure of labels which the counts contradict would take
    many more rounds.
    """
    first = torch.where(is_factor, log_x - log_x[:, -1:], 0)
    messages = first[:, None].expand_as(log_p).contiguous()
    logits = odds(log_p, messages).logits
    x = nearer(logits, copies, counts, threshold(logits, copies, counts), first)
    return tilted(logits, copies, counts, x, _FIRST_TILT_STEPS), messages


def balanced(log_w: torch.Tensor, copies: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Weights whose columns sum to the counts, nearly, and whose rows sum to 1.

    The first step is one of logarithms: a class may have next to nothing before it.
    """
    log_w = log_w.log_softmax(-1)
    columns = (log_w + copies.log()).logsumexp(1).clamp(min=_NOTHING)
    missing = torch.where(counts > 0, counts.log() - columns, 0)
    weights = (log_w + missing[:, None]).softmax(-1)
    for _ in range(_BALANCE_STEPS - 1):
        columns = (copies * weights).sum(1).clamp(min=torch.finfo(log_w.dtype).tiny)
        factors = (counts / columns).clamp(max=torch.finfo(log_w.dtype).max)  # 0 times inf is NaN
        weights = weights * factors[:, None]
        weights = weights / weights.sum(-1, keepdim=True)
    return weights


class Odds(NamedTuple):
    """What a class hears from the instances.

    Attributes:
        logits: (G, K, A) logarithm of the odds that all other classes leave an instance.
        rest: (G, K, A) logarithm of what all other classes have together.
        total: (G, K, 1) logarithm of what all classes have together.
    """

    logits: torch.Tensor
    rest: torch.Tensor
    total: torch.Tensor


def odds(log_p: torch.Tensor, messages: torch.Tensor) -> Odds:
    """The odds under these messages, to full precision also where one class has nearly all."""
    z = log_p + messages
    total = z.logsumexp(-1, keepdim=True)
    share = (z - total).exp()
    is_most = share > 0.5  # of one class at most, whose rest is the sum of the others
    others = z.masked_fill(is_most, -math.inf).logsumexp(-1, keepdim=True)
    rest = torch.where(is_most, others, total + torch.log1p(-share.clamp(max=0.5)))
    return Odds(log_p - rest, rest, total)


def threshold(logits: torch.Tensor, copies: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The shift (G, A) of the logits that makes as many of them positive as a class has instances:
    that of `tilted` where nothing is in doubt.
    """
    falling, order = logits.masked_fill(copies == 0, -math.inf).sort(1, descending=True)
    amounts = copies.expand_as(logits).gather(1, order)
    is_in = amounts.cumsum(1) <= counts[:, None]
    above = falling.masked_fill(~is_in, math.inf).amin(1)
    below = falling.masked_fill(is_in | (amounts == 0), -math.inf).amax(1)
    above, below = torch.minimum(above, below + _LONGEST), torch.maximum(below, above - _LONGEST)
    return (-(above + below) / 2).nan_to_num(0, 0, 0)


def nearer(
    logits: torch.Tensor,
    copies: torch.Tensor,
    counts: torch.Tensor,
    one: torch.Tensor,
    other: torch.Tensor,
) -> torch.Tensor:
    """That of two shifts (G, A) under which a class's mean count is nearer to its count."""
    missing = [
        (counts - (copies * (logits + x[:, None]).sigmoid()).sum(1)).abs() for x in (one, other)
    ]
    return torch.where(missing[0] <= missing[1], one, other)


def tilted(
    logits: torch.Tensor,
    copies: torch.Tensor,
    counts: torch.Tensor,
    x: torch.Tensor,
    steps: int = _TILT_STEPS,
) -> torch.Tensor:
    """The shift x (G, A) of the logits (G, K, A) under which a class's mean count is its count.

    Newton's steps from the x given, in the middle of what is known where they would leave it.
    """
    low, high = torch.full_like(x, -math.inf), torch.full_like(x, math.inf)
    for _ in range(steps):
        shifted = logits + x[:, None]
        yes, no = shifted.sigmoid(), (-shifted).sigmoid()
        missing = counts - (copies * yes).sum(1)
        variance = (copies * yes * no).sum(1)
        low = torch.where(missing > 0, x, low)
        high = torch.where(missing > 0, high, x)
        step = (missing / variance.clamp(min=1e-6)).clamp(-_LONGEST, _LONGEST)
        new = x + step  # of two bounds, it can leave that alone which is known
        x = torch.where((new >= low) & (new <= high), new, (low + high) / 2)
    return x


def _round(
    log_p: torch.Tensor,
    copies: torch.Tensor,
    counts: torch.Tensor,
    is_factor: torch.Tensor,
    circle: torch.Tensor,
    tilt: torch.Tensor,
    messages: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The tilt (G, A) and the messages (G, K, A), as logarithms, after a round."""
    bags = PaddedBags(log_p, copies, counts, is_factor, circle)
    logits = odds(log_p, messages).logits
    tilt = tilted(logits, copies, counts, tilt, _TILT_STEPS)
    new = tilt[:, None] + _log_ratios(bags, logits + tilt[:, None])
    kept = torch.where(is_factor.sum(-1) > 1, _DAMPING, 0)[:, None, None]  # one alone is right
    new = (1 - kept) * new + kept * messages
    return tilt, torch.where(is_factor[:, None], new, 0)


class _Circle(NamedTuple):
    """Terms of P(N = n), N the number of instances of a class, at points of the unit circle.

    Attributes:
        factor: (G, K, A, T) real and imaginary part of an instance's factor no + yes e^it.
        term: (G, A, T) real and imaginary part of phi(t) e^-itn / M, twice for t > 0.
    """

    factor: tuple[torch.Tensor, torch.Tensor]
    term: tuple[torch.Tensor, torch.Tensor]


def _on_circle(bags: PaddedBags, logits: torch.Tensor) -> _Circle:
    """See `posterior.fourier`; products over instances are sums of logarithms and of angles.

    Angles are those beyond the mean's, which stay small where the terms are large.
    """
    t, cosine, sine, share = bags.circle.unbind()
    yes, no = logits.sigmoid()[..., None], (-logits).sigmoid()[..., None]
    real, imaginary = no + yes * cosine, yes * sine
    copies = bags.copies[..., None]
    lost = (2 * yes * no * (1 - cosine)).clamp(max=1 - torch.finfo(yes.dtype).eps)
    size = (copies * 0.5 * torch.log1p(-lost)).sum(1).exp()
    mean = (copies * yes).sum(1)
    angle = (copies * (torch.atan2(imaginary, real) - yes * t)).sum(1)
    angle = angle + (mean - bags.counts[..., None]) * t
    size = share * size
    return _Circle((real, imaginary), (size * angle.cos(), size * angle.sin()))


def _log_ratios(bags: PaddedBags, logits: torch.Tensor) -> torch.Tensor:
    """(G, K, A) log P(N_-k = n - 1) / P(N_-k = n), N_-k the count without instance k."""
    _, cosine, sine, _ = bags.circle.unbind()
    (a, b), (x, y) = _on_circle(bags, logits)
    x, y = x[:, None], y[:, None]
    scale = 1 / (a * a + b * b)
    least = torch.finfo(logits.dtype).tiny
    at = ((x * a + y * b) * scale).sum(-1).clamp(min=least)
    u, v = x * cosine - y * sine, x * sine + y * cosine
    below = ((u * a + v * b) * scale).sum(-1).clamp(min=least)
    return (below / at).log().clamp(-_LARGEST, _LARGEST)


def _corrected(
    log_p: torch.Tensor,
    copies: torch.Tensor,
    counts: torch.Tensor,
    is_factor: torch.Tensor,
    circle: torch.Tensor,
    tilt: torch.Tensor,
    messages: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The value (G,) and the log-probabilities (G, K, A), both corrected by the gap."""
    bags = PaddedBags(log_p, copies, counts, is_factor, circle)
    gap, step = _gap(bags, (log_p + messages).softmax(-1))
    return _bethe_value(bags, tilt, messages) + gap, log_p + step


def _bethe_value(bags: PaddedBags, tilt: torch.Tensor, messages: torch.Tensor) -> torch.Tensor:
    """(G,) log of prod_c Z_c / prod_k Z_k^(C - 1); stationary in the messages."""
    logits, rest, total = odds(bags.log_p, messages)
    tilt = tilted(logits, bags.copies, bags.counts, tilt, _TILT_STEPS)
    shifted = logits + tilt[:, None]
    probability = _on_circle(bags, shifted).term[0].sum(-1)
    least = torch.finfo(tilt.dtype).tiny
    of_factors = probability.clamp(min=least).log() - bags.counts * tilt
    # Of an instance, p e^x + rest: what the tilted probabilities were divided by. Each relative to
    # the total, lest small numbers drown in the sums of large ones.
    divided = torch.logaddexp(rest, bags.log_p + tilt[:, None]) - total
    of_rows = torch.where(bags.is_factor[:, None], divided, 0).sum(-1) + total[..., 0]
    return torch.where(bags.is_factor, of_factors, 0).sum(-1) + (bags.copies[..., 0] * of_rows).sum(
        1
    )


def _gap(bags: PaddedBags, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(G,) what the covariance of the counts adds to the value, and (G, K, A) what its derivative
    by the weights adds to the log-probabilities.

    The classes are eliminated in the order of their counts, which is nearly that of the pivots.
    """
    A = w.shape[-1]
    shares = bags.copies * w
    columns = shares.sum(1)
    # No matmul: where it runs in TF32, the difference would have three digits.
    sigma = columns.diag_embed() - (shares[..., None] * w[..., None, :]).sum(1)
    variance = sigma.diagonal(dim1=-2, dim2=-1).clamp(min=0)
    eye = torch.eye(A, dtype=w.dtype, device=w.device)
    kept = sigma + _JITTER * (1 + variance.amax(-1)[:, None, None]) * eye
    root = torch.linalg.cholesky_ex(kept[:, :-1, :-1])[0]
    diagonal = root.diagonal(dim1=-2, dim2=-1)
    inverse = torch.linalg.solve_triangular(
        root / diagonal[:, None], eye[:-1, :-1].expand_as(root), upper=False, unitriangular=True
    )
    pivots = diagonal.square()
    gap = _log_g(pivots).sum(-1) - _log_g(variance).sum(-1)
    rates = _slope(pivots)[..., None]
    by_sigma = (inverse[..., None] * (rates * inverse)[..., None, :]).sum(1)
    by_sigma = torch.nn.functional.pad(by_sigma, (0, 1, 0, 1))
    direction = by_sigma.diagonal(dim1=-2, dim2=-1)[:, None] - _slope(variance)[:, None] * (
        1 - 2 * w
    )
    direction = direction - 2 * (w[..., None] * by_sigma[:, None]).sum(-2)
    occurring = (bags.counts > 0).sum(-1)
    length = 1 - 0.7 * (-variance.sum(-1) / (1.7 * occurring)).exp()
    is_many = bags.is_factor.sum(-1) > 1
    step = torch.where(is_many[:, None, None], length[:, None, None] * direction, 0)
    return torch.where(is_many, gap, 0), step


def _log_g(v: torch.Tensor) -> torch.Tensor:
    """log(exp(-v) I_0(v))."""
    found: torch.Tensor = torch.special.i0e(v).log()
    return found


def _slope(v: torch.Tensor) -> torch.Tensor:
    """The derivative of `_log_g`."""
    found: torch.Tensor = torch.special.i1e(v) / torch.special.i0e(v) - 1
    return found
