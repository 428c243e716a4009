"""Colours by the logarithm, for figures that span orders of magnitude: one rule for every heatmap drawn by plotly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from studio.trace import Float64

FAINT = 0.25
"""How far zeros lie below the least figure above 0, as a part of the range: they still stand out from nothing."""


def shades(values: Float64) -> tuple[Float64, float, float]:
    """Return the logarithm of figures, NaN where there is none, and its range over those above 0; zeros lie below it."""
    above = values > 0
    logs = np.log10(values, out=np.full(values.shape, np.nan), where=above)
    low, high = (float(np.nanmin(logs)), float(np.nanmax(logs))) if above.any() else (0.0, 0.0)
    high = max(high, low + 0.01)
    return np.where(values == 0, low - FAINT * (high - low), logs), low, high


def scale_ticks(
    low: float, high: float, said: Callable[[float], str], *, zero: str = ""
) -> dict[str, Sequence[Any]]:
    """Return the ticks of a colour scale of logarithms; `zero` is what stands at zeros, if there are any."""
    nothing = [low - FAINT * (high - low)] if zero else []
    ticks = np.linspace(low, high, 5).tolist() if high - low > 0.05 else [high]
    return {
        "tickvals": [*nothing, *ticks],
        "ticktext": [zero] * len(nothing) + [said(10**tick) for tick in ticks],
    }
