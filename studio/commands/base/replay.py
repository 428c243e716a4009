"""Replay a recording: configure the system, and compare each step with the recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from studio.analysis.job.step_times import StepTime, step_times
from studio.commands.base.terminal import printable
from studio.sim.parts import EXTENDED, Parts
from studio.sim.result import SimResult
from studio.units import format_ns

RECORDED = {"communication-times": "recorded", "rank-starts": "recorded"}
"""Settings of the extended mode that make a simulation a replay."""
NO_NETWORK = "no network: recorded durations"


def idle_system(npus: int) -> Parts:
    """Return a system for a replay; messages do not use its network."""
    network = {"topology": ["Switch"], "npus_count": [npus], "bandwidth": [1], "latency": [0]}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        EXTENDED: {},
    }
    return Parts(network, system)


def as_replay(parts: Parts) -> Parts:
    """Return the system with the settings that a replay needs."""
    table = parts.system.get(EXTENDED)
    settings = {**(table if isinstance(table, dict) else {}), **RECORDED}
    return replace(parts, system={**parts.system, EXTENDED: settings})


def is_replay(result: SimResult) -> bool:
    """Whether communication took its recorded time."""
    extensions = result.config.extensions
    return extensions is not None and extensions.communication_times == "recorded"


def steps(result: SimResult) -> list[StepTime]:
    """Return the steps of every rank, recorded and replayed."""
    return step_times(result.trace, result.node_times())


def report(result: SimResult) -> list[dict[str, Any]]:
    """Return the steps as plain data."""
    return [
        {
            "rank": step.rank,
            "step": step.name,
            "recorded_ns": step.recorded_ns,
            "replayed_ns": step.replayed_ns,
            "difference": step.difference if step.recorded_ns else None,
        }
        for step in steps(result)
    ]


def lines(result: SimResult, most: int = 32) -> Iterator[str]:
    """Format the steps for a terminal, the first `most` one by one."""
    compared = steps(result)
    if not compared:
        yield "  nothing to compare: the trace has no start times"
        return
    yield f"  {'step':24}{'rank':>8}{'recorded':>14}{'replayed':>14}{'difference':>12}"
    for step in compared[:most]:
        name = printable(step.name or "whole trace")
        yield (
            f"  {name[:23]:24}{step.rank:>8,}{format_ns(step.recorded_ns):>14}{format_ns(step.replayed_ns):>14}"
            f"{100 * step.difference:>+10.2f} %"
        )
    if len(compared) > most:
        worst = max(compared, key=lambda item: abs(item.difference))
        yield (
            f"  and {len(compared) - most:,} more; the largest difference is {100 * worst.difference:+.2f} %, "
            f"{printable(worst.name)} of rank {worst.rank:,}"
        )
