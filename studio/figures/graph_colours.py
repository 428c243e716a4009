"""Colours of nodes by a number or a category, and the legend that tells them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from studio.figures.graph import mixed
from studio.figures.theme import Palette
from studio.trace import Float64, Int64

Scale = Literal["sequential", "diverging", "category"]
STEPS = 9
"""Colours of a scale; the middle one of a diverging scale stands for no difference."""
_CATEGORIES = 7

_SEQUENTIAL = (
    "#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725",
)  # fmt: skip
"""Viridis: evenly spaced to the eye, and told apart by colour-blind eyes."""
_LIGHT = ("#0072b2", "#b87800", "#00805c", "#c24e00", "#a8457f", "#2f8fbf", "#6f7500")
_DARK = ("#56b4e9", "#f0b040", "#35c79a", "#ff8547", "#d98bb8", "#8fd0f2", "#c9cf4a")


@dataclass(frozen=True, slots=True)
class Swatch:
    """An entry of the legend.

    Attributes:
        hue: The data of the nodes it stands for.
        title: What it stands for.
        count: How many of what is drawn.
    """

    hue: str
    title: str
    count: int


def scaled(values: Float64, said: Callable[[float], str]) -> tuple[list[str], list[Swatch]]:
    """Return the hue of each of some numbers on a logarithmic scale, and the legend; what is NaN has no hue.

    Args:
        values: (V,) numbers, not negative.
        said: How a number is printed.
    """
    there = values > 0
    low = np.log(values[there].min()) if there.any() else 0.0
    high = np.log(values[there].max()) if there.any() else 0.0
    step = np.zeros(len(values), np.int64)
    if high > low:
        step[there] = np.minimum(STEPS * (np.log(values[there]) - low) / (high - low), STEPS - 1)
    known = ~np.isnan(values)
    hues = [f"s{at}" if told else "none" for at, told in zip(step.tolist(), known.tolist(), strict=True)]
    legend = []
    for at in range(STEPS):
        here = known & (step == at)
        if here.any():
            least, most = float(values[here].min()), float(values[here].max())
            both = said(least) if said(least) == said(most) else f"{said(least)} to {said(most)}"
            legend.append(Swatch(f"s{at}", both, int(here.sum())))
    return hues, legend + _unknown(known)


def diverging(values: Float64, said: Callable[[float], str]) -> tuple[list[str], list[Swatch]]:
    """Return the hue of each of some differences, and the legend: blue below zero, vermilion above."""
    known = ~np.isnan(values)
    most = float(np.abs(values[known]).max()) if known.any() else 0.0
    half = STEPS // 2
    # The root spreads small differences; half a step around zero counts as none.
    share = np.sign(values) * np.sqrt(np.abs(values) / most) if most else np.zeros(len(values))
    step = np.where(known, np.clip(np.rint(np.where(known, share, 0) * half) + half, 0, STEPS - 1), 0).astype(
        int
    )
    hues = [f"d{at}" if told else "none" for at, told in zip(step.tolist(), known.tolist(), strict=True)]
    legend = []
    for at in range(STEPS):
        here = known & (step == at)
        if here.any():
            least, greatest = float(values[here].min()), float(values[here].max())
            both = said(least) if said(least) == said(greatest) else f"{said(least)} to {said(greatest)}"
            legend.append(Swatch(f"d{at}", both, int(here.sum())))
    return hues, legend + _unknown(known)


def categories(codes: Int64, names: Callable[[int], str], none: str) -> tuple[list[str], list[Swatch]]:
    """Return the hue of each of some categories, and the legend: the most frequent have colours of their own.

    Args:
        codes: (V,) categories, -1 for none.
        names: What a category is called.
        none: What it is called to have none.
    """
    distinct, inverse, count = np.unique(codes, return_inverse=True, return_counts=True)
    ranked = [at for at in np.argsort(-count, kind="stable").tolist() if distinct[at] >= 0]
    hue = {at: f"c{number}" if number < _CATEGORIES else "more" for number, at in enumerate(ranked)}
    hue |= {at: "none" for at in range(len(distinct)) if distinct[at] < 0}
    legend = [Swatch(hue[at], names(int(distinct[at])), int(count[at])) for at in ranked[:_CATEGORIES]]
    rest = ranked[_CATEGORIES:]
    if rest:
        legend.append(Swatch("more", f"{len(rest)} more", int(count[rest].sum())))
    return [hue[at] for at in inverse.tolist()], legend + _unknown(codes >= 0, none)


def _unknown(known: Any, title: str = "not known") -> list[Swatch]:
    missing = int((~known).sum())
    return [Swatch("none", title, missing)] if missing else []


def hue_colour(hue: str, colours: Palette, dark: bool) -> str:
    """Return the colour of a hue in a theme."""
    if hue[0] == "s":
        return _SEQUENTIAL[int(hue[1:])]
    if hue[0] == "c":
        return (_DARK if dark else _LIGHT)[int(hue[1:])]
    if hue[0] == "d":
        away = int(hue[1:]) - STEPS // 2
        end = colours.compute if away < 0 else colours.p2p
        return mixed(end, colours.panel, abs(away) / (STEPS // 2))
    return mixed(colours.host, colours.panel, 0.5 if hue == "more" else 0.15)


def hue_styles(colours: Palette, dark: bool) -> list[dict[str, Any]]:
    """Return how Cytoscape draws nodes of each hue."""
    hues = [f"{kind}{at}" for kind in "sd" for at in range(STEPS)] + [f"c{at}" for at in range(_CATEGORIES)]
    found = []
    for hue in [*hues, "more", "none"]:
        colour = hue_colour(hue, colours, dark)
        fill = mixed(colour, colours.panel, 0.3) if hue[0] == "c" else colour
        found.append(
            {
                "selector": f'node[hue = "{hue}"]',
                "style": {
                    "background-color": fill,
                    "border-color": colour if hue[0] == "c" else colours.dim,
                    "color": ink(fill),
                },
            }
        )
    return found


def ink(ground: str) -> str:
    """Return the colour of text that stands out from a ground: nearly black, or white.

    Example:
        >>> ink("#fde725"), ink("#440154")
        ('#101418', '#ffffff')
    """
    red, green, blue = (int(ground[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (red, green, blue)]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#101418" if light > 0.18 else "#ffffff"
