"""Format a system for a terminal."""

from __future__ import annotations

from studio.sim.config import SystemConfig
from studio.sim.models import words_of
from studio.sim.network import TOPOLOGY_NAMES, network_gb_per_s


def system_label(config: SystemConfig) -> str:
    """Return a system in a line: its dimensions, rates and the model."""
    dims = " × ".join(
        f"{TOPOLOGY_NAMES[dim.kind]} {dim.size} ({network_gb_per_s(dim.bytes_per_ns):g} GiB/s, {dim.latency_ns:g} ns)"
        for dim in config.topology.dims
    )
    links = ""
    if config.links is not None:
        links = f" over {len(config.links.links):,} links and {config.links.switches:,} switches"
    npus = config.topology.npus
    return f"{npus:,} {'NPU' if npus == 1 else 'NPUs'}: {dims}{links}, model {words_of(config.model, config.congestion)}"
