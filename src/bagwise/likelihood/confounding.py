"""How strong a hidden difference between bags must be to change a conclusion.

A fit takes P(y|x) to be the same in all bags. Suppose it is not: a hidden feature of bags, such as
their region, shifts it, and goes along with what rows the bags have. To first order an answer is a
sum over bags of residuals times weights, so that what such a feature does to it is limited by two
shares of variance:

    |bias| <= standard error sqrt(B) sqrt(R_y R_x / (1 - R_x))

R_y is the share of the bags' residuals that the feature explains, and R_x the share of the answer's
weights (of the variance of the answer, had the fit known the feature). That is the bound of Cinelli
and Hazlett, "Making sense of sensitivity" (2020), and of Chernozhukov et al., "Long story short"
(2022), which McCartan and Kuriwaki apply to ecological regression (2025).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import FloatArray
from bagwise.checks import number
from bagwise.likelihood.coefficient_covariance import Covariance

_SHARE = number(0, 1)


def bias_bound(error: npt.ArrayLike, n_bags: int, of_counts: float, of_rows: float) -> FloatArray:
    """How far a hidden feature of bags can move an answer with this standard error.

    Args:
        error: (...) the standard error over bags.
        n_bags: B.
        of_counts: R_y, the share of the bags' residuals that the feature explains.
        of_rows: R_x, the share of the answer's weights that it explains.

    >>> round(float(bias_bound(0.1, 100, of_counts=0.2, of_rows=0.2)), 4)
    0.2236
    """
    _SHARE(of_counts, "of_counts")
    number(0, below=1)(of_rows, "of_rows")
    found: FloatArray = np.asarray(error) * np.sqrt(n_bags * of_counts * of_rows / (1.0 - of_rows))
    return found


def robustness(distance: npt.ArrayLike, error: npt.ArrayLike, n_bags: int) -> FloatArray:
    """(...) the strength of a hidden feature from which on an answer can move by a distance.

    It is the R for which `bias_bound` with R_y = R_x = R is the distance: 0 where the answer is
    there already, near 1 where next to nothing moves it so far.

    >>> robustness([0.0, 0.2236068, 2.0], 0.1, n_bags=100).round(3)
    array([0.   , 0.2  , 0.828])
    """
    room = np.abs(np.asarray(distance, dtype=np.float64))
    reach = np.maximum(np.asarray(error, dtype=np.float64) * np.sqrt(n_bags), 1e-300)
    return _of_squares(np.minimum(room / reach, 1e6) ** 2)


def contrast_slopes(shares: FloatArray, slopes: FloatArray, rows: npt.ArrayLike) -> FloatArray:
    """(G, C, d + 1, C) the derivative of logit(share) - logit(share of all rows).

    Args:
        shares: (G, C) of groups.
        slopes: (G, C, d + 1, C) their derivatives.
        rows: (G,) the rows of groups.
    """
    part = np.asarray(rows, dtype=np.float64) / np.sum(rows)
    overall = part @ shares
    of_all = np.tensordot(part, slopes, axes=1)
    found: FloatArray = slopes / _odds_slope(shares) - of_all / _odds_slope(overall)
    return found


def _odds_slope(share: FloatArray) -> FloatArray:
    """(..., 1, 1) the derivative of a share by its logit."""
    found: FloatArray = np.maximum(share * (1.0 - share), 1e-6)[..., None, None]
    return found


def column_strengths(
    covariance: Covariance, gradients: FloatArray, columns: list[list[int]]
) -> FloatArray:
    """(..., columns) how strong a hidden feature each column would be, if it were hidden.

    With the covariance S of all coefficients, g the gradient of the answer, and j the coefficients
    of a column,

        R_x = g' S_j S_jj^-1 S_j' g / g' S g        R_y = W / (W + B),  W = w_j' S_jj^-1 w_j

    are what the fit without it would leave to it. The strength is on the scale of `robustness`.

    Args:
        covariance: of the fit's coefficients.
        gradients: (..., d + 1, C) of answers.
        columns: the encoded columns that each column has.
    """
    d, C = covariance.matrix.shape[:2]
    matrix = covariance.matrix if covariance.posterior is None else covariance.posterior
    S = matrix.reshape(d * C, d * C)
    slopes = gradients.reshape(-1, d * C)
    moved = slopes @ S
    variance = np.maximum((moved * slopes).sum(axis=1), 1e-300)
    coefficients = np.vstack([covariance.fit.weights, covariance.fit.intercept]).ravel()
    found = np.empty((len(slopes), len(columns)))
    for place, encoded in enumerate(columns):
        own = (np.asarray(encoded)[:, None] * C + np.arange(C)).ravel()
        inverse = np.linalg.pinv(S[np.ix_(own, own)], hermitian=True, rcond=1e-9)
        told = np.einsum("gi,ij,gj->g", moved[:, own], inverse, moved[:, own]) / variance
        wald = coefficients[own] @ inverse @ coefficients[own]
        of_rows = np.clip(told, 0.0, 1.0 - 1e-9)
        of_counts = wald / (wald + covariance.n_bags * max(C - 1, 1))
        found[:, place] = _of_squares(of_counts * of_rows / (1.0 - of_rows))
    return found.reshape(*gradients.shape[:-2], len(columns))


def _of_squares(f: FloatArray) -> FloatArray:
    """The R with R^2 / (1 - R) = f, from 0 to 1."""
    found: FloatArray = 2.0 * f / (np.sqrt(f**2 + 4.0 * f) + f + 1e-300)
    return found
