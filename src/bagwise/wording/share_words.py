"""Shares of groups in English: how wrong they could be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bagwise.wording import counted, one_line

if TYPE_CHECKING:
    from bagwise.tables.use.estimate import GroupShare

_MOST = 4  # groups that are named
_LONGEST = 40  # letters of a group

ROBUSTNESS = (
    "Robustness: how strong a hidden difference between bags must be to bring the share to that of "
    "all rows. It is the percentage that the hidden difference must explain, both of what the "
    "model misses in the bags' counts and of how bags differ in these rows."
)


def robustness(found: Sequence[GroupShare]) -> list[str]:
    """What robustness is, and how strong the columns of the model would be; empty without it."""
    if not found or found[0].robustness is None:
        return []
    named = [s.strongest for s in found if s.strongest is not None]
    if not named:
        return [ROBUSTNESS]
    name, strength = max(named, key=lambda pair: pair[1])
    return [
        f"{ROBUSTNESS} For comparison, the column {name!r}, if it were hidden, would reach up to "
        f"{100 * strength:.0f}%."
    ]


def notes(found: Sequence[GroupShare]) -> list[str]:
    """What to be careful about, a sentence each."""
    said = []
    untold = list(dict.fromkeys(s.group for s in found if s.hardly_told))
    if untold:
        said.append(
            f"The bags say little about {_groups(untold)}: the share there depends on the prior."
        )
    labels = list(dict.fromkeys(s.label for s in found))
    shown = labels[1:] if len(labels) == 2 else labels  # the other class is the mirror image
    wrong = [s for s in found if s.is_contradicted and s.label in shown]
    for sign, direction in ((1, "more"), (-1, "fewer")):
        own = [s for s in wrong if (s.misfit or 0.0) * sign > 0]
        for label in dict.fromkeys(s.label for s in own):
            groups = [s.group for s in own if s.label == label]
            said.append(
                f"The counts contradict the model about {_groups(groups)}: bags with many of these "
                f"rows have {direction} {label!r} than it expects. These shares are likely too "
                f"{'low' if sign > 0 else 'high'}."
            )
    unproved = _rows(found, "approximate")
    if unproved:
        said.append(
            f"The posterior given the counts is approximate, not proved, for "
            f"{counted(unproved, 'row', 'rows')}."
        )
    return said


def _rows(found: Sequence[GroupShare], name: str) -> int:
    """The sum of a number of rows over groups, each of which has a line for each class."""
    return sum({s.group: getattr(s, name) or 0 for s in found}.values())


def _groups(groups: Sequence[tuple[str, ...]]) -> str:
    names = [one_line(", ".join(group), _LONGEST) for group in groups[:_MOST]]
    more = f" and {len(groups) - _MOST} more groups" if len(groups) > _MOST else ""
    return ", ".join(map(repr, names)) + more
