"""Colour nodes by a number or a category, with a legend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.figures.graph import mix
from studio.figures.theme import Palette
from studio.trace import Float64, Int64

STEPS = 9
"""Colours of a scale; the middle one of a diverging scale stands for no difference."""
_CATEGORIES = 7

_SEQUENTIAL = (
    "#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725",
)  # fmt: skip
"""Viridis: evenly spaced to the eye, and distinguishable for colour-blind eyes."""
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


def scale_colours(values: Float64, format_number: Callable[[float], str]) -> tuple[list[str], list[Swatch]]:
    """Return the hue of each number on a logarithmic scale, and the legend; NaN has no hue.

    Args:
        values: (V,) numbers, not negative.
        format_number: How a number is printed.
    """
    is_positive = values > 0
    low = np.log(values[is_positive].min()) if is_positive.any() else 0.0
    high = np.log(values[is_positive].max()) if is_positive.any() else 0.0
    step = np.zeros(len(values), np.int64)
    if high > low:
        step[is_positive] = np.minimum(STEPS * (np.log(values[is_positive]) - low) / (high - low), STEPS - 1)
    known = ~np.isnan(values)
    hues = [
        f"s{number}" if is_known else "none"
        for number, is_known in zip(step.tolist(), known.tolist(), strict=True)
    ]
    legend = []
    for number in range(STEPS):
        here = known & (step == number)
        if here.any():
            least, most = float(values[here].min()), float(values[here].max())
            both = (
                format_number(least)
                if format_number(least) == format_number(most)
                else f"{format_number(least)} to {format_number(most)}"
            )
            legend.append(Swatch(f"s{number}", both, int(here.sum())))
    return hues, legend + _list_unknown(known)


def colour_differences(
    values: Float64, format_number: Callable[[float], str]
) -> tuple[list[str], list[Swatch]]:
    """Return the hue of each difference, and the legend: blue below zero, vermilion above."""
    known = ~np.isnan(values)
    most = float(np.abs(values[known]).max()) if known.any() else 0.0
    half = STEPS // 2
    # The root spreads small differences; half a step around zero counts as none.
    share = np.sign(values) * np.sqrt(np.abs(values) / most) if most else np.zeros(len(values))
    step = np.where(known, np.clip(np.rint(np.where(known, share, 0) * half) + half, 0, STEPS - 1), 0).astype(
        int
    )
    hues = [
        f"d{number}" if is_known else "none"
        for number, is_known in zip(step.tolist(), known.tolist(), strict=True)
    ]
    legend = []
    for number in range(STEPS):
        here = known & (step == number)
        if here.any():
            least, greatest = float(values[here].min()), float(values[here].max())
            both = (
                format_number(least)
                if format_number(least) == format_number(greatest)
                else f"{format_number(least)} to {format_number(greatest)}"
            )
            legend.append(Swatch(f"d{number}", both, int(here.sum())))
    return hues, legend + _list_unknown(known)


def colour_categories(codes: Int64, names: Callable[[int], str], none: str) -> tuple[list[str], list[Swatch]]:
    """Return the hue of each category, and the legend: the most frequent have their own colours.

    Args:
        codes: (V,) categories, -1 for none.
        names: What a category is called.
        none: What it is called to have none.
    """
    distinct, inverse, count = np.unique(codes, return_inverse=True, return_counts=True)
    ranked = [index for index in np.argsort(-count, kind="stable").tolist() if distinct[index] >= 0]
    hue = {index: f"c{number}" if number < _CATEGORIES else "more" for number, index in enumerate(ranked)}
    hue |= {index: "none" for index in range(len(distinct)) if distinct[index] < 0}
    legend = [
        Swatch(hue[index], names(int(distinct[index])), int(count[index])) for index in ranked[:_CATEGORIES]
    ]
    rest = ranked[_CATEGORIES:]
    if rest:
        legend.append(Swatch("more", f"{len(rest)} more", int(count[rest].sum())))
    return [hue[index] for index in inverse.tolist()], legend + _list_unknown(codes >= 0, none)


def _list_unknown(known: Any, title: str = "not known") -> list[Swatch]:
    missing = int((~known).sum())
    return [Swatch("none", title, missing)] if missing else []


def compute_hue_colour(hue: str, colours: Palette, dark: bool) -> str:
    """Return the colour of a hue in a theme."""
    if hue[0] == "s":
        return _SEQUENTIAL[int(hue[1:])]
    if hue[0] == "c":
        return (_DARK if dark else _LIGHT)[int(hue[1:])]
    if hue[0] == "d":
        away = int(hue[1:]) - STEPS // 2
        end = colours.compute if away < 0 else colours.p2p
        return mix(end, colours.panel, abs(away) / (STEPS // 2))
    return mix(colours.host, colours.panel, 0.5 if hue == "more" else 0.15)


def build_hue_styles(colours: Palette, dark: bool) -> list[dict[str, Any]]:
    """Return the Cytoscape styles of hues."""
    hues = [f"{kind}{number}" for kind in "sd" for number in range(STEPS)] + [
        f"c{number}" for number in range(_CATEGORIES)
    ]
    styles = []
    for hue in [*hues, "more", "none"]:
        colour = compute_hue_colour(hue, colours, dark)
        fill = mix(colour, colours.panel, 0.3) if hue[0] == "c" else colour
        styles.append(
            {
                "selector": f'node[hue = "{hue}"]',
                "style": {
                    "background-color": fill,
                    "border-color": colour if hue[0] == "c" else colours.dim,
                    "color": choose_ink(fill),
                },
            }
        )
    return styles


def choose_ink(ground: str) -> str:
    """Return a text colour that contrasts with a ground: nearly black, or white.

    Example:
        >>> choose_ink("#fde725"), choose_ink("#440154")
        ('#101418', '#ffffff')
    """
    red, green, blue = (int(ground[offset : offset + 2], 16) / 255 for offset in (1, 3, 5))
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (red, green, blue)
    ]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#101418" if light > 0.18 else "#ffffff"
