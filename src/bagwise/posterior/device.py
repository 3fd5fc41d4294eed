"""The device engine: the posterior in PyTorch's own operations, where the tensors are."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags
from bagwise.checks import flag, whole
from bagwise.errors import InputError, Place
from bagwise.posterior._engine import bridge, is_given_tensor
from bagwise.posterior._result import Posterior, Values

MAX_STATES = 2**14
LEAST_INSTANCES = 1000  # from which `auto` prefers it for tensors on an accelerator
MOST_PADDED = 2**22  # entries of the padded log-probabilities up to which it does


def device_posterior(
    log_probs: Values, bags: Bags, max_states: int = MAX_STATES, compiled: bool | None = None
) -> Posterior[Values]:
    """P(S|X) and P(Y_k = c | S, X) on the device of the tensor, which the host never waits for.

    Small lattices are computed exactly, by shifts and sums of all bags together. Other bags are
    computed by belief propagation as `bethe` has it, with all classes at once: 4 damped rounds,
    the correction, and 4 rounds. They begin with a factor for each class that makes the expected
    counts the bag's, nearly. The messages come from the counts' characteristic functions. A bag in
    which two classes occur is exact that way.

    There is no branch on a number and no shape that depends on one. What depends on sizes and
    counts is decided on the host and sent once, see `Bags.to`. `auto` takes this engine for tensors
    on an accelerator from 1000 instances on. On the CPU the other engines are much faster.

    It has been run on CPUs alone, never on an accelerator.

    It computes in single precision, and in double precision for tensors of float64. Exact weights
    are off by 1e-6 at most in single precision. Those of belief propagation have nearly the
    distance from exact ones that `bethe` has; `benchmarks/device.py` compares them. The rounds are
    fixed in number: where messages have not settled, columns sum to the counts within about .001 an
    instance, and rows always sum to 1.

    The gradient of the log-likelihood is the weights. Nothing looks at numbers on an accelerator:
    NaN gives NaN for its bag there, and a log-probability more than 10,000 below the row's largest
    counts as that much below.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized.
        bags: sizes and exact counts of the bags of these N instances. Bags are padded to the
            largest: sizes that differ much cost time and memory.
        max_states: bags with a larger lattice, prod_c (n_c + 1), are computed by belief
            propagation; so are bags of more than 32 rows, bags with weighted rows, and those whose
            tables of all bags together would have more than 2^24 entries.
        compiled: whether `torch.compile` makes kernels of the operations. If not given, it does on
            CUDA and XPU devices, where Triton is installed.

    >>> bags = Bags([2, 1], [[1, 1], [0, 1]])
    >>> log_probs = np.log([[.8, .2], [.4, .6], [.3, .7]])
    >>> device_posterior(log_probs, bags).weights.round(4)
    array([[0.8571, 0.1429],
           [0.1429, 0.8571],
           [0.    , 1.    ]])
    """
    whole(0)(max_states, "max_states")
    if compiled is not None:
        flag(compiled, "compiled")
    is_given_tensor(log_probs)
    if bags.potentials is not None:
        raise InputError(
            "the counts of ",
            Place("bag", int(np.argmin(bags.potentials.is_sharp))),
            ' are not known exactly, and engine="device" takes exact counts alone; use '
            'engine="auto".',
        )
    found: Posterior[Values] = bridge().posterior_on_device(log_probs, bags, max_states, compiled)
    return found
