"""The robust fit: logarithms of parameters that bring modelled times near measured ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.calibration.design import Design
from studio.sim.costs.shapes import Float64

NOISE = 0.03
"""What measured times of one size scatter by (1 to 6 % between runs and versions), as a logarithm; of 0.03, 0.05 and 0.1 the
one that predicts tables best that are left out."""
_POINTS = 12.0
"""A table counts as this many points, however many sizes it has: neighbouring sizes err alike."""
_STEPS = 60
_LONGEST = 0.7
_DONE = 1e-4


@dataclass(frozen=True, slots=True)
class Solution:
    """Parameters of the cost model as a fit found them.

    K parameters.

    Attributes:
        logs: (K,) logarithms of the parameters.
        information: (K, K) what the tables say about them; the inverse, with the prior's, is their covariance.
        cost: Half-squared distance, robust, of times and prior.
    """

    logs: Float64
    information: Float64
    cost: float


@dataclass(frozen=True, slots=True)
class _State:
    logs: Float64
    residuals: Float64
    slopes: Float64
    cost: float


def solve(
    plan: Design, times_ns: Float64, expected: Float64, precision: Float64, noise: float = NOISE
) -> Solution:
    """Fit parameters by damped Gauss-Newton steps on logarithms, with soft-L1 loss, so that single outliers do not pull.

    Args:
        plan: The design of the tables.
        times_ns: (P,) measured times.
        expected: (K,) logarithms of the parameters where the tables say nothing.
        precision: (K, K) how firmly.
        noise: What times scatter by, as a logarithm.
    """
    targets = np.log(times_ns)
    counts = np.bincount(plan.table)
    weights = np.sqrt(np.minimum(1.0, _POINTS / counts))[plan.table]

    def compute_state(logs: Float64) -> _State:
        modelled, slopes = plan.times(logs)
        off = (np.log(modelled) - targets) / noise
        soft = (1 + off * off) ** -0.25 * weights
        away = logs - expected
        loss = float(np.sum(2 * weights**2 * (np.sqrt(1 + off * off) - 1)) + away @ precision @ away)
        return _State(logs, off * soft, slopes / noise * soft[:, None], loss)

    here, damping = compute_state(expected.copy()), 1e-2
    for _ in range(_STEPS):
        better = None
        curvature = here.slopes.T @ here.slopes + precision
        downhill = here.slopes.T @ here.residuals + precision @ (here.logs - expected)
        for _ in range(8):
            step = -np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), downhill)
            logs = here.logs + np.clip(step, -_LONGEST, _LONGEST)
            logs = np.where(plan.powers < 0, np.minimum(logs, 0.0), logs)
            tried = compute_state(logs)
            if tried.cost < here.cost:
                better = tried
                break
            damping *= 4
        if better is None:
            break
        done = here.cost - better.cost < _DONE * here.cost
        here, damping = better, max(damping / 5, 1e-7)
        if done:
            break
    return Solution(here.logs, here.slopes.T @ here.slopes, here.cost)
