"""Doubts about a network by the recording that is simulated on it: hardware of this kind was faster."""

from __future__ import annotations

from studio.analysis.collectives.size_classes import SizeClass, list_size_classes
from studio.analysis.collectives.times import compute_collective_times
from studio.analysis.job.completeness import is_recording
from studio.errors import ConfigError
from studio.sim.attained import FASTER, estimate_attained
from studio.sim.config import SystemConfig
from studio.sim.doubt_facts import TRIFLE, Facts, Found
from studio.sim.presets import preset
from studio.sim.systems.proposals import find_recorded_system
from studio.timeline import read_recorded_times
from studio.trace import Trace
from studio.units import format_bytes, format_count, format_ns

_COMPLETE = frozenset({"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"})
"""Collectives that no member ends before the last one came: what they take after that is the time of the network."""


def find_recorded_faster(facts: Facts) -> Found:
    """Find recorded collectives that took much less time than they take on the network of the same hardware.

    Recorded times count from the last known arrival, so that they hold waiting at most, never too little time.
    """
    trace = facts.result.trace
    if not facts.simulated or not facts.costs or not _is_of(facts.config, trace):
        return
    classes = list_size_classes(
        trace, compute_collective_times(trace, read_recorded_times(trace), trace.groups)
    )
    slow = [
        (each, ns)
        for each, ns in zip(classes, estimate_attained(facts.config, trace, classes), strict=True)
        if each.type in _COMPLETE and ns is not None and ns > FASTER * each.median_ns > 0
    ]
    if not slow:
        return
    lost = [_compute_lost_ns(each, ns) for each, ns in slow]
    mean_ns = sum(lost) / len(trace.ranks)
    exposed_ns = float(facts.ledger.totals().exposed_ns.mean())
    if max(mean_ns / max(facts.result.makespan_ns, 1), mean_ns / max(exposed_ns, 1.0)) < TRIFLE:
        return
    worst, ns = slow[lost.index(max(lost))]
    count, every = sum(each.count for each, _ in slow), sum(each.count for each in classes)
    yield (
        (
            f"The recording contradicts this network: {format_count(count)} of {format_count(every)} collectives took less than "
            f"two thirds of their time on it, as {worst.type} of {format_bytes(worst.most_bytes)} in "
            f"{format_ns(worst.median_ns)}, not {format_ns(ns)}: {format_ns(round(mean_ns))} a rank. Fit the network to what was "
            f"recorded: chakra-studio calibrate FILES --gpus-per-node {facts.config.topology.dims[0].size} -o system.yml."
        ),
        None,
    )


def _is_of(config: SystemConfig, trace: Trace) -> bool:
    """Return whether a system is that of the devices that a job was recorded on, as its preset has it."""
    if not is_recording(trace):
        return False
    recorded_system = find_recorded_system(trace)
    if recorded_system is None:
        return False
    try:
        recorded = preset(recorded_system[0].name, npus=config.topology.npus).config
    except ConfigError:  # not in this size
        return False
    return recorded.topology == config.topology and recorded.costs == config.costs


def _compute_lost_ns(each: SizeClass, ns: int) -> int:
    """Return by how much too long all members of collectives of a class take."""
    return (ns - each.median_ns) * each.count * each.members
