"""The workers of a cluster as the driver sees them; one that dies is replaced, and its work done
again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from bagwise.bags import IntArray
from bagwise.errors import BagwiseError, InputError, Option
from bagwise.ray_cluster import ATTEMPTS
from bagwise.tables.cluster.folders import remove_folders

_CHUNK = 1 << 23  # bytes of rows that are sent at a time
_AHEAD = 2  # chunks that are on their way to a worker
_PATIENCE = 10  # seconds that workers have to remove their files


class _LostError(Exception):
    """Workers that have died meanwhile."""

    def __init__(self, lost: list[int]) -> None:
        super().__init__(lost)
        self.lost = lost


class Workers:
    """Actors of Ray, each a `Worker`. Bags are dealt to them by `settle`, in their order.

    Args:
        n: how many.
        place: the folder on each machine for their rows; None for that of temporary files.
    """

    def __init__(self, n: int, place: Path | None = None) -> None:
        self._place = None if place is None else place.absolute()
        self._job = f"bagwise-{uuid.uuid4().hex[:12]}"
        self._deaths, self._vain = [0] * n, 0
        self._done: list[tuple[str, Mapping[int, tuple[Any, ...]]]] = []
        self._dealing: tuple[Any, ...] = ()
        self._settled: dict[int, tuple[Any, ...]] = {}
        self._actors = [self._started(cores=1) for _ in range(n)]

    def __len__(self) -> int:
        return len(self._actors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what workers have on their disks, and end them."""
        import ray

        ended = [actor.close.remote() for actor in self._actors]
        ray.wait(ended, num_returns=len(ended), timeout=_PATIENCE)
        for actor in self._actors:
            ray.kill(actor)
        remove_folders(self._place, self._job)

    def each(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """What a method of these workers returns, in their order."""
        found: dict[int, Any] = {}
        while left := {i: own for i, own in arguments.items() if i not in found}:
            try:
                found |= self._called(method, left)
            except _LostError as error:
                self._restore(error.lost)
        return [found[i] for i in arguments]

    def put(self, value: Any) -> Any:
        """A value that workers are given more than once, sent to each machine only once."""
        import ray

        return ray.put(value)

    def prepare(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """The same of what a new worker has to do, too."""
        found = self.each(method, arguments)
        self._done.append((method, arguments))
        return found

    def gathered(
        self, method: str, arguments: Mapping[int, tuple[Any, ...]], then: str, *more: Any
    ) -> Any:
        """What a method of the first of these workers says of what others have told it alone.

        Args:
            method: of each, whose result goes to the first one.
            then: of the first one, called with `more` and these results.
        """
        first = next(iter(arguments))
        return self.together(method, arguments, then, {first: more})[first]

    def together(
        self,
        method: str,
        arguments: Mapping[int, tuple[Any, ...]],
        then: str,
        more: Mapping[int, tuple[Any, ...]],
    ) -> dict[int, Any]:
        """What a method of several says, called with `more` and what others have told them; from
        the beginning if one of them dies.
        """
        while True:
            parts = [getattr(self._actors[i], method).remote(*own) for i, own in arguments.items()]
            try:
                return self._called(then, {i: (*own, *parts) for i, own in more.items()})
            except _LostError as error:
                self._restore(error.lost)

    def settle(
        self, columns: Any, begins: IntArray, width: int, bags: Mapping[int, tuple[Any, ...]]
    ) -> None:
        """Send all rows to those who keep their bags.

        Args:
            columns: how rows are encoded, into so many numbers.
            begins: the first bag of each worker, and, last, the number of bags.
            bags: of each worker that has some, arguments of `Worker.settle`.
        """
        self._dealing = columns, begins, width
        self._deal(bags)

    # --- workers that die

    def _started(self, cores: int) -> Any:
        import ray

        from bagwise.tables.cluster.worker import Worker

        actor = ray.remote(Worker).options(
            num_cpus=cores, scheduling_strategy="SPREAD", max_restarts=0
        )
        return actor.remote(Path.cwd(), self._place, self._job)

    def _called(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What a method returns by worker; the first of several errors is raised."""
        return self._results(
            {i: getattr(self._actors[i], method).remote(*own) for i, own in arguments.items()}
        )

    def _results(self, calls: Mapping[Any, Any]) -> dict[Any, Any]:
        import ray

        found, wrong, is_lost = {}, [], False
        for name, call in calls.items():
            try:
                found[name] = _get(call)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, ray.exceptions.RayError):
                    is_lost = True  # another worker's result never came
                else:
                    wrong.append(error.cause)
            except ray.exceptions.RayError:
                is_lost = True
        if is_lost:
            dead = self._dead()
            self._vain = 0 if dead else self._vain + 1
            if self._vain >= ATTEMPTS:
                raise InputError(
                    f"Ray has lost results of workers {ATTEMPTS} times, though none of them died; "
                    "look at the logs in /tmp/ray."
                )
            raise _LostError(dead)
        if wrong:
            raise next((e for e in wrong if isinstance(e, BagwiseError)), wrong[0])
        return found

    def _dead(self) -> list[int]:
        import ray

        calls = [actor.ping.remote() for actor in self._actors]
        dead = []
        for i, call in enumerate(calls):
            try:
                _get(call)
            except ray.exceptions.RayError:
                dead.append(i)
        return dead

    def _replace(self, lost: Iterable[int]) -> None:
        """Start new ones, and have them do what is to be done before rows are dealt."""
        import ray

        waiting = set(lost)
        while waiting:
            for i in waiting:
                self._deaths[i] += 1
                if self._deaths[i] >= ATTEMPTS:
                    raise InputError(
                        f"a worker died {ATTEMPTS} times; out of memory? Give more machines, "
                        "fewer ",
                        Option("workers"),
                        " on each, or less ",
                        Option("memory"),
                        ".",
                    )
                # Where a machine is gone, its workers have to share cores with the others.
                free = ray.available_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
                self._actors[i] = self._started(cores=min(int(free), 1))
            try:
                for method, arguments in self._done:
                    self._called(method, {i: arguments[i] for i in waiting if i in arguments})
                return
            except _LostError as error:
                waiting |= set(error.lost)

    def _restore(self, lost: list[int]) -> None:
        """Replace them, and deal them their bags, if that has been done."""
        self._replace(lost)
        self._deal({i: self._settled[i] for i in lost if i in self._settled})

    def _deal(self, bags: Mapping[int, tuple[Any, ...]]) -> None:
        left = dict(bags)
        while left:
            try:
                self._deal_once(left)
                break
            except _LostError as error:
                self._replace(error.lost)
                left |= {i: self._settled[i] for i in error.lost if i in self._settled}
        self._settled |= left

    def _deal_once(self, bags: Mapping[int, tuple[Any, ...]]) -> None:
        columns, begins, width = self._dealing
        everyone = range(len(self))
        receivers = list(bags)
        rows = self._called("deal", dict.fromkeys(everyone, (columns, begins, receivers)))
        self._called("begin_to_take", dict.fromkeys(receivers, ()))
        step = max(_CHUNK // (4 * (width + 1)), 1)
        waiting = {i: self._chunks(i, rows, step) for i in receivers}
        on_the_way: dict[int, list[Any]] = {i: [] for i in receivers}
        while waiting:
            for i in list(waiting):
                if len(on_the_way[i]) >= _AHEAD:
                    self._results({i: on_the_way[i].pop(0)})
                if (chunk := next(waiting[i], None)) is None:
                    del waiting[i]
                    continue
                giver, begin, end = chunk
                sent = self._actors[giver].give.remote(i, width, begin, end)
                on_the_way[i].append(self._actors[i].take.remote(giver, sent))
        for calls in on_the_way.values():
            self._results(dict(enumerate(calls)))
        self._called("forget_dealt", dict.fromkeys(everyone, ()))
        self._called("settle", bags)

    def _chunks(self, receiver: int, rows: Mapping[int, Mapping[int, int]], step: int) -> Any:
        """Giver, first and last row of each chunk; each receiver begins with another giver."""
        for giver in np.roll(np.arange(len(self)), -receiver).tolist():
            n = rows[giver][receiver]
            for begin in range(0, n, step):
                yield giver, begin, min(begin + step, n)


def _get(call: Any) -> Any:
    """What a call of a worker returned: all that ever comes to the driver."""
    import ray

    return ray.get(call)
