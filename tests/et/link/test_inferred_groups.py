"""Communication named by evidence: which call gloo carries out, and in which comm group."""

from __future__ import annotations

import json
from pathlib import Path

import studio
from studio.commands.link import communication
from studio.doctor.checks import examine
from studio.et.link import infer
from studio.trace import Trace, node_attributes
from tests.et.pytorch_files import device_file, event, host_file, node, rank_files, small_rank, tensor

GROUPS = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}
ALL_REDUCE = "c10d::allreduce_"


def told(trace: Trace, number: int) -> dict[str, list[tuple[str, bool]]]:
    """Group of each collective of a rank, and whether it is inferred, by name, in order of the nodes."""
    rank = trace.rank(number)
    graph = trace.graph_of(rank)
    found: dict[str, list[tuple[str, bool]]] = {}
    for row in range(len(graph)):
        attrs = {attr.name: attr.value for attr in node_attributes(graph, row, rank.slots)}
        if "comm_type" in attrs:
            inferred = "group" in attrs.get("comm_inferred", ())
            name = f"{graph.strings[int(graph.name[row])]} {attrs['comm_size']}"
            found.setdefault(name, []).append((attrs["pg_name"], inferred))
    return found


def write_rank(
    folder: Path,
    number: int,
    calls: list[tuple[float, float, int, int]],
    noted: dict[float, str] | None = None,
    groups: dict[str, list[int]] = GROUPS,
) -> None:
    """A rank whose calls (begin, begin of gloo's part, elements, gloo's thread) each take gloo 50 µs.

    Every operation of gloo is noted down as called by the first call, as gloo's recorder may do.
    """
    nodes, events = [], []
    for index, (begin, started, elements, thread) in enumerate(calls):
        call, part = 10 + 2 * index, 11 + 2 * index
        value = tensor(1 + index, elements)
        nodes.append(node(call, ALL_REDUCE, rf_id=call, inputs=[[value], "<Object>"]))
        nodes.append(node(part, "gloo:all_reduce", 10, rf_id=part, inputs=[value]))
        events.append(event(ALL_REDUCE, begin, 5, rf=call))
        events.append(event("gloo:all_reduce", started, 50, "user_annotation", tid=thread, rf=part))
    listed = [{"pg_name": name, "ranks": ranks} for name, ranks in groups.items() if number in ranks]
    head = {"distributedInfo": {"rank": number, "world_size": 4, "pg_config": listed}}
    head |= {"baseTimeNanoseconds": 10**18, "host_name": "one"}
    if noted is not None:
        head["chakra_studio_calls"] = [
            [10**18 + int(time * 1000), group, 0, "gloo:all_reduce"] for time, group in noted.items()
        ]
    rank_files(folder, number, host_file(nodes, pid=7 + number), device_file(events, **head))


