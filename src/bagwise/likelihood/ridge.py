"""The strength of the penalty, chosen by the likelihood of held-out bags."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import number, whole
from bagwise.errors import InputError
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.linear_fit import TOLERANCE, fit_linear
from bagwise.likelihood.objective import BagLikelihood, checked_features

RIDGES = tuple(10.0 ** (1.5 - i / 2) for i in range(5))
FOLDS = 5
FEW_BAGS = 10
_STRONGEST, _WEAKEST = 1e4, 1e-4  # how far a path is extended
_WORSE = 2  # ridges in turn that are worse than the best, after which the path ends
_FLAT = 0.2  # standard errors of a difference that make none
_MILD = 10**0.5  # a ridge below which weaker ones are held less likely beforehand,
_DECADES = 0.5  # as a normal distribution of log10 ridge of this standard deviation has it
FOLD_TOLERANCE = 0.03  # what is held out is off by more than that of a standard error


@dataclass(frozen=True)
class RidgeScore:
    """How a ridge did on held-out bags.

    Attributes:
        ridge: the penalty.
        score: log P(S|X) per instance of the held-out bags.
        standard_error: of the score, over bags.
        of_bags: (B,) log P(S|X) of each bag under the model that did not see it; NaN of one that
            was never held out.
    """

    ridge: float
    score: float
    standard_error: float
    of_bags: FloatArray


@dataclass(frozen=True)
class ChosenRidge:
    """A ridge, how it was chosen, and the model that came of it.

    Attributes:
        ridge: the chosen one.
        path: what was tried, strongest first; the chosen one alone if nothing was to be chosen.
        folds: (B,) the fold in which each bag was held out, -1 if in none.
        held_out_logits: (N, C) logits of every row by the model that did not see its bag, or by the
            first one, if all saw it; with bag effects, for an effect of zero.
        fit: the model fitted to all bags.
        evaluations: how often likelihoods were computed, those of parts of the bags included.
    """

    ridge: float
    path: tuple[RidgeScore, ...]
    folds: IntArray
    held_out_logits: FloatArray
    fit: LinearFit
    evaluations: int

    @property
    def chosen(self) -> RidgeScore:
        """The score of the chosen ridge."""
        return next(score for score in self.path if score.ridge == self.ridge)


def bag_folds(bags: Bags, folds: int = FOLDS, seed: int = 0) -> IntArray:
    """(B,) the fold of each bag: at random, balanced by the numbers of bags and of instances.

    Bags of like size are dealt out to the folds in turn. Of fewer than ten bags each is a fold of
    its own.

    >>> np.bincount(bag_folds(Bags([10] * 12, [[5, 5]] * 12)))
    array([3, 3, 2, 2, 2])
    """
    whole(2, 2**31)(folds, "folds")
    B = len(bags)
    folds = B if B < FEW_BAGS else min(folds, B)
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(B)
    by_size = shuffled[np.argsort(-bags.totals[shuffled], kind="stable")]
    fold = np.empty(B, np.int64)
    for begin in range(0, B, folds):
        part = by_size[begin : begin + folds]
        # In the last round, with fewer bags than folds, the first folds get one more.
        fold[part] = rng.permutation(len(part))
    return fold


def choose_ridge(
    X: npt.ArrayLike,
    bags: Bags,
    ridges: Sequence[float] = RIDGES,
    *,
    folds: int | npt.ArrayLike = FOLDS,
    bag_effects: float = 0.0,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    watch: Callable[[int, int], None] | None = None,
) -> ChosenRidge:
    """Choose the ridge under which held-out bags are most probable, and fit with it.

    From the strongest ridge to the weakest, a model is fitted to all folds but one, beginning at
    its own answer for the ridge before, and scored by the mean log P(S|X) per instance of the fold
    that it did not see. The path ends early where two ridges in turn are worse than the best. It is
    extended by steps of sqrt(10) where the best is at its end, up to 1e4 and down to 1e-4.

    Held-out bags are few, and one with two mistakes that cancel does not show that the model was
    too sure of them. So a ridge below sqrt(10) has to earn its place: from the log-likelihood of
    all held-out bags together 2 (log10 ridge - 1/2)^2 is subtracted, .5 for a ridge of 1, 12.5 for
    .01. Many bags outweigh that. Chosen is the strongest ridge that is then worse than the best by
    no more than .2 standard errors of their difference over bags: where the likelihood is flat, the
    simpler model.

    Of fewer than ten bags each is held out alone. Two bags tell too little: the ridge is then 1,
    the bags are still held out, and a warning says so. One bag cannot be held out.

    Args:
        X: (N, d) standardized features, sorted by bag.
        folds: number of parts that bags are held out in, or (B,) the part of each bag, counted
            from 0, and -1 for bags that are never held out.
        bag_effects: see `fit_linear`; scores are then means over these effects.
        tolerance: of the fit to all bags; in folds it is .03 or this, whichever is larger.
        watch: called after each fit with the number of fits that are done and of those planned by
            then, which grows where the path is extended.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> bags = Bags.from_labels((X[:, 0] + rng.logistic(size=300) > 0).astype(int), [10] * 30)
    >>> found = choose_ridge(X, bags)
    >>> found.held_out_logits.shape
    (300, 2)
    >>> bool(found.fit.weights[0, 1] > abs(found.fit.weights[1, 1]))
    True
    """
    features = checked_features(X, bags)
    if len(ridges) == 0:
        raise InputError("ridges is empty; give at least one number to try.")
    for ridge in ridges:
        number(above=0)(ridge, "ridges")
    if len(bags) < 2:
        raise InputError(
            "there is only one bag, which cannot be held out; use fit_linear with a ridge of your "
            "own choice, for instance 1."
        )
    fold_of_bag = folds_of(bags, folds, seed)
    search = _Search(features, bags, fold_of_bag, bag_effects, tolerance, watch)
    if len(bags) < 3:
        warnings.warn(
            f"there are only {len(bags)} bags, too few to choose a ridge by; it is 1.",
            RuntimeWarning,
            stacklevel=2,
        )
        search.visit(1.0)
        ridge = 1.0
    else:
        search.walk(sorted({float(ridge) for ridge in ridges}, reverse=True))
        ridge = search.best_ridge()
    logits, start = search.held_out(ridge)
    fit = fit_linear(
        features, bags, ridge, bag_effects=bag_effects, start=start, tolerance=tolerance
    )
    return ChosenRidge(
        ridge=ridge,
        path=tuple(search.scores[r] for r in sorted(search.scores, reverse=True)),
        folds=search.fold_of_bag,
        held_out_logits=logits,
        fit=fit,
        evaluations=search.evaluations + fit.evaluations,
    )


def folds_of(bags: Bags, folds: int | npt.ArrayLike, seed: int) -> IntArray:
    """(B,) the fold of each bag, from their number or as they are given."""
    if isinstance(folds, int):
        return bag_folds(bags, folds, seed)
    fold_of_bag: IntArray = np.asarray(folds, dtype=np.int64)
    numbers = np.unique(fold_of_bag[fold_of_bag >= 0])
    if fold_of_bag.shape != (len(bags),) or not np.array_equal(numbers, np.arange(len(numbers))):
        raise InputError(
            f"folds has shape {fold_of_bag.shape} and the numbers {numbers.tolist()}; one for each "
            f"of the {len(bags)} bags is expected, counted from 0 without gaps, and -1 for bags "
            "that are never held out."
        )
    if len(numbers) == 0 or (len(numbers) == 1 and (fold_of_bag == 0).all()):
        raise InputError("folds holds out no bag, or all at once; some must be left to fit to.")
    return fold_of_bag


class _Search:
    """Models of all folds along the path, and the scores of the ridges visited."""

    def __init__(
        self,
        X: FloatArray,
        bags: Bags,
        fold_of_bag: IntArray,
        tau: float,
        tolerance: float,
        watch: Callable[[int, int], None] | None,
    ) -> None:
        self.X, self.bags, self.fold_of_bag = X, bags, fold_of_bag
        self.watch, self.planned = watch, 1
        self.tau = tau
        self.tolerance = max(tolerance, FOLD_TOLERANCE)
        self.parts = []
        for fold in range(int(fold_of_bag.max()) + 1):
            kept = np.flatnonzero(fold_of_bag != fold)
            held_out = np.flatnonzero(fold_of_bag == fold)
            self.parts.append((kept, held_out))
        self.judged = np.flatnonzero(fold_of_bag >= 0)
        self.judged_bags = bags.select(self.judged)
        self.models: dict[float, list[LinearFit]] = {}
        self.scores: dict[float, RidgeScore] = {}
        self.evaluations = 0

    def walk(self, ridges: list[float]) -> None:
        worse, self.planned = 0, len(ridges)
        for ridge in ridges:
            worse = self._one_more(ridge, worse)
            if worse == _WORSE:
                break
        step = 10**0.5
        while worse < _WORSE and self._is_best(weakest := min(self.scores)):
            if weakest / step < _WEAKEST:
                break
            worse = self._one_more(weakest / step, worse)
        while (strongest := self.best_ridge()) == max(self.scores):
            if strongest * step > _STRONGEST:
                break
            self.visit(strongest * step)

    def _one_more(self, ridge: float, worse: int) -> int:
        self.visit(ridge)
        return 0 if self._is_best(ridge) else worse + 1

    def _is_best(self, ridge: float) -> bool:
        return self._worth(ridge) >= max(map(self._worth, self.scores))

    def _worth(self, ridge: float) -> float:
        """The score of a ridge, what is known beforehand included."""
        return self.scores[ridge].score - prior_penalty(ridge) / self.judged_bags.total

    def visit(self, ridge: float) -> None:
        """Fit every fold's model with this ridge, from its fit with the nearest one."""
        near = min(self.models, key=lambda other: abs(np.log(other / ridge)), default=None)
        models, of_bags = [], np.full(len(self.bags), np.nan)
        for fold, (kept, held_out) in enumerate(self.parts):
            model = fit_linear(
                self.X[self.bags.rows(kept)],
                self.bags.select(kept),
                ridge,
                bag_effects=self.tau,
                start=None if near is None else self.models[near][fold],
                tolerance=self.tolerance,
            )
            of_bags[held_out] = bag_log_likelihoods(
                model, self.X[self.bags.rows(held_out)], self.bags.select(held_out)
            )
            models.append(model)
            self.evaluations += model.evaluations + 1
            if self.watch is not None:
                ridges = max(self.planned, len(self.models) + 1)
                done = len(self.models) * len(self.parts) + len(models)
                self.watch(done, ridges * len(self.parts) + 1)  # and the fit to all bags
        self.models[ridge] = models
        mean, error = mean_per_instance(of_bags[self.judged], self.judged_bags)
        self.scores[ridge] = RidgeScore(ridge, mean, error, of_bags)

    def best_ridge(self) -> float:
        best = max(self.scores, key=lambda ridge: (self._worth(ridge), ridge))
        for ridge in sorted(self.scores, reverse=True):
            difference = (self.scores[best].of_bags - self.scores[ridge].of_bags)[self.judged]
            error = mean_per_instance(difference, self.judged_bags)[1]
            if self._worth(best) - self._worth(ridge) <= 1e-9 + _FLAT * error:
                return ridge
        return best

    def held_out(self, ridge: float) -> tuple[FloatArray, LinearFit]:
        """(N, C) logits by models that did not see the row's bag, and where to begin with all."""
        logits = self.models[ridge][0].logits(self.X)
        for model, (_, held_out) in zip(self.models[ridge], self.parts, strict=True):
            rows = self.bags.rows(held_out)
            logits[rows] = model.logits(self.X[rows])
        return logits, self.models[ridge][0]


