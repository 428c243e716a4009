"""Turn results into figures.

Colours of figures are in `theme.py`. The graph of a rank as a file: `rank_graph.py` says what is drawn, `graph_files.py` writes SVG
and the legend, `graph_exchange.py` GraphML and DOT with every attribute, `graph_page.html` is the page, `svg_pictures.py` makes PDF
and PNG.

In a notebook: functions that take what the library gives, a trace (which stands for its recorded times) or a simulation,
and return plotly figures.

Example:
    >>> import studio
    >>> trace = studio.read(studio.sample_path("transformer_8r"))
    >>> result = studio.simulate(trace, studio.preset("hgx-h100-8").config.with_extensions().with_recorded_times())
    >>> type(studio.figures.rank_times(result)).__name__
    'Figure'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from studio.arguments import check_kinds
from studio.errors import ConfigError

if TYPE_CHECKING:
    from studio.analysis.collectives.imbalance import Metric
    from studio.analysis.compare.runs import Comparison
    from studio.analysis.compare.waterfall import Basis
    from studio.sim.config import SystemConfig, Topology
    from studio.sim.presets import Preset
    from studio.sim.result import SimResult
    from studio.trace import Rank, Trace

__all__ = ["activity", "changes", "collectives", "comm_groups", "rank_times", "timeline", "topology"]

_BINS_AT_MOST = 100_000


def __dir__() -> list[str]:
    return sorted(__all__)


def rank_times(run: Trace | SimResult, *, dark: bool = False) -> Any:
    """Return where the time of each rank goes, as stacked bars.

    Args:
        run: A simulation, or a trace with recorded times.
        dark: Whether for a dark background.

    Raises:
        TraceError: A trace holds no times.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> figure = studio.figures.rank_times(studio.simulate(trace, studio.preset("hgx-h100-8").config.with_extensions().with_recorded_times()))
        >>> [bar.name for bar in figure.data][:2]
        ['compute', 'overlapped']
    """
    check_kinds("figures.rank_times", rank_times, (run,), {})
    from studio.analysis.job.blame import sum_assumed_ns
    from studio.figures.ranks import draw_rank_times
    from studio.sim.compared import build_side

    side = build_side(run)
    account = side.ledger()
    return draw_rank_times(account, dark=dark, assumed_ns=sum_assumed_ns(side.trace, side.times, account))


def activity(run: Trace | SimResult, *, bins: int = 480, dark: bool = False) -> Any:
    """Return what all ranks did over time, as stacked areas.

    Args:
        run: A simulation, or a trace with recorded times.
        bins: Into how many parts the time is cut.
        dark: Whether for a dark background.

    Raises:
        TraceError: A trace holds no times.
        ConfigError: There cannot be so many parts.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> result = studio.simulate(trace, studio.preset("hgx-h100-8").config.with_extensions().with_recorded_times())
        >>> len(studio.figures.activity(result, bins=60).data[0].x)
        60
    """
    check_kinds("figures.activity", activity, (run,), {"bins": bins})
    if not 1 <= bins <= _BINS_AT_MOST:
        raise ConfigError(
            f"bins is {bins}; allowed: 1 to {_BINS_AT_MOST:,}", key="bins", allowed=f"1 to {_BINS_AT_MOST:,}"
        )
    from studio.analysis.job.occupancy import compute_occupancy
    from studio.figures.occupancy import draw_occupancy_areas
    from studio.sim.compared import build_side

    return draw_occupancy_areas(compute_occupancy(build_side(run).ledger(), bins), dark=dark)


def changes(
    comparison: Comparison,
    names: tuple[str, str] = ("A", "B"),
    *,
    basis: Basis = "busiest",
    dark: bool = False,
) -> Any:
    """Return the steps from the finish of one run to that of another, as a waterfall.

    Args:
        comparison: What `studio.compare` returned.
        names: What to call both.
        basis: Whether to take the finish apart on the `busiest` rank, or in the `mean` of all, as always where another rank waits
            least in each.
        dark: Whether for a dark background.

    Raises:
        ConfigError: Names are not two, or there is no such basis.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> replayed = studio.simulate(trace, studio.preset("hgx-h100-8").config.with_extensions().with_recorded_times())
        >>> type(studio.figures.changes(studio.compare(trace, replayed), ("recorded", "replayed"))).__name__
        'Figure'
    """
    check_kinds("figures.changes", changes, (comparison,), {})
    given: Any = names
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ConfigError(
            f"names is {names!r:.80}; allowed: two names, such as ('before', 'after')", key="names"
        )
    if basis not in (bases := ("busiest", "mean")):
        raise ConfigError(f"basis is {basis!r:.80}; allowed: {' or '.join(bases)}", key="basis")
    from studio.analysis.job.part_words import NAMES
    from studio.figures.waterfall import draw_waterfall

    return draw_waterfall(comparison.waterfall(basis), names, NAMES, dark=dark)


def comm_groups(trace: Trace, *, dark: bool = False) -> Any:
    """Return who communicates in which comm group, and how much, as a heatmap; None where nobody does.

    Args:
        trace: The job.
        dark: Whether for a dark background.

    Example:
        >>> import studio
        >>> figure = studio.figures.comm_groups(studio.read(studio.sample_path("transformer_8r")))
        >>> figure.data[0].type
        'heatmap'
    """
    check_kinds("figures.comm_groups", comm_groups, (trace,), {})
    from studio.analysis.collectives.groups import sum_group_use
    from studio.figures.groups import draw_group_matrix

    return draw_group_matrix(sum_group_use(trace), dark=dark)


def timeline(
    run: Trace | SimResult,
    ranks: Sequence[int | Rank] | int | Rank | None = None,
    *,
    dark: bool = False,
) -> Any:
    """Return what ran when, as bars in the lanes of each rank.

    Of more than 20,000 nodes neighbours of a kind share a bar, which says how many they are.

    Args:
        run: A simulation, or a trace with recorded times.
        ranks: A rank or several, by number or themselves; None takes all.
        dark: Whether for a dark background.

    Raises:
        TraceError: A trace holds no times, or there is no such rank.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> [bars.name for bars in studio.figures.timeline(trace, ranks=[0, 1]).data][:2]
        ['compute', 'collective']
    """
    check_kinds("figures.timeline", timeline, (run,), {})
    from dataclasses import replace

    from studio.analysis.timeline.calls import find_calls
    from studio.analysis.timeline.gantt import Gantt
    from studio.errors import TraceError
    from studio.figures.lanes import draw_lane_bars
    from studio.timeline import recorded
    from studio.trace import Trace

    trace, shown, origin = (
        (run, recorded(run, ranks), None) if isinstance(run, Trace) else (run.trace, run.timeline(ranks), 0)
    )
    if not len(shown):
        raise TraceError("There are no times to draw.", hint="Simulate the trace, and draw the result.")
    kept = {lane.rank for lane in shown.lanes}
    chosen = [number for number in (rank.number for rank in trace.ranks) if number in kept]
    of_ranks = replace(trace, ranks=tuple(rank for rank in trace.ranks if rank.number in kept))
    begin = int(shown.start_ns.min()) if origin is None else origin
    calls = find_calls(of_ranks) if origin is None else ()
    gantt = Gantt(of_ranks, shown, origin_ns=begin, stands_for=chosen, calls=calls)
    return draw_lane_bars(gantt, dark=dark)


def collectives(run: Trace | SimResult, metric: Metric = "duration", *, dark: bool = False) -> Any:
    """Return the collectives of each rank as a heatmap, in the order in which they began; None where there are none.

    Args:
        run: A simulation, or a trace with recorded times.
        metric: What is shown: `size`, `duration`, `waiting` (for the last rank to arrive), `lateness` (behind the
            first), or the `algorithm` or `bus` bandwidth.
        dark: Whether for a dark background.

    Raises:
        TraceError: A trace holds no times.
        ConfigError: There is no such metric.

    Example:
        >>> import studio
        >>> figure = studio.figures.collectives(studio.read(studio.sample_path("transformer_8r")), "waiting")
        >>> len(figure.data[0].x)
        8
    """
    check_kinds("figures.collectives", collectives, (run,), {})
    from studio.analysis.collectives.heat import Look, build_heat, label_line
    from studio.analysis.collectives.imbalance import METRICS
    from studio.analysis.collectives.members import collect_members
    from studio.errors import ConfigError
    from studio.figures.collective_heat import draw_collective_heatmap
    from studio.sim.compared import build_side

    if metric not in METRICS:
        raise ConfigError(f"metric is {metric!r:.80}; allowed: {', '.join(METRICS)}")
    side = build_side(run)
    heat = build_heat(collect_members(side.trace, side.times, side.groups), Look(metric, sort="time"))
    names = [label_line(heat, line) for line in range(len(heat.lines))]
    numbers = [rank.number for rank in side.trace.ranks]
    return draw_collective_heatmap(heat.table[heat.lines], names, numbers, metric, dark=dark)


def topology(system: SystemConfig | Preset | Topology, *, dark: bool = False) -> Any:
    """Return the drawing of a network: NPUs, switches and links, folded where there are many.

    Args:
        system: A system, the preset of it, or its topology.
        dark: Whether for a dark background.

    Example:
        >>> import studio
        >>> studio.figures.topology(studio.presets["hgx-h100-8"].config).layout.title.text
        '8 NPUs behind a switch'
    """
    check_kinds("figures.topology", topology, (system,), {})
    from studio.figures.network import draw_network
    from studio.sim.config import SystemConfig
    from studio.sim.presets import Preset

    config = system.config if isinstance(system, Preset) else system
    return draw_network(config.topology if isinstance(config, SystemConfig) else config, dark=dark)
