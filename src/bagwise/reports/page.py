"""Pages of HTML that need nothing else: templates, with pictures as data inside the page."""

from __future__ import annotations

import base64
import io
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bagwise.storage.files import begins, refuse_foreign, write_atomically
from bagwise.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 160
_SCREEN_DPI = 96  # CSS pixels in an inch
_TEMPLATES = Environment(
    loader=PackageLoader("bagwise.reports"),
    autoescape=True,  # names come from files
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["number"] = format
_TEMPLATES.globals["counted"] = counted


@dataclass(frozen=True)
class Picture:
    """An image of a page.

    Attributes:
        alt: what it shows, for those who do not see it.
        address: the PNG file as a data URI.
        width: in CSS pixels.
        height: likewise.
    """

    alt: str
    address: str
    width: int
    height: int


def render(template: str, **data: Any) -> str:
    """The page that a template of this package makes of the data."""
    return _TEMPLATES.get_template(template).render(data)


def picture(content: bytes, alt: str, dpi: int = _DPI) -> Picture:
    """A PNG file as a picture of its own size."""
    pixels = struct.unpack_from(">II", content, 16)  # in the header of every PNG file
    width, height = (round(n * _SCREEN_DPI / dpi) for n in pixels)
    data = base64.b64encode(content).decode()
    return Picture(alt, f"data:image/png;base64,{data}", width, height)


def drawn(figure: Figure, alt: str) -> Picture:
    """A matplotlib figure as a picture."""
    return picture(png(figure), alt)


def png(figure: Figure) -> bytes:
    """A matplotlib figure as a PNG file that names Bagwise as its software."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a class's name in another script
        figure.savefig(content, format="png", dpi=_DPI, metadata={"Software": "Bagwise"})
    return content.getvalue()


def write_page(path: Path, content: str, force: bool = False) -> None:
    """Write a page; it replaces an earlier report, and another file only with `force`."""
    opening = content.partition("<title>")[0].encode()  # the same in every report
    refuse_foreign(path, lambda there: begins(there).startswith(opening), force)
    write_atomically(path, content.encode())
