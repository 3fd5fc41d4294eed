"""Every engine, over all kinds of counts, weights and known labels. One input is one bag that one
engine computes; a seed is a batch of bags that all engines compute.

What must hold of every answer: rows sum to 1 and columns to counts that are possible, known and
impossible labels are kept to, log P(S|X) is no more than 0. And of each engine what it says:
`exact` is the sum over all labelings, its weights are the gradient, it does not depend on the order
of rows or classes, and rows with a weight are as many rows; what `auto` says is proved of an answer
is true; `bethe` without its correction is below log P(S|X) and `transport` above.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
from bag_kinds import Floats, Problem, problem
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from bagwise import Bags, Posterior, bag_posterior, most_probable_labeling
from bagwise.posterior import lattice_states

EXACT_STATES = 20_000
FEWEST = (1, 8, 60, 2000)  # states `auto` may compute: mostly too few, so that it has to prune
FEW = 800  # labelings of a bag that are written out
NOT_CONVERGED = "belief propagation did not converge"
NOT_BALANCED = "the weights of .* do not sum to the counts"


def step(seed: int) -> int:
    """All engines on one batch, compared; how many bags they computed together."""
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", NOT_CONVERGED, RuntimeWarning)
        return compare(rng, problem(rng))


def compare(rng: np.random.Generator, given: Problem) -> int:
    """Check each engine's answer by itself, and with that of `exact` where that can be had."""
    log_p, bags = given.log_probs, given.bags
    small = np.flatnonzero(lattice_states(bags) <= EXACT_STATES)
    states = int(rng.choice(FEWEST))
    asked: dict[str, dict[str, Any]] = {
        "auto": {},
        "auto of few states": {"max_states": states},
        "bethe": {"engine": "bethe"},
        "multinomial": {"engine": "multinomial"},
        "transport": {"engine": "transport"},
    }
    answers = {}
    for name, how in asked.items():
        with warnings.catch_warnings(record=True) as noted:
            warnings.filterwarnings("always", NOT_BALANCED, RuntimeWarning)
            answers[name] = bag_posterior(log_p, bags, **how)
        check(answers[name], log_p, bags, name, bool(noted))
    done = len(answers) * len(bags)
    if not len(small):
        return done
    rows = bags.rows(small)
    log_p, some = log_p[rows], bags.select(small)
    exact = bag_posterior(log_p, some, "exact")
    check(exact, log_p, some, "exact")
    assert (exact.bound == 0).all(), "exact, but not proved"
    for name in ("auto", "auto of few states"):
        post = answers[name]
        part = Posterior(post.log_likelihood[small], post.weights[rows], post.bound[small])
        check_bound(part, exact, some, log_p)
    done += len(some)
    done += check_order(rng, exact, log_p, some)
    done += check_gradient(rng, exact, log_p, some)
    if some.weights is not None:
        done += check_written_out(exact, log_p, some)
    if some.potentials is None:
        done += check_limits(exact, log_p, some)
    done += check_labelings(rng, exact, log_p, some)
    return done


def rounding(log_p: Floats, bags: Bags) -> Floats:
    """(B,) what rounding may change of a log-likelihood."""
    largest = np.abs(log_p[log_p > -np.inf]).max()
    wide = 0.0 if bags.potentials is None else np.abs(bags.potentials.log_f).max()
    allowed: Floats = 1e-9 + 1e-13 * bags.totals * (largest + min(wide, 1e6))
    return allowed


