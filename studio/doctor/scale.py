"""Find ranks whose durations are in another unit than those of the others: a thousand times too long or too short."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from studio.analysis.job.completeness import is_recording
from studio.analysis.job.kinds import is_library_kernel
from studio.distinct import find_distinct
from studio.doctor.diagnosis import Case, Found, GraphCase
from studio.sim.agreement import format_ranks
from studio.trace import Bool, NodeType
from studio.units import format_count, format_ns

_STEP = 1000.0
_TOLERANCE = 3.0
"""Units differ by a thousand; equal work on different ranks by much less than this factor."""
_AGREE = 0.8
"""Share of the names for which the factor has to be about the same."""
_NAMES = 2_000
"""Of a graph with more names those that take most time are compared: they are enough to see a unit by."""


_TELLING = (NodeType.COMM_COLL,), (NodeType.COMM_SEND, NodeType.COMM_RECV)
"""What is shorter on a rank that is late everywhere."""

_READ_AS = {
    _STEP**-2: "seconds were read as microseconds",
    1 / _STEP: "milliseconds were read as microseconds",
    _STEP: "nanoseconds were read as microseconds",
    _STEP**2: "nanoseconds were read as milliseconds",
}
"""By factor, what most likely happened to the unit."""
_SHORT = (
    "These ranks seem to do next to nothing but to wait for the others: replays, breakdowns and critical paths tell of the "
    "unit, not of the job."
)


def check_duration_units(case: Case) -> Iterator[Found]:
    """Yield ranks whose computation of the same names takes about 1,000 or 1,000,000 times as long as elsewhere."""
    if len(case.graphs) < 2:
        return
    calling = _collect_calling_names(case)
    medians = [(graph_case, _compute_medians(graph_case, calling)) for graph_case in case.graphs]
    medians = [(graph_case, values) for graph_case, values in medians if values]
    if len(medians) < 2:
        return
    usual = _compute_usual(medians)
    for graph_case, values in medians:
        names = [name for name in values if name in usual]
        factors = np.array([values[name] / usual[name] for name in names])
        factor = float(np.median(factors)) if len(factors) else 1.0
        step = _find_unit_step(factor)
        near = (factors > factor / _TOLERANCE) & (factors < factor * _TOLERANCE)
        if step == 1.0 or not near.mean() >= _AGREE:
            continue
        # One that shows the factor, and takes long.
        shows = [name for name, is_near in zip(names, near.tolist(), strict=True) if is_near]
        name = max(shows, key=lambda name: values[name])
        longer = "long" if step > 1 else "short"
        times = format_count(int(max(step, 1 / step)))
        unit = f", as if {_READ_AS[step]}" if step in _READ_AS else ""
        yield Found(
            "error" if _is_certain(case, graph_case, step, len(factors)) else "warning",
            f"Computation of {format_ranks(graph_case.ranks)} takes about {times} times as {longer} as that of the same name on "
            f"other ranks{unit}: {name[:60] or 'nodes without a name'} {format_ns(values[name])} instead of "
            f"{format_ns(usual[name])} in the median.",
            graph_case.ranks,
            (),
            len(graph_case.ranks),
            (("names compared", format_count(len(factors))), ("median factor", f"{factor:,.4g}")),
            consequence="" if step > 1 else _SHORT,
        )


def _is_certain(case: Case, graph_case: GraphCase, step: float, names: int) -> bool:
    """Whether ranks cannot just have computed more or less than the others, by so many names.

    Of a job that ran, those that are late everywhere find the others waiting: collectives are shortest for them, and all were recorded
    for about as long. Durations without times tell no more than what they are of.
    """
    others = [other for other in case.graphs if other is not graph_case]
    if graph_case.ranks[0] not in case.windows:
        return names > 1
    waits = [_compute_communication_ns(other) for other in others]
    lengths = [
        end - begin
        for begin, end in (case.windows[other.ranks[0]] for other in others if other.ranks[0] in case.windows)
    ]
    begin, end = case.windows[graph_case.ranks[0]]
    return any(
        bool(usual) and _find_unit_step(own / float(np.median(usual))) == step
        for own, usual in (
            (_compute_communication_ns(graph_case), [value for value in waits if value]),
            (float(end - begin), [value for value in lengths if value]),
        )
    )


def _compute_communication_ns(case: GraphCase) -> float:
    """Return how long collectives of a graph last on average, messages where it has none, 0 where that was not recorded."""
    graph = case.graph
    kinds = next((kinds for kinds in _TELLING if np.isin(graph.type, kinds).any()), ())
    durations = graph.duration_ns[np.isin(graph.type, kinds) & (graph.duration_ns > 0)]
    return float(durations.mean()) if len(durations) else 0.0


def _find_unit_step(factor: float) -> float:
    """Return the power of a thousand that a factor is near, 1 where it is near none."""
    power = round(np.log(factor) / np.log(_STEP)) if factor > 0 else 0
    step = float(_STEP**power)
    return step if power and step / _TOLERANCE < factor < step * _TOLERANCE else 1.0


def _collect_calling_names(case: Case) -> frozenset[str]:
    """Return the names of operators of the processor that called others somewhere in a recording.

    Their own time is what their callees leave of it: where the unit is wrong, callees do not lie within them, and that is no multiple
    of what it is elsewhere.
    """
    if not is_recording(case.trace):
        return frozenset()
    names: set[str] = set()
    for graph_case in case.graphs:
        graph = graph_case.graph
        callers = find_distinct(graph.ctrl.rows[graph.ctrl.rows >= 0])
        codes = find_distinct(graph.name[callers[graph_case.on_cpu[callers]]])
        names.update(graph.strings[code] for code in codes.tolist() if code >= 0)
    return frozenset(names)


def _find_measured(case: GraphCase) -> Bool:
    """Return (N,) which nodes compute for a time that was recorded: kernels, where there are any, else operators.

    Time between others was derived of theirs, and kernels of communication libraries wait for other ranks.
    """
    graph = case.graph
    chosen = (graph.type == NodeType.COMP) & (graph.duration_ns > 0) & ~is_library_kernel(graph)
    chosen[graph.rows_with("gap")[0]] = False
    kernels = chosen & ~case.on_cpu
    return np.asarray(kernels if kernels.any() else chosen)


def _compute_medians(case: GraphCase, calling: Collection[str]) -> dict[str, float]:
    """Return the median duration of computation by name, in nanoseconds, of the names that take most time.

    A call during which the thread had to wait for its processor decides a mean, where a recording has few.

    Args:
        case: The graph.
        calling: Names of operators that are left out, since their own time tells of those that they call.
    """
    graph = case.graph
    rows = np.flatnonzero(_find_measured(case))
    names, place = np.unique(graph.name[rows], return_inverse=True)
    if not len(names):
        return {}
    durations = graph.duration_ns[rows]
    total = np.bincount(place, durations.astype(np.float64))
    longest = np.argsort(-total, kind="stable")[:_NAMES]
    texts = [graph.strings[code] if code >= 0 else "" for code in names[longest].tolist()]
    order = np.lexsort((durations, place))
    first = np.searchsorted(place[order], np.arange(len(names) + 1))
    # Of two in the middle the smaller.
    middle = durations[order[(first[:-1] + first[1:] - 1) // 2]]
    by_name = dict(zip(texts, middle[longest].tolist(), strict=True))
    return {name: value for name, value in by_name.items() if name not in calling}


def _compute_usual(medians: list[tuple[GraphCase, dict[str, float]]]) -> dict[str, float]:
    """Return the median over ranks by name, of those on several graphs; of two values the smaller."""
    values: dict[str, list[tuple[float, int]]] = {}
    for graph_case, by_name in medians:
        for name, value in by_name.items():
            values.setdefault(name, []).append((value, len(graph_case.ranks)))
    usual = {}
    for name, weighted in values.items():
        if len(weighted) > 1:
            weighted.sort()
            counts = np.cumsum([count for _, count in weighted])
            usual[name] = weighted[int(np.searchsorted(counts, counts[-1] / 2))][0]
    return usual