def prior_penalty(ridge: float) -> float:
    """What a ridge below sqrt(10) has to make up for in log-likelihood of held-out bags.

    >>> [round(prior_penalty(ridge), 2) for ridge in (10, 1, 0.01)]
    [0.0, 0.5, 12.5]
    """
    return float(min(np.log10(ridge / _MILD), 0.0) ** 2 / (2 * _DECADES**2))


def bag_log_likelihoods(fit: LinearFit, X: npt.ArrayLike, bags: Bags) -> FloatArray:
    """(B,) log P(S|X) of bags under a model; with bag effects, of bags that are new to it.

    >>> fit = fit_linear([[0.], [0.]], Bags([2], [[1, 1]]))
    >>> bag_log_likelihoods(fit, [[0.]], Bags([1], [[1, 0]]))
    array([-0.69314718])
    """
    likelihood = BagLikelihood(checked_features(X, bags), bags)
    return likelihood.evaluate(fit.theta(), fit.bag_effects).log_likelihood


def mean_per_instance(of_bags: FloatArray, bags: Bags) -> tuple[float, float]:
    """The mean per instance of what bags (B,) sum up to, and its standard error over bags.

    The latter is infinite of one bag, and where a bag is impossible.

    >>> mean_per_instance(np.array([2., 4.]), Bags([2, 4], [[2], [4]]))
    (1.0, 0.0)
    """
    mean, B = of_bags.sum() / bags.total, len(bags)
    if B < 2 or not np.isfinite(mean):
        return float(mean), np.inf
    off = of_bags - mean * bags.totals
    return float(mean), float(np.sqrt(B / (B - 1) * (off**2).sum()) / bags.total)
