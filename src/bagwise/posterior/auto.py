"""The auto engine: exact where few states of the lattice matter, bethe elsewhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray
from bagwise.posterior._engine import KERNELS, Engine, posterior
from bagwise.posterior._result import Posterior, Values
from bagwise.posterior.bethe import fill_bethe
from bagwise.posterior.exact import MAX_STATES, STATES, curve_exact, fill_exact, lattice_states
from bagwise.posterior.exact_potentials import fill_exact_potentials
from bagwise.posterior.pairs import is_pair
from bagwise.posterior.pruned import fill_pruned

AUTO_STATES = 2**16
_PRUNED = 8  # a state of the pruned lattice takes some ten times as long as one of the whole


def auto_posterior(
    log_probs: Values, bags: Bags, max_states: int = AUTO_STATES
) -> Posterior[Values]:
    """`exact` for bags whose lattice, prod_c (n_c + 1), has at most `max_states`; else `bethe`.

    A bag with a larger lattice is first looked at more closely: where a classifier is confident,
    few states of its lattice carry any mass. If an eighth of `max_states` carry all but a share of
    5e-7 of P(S|X), which is then proved bag by bag, only these are computed, and an instance's
    weights are off by at most 1e-6 in L1 distance. That is where `bethe` is at its weakest.
    `Posterior.engine` says which bags were computed how, `Posterior.bound` what was proved.

    A bag in which only two classes occur is always computed exactly: that takes time in proportion
    to its size. (If its counts are not exact, up to 2^24 states, about 8000 instances.)

    For tensors on an accelerator with 1000 instances or more, `device_posterior` computes all bags
    where they are, unless counts are not exact. `Posterior.engine` says "device" for bags that it
    did not compute exactly.

    The default of 2^16 states keeps the exact part below a millisecond a bag. With ten classes it
    takes in all bags of 16 and few of 32.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized.
        bags: sizes and counts of the bags of these N instances.
        max_states: bags with a larger lattice are computed as said above, or by `bethe`.

    >>> bags = Bags([2, 90], [[1, 1, 0], [30, 30, 30]])
    >>> post = auto_posterior(np.zeros((92, 3)), bags, max_states=1000)
    >>> post.weights[[0, 91]].round(4)
    array([[0.5   , 0.5   , 0.    ],
           [0.3333, 0.3333, 0.3333]])
    """
    STATES(max_states, "max_states")
    return posterior("auto", log_probs, bags, (max_states,))


def is_small(bags: Bags, max_states: float) -> npt.NDArray[np.bool_]:
    """(B,) whether the lattice of the whole bag is computed."""
    small: npt.NDArray[np.bool_] = lattice_states(bags) <= _most_states(bags, max_states)
    return small


def _most_states(bags: Bags, max_states: float) -> FloatArray:
    two_classes = (bags.max_counts > 0).sum(axis=1) <= 2
    return np.where(two_classes, max(max_states, MAX_STATES), max_states)


def fill_auto(
    log_p: FloatArray,
    bags: Bags,
    log_likelihood: FloatArray,
    weights: FloatArray,
    max_states: float,
    bound: FloatArray | None = None,
) -> None:
    """What `Engine.fill` of the engine does; fills `bound` (B,) too, where it is wanted."""
    bound = np.empty(len(bags)) if bound is None else bound
    bound[:] = 0.0
    states = lattice_states(bags)
    if bags.potentials is None and states.max() <= max_states:
        fill_exact(np.arange(len(bags)), states, log_p, bags, log_likelihood, weights)
        return
    sharp = bags.is_sharp
    small = (states <= _most_states(bags, max_states)) | (is_pair(bags) & sharp)
    fill_exact(np.flatnonzero(small & sharp), states, log_p, bags, log_likelihood, weights)
    large = np.flatnonzero(~small & sharp)
    if len(large):
        most = max(int(max_states / _PRUNED), 1)
        large = fill_pruned(large, log_p, bags, log_likelihood, weights, bound, most)
    if bags.potentials is not None:
        limits = _most_states(bags, max_states)
        for limit in np.unique(limits[~sharp]):
            soft = np.flatnonzero(~sharp & (limits == limit))
            states = fill_exact_potentials(soft, log_p, bags, log_likelihood, weights, limit)
            large = np.append(large, soft[states[soft] > 0])
    if len(large):
        bound[large] = np.inf
        fill_bethe(large, log_p, bags, log_likelihood, weights)


def _curve(log_p: FloatArray, bags: Bags, direction: FloatArray, max_states: float) -> FloatArray:
    small = is_small(bags, max_states)
    if not small.all():
        bad = int(np.argmin(small))
        raise RuntimeError(
            f"the lattice of bag {bad} (size {bags.totals[bad]}) is too large for auto, and second "
            'derivatives are those of the lattice; use engine="exact", or raise max_states.'
        )
    return curve_exact(log_p, bags, direction)


KERNELS["auto"] = Engine(fill_auto, curve=_curve, bound=None)
