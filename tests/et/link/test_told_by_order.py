"""Messages and waits of gloo that no recorder tells in full: what their order, sizes and times tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import studio
from studio.analysis.collectives.messages import match_messages
from studio.commands.link import count_communication
from studio.doctor.checks import examine
from studio.trace import NodeType, Trace, list_node_attributes
from tests.et.link.test_inferred_groups import job, told
from tests.et.link.test_replay_shared import replayed
from tests.et.pytorch_files import THREAD, device_file, event, host_file, node, rank_files, tensor

Message = tuple[str, float, int, int, int]
"""Operator, begin in µs, peer in its group (-1 for any), tag, elements."""


def write_messages(
    folder: Path,
    number: int,
    messages: list[Message],
    groups: dict[str, list[int]],
    steps: dict[int, float] | None = None,
    machine: str = "one",
) -> None:
    """A rank whose blocking messages each take 20 µs; of steps of 1,000 µs each annotation tells the number and when it begins."""
    nodes, events = [], []
    for step, begin in (steps or {}).items():
        nodes.append(node(500 + step, f"ProfilerStep#{step}", rf_id=500 + step))
        events.append(event(f"ProfilerStep#{step}", begin, 1000, "user_annotation", rf=500 + step))
    for index, (operator, begin, peer, tag, elements) in enumerate(messages):
        call, part = 10 + 2 * index, 11 + 2 * index
        value = tensor(1 + index, elements)
        inputs: list[Any] = [[value], "<Object>", *([] if peer < 0 else [peer]), tag]
        nodes += [
            node(call, f"c10d::{operator}", rf_id=call, inputs=inputs),
            node(part, _GLOO[operator], call, rf_id=part, inputs=[value]),
        ]
        events.append(event(f"c10d::{operator}", begin, 5, rf=call))
        events.append(event(_GLOO[operator], begin + 1, 19, "user_annotation", rf=part))
    listed = [{"pg_name": name, "ranks": ranks} for name, ranks in groups.items() if number in ranks]
    head = {"distributedInfo": {"rank": number, "world_size": len(groups["0"]), "pg_config": listed}}
    head |= {"baseTimeNanoseconds": 10**18, "host_name": machine}
    rank_files(folder, number, host_file(nodes, pid=7 + number), device_file(events, **head))


_GLOO = {"send": "gloo:send", "recv_": "gloo:recv", "recv_any_source_": "gloo:recvAnySource"}


def attributes(trace: Trace, number: int, kind: NodeType) -> list[dict[str, Any]]:
    rank = trace.rank(number)
    graph = trace.graph_of(rank)
    return [
        {attr.name: attr.value for attr in list_node_attributes(graph, row, rank.slots)}
        for row in range(len(graph))
        if graph.type[row] == kind
    ]


def test_a_receive_from_any_rank_took_the_message_that_was_sent_first(tmp_path):
    """What rank 0 takes by name from rank 2 is not left to it; who that was is marked as inferred."""
    groups = {"0": [0, 1, 2]}
    receives = [
        ("recv_any_source_", 100, -1, 5, 8),
        ("recv_", 200, 2, 5, 8),
        ("recv_any_source_", 300, -1, 5, 8),
    ]
    write_messages(tmp_path, 0, receives, groups)
    write_messages(tmp_path, 1, [("send", 60, 0, 5, 8)], groups)
    write_messages(tmp_path, 2, [("send", 50, 0, 5, 8), ("send", 70, 0, 5, 8)], groups)
    trace = studio.link(tmp_path)
    found = attributes(trace, 0, NodeType.COMM_RECV)
    assert [one["comm_src"] for one in found] == [2, 2, 1]
    assert ["peer" in one.get("comm_inferred", ()) for one in found] == [True, False, True]
    assert not [one for one in examine(trace) if one.level == "error"]


def test_messages_of_another_size_may_be_of_another_group(tmp_path):
    """Peers count in the group: in pairs (0, 2) and (1, 3) for one size, in that of all ranks for the other."""
    groups = {"0": [0, 1, 2, 3], "1": [0, 2], "2": [1, 3]}
    for number in range(4):
        first = ("send", 0, 1, 5, 8) if number < 2 else ("recv_", 5, 0, 5, 8)
        second = ("send" if number % 2 == 0 else "recv_", 100, number ^ 1, 0, 9)
        write_messages(tmp_path, number, [first, second], groups)
    trace = studio.link(tmp_path)
    assert [one["comm_dst"] for one in attributes(trace, 0, NodeType.COMM_SEND)] == [2, 1]
    assert [one["comm_src"] for one in attributes(trace, 3, NodeType.COMM_RECV)] == [1, 2]
    assert not [one for one in examine(trace) if one.level != "info"]


def test_a_thread_held_up_between_note_and_call_is_told_by_the_order(tmp_path):
    trace = job(tmp_path, noted={2: "0", 350: "0"})
    for number in range(4):
        own = str(1 + number // 2)
        assert told(trace, number)["gloo:all_reduce 32"] == [("0", False), (own, False), ("0", False)]


def write_rank(folder: Path, number: int, nodes: list[Any], events: list[Any]) -> None:
    head = {"distributedInfo": {"rank": number, "world_size": 2}, "baseTimeNanoseconds": 10**18}
    rank_files(folder, number, host_file(nodes, pid=7 + number), device_file(events, host_name="one", **head))


def test_what_an_operation_did_after_a_wait_in_it_is_not_swallowed_by_the_wait(tmp_path):
    """300 µs pass in `Subclass` between the wait that it calls and its next operator."""
    for number in (0, 1):
        reduced = tensor(1)
        nodes = [
            node(10, "c10d::allreduce_", rf_id=10, inputs=[[reduced], "<Object>"]),
            node(11, "gloo:all_reduce", 10, rf_id=11, inputs=[reduced]),
            node(12, "Subclass", rf_id=12),
            node(13, "_c10d_functional::wait_tensor", 12, rf_id=13, inputs=[reduced]),
            node(14, "aten::add", 12, rf_id=14),
        ]
        events = [
            event("c10d::allreduce_", 0, 10, rf=10),
            event("gloo:all_reduce", 20, 480, "user_annotation", tid=9, rf=11),
            event("Subclass", 12, 900, rf=12),
            event("_c10d_functional::wait_tensor", 15, 490, rf=13),
            event("aten::add", 805, 100, rf=14),
        ]
        write_rank(tmp_path, number, nodes, events)
    for one in replayed(studio.link(tmp_path)):
        assert one.recorded_ns == 912_000
        assert abs(one.difference) < 0.01, one


def test_a_barrier_that_gloo_carries_out_by_messages_takes_its_time_once(tmp_path):
    """The messages in it are noted down at once, and are no communication of the job."""
    for number in (0, 1):
        nodes = [
            node(10, "c10d::allreduce_", rf_id=10, inputs=[[tensor(1)], "<Object>"]),
            node(11, "gloo:all_reduce", 10, rf_id=11, inputs=[tensor(1)]),
            node(12, "c10d::monitored_barrier_", rf_id=12),
            node(13, "gloo:send", 12, rf_id=13, inputs=[tensor(2, 1)]),
            node(14, "gloo:recv", 12, rf_id=14, inputs=[tensor(3, 1)]),
            node(15, "aten::mm", rf_id=15),
        ]
        events = [
            event("c10d::allreduce_", 0, 60, rf=10),
            event("gloo:all_reduce", 5, 50, "user_annotation", tid=9, rf=11),
            event("c10d::monitored_barrier_", 100, 800, rf=12),
            event("gloo:send", 300, 590, "user_annotation", rf=13),
            event("gloo:recv", 310, 580, "user_annotation", rf=14),
            event("aten::mm", 900, 100, rf=15),
        ]
        write_rank(tmp_path, number, nodes, events)
    trace = studio.link(tmp_path)
    assert count_communication(trace, trace.rank(0)) == {
        "ALL_REDUCE": {"count": 1, "bytes": 16},
        "BARRIER": {"count": 1, "bytes": 0},
    }
    for one in replayed(trace):
        assert one.recorded_ns == 1_000_000
        assert abs(one.difference) < 0.01, one


def traced(
    name: str, begin: float, took: float, dims: list[Any], values: list[str], **place: Any
) -> dict[str, Any]:
    """An event of gloo or of its call, with the arguments that PyTorch writes into a Kineto trace."""
    types = [
        "TensorList" if dim and isinstance(dim[0], list) else "float" if dim else "Scalar" for dim in dims
    ]
    told = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}
    return event(
        name, begin, took, "user_annotation" if name.startswith("gloo:") else "cpu_op", **place, **told
    )


def test_a_kineto_trace_alone_tells_sizes_peers_and_tags(tmp_path):
    """Two all-reduces under way at once, the second carried out first; then a message; gloo's thread computes in the first."""
    for number in (0, 1):
        way, operator = ("send", "c10d::send") if number == 0 else ("recv", "c10d::recv_")
        listed = [{"pg_name": "0", "ranks": [0, 1]}]
        events = [
            traced("c10d::allreduce_", 0, 10, [[[8]], []], ["", ""]),
            traced("c10d::allreduce_", 20, 10, [[[2, 8]], []], ["", ""]),
            traced("gloo:all_reduce", 25, 400, [[2, 8]], [""], tid=9),
            traced("gloo:all_reduce", 30, 500, [[8]], [""], tid=10),
            event("aten::div_", 500, 5, tid=10),
            event("aten::mm", 40, 600),
            traced(operator, 700, 10, [[[5]], [], [], []], ["", "", str(1 - number), "7"]),
            traced(f"gloo:{way}", 701, 100, [[5]], [""]),
            event("aten::mm", 850, 50),
        ]
        head = {"distributedInfo": {"rank": number, "world_size": 2, "pg_config": listed}}
        (tmp_path / f"kineto_{number}.json").write_bytes(
            device_file(events, baseTimeNanoseconds=10**18, host_name="one", **head)
        )
    trace = studio.link(tmp_path)
    for number in (0, 1):
        reduced = attributes(trace, number, NodeType.COMM_COLL)
        assert {(one["comm_seq"], one["comm_size"]) for one in reduced} == {(0, 32), (1, 64)}
        [message] = attributes(trace, number, NodeType.COMM_RECV if number else NodeType.COMM_SEND)
        assert (message["comm_dst"], message["comm_tag"], message["comm_size"]) == (1, 7, 20)
    graph = trace.graph_of(trace.rank(0))
    names = [graph.strings[code] for code in graph.name.tolist()]
    # It does not begin before the call whose all-reduce it is part of.
    assert names.index("c10d::allreduce_") in graph.data.of(names.index("aten::div_")).tolist()
    assert not [one for one in examine(trace) if one.level == "error"]
    for one in replayed(trace):
        assert abs(one.difference) < 0.02, one


