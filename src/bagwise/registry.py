"""What can be chosen by name: own things, those a module registers, those installed packages bring.

A package says in its metadata what it brings, one entry point a name::

    [project.entry-points."bagwise.methods"]
    cc_entropy = "my_package.methods:CCEntropy"

A module that is not installed is imported by `load_plugins`, as `bagwise --plugin my_module` does;
its `register` calls do the rest. Processes that are started from here import it too.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from bagwise.errors import InputError, InputTypeError, Option

PLUGINS = "BAGWISE_PLUGINS"  # names of modules with commas between, for processes started from here

T = TypeVar("T")
_D = TypeVar("_D")


class UnknownNameError(InputError, KeyError):
    """There is nothing of that name."""


class Registry(MutableMapping[str, T], Generic[T]):
    """Names and what they stand for, of one kind.

    A name that is not known yet is looked for in the plugins of this process and in the entry
    points of installed packages. To take a name that exists is an error; only what has the same
    module and qualified name may take it again, as when a notebook's cell is run twice.

    Args:
        kind: what the things are, for messages: "method".
        group: of entry points.

    >>> shapes = Registry[type]("shape", "example.shapes")
    >>> @shapes.register("round")
    ... class Ball: ...
    >>> shapes["round"].__name__
    'Ball'
    >>> shapes["square"]
    Traceback (most recent call last):
    bagwise.registry.UnknownNameError: shape is 'square'; choose one of round.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._known: dict[str, T] = {}

    def register(self, name: str) -> Callable[[_D], _D]:
        """Decorator: make a class or a function known by that name."""
        self._check_name(name)

        def enter(thing: _D) -> _D:
            self[name] = thing  # type: ignore[assignment]  # which `__setitem__` checks
            return thing

        return enter

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[^\W\d_][\w-]*", name):
            raise InputError(
                f'a {self.kind} is registered as {name!r}; write @register("name") with a name of '
                "letters, digits, underscores and hyphens that begins with a letter."
            )

    def __setitem__(self, name: str, thing: T) -> None:
        self._check_name(name)
        if not callable(thing):
            raise InputTypeError(f"{thing!r} is registered as a {self.kind}; it cannot be called.")
        for known, other in self._known.items():
            if known == name and _place(other) != _place(thing):
                raise InputError(
                    f"there is a {self.kind} {name!r} already, {_place(other)}; "
                    "choose another name."
                )
            if known != name and other is thing:
                raise InputError(
                    f"{_place(thing)} is registered as {known!r} already; it has one name."
                )
        self._known[name] = thing

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str) or name not in self:
            names = ", ".join(self)
            raise UnknownNameError(Option(self.kind), f" is {name!r}; choose one of {names}.")
        if name not in self._known:
            point = self._offered()[name]
            try:
                thing = point.load()
            except Exception as error:  # whatever a stranger's module does
                raise InputError(
                    f"the {self.kind} {name!r} of {_package(point)} cannot be loaded "
                    f"({type(error).__name__}: {error}); update or remove that package."
                ) from error
            if name not in self._known:  # its own `register` may have been called by now
                self[name] = thing
        return self._known[name]

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        if name in self._known:
            return True
        if not isinstance(name, str):
            return False
        load_plugins()
        return name in self._known or name in self._offered()

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter([*self._known, *(name for name in self._offered() if name not in self._known)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _offered(self) -> dict[str, EntryPoint]:
        """What installed packages bring; a name that is taken is an error."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            own = self._known.get(point.name)
            taken = own is not None and _place(own) != point.value.replace(":", ".")
            if taken or found.get(point.name, point).value != point.value:
                other = _place(own) if taken else found[point.name].value
                raise InputError(
                    f"{_package(point)} brings a {self.kind} {point.name!r}, but there is one "
                    f"already, {other}; rename one of them or remove the package."
                )
            found[point.name] = point
        return found


def load_plugins(modules: Iterable[str] = ()) -> None:
    """Import modules that register things, now and in the processes that are started from here.

    They are also looked for in the current folder.

    Args:
        modules: names such as `my_methods` or `my_package.methods`.
    """
    known = [name for name in os.environ.get(PLUGINS, "").split(",") if name]
    wanted = [*known, *(name for name in modules if name not in known)]
    for name in wanted:
        if name in sys.modules:  # also while it is being imported, and registers something
            continue
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever a stranger's module does
            raise InputError(
                f"the plugin {name!r} cannot be imported ({type(error).__name__}: {error}); a "
                "module is expected that lies in the current folder or is installed, without "
                "the .py of its file."
            ) from error
    if wanted != known:
        os.environ[PLUGINS] = ",".join(wanted)


def _place(thing: object) -> str:
    return f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', repr(thing))}"


def _package(point: EntryPoint) -> str:
    return "an installed package" if point.dist is None else f"the package {point.dist.name!r}"
