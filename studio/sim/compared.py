"""Compare recordings and simulations as the library gives them: a trace stands for its recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from studio.analysis.compare.runs import Comparison
from studio.analysis.compare.runs import compare as compare_sides
from studio.analysis.compare.sides import Carried, Side, build_recorded_side
from studio.analysis.job.ledger import Delays
from studio.analysis.path.whole import WholePath, build_whole_path
from studio.sim.choices import explain_choice
from studio.sim.config import SystemConfig, Topology
from studio.sim.matched import replays_communication
from studio.sim.models import label_model
from studio.sim.result import SimResult, compute_delays
from studio.sim.traffic import explain_offered_load
from studio.timeline import NodeTimes, collect_recorded_times, recorded
from studio.trace import Trace


def compare(a: Trace | SimResult, b: Trace | SimResult) -> Comparison:
    """Compare two runs: how much longer `b` takes than `a`, in which part of its time, and because of which nodes.

    Args:
        a: What is compared with: a simulation, or a trace, which stands for its recorded times.
        b: What is compared.

    Raises:
        TraceError: A trace holds no times.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> config = studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times()
        >>> found = studio.compare(trace, studio.simulate(trace, config))
        >>> found.a.makespan_ns + found.difference_ns == found.b.makespan_ns
        True
    """
    return compare_sides(build_side(a), build_side(b))


def critical_path(run: Trace | SimResult) -> WholePath:
    """Return what the finish of a run consists of, through all ranks: only what makes a part of it shorter makes the run shorter.

    Its `shares` are the table that `chakra-studio critical-path` prints, in words, the largest first; `pandas.DataFrame(shares)` takes
    them. Its `path` has the segments one after the other: `rank` (place in the trace's ranks), `row` (of that rank's nodes, -1 for
    gaps after the last), `start_ns` and `end_ns` after the beginning of the run.

    Args:
        run: A simulation, or a trace, which stands for its recorded times.

    Raises:
        TraceError: A trace holds no times.

    Example:
        >>> import studio
        >>> found = studio.critical_path(studio.read(studio.sample_path("transformer_8r")))
        >>> found.shares[0].what, found.shares[0].ns, found.path.length_ns
        ('compute of stage 1', 26813000, 44453000)
    """
    side = build_side(run)
    return build_whole_path(side, side.ledger())


def build_side(run: Trace | SimResult) -> Side:
    """Return a run as a side of a comparison.

    Raises:
        TraceError: A trace holds no times.
    """
    if isinstance(run, Trace):
        return build_recorded_side(run, collect_recorded_times(run, recorded(run)))
    times = run.node_times()
    return Side(
        run.trace,
        times,
        run.finish_ns,
        groups=run.config.groups,
        joins=not run.config.replay_only,
        dimensions=_collect_dimensions(run),
        links=_collect_links(run),
        delays=_DelayFinder(run, times),
        model=label_model(run.config.model, run.config.congestion),
        dimensions_between=_build_dimension_finder(run),
        system=_equalize_speeds(run.config),
        speeds=tuple(
            (dim.bytes_per_ns * dim.efficiency, dim.latency_ns + dim.message_overhead_ns)
            for dim in run.config.topology.dims
        ),
        explain_choice=partial(explain_choice, run.config) if run.config.flows else None,
    )


def _equalize_speeds(config: SystemConfig) -> SystemConfig | None:
    """Return a system with dimensions of one speed, which is equal for systems that differ in their speeds alone; None without dimensions."""
    if config.links is not None or replays_communication(config):
        return None
    dims = tuple(
        replace(dim, bytes_per_ns=1.0, latency_ns=0.0, efficiency=1.0, message_overhead_ns=0.0)
        for dim in config.topology.dims
    )
    return replace(config, topology=Topology(dims))


def _build_dimension_finder(result: SimResult) -> Callable[[Sequence[int]], tuple[int, ...]] | None:
    config = result.config
    if config.links is not None or replays_communication(config) or config.topology.npus == 1:
        return None

    return _DimensionFinder(config.topology)


# Classes, where a function within a function would do, since programs send comparisons to each other.


@dataclass(frozen=True, slots=True, repr=False)
class _DelayFinder:
    """Works out how late the collectives of a simulation were, once it is asked."""

    run: SimResult
    times: NodeTimes

    def __call__(self) -> Delays | None:
        return compute_delays(self.run, self.times)


@dataclass(frozen=True, slots=True, repr=False)
class _DimensionFinder:
    """Tells the dimensions of a network in which ranks differ."""

    topology: Topology

    def __call__(self, ranks: Sequence[int]) -> tuple[int, ...]:
        addresses = [self.topology.address(rank) for rank in ranks]
        return tuple(
            index
            for index, coordinates in enumerate(zip(*addresses, strict=True))
            if len(set(coordinates)) > 1
        )


def _collect_dimensions(result: SimResult) -> Carried:
    # By number: what a dimension is made of is a setting, which may be what is compared.
    names = tuple(f"dimension {index}" for index in range(len(result.dimensions)))
    size = [int(carried.bytes.sum()) for carried in result.dimensions]
    # Among single links a dimension has no ports of its own: neither is known, and nothing is compared with it.
    ports = [carried.capacity_bytes_per_ns > 0 for carried in result.dimensions]
    pairs = list(zip(result.dimensions, ports, strict=True))
    busy = [float(carried.busy_ns.mean()) if known else np.nan for carried, known in pairs]
    load = [carried.offered_load(result.makespan_ns) if known else np.nan for carried, known in pairs]
    about = explain_offered_load(result.config)
    return Carried(names, np.array(size, np.int64), np.array(busy, float), np.array(load, float), about)


def _collect_links(result: SimResult) -> Carried:
    links = result.links
    names = tuple(links.name(index) for index in range(len(links)))
    busy = links.busy_ns.astype(float)
    about = "Time in which the link was sending, of the time until the finish."
    return Carried(names, links.bytes, busy, busy / max(result.makespan_ns, 1), about)
