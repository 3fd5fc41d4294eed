"""A page of HTML that needs nothing else: style, tables and pictures inside."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import matplotlib as mpl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; padding: 1.2rem; max-width: 60rem; color: #1b1f24; background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .4rem 0 .8rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; padding-top: .8rem; border-top: 1px solid #d5dae0; }
p { max-width: 46rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; margin: .6rem 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #e4e8ec; text-align: left;
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
thead th { border-bottom: 2px solid #9aa4af; }
img { max-width: 100%; height: auto; display: block; margin: .6rem 0; }
pre { background: #f3f5f7; padding: .8rem; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: .9rem; }
summary { cursor: pointer; color: #0b5fa5; font-size: .92rem; }
.note { color: #4d5966; font-size: .92rem; }
.good { color: #17652a; font-weight: 600; }
.bad { color: #9c2020; font-weight: 600; }
footer { margin-top: 2.5rem; color: #4d5966; font-size: .88rem; }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  h2 { break-after: avoid; } table, img, pre { break-inside: avoid; }
  .wide { overflow: visible; }
}
"""


_WIDE = """
body { max-width: 84rem; }
table { font-size: .84rem; }
th, td { padding: .25rem .5rem; }
th:first-child, td:first-child { white-space: nowrap; }
@media print { @page { size: landscape; margin: 1cm; } table { font-size: 7pt; } }
"""


def page(title: str, sections: Sequence[str], footer: str, wide: bool = False) -> str:
    """A whole page, `wide` for large tables; sections are HTML, title and footer are text."""
    style = _STYLE + (_WIDE if wide else "")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n"
        + "\n".join(sections)
        + f"\n<footer>{escape(footer)}</footer>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A heading and what follows it, as HTML."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """Text as a paragraph of a class of the style sheet."""
    attribute = f' class="{kind}"' if kind else ""
    kept = escape(text).replace(" %", "&nbsp;%")  # on one line with its number
    return f"<p{attribute}>{kept}</p>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A table of text; columns after the first `texts` are numbers and stand to the right."""
    return html_table(
        [escape(cell) for cell in header], [[escape(c) for c in row] for row in rows], texts
    )


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """The same for cells that are HTML already."""

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = ['class="n"' if column >= texts else "" for column in range(len(cells))]
        pairs = zip(kinds, cells, strict=True)
        return "<tr>" + "".join(f"<{tag} {k}>{c}</{tag}>" for k, c in pairs) + "</tr>"

    head = f"<thead>{line(header, 'th')}</thead>" if header else ""
    body = "\n".join(line(row, "td") for row in rows)
    return f'<div class="wide"><table>{head}<tbody>\n{body}\n</tbody></table></div>'


def picture(figure: Figure, description: str) -> str:
    """A matplotlib figure as an image within the page; the description is read aloud."""
    import matplotlib.pyplot as plt

    content = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "bagwise"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a class's name in another script
        figure.savefig(content, format="svg", metadata={"Date": None})
    plt.close(figure)
    return image(content.getvalue(), "image/svg+xml", description)


def png(figure: Figure) -> bytes:
    """A matplotlib figure as a PNG file that says by what it was drawn."""
    import matplotlib.pyplot as plt

    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(content, format="png", dpi=130, metadata={"Software": "Bagwise"})
    plt.close(figure)
    return content.getvalue()


def image(content: bytes, kind: str, description: str) -> str:
    """An image within the page."""
    data = base64.b64encode(content).decode()
    return f'<img alt="{escape(description)}" src="data:{kind};base64,{data}">'
