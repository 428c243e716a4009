"""Format a system for a terminal."""

from __future__ import annotations

from typing import Any

from studio.sim.config import SystemConfig
from studio.sim.models import label_model
from studio.sim.network import TOPOLOGY_NAMES, UNIT, build_network_table
from studio.sim.settings import NETWORK_UNIT
from studio.units import format_counted


def label_system(config: SystemConfig) -> str:
    """Return a system in a line: its dimensions, rates and the model."""
    # As the files have the rates: data sheets give them in GB/s of 10^9 bytes, the reference in GiB/s.
    written = build_network_table(config)
    rates: Any = written["bandwidth"]
    unit = written.get(UNIT, NETWORK_UNIT)
    dims = " × ".join(
        f"{TOPOLOGY_NAMES[dim.kind]} {dim.size} ({rate:g} {unit}{_format_latency(config, dim.latency_ns)})"
        for dim, rate in zip(config.topology.dims, rates, strict=True)
    )
    links = ""
    if config.links is not None:
        links = (
            f" over {format_counted(len(config.links.links), 'link')} and "
            f"{format_counted(config.links.switches, 'switch', 'switches')}"
        )
    return f"{format_counted(config.topology.npus, 'NPU')}: {dims}{links}, model {label_model(config.model, config.congestion)}"


def _format_latency(config: SystemConfig, latency_ns: float) -> str:
    """Return the latency of a dimension; "" where it is among the costs of a library, and none of the network."""
    return "" if config.costs is not None and not latency_ns else f", {latency_ns:g} ns"
