"""The device engine: bethe and small lattices where the tensors are."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags
from bagwise.checks import whole
from bagwise.errors import InputError, Place
from bagwise.posterior._engine import bridge, is_given_tensor
from bagwise.posterior._result import Posterior, Values

MAX_STATES = 2**14
LEAST_INSTANCES = 1000  # from which `auto` prefers it for tensors on an accelerator
MOST_PADDED = 2**22  # entries of the padded log-probabilities up to which it does


def device_posterior(
    log_probs: Values, bags: Bags, max_states: int = MAX_STATES, compiled: bool | None = None
) -> Posterior[Values]:
    """TODO"""
    whole(0)(max_states, "max_states")
    is_given_tensor(log_probs)
    if bags.potentials is not None:
        raise InputError(
            "the counts of ",
            Place("bag", int(np.argmin(bags.potentials.is_sharp))),
            ' are not known exactly, which the engine "device" does not take; use engine="auto".',
        )
    found: Posterior[Values] = bridge().posterior_on_device(log_probs, bags, max_states, compiled)
    return found
