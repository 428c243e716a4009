"""Build HTML that opens from disk: all text escaped, figures and their script embedded, no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from studio.figures.embedded import encode_figure, pack_plotly

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
_STYLE = """
:root { color-scheme: light; --border: #d3d8df; --dim: #59626d; --text: #1a1d21; --accent: #6d3fd1 }
body { background: #fff; color: var(--text); font: 13px/1.45 system-ui, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif; margin: 0 auto; max-width: 1080px; padding: 26px 24px 60px }
h1 { font-size: 21px; margin: 0 0 4px } h2 { border-top: 1px solid var(--border); font-size: 16px; margin: 30px 0 4px; padding-top: 14px } h3 { font-size: 13px; margin: 20px 0 4px }
p { margin: 4px 0 8px; max-width: 90ch } .dim { color: var(--dim) } .verdict { font-size: 16px; font-weight: 600; margin: 14px 0 }
dl { display: flex; flex-wrap: wrap; gap: 4px 34px; margin: 12px 0 } dt { color: var(--dim) } dd { font-size: 17px; font-variant-numeric: tabular-nums; margin: 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 6px 0 } caption { color: var(--dim); padding-bottom: 4px; text-align: left }
th { border-bottom: 1px solid var(--border); color: var(--dim); font-weight: 500; padding: 3px 16px 3px 0; text-align: left; vertical-align: bottom }
td { border-bottom: 1px solid #e9ecf0; overflow-wrap: anywhere; padding: 3px 16px 3px 0; vertical-align: top } .short { overflow-wrap: normal } .num { overflow-wrap: normal; text-align: right; white-space: nowrap }
.wide { max-width: 100%; overflow-x: auto } nav { display: flex; flex-wrap: wrap; gap: 2px 16px; margin-bottom: 14px } nav a { color: var(--accent) }
.figure { margin: 4px 0 10px } footer { border-top: 1px solid var(--border); color: var(--dim); margin-top: 40px; padding-top: 8px }
ul { margin: 4px 0; padding-left: 18px } @media (max-width: 700px) { td:not(.num) { min-width: 8em } td.long { min-width: 26em } caption { max-width: calc(100vw - 48px) } } @media print { nav { display: none } body { max-width: none; padding: 0 } h2, h3 { break-after: avoid } tr, .figure { break-inside: avoid } }
"""
_DRAW = """
(async function () {
  const notes = document.querySelectorAll(".figure");
  try {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const source = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    const script = document.createElement("script");
    script.textContent = source;
    document.head.appendChild(script);
    for (const place of notes) {
      const figure = JSON.parse(place.querySelector("script").textContent);
      const box = document.createElement("div");
      place.replaceChildren(box);
      await Plotly.newPlot(box, figure.data, figure.layout, { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] });
    }
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    for (const place of notes) place.style.minHeight = "", place.textContent = "This browser cannot draw the figure (" + error.message + "); the tables hold its numbers.";
  }
})();
"""

_HEIGHT = 450
"""Pixels of a figure that does not say its height. Its room is there before it is drawn: nothing moves for it."""
_LONG = 60
"""Letters from which on a cell is as wide in a narrow window as it needs to be read, not as its neighbours leave it."""
_SECTION = 2
"""The level of headings that stand in the contents."""

_SHORT = 24
"""Letters up to which the words of a cell are never broken."""

Cell = str | tuple[str, str]
"""A text, or a text and its tooltip."""


class Document:
    """An HTML page, written from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._figures = 0
        self._sections: list[str] = []

    def heading(self, level: int, text: str) -> None:
        """Write a heading; those of level 2 stand in the contents."""
        place = ""
        if level == _SECTION:
            self._sections.append(text)
            place = f' id="section-{len(self._sections)}"'
        self._parts.append(f"<h{level}{place}>{escape(text)}</h{level}>")

    def paragraph(self, text: str, kind: str = "") -> None:
        """Write a paragraph; `kind` is "dim", "verdict" or empty."""
        self._parts.append(
            f'<p class="{escape(kind)}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"
        )

    def facts(self, facts: Sequence[tuple[str, Cell]]) -> None:
        """Write numbers with labels."""
        items = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{_format_cell(value)}</dd></div>" for name, value in facts
        )
        self._parts.append(f"<dl>{items}</dl>")

    def table(
        self,
        head: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        numeric: Sequence[int] = (),
        caption: str = "",
    ) -> None:
        """Write a table; columns in `numeric` are right-aligned."""

        def format_line(tag: str, cells: Sequence[Cell]) -> str:
            written = []
            for column, cell in enumerate(cells):
                # A column without a name has no header cell: an empty one is read aloud.
                kind = tag if cell else "td"
                shape = " class=num" if column in numeric else _choose_shape(cell) if tag == "td" else ""
                written.append(f"<{kind}{shape}>{_format_cell(cell)}</{kind}>")
            return f"<tr>{''.join(written)}</tr>"

        about = f"<caption>{escape(caption)}</caption>" if caption else ""
        body = "".join(format_line("td", row) for row in rows)
        # It scrolls in a narrow window, and has to be reached by the keyboard then.
        name = escape(caption or ", ".join(filter(None, head[:3])), quote=True)
        self._parts.append(
            f'<div class=wide tabindex=0 role=group aria-label="{name}"><table>{about}<thead>{format_line("th", head)}</thead><tbody>{body}</tbody></table></div>'
        )

    def bullets(self, texts: Sequence[str]) -> None:
        """Write a list."""
        self._parts.append(f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>")

    def figure(self, title: str, figure: Any, about: str = "") -> None:
        """Write a plotly figure with a title."""
        self.heading(3, title)
        if about:
            self.paragraph(about, "dim")
        self._figures += 1
        label = escape(title, quote=True)
        self._parts.append(
            f'<div class="figure" role="group" aria-label="{label}" style="min-height: {figure.layout.height or _HEIGHT}px">'
            f'<script type="application/json">{encode_figure(figure)}</script></div>'
        )

    def _build_contents(self) -> str:
        """Return links to the sections, where there are several."""
        if len(self._sections) < 2:
            return ""
        links = [
            f'<a href="#section-{number}">{escape(title)}</a>'
            for number, title in enumerate(self._sections, start=1)
        ]
        return f'<nav aria-label="Contents">{" ".join(links)}</nav>'

    def html(self, foot: str) -> str:
        """Return the whole file."""
        drawn = ""
        if self._figures:
            drawn = f'<script type="text/plain" id="plotly">{pack_plotly()}</script><script>{_DRAW}</script>'
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style></head><body>{self._build_contents()}<main>"
            f"{''.join(self._parts)}</main><footer>{escape(foot)}</footer>{drawn}</body></html>\n"
        )


def _choose_shape(cell: Cell) -> str:
    """Return the attribute that says how a cell of text may be broken."""
    letters = len(cell if isinstance(cell, str) else cell[0])
    return " class=long" if letters > _LONG else " class=short" if 0 < letters <= _SHORT else ""


def _format_cell(value: Cell) -> str:
    if isinstance(value, str):
        return escape(value)
    shown, exact = value
    return f'<span title="{escape(exact, quote=True)}">{escape(shown)}</span>'
