"""How many labels of single rows published counts give away."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from bagwise.bags import Bags, FloatArray, Groupings, IntArray
from bagwise.bags.possible_labels import possible_labels
from bagwise.checks import number
from bagwise.errors import InputError, InputTypeError
from bagwise.posterior.auto import AUTO_STATES, auto_posterior
from bagwise.posterior.joint import posterior_of_groupings
from bagwise.wording import counted

_PROGRAM = 5000  # labels (row patterns times classes) up to which the linear program is quick


@dataclass(frozen=True)
class Disclosure:
    """What a reader of published counts knows of single rows; see `disclosure`.

    Attributes:
        level: from which probability on a label counts as known.
        weights: (N, C) each row's posterior given all counts.
        sure: (N,) rows of which a label is more probable than `level`.
        sure_before: (N,) the same by `log_probs` alone, without the counts.
        proved: (N,) the label that no other labels of the rows leave a doubt about; -1 where two
            are possible, or are not proved to be impossible.
        copies: (N,) how many people each row stands for; 0 where the label was given.
        complete: whether `proved` has all that can be proved from the counts.
        converged: whether the posterior has settled, see `JointPosterior`.

    >>> found = disclosure(np.log([0.5, 0.5]), Bags([3, 3], [[3, 0], [2, 1]]))
    >>> found.sure, found.share_sure
    (array([ True,  True,  True, False, False, False]), 0.5)
    """

    level: float
    weights: FloatArray
    sure: npt.NDArray[np.bool_]
    sure_before: npt.NDArray[np.bool_]
    proved: IntArray
    copies: IntArray
    complete: bool
    converged: bool

    @property
    def share_sure(self) -> float:
        """The share of people whose label is more probable than `level`."""
        return float(np.average(self.sure, weights=self.copies))

    @property
    def share_proved(self) -> float:
        """The share of people whose label is proved."""
        return float(np.average(self.proved >= 0, weights=self.copies))

    def __str__(self) -> str:
        people = int(self.copies.sum())
        n_sure, n_before, n_proved = (
            int(self.copies[rows].sum()) for rows in (self.sure, self.sure_before, self.proved >= 0)
        )
        lines = [
            f"Of {counted(people, 'row', 'rows')}, the counts give away:",
            f"  {n_sure:,} labels ({n_sure / people:.1%}) with a probability above "
            f"{self.level:.0%}; without the counts it would be {n_before:,}",
            f"  {n_proved:,} labels ({n_proved / people:.1%}) for certain, whatever one believes"
            + ("." if self.complete else "; there may be more, which were not proved."),
        ]
        if not self.converged:
            lines.append("The probabilities are approximate: messages did not settle.")
        return "\n".join(lines)


def disclosure(
    log_probs: npt.ArrayLike,
    counts: Bags | Groupings,
    *,
    level: float = 0.99,
    by_program: bool | None = None,
) -> Disclosure:
    """Find out how many labels of single rows published counts reveal.

    A label is given away with some probability if a reader who knows `log_probs` of the rows and
    all counts holds it for more probable than `level`. It is proved if no labels of the rows have
    all counts and another label there: then it does not matter what the reader believes.

    Args:
        log_probs: what a reader knows of the rows without the counts: (N, C) log-probabilities of a
            model, or (C,) of the classes for a reader who knows no more than overall shares.
        counts: what is published: `Groupings` of the N rows, or one partition of them. Noisy counts
            prove nothing, but may make labels probable. Rows whose label is given with them
            (`Bags.with_labels`) are not counted.
        level: from which probability on a label counts as known.
        by_program: prove by a linear program as well as by bounds, see `possible_labels`. None does
            so for up to 5,000 undecided labels of rows in different bags; True may take minutes.

    >>> line, column = np.arange(9) // 3, np.arange(9) % 3
    >>> by_line = Bags([3, 3, 3], [[3, 0], [2, 1], [1, 2]])
    >>> print(disclosure(np.log([0.5, 0.5]), by_line))
    Of 9 rows, the counts give away:
      3 labels (33.3%) with a probability above 99%; without the counts it would be 0
      3 labels (33.3%) for certain, whatever one believes.
    >>> both = Groupings({"line": (line, by_line),
    ...                   "column": (column, Bags([3, 3, 3], [[3, 0], [2, 1], [1, 2]]))})
    >>> disclosure(np.log([0.5, 0.5]), both).proved
    array([0, 0, 0, 0, 0, 1, 0, 1, 1])
    """
    number(0.5, below=1)(level, "level")
    if isinstance(counts, Bags):
        counts = Groupings({"bag": (np.repeat(np.arange(len(counts)), counts.sizes), counts)})
    if not isinstance(counts, Groupings):
        raise InputTypeError(
            f"counts is a {type(counts).__name__}; bagwise.Bags or bagwise.Groupings is expected."
        )
    N, C = counts.n_instances, counts.n_classes
    given = np.asarray(log_probs, dtype=np.float64)
    if given.shape not in ((C,), (N, C)):
        raise InputError(
            f"log_probs has shape {given.shape}; ({N}, {C}) is expected, or ({C},) for rows of "
            "which nothing is known."
        )
    log_p = log_softmax(np.broadcast_to(given, (N, C)), axis=1)
    none = np.zeros((len(counts), N, C))  # with messages given, nobody is warned
    engine = partial(auto_posterior, max_states=AUTO_STATES)
    found = posterior_of_groupings(engine, log_p, counts, messages=none)
    bounded = counts.possible
    n_open = int(bounded[bounded.sum(axis=1) > 1].sum())
    use_program = n_open <= _PROGRAM if by_program is None else by_program
    possible = possible_labels(counts) if use_program else bounded
    unknown = np.ones(N, np.bool_) if counts.row_labels is None else counts.row_labels < 0
    if not unknown.any():
        raise InputError("the labels of all rows are given; there is nothing to give away.")
    is_proved = (possible.sum(axis=1) == 1) & unknown
    of_two = C == 2 and len(counts) == 2 and use_program
    return Disclosure(
        level=level,
        weights=found.weights,
        sure=((found.weights.max(axis=1) > level) & unknown) | is_proved,
        sure_before=(np.exp(log_p).max(axis=1) > level) & unknown,
        proved=np.where(is_proved, possible.argmax(axis=1), -1),
        copies=np.where(unknown, counts.copies, 0),
        complete=bool(len(counts) == 1 or n_open == 0 or of_two),
        converged=found.converged,
    )
