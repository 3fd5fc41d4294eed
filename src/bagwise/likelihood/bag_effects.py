"""Whether bags differ by more than their rows explain: an intercept of each bag, and its spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.errors import InputError
from bagwise.likelihood._effects import most_likely_tau
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.linear_fit import fit_with_variance, occurring
from bagwise.likelihood.objective import checked_features
from bagwise.likelihood.ridge import (
    FOLD_TOLERANCE,
    FOLDS,
    ChosenRidge,
    bag_log_likelihoods,
    choose_ridge,
    folds_of,
    mean_per_instance,
)
from bagwise.likelihood.splits import some_bags

_ENOUGH, _LEAST_BAGS = 20_000, 20  # rows and bags that are looked at


@dataclass(frozen=True)
class ChosenBagEffects:
    """Models with and without bag effects, and how probable held-out bags are under each.

    Attributes:
        tau: the fitted standard deviation; .001, its least value, says that there is none.
        fit: the model with effects, fitted to all bags.
        without: the model without, and its scores.
        score: log P(S|X) per instance of held-out bags with effects, which are integrated over.
        gain: what that is more than without.
        gain_error: its standard error, over bags.
        of_bags: (B,) log P(S|X) of each held-out bag with effects; NaN of one that was never held
            out.
        held_out_logits: (N, C) of every row for an effect of zero, by the model that did not see
            its bag, or by the first one, if all saw it.
        held_out_tau: (B,) the tau of the same models.
    """

    tau: float
    fit: LinearFit
    without: ChosenRidge
    score: float
    gain: float
    gain_error: float
    of_bags: FloatArray
    held_out_logits: FloatArray
    held_out_tau: FloatArray

    @property
    def differ(self) -> bool:
        """Whether held-out bags are more probable with effects, by two standard errors."""
        return self.gain > 2 * self.gain_error


def choose_bag_effects(
    X: npt.ArrayLike, bags: Bags, *, folds: int | npt.ArrayLike = FOLDS, seed: int = 0
) -> ChosenBagEffects:
    """Fit a random intercept of each bag, and see whether held-out bags speak for it.

    The instances of bag b have the logits X W + b + u_b, where u_b is normal with variance tau^2
    for each class (what all classes share does not matter). The counts of a bag are the more
    probable the more its u_b follows them, whether or not bags differ: so u_b is integrated over,
    and tau maximizes, together with W and b,

        sum_b log of the mean over u of P(S_b | X_b; W, b + u) - ridge / 2 ||W||^2

    The integral is cheap, as the same u for all instances of a bag moves P(S|X) by a known factor
    (see `_effects`): Gauss-Hermite sums around its mode for two and three classes, 64 quasi-random
    draws for more. `fit.effects` are the means of u_b given the counts.

    The model without effects takes differences between bags for noise of the features' effects and
    chooses too strong a ridge. So the ridge is chosen again: tau is fitted with a ridge of 1, the
    ridge chosen with that tau, and tau fitted again, to all bags and to those of each fold.

    What it does: it keeps differences between bags that no feature explains from being taken for
    effects of features, and says how far apart bags are. What it does not: tell which rows of a bag
    carry which label any better for the bag's own u, because a bag's counts are known, and given
    them u does not matter; nor correct features that go along with u_b: if bags with large features
    have large u for another reason, the weights take that for the features' doing. With few bags
    tau is poorly known.

    Args:
        X: (N, d) standardized features, sorted by bag.
        bags: sizes and counts, of three bags at least.
        folds: in how many parts bags are held out, or the part of each, see `choose_ridge`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(800, 2))
    >>> u = np.repeat(rng.normal(size=40), 20)
    >>> labels = (X[:, 0] + u + rng.logistic(size=800) > 0).astype(int)
    >>> found = choose_bag_effects(X, Bags.from_labels(labels, [20] * 40))
    >>> found.differ, 0.4 < found.tau < 1.1  # of two classes, the odds' logarithm: sqrt(2) tau
    (True, True)
    """
    features = checked_features(X, bags)
    if len(bags) < 3:
        raise InputError(
            f"there are {len(bags)} bags; at least three are needed to say how far bags differ."
        )
    fold_of_bag = folds_of(bags, folds, seed)
    without = choose_ridge(features, bags, folds=fold_of_bag)
    rough = FOLD_TOLERANCE
    first = fit_with_variance(features, bags, 1.0, start=without.fit, tolerance=rough)
    again = choose_ridge(features, bags, folds=fold_of_bag, bag_effects=first.bag_effects)
    fit = fit_with_variance(features, bags, again.ridge, start=again.fit)
    of_bags, tau = np.full(len(bags), np.nan), np.empty(len(bags))
    logits = np.empty((len(features), bags.n_classes))
    for fold in range(int(fold_of_bag.max()) + 1):
        kept, held_out = (np.flatnonzero(x) for x in (fold_of_bag != fold, fold_of_bag == fold))
        model = fit_with_variance(
            features[bags.rows(kept)], bags.select(kept), again.ridge, start=fit, tolerance=rough
        )
        rows = bags.rows(held_out)
        of_bags[held_out] = bag_log_likelihoods(model, features[rows], bags.select(held_out))
        if fold == 0:
            logits, tau[:] = model.logits(features), model.bag_effects
        logits[rows], tau[held_out] = model.logits(features[rows]), model.bag_effects
    judged = np.flatnonzero(fold_of_bag >= 0)
    part = bags.select(judged)
    score, _ = mean_per_instance(of_bags[judged], part)
    gain, error = mean_per_instance((of_bags - without.chosen.of_bags)[judged], part)
    return ChosenBagEffects(
        tau=fit.bag_effects,
        fit=fit,
        without=without,
        score=score,
        gain=gain,
        gain_error=error,
        of_bags=of_bags,
        held_out_logits=logits,
        held_out_tau=tau,
    )


def bags_to_look_at(bags: Bags) -> IntArray:
    """The bags by which `bags_differ` judges: of these alone it says the same."""
    return some_bags(bags.sizes, _ENOUGH, _LEAST_BAGS)


def bags_differ(z: npt.ArrayLike, bags: Bags) -> tuple[float, float]:
    """Whether bags differ by more than the logits of their rows explain: (tau, p-value).

    tau maximizes the likelihood of the bags with effects, the logits being what they are. The
    p-value is that of the likelihood-ratio test of tau = 0, at the edge of what tau can be: half of
    that of chi-squared with one degree of freedom. It looks at up to 20,000 rows of bags at random.

    Args:
        z: (N, C) logits of a model that was fitted to these bags without effects.

    >>> counts = np.array([[2, 18], [18, 2]] * 10)
    >>> tau, p_value = bags_differ(np.zeros((400, 2)), Bags([20] * 20, counts))
    >>> 1 < tau < 3, p_value < 1e-6
    (True, True)
    """
    logits: FloatArray = np.ascontiguousarray(z, dtype=np.float64)
    some = bags_to_look_at(bags)
    part, classes = occurring(bags.select(some))
    if len(classes) == 1:
        return 0.0, 1.0
    of_part = logits[bags.rows(some)][:, classes]
    tau, gain = most_likely_tau(
        np.ascontiguousarray(of_part),
        part.copies.astype(np.float64),
        part.offsets,
        part.counts.astype(np.float64),
        contrasts(len(classes)),
        np.zeros(len(part)),
    )
    return tau, 0.5 * float(chdtrc(1, 2 * gain)) if gain > 0 else 1.0
