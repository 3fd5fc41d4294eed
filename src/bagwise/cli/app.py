"""The application that commands are added to, and what they share."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import platform
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar, get_type_hints

import typer
from rich.console import Console, ConsoleDimensions
from rich.text import Text
from typer.core import TyperCommand, TyperGroup, TyperOption

from bagwise import __version__
from bagwise.cli.config_file import options_in
from bagwise.cli.messages import worded
from bagwise.errors import BagwiseError, UsageError, harmless, is_lack_of_memory
from bagwise.extras import require
from bagwise.progress import say_remarks
from bagwise.registry import load_plugins
from bagwise.storage.uris import masked

USAGE, DATA = 2, 3
"""Exit codes: the command line is wrong, or what it names is."""
_LESS_MEMORY = {
    "fit": "Say how much to use, --memory 2GB for one, which keeps the rows on the disk; or give "
    "fewer rows or columns.",
    "train": "Use a smaller model, smaller bags or a smaller --batch-instances.",
    "sweep": "Use fewer --processes, or smaller models, bags or batch_instances.",
}


def _bug() -> str:
    """What to do about an error that no user's mistake explains."""
    return (
        f"This is a bug in Bagwise {__version__}, or in a plugin. Please report it with the text "
        f"above, Python {platform.python_version()} on {platform.system()}, and the command: "
        f"{harmless(masked(shlex.join(['bagwise', *sys.argv[1:]])))}"
    )


class Sections(TyperGroup):
    """Help with a heading for each group of commands, on a terminal and without one."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; say what Ctrl-C, too little memory or a bug mean wherever they come."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if not _debug and is_lack_of_memory(error):
                reason = " ".join(str(error).split()) or "an allocation failed"
                todo = _LESS_MEMORY.get(ctx.invoked_subcommand, "Give fewer rows at a time.")
                typer.echo(f"Error: there is not enough memory ({reason}). {todo}", err=True)
                raise typer.Exit(DATA) from error
            if not isinstance(error, BagwiseError | OSError):
                error.add_note(_bug())
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in the order in which they were added, below their headings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        room = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            rows = sections.setdefault(getattr(command, "rich_help_panel", ""), [])
            rows.append(
                (name.ljust(max(map(len, self.commands))), command.get_short_help_str(room))
            )
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class OneValue(TyperCommand):
    """A command that refuses an option given twice, where only one value of it would count."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look for repeated options before the values are read."""
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        given = [param for param in order if isinstance(param, TyperOption)]
        for param in dict.fromkeys(given):
            same_each_time = param.is_flag and not param.secondary_opts
            if given.count(param) > 1 and not (param.multiple or same_each_time):
                ctx.fail(
                    f"{max(param.opts, key=len)} is given {given.count(param)} times, and only the "
                    "last one would count. Give it once; several columns have commas between."
                )
        if values.get("config") and not values.get("data"):
            # Not every version of click looks for arguments among the options of a file.
            known = [str(param.name) for param in self.params]
            with user_errors():
                args = [*args, *options_in(Path(values["config"]), known).get("data", [])]
        return super().parse_args(ctx, args)


_Function = TypeVar("_Function", bound=Callable[..., Any])
_QUIET = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
_JSON = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


class _App(typer.Typer):
    """All commands are of the same class, and have options in common."""

    def command(
        self, *args: Any, has_json: bool = False, **options: Any
    ) -> Callable[[_Function], _Function]:
        """The decorator that adds a command.

        Args:
            args: see `typer.Typer.command`.
            has_json: whether the command calls `output.result`.
            options: see `typer.Typer.command`.
        """
        common = {"quiet": _QUIET, **({"as_json": _JSON} if has_json else {})}
        add = super().command(*args, cls=OneValue, **options)

        def decorate(function: _Function) -> _Function:
            @wraps(function)
            def run(*given: Any, **named: Any) -> Any:
                output.begin(**{name: named.pop(name) for name in common})
                say_remarks(output.for_people)
                return function(*given, **named)

            hints = get_type_hints(function, include_extras=True)  # typer would not look for them
            own = [
                parameter.replace(annotation=hints[name])
                for name, parameter in inspect.signature(function).parameters.items()
            ]
            more = [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=x)
                for name, x in common.items()
            ]
            run.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
            run.__annotations__ = {**hints, **common}
            add(run)
            return function

        return decorate