def test_messages_that_a_recording_cuts_off_are_no_error_and_others_are(tmp_path):
    """Rank 1 is recorded from its send on, or from earlier, when it should have recorded the other one as well."""
    groups = {"0": [0, 1]}
    levels = {}
    for name, earlier in (("cut", []), ("lacking", [("send", 10, 0, 6, 8)])):
        receives = [("recv_", 5, 1, 6, 8) for _ in earlier] + [
            ("recv_", 30, 1, 5, 8),
            ("recv_", 100, 1, 5, 8),
        ]
        write_messages(tmp_path / name, 0, receives, groups)
        write_messages(tmp_path / name, 1, [*earlier, ("send", 90, 0, 5, 8)], groups)
        [found] = [one for one in examine(studio.link(tmp_path / name)) if one.code == "receive-unmatched"]
        levels[name] = found.level, "before or after what the sender recorded" in found.message
    assert levels == {"cut": ("warning", True), "lacking": ("error", False)}


@pytest.mark.parametrize("ahead", [0, 700_000], ids=["one machine", "two machines"])
def test_messages_of_recordings_that_begin_a_step_apart_are_matched_by_the_names_of_steps(tmp_path, ahead):
    """The n-th of each were matched, a step off, and clocks moved by a step."""
    groups = {"0": [0, 1]}
    for number, first in enumerate((2, 3)):
        # A step takes 1,000 µs; rank 0 sends and waits for an answer.
        begins = {step: 1000.0 * step + ahead * number for step in range(first, first + 4)}
        kinds = (("send", 100), ("recv_", 190)) if number == 0 else (("recv_", 110), ("send", 180))
        messages = [(kind, begin + at, 1 - number, 5, 8) for begin in begins.values() for kind, at in kinds]
        write_messages(tmp_path, number, messages, groups, begins, f"machine{number * (ahead > 0)}")
    trace = studio.link(tmp_path)
    halves = [
        attributes(trace, number, kind)
        for number, kind in enumerate((NodeType.COMM_SEND, NodeType.COMM_RECV))
    ]
    assert [[one["comm_turn"] for one in own] for own in halves] == [[0, 1, 2, 3], [1, 2, 3, 4]]
    messages = match_messages(trace)
    assert sorted(zip((messages.send_row != -1).tolist(), (messages.receive_row != -1).tolist(), strict=True)) == [
        *[(False, True)] * 2, *[(True, False)] * 2, *[(True, True)] * 6,
    ]  # fmt: skip
    assert abs(trace.ranks[1].metadata_number("clock_offset_ns") + 1000 * ahead) < 50_000
    found = {one.code: one.level for one in examine(trace)}
    assert found["border-collectives"] == "warning"
    assert "receive-unmatched" not in found
    assert "error" not in found.values()
    assert max(abs(one.difference) for one in replayed(trace)) < 0.01


