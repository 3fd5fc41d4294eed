"""Docstrings as people write them: `name` is a link or code, indented formulas are literal."""

import re
from itertools import pairwise
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxRole
from sphinx.util.typing import ExtensionMetadata

_SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields):$")


class NameRole(SphinxRole):
    """`fit` leads to `bagwise.fit`, a name that has no page is shown as code."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The node of a name."""
        code = nodes.literal(self.text, self.text, classes=["py"])
        if not re.fullmatch(r"[A-Za-z_][\w.]*", self.text):
            return [code], []
        node = addnodes.pending_xref(
            self.rawtext,
            code,
            refdomain="py",
            reftype="obj",
            reftarget=self.text,
            refdoc=self.env.docname,
            refwarn=False,
            by_name=True,
            **{key: self.env.ref_context.get(key) for key in ("py:module", "py:class")},
        )
        return [node], []


def _code_if_unknown(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    return content if node.get("by_name") else None


def literal_formulas(lines: list[str]) -> list[str]:
    """The lines with `::` before each indented block, outside of sections.

    >>> literal_formulas(["The loss:", "", "    loss = 1", "", "Args:", "    x: what"])
    ['The loss:', '', '::', '', '    loss = 1', '', 'Args:', '    x: what']
    """
    done: list[str] = []
    in_section = in_block = False
    for line in lines:
        indented = line.startswith("    ")
        if line and not indented:
            in_section, in_block = bool(_SECTION.match(line)), False
        elif indented and not in_section and not in_block and not done[-1]:
            in_block = True
            last = next((text for text in reversed(done) if text), "")
            if not last.endswith("::") and not last.startswith((">>>", "...")):
                done += ["::", ""]
        done.append(line)
    return done


def list_tables(lines: list[str]) -> list[str]:
    """The lines with tables of bars as those of reStructuredText.

    >>> list_tables(["| a | b |", "|---|---|", "| 1 | 2 |"])[:5]
    ['.. list-table::', '   :header-rows: 1', '', '   * - a', '     - b']
    """
    done: list[str] = []
    for before, line in pairwise(["", *lines]):
        if not line.startswith("|"):
            done.append(line)
        elif not set(line) <= set("|- "):
            if not before.startswith("|"):
                done += [".. list-table::", "   :header-rows: 1", ""]
            first, *others = (cell.strip() for cell in line.strip("|").split("|"))
            done += [f"   * - {first}", *(f"     - {cell}" for cell in others)]
    return done


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    bars = [re.sub(r"\|(\w+)\|", r"\\|\1\\|", line) for line in lines]  # |x| is no substitution
    lines[:] = list_tables(literal_formulas(bars))


def _skip(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """What scikit-learn adds to its estimators is explained there."""
    return True if re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def setup(app: Sphinx) -> ExtensionMetadata:
    """Before napoleon, which is called at 500."""
    for kind in PyObject.doc_field_types:
        if kind.name == "variable":
            kind.label = "Attributes"
    app.add_role("name", NameRole())
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-skip-member", _skip)
    app.connect("missing-reference", _code_if_unknown)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
