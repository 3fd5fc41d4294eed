"""How methods are called, ordered and colored, the same in every table and figure.

A method's class says so; of a method that is not known here, its name is all there is.
"""

from __future__ import annotations

from zlib import crc32

from bagwise.methods import METHODS, Method

_OTHERS = ("#c1121f", "#00798c", "#6a4c93", "#3d405b", "#b56576", "#588157")


def look(method: str) -> type[Method]:
    """The class of a method, or `Method` itself of one that is not known here."""
    return METHODS.get(method, Method)


def title(method: str) -> str:
    """A method's name for people.

    >>> title("rc_approx"), title("unheard_of")
    ('RC_Approx', 'unheard_of')
    """
    return look(method).title or method


def color(method: str) -> str:
    """Of a method's curves."""
    return look(method).color or _OTHERS[crc32(method.encode()) % len(_OTHERS)]


def is_baseline(method: str) -> bool:
    """Whether the paper's own methods are compared with this one."""
    return not (look(method).proposed or look(method).needs_labels)
