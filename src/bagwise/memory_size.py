"""How much memory may be used, as people write it, and how much there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bagwise.errors import InputError, Option, UsageError

LEAST = 64_000_000  # bytes, below which nothing can be done
_MOST = 2**63
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b", re.IGNORECASE)
_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def bytes_of(text: str | int) -> int:
    """A number of bytes, from text such as 2GB, 500 MB or 1.5GiB.

    KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB are powers of 1024.

    >>> bytes_of("2GB"), bytes_of("1.5 GiB")
    (2000000000, 1610612736)
    """
    if isinstance(text, int) and not isinstance(text, bool):
        size = text
    else:
        found = _SIZE.fullmatch(str(text).strip())
        if found is None:
            raise UsageError(
                Option("memory"),
                f" is {str(text)!r}; a size such as 500MB, 2GB or 1.5GiB is expected.",
            )
        unit = (found[2] or "").lower()
        wanted = float(found[1]) * {**_UNITS, **_BINARY}[unit]
        if wanted >= _MOST:
            raise UsageError(
                Option("memory"),
                f" is {text}, which no machine has; a size such as 500MB or 2GB is expected.",
            )
        size = round(wanted)
    if size < LEAST:
        raise UsageError(Option("memory"), f" is {text}; at least {shown_size(LEAST)} are needed.")
    return size


def shown_size(size: float) -> str:
    """Bytes, for people.

    >>> shown_size(2_160_000_000), shown_size(64_000_000), shown_size(900)
    ('2.2 GB', '64 MB', '900 B')
    """
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= factor:
            digits = 1 if size < 10 * factor else 0
            return f"{size / factor:.{digits}f} {unit}".replace(".0 ", " ")
    return f"{size:.0f} B"


def free_memory() -> int | None:
    """Bytes that this process can still get; None where the system does not say.

    That is what the machine has, swap included, or what the limit of a container or a batch system
    leaves (control groups of Linux), if that is less.
    """
    found = [*_left_in_groups()]
    try:
        parts = (x.partition(":") for x in (_PROC / "meminfo").read_text().splitlines())
        numbers = {name: int(rest.split()[0]) * 1024 for name, _, rest in parts}
        found.append(numbers["MemAvailable"] + numbers.get("SwapFree", 0))
    except (OSError, KeyError, ValueError, IndexError):
        pass
    return min(found, default=None)


def _left_in_groups(proc: Path = _PROC, groups: Path = _GROUPS) -> Iterator[int]:
    """What the limit of each group leaves that this process is in, those above it included."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # the second version of groups has one tree for all
            top, names = groups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top = groups / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = Path(path.lstrip("/"))
        for group in (own, *own.parents):
            yield from _left(top / group, *names)


def _left(group: Path, limit: str, used: str, cache: str) -> Iterator[int]:
    """What a group's limit leaves, if it has one: files that were read can be forgotten."""
    try:
        most, now = (int((group / name).read_text()) for name in (limit, used))
        stat = dict(x.split() for x in (group / "memory.stat").read_text().splitlines())
        yield max(most - now + int(stat[cache]), 0)
    except (OSError, KeyError, ValueError):  # there is no such group, or "max" is not a number
        return


def refuse_more_than_memory(size: int, what: str) -> None:
    """Raise a ValueError where so many bytes cannot be in memory."""
    free = free_memory()
    if free is not None and size > free:
        some = shown_size(max(free // 2, LEAST)).replace(" ", "")
        raise InputError(
            f"{what} takes {shown_size(size)} in memory, and {shown_size(free)} are free; say how "
            "much may be used, for instance ",
            Option("memory", some),
            ": the rows are then sorted into a file and learned from there.",
        )
