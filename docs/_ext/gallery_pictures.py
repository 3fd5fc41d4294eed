"""Pictures of the gallery: one style, a light and a dark version of each, shown before the code."""

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.typing import ExtensionMetadata

STYLE = Path(__file__).parent.parent / "gallery" / "bagwise.mplstyle"
DARK = {  # what the colors of the style become on a dark page; others stay
    "#ffffff": "#14181e",
    "#1f2933": "#e6e9ec",
    "#6b7680": "#9aa5b1",
    "#d5dadf": "#3a424c",
    "#0072b2": "#56b4e9",
    "#0b5fa5": "#56b4e9",  # of the pictures that a model draws
}
_BEGIN, _END = ".. picture begins", ".. picture ends"
_COLORS = (
    ("get_color", "set_color"),
    ("get_facecolor", "set_facecolor"),
    ("get_edgecolor", "set_edgecolor"),
    ("get_markerfacecolor", "set_markerfacecolor"),
    ("get_markeredgecolor", "set_markeredgecolor"),
)


def use_style(gallery_conf: dict[str, Any], name: object) -> None:
    """The style of all pictures, before each script."""
    mpl.rcdefaults()
    plt.style.use(STYLE)


def _darkened(color: Any) -> Any:
    """A color, or an array of colors, as it is on a dark page."""
    if hasattr(color, "ndim") and color.ndim == 2:
        return [_darkened(tuple(one)) for one in color]
    try:
        alpha = color[3] if isinstance(color, tuple) and len(color) == 4 else 1
        dark = DARK.get(to_hex(color))
    except (TypeError, ValueError):  # "none", or a list of colors
        return color
    return color if dark is None or alpha == 0 else dark


def darken(figure: Figure) -> None:
    """Replace the colors of the style by those of dark pages."""
    for artist in figure.findobj():
        for read, write in _COLORS:
            if hasattr(artist, read) and hasattr(artist, write):
                getattr(artist, write)(_darkened(getattr(artist, read)()))
        if (box := getattr(artist, "get_bbox_patch", lambda: None)()) is not None:
            box.set_facecolor(_darkened(box.get_facecolor()))


def scraper(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures of a block, and the text that shows them."""
    shown = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        if not figure.get_label():
            raise ExtensionError(
                f"A picture of {block_vars['src_file']} has no alt text; say it with "
                "figure.set_label."
            )
        for mode in ("light", "dark"):
            if mode == "dark":
                darken(figure)
            path = Path(next(block_vars["image_path_iterator"]))
            figure.savefig(path, facecolor=figure.get_facecolor())
            place = path.relative_to(gallery_conf["src_dir"]).as_posix()
            shown.append(
                f".. image:: /{place}\n   :alt: {figure.get_label()}\n"
                f"   :class: only-{mode} gallery-picture\n"
            )
    plt.close("all")
    return "\n\n".join(["", _BEGIN, *shown, _END, ""]) if shown else ""


def picture_first(text: str) -> str:
    """The page with its first picture before its first code."""
    picture = re.search(rf"^{re.escape(_BEGIN)}$.*?^{re.escape(_END)}$", text, re.M | re.S)
    code = re.search(r"^\.\. GENERATED FROM PYTHON SOURCE LINES", text, re.M)
    if picture is None or code is None or picture.start() < code.start():
        return text
    without = text[: picture.start()] + text[picture.end() :]
    return without[: code.start()] + picture.group() + "\n\n" + without[code.start() :]


def _move(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname.startswith("examples/plot_"):
        source[0] = picture_first(source[0])


def setup(app: Sphinx) -> ExtensionMetadata:
    """Rearrange the pages that sphinx-gallery wrote."""
    app.connect("source-read", _move)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
