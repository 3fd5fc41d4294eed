"""The page of commands, from the options that the commands themselves declare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

from bagwise.cli import app as bagwise_app

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

PAGE = "reference/commands"


def commands() -> dict[str, Any]:
    """The commands by name, in the order of `bagwise --help`."""
    return dict(typer.main.get_command(bagwise_app).commands)  # type: ignore[attr-defined]


def _text(text: str) -> str:
    """Help as Markdown: what stands for itself in a terminal must not be taken for markup."""
    return re.sub(r"([*_<>\[\]|`$\\])", r"\\\1", " ".join(text.split()))


def _term(names: str) -> str:
    """How an option is given: `--bag <list[str]>` as `--bag TEXT`."""
    kind = re.search(r" <(?:list\[)?([^\]>]+)\]?>$", names)
    if kind is None:
        return f"`{names}`"
    word = "TEXT" if kind[1] == "str" else kind[1]
    return f"`{names[: kind.start()]} {word.upper() if word.isalpha() else word}`"


def _entry(param: Any, context: Any) -> str:
    """A parameter as an entry of a definition list."""
    names, text = param.get_help_record(context)
    return f"{_term(names)}\n: {_text(text)}\n"


def markdown_of(name: str, command: Any) -> str:
    """The section of a command."""
    context = command.context_class(command, info_name=f"bagwise {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    paragraphs = [_text(part) for part in (command.help or "").split("\n\n")]
    entries = [_entry(param, context) for param in command.get_params(context)]
    parts = [f"(bagwise-{name})=", f"## {name}", f"    bagwise {name} {usage}"]
    return "\n\n".join([*parts, *paragraphs, *entries])


def all_markdown() -> str:
    """Sections of all commands."""
    return "\n\n".join(markdown_of(name, command) for name, command in commands().items())


def _add(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == PAGE:
        source[0] += "\n\n" + all_markdown()


def setup(app: Sphinx) -> ExtensionMetadata:
    """Write the sections below the page's own text."""
    app.connect("source-read", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