def test_steps_that_each_rank_counts_from_its_own_beginning_number_no_messages(tmp_path):
    """On two machines whose steps last differently long: each receive ends as long after its send."""
    groups = {"0": [0, 1]}
    for number, first in enumerate((2, 4)):
        times = [1000.0 * ms for ms in (0, 2, 5, 7, 11, 13, 17, 20)]
        begins = {first + place: begin + 700_000 * number for place, begin in enumerate(times)}
        kind = "send" if number == 0 else "recv_"
        messages = [(kind, begin + 100 + 10 * number, 1 - number, 5, 8) for begin in begins.values()]
        write_messages(tmp_path, number, messages, groups, begins, f"machine{number}")
    trace = studio.link(tmp_path)
    assert not any(len(graph.rows_with("comm_turn")[0]) for graph in trace.graphs)
    assert not [one for one in examine(trace) if one.level == "error"]


def test_a_receive_from_any_rank_took_nothing_that_was_sent_in_a_later_step(tmp_path):
    """Rank 1 is recorded from the next step on: its first send was taken for the other half of a receive that had ended."""
    groups = {"0": [0, 1]}
    for number, first in enumerate((2, 3)):
        begins = {step: 1000.0 * step for step in range(first, first + 3)}
        kind, peer, at = ("recv_any_source_", -1, 120) if number == 0 else ("send", 0, 100)
        messages = [(kind, begin + at, peer, 5, 8) for begin in begins.values()]
        write_messages(tmp_path, number, messages, groups, begins)
    trace = studio.link(tmp_path)
    assert [one.get("comm_src") for one in attributes(trace, 0, NodeType.COMM_RECV)] == [None, 1, 1]
    assert not [one for one in examine(trace) if one.level == "error"]


