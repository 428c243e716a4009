"""A recorded call is drawn where it ran itself: one node in several bars."""

from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace

import flask
import numpy as np
import pytest

import studio
from studio.analysis.timeline.chains import chain_of, list_chain_boxes
from studio.analysis.timeline.chrome import iterate_chrome_events
from studio.analysis.timeline.differences import Ghost, find_differences
from studio.analysis.timeline.hits import find_hits
from studio.analysis.timeline.perfetto import iterate_perfetto_events
from studio.analysis.timeline.undrawn import find_undrawn
from studio.analysis.timeline.window import compute_shares
from studio.commands.base.timelines import iterate_timeline
from studio.et import events
from studio.server.bars import PIECES_AT_MOST, _join_nearest
from studio.server.timeline import build_timeline_blueprint
from studio.session import build_recorded_gantt, build_simulated_gantt
from studio.sim import simulate
from studio.sim.timed import build_timed_trace
from studio.store.runs import Run
from studio.timeline import read_recorded_times
from tests.handmade import at, node, trace_of
from tests.viewer_rules import chrome_facts, perfetto_facts

BEGIN = 100
"""When the recording begins, in µs."""
BARS = {(2, 0, 20), (3, 20, 30), (4, 30, 40), (3, 40, 50), (2, 50, 100), (5, 100, 120)}


def operator(number: int, start: int, own: int, *waits_for: int, whole: int = 0, name: str = ""):
    """A call on a thread, which took so long itself, and with what it called; in µs."""
    attributes = {"inclusive_ns": whole * 1000} if whole else {}
    made = node(number, "COMP", *waits_for, name=name or f"op{number}", is_cpu_op=True, tid=1, **attributes)
    return at(BEGIN + start, own, made)


@pytest.fixture(scope="module")
def trace():
    """A call of 100 µs calls another for 30, which calls a third for 10; another follows."""
    nodes = [operator(2, 0, 70, whole=100), operator(3, 20, 20, 2, whole=30), operator(4, 30, 10, 3)]
    return trace_of([[*nodes, operator(5, 100, 20, 2)]])


@pytest.fixture(scope="module")
def gantt(trace):
    return build_recorded_gantt(trace)


def bars(gantt, row=0):
    """Id, start and end of what is drawn in a row, in µs."""
    tile = gantt.tile(8, 0, [row])
    ids = gantt.trace.graphs[0].id[tile.node].tolist()
    times = ((column / 1000).astype(int).tolist() for column in (tile.start, tile.end))
    return set(zip(ids, *times, strict=True))


