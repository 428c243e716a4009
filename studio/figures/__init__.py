"""Turn results into figures.

In a notebook: functions that take what the library gives, a trace (which stands for its recorded times) or a simulation,
and return plotly figures.

Example:
    >>> import studio
    >>> trace = studio.read(studio.sample_path("transformer_8r"))
    >>> result = studio.simulate(trace, studio.preset("hgx-h100-8").config.extended().replaying())
    >>> type(studio.figures.rank_times(result)).__name__
    'Figure'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from studio.analysis.compare.runs import Basis, Comparison
    from studio.sim.result import SimResult
    from studio.trace import Trace

__all__ = ["activity", "changes", "comm_groups", "rank_times"]


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
        >>> figure = studio.figures.rank_times(studio.simulate(trace, studio.preset("hgx-h100-8").config.extended().replaying()))
        >>> [bar.name for bar in figure.data][:2]
        ['compute', 'exposed communication']
    """
    from studio.analysis.job.breakdown import rank_use
    from studio.figures.ranks import rank_times as bars
    from studio.sim.compared import side_of

    side = side_of(run)
    use = rank_use(side.trace, side.times, side.finish_ns, side.origin_ns)
    return bars(use.times, use.finish_ns, use.numbers, dark=dark)


def activity(run: Trace | SimResult, *, bins: int = 480, dark: bool = False) -> Any:
    """Return what all ranks did over time, as stacked areas.

    Args:
        run: A simulation, or a trace with recorded times.
        bins: Into how many parts the time is cut.
        dark: Whether for a dark background.

    Raises:
        TraceError: A trace holds no times.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> result = studio.simulate(trace, studio.preset("hgx-h100-8").config.extended().replaying())
        >>> len(studio.figures.activity(result, bins=60).data[0].x)
        60
    """
    from studio.analysis.job.occupancy import occupancy
    from studio.figures.occupancy import occupancy_areas
    from studio.sim.compared import side_of

    side = side_of(run)
    shares = occupancy(
        side.trace, side.times, origin_ns=side.origin_ns, makespan_ns=side.makespan_ns, bins=max(bins, 1)
    )
    return occupancy_areas(shares, dark=dark)


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
        basis: Whether to take the finish apart on the `busiest` rank of each, or in the `mean` of all.
        dark: Whether for a dark background.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> replayed = studio.simulate(trace, studio.preset("hgx-h100-8").config.extended().replaying())
        >>> type(studio.figures.changes(studio.compare(trace, replayed), ("recorded", "replayed"))).__name__
        'Figure'
    """
    from studio.analysis.compare.words import WORDS
    from studio.figures.waterfall import waterfall

    return waterfall(comparison.waterfall(basis), names, WORDS, dark=dark)


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
    from studio.analysis.collectives.groups import group_use
    from studio.figures.groups import group_matrix

    return group_matrix(group_use(trace), dark=dark)