def test_messages_of_overlapping_groups_are_paired_by_when_they_were_sent(tmp_path):
    """No single group is that of all: each rank sends within one and receives within another, all of one size."""
    groups = {"0": [0, 1, 2, 3], "1": [1, 2, 3], "2": [2, 3], "3": [1, 3], "4": [0, 3]}
    send, receive = ("send", 1, 0, 8), ("recv_", 0, 0, 8)
    write_messages(tmp_path, 0, [(send[0], 400.0, *send[1:])], groups)
    write_messages(tmp_path, 1, [(send[0], at, *send[1:]) for at in (0.0, 300.0)], groups)
    write_messages(tmp_path, 2, [(receive[0], 5.0, *receive[1:]), (send[0], 200.0, *send[1:])], groups)
    write_messages(tmp_path, 3, [(receive[0], at, *receive[1:]) for at in (205.0, 305.0, 405.0)], groups)
    trace = studio.link(tmp_path)
    received = [
        (one["pg_name"], one["comm_src"])
        for number in (2, 3)
        for one in attributes(trace, number, NodeType.COMM_RECV)
    ]
    assert received == [("1", 1), ("2", 2), ("3", 1), ("4", 0)]
    assert not {one.code for one in examine(trace)} & {"receive-unmatched", "send-unmatched", "deadlock"}


def test_a_message_of_another_size_was_not_sent_before_or_after_the_recording(tmp_path):
    groups = {"0": [0, 1]}
    write_messages(tmp_path, 0, [("recv_", 30, 1, 5, 8)], groups)
    write_messages(tmp_path, 1, [("send", 30, 0, 5, 16)], groups)
    [found] = [one for one in examine(studio.link(tmp_path)) if one.code == "receive-unmatched"]
    assert found.level == "error"
    assert "before or after what the sender recorded" not in found.message


@pytest.mark.parametrize("recorded_from", [10, 60])
def test_a_message_that_was_sent_to_another_rank_was_not_cut_off(tmp_path, recorded_from):
    """Rank 0 waits from before the recording of rank 1; that sent to rank 2, which may have been recorded later than that."""
    groups = {"0": [0, 1, 2]}
    from_2 = [("recv_", begin, 2, 6, 8) for begin in (recorded_from, 200)]
    write_messages(tmp_path, 0, [("recv_", 5, 1, 5, 8), *from_2], groups)
    write_messages(tmp_path, 1, [("send", 30, 2, 5, 8)], groups)
    write_messages(tmp_path, 2, [("send", begin, 0, 6, 8) for begin in (recorded_from, 200)], groups)
    [found] = [one for one in examine(studio.link(tmp_path)) if one.code == "receive-unmatched"]
    assert found.level == ("error" if recorded_from < 30 else "warning")
    assert ("before or after what the sender recorded" in found.message) == (recorded_from > 30)


