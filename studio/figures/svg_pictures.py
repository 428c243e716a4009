"""Turn SVG into PDF and PNG, by CairoSVG where it is installed."""

from __future__ import annotations

from typing import Any

from studio.errors import StudioError

_LONGEST_PX, _MOST_PX = 16_000, 60e6
_LONGEST_POINTS = 14_000
"""The longest side that viewers of PDF show."""
_ZOOM = 2.0


def explain_no_pictures() -> str:
    """Return why no pictures can be made here, "" where they can."""
    try:
        _import_cairosvg()
    except StudioError as error:
        return error.message
    return ""


def _import_cairosvg() -> Any:
    try:
        import cairosvg
    except ImportError as error:
        raise StudioError(
            "PDF and PNG are drawn by CairoSVG, which is not installed.",
            hint="pip install 'chakra-studio[pictures]', or name a file ending in .svg or .html.",
        ) from error
    except OSError as error:
        raise StudioError(
            "PDF and PNG are drawn by CairoSVG, which does not find the library cairo of this system.",
            hint="Install cairo (Debian: libcairo2, macOS: brew install cairo), or name a file ending in .svg or .html.",
        ) from error
    return cairosvg


def render_pdf(svg: str, size: tuple[float, float]) -> bytes:
    """Return SVG as PDF, with text as text; a drawing larger than a page of PDF can be is made smaller.

    Raises:
        StudioError: CairoSVG is not there.
    """
    scale = min(1.0, _LONGEST_POINTS / 0.75 / max(*size, 1.0))
    content: bytes = _import_cairosvg().svg2pdf(bytestring=svg.encode(), scale=scale)
    return content


def render_png(svg: str, size: tuple[float, float]) -> bytes:
    """Return SVG as PNG, twice as large for sharp screens, less where that is more than pictures can be.

    Raises:
        StudioError: CairoSVG is not there.
    """
    wide, high = size
    scale = min(_ZOOM, _LONGEST_PX / max(wide, high, 1.0), (_MOST_PX / max(wide * high, 1.0)) ** 0.5)
    content: bytes = _import_cairosvg().svg2png(bytestring=svg.encode(), scale=scale)
    return content
