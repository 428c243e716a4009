"""`chakra-studio presets`: list the named systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studio.sim.config import SystemConfig
from studio.sim.network import TOPOLOGY_NAMES, network_gb_per_s
from studio.sim.presets import PRESETS, Preset


def run() -> Sequence[Preset]:
    """Return the presets."""
    return tuple(PRESETS.values())


def report(presets: Sequence[Preset]) -> list[dict[str, Any]]:
    """Return the presets as plain data."""
    return [
        {
            "name": preset.name,
            "title": preset.title,
            "source": preset.source,
            "npus": preset.config.topology.npus,
            "network": preset.parts.network,
            "system": preset.parts.system,
            "congestion": preset.parts.congestion,
        }
        for preset in presets
    ]


def text(presets: Sequence[Preset]) -> str:
    """Format the presets for a terminal."""
    lines = []
    for preset in presets:
        lines += [
            f"{preset.name:16} {preset.title}",
            f"{'':16} {system_label(preset.config)}",
            f"{'':16} Source: {preset.source}.",
            "",
        ]
    return "\n".join(lines).rstrip()


def system_label(config: SystemConfig) -> str:
    """Return a system in a line: its dimensions, rates, network model and the mode."""
    dims = " × ".join(
        f"{TOPOLOGY_NAMES[dim.kind]} {dim.size} ({network_gb_per_s(dim.bytes_per_ns):g} GiB/s, {dim.latency_ns:g} ns)"
        for dim in config.topology.dims
    )
    links = ""
    if config.links is not None:
        links = f" over {len(config.links.links):,} links and {config.links.switches:,} switches"
    mode = "compatible" if config.extensions is None else "extended"
    npus = config.topology.npus
    return f"{npus:,} {'NPU' if npus == 1 else 'NPUs'}: {dims}{links}, congestion-{config.congestion}, {mode}"
