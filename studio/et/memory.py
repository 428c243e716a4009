"""Refuse files that will not fit in memory."""

from __future__ import annotations

from studio.errors import TraceError
from studio.machine_memory import read_available_bytes
from studio.units import format_bytes

_ALWAYS_FITS = 64 << 20


def refuse_beyond_memory(name: str, size_bytes: int, ratio: float) -> None:
    """Refuse a file that takes more memory to read than there is.

    Args:
        name: The file, for the message.
        size_bytes: Its size, uncompressed.
        ratio: Bytes of memory that reading takes for each of its bytes.

    Raises:
        TraceError: It does not fit.
    """
    if size_bytes < _ALWAYS_FITS:
        return
    free, needed = read_available_bytes(), int(size_bytes * ratio)
    if free is not None and needed > free:
        raise TraceError(
            f"{name}: its {format_bytes(size_bytes)} take about {format_bytes(needed)} of memory to read, and "
            f"{format_bytes(free)} are available.",
            hint="Close other programs, use a machine with more memory, or record fewer steps.",
        )
