"""Ecological inference: who voted for whom, from the counts of groups and of votes in units.

`ecological_table` estimates the share of each party within each group, with intervals, and the
table of every unit.
"""

from bagwise.ecological.vote_table import EcologicalTable, ecological_table

__all__ = ["EcologicalTable", "ecological_table"]
