"""How far simulated times are from measured ones: two measures, always by their names, and a signed bias.

**gm|e|** is the geometric mean of |simulated / measured - 1|, by which ASTRA-sim's authors judge theirs. Small errors
at single sizes pull it down, so it flatters curves that cross. **GMF**, exp(mean |ln(simulated / measured)|) - 1, is the
factor by which times are typically off, and stricter. The **bias** is the geometric mean of simulated / measured, less 1:
positive where simulated times are too long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.calibration.tables import Float64

LEAST_ERROR = 1e-4
"""Errors below this count as this in gm|e|: benchmarks print times with three to four digits, and one hit is not a mean of 0."""
RANGES: tuple[tuple[str, float], ...] = (
    ("small", 64 * 2**10),
    ("middle", 16 * 2**20),
    ("large", float("inf")),
)
"""Ranges of sizes, each with the largest size in it, in bytes."""


@dataclass(frozen=True, slots=True)
class Errors:
    """How far simulated times of some sizes are from measured ones; as shares, so 0.1 is 10 %.

    Attributes:
        sizes: How many sizes.
        gm_error: gm|e|.
        gmf: GMF.
        bias: The signed bias by range of sizes; ranges without sizes are left out.
    """

    sizes: int
    gm_error: float
    gmf: float
    bias: dict[str, float]


def compute_errors(size_bytes: Float64, simulated: Float64, measured: Float64) -> Errors:
    """Return how far simulated times are from measured ones.

    Args:
        size_bytes: (S,) at least one.
        simulated: (S,) times.
        measured: (S,) times in the same unit.

    Example:
        >>> errors = compute_errors(np.array([1024.0, 2**30]), np.array([11.0, 90.0]), np.array([10.0, 100.0]))
        >>> f"{errors.gm_error:.3f} {errors.gmf:.3f} {errors.bias['small']:.3f} {errors.bias['large']:.3f}"
        '0.100 0.106 0.100 -0.100'
    """
    ratio = simulated / measured
    logs = np.log(ratio)
    bias = {}
    least = -1.0
    for name, most in RANGES:
        within = (size_bytes > least) & (size_bytes <= most)
        if within.any():
            bias[name] = float(np.exp(logs[within].mean()) - 1)
        least = most
    return Errors(
        len(ratio),
        float(np.exp(np.log(np.maximum(np.abs(ratio - 1), LEAST_ERROR)).mean())),
        float(np.exp(np.abs(logs).mean()) - 1),
        bias,
    )


def round_figure(value: float) -> float:
    """Return a number with the four digits that it is worth.

    Example:
        >>> round_figure(0.123456)
        0.1235
    """
    return float(f"{value:.4g}")


def compute_quantile(values: list[float], share: float) -> float:
    """Return the value that this share of values does not exceed; nan of none.

    Example:
        >>> compute_quantile([3.0, 1.0, 2.0], 0.5)
        2.0
    """
    return float(np.quantile(values, share)) if values else float("nan")