def test_calls_on_a_thread_that_was_not_recorded_are_in_the_order_of_their_ids(tmp_path):
    """As of a hook that goes on where a collective ended: on rank 1 the second and third have no times."""
    for number in (0, 1):
        nodes, events = [node(16, THREAD, 1, tid=2)], []
        for place, elements in enumerate((8, 4, 16, 2)):
            call, part, is_untimed = 10 + 10 * place, 11 + 10 * place, number == 1 and place in (1, 2)
            value, above = tensor(1 + place, elements), 16 if is_untimed else 2
            # One of two hangs deeper than the other, which counts for nothing.
            above = 18 if is_untimed and place == 1 else above
            nodes.append(node(call, "c10d::allreduce_", above, rf_id=call, inputs=[[value], "<Object>"]))
            nodes.append(node(part, "gloo:all_reduce", call, rf_id=part, inputs=[value]))
            if not is_untimed:
                events.append(event("c10d::allreduce_", 100 * place, 5, rf=call))
                events.append(
                    event("gloo:all_reduce", 100 * place + 10, 50, "user_annotation", tid=9, rf=part)
                )
        if number == 1:
            nodes.append(node(18, "hook", 16, rf_id=18, tid=2))
        head = {
            "distributedInfo": {
                "rank": number,
                "world_size": 2,
                "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
            }
        }
        rank_files(
            tmp_path,
            number,
            host_file(nodes, pid=7 + number),
            device_file(events, baseTimeNanoseconds=10**18, host_name="one", **head),
        )
    trace = studio.link(tmp_path)
    for number in (0, 1):
        numbered = {
            one["comm_seq"]: one["comm_size"] for one in attributes(trace, number, NodeType.COMM_COLL)
        }
        assert numbered == {0: 32, 1: 16, 2: 64, 3: 8}
    assert not {one.code for one in examine(trace)} & {"collectives-disagree", "deadlock"}
    assert max(abs(one.difference) for one in replayed(trace)) < 0.02