def test_bars_lie_where_the_ledger_counts_the_time_of_calls(gantt):
    assert (len(gantt.rows), bars(gantt)) == (1, BARS)
    pieces = gantt.account.pieces[0]
    drawn = zip(pieces.row.tolist(), pieces.start_ns.tolist(), pieces.end_ns.tolist(), strict=True)
    ids = gantt.trace.graphs[0].id
    counted = {(int(ids[r]), start // 1000 - BEGIN, end // 1000 - BEGIN) for r, start, end in drawn}
    assert counted == {bar for bar in BARS if bar[0] in (2, 3)}


def test_several_bars_are_one_node(gantt):
    (rank,) = gantt.trace.ranks
    assert (len(gantt), find_undrawn(gantt).count) == (4, 0)
    tile = gantt.tile(8, 0, [0])
    calls = tile.calls
    told = [int(gantt.trace.graphs[0].id[tile.node[bar]]) for bar in calls.call.tolist()]
    assert (told, calls.call_pieces.tolist()) == ([2, 3, 3, 2], [2] * 4)
    assert calls.call_own.tolist() == [70_000, 20_000, 20_000, 70_000]
    assert calls.call_end.tolist() == [100_000, 50_000, 50_000, 100_000]
    over = gantt.bar_at(0, 60_000, 0)
    assert over is not None
    assert (over.node, over.start_ns, over.end_ns, over.time_ns) == (0, 0, 100_000, 70_000)
    assert gantt.pieces_of(over).T.tolist() == [[0, 0, 20_000], [0, 50_000, 100_000]]
    steps = [bar and bar.node for bar in gantt.beside(gantt.bar(rank, 1))]
    assert steps == [0, 2], "each node is one step"
    assert [bar.node for bar in gantt.window(0, 0, 200_000)] == [0, 1, 2, 3]
    assert [bar.node for bar in gantt.window(0, 60_000, 70_000)] == [0]
    hits = find_hits(gantt, "op")
    assert (hits.count, hits.node.tolist(), hits.bars.shape) == (4, [0, 1, 2, 3], (3, 6))
    names = {share.what: (share.nodes, share.time_ns) for share in compute_shares(gantt, 0, 120_000, "name")}
    assert names == {"op2": (1, 70_000), "op3": (1, 20_000), "op4": (1, 10_000), "op5": (1, 20_000)}


def test_crowded_rows_count_nodes_and_not_their_bars():
    calls = [operator(1, 0, 301, whole=601), *(operator(2 + n, 1 + 2 * n, 1, 1) for n in range(300))]
    gantt = build_recorded_gantt(trace_of([calls]))
    tile = gantt.tile(10, 0, [0])
    assert tile.binned.tolist() == [0]
    assert tile.begun.sum() == 301
    assert tile.fraction.max() == 255


def test_arrows_leave_from_the_bar_before(gantt):
    (rank,) = gantt.trace.ranks
    first, second, _, last = (gantt.bar(rank, row) for row in range(4))
    assert gantt.link(first, second) == ((0, 0, 20_000), (0, 20_000, 30_000))
    assert gantt.link(first, last) == ((0, 50_000, 100_000), (0, 100_000, 120_000))
    boxes, edges = list_chain_boxes(gantt, chain_of(gantt, first))
    links = {(boxes[before], boxes[after]) for before, after, _ in edges}
    assert links == {
        gantt.link(first, second),
        gantt.link(second, gantt.bar(rank, 2)),
        gantt.link(first, last),
    }


def test_a_wait_for_the_device_begins_where_the_call_stopped():
    device = at(BEGIN + 5, 55, node(9, "COMP", name="kernel", is_cpu_op=False, stream=7))
    call = operator(2, 0, 40, whole=100)
    waits = at(
        BEGIN + 60,
        10,
        node(3, "COMP", 2, name="sync", is_cpu_op=True, tid=1, waits_for="device", wait_ns=40_000),
    )
    gantt = build_recorded_gantt(trace_of([[call, waits, device]]))
    rows = {bar for row in range(len(gantt.rows)) for bar in bars(gantt, row)}
    assert {(2, 0, 20), (3, 20, 70), (2, 70, 90)} <= rows


def test_another_run_has_its_own_bars(trace, gantt):
    """A recording below a simulation of itself and the other way round: each is drawn as it ran, and compared by own time."""
    result = simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
    run = build_simulated_gantt(Run("run", result, studio.presets["hgx-h100-8"].parts))
    assert not run.calls
    below = Ghost(run, read_recorded_times(trace), origin_ns=gantt.origin_ns, calls=gantt.calls)
    row = next(row for row in range(len(below.rows)) if len(bars(below, row)))
    assert bars(below, row) == BARS
    above = Ghost(gantt, result.node_times())
    assert len(bars(above)) == 4, "simulated nodes run in one piece"
    for changes in (find_differences(run, below, (0, 10**9)), find_differences(gantt, above, (0, 10**9))):
        assert sorted(changes.node.tolist()) == [0, 1, 2, 3]
        assert (changes.time_ns == changes.other_ns).all()


@pytest.mark.parametrize("form", ["json", "pftrace"])
def test_exported_slices_are_the_pieces_and_are_read_back_as_calls(trace, gantt, form, tmp_path):
    if form == "json":
        data = "".join(iterate_chrome_events(gantt)).encode()
        slices = [event for event in json.loads(data)["traceEvents"] if event["ph"] == "X"]
        drawn = {(event["args"]["id"], int(event["ts"]), int(event["ts"] + event["dur"])) for event in slices}
        assert drawn == BARS
        owns = sum(
            event["args"].get("own_ns", event["dur"] * 1000 * ("piece" not in event["args"]))
            for event in slices
        )
        assert owns == sum(event["dur"] for event in slices) * 1000 == 120_000
    else:
        data = b"".join(iterate_perfetto_events(gantt))
    facts = (chrome_facts if form == "json" else perfetto_facts)(data)
    assert (facts.problems, facts.slices) == ([], len(BARS))
    path = tmp_path / f"timeline.{form}"
    path.write_bytes(data)
    again = studio.read(path)
    assert again.node_count == 4
    assert bars(build_recorded_gantt(again)) == BARS
    waits = {
        int(i): len(again.graphs[0].data.of(row)) + len(again.graphs[0].ctrl.of(row))
        for row, i in enumerate(again.graphs[0].id.tolist())
    }
    assert waits == {2: 0, 3: 1, 4: 1, 5: 1}


def test_lines_issue_a_call_for_each_piece(trace):
    lines = b"".join(iterate_timeline(trace, ".log", "job")).decode().splitlines()
    ticks = [line.split(": ", 1)[1].split(", ")[:3] for line in lines if "node" in line]
    assert len(ticks) == 2 * len(BARS)
    total = sum(
        int(tick.removeprefix("tick=")) * (1 if word.startswith("callback") else -1)
        for word, tick, _ in ticks
    )
    assert total == 120_000
    assert events.finish_lines("\n".join(lines).encode())[0].ticks == (BEGIN + 120) * 1000


def test_simulated_timelines_have_a_bar_for_each_node(trace):
    config = studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times()
    timed = build_timed_trace(simulate(trace, config))
    gantt = build_recorded_gantt(timed)
    assert (gantt.calls, gantt.coverage.goes_on) == ((), None)
    assert gantt.tile(8, 0, [0]).calls is None


def test_few_bars_are_outlined_where_a_call_has_many():
    starts = np.arange(5000) * 10
    starts[3000:] += 1000
    joined = _join_nearest(np.stack([np.zeros(5000, np.int64), starts, starts + 5]))
    assert joined.shape == (3, PIECES_AT_MOST)
    assert (joined[1, 0], joined[2, -1]) == (0, starts[-1] + 5)
    assert starts[3000] in joined[1], "the longest gap stays open"


def test_a_node_has_one_line_and_one_answer(gantt):
    server = flask.Flask("timeline")
    server.config["SESSION"] = SimpleNamespace(gantt=lambda job, run: gantt)
    server.register_blueprint(build_timeline_blueprint())
    client = server.test_client()
    lines = list(
        csv.DictReader(
            io.StringIO(client.get("/api/jobs/job/timeline/spans.csv?from=0&to=200000&rows=0").text)
        )
    )
    assert [(line["node"], line["issue_ns"], line["callback_ns"]) for line in lines[:2]] == [
        ("2", "0", "100000"), ("3", "20000", "50000"),
    ]  # fmt: skip
    assert sum(int(line["duration_ns"]) for line in lines) == 120_000
    told = client.get("/api/jobs/job/timeline/node?row=0&at=60000&within=0").json
    assert (told["bar"]["node"], told["bar"]["own"], told["bar"]["count"]) == ("2", 70_000, 2)
    assert told["bar"]["pieces"] == [[0, 0, 20_000], [0, 50_000, 100_000]]
    assert told["next"]["node"] == "3"
    assert told["down"][1]["leaves"] == [0, 50_000, 100_000]
    chain = client.get("/api/jobs/job/timeline/chain?rank=0&node=2").json
    assert (chain["nodes"], len(chain["bars"])) == (4, 5)