def check(
    post: Posterior[Floats], log_p: Floats, bags: Bags, name: str, warned: bool = False
) -> None:
    """What holds of any engine's answer; if it has warned, columns may be off."""
    weights, value = post.weights, post.log_likelihood
    assert np.isfinite(weights).all(), f"{name}: weights are not finite"
    assert np.isfinite(value).all(), f"{name}: log P(S|X) is not finite"
    assert (weights >= 0).all(), f"{name}: negative weights"
    assert np.abs(weights.sum(1) - 1).max() < 1e-7, f"{name}: rows do not sum to 1"
    assert (weights[log_p == -np.inf] == 0).all(), f"{name}: weight on an impossible label"
    absent = (bags.max_counts == 0)[bags.bag_of_row]
    assert (weights[absent] == 0).all(), f"{name}: weight on a class that is not there"
    if bags.row_labels is not None:
        known = np.flatnonzero(bags.row_labels >= 0)
        own = weights[known, bags.row_labels[known]]
        assert (own > 1 - 1e-12).all(), f"{name}: a known label has the weight {own.min()}"
    if name in ("multinomial", "transport"):
        return
    if name != "bethe":
        proved = post.bound < np.inf
        over = (value - rounding(log_p, bags)).max(where=proved, initial=-np.inf)
        assert over <= 1e-6, f"{name}: log P(S|X) is {over:.3g} above 0"
    if warned:
        return
    columns = np.add.reduceat(weights * bags.copies[:, None], bags.offsets[:-1], axis=0)
    slack = 1e-6 + 1e-7 * bags.totals[:, None]
    if "exact" not in name:  # of counts that are not exact, columns are where messages have settled
        open_ = bags.min_counts < bags.max_counts
        slack = np.where(open_, 0.01 + 1e-3 * bags.totals[:, None], slack)
    off = np.maximum(bags.min_counts - columns, columns - bags.max_counts) - slack
    assert off.max() <= 0, f"{name}: columns are {off.max():.3g} outside of the counts"


def check_bound(
    post: Posterior[Floats], exact: Posterior[Floats], bags: Bags, log_p: Floats
) -> None:
    """What is proved of each bag is true."""
    bound, allowed = post.bound, rounding(log_p, bags)
    assert (bound >= 0).all(), "a bound is negative or NaN"
    proved = bound < np.inf
    assert (bound[proved] <= 5e-7).all(), "a bound is above the tolerance"
    off = (exact.log_likelihood - post.log_likelihood)[proved]
    assert (off >= -allowed[proved]).all(), f"P(S|X) is {-off.min():.3g} too large"
    most = np.log1p(bound[proved]) + allowed[proved]
    assert (off <= most).all(), f"P(S|X) is {(off - most).max():.3g} outside of its bound"
    distance = np.abs(exact.weights - post.weights).sum(1)[proved[bags.bag_of_row]]
    most = np.repeat(2 * bound[proved] + 10 * allowed[proved], bags.sizes[proved])
    assert (distance <= most).all(), f"weights are {(distance - most).max():.3g} outside"


def check_order(
    rng: np.random.Generator, exact: Posterior[Floats], log_p: Floats, bags: Bags
) -> int:
    """Bags in another order, rows of each in another order, and classes in another order."""
    if bags.row_labels is not None or bags.potentials is not None:
        bag_order = rng.permutation(len(bags))
        rows, moved, classes = (
            bags.rows(bag_order),
            bags.select(bag_order),
            np.arange(bags.n_classes),
        )
    else:
        bag_order = np.arange(len(bags))
        rows = np.lexsort((rng.random(len(log_p)), bags.bag_of_row))
        classes = rng.permutation(bags.n_classes)
        weights = None if bags.weights is None else bags.weights[rows]
        moved = Bags(bags.sizes, bags.counts[:, classes], weights)
    post = bag_posterior(log_p[rows][:, classes], moved, "exact")
    off = np.abs(post.weights - exact.weights[rows][:, classes]).max()
    assert off < 1e-7, f"weights of another order are {off:.3g} apart"
    off = np.abs(post.log_likelihood - exact.log_likelihood[bag_order])
    assert (off <= 2 * rounding(log_p, bags)[bag_order]).all(), f"another order: {off.max():.3g}"
    return len(bags)


def check_gradient(
    rng: np.random.Generator, exact: Posterior[Floats], log_p: Floats, bags: Bags
) -> int:
    """Weights are the derivative of log P(S|X): a difference quotient has it."""
    direction = rng.standard_normal(log_p.shape)
    h = 1e-4
    up, down = (
        bag_posterior(log_p + sign * h * direction, bags, "exact").log_likelihood
        for sign in (1, -1)
    )
    slopes = exact.weights * np.where(exact.weights > 0, direction, 0) * bags.copies[:, None]
    expected = np.add.reduceat(slopes.sum(1), bags.offsets[:-1])
    allowed = 1e-5 * bags.totals**1.5 + rounding(log_p, bags) / h
    off = np.abs((up - down) / (2 * h) - expected) - allowed
    assert off.max() <= 0, f"the gradient is {off.max():.3g} off"
    return 2 * len(bags)


