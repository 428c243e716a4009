"""Round and scale the numbers of a job: times, operations, bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.anonymize.policy import BYTES, DURATIONS, DURATIONS_US, MOMENTS, OPERATIONS
from studio.trace import NONE, Float64, Int64

_LARGEST = float(2**63 - 1024)


@dataclass(frozen=True, slots=True)
class Scaling:
    """What numbers are multiplied with, and what times are rounded to.

    Attributes:
        operations, bytes, times: Factors; 1 leaves them exact.
        round_ns: Times become multiples of this; 0 leaves them exact. What took any time takes one multiple at least.
    """

    operations: float = 1.0
    bytes: float = 1.0
    times: float = 1.0
    round_ns: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether all numbers stay as they are."""
        return self == Scaling()

    def scale_times(self, ns: Int64, *, duration: bool) -> Int64:
        """Return (M,) times; negative ones mean that nothing is known, and stay."""
        known = ns >= 0
        scaled = _scale_values(ns, self.times)
        if self.round_ns:
            scaled = (scaled + self.round_ns // 2) // self.round_ns * self.round_ns
            if duration:
                scaled = np.where(ns > 0, np.maximum(scaled, self.round_ns), scaled)
        return np.where(known, scaled, ns)

    def scale(self, key: str, values: Int64) -> Int64:
        """Return (M,) values of an integer attribute."""
        if key in DURATIONS or key in MOMENTS:
            return self.scale_times(values, duration=key in DURATIONS)
        if key in DURATIONS_US:
            # Those that are rounded to less than a microsecond stay whole ones.
            return np.where(values >= 0, self.scale_times(values * 1000, duration=True) // 1000, values)
        factor = self._get_factor(key)
        if factor == 1.0:
            return values
        scaled = np.sign(values) * np.maximum(_scale_values(np.abs(values), factor), 1)
        # -1 says that nothing is known; what there was some of there is some of.
        return np.where(values == NONE, NONE, scaled)

    def scaled_reals(self, key: str, values: Float64) -> Float64:
        """Return (M,) values of an attribute that a writer made no integer."""
        if key in DURATIONS_US:
            return self.scaled_reals("inclusive_ns", values * 1e3) / 1e3
        if key not in DURATIONS and key not in MOMENTS:
            return values * self._get_factor(key)
        scaled = values * self.times
        if self.round_ns:
            scaled = np.rint(scaled / self.round_ns) * self.round_ns
            if key in DURATIONS:
                scaled = np.where(values > 0, np.maximum(scaled, self.round_ns), scaled)
        return np.where(values >= 0, scaled, values)

    def changes(self, key: str) -> bool:
        """Whether values of an attribute do not stay as they are."""
        if key in DURATIONS or key in DURATIONS_US or key in MOMENTS:
            return self.times != 1.0 or self.round_ns > 0
        return self._get_factor(key) != 1.0

    def _get_factor(self, key: str) -> float:
        return self.operations if key in OPERATIONS else self.bytes if key in BYTES else 1.0


def _scale_values(values: Int64, factor: float) -> Int64:
    if factor == 1.0:
        return values
    return np.rint(np.clip(values.astype(np.float64) * factor, 0, _LARGEST)).astype(np.int64)
