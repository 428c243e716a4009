"""How the parts of a rank's time look in every figure: colour, and hatch for what waits."""

from __future__ import annotations

from typing import Any

from studio.analysis.job.ledger import PARTS, Part
from studio.figures.theme import Palette

STACKED: tuple[Part, ...] = (
    "compute",
    "overlapped",
    "copy",
    "communication",
    "transfer",
    "latency",
    "queueing",
    "waiting",
    "bubble",
    "host",
    "stall",
)
"""The parts from the bottom of a stack: work, exposed communication, idle."""
assert set(STACKED) == set(PARTS)

_NO_LINE = {"width": 0}
"""Plotly's own outline is nearly white: among many bars it is all that is seen in the dark."""


def choose_mark(part: Part, colours: Palette) -> dict[str, Any]:
    """Return plotly's marker of a part."""
    if part in ("waiting", "queueing"):
        return _build_hatch(colours.collective, colours.panel, "/" if part == "waiting" else "x")
    if part == "overlapped":
        return _build_hatch(colours.compute, colours.collective, "-")
    if part == "latency":
        return _build_hatch(colours.collective, colours.panel, ".")
    if part in ("bubble", "stall"):
        # Idle is background; what a pipeline waits for is told apart by a pale hatch.
        pattern = {
            "shape": "/",
            "fgcolor": colours.p2p,
            "bgcolor": "rgba(0,0,0,0)",
            "size": 8,
            "solidity": 0.08,
        }
        bubble = {"pattern": pattern} if part == "bubble" else {}
        return {"color": "rgba(0,0,0,0)", "line": {"color": colours.border, "width": 1}, **bubble}
    plain = {
        "compute": colours.compute,
        "copy": colours.copy,
        "transfer": colours.collective,
        "communication": colours.collective,
        "host": colours.host,
    }
    return {"color": plain[part], "line": _NO_LINE}


def build_assumed_mark(colours: Palette) -> dict[str, Any]:
    """Return plotly's marker of assumed arrivals: host time that nobody recorded."""
    return _build_hatch(colours.host, colours.panel, "/")


def choose_area(part: Part, colours: Palette) -> tuple[str, dict[str, Any]]:
    """Return fill colour and pattern of a part as an area; "" for what stays empty."""
    mark = choose_mark(part, colours)
    if part in ("bubble", "stall"):
        return "", {}
    return mark["color"], mark.get("pattern", {})


def _build_hatch(colour: str, over: str, shape: str) -> dict[str, Any]:
    pattern = {"shape": shape, "fgcolor": over, "bgcolor": colour, "size": 5, "solidity": 0.25}
    return {"color": colour, "pattern": pattern, "line": _NO_LINE}
