"""The roofline of a GPU: the least time in which it can carry out so many operations on so many bytes.

Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009. Peaks are those of dense operations per data type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from studio.errors import ConfigError
from studio.trace import Float64, Int64
from studio.units import format_si

_INSTEAD = {
    "fp4": ("fp8", "fp16", "bf16"),
    "fp8": ("fp16", "bf16"),
    "int8": ("fp8", "fp16", "bf16"),
    "bf16": ("fp32",),
    "fp16": ("bf16", "fp32"),
    "tf32": ("fp32", "bf16"),
    "fp32": ("bf16",),
    "complex64": ("fp32",),
    "complex128": ("fp64",),
}
"""The types whose units do the work of another where a GPU has none of its own, the first it has."""


class Gpu(Protocol):
    """What a GPU can do: its name, peaks in 10^12 operations per second by data type, bandwidth and size of memory."""

    @property
    def name(self) -> str:
        """What its maker calls it."""
        ...

    @property
    def tera_flops(self) -> Mapping[str, float]:
        """Peak of dense operations in 10^12 per second, by data type."""
        ...

    @property
    def memory_bytes_per_ns(self) -> float:
        """Bandwidth of its memory in GB/s of 10^9 bytes."""
        ...

    @property
    def memory_gbytes(self) -> float:
        """Size of its memory in GB."""
        ...


def find_peak(gpu: Gpu, kind: str) -> float | None:
    """Return the peak of a GPU for a data type in 10^12 operations per second, None where it can do nothing with it."""
    rates = (gpu.tera_flops.get(name) for name in (kind, *_INSTEAD.get(kind, ())))
    return next((rate for rate in rates if rate), None)


def require_peak(gpu: Gpu, kind: str) -> float:
    """Return the peak of a GPU for a data type, as `find_peak`.

    Raises:
        ConfigError: It can do nothing with it.
    """
    rate = find_peak(gpu, kind)
    if rate is None:
        raise ConfigError(
            f"{gpu.name} has no known peak for {kind}.",
            hint="Name another GPU, such as --gpu h100. `chakra-studio presets NAME` shows the peaks of a system's GPU.",
            key="gpu",
        )
    return rate


def describe_memory_excess(gpu: Gpu, bytes_per_s: float) -> str:
    """Return what is to be said of achieved bytes per second that the memory of a GPU does not reach; empty where it does.

    Bytes by formula that are moved faster than the memory moves any did not all come from it.
    """
    most = gpu.memory_bytes_per_ns * 1e9
    if bytes_per_s <= most:
        return ""
    return f"not believed: above the {format_si(most, 'B/s')} of the memory; caches held a part, or less was moved"


def compute_roofline_ns(
    gpu: Gpu, flop: Float64, moved: Float64, kind: Int64, types: tuple[str, ...]
) -> Float64:
    """Return the least time (C,) in nanoseconds; NaN where the GPU has no peak for the data type.

    Args:
        gpu: The GPU.
        flop: (C,) operations.
        moved: (C,) bytes read and written.
        kind: (C,) data types, indices into `types`; -1 is for none.
        types: Their names.
    """
    # 10^12 operations a second are 10^3 a nanosecond.
    rates = np.array([*((find_peak(gpu, name) or np.nan) * 1e3 for name in types), np.nan])
    arithmetic = np.where(flop > 0, flop / rates[kind], 0.0)
    return np.maximum(arithmetic, moved / gpu.memory_bytes_per_ns)
