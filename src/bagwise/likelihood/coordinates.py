"""Coordinates of logits that sum to zero, and places for means over normal vectors of them."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.linalg import helmert
from scipy.special import ndtri

from bagwise.bags import FloatArray

_DRAWS = 64  # in more than two dimensions


@cache
def contrasts(n_classes: int) -> FloatArray:
    """(C, C - 1) orthonormal columns that sum to zero: coordinates of logits that do.

    >>> contrasts(2).round(3)
    array([[ 0.707],
           [-0.707]])
    """
    basis: FloatArray = np.ascontiguousarray(helmert(n_classes).T)
    basis.setflags(write=False)
    return basis


@cache
def normal_nodes(dimensions: int) -> tuple[FloatArray, FloatArray]:
    """Places (R, D) and weights (R,) whose sums stand for means over a standard normal vector.

    Gauss-Hermite in one dimension (15 places) and two (81); beyond, 64 fixed quasi-random draws and
    their mirror images, of equal weight.

    >>> nodes, weights = normal_nodes(1)
    >>> round(float(weights @ nodes[:, 0] ** 4), 6)
    3.0
    """
    if dimensions > 2:
        half = normal_draws(dimensions, _DRAWS // 2)
        draws = np.concatenate([half, -half])
        draws /= np.sqrt((draws**2).mean(axis=0))
        return draws, np.full(_DRAWS, 1.0 / _DRAWS)
    x, w = np.polynomial.hermite_e.hermegauss(15 if dimensions == 1 else 9)
    w = w / w.sum()
    if dimensions == 1:
        return x[:, None].copy(), w
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.outer(w, w).ravel()


def normal_draws(dimensions: int, n: int) -> FloatArray:
    """(n, D) quasi-random draws of a standard normal vector, always the same."""
    from scipy.stats import qmc  # takes a second to import

    sobol = qmc.Sobol(dimensions, seed=0).random(n)
    draws: FloatArray = ndtri(np.clip(sobol, 1e-6, 1 - 1e-6))
    return draws


def orthogonal_normals(rng: np.random.Generator, n: int, dimensions: int) -> FloatArray:
    """(n, D) draws of a standard normal vector, each D of them at right angles.

    Each is standard normal on its own; together they fill space more evenly than independent ones,
    and means over them and their mirror images have about half the variance.

    >>> draws = orthogonal_normals(np.random.default_rng(0), 2, 3)
    >>> round(float(abs(draws[0] @ draws[1])), 12)
    0.0
    """
    if dimensions == 0:
        return np.zeros((n, 0))
    normal = rng.standard_normal((-(-n // dimensions), dimensions, dimensions))
    directions, triangle = np.linalg.qr(normal)
    signs = np.sign(np.diagonal(triangle, axis1=1, axis2=2))  # so that they are uniform
    rows = (directions * signs[:, None, :]).reshape(-1, dimensions)[:n]
    found: FloatArray = np.sqrt(rng.chisquare(dimensions, size=(n, 1))) * rows
    return found
