"""Pages of the repository that lie outside of docs/: results, changes, contributing.

They are copied to docs/about/ before Sphinx looks for pages; links in them, and links of other
pages to them, lead to the copies. Links to other files of the repository become downloads.
"""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.typing import ExtensionMetadata

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def copied_pages() -> dict[Path, Path]:
    """Where each page of the repository is shown in the site."""
    about = DOCS / "about"
    pages = {ROOT / "CHANGELOG.md": about / "changes.md"}
    pages[ROOT / "CONTRIBUTING.md"] = about / "contributing.md"
    results = ROOT / "results"
    for page in sorted(results.rglob("*.md")):
        path = page.relative_to(ROOT)
        is_folder = page.name == "README.md"
        pages[page] = about / (path.parent / "index.md" if is_folder else path)
    return pages


def relinked(text: str, place: Path, shown: Path, pages: dict[Path, Path]) -> str:
    """The text of the page at `place`, with its links as they must be where it is shown."""

    def link(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if re.match(r"[a-z]+:", target):
            return match.group()
        path = Path(os.path.normpath(place.parent / target))
        if path == ROOT / "README.md":
            path = DOCS / "index.md"
        if not path.exists():
            raise ExtensionError(f"{place} links to {target}, which is not there.")
        if path.is_dir():  # which has no page: the words stay
            return before.lstrip("!").strip("[(").removesuffix("]")
        return before + os.path.relpath(pages.get(path, path), shown.parent) + after

    parts = _CODE.split(text)
    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(parts))


def titled(text: str, shown: Path) -> str:
    """The text with a title, which bare tables have not."""
    if text.startswith("# "):
        return text
    return f"# {shown.parent.name}: {shown.stem.replace('-', ' ')}\n\n{text}"


def below(shown: Path, pages: dict[Path, Path]) -> str:
    """The list of pages below a folder's page, for the navigation."""
    if shown.name != "index.md":
        return ""
    others = [
        page.relative_to(shown.parent)
        for page in pages.values()
        if page != shown
        and shown.parent in (page.parent, *page.parents[1:2] * (page.name == "index.md"))
    ]
    lines = "\n".join(page.with_suffix("").as_posix() for page in others)
    return f"\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n" if others else ""


def _copy(app: Sphinx) -> None:
    pages = copied_pages()
    for place, shown in pages.items():
        shown.parent.mkdir(parents=True, exist_ok=True)
        text = relinked(place.read_text(encoding="utf-8"), place, shown, pages)
        text = titled(text, shown) + below(shown, pages)
        if not shown.exists() or shown.read_text(encoding="utf-8") != text:
            shown.write_text(text, encoding="utf-8")


def _relink(app: Sphinx, docname: str, source: list[str]) -> None:
    place = Path(app.env.doc2path(docname))
    if place.suffix == ".md" and place not in copied_pages().values():
        source[0] = relinked(source[0], place, place, copied_pages())


def setup(app: Sphinx) -> ExtensionMetadata:
    """Copy the pages first."""
    app.connect("builder-inited", _copy, priority=100)
    app.connect("source-read", _relink)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
