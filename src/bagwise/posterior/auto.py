"""The auto engine: exact where few states of the lattice matter, bethe elsewhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray
from bagwise.posterior._costs import PRUNED_STATE, Costs, costs
from bagwise.posterior._engine import KERNELS, Engine, posterior
from bagwise.posterior._result import Posterior, Values
from bagwise.posterior.bethe import fill_bethe
from bagwise.posterior.exact import MAX_STATES, STATES, curve_exact, fill_exact, lattice_states
from bagwise.posterior.exact_potentials import fill_exact_potentials
from bagwise.posterior.pairs import is_pair
from bagwise.posterior.pruned import HOPE, fill_pruned

AUTO_STATES = 2**16
"""`max_states` where a result is published: `exact` then takes up to a millisecond a bag or two."""

BY_TIME = -1.0  # in place of `max_states`
_LONGER = 3.0  # times as long as `bethe`: what `exact` may take
_PRUNED_LONGER = 1.5  # and the pruned lattice, which may be computed in vain
_NO_HOPE = 0.8  # `pruned.HOPE` where a trial in vain costs more than what is gained
_PRUNED = 8  # a state of the pruned lattice takes some ten times as long as one of the whole


def auto_posterior(
    log_probs: Values, bags: Bags, max_states: int | None = None
) -> Posterior[Values]:
    """`exact` for bags where that takes little longer than `bethe`; else `bethe`.

    How long both take is told from a bag's counts (`benchmarks/costs.py` measures it): `exact` is
    chosen where it takes at most three times as long. With ten classes that is so for bags of up to
    16 instances and few of 20, with thirty up to 12, with three up to 80. A bag in which only two
    classes occur is always computed exactly: that takes time in proportion to its size. (If its
    counts are not exact, up to 2^24 states, about 8000 instances.)

    Other bags are looked at more closely: where a classifier is confident, few states of a lattice
    carry any mass. If so few carry all but a share of 5e-7 of P(S|X), which is then proved bag by
    bag, that they take no longer than one and a half times `bethe`, only these are computed, and an
    instance's weights are off by at most 1e-6 in L1 distance. That is where `bethe` is at its
    weakest. `Posterior.engine` tells how each bag was computed, `Posterior.bound` what is proved.

    For tensors on an accelerator with 1000 instances or more, `device_posterior` computes all bags
    where they are, unless counts are not exact. `Posterior.engine` says "device" for bags that it
    did not compute exactly.

    With `max_states`, what counts is not time but the number of states: a bag is computed exactly
    if its lattice, prod_c (n_c + 1), has at most so many, or if an eighth as many carry all the
    mass. 2^16 is below a millisecond or two a bag; with ten classes it takes in all bags of 16
    instances and few of 32. Bags whose counts are not exact have 2^16 if it is not given.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized.
        bags: sizes and counts of the bags of these N instances.
        max_states: lattices up to which bags are computed exactly; None to choose by time.

    >>> bags = Bags([2, 90], [[1, 1, 0], [30, 30, 30]])
    >>> post = auto_posterior(np.zeros((92, 3)), bags)
    >>> post.engine
    ['exact', 'bethe']
    >>> post.weights[[0, 91]].round(4)
    array([[0.5   , 0.5   , 0.    ],
           [0.3333, 0.3333, 0.3333]])
    >>> auto_posterior(np.zeros((92, 3)), bags, max_states=2**16).engine
    ['exact', 'exact']
    """
    if max_states is None:
        return posterior("auto", log_probs, bags, (BY_TIME,))
    STATES(max_states, "max_states")
    return posterior("auto", log_probs, bags, (max_states,))


def is_small(bags: Bags, max_states: float) -> npt.NDArray[np.bool_]:
    """(B,) whether the lattice of the whole bag is computed."""
    return _is_small(bags, costs(bags), max_states)


def _is_small(bags: Bags, told: Costs, max_states: float) -> npt.NDArray[np.bool_]:
    by_time: npt.NDArray[np.bool_] = (told.exact <= _LONGER * told.bethe) | (told.classes <= 2)
    if max_states == BY_TIME and bags.potentials is None:
        return by_time
    by_states = lattice_states(bags) <= _most_states(told, max_states)
    by_states |= is_pair(bags) & bags.is_sharp
    return np.where(bags.is_sharp, by_time, by_states) if max_states == BY_TIME else by_states


def _most_states(told: Costs, max_states: float) -> FloatArray:
    most = AUTO_STATES if max_states == BY_TIME else max_states
    return np.where(told.classes <= 2, max(most, MAX_STATES), most)


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
    told = costs(bags)
    small, sharp = _is_small(bags, told, max_states), bags.is_sharp
    exact = np.flatnonzero(small & sharp)
    fill_exact(exact, lattice_states(bags), log_p, bags, log_likelihood, weights)
    large = np.flatnonzero(~small & sharp)
    if len(large):
        most, hope = np.full(len(bags), max_states / _PRUNED), HOPE
        if max_states == BY_TIME:
            time = _PRUNED_LONGER * told.bethe
            most, hope = time / (PRUNED_STATE * told.classes), _NO_HOPE
        large = fill_pruned(large, log_p, bags, log_likelihood, weights, bound, most, hope)
    if bags.potentials is not None:
        limits = _most_states(told, max_states)
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
