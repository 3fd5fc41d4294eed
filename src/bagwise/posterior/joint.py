"""The posterior of rows that are counted several times: messages between groupings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Generic, NamedTuple

import numpy as np

from bagwise.bags import Bags, FloatArray, Groupings, IntArray
from bagwise.bags.arrays import without_torch
from bagwise.checks import flag, number, whole
from bagwise.errors import InputError
from bagwise.posterior._engine import bridge, is_given_tensor
from bagwise.posterior._kernels import kernel
from bagwise.posterior._result import Posterior, Values, check_shapes

_LEAST = -100.0  # a message's logarithm, relative to its largest: as good as impossible

Solve = Callable[[Any, Bags], Posterior[Any]]
"""The posterior of the bags of one grouping, by some engine."""


class JointPosterior(NamedTuple, Generic[Values]):
    """What the counts of all groupings say: arrays, or tensors if a tensor was given.

    Attributes:
        log_likelihood: () log P(S_1, ..., S_G|X), or the sum of log P(S_g|X) if not joint; a tensor
            can be differentiated by the log-probabilities.
        weights: (N, C) P(Y_k = c | S_1, ..., S_G, X), or the mean of P(Y_k = c | S_g, X) over the
            groupings that row k is in if not joint; without a gradient.
        messages: (G, N, C) logarithms of what each grouping tells each row, to go on from; always
            an array. None if not joint.
        rounds: how many times each grouping was looked at.
        converged: whether no weight changed by more than `settled` in the last round.

    >>> from bagwise import Bags, Groupings, bag_posterior
    >>> rows, columns = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> by_row, by_column = Bags([2, 2], [[2, 0], [1, 1]]), Bags([2, 2], [[2, 0], [1, 1]])
    >>> both = Groupings({"row": (rows, by_row), "column": (columns, by_column)})
    >>> posterior = bag_posterior(np.log(np.full((4, 2), 0.5)), both)
    >>> posterior.weights.round(2)[:, 1], posterior.converged
    (array([0., 0., 0., 1.]), True)
    """

    log_likelihood: Values
    weights: Values
    messages: FloatArray | None = None
    rounds: int = 1
    converged: bool = True


def posterior_of_groupings(
    solve: Solve,
    log_probs: Values,
    groupings: Groupings,
    *,
    joint: bool = True,
    max_rounds: int = 100,
    damping: float = 0.25,
    settled: float = 1e-4,
    messages: FloatArray | None = None,
) -> JointPosterior[Values]:
    """The posterior of rows that several groupings count; `bag_posterior` calls it.

    Joint: over the labelings Y of the N rows that have the counts of every grouping,

        log P(S_1, ..., S_G|X) = log sum_Y prod_k p[k, Y_k]
        w[k, c] = P(Y_k = c | S_1, ..., S_G, X) = d log P / d log p[k, c]

    by belief propagation between groupings. Each bag is solved by the engine; only loops of rows
    and bags are approximate. With m_g[k, c] what the bag of row k in grouping g says of it, repeat
    for each g

        cavity_g[k, c] = p[k, c] prod over h != g of m_h[k, c]
        w_g            = the engine's weights under cavity_g
        m_g[k, c]      = (w_g[k, c] / cavity_g[k, c])^(1 - damping) m_g[k, c]^damping

    until all w_g are the same: w[k, c] ~ p[k, c] prod_g m_g[k, c]. And with row k in d_k groupings

        log P ~ sum_g log P(S_g|cavity_g) - sum_k (d_k - 1) log sum_c p[k, c] prod_g m_g[k, c]

    With one grouping that is its posterior. Exact bags within other bags make no loops, see
    `Groupings.unnested`. Labels that bounds of the counts rule out get no weight from the start,
    see `bagwise.bags.possible_labels`: messages would approach that ever more slowly.

    Args:
        solve: the posterior of one grouping's bags.
        log_probs: (N, C) logarithms of class probabilities, in the order of the rows.
        groupings: the bags of these N rows.
        joint: False takes the groupings one by one, as if each were about rows of its own: the
            composite likelihood, sum_g log P(S_g|X), and the mean of the weights.
        max_rounds: where more are needed, a warning says so, unless `messages` are given.
        damping: from 0 to less than 1; more is slower, and helps where messages swing.
        settled: rounds end when no weight changes by more than this.
        messages: (G, N, C) of a former result, to go on from; they are not changed.
    """
    flag(joint, "joint")
    whole(1)(max_rounds, "max_rounds")
    number(0, 0.99)(damping, "damping")
    number(above=0)(settled, "settled")
    check_shapes(log_probs, groupings)
    given_tensor = is_given_tensor(log_probs)
    if not joint:
        return _composite(solve, log_probs, groupings)

    def by_rounds(array: FloatArray) -> JointPosterior[FloatArray]:
        log_p = groupings.others_impossible(array).astype(np.float64)
        _refuse_nan(log_p)
        log_p = _without_impossible(log_p, groupings)
        found = _rounds(
            solve,
            log_p,
            groupings,
            _begin(messages, (len(groupings), *log_p.shape)),
            max_rounds,
            damping,
            settled,
        )
        if not found.converged and messages is None:
            warnings.warn(
                f"the messages between groupings did not settle to {settled:g} in {max_rounds} "
                "rounds; the weights are approximate. Raise max_rounds. It happens where counts "
                "leave few labelings and log_probs say little.",
                RuntimeWarning,
                stacklevel=4,
            )
        return found

    if given_tensor:
        of_tensor: JointPosterior[Values] = bridge().joint_of_tensor(
            by_rounds, log_probs, groupings
        )
        return of_tensor
    return by_rounds(log_probs)  # type: ignore[arg-type, return-value]


def _composite(solve: Solve, log_probs: Any, groupings: Groupings) -> JointPosterior[Any]:
    total, degrees = 0.0, groupings.degrees[:, None]
    array = without_torch(log_probs)
    from scipy.special import softmax  # takes long to import, and is seldom needed

    weights = np.where(degrees > 0, 0.0, softmax(array, axis=1))
    for grouping in groupings:
        post = _solved(solve, log_probs[grouping.rows], grouping.name, grouping.bags)
        total = total + post.log_likelihood.sum()
        weights[grouping.rows] += without_torch(post.weights) / degrees[grouping.rows]
    if array is not log_probs:
        weights = bridge().tensor_like(weights, log_probs)
    return JointPosterior(total, weights)


def _solved(solve: Solve, log_probs: Any, name: str, bags: Bags) -> Posterior[Any]:
    try:
        return solve(log_probs, bags)
    except InputError as error:
        raise InputError(f"grouping {name!r}: {error}") from error


def _rounds(
    solve: Solve,
    log_p: FloatArray,
    groupings: Groupings,
    messages: FloatArray,
    max_rounds: int,
    damping: float,
    settled: float,
) -> JointPosterior[FloatArray]:
    """Rounds of messages, which are changed in place; then weights and log P."""
    places, value, degrees = groupings.unnested
    total = log_p + messages.sum(axis=0)  # logarithms of the beliefs, not normalized
    cavities = [np.empty((len(g.rows), log_p.shape[1])) for _, g in places]
    found: list[Posterior[FloatArray]] = []
    rounds, converged = 0, False
    while rounds < max_rounds and not converged:
        found, change = [], 0.0
        for (place, g), cavity in zip(places, cavities, strict=True):
            _leave_out(g.rows, total, messages[place], cavity)
            post = _solved(solve, cavity, g.name, g.bags)
            sent = _send(g.rows, cavity, post.weights, degrees, damping, total, messages[place])
            change = max(change, sent)
            found.append(post)
        rounds, converged = rounds + 1, change <= settled
    copies = groupings.copies
    for (place, g), cavity, post in zip(places, cavities, found, strict=True):
        value += post.log_likelihood.sum()
        # Messages have changed since. The value's slope in its cavities is the weights.
        value += _since(g.rows, copies, total, messages[place], cavity, post.weights)
    from scipy.special import logsumexp, softmax

    value -= (copies * (degrees - 1) * logsumexp(total, axis=1)).sum()
    return JointPosterior(value, softmax(total, axis=1), messages, rounds, converged)


def _begin(messages: FloatArray | None, shape: tuple[int, ...]) -> FloatArray:
    if messages is None:
        return np.zeros(shape)
    if np.shape(messages) != shape or not np.isfinite(messages).all():
        raise InputError(
            f"messages has shape {np.shape(messages)}; finite numbers (groupings, rows, classes) = "
            f"{shape} are expected, from a former result."
        )
    return np.array(messages, dtype=np.float64)


def _refuse_nan(log_p: FloatArray) -> None:
    if log_p.max() < np.inf:  # false for NaN too
        return
    row, column = np.argwhere(~(log_p < np.inf))[0]
    raise InputError(
        f"log_probs[{row}, {column}] is {log_p[row, column]}; every entry must be a number or -inf."
    )


def _without_impossible(log_p: FloatArray, groupings: Groupings) -> FloatArray:
    """-inf for labels that the counts rule out, in rows that then have one left."""
    if len(groupings) == 1:
        return log_p
    left = np.where(groupings.possible, log_p, -np.inf)
    found: FloatArray = np.where(left.max(axis=1, keepdims=True) > -np.inf, left, log_p)
    return found


@kernel
def _leave_out(rows: IntArray, total: FloatArray, message: FloatArray, cavity: FloatArray) -> None:
    """cavity[i] = total[k] - message[k] for the rows k of a grouping."""
    for i in range(len(rows)):
        for c in range(total.shape[1]):
            cavity[i, c] = total[rows[i], c] - message[rows[i], c]


@kernel
def _send(
    rows: IntArray,
    cavity: FloatArray,
    weights: FloatArray,
    degrees: IntArray,
    damping: float,
    total: FloatArray,
    message: FloatArray,
) -> float:
    """Change the messages of a grouping and the totals of its rows; returns the largest change.

    That is how far the grouping's weights are from what all messages said before. A row that is in
    no other grouping hears nothing back: its message needs no damping, and no further round.
    """
    C = total.shape[1]
    new = np.empty(C)
    change = 0.0
    for i in range(len(rows)):
        k = rows[i]
        alone = degrees[k] == 1
        top = total[k].max()
        norm = 0.0
        for c in range(C):
            norm += np.exp(total[k, c] - top)
        largest = -np.inf
        for c in range(C):
            new[c] = 0.0
            if cavity[i, c] > -np.inf:
                new[c] = np.log(weights[i, c]) - cavity[i, c] if weights[i, c] > 0.0 else -np.inf
                largest = max(largest, new[c])
            if not alone:
                change = max(change, abs(weights[i, c] - np.exp(total[k, c] - top) / norm))
        for c in range(C):
            if cavity[i, c] > -np.inf:
                sent = max(new[c] - largest, _LEAST)
                if not alone:
                    sent += damping * (message[k, c] - sent)
                message[k, c] = sent
                total[k, c] = cavity[i, c] + sent
    return change


@kernel
def _since(
    rows: IntArray,
    copies: IntArray,
    total: FloatArray,
    message: FloatArray,
    cavity: FloatArray,
    weights: FloatArray,
) -> float:
    """By how much the logarithm of P(S_g) has changed with the cavities, to first order."""
    value = 0.0
    for i in range(len(rows)):
        k = rows[i]
        for c in range(total.shape[1]):
            if weights[i, c] > 0.0:
                moved = total[k, c] - message[k, c] - cavity[i, c]
                value += copies[k] * weights[i, c] * moved
    return value
