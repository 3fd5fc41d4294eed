"""Run the snippets and commands of pages, and compare what they print with what the pages show.

python docs/run_pages.py docs/how_to/columns.md             # compare
python docs/run_pages.py --write docs/how_to/columns.md     # write the outputs into the page

A page is run as a reader would: from its top to its end, in a folder with the examples, with the
files of `make_table.py breast_cancer` in data/ and a model of them in model/. Run are fences of
python, and indented lines that begin with `bagwise` or `python`. A fence of text directly below is
what they print; as in a notebook, a last line that is an expression is printed, too. `...` stands
for what is left out.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from bagwise.cli import app

ROOT = Path(__file__).parent.parent
WIDTH = 88  # of a terminal, in the outputs of commands
_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$"
    r"|(?P<lines>(?:^    (?:bagwise|python) [^\n]*\n(?:^     [^\n]*\n)*)+)",
    re.DOTALL | re.MULTILINE,
)
_OUTPUT = re.compile(r"\n*^```text\n(?P<output>.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
PRELUDE = """
    python examples/make_table.py breast_cancer --out data/
    bagwise fit data/rows.csv --bag ward --labels data/bags.csv --model linear --out model/
"""


class Block(NamedTuple):
    """A snippet or commands of a page, and the place of the output below them."""

    code: str
    lines: list[str]
    shown: str | None
    place: slice


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page."""
    for match in _BLOCK.finditer(text):
        below = _OUTPUT.match(text, match.end())
        lines = re.sub(r"\s*\\\n\s*", " ", match["lines"] or "").strip().splitlines()
        start, end = (0, 0) if below is None else below.span("output")
        yield Block(
            match["code"] or "",
            [line.strip() for line in lines if line.strip()],
            below and below["output"],
            slice(start, end),
        )


def _printed(code: str, names: dict[str, object]) -> str:
    body = ast.parse(code).body
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body[:-1], []), "page", "exec"), names)
        exec(compile(ast.Interactive(body[-1:]), "page", "single"), names)
    return printed.getvalue()


def _run_command(line: str) -> str:
    program, *arguments = shlex.split(line, comments=True)
    if program == "python":
        command = [sys.executable, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": str(WIDTH)})
    if result.exit_code != 0:
        raise SystemExit(f"{line}\n{result.output}")
    return result.output


def run(text: str) -> Iterator[tuple[Block, str]]:
    """Each block with what it prints; the working directory is that of the process."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(text):
        printed = "".join(map(_run_command, block.lines))
        yield block, _printed(block.code, names) if block.code else printed


def same(shown: str, printed: str) -> bool:
    """Whether an output is as shown: its words exactly, its numbers to about 2%.

    >>> same("12 of 20 are 0.613 ... aside)", "12 of 20 are 0.611 (an aside)")
    True
    >>> same("12 of 20", "17 of 20"), same("12 of ...", "13 of 20"), same("12 ...", "of 12")
    (False, True, False)
    >>> same("... of ...", "12 of 20")
    True
    """
    shown, printed = (re.sub(r"[\s─━═-]+", " ", text).strip() for text in (shown, printed))
    words, numbers = _NUMBER.sub("#", printed), _NUMBER.findall(printed)
    end = 0
    parts = [part.strip() for part in shown.split("...")]
    for i, part in enumerate(parts):
        known = _NUMBER.sub("#", part)
        start = words.find(known, end)
        if start < 0 or (i == 0 and start > 0):
            return False
        if not all(map(_close, _NUMBER.findall(part), numbers[words[:start].count("#") :])):
            return False
        end = start + len(known)
    return parts[-1] == "" or end == len(words)


def _close(one: str, other: str) -> bool:
    a, b = (float(number.replace(",", "")) for number in (one, other))
    last_digit = 10.0 ** -len(one.partition(".")[2])
    return abs(a - b) <= max(0.02 * abs(a), 2 * last_digit if "." in one else 1)


@contextlib.contextmanager
def folder_for_pages() -> Iterator[Path]:
    """A temporary working directory with what pages take for granted."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        os.chdir(folder)
        try:
            list(run(PRELUDE))
            yield folder
        finally:
            os.chdir(before)


def rewritten(text: str) -> str:
    """The page with its outputs as they are now; those with parts left out stay as they are."""
    for block, printed in reversed(list(run(text))):
        if block.shown is not None and "..." not in block.shown:
            body = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
            text = text[: block.place.start] + body + text[block.place.stop :]
    return text


def main() -> None:
    """Compare or write the outputs of pages."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="write the outputs into the pages")
    options = parser.parse_args()
    differ = False
    for page in [path.resolve() for path in options.pages]:
        text = page.read_text(encoding="utf-8")
        with folder_for_pages():
            if options.write:
                page.write_text(rewritten(text), encoding="utf-8")
                continue
            for block, printed in run(text):
                if block.shown is not None and not same(block.shown, printed):
                    differ = True
                    print(f"{page.name} shows\n{block.shown}\nbut it prints\n{printed}")
    sys.exit(differ)


if __name__ == "__main__":
    main()
