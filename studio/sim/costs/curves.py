"""Residual curves: what a machine's measured times are to the model's, over size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.sim.costs.shapes import Float64, GroupShape


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured over modelled times of one collective in one group, over size.

    It corrects this machine's times of this collective in groups of this shape, between the sizes it was measured at;
    outside of them its ends fade within a factor of four.

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

    def at(self, buffer: Float64) -> Float64:
        """Return the factors at sizes."""
        known = np.log(self.sizes)
        logs = np.log(np.maximum(buffer, 1.0))
        value = np.interp(logs, known, np.log(self.factors))
        return np.exp(value)