app = _App(
    cls=Sections,
    help="Learning from label proportions: classify instances when labels are known only per bag.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Output:
    """What a command prints, as its options want it: for people, for programs, or nothing."""

    def __init__(self) -> None:
        self.begin()

    def begin(self, quiet: bool = False, as_json: bool = False) -> None:
        """A command begins."""
        self.quiet, self.as_json, self.to_stderr = quiet, as_json, False

    @property
    def for_people(self) -> bool:
        """Whether tables and sentences are printed."""
        return not (self.quiet or self.as_json)

    def note(self, text: str) -> None:
        """Tell people something on the error stream, unless they want quiet."""
        if not self.quiet:
            typer.echo(f"Note: {harmless(text)}", err=True)

    def result(self, facts: object) -> None:
        """Print facts as JSON, if they are asked for."""
        if self.as_json:
            typer.echo(json.dumps(plain(facts), indent=1, allow_nan=False))

    def place(self, out: Path) -> Path | IO[bytes]:
        """Where data go: to a file, or for - to standard output; what is for people is then on the
        error stream.
        """
        if str(out) != "-":
            return out
        if self.as_json:
            raise UsageError("--json and --out - both write to standard output; leave one out.")
        self.to_stderr = True
        return sys.stdout.buffer

    def data(self, text: str) -> None:
        """Print data on standard output; what is for people goes to the error stream."""
        self.to_stderr = True
        typer.echo(text, nl=False)


output = Output()


def plain(value: object) -> Any:
    """Facts as JSON can hold them: dataclasses as objects, arrays as lists, NaN as null.

    >>> import numpy as np
    >>> plain({"shares": np.array([0.5, np.nan]), "n": np.int64(3)})
    {'shares': [0.5, None], 'n': 3}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if hasattr(value, "tolist"):  # of numpy, which help need not import
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


_NARROWEST = 64


class _Console(Console):
    """Shows names from files as they are: brackets and colons are not markup. Narrow terminals wrap
    lines of tables, where columns would be cut.
    """

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print for people, where they want it and are looking."""
        if output.for_people:
            self.stderr = output.to_stderr
            super().print(*objects, **options)

    @property  # type: ignore[misc]  # nobody sets it
    def size(self) -> ConsoleDimensions:
        """Of the terminal, or what a table needs at least."""
        found = super().size
        return ConsoleDimensions(max(found.width, _NARROWEST), found.height)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is printed, also that of a cell, comes by here."""
        return super().render_str(harmless(text, line_breaks=True), **options)


console = _Console()

TABLES = "From a table to predictions"
EXPERIMENTS = "The paper's experiments"
_debug = False
GOES_ON = "Stopped. What is done is kept; rerun the command to resume."


@contextmanager
def user_errors(stopped: str | Callable[[], str] = "Stopped.") -> Iterator[None]:
    """A user's mistake is a message, never a traceback; a warning is a note.

    The exit code is 2 where the command line is wrong and 3 where the data are; 1 is a bug.

    Args:
        stopped: what is said after Ctrl-C, or a function that says it then.
    """
    try:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            yield
        for text in dict.fromkeys(worded(warning.message) for warning in noted):
            for line in text.split("\n"):  # one warning may have several notes
                output.note(line)
    except Exception as error:
        users = isinstance(error, BagwiseError | OSError) and not is_lack_of_memory(error)
        if _debug or not users or isinstance(error, BrokenPipeError):  # `| head` ends quietly
            raise
        typer.echo(f"Error: {harmless(' '.join(worded(error).split()))}", err=True)
        raise typer.Exit(USAGE if isinstance(error, UsageError) else DATA) from error
    except KeyboardInterrupt:
        typer.echo(stopped if isinstance(stopped, str) else stopped(), err=True)
        raise typer.Exit(130) from None  # as the shell has it


Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Option of the method. Can be repeated."),
]

Force = Annotated[
    bool, typer.Option("--force", help="Also replace files that this command did not write.")
]

Formulas = Annotated[
    bool,
    typer.Option(
        "--escape-formulas",
        help="In CSV, put ' before text that a spreadsheet would take for a formula (=, +, -, @).",
    ),
]

Ray = Annotated[bool, typer.Option("--ray", help="Use Ray on this machine.")]

RayAddress = Annotated[str | None, typer.Option(help="HOST:PORT of a Ray cluster to use.")]


def pairs_of(settings: list[str] | None, option: str = "--set") -> tuple[tuple[str, Any], ...]:
    """`options_of`, as pairs; a value may also be a list of numbers."""
    return tuple(options_of(settings, option, lists=True).items())


def options_of(
    settings: list[str] | None, option: str = "--set", lists: bool = False
) -> dict[str, Any]:
    """Options from NAME=VALUE; a value is a number, true, false or null, and text otherwise."""
    found: dict[str, Any] = {}
    for setting in settings or []:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"{option} is {setting!r}; NAME=VALUE is expected, epsilon=0.5 for one."
            )
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        is_text = isinstance(value, dict) or (isinstance(value, list) and not lists)
        found[name.strip()] = text if is_text else value
    return found


def on_ray(ray: bool, address: str | None, workers: int | None) -> bool:
    """Whether a command is to use Ray; its other options need that."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}; a number from 1 is expected.")
    if workers is not None and not (ray or address):
        raise UsageError("--workers says how many processes of Ray work; add --ray.")
    if ray or address:
        require("ray", "ray")
    return ray or address is not None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="Module with methods, networks, data sets, engines or augmentations. Can be "
            "repeated.",
        ),
    ] = None,
) -> None:
    """Options of every command."""
    global _debug
    _debug = debug
    if plugin:
        with user_errors():
            load_plugins(plugin)
