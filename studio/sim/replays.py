"""Replay a recording: the settings under which every rank takes its recorded times."""

from __future__ import annotations

from dataclasses import replace

from studio.sim.parts import EXTENDED, Parts

_ROOFLINE = "roofline-enabled"
RECORDED = {"communication-times": "recorded", "rank-starts": "recorded"}
"""Settings of the extended mode that make a simulation a replay."""


def build_idle_system(npus: int) -> Parts:
    """Return a system for a replay, or for one rank; no message uses its network."""
    network = {"topology": ["Switch"], "npus_count": [npus], "bandwidth": [1], "latency": [0]}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        EXTENDED: {},
    }
    return Parts(network, system)


def as_replay(parts: Parts) -> Parts:
    """Return the system with the settings that a replay needs; recorded times take the place of a roofline."""
    table = parts.system.get(EXTENDED)
    settings = {**(table if isinstance(table, dict) else {}), **RECORDED}
    system = {**parts.system, EXTENDED: settings}
    return replace(parts, system={**system, _ROOFLINE: 0} if system.get(_ROOFLINE) else system)
