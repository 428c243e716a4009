"""The compiled kernels of the studio."""

from __future__ import annotations

from studio.analysis.graph import compiled as graph
from studio.et import event_columns, node_columns, wire
from studio.et.link import intervals
from studio.sim import engine

KERNELS = (
    wire.KERNEL,
    engine.KERNEL,
    event_columns.KERNEL,
    intervals.KERNEL,
    node_columns.KERNEL,
    graph.KERNEL,
)
"""The one wanted first comes first."""


def compile_kernels() -> None:
    """Compile those that this installation has not compiled before; takes up to a minute."""
    for kernel in KERNELS:
        kernel.load()