def job(folder: Path, noted: dict[float, str] | None = None, lacking: int = -1) -> Trace:
    """Pairs of ranks that reduce at different times, between two collectives of all four."""
    for number in range(4):
        late = 200 if number >= 2 else 0
        calls = [
            (0, 10 + number, 8, 100),
            (100 + late, 110 + late, 8, 200),
            (600, 610 + number, 8, 101),
        ]
        write_rank(
            folder,
            number,
            calls[: 2 if number == lacking else 3],
            noted and noted | {101 + late: str(1 + number // 2)},
        )
    return studio.link(folder)


def test_each_call_has_one_operation_whatever_caller_the_recorder_wrote(tmp_path):
    trace = job(tmp_path)
    for rank in trace.ranks:
        assert communication(trace, rank)["ALL_REDUCE"] == {"count": 3, "bytes": 96}
        assert list(told(trace, rank.number)) == ["gloo:all_reduce 32"]


def test_groups_are_inferred_by_who_takes_part_at_the_time_and_said_to_be(tmp_path):
    trace = job(tmp_path)
    for number in range(4):
        own = str(1 + number // 2)
        assert told(trace, number)["gloo:all_reduce 32"] == [("0", True), (own, True), ("0", True)]
    [said] = [finding for finding in trace.findings if finding.code == "comm-group-inferred"]
    assert "12 collectives and messages of all ranks name no comm group" in said.message
    assert not [one for one in examine(trace) if one.level != "info"]


def test_where_ranks_have_one_group_each_nothing_is_compared_to_find_it(tmp_path, monkeypatch):
    """Of every rank all collectives would be looked at, which are tens of thousands."""
    for number in range(2):
        rank_files(tmp_path, number, *small_rank(number))
        (tmp_path / f"pytorch_et_{number}.json").unlink()
    looked: list[int] = []
    items = infer._items
    monkeypatch.setattr(infer, "_items", lambda rank_draft: looked.append(1) or items(rank_draft))
    told_once = {group.name: group.ranks for group in studio.link(tmp_path).groups}
    assert (looked, len(told_once)) == ([], 1)
    job(tmp_path / "two")
    assert looked


def test_what_no_other_rank_sees_is_in_the_group_of_the_rank_alone(tmp_path):
    """As of a mesh of one rank along a dimension; what the others take part in stays in theirs."""
    for number in range(2):
        calls = [
            (0.0, 10.0, 8, 100),
            (100.0 + 200 * number, 110.0 + 200 * number, 8, 200),
            (600.0, 610.0, 8, 100),
        ]
        write_rank(tmp_path, number, calls, groups={"0": [0, 1], str(1 + number): [number]})
    trace = studio.link(tmp_path)
    for number in range(2):
        own = str(1 + number)
        assert told(trace, number)["gloo:all_reduce 32"] == [("0", True), (own, True), ("0", True)]


def test_what_studio_collect_notes_down_leaves_nothing_to_infer(tmp_path):
    trace = job(tmp_path, noted={2: "0", 602: "0"})
    for number in range(4):
        own = str(1 + number // 2)
        assert told(trace, number)["gloo:all_reduce 32"] == [("0", False), (own, False), ("0", False)]
    assert not [finding for finding in trace.findings if finding.code == "comm-group-inferred"]


def test_a_disagreement_in_an_inferred_group_is_no_error_and_in_a_written_one_it_is(tmp_path):
    levels = {}
    for name, noted in (("inferred", None), ("written", {2: "0", 602: "0"})):
        trace = job(tmp_path / name, noted, lacking=3)
        levels[name] = {one.level for one in examine(trace) if one.code == "collectives-disagree"}
    assert levels == {"inferred": {"warning"}, "written": {"error"}}


def test_of_calls_that_run_at_once_a_note_is_about_the_one_that_gave_as_many_bytes(tmp_path):
    """Two threads call at the same time, and the notes lie within both calls."""
    for number in range(2):
        calls = [
            node(3 + place, ALL_REDUCE, rf_id=3 + place, inputs=[[tensor(1, size)], "<Object>"])
            for place, size in enumerate((8, 32))
        ]
        events = [event(ALL_REDUCE, place + 1, 90, tid=5 + place, rf=3 + place) for place in range(2)]
        noted = [
            [10**18 + 10_000 + place, group, 0, "gloo:all_reduce", size]
            for place, (group, size) in enumerate((("1", 128), ("2", 32)))
        ]
        listed = [{"pg_name": name, "ranks": [0, 1]} for name in "12"]
        head = {"distributedInfo": {"rank": number, "world_size": 2, "pg_config": listed}}
        head |= {"baseTimeNanoseconds": 10**18, "chakra_studio_calls": noted}
        rank_files(tmp_path, number, host_file(calls, pid=7 + number), device_file(events, **head))
    trace = studio.link(tmp_path)
    for number in range(2):
        assert told(trace, number) == {
            f"{ALL_REDUCE} 32": [("2", False)],
            f"{ALL_REDUCE} 128": [("1", False)],
        }


def test_notes_that_are_none_are_passed_over(tmp_path):
    job(tmp_path)
    path = tmp_path / "kineto_0.json"
    content = json.loads(path.read_text())
    content["chakra_studio_calls"] = [
        None,
        [1],
        ["x", "0", 1, "send"],
        [10**30, "0", 0, "x"],
        [5, "0", 0, "gloo:all_reduce"],
    ]
    path.write_text(json.dumps(content))
    assert told(studio.link(tmp_path), 0)["gloo:all_reduce 32"][1] == ("1", True)


def test_an_asynchronous_message_does_not_hold_up_its_thread(tmp_path):
    """A send is noted down until it is waited for, 900 µs later; the operator meanwhile and the order after it stay."""
    for number in (0, 1):
        kind = "send" if number == 0 else "recv"
        operator = "c10d::send" if number == 0 else "c10d::recv_"
        nodes = [
            node(10, operator, rf_id=10, inputs=[[tensor(1)], "<Object>", 1 - number, 0]),
            node(11, f"gloo:{kind}", 10, rf_id=11, inputs=[tensor(1)]),
            node(12, "aten::mm", rf_id=12),
            node(13, "aten::add", rf_id=13),
        ]
        events = [
            event(operator, 0, 20, rf=10),
            event(f"gloo:{kind}", 15, 900, "user_annotation", rf=11),
            event("aten::mm", 30, 500, rf=12),
            event("aten::add", 920, 10, rf=13),
        ]
        head = {
            "distributedInfo": {"rank": number, "world_size": 2},
            "baseTimeNanoseconds": 10**18,
            "host_name": "one",
        }
        rank_files(tmp_path, number, host_file(nodes, pid=7 + number), device_file(events, **head))
    trace = studio.link(tmp_path)
    from tests.et.link.test_replay_shared import replayed

    assert {one.recorded_ns for one in replayed(trace)} == {930_000}
    assert max(abs(one.difference) for one in replayed(trace)) < 0.01
    assert not [finding for finding in trace.findings if finding.code == "clock"]


def test_groups_of_equal_traffic_are_told_apart_by_the_order_in_which_they_were_made(tmp_path):
    """Rank 3 lists its groups otherwise than rank 0; every group has two threads near each other, and one size."""
    groups = {
        "0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3], "10": [0, 3], "11": [1, 2],
    }  # fmt: skip
    for number in range(4):
        calls = [(100 * turn, 100 * turn + 5, 8, 100 + 14 * (turn // 2) + turn % 2) for turn in range(8)]
        write_rank(tmp_path, number, calls, groups=groups)
    trace = studio.link(tmp_path)
    for number in range(4):
        own = [name for name, ranks in groups.items() if number in ranks]
        found = [group for group, _ in told(trace, number)["gloo:all_reduce 32"]]
        assert found == [name for name in own for _ in (0, 1)], number
