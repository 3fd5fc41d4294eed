"""What a bag costs `exact` and `bethe`: the constants of src/bagwise/posterior/_costs.py.

    python benchmarks/costs.py

Each engine computes bags of many sizes and numbers of classes; their processor time on one thread
is fitted by the terms of `_costs.terms`, by least squares of relative errors, no constant below 0.
What is printed goes into that file by hand, rounded. It takes two minutes. The constants there were
measured on an AMD EPYC with other programs running; no other processor was tried.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import nnls

from bagwise import Bags
from bagwise.posterior._costs import terms
from bagwise.posterior.bethe import fill_bethe
from bagwise.posterior.exact import fill_exact, lattice_states
from bagwise.posterior.pairs import is_pair
from bagwise.posterior.pruned import fill_pruned

CLASSES = (2, 3, 5, 10, 20, 30, 60, 100)
SIZES = (2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64, 96, 128)
SURENESS = (1.0, 4.0, 8.0)
MOST_STATES = 3e5
BAGS = 12
REPEATS = 5
PRUNED = ((32, 10, 14.0), (64, 10, 18.0), (64, 30, 24.0), (128, 10, 22.0))


def informed(rng: np.random.Generator, K: int, C: int, s: float) -> tuple[np.ndarray, Bags]:
    """Bags of random labels y and log-probabilities s * onehot(y) + sqrt(s) * noise, normalized."""
    labels = rng.integers(C, size=BAGS * K)
    logits = torch.from_numpy(s * np.eye(C)[labels] + s**0.5 * rng.normal(size=(BAGS * K, C)))
    return logits.log_softmax(-1).numpy(), Bags.from_labels(labels, [K] * BAGS, n_classes=C)


def nanoseconds(call: Callable[[], object]) -> float:
    """The least processor time of a call, of several, by the number of bags."""
    call()
    found = []
    for _ in range(REPEATS):
        started = time.thread_time_ns()
        call()
        found.append(time.thread_time_ns() - started)
    return min(found) / BAGS


def fitted(rows: list[np.ndarray], times: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Constants, and the ratio of what they tell to what was measured."""
    design, measured = np.array(rows), np.array(times)
    constants, _ = nnls(design / measured[:, None], np.ones(len(measured)))
    return constants, design @ constants / measured


def of_engines() -> None:
    """Print the constants of both engines."""
    rng = np.random.default_rng(0)
    rows: dict[str, list[np.ndarray]] = {"EXACT": [], "BETHE": []}
    times: dict[str, list[float]] = {"EXACT": [], "BETHE": []}
    for C in CLASSES:
        for K in SIZES:
            for s in SURENESS:
                log_p, bags = informed(rng, K, C, s)
                if is_pair(bags).any():
                    continue
                of_exact, of_bethe = terms(bags)
                answer, every = (np.empty(BAGS), np.empty(log_p.shape)), np.arange(BAGS)
                states = lattice_states(bags)
                if states.max() <= MOST_STATES and s == SURENESS[0]:
                    rows["EXACT"].append(of_exact.mean(0))
                    times["EXACT"].append(
                        nanoseconds(lambda: fill_exact(every, states, log_p, bags, *answer))  # noqa: B023
                    )
                rows["BETHE"].append(of_bethe.mean(0))
                times["BETHE"].append(
                    nanoseconds(lambda: fill_bethe(every, log_p, bags, *answer))  # noqa: B023
                )
    for engine, measured in times.items():
        constants, ratio = fitted(rows[engine], measured)
        quantiles = np.quantile(ratio, [0, 0.1, 0.5, 0.9, 1])
        print(f"{engine} = ({', '.join(f'{x:.3g}' for x in constants)})")
        print("    told by measured, quantiles 0, .1, .5, .9, 1:", *(f"{x:.2f}" for x in quantiles))


def of_pruned() -> None:
    """Print the cost of a state and class of the pruned lattice, where all states are used up."""
    rng, most = np.random.default_rng(0), np.full(BAGS, 2.0**11)
    for K, C, s in PRUNED:
        log_p, bags = informed(rng, K, C, s)
        answer = np.empty(BAGS), np.empty(log_p.shape), np.empty(BAGS)
        left = fill_pruned(np.arange(BAGS), log_p, bags, *answer, most)
        A = (bags.counts > 0).sum(1).mean()
        took = nanoseconds(lambda: fill_pruned(np.arange(BAGS), log_p, bags, *answer, most))  # noqa: B023
        spent = took / most[0] / A
        print(f"PRUNED_STATE: K {K}, C {C}: {spent:.1f} if all were used, in {len(left)}/{BAGS}")


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RuntimeWarning)  # of bags that do not converge
    of_engines()
    of_pruned()


if __name__ == "__main__":
    main()
