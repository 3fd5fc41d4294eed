"""What a bag's label counts say about its instances.

`bag_posterior` returns, for each bag, the probability of its counts and, for each instance, the
probability of each label given those counts. How that is computed is the choice of an engine.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax

from bagwise.bags import Bags, FloatArray
from bagwise.errors import InputError, InputTypeError
from bagwise.posterior._result import Posterior
from bagwise.posterior.auto import auto_posterior
from bagwise.posterior.bethe import bethe_posterior
from bagwise.posterior.exact import exact_posterior, lattice_states
from bagwise.posterior.labeling import most_probable_labeling
from bagwise.posterior.multinomial import multinomial_posterior
from bagwise.posterior.transport import transport_posterior
from bagwise.registry import Registry

__all__ = [
    "ENGINES",
    "Posterior",
    "auto_posterior",
    "bag_posterior",
    "bethe_posterior",
    "check_engine",
    "exact_posterior",
    "lattice_states",
    "log_likelihoods",
    "most_probable_labeling",
    "multinomial_posterior",
    "transport_posterior",
]

ENGINES = Registry[Callable[..., Posterior]]("engine", "bagwise.engines")
"""Functions (log_probs (N, C), bags, options by name) -> Posterior. `ENGINES.register("name")` adds
one; see docs/architecture.md."""

ENGINES["auto"] = auto_posterior
ENGINES["exact"] = exact_posterior
ENGINES["bethe"] = bethe_posterior
ENGINES["multinomial"] = multinomial_posterior
ENGINES["transport"] = transport_posterior
_CHUNK = 500_000  # instances of bags whose likelihood is computed at a time
_OWN = (
    auto_posterior,
    exact_posterior,
    bethe_posterior,
    multinomial_posterior,
    transport_posterior,
)


def bag_posterior(log_probs: Any, bags: Bags, engine: str = "auto", **options: Any) -> Posterior:
    """The probability of each bag's label counts, and each instance's labels given them.

        P(S|X)  = sum over labelings Y of the bag with counts n of prod_k p[k, Y_k]
        w[k, c] = P(Y_k = c | S, X) = d log P(S|X) / d log p[k, c]

    | engine        | computes                               | cost of a bag      | choose it for |
    |---------------|----------------------------------------|--------------------|---------------|
    | `auto`        | `exact` where it can be, else `bethe`  | theirs             | everything    |
    | `exact`       | the sums above                         | C prod_c (n_c + 1) | small bags    |
    | `bethe`       | belief propagation, with a correction  | 10 K^2             | large bags    |
    | `multinomial` | the paper's approximation              | K C                | RC_Approx ... |
    | `transport`   | entropic optimal transport             | 75 K C             | OT            |

    Each engine is also a function of its own (`exact_posterior`, ...), whose docstring tells more.

    Args:
        log_probs: (N, C) logarithms of class probabilities, a tensor of any floating type on any
            device; rows need not be normalised, so logits do as well.
        bags: sizes and counts of the bags of these N instances, which are sorted by bag.
        engine: a name from the table.
        **options: the engine's own: `max_states` (auto, exact), `correction`, `tolerance`,
            `max_iterations` (bethe), `epsilon`, `iterations` (transport).

    Returns:
        Posterior(log_likelihood (B,), weights (N, C), bound (B,)), on the device of `log_probs`;
        its `engine` names the one that computed each bag, and `bound` is what is proved of the
        answer: see `Posterior`. The log-likelihood is differentiable. Its gradient is the weights
        (`multinomial` excepted; see `bethe_posterior` for its own), and with `exact` it can be
        differentiated twice.

    >>> bags = Bags(sizes=[2, 1], counts=[[1, 1], [0, 1]])
    >>> log_probs = torch.tensor([[.8, .2], [.4, .6], [.3, .7]]).log().requires_grad_()
    >>> post = bag_posterior(log_probs, bags)
    >>> post.weights
    tensor([[0.8571, 0.1429],
            [0.1429, 0.8571],
            [0.0000, 1.0000]])
    >>> post.log_likelihood.sum().backward()
    >>> torch.equal(log_probs.grad, post.weights)
    True
    """
    if isinstance(log_probs, np.ndarray):
        tensor = torch.from_numpy(np.require(log_probs, np.float64, ["C", "W"]))
        of_tensor = bag_posterior(tensor, bags, engine, **options)
        bound = None if of_tensor.bound is None else of_tensor.bound.numpy()
        found = of_tensor.log_likelihood.numpy(), of_tensor.weights.numpy()
        return Posterior(*found, bound, of_tensor.asked)
    function = ENGINES[engine]
    if options:
        check_engine(engine, options)
    found = function(log_probs, bags, **options)
    if function not in _OWN:
        _check_result(found, log_probs, bags, engine)
    return found


def log_likelihoods(logits: FloatArray, bags: Bags) -> FloatArray:
    """(B,) log P(S|X) of each bag, in double precision, computed for some bags at a time.

    >>> log_likelihoods(np.zeros((3, 2)), Bags([2, 1], [[1, 1], [1, 0]])).round(4)
    array([-0.6931, -0.6931])
    """
    found = np.empty(len(bags))
    for index in bags.batches(_CHUNK):
        log_probs = log_softmax(logits[bags.rows(index)].astype(np.float64), axis=-1)
        found[index] = bag_posterior(log_probs, bags.select(index)).log_likelihood
    return found


def _check_result(found: object, log_probs: torch.Tensor, bags: Bags, engine: str) -> None:
    """Refuse what an engine of the user's returns, if it is not a posterior of these bags."""
    if not isinstance(found, Posterior):
        raise InputTypeError(
            f"engine {engine!r} returns a {type(found).__name__}; a Posterior is expected."
        )
    shapes = tuple(found.log_likelihood.shape), tuple(found.weights.shape)
    if shapes != ((len(bags),), tuple(log_probs.shape)):
        raise InputError(
            f"engine {engine!r} returns a log-likelihood of shape {shapes[0]} and weights of shape "
            f"{shapes[1]}; ({len(bags)},) and {tuple(log_probs.shape)} are expected, for "
            f"{len(bags)} bags."
        )


def check_engine(engine: str, options: Iterable[str] = ()) -> None:
    """Refuse an engine that there is not, and options that it does not have."""
    known = list(inspect.signature(ENGINES[engine]).parameters)[2:]
    for name in options:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no option"
            raise InputError(f"engine {engine!r} has no option {name!r}; it {takes}.")
