"""Residual curves: what a machine's measured times are to the model's, over size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.sim.costs.shapes import Float64, GroupShape

_SHRINK = 0.2
_ALONE = 0.05
"""A curve of a group of twice or half the ranks counts 0.2, of four times 0.04, beside 0.05 for no correction at all:
found by leaving tables out (`python -m benchmarks.accuracy`), where it takes the median GMF of tables of a calibrated machine in a
node from 8.1 to 7.5 %, and of another node count from 22 to 17 %."""
OWN = "own curve"
NEAR = "curves of near groups"


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured over modelled times of one collective in one group, over size.

    It corrects this machine's times of this collective in groups of this shape. Beyond the sizes it was measured at it
    fades.

    Attributes:
        kind: The collective.
        shape: The group.
        sizes: (S,) bytes of the whole buffer, increasing.
        factors: (S,) measured over modelled time.
    """

    kind: str
    shape: GroupShape
    sizes: tuple[float, ...]
    factors: tuple[float, ...]

    def at(self, buffer: Float64, scale: float = 1.0) -> Float64:
        """Return the logarithms of the factors at sizes; `scale` moves the curve to larger ones."""
        known = np.log(self.sizes) + math.log(scale)
        logs = np.log(np.maximum(buffer, 1.0))
        beyond = np.maximum(np.maximum(known[0] - logs, logs - known[-1]), 0.0)
        return np.asarray(np.interp(logs, known, np.log(self.factors)) * np.exp(-beyond))


def compute_correction(
    curves: Sequence[Curve], kind: str, buffer: Float64, shape: GroupShape
) -> tuple[Float64, str]:
    """Return what curves make of the times of a collective: factors per size, and which curves they are from.

    The curve of the very group counts in full. Without one, those of near groups are taken, the less the further they
    are: groups of another number of ranks in one node, or of as many ranks a node on another number of nodes.
    """
    own = [curve for curve in curves if curve.kind == kind]
    for curve in own:
        if curve.shape == shape:
            return np.exp(curve.at(buffer)), OWN
    near = [curve for curve in own if _is_near(curve.shape, shape)]
    if not near:
        return np.ones(len(buffer)), ""
    total, weights = np.zeros(len(buffer)), _ALONE
    for curve in near:
        ratio = shape.ranks / curve.shape.ranks
        weight = _SHRINK ** abs(math.log2(ratio))
        total += weight * curve.at(buffer, math.sqrt(ratio))
        weights += weight
    return np.exp(total / weights), NEAR


def _is_near(known: GroupShape, shape: GroupShape) -> bool:
    if shape.nodes == 1 or known.nodes == 1:
        return shape.nodes == known.nodes
    return shape.per_node == known.per_node