def check_written_out(exact: Posterior[Floats], log_p: Floats, bags: Bags) -> int:
    """Rows with weights are as many rows."""
    every = bags.written_out()
    post = bag_posterior(np.repeat(log_p, bags.copies, axis=0), every, "exact")
    off = np.abs(post.weights - np.repeat(exact.weights, bags.copies, axis=0)).max()
    assert off < 1e-6, f"written out, weights are {off:.3g} apart"
    off = np.abs(post.log_likelihood - exact.log_likelihood) - 10 * rounding(log_p, bags)
    assert off.max() <= 0, f"written out, log P(S|X) is {off.max():.3g} apart"
    return len(bags)


def check_limits(exact: Posterior[Floats], log_p: Floats, bags: Bags) -> int:
    """`bethe` without the correction is a lower bound of log P(S|X), `transport` an upper one."""
    allowed = 1e-6 + rounding(log_p, bags)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NOT_BALANCED, RuntimeWarning)
        below = bag_posterior(log_p, bags, "bethe", correction=False).log_likelihood
    above = bag_posterior(log_p, bags, "transport").log_likelihood
    off = below - exact.log_likelihood - allowed - 1e-3 * bags.totals
    assert off.max() <= 0, f"bethe without its correction is {off.max():.3g} too large"
    off = exact.log_likelihood - above - allowed
    assert off.max() <= 0, f"transport is {off.max():.3g} too small"
    return 2 * len(bags)


def check_labelings(
    rng: np.random.Generator, exact: Posterior[Floats], log_p: Floats, bags: Bags
) -> int:
    """A small bag's labelings written out: `exact` adds them up, the most probable is the best."""
    n_labelings = float(bags.n_classes) ** bags.totals
    candidates = np.flatnonzero(n_labelings <= FEW)
    for b in rng.permutation(candidates)[:3].tolist():
        rows, bag = bags.rows([b]), bags.select([b])
        scores, labels = labelings(bags.others_impossible(log_p)[rows], bag)
        total = float(logsumexp(scores))
        off = abs(total - exact.log_likelihood[b]) - rounding(log_p[rows], bag)[0]
        assert off <= 0, f"log P(S|X) is {off:.3g} from the sum over labelings"
        share = np.exp(scores - total)
        firsts = np.repeat(np.arange(len(rows)), bag.copies)
        weights = np.zeros((len(rows), bags.n_classes))
        for place, row in enumerate(firsts):
            np.add.at(weights[row], labels[:, place], share / bag.copies[row])
        off = np.abs(weights - exact.weights[rows]).max()
        assert off < 1e-7, f"weights are {off:.3g} from the sum over labelings"
    if bags.potentials is None and bags.row_labels is None and bags.weights is None:
        found = most_probable_labeling(log_p, bags)
        assert Bags.from_labels(found, bags.sizes, bags.n_classes) == bags, "other counts"
        b = int(rng.integers(len(bags)))
        rows = bags.rows([b])
        cost = np.repeat(np.where(log_p == -np.inf, -1e9, log_p)[rows], bags.counts[b], axis=1)
        best = cost[linear_sum_assignment(cost, maximize=True)].sum()
        off = best - log_p[rows, found[rows]].sum() - rounding(log_p[rows], bags.select([b]))[0]
        assert off <= 0, f"another labeling is more probable, by {off:.3g}"
    return 0


def labelings(log_p: Floats, bag: Bags) -> tuple[Floats, np.ndarray]:
    """(L,) log of each labeling's probability times what its counts are worth; (L, K) the labels,
    of every row that is meant.
    """
    C, rows = bag.n_classes, np.repeat(np.arange(len(log_p)), bag.copies)
    labels = np.array(list(itertools.product(range(C), repeat=len(rows))))
    scores = log_p[rows, labels].sum(axis=1)
    for c in range(C):
        window = np.zeros(1)
        if bag.potentials is not None:
            begin, end = bag.potentials.begins[c : c + 2]
            window = bag.potentials.log_f[begin:end]
        place = (labels == c).sum(axis=1) - bag.min_counts[0, c]
        possible = (place >= 0) & (place < len(window))
        scores = scores + np.where(possible, window[np.clip(place, 0, len(window) - 1)], -np.inf)
    return scores, labels


MAKE = {"engines": lambda _: step}
