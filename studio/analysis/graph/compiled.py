"""Compile the loops over graphs, and say for which graphs that pays."""

from __future__ import annotations

from typing import Any

from studio.analysis.graph import kernel as k
from studio.machine_code import Entry, Items, Number, prepare_functions
from studio.native import Kernel

LOADED = 20_000
"""From so many steps on compiled code pays once it is loaded."""

_NUMBERS = Items("int64")
_NUMBER = Number()
_ENTRIES = (
    Entry("find_issue_order", (_NUMBERS,) * 9),
    Entry("find_last_before", (*[_NUMBERS] * 5, _NUMBER, _NUMBER, *[_NUMBERS] * 5), answers=False),
    Entry("find_certain_order", (_NUMBERS,) * 12),
    Entry("find_layers", (_NUMBERS,) * 3, answers=False),
    Entry("find_order", (_NUMBERS,) * 4),
    Entry("find_own_pieces", (_NUMBERS,) * 12),
)
_FUNCTIONS = ("push", "pop", "list_children", "release", *(entry.name for entry in _ENTRIES))

KERNEL = Kernel(k, __name__, _ENTRIES, prepare_functions(_FUNCTIONS, _ENTRIES))


def load_kernel() -> Any:
    """Return the kernel, compiled. Takes seconds the first time an installation asks, then from a file."""
    return KERNEL.load()


def is_faster_compiled(steps: int, kept: int, cold: int) -> bool:
    """Return whether so many steps take less time compiled, including the wait for loading and compiling.

    Args:
        steps: How many there are.
        kept: From so many on it pays where the code has to be loaded.
        cold: From so many on it pays where it has to be compiled before.
    """
    if KERNEL.loaded is not None:
        return steps >= LOADED
    return steps >= cold or (steps >= kept and KERNEL.is_cached())
