"""Logarithmic colour scale, shared by all heatmaps drawn by plotly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from studio.trace import Float64

FAINT = 0.25
"""How far zeros lie below the least figure above 0, as a part of the range: they still stand out from nothing."""


def compute_shades(values: Float64) -> tuple[Float64, float, float]:
    """Return logarithms of values, NaN where missing, and the range of the positive ones; zeros lie below it."""
    above = values > 0
    logs = np.log10(values, out=np.full(values.shape, np.nan), where=above)
    low, high = (float(np.nanmin(logs)), float(np.nanmax(logs))) if above.any() else (0.0, 0.0)
    if high == low and (values == 0).any():
        # Zeros lie below the one figure that there is.
        low -= 0.01
    return np.where(values == 0, low - FAINT * (high - low), logs), low, high


def compute_scale_ticks(
    low: float, high: float, format_value: Callable[[float], str], *, zero: str = ""
) -> dict[str, Sequence[Any]]:
    """Return the ticks of a logarithmic colour scale; `zero` is the value that stands for zeros, if any."""
    nothing = [low - FAINT * (high - low)] if zero else []
    ticks = np.linspace(low, high, 5).tolist() if high - low > 0.05 else [high]
    return {
        "tickvals": [*nothing, *ticks],
        "ticktext": [zero] * len(nothing) + [format_value(10**tick) for tick in ticks],
    }
