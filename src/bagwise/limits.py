"""Sizes at which Bagwise changes how it works, in one value that is passed to what decides by them.

Users need not set them. Tests pass smaller ones, so that a small table counts as a large one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes that decide how something is computed.

    Attributes:
        cross_validated: instances up to which every bag is held out once, in turn.
        few_bags: with fewer bags than these, that holds up to more instances.
        linear_cells: rows times columns that a linear model is fitted to as a whole, in double
            precision and more than once in memory.
        linear_cells_at_once: cells that are read at a time where there are more than those.
        batch_rows: rows of a table that are read at a time.
        csv_block_bytes: bytes of a CSV file that are read at a time.
        tracked_texts: different texts of a column that are counted; beyond, the rarest are dropped.
        column_bytes: memory that a column takes, of a budget, while it is learned what it means.
        probability_bytes: memory that the probability of a class takes, of a budget, while held-out
            bags are judged.
        sorting_part: rows that are sorted at a time take one part in so many of a budget.
        moved_bytes: bytes of sorted rows that are moved at a time.
        noted_bytes: bytes of rows after which it is noted how far sorting has come.
        selection_part: bags are read at once if they take one part in so many of a budget.
        state_bytes: bytes up to which what methods keep of stored rows is in memory, not in a file.
        importance_rows: rows of the bags by which the importance of columns is measured.
        dense_bytes: bytes that sparse rows may take when they are made dense for training.
        dense_piece_bytes: bytes of sparse rows that are made dense at a time for prediction.
        step_bytes: memory that a training step may keep for its backward pass: what 256 images of
            32 x 32 take in `convnet`.
        observed_steps: elementary steps of the observed information up to which it is used for
            intervals,
        evidence_steps: and for each prior that is tried.
        proof_states: states that may be spent on bags whose posterior is to be proved.

    >>> Limits(cross_validated=0).few_bags
    50
    """

    cross_validated: int = 50_000
    few_bags: int = 50
    linear_cells: int = 20_000_000
    linear_cells_at_once: int = 1_000_000
    batch_rows: int = 65_536
    csv_block_bytes: int = 8 << 20
    tracked_texts: int = 1_000_000
    column_bytes: int = 500_000
    probability_bytes: int = 64
    sorting_part: int = 4
    moved_bytes: int = 1 << 22
    noted_bytes: int = 1 << 28
    selection_part: int = 8
    state_bytes: int = 1 << 20
    importance_rows: int = 50_000
    dense_bytes: int = 1 << 30
    dense_piece_bytes: int = 1 << 26
    step_bytes: int = 1 << 31
    observed_steps: float = 2e9
    evidence_steps: float = 2e6
    proof_states: float = 2.0**31


LIMITS = Limits()
