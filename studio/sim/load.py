"""The load of the network over time.

The simulator counts what each rank sent into each dimension, and how long each link was sending, but not when. Here
these totals are spread over the rank's communication: over the nodes whose group, or whose other end, differs from the
rank in that dimension, by their payload, evenly over the time each was under way. So the integral is exact, and the
shape is as fine as nodes are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from studio.analysis.timeline.counters import Series, Steps, span_bytes
from studio.analysis.timeline.coverage import Category, Float64
from studio.analysis.timeline.gantt import Gantt
from studio.distinct import find_distinct
from studio.sim.result import SimResult
from studio.sim.traffic import explain_offered_load
from studio.timeline import LANE_KINDS
from studio.trace import Int64

_SPREAD_EVENLY = (
    "What a rank sent in the whole run is spread evenly over its nodes that sent it, by their sizes: the sum is exact, "
    "a moment is not, and can be more than 100 % where much falls into little time."
)
_COMMUNICATION = LANE_KINDS.index("communication")


def compute_network_load(result: SimResult, gantt: Gantt) -> tuple[Series, ...]:
    """Return the offered load of each dimension, and the load of the busiest link, over time.

    It is what was sent over what could be sent, and not held down to 1: a network without congestion carries more,
    and where sending was faster than the mean of a node, so is the spreading.

    Args:
        result: What was simulated.
        gantt: Its timeline.
    """
    spread = _Spread(result, gantt)
    series = []
    for index, dimension in enumerate(result.dimensions):
        capacity = dimension.capacity_bytes_per_ns * len(dimension.bytes)
        if not capacity or not dimension.bytes.any():
            continue
        steps = spread.over(dimension.bytes.astype(np.float64) / capacity, index)
        about = f"{explain_offered_load(result.config)} {_SPREAD_EVENLY}"
        series.append(Series(f"offered load of dimension {index}", about, "share", steps))
    for index in result.links.busiest(1):
        ends = (int(result.links.source[index]), int(result.links.target[index]))
        owner = ends[0] if ends[0] < result.links.npus else ends[1]
        if owner >= result.links.npus:
            continue
        busy = np.zeros(len(result.trace.ranks))
        busy[owner] = float(result.links.busy_ns[index])
        about = (
            "Time in which the link that was sending longest was sending, of all links: 100 % is always. "
            f"{_SPREAD_EVENLY}"
        )
        series.append(
            Series(f"load of link {result.links.name(index)}", about, "share", spread.over(busy, None))
        )
    return tuple(series)


class _Spread:
    """The communication of a simulated run, ready to have totals spread over it."""

    def __init__(self, result: SimResult, gantt: Gantt) -> None:
        self._gantt = gantt
        self._size = span_bytes(gantt)
        self._place = {rank.number: place for place, rank in enumerate(result.trace.ranks)}
        sizes = [dim.size for dim in result.config.topology.dims]
        # (R, D) where each rank stands in each dimension; ranks of a system are numbered from 0.
        numbers = np.array([rank.number for rank in result.trace.ranks], np.int64)
        self._where = np.stack(
            [numbers // int(np.prod(sizes[:index])) % size for index, size in enumerate(sizes)], axis=1
        )
        groups = result.trace.groups if result.config.groups is None else result.config.groups
        self._members = {group.name: self._list_places(group.ranks) for group in groups}
        self._crossing = self._index_messages()
        self._ranks_of: dict[int, list[int]] = {}
        for row in np.flatnonzero(gantt.rows.kind == _COMMUNICATION).tolist():
            self._ranks_of.setdefault(int(gantt.rows.track[row]), []).append(row)

    def _list_places(self, ranks: tuple[int, ...]) -> Int64:
        return np.array([self._place[number] for number in ranks if number in self._place], np.int64)

    def _index_messages(self) -> Mapping[tuple[int, int], Int64]:
        """Return the other end's place in the dimensions for each send, by rank and row."""
        messages = self._gantt.messages
        sends = np.flatnonzero((messages.send_rank >= 0) & np.isin(messages.target, list(self._place)))
        pairs = zip(messages.send_rank[sends].tolist(), messages.send_row[sends].tolist(), strict=True)
        targets = [self._place[number] for number in messages.target[sends].tolist()]
        return {pair: self._where[target] for pair, target in zip(pairs, targets, strict=True)}

    def over(self, total: Float64, dimension: int | None) -> Steps:
        """Return totals (R,) of the ranks, spread over their communication in a dimension, or in any."""
        coverage = self._gantt.coverage
        of_rank: dict[int, list[tuple[Int64, Float64]]] = {}
        for track, rows in self._ranks_of.items():
            part = np.arange(int(coverage.bounds[track]), int(coverage.bounds[track + 1]))
            for row in rows:
                rank = self._place[int(self._gantt.rows.rank[row])]
                if total[rank]:
                    weight = self._size[part] * self._mark_sends(part, row, rank, dimension)
                    of_rank.setdefault(rank, []).append((part, weight))
        starts, ends, rates = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
        for rank, parts in of_rank.items():
            place = np.concatenate([places for places, _ in parts])
            weight = np.concatenate([weights for _, weights in parts])
            length = coverage.end_ns[place] - coverage.start_ns[place]
            weight[length == 0] = 0
            if not weight.any():
                continue
            used = weight > 0
            starts.append(coverage.start_ns[place[used]])
            ends.append(coverage.end_ns[place[used]])
            rates.append(total[rank] * weight[used] / weight.sum() / length[used])
        return Steps(np.concatenate(starts), np.concatenate(ends), np.concatenate(rates))

    def _mark_sends(self, part: Int64, row: int, rank: int, dimension: int | None) -> Float64:
        """Return (S,) 1 for each span of a row that sends into a dimension, 0 for others."""
        category = self._gantt.coverage.category[part]
        sends = np.isin(category, (Category.COLLECTIVE, Category.SEND)).astype(np.float64)
        if dimension is None:
            return sends
        name = self._gantt.rows.names[int(self._gantt.rows.name[row])]
        members = self._members.get(name, np.arange(len(self._where)))
        if len(find_distinct(self._where[members, dimension])) < 2:
            sends[category == Category.COLLECTIVE] = 0
        for index in np.flatnonzero(category == Category.SEND).tolist():
            target = self._crossing.get((rank, int(self._gantt.coverage.row[part[index]])))
            if target is None or target[dimension] == self._where[rank, dimension]:
                sends[index] = 0
        return sends
