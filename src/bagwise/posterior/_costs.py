"""What it costs to compute a bag exactly, and by belief propagation, told from its counts alone.

The constants are nanoseconds on one core, measured by `benchmarks/costs.py` on one processor (an
AMD EPYC). `auto` goes by their ratios alone, which may differ on others; none was tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._kernels import kernel

EXACT = (1400.0, 22.0, 3.8, 0.69, 1.2)
BETHE = (3900.0, 90.0, 1.5)
PRUNED_STATE = 7.0
"""Of a state and class of the pruned lattice."""


class Costs(NamedTuple):
    """What is told of bags.

    Attributes:
        exact: (B,) nanoseconds of `exact`, `terms` weighted by `EXACT`.
        bethe: (B,) nanoseconds of `bethe`, in the same way.
        classes: (B,) how many classes occur.
    """

    exact: FloatArray
    bethe: FloatArray
    classes: FloatArray


def costs(bags: Bags) -> Costs:
    """The costs of bags by their counts, or by the largest possible ones."""
    exact, bethe, classes = np.empty((3, len(bags)))
    _costs(bags.max_counts, bags.sizes, bags.totals, EXACT, BETHE, exact, bethe, classes)
    return Costs(exact, bethe, classes)


def terms(bags: Bags) -> tuple[FloatArray, FloatArray]:
    """(B, 5), (B, 3): what of the counts the cost of `exact` grows with, and that of `bethe`.

    With A the number of classes that occur (and K that of rows for `bethe`), the lattice of `exact`
    is cut into blocks of (n + 1) (m + 1) states, n and m being the two largest counts:

        exact       1, K A, blocks A, states A, A (K - n - m + 1) (n + 1) (m + 1)
        bethe       1, K A, K^2
    """
    exact, bethe = np.empty((len(EXACT), len(bags))), np.empty((len(BETHE), len(bags)))
    other, classes = np.empty((2, len(bags)))
    known = bags.max_counts, bags.sizes, bags.totals
    for i, unit in enumerate(np.eye(len(EXACT))):
        _costs(*known, tuple(unit), BETHE, exact[i], other, classes)
    for i, unit in enumerate(np.eye(len(BETHE))):
        _costs(*known, EXACT, tuple(unit), other, bethe[i], classes)
    return exact.T, bethe.T


@kernel
def _costs(
    counts: IntArray,
    sizes: IntArray,
    totals: IntArray,
    of_exact: tuple[float, ...],
    of_bethe: tuple[float, ...],
    exact: FloatArray,
    bethe: FloatArray,
    classes: FloatArray,
) -> None:
    for bag in range(len(counts)):
        K, A, states, n, m = totals[bag], 0, 1.0, 0, 0
        for count in counts[bag]:
            A += count > 0
            states *= count + 1.0
            if count > n:
                n, m = count, n
            elif count > m:
                m = count
        block = (n + 1.0) * (m + 1.0)
        exact[bag] = (
            of_exact[0]
            + of_exact[1] * K * A
            + of_exact[2] * A * (states / block)
            + of_exact[3] * A * states
            + of_exact[4] * A * (K - n - m + 1.0) * block
        )
        rows = 1.0 * sizes[bag]
        bethe[bag] = of_bethe[0] + of_bethe[1] * rows * A + of_bethe[2] * rows**2
        classes[bag] = A