@pytest.mark.parametrize("device_alone", [False, True])
def test_a_sparse_tensor_is_neither_empty_nor_the_same_as_another(tmp_path, device_alone):
    """Recorders write it without storage, elements and type; its shape tells what it would be if it were dense."""
    sparse = [82, 0, 0, 0, 0, ""]
    for number in range(2):
        nodes = [
            node(3, "aten::embedding_sparse_backward", rf_id=3, outputs=[sparse]),
            node(4, "aten::coalesce", rf_id=4, inputs=[[83, *sparse[1:]]]),
            node(5, "c10d::allreduce_", rf_id=5, inputs=[[sparse], "<Object>"]),
            node(6, "gloo:sparse_all_reduce", 5, rf_id=6, inputs=[sparse]),
        ]
        events = [
            event("aten::embedding_sparse_backward", 0, 5, rf=3, tid=9),
            event("aten::coalesce", 10, 5, rf=4),
            event("c10d::allreduce_", 20, 5, rf=5),
            event("gloo:sparse_all_reduce", 30, 50, "user_annotation", tid=8, rf=6),
        ]
        shapes = {5: ([[[50, 8]], []], ["TensorList", ""]), 6: ([[50, 8]], ["float"])}
        for one in events:
            dims, types = shapes.get(one["args"]["Record function id"], ([], []))
            one["args"] |= {"Input Dims": dims, "Input type": types}
        told = {"rank": number, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
        paths = rank_files(tmp_path, number, host_file(nodes), device_file(events, distributedInfo=told))
        if device_alone:
            paths[0].unlink()
    trace = studio.read(tmp_path)
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        [row] = np.flatnonzero(graph.type == NodeType.COMM_COLL)
        attrs = {attr.name: attr.value for attr in list_node_attributes(graph, int(row), rank.slots)}
        assert (attrs["comm_size"], "size" in attrs["comm_inferred"]) == (50 * 8 * 4, True)
        if not device_alone:
            names = [graph.strings[code] for code in graph.name.tolist()]
            reader = names.index("aten::coalesce")
            writers = graph.data.rows[graph.data.offsets[reader] : graph.data.offsets[reader + 1]].tolist()
            assert names.index("aten::embedding_sparse_backward") not in writers
    assert "size-zero" not in {found.code for found in examine(trace)}


@pytest.mark.parametrize("device_alone", [False, True])
@pytest.mark.parametrize(("asynchronous", "waits"), [(False, True), (True, False), (None, False)])
def test_a_call_that_is_not_asynchronous_is_waited_for_though_nothing_else_shows_it(
    tmp_path, asynchronous, waits, device_alone
):
    """Gloo had ended before the thread had anything to do; `async_op` is the last argument but one of newer versions."""
    more = (
        ["<Object>", "<Object>", None]
        if asynchronous is None
        else ["<Object>", "<Object>", None, asynchronous]
    )
    nodes = [
        node(3, "c10d::allreduce_", rf_id=3, inputs=[[tensor(1)], *more, -1]),
        node(4, "gloo:all_reduce", 3, rf_id=4, inputs=[tensor(1)]),
        node(5, "aten::mm", rf_id=5),
        node(6, "aten::add", rf_id=6),
    ]
    events = [
        event("c10d::allreduce_", 0, 10, rf=3),
        event("gloo:all_reduce", 4, 9, "user_annotation", tid=8, rf=4),
        event("aten::mm", 12, 5, rf=5),
        event("aten::add", 17, 5, rf=6),
    ]
    arguments = {
        "Concrete Inputs": ["", *("" if not isinstance(one, bool) else str(one) for one in more), "-1"],
        "Input Dims": [[[4]], *([] for _ in more), []],
        "Input type": ["TensorList", *("" for _ in more), "Scalar"],
    }
    events[0]["args"] |= arguments
    events[1]["args"] |= {"Input Dims": [[4]], "Input type": ["float"]}
    paths = rank_files(
        tmp_path, 0, host_file(nodes), device_file(events, distributedInfo={"rank": 0, "world_size": 1})
    )
    if device_alone:
        paths[0].unlink()
    trace = studio.read(tmp_path)
    graph = trace.graphs[0]
    names = [graph.strings[code] for code in graph.name.tolist()]
    after = names.index("aten::add")
    waited_for = graph.data.rows[graph.data.offsets[after] : graph.data.offsets[after + 1]].tolist()
    assert (names.index("gloo:all_reduce") in waited_for) == waits


def test_what_follows_wait_tensor_waits_for_the_collective_of_its_tensor_and_what_comes_before_does_not(
    tmp_path,
):
    """Gloo had ended before, so that the call took no time; another collective, of another tensor, goes on."""
    more = ["<Object>", "<Object>", None, True, -1]
    spans = {
        "c10d::allreduce_": (0, 3), "gloo:all_reduce": (2, 9), "aten::mm": (14, 4),
        "_c10d_functional::wait_tensor": (18, 4), "aten::add": (22, 5),
    }  # fmt: skip
    nodes = [
        node(3, "c10d::allreduce_", rf_id=3, inputs=[[tensor(1)], *more]),
        node(4, "gloo:all_reduce", 3, rf_id=4, inputs=[tensor(1)]),
        node(5, "c10d::allreduce_", rf_id=5, inputs=[[tensor(2, 8)], *more]),
        node(6, "gloo:all_reduce", 5, rf_id=6, inputs=[tensor(2, 8)]),
        node(7, "aten::mm", rf_id=7),
        node(8, "_c10d_functional::wait_tensor", rf_id=8, inputs=[tensor(1)]),
        node(9, "aten::add", rf_id=9),
    ]
    events = [
        event(
            name, *spans[name], "user_annotation" if name.startswith("gloo") else "cpu_op",
            tid=8 if name.startswith("gloo") else 7, rf=rf,
        )
        for name, rf in zip(spans, (3, 4, 7, 8, 9), strict=True)
    ]  # fmt: skip
    events += [
        event("c10d::allreduce_", 4, 3, rf=5),
        event("gloo:all_reduce", 6, 50, "user_annotation", tid=9, rf=6),
    ]
    told = {"rank": 0, "world_size": 1}
    rank_files(tmp_path, 0, host_file(nodes), device_file(events, distributedInfo=told))
    graph = studio.read(tmp_path).graphs[0]
    names = [graph.strings[code] for code in graph.name.tolist()]
    waited_for = {
        name: {int(graph.id[row]) for row in graph.data.of(names.index(name)).tolist()} & {4, 6}
        for name in ("aten::mm", "aten::add")
    }
    assert waited_for == {"aten::mm": set(), "aten::add": {4}}
