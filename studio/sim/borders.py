"""Let collectives at the borders of a recording wait for nobody: the job ran, and what some members lack lies outside of their recordings."""

from __future__ import annotations

from studio.analysis.collectives.borders import (
    BorderCollectives,
    find_border_collectives,
    has_numbered_messages,
)
from studio.analysis.collectives.matching import hold_alike, match_collectives
from studio.analysis.job.completeness import is_recording
from studio.sim.config import SystemConfig
from studio.trace import Finding, Trace
from studio.units import format_counted

_LISTED = 4
"""Ranks and comm groups that are named; the rest is counted."""


def find_recording_borders(trace: Trace, config: SystemConfig) -> BorderCollectives | None:
    """Return the collectives of a recording that not all members were recorded long enough to have, None where there are none."""
    if config.replay_only or not is_recording(trace):
        return None
    numbered = any(len(graph.rows_with("comm_seq")[0]) for graph in trace.graphs)
    if not has_numbered_messages(trace) and (not numbered or hold_alike(trace, config.groups)):
        return None
    return find_border_collectives(trace, match_collectives(trace, config.groups)) or None


def build_border_finding(borders: BorderCollectives, *, simulated: bool = True) -> Finding:
    """Return a warning that says which collectives do not wait for the other members.

    Args:
        borders: The collectives.
        simulated: Whether the job is to be simulated; else it is checked.
    """
    words = describe_borders(borders)
    then = " They take the time they were recorded with, waiting for others included." if simulated else ""
    return Finding(
        "warning",
        "border-collectives",
        f"{words}{then}",
        "Record whole steps on all ranks, with studio.collect for example.",
    )


def describe_borders(borders: BorderCollectives) -> str:
    """Say which collectives and messages lie at the borders, and of whom."""
    messages = [f"{count:,} of rank {number}" for number, count in borders.messages.items()]
    about_messages = (
        f"The recordings of the ranks do not begin or end at the same step: of the messages received {_shorten(messages)} were sent before or "
        "after the recordings of their senders."
    )
    if not borders.counts:
        return about_messages
    names = [f"group {name}" if name else "the group of all ranks" for name in borders.names]
    counts = [f"{count:,} of rank {number}" for number, count in borders.counts.items()]
    ranks = _shorten(counts)
    where = ", ".join(names[:_LISTED]) + (
        f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    )
    return (
        f"The recordings of the ranks do not begin or end at the same collective: {ranks} in {where} were not recorded by all members, "
        "as they lie before or after the recordings of these." + (f" {about_messages}" if messages else "")
    )


def _shorten(counts: list[str]) -> str:
    """Return how many those of each rank are, of the first ranks."""
    more = len(counts) - _LISTED
    return ", ".join(counts[:_LISTED]) + (
        f" and those of {format_counted(more, 'more rank')}" if more > 0 else ""
    )
