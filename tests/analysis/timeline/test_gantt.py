"""What a browser gets to draw, on the samples."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import studio
from studio.analysis.timeline.gantt import BARS_AT_MOST, TILE_BINS, Gantt
from studio.errors import TraceError
from studio.samples import sample_path
from studio.timeline import recorded
from studio.trace import read_int_column
from tests.handmade import node, trace_of


@cache
def gantt() -> Gantt:
    """The recording of a sample of 32 ranks, 10,208 nodes."""
    trace = studio.read(sample_path("transformer_32r"))
    timeline = recorded(trace)
    return Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))


def bar_times(found: Gantt, level: int, index: int) -> set[tuple[int, int, int, int]]:
    """(row, node, start, end) of the bars of a tile of every row."""
    tile = found.tile(level, index, range(len(found.rows)))
    row = np.repeat(np.arange(len(found.rows)), np.diff(tile.bars))
    begin = index * TILE_BINS << level
    start, end = (part.astype(np.int64) + begin for part in (tile.start, tile.end))
    return set(zip(row.tolist(), tile.node.tolist(), start.tolist(), end.tolist(), strict=True))


def test_tiles_side_by_side_hold_every_node_with_its_recorded_times() -> None:
    found = gantt()
    level = 9
    bars = set()
    for index in range(found.span_ns // (TILE_BINS << level) + 1):
        bars |= bar_times(found, level, index)
    trace = found.trace
    expected = {
        (rank.number, row, int(graph.start_ns[row]) - found.origin_ns, int(graph.duration_ns[row]))
        for rank in trace.ranks
        for graph in (trace.graph_of(rank),)
        for row in range(len(graph))
    }
    assert {
        (int(found.rows.rank[row]), node, start, end - start) for row, node, start, end in bars
    } == expected
    assert len(found) == trace.node_count


def test_a_full_row_comes_as_bins_that_add_up_to_its_busy_time() -> None:
    trace = studio.read(sample_path("imbalance_8r"))
    timeline = recorded(trace)
    found = Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))
    level = (found.span_ns // TILE_BINS).bit_length()
    tile = found.tile(level, 0, range(len(found.rows)))
    counts = np.diff(found.coverage.bounds)[found.rows.track]
    assert len(tile.binned)
    assert set(tile.binned.tolist()) == set(np.flatnonzero(counts > BARS_AT_MOST).tolist())
    for at, row in enumerate(tile.binned.tolist()):
        assert tile.begun[at].sum() == counts[row]
        assert tile.bars[row] == tile.bars[row + 1]


def test_names_and_bytes_of_bars_are_those_of_the_nodes() -> None:
    found = gantt()
    rows = [5, 40]
    tile = found.tile(14, 0, rows)
    for at, row in enumerate(rows):
        rank = found.rank(int(found.rows.rank[row]))
        graph = found.trace.graph_of(rank)
        sizes = dict(zip(*(column.tolist() for column in read_int_column(graph, "comm_size")), strict=True))
        for bar in range(int(tile.bars[at]), int(tile.bars[at + 1])):
            node = int(tile.node[bar])
            assert tile.names[tile.name[bar]] == graph.strings[int(graph.name[node])]
            assert tile.bytes[bar] == sizes.get(node, 0)


def test_neighbours_on_the_lane_and_along_dependencies() -> None:
    found = gantt()
    rank = found.rank(3)
    graph = found.trace.graph_of(rank)
    bar = found.bar(rank, 60)
    assert bar is not None
    before, after = found.beside(bar)
    assert before is not None
    assert after is not None
    assert before.start_ns <= bar.start_ns <= after.start_ns
    back = found.beside(after)[0]
    assert back is not None
    assert (back.node, back.row) == (60, bar.row)
    up, down = found.depends(bar)
    waits = {int(row) for kind in (graph.data, graph.ctrl) for row in kind.of(60)}
    assert {one.node for one, _ in up} == waits
    assert all(60 in [*graph.data.of(one.node), *graph.ctrl.of(one.node)] for one, _ in down)
    assert found.bar_at(bar.row, bar.start_ns, 0) == bar


def test_a_rank_that_another_stands_for_has_its_times_and_its_own_groups() -> None:
    """Of a folded simulation one rank per class is kept; lanes are named by the groups of the rank shown."""
    whole = gantt()
    trace = whole.trace
    same = [rank.number for rank in trace.ranks if rank.graph == trace.ranks[0].graph]
    kept = [rank.number for rank in trace.ranks if rank.number not in same or rank.number == same[0]]
    stands_for = [same[0] if rank.number in same else rank.number for rank in trace.ranks]
    timeline = recorded(trace, kept)
    folded = Gantt(trace, timeline, origin_ns=whole.origin_ns, stands_for=stands_for)
    assert len(folded) == len(whole)
    assert len(folded.rows) == len(whole.rows)
    own = {
        (int(whole.rows.rank[row]), whole.rows.names[int(whole.rows.name[row])])
        for row in range(len(whole.rows))
    }
    named = {
        (int(folded.rows.rank[row]), folded.rows.names[int(folded.rows.name[row])])
        for row in range(len(folded.rows))
    }
    assert named == own
    first, other = (folded.bar(folded.rank(number), 60) for number in (same[0], same[5]))
    assert first is not None
    assert other is not None
    assert (first.start_ns, first.end_ns) == (other.start_ns, other.end_ns)
    assert other.rank.number == same[5]


def test_a_call_that_waits_for_the_device_is_drawn_from_when_it_was_made() -> None:
    """The host works until 10, then synchronises with a kernel that ends at 50, which takes 2 more."""

    def at(start: int, micros: int, made: Any) -> Any:
        made.start_time_micros, made.duration_micros = 100 + start, micros
        return made

    nodes = [
        at(0, 10, node(1, "COMP", is_cpu_op=True)),
        at(5, 45, node(2, "COMP", 1)),
        at(50, 2, node(3, "COMP", 1, 2, name="cudaDeviceSynchronize", is_cpu_op=True, waits_for="device")),
    ]
    trace = trace_of([nodes])
    found = Gantt(trace, recorded(trace), origin_ns=100_000)
    bar = found.bar(trace.ranks[0], 2)
    assert bar is not None
    assert (bar.start_ns, bar.end_ns, bar.waits_ns) == (10_000, 52_000, 40_000)
    [tile] = [found.tile(10, 0, [bar.row])]
    assert tile.waits.tolist() == [0, 40_000]
    other = found.bar(trace.ranks[0], 1)
    assert other is not None
    assert (other.start_ns, other.waits_ns) == (5_000, 0)


def test_an_unknown_rank_is_refused() -> None:
    with pytest.raises(TraceError, match="no rank 99"):
        gantt().rank(99)
