"""List the systems for --preset, with the sources of their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from studio.commands.base.options import json_option
from studio.commands.base.output import show
from studio.commands.base.systems import system_label
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


@click.command(help=__doc__, epilog="Example: chakra-studio presets")
@json_option
def command(as_json: bool) -> None:
    """Carry out `presets`."""
    show(run(), as_json, report, text)
