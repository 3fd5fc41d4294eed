"""What a bag's label counts say about its instances.

`bag_posterior` returns, for each bag, the probability of its counts and, for each instance, the
probability of each label given those counts. How that is computed is the choice of an engine.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, overload

import numpy as np

from bagwise.bags import Bags, FloatArray, Groupings
from bagwise.errors import InputError
from bagwise.posterior._engine import bridge
from bagwise.posterior._result import Posterior, Values
from bagwise.posterior.auto import AUTO_STATES, auto_posterior
from bagwise.posterior.bethe import bethe_posterior
from bagwise.posterior.device import device_posterior
from bagwise.posterior.exact import exact_posterior, lattice_states
from bagwise.posterior.joint import JointPosterior, posterior_of_groupings
from bagwise.posterior.labeling import most_probable_labeling
from bagwise.posterior.multinomial import multinomial_posterior
from bagwise.posterior.transport import transport_posterior
from bagwise.registry import Registry

__all__ = [
    "ENGINES",
    "JointPosterior",
    "Posterior",
    "auto_posterior",
    "bag_posterior",
    "bethe_posterior",
    "check_engine",
    "device_posterior",
    "exact_posterior",
    "lattice_states",
    "log_likelihoods",
    "most_probable_labeling",
    "multinomial_posterior",
    "transport_posterior",
]

ENGINES = Registry[Callable[..., Posterior[Any]]]("engine", "bagwise.engines")
"""Functions (log_probs (N, C), bags, options by name) -> Posterior. `ENGINES.register("name")` adds
one, of tensors; see docs/how_to/extend.md."""

ENGINES["auto"] = auto_posterior
ENGINES["exact"] = exact_posterior
ENGINES["bethe"] = bethe_posterior
ENGINES["multinomial"] = multinomial_posterior
ENGINES["transport"] = transport_posterior
ENGINES["device"] = device_posterior
_CHUNK = 500_000  # instances of bags whose likelihood is computed at a time
_OF_GROUPINGS = [
    name
    for name, parameter in inspect.signature(posterior_of_groupings).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
]
_OWN = (
    auto_posterior,
    exact_posterior,
    bethe_posterior,
    multinomial_posterior,
    transport_posterior,
    device_posterior,
)


@overload
def bag_posterior(
    log_probs: Values, bags: Bags, engine: str = "auto", **options: Any
) -> Posterior[Values]: ...
@overload
def bag_posterior(
    log_probs: Values, bags: Groupings, engine: str = "auto", **options: Any
) -> JointPosterior[Values]: ...


def bag_posterior(
    log_probs: Values, bags: Bags | Groupings, engine: str = "auto", **options: Any
) -> Posterior[Values] | JointPosterior[Values]:
    """The probability of each bag's label counts, and each instance's labels given them.

        P(S|X)  = sum over labelings Y of the bag with counts n of prod_k p[k, Y_k]
        w[k, c] = P(Y_k = c | S, X) = d log P(S|X) / d log p[k, c]

    | engine        | computes                               | cost of a bag      | choose it for |
    |---------------|----------------------------------------|--------------------|---------------|
    | `auto`        | `exact` where it is quick, or `bethe`  | theirs             | everything    |
    | `exact`       | the sums above                         | C prod_c (n_c + 1) | small bags    |
    | `bethe`       | belief propagation, with a correction  | 10 K^2             | large bags    |
    | `multinomial` | the paper's approximation              | K C                | RC_Approx ... |
    | `transport`   | entropic optimal transport             | 75 K C             | OT            |
    | `device`      | as `auto`, where the tensor is         | padded K C T A     | accelerators  |

    Each engine is also a function of its own (`exact_posterior`, ...), whose docstring tells more.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized, so logits
            do as well. An array, or a tensor on any device, of any floating type.
        bags: sizes and counts of the bags of these N instances, which are sorted by bag; or several
            `Groupings` of N rows, in the order of the rows.
        engine: a name from the table.
        **options: the engine's own: `max_states` (auto, exact, device), `correction`, `tolerance`,
            `max_iterations` (bethe), `epsilon`, `iterations` (transport), `compiled` (device). With
            groupings also
            `joint`, `max_rounds`, `damping`, `settled` and `messages`: see
            `posterior.joint.posterior_of_groupings`, which says what is computed.

    Returns:
        Posterior(log_likelihood (B,), weights (N, C), bound (B,)); its `engine` names the one that
        computed each bag, and `bound` is what is proved of the answer: see `Posterior`. Of an array
        these are arrays, in double precision. Of a tensor they are tensors on its device (`bound`
        on the CPU), and the log-likelihood is differentiable: its gradient is the weights
        (`multinomial` excepted; see `bethe_posterior` for its own), and with `exact` it can be
        differentiated twice. Where rows have weights, those of a row are the posterior of one of
        the instances it stands for, and the gradient is that of all of them. With groupings a
        `JointPosterior`.

    >>> bags = Bags(sizes=[2, 1], counts=[[1, 1], [0, 1]])
    >>> log_probs = np.log([[.8, .2], [.4, .6], [.3, .7]])
    >>> bag_posterior(log_probs, bags).weights.round(4)
    array([[0.8571, 0.1429],
           [0.1429, 0.8571],
           [0.    , 1.    ]])

    >>> import torch
    >>> logits = torch.from_numpy(log_probs).requires_grad_()
    >>> post = bag_posterior(logits, bags)
    >>> post.log_likelihood.sum().backward()
    >>> torch.equal(logits.grad, post.weights)
    True

    >>> ward, age = [0, 0, 1, 1], [0, 1, 0, 1]
    >>> groupings = Groupings({
    ...     "ward": (ward, Bags([2, 2], [[1, 1], [1, 1]])),
    ...     "age": (age, Bags([2, 2], [[2, 0], [0, 2]])),
    ... })
    >>> bag_posterior(np.zeros((4, 2)), groupings).weights.round(3)
    array([[1., 0.],
           [0., 1.],
           [1., 0.],
           [0., 1.]])
    """
    function = ENGINES[engine]
    if isinstance(bags, Groupings):
        how = {name: options.pop(name) for name in _OF_GROUPINGS if name in options}
        check_engine(engine, options)
        return posterior_of_groupings(
            lambda log_p, some: bag_posterior(log_p, some, engine, **options),
            log_probs,
            bags,
            **how,
        )
    if options:
        check_engine(engine, options)
    found: Posterior[Values]
    if function in _OWN:
        found = function(log_probs, bags, **options)
    else:
        found = bridge().posterior_by_users_engine(function, engine, log_probs, bags, options)
    return found


def log_likelihoods(logits: FloatArray, bags: Bags) -> FloatArray:
    """(B,) log P(S|X) of each bag, in double precision, computed for some bags at a time.

    >>> log_likelihoods(np.zeros((3, 2)), Bags([2, 1], [[1, 1], [1, 0]])).round(4)
    array([-0.6931, -0.6931])
    """
    from scipy.special import log_softmax  # takes long to import, and is seldom needed

    found = np.empty(len(bags))
    for index in bags.batches(_CHUNK):
        log_probs = log_softmax(logits[bags.rows(index)].astype(np.float64), axis=-1)
        post = bag_posterior(log_probs, bags.select(index), max_states=AUTO_STATES)
        found[index] = post.log_likelihood
    return found


def check_engine(engine: str, options: Iterable[str] = ()) -> None:
    """Refuse an engine that there is not, and options that it does not have."""
    known = list(inspect.signature(ENGINES[engine]).parameters)[2:]
    for name in options:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no option"
            raise InputError(f"engine {engine!r} has no option {name!r}; it {takes}.")
