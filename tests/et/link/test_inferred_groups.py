"""Communication named by evidence: which call gloo carries out, and in which comm group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import studio
from studio.commands.link import count_communication
from studio.doctor.checks import examine
from studio.et.link import infer, stated_sizes, strands, unlisted
from studio.trace import Trace, list_node_attributes
from tests.et.pytorch_files import (
    device_file,
    event,
    host_file,
    kernel,
    launch,
    node,
    rank_files,
    small_rank,
    tensor,
)

GROUPS = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}
ALL_REDUCE = "c10d::allreduce_"


def told(trace: Trace, number: int) -> dict[str, list[tuple[str, bool]]]:
    """Group of each collective of a rank, and whether it is inferred, by name, in order of the nodes."""
    rank = trace.rank(number)
    graph = trace.graph_of(rank)
    found: dict[str, list[tuple[str, bool]]] = {}
    for row in range(len(graph)):
        attrs = {attr.name: attr.value for attr in list_node_attributes(graph, row, rank.slots)}
        if "comm_type" in attrs:
            inferred = "group" in attrs.get("comm_inferred", ())
            name = f"{graph.strings[int(graph.name[row])]} {attrs['comm_size']}"
            found.setdefault(name, []).append((attrs["pg_name"], inferred))
    return found


def collectives(trace: Trace, number: int) -> list[dict[str, Any]]:
    """The attributes of each collective of a rank."""
    rank = trace.rank(number)
    rows = [{one.name: one.value for one in list_node_attributes(trace.graph_of(rank), row, rank.slots)}
            for row in range(len(trace.graph_of(rank)))]  # fmt: skip
    return [attrs for attrs in rows if "comm_type" in attrs]


def write_rank(
    folder: Path,
    number: int,
    calls: list[tuple[float, float | None, int, int]],
    noted: dict[float, str] | None = None,
    groups: dict[str, list[int]] = GROUPS,
    lasts: float = 50,
) -> None:
    """A rank whose calls (begin, begin of gloo's part, elements, gloo's thread) each take gloo as long, in µs.

    One that gloo does not begin any more is noted down as the call alone. Every operation of gloo is noted down as called by the first call, as gloo's recorder may do.
    """
    nodes, events = [], []
    for index, (begin, started, elements, thread) in enumerate(calls):
        call, part = 10 + 2 * index, 11 + 2 * index
        value = tensor(1 + index, elements)
        nodes.append(node(call, ALL_REDUCE, rf_id=call, inputs=[[value], "<Object>"]))
        events.append(event(ALL_REDUCE, begin, 5, rf=call))
        if started is None:
            continue
        nodes.append(node(part, "gloo:all_reduce", 10, rf_id=part, inputs=[value]))
        events.append(event("gloo:all_reduce", started, lasts, "user_annotation", tid=thread, rf=part))
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
        assert count_communication(trace, rank)["ALL_REDUCE"] == {"count": 3, "bytes": 96}
        assert list(told(trace, rank.number)) == ["gloo:all_reduce 32"]


def test_groups_are_inferred_by_who_takes_part_at_the_time_and_said_to_be(tmp_path):
    trace = job(tmp_path)
    for number in range(4):
        own = str(1 + number // 2)
        assert told(trace, number)["gloo:all_reduce 32"] == [("0", True), (own, True), ("0", True)]
    [said] = [finding for finding in trace.findings if finding.code == "comm-group-inferred"]
    assert "12 collectives and messages of all ranks name no comm group" in said.message
    assert not [one for one in examine(trace) if one.level != "info"]


def job_without_names(
    folder: Path, told: list[dict[str, Any]], listed: dict[str, list[int]], on_kernel: bool = False
) -> Trace:
    """Four ranks with an all-reduce of which each rank is told something about the group, but no name, and one of all ranks."""
    for number in range(4):
        world = {"Group size": 4, "group_ranks": "[0, 1, 2, 3]"}
        events = []
        for at, stated in ((0, told[number]), (100, world)):
            facts = {
                "collective": "allreduce",
                "in_elements": 8,
                "out_elements": 8,
                "dtype": "Float",
            } | stated
            events += [event("record_param_comms", at, 20, **facts), launch(at + 5, 100 + at)]
            carried = facts if on_kernel else {}
            events += [kernel("ncclKernel_AllReduce_Sum(x)", at + 30, 40, 100 + at, **carried)]
        config = [{"pg_name": name, "ranks": ranks} for name, ranks in listed.items() if number in ranks]
        head = {"distributedInfo": {"rank": number, "world_size": 4, "pg_config": config}}
        folder.mkdir(exist_ok=True)
        (folder / f"kineto_{number}.json").write_bytes(device_file(events, **head))
    return studio.link(folder)


LISTED = [{"group_ranks": "[0, 1]"}] * 2 + [{"group_ranks": "[2, 3]"}] * 2
STRIDED = [{"Global rank start": number % 2, "Global rank stride": 2, "Group size": 2} for number in range(4)]
SIZED = [{"Group size": 2}] * 4


@pytest.mark.parametrize("on_kernel", [False, True])
@pytest.mark.parametrize(
    ("told_ranks", "listed", "expected"),
    [
        (LISTED, {"0": [0, 1, 2, 3]}, ["ranks 0-1", "ranks 0-1", "ranks 2-3", "ranks 2-3"]),
        (LISTED, {}, ["ranks 0-1", "ranks 0-1", "ranks 2-3", "ranks 2-3"]),
        (LISTED, GROUPS, ["1", "1", "2", "2"]),
        (STRIDED, {"0": [0, 1, 2, 3]}, ["ranks 0-2 by 2", "ranks 1-3 by 2"] * 2),
        (SIZED, GROUPS, ["1", "1", "2", "2"]),
    ],
)
def test_collectives_without_a_name_are_in_the_group_whose_ranks_they_state(
    tmp_path, told_ranks, listed, expected, on_kernel
):
    trace = job_without_names(tmp_path, told_ranks, listed, on_kernel)
    world = "0" if listed else "ranks 0-3"
    sized = told_ranks is SIZED
    for number, own in enumerate(expected):
        assert [each["pg_name"] for each in collectives(trace, number)] == [own, world]
        assert [("group" in each.get("comm_inferred", ())) for each in collectives(trace, number)] == [
            sized,
            False,
        ]
    assert not [found for found in trace.findings if found.code == "comm-group-size"]


@pytest.mark.parametrize("listed", [{}, {"0": [0, 1, 2, 3]}])
def test_a_size_that_no_listed_group_has_is_told(tmp_path, listed):
    """They counted as collectives of all ranks in silence."""
    trace = job_without_names(tmp_path, SIZED, listed)
    [found] = [found for found in trace.findings if found.code == "comm-group-size"]
    assert found.level == "warning"
    assert "4 collectives of all ranks say that the comm group has 2 ranks" in found.message
    assert "of a group of 4" in found.message
    assert not [found for found in trace.findings if found.code == "comm-group-inferred"]


def job_of_stated_sizes(
    folder: Path, sizes: list[tuple[int, ...]], late: list[tuple[int, ...]], machine: str = ""
) -> Trace:
    """Ranks of NCCL with all-reduces of pairs, of so many elements, each so late after its turn; and one of all at the end."""
    folder.mkdir(exist_ok=True)
    for number, (own, begins) in enumerate(zip(sizes, late, strict=True)):
        events = []
        for turn, (elements, begin) in enumerate(zip((*own, 64), (*begins, 0), strict=True)):
            facts = {
                "collective": "allreduce",
                "in_elements": elements,
                "out_elements": elements,
                "dtype": "Float",
            }
            facts |= {"Group size": 2 if turn < len(own) else len(sizes)}
            at = 10_000 * turn + begin
            events += [event("record_param_comms", at, 20, **facts), launch(at + 5, 100 + turn)]
            events += [kernel("ncclKernel_AllReduce_Sum(x)", at + 30, 40, 100 + turn)]
        head = {"distributedInfo": {"rank": number, "world_size": len(sizes)}}
        head |= {"baseTimeNanoseconds": 10**18, "host_name": machine} if machine else {}
        (folder / f"kineto_{number}.json").write_bytes(device_file(events, **head))
    return studio.link(folder)


EARLY, LATE, TURNS = (0, 0, 0), (300, 200, 100), (8, 8, 8)


@pytest.mark.parametrize(
    ("sizes", "late", "machine", "pairs"),
    [
        ([TURNS, TURNS, (16, 8, 8), (16, 8, 8)], [EARLY] * 4, "", ["0-1", "0-1", "2-3", "2-3"]),
        ([TURNS] * 4, [EARLY, LATE] * 2, "one", ["0-2 by 2", "1-3 by 2"] * 2),
        ([TURNS] * 4, [EARLY, (3000, 4000, 5000)] * 2, "one", ["0-2 by 2", "1-3 by 2"] * 2),
    ],
    ids=["kinds and sizes", "ends", "times"],
)
def test_groups_of_which_the_size_alone_is_stated_are_inferred_where_one_way_is_left(
    tmp_path, sizes, late, machine, pairs
):
    """They counted as collectives of all ranks."""
    trace = job_of_stated_sizes(tmp_path, sizes, late, machine)
    for number, pair in enumerate(pairs):
        own = collectives(trace, number)
        assert [each["pg_name"] for each in own[:-1]] == [f"ranks {pair}"] * 3
        assert all("group" in each["comm_inferred"] for each in own[:-1])
    [said] = [one for one in trace.findings if one.code == "comm-group-inferred"]
    assert "12 collectives and messages of all ranks name no comm group" in said.message
    assert not [one for one in trace.findings if one.code == "comm-group-size"]
    assert not [one for one in examine(trace) if one.level == "error"]


def test_ranks_in_several_groups_of_a_stated_size_are_in_one_for_each_kind_and_size(tmp_path):
    """Rows and columns of a mesh: sizes of rows differ, columns end at different times."""
    rows = [(8, 32, 8, 32, 32), (8, 32, 8, 32, 32), (16, 32, 16, 32, 32), (16, 32, 16, 32, 32)]
    late = [(0, 0, 0, 0, 0), (0, 300, 0, 300, 300)] * 2
    trace = job_of_stated_sizes(tmp_path, rows, late, "one")
    told_of = [
        [each["pg_name"].removeprefix("ranks ") for each in collectives(trace, number)[:2]]
        for number in range(4)
    ]
    assert told_of == [["0-1", "0-2 by 2"], ["0-1", "1-3 by 2"], ["2-3", "0-2 by 2"], ["2-3", "1-3 by 2"]]


def test_what_fits_rows_and_columns_of_a_mesh_alike_is_said_to(tmp_path):
    """Where no clock tells, one was taken in silence: by the order of all, or the first that is listed."""
    rows = [(8, 32, 8, 32, 32)] * 2 + [(16, 32, 16, 32, 32)] * 2
    late = [(0, 0, 0, 0, 0), (0, 300, 0, 300, 300)] * 2
    mesh = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}
    stated = job_of_stated_sizes(tmp_path / "stated", rows, late)
    listed = job_without_names(tmp_path / "listed", SIZED, mesh)
    clocked = job_of_stated_sizes(tmp_path / "clocked", rows, late, "one")
    messages = []
    for trace in (stated, listed, clocked):
        [said] = [one for one in trace.findings if one.code == "comm-group-inferred"]
        messages.append(said.message)
    assert "Of 12 of them nothing tells which it is" in messages[0]
    assert "('ranks 0-1': 6, 'ranks 2-3': 6)" in messages[0]
    assert "Of 4 of them nothing tells which it is" in messages[1]
    assert "nothing tells" not in messages[2]


def test_what_ranks_have_alike_is_compared_once_and_other_sizes_with_nothing(tmp_path, monkeypatch):
    """Each rank was compared with every other: 40 s of 45 with 1,024."""
    compared: list[tuple[int, ...]] = []
    listed = stated_sizes._list_fitting

    def count(this: Any, other: Any, timed: Any) -> Any:
        compared.append(other.ranks)
        return listed(this, other, timed)

    monkeypatch.setattr(stated_sizes, "_list_fitting", count)
    trace = job_of_stated_sizes(tmp_path, [(8 + number // 2,) * 3 for number in range(16)], [EARLY] * 16)
    assert {each["pg_name"] for each in collectives(trace, 15)[:-1]} == {"ranks 14-15"}
    # All sizes together, then each by itself.
    assert sorted(compared) == sorted([(number, number + 1) for number in range(0, 16, 2)] * 2)


def test_where_ranks_are_missing_no_group_of_a_stated_size_is_inferred(tmp_path):
    job_of_stated_sizes(tmp_path, [TURNS, TURNS, (16, 8, 8), (16, 8, 8)], [EARLY] * 4)
    (tmp_path / "kineto_3.json").unlink()
    assert [one.level for one in studio.link(tmp_path).findings if one.code == "comm-group-size"] == [
        "warning"
    ]


def test_groups_of_one_name_that_collectives_alone_list_are_told_apart_by_their_ranks(tmp_path):
    """As halves of a split group are, which have one name. Ranks 2 and 3 were said to be outside of their group."""
    named = [{**facts, "group": "1"} for facts in LISTED]
    trace = job_without_names(tmp_path, named, {})
    own = [collectives(trace, number)[0]["pg_name"] for number in range(4)]
    assert own == ["1", "1", "1:2-3", "1:2-3"]
    assert {"1": (0, 1), "1:2-3": (2, 3)}.items() <= {each.name: each.ranks for each in trace.groups}.items()
    assert not [found for found in examine(trace) if found.level == "error"]


def test_of_several_groups_of_the_stated_ranks_the_first_is_inferred(tmp_path):
    trace = job_without_names(tmp_path, LISTED, GROUPS | {"3": [0, 1], "4": [2, 3]})
    assert [(each["pg_name"], "group" in each["comm_inferred"]) for each in collectives(trace, 2)] == [
        ("2", True),
        ("0", False),
    ]


def test_where_ranks_have_one_group_each_nothing_is_compared_to_find_it(tmp_path, monkeypatch):
    """Of every rank all collectives would be looked at, which are tens of thousands."""
    for number in range(3):
        rank_files(tmp_path, number, *small_rank(number))
        (tmp_path / f"pytorch_et_{number}.json").unlink()
    looked: list[int] = []
    items = strands.collect_items
    for module in (infer, unlisted):
        monkeypatch.setattr(module, "collect_items", lambda rank_draft: looked.append(1) or items(rank_draft))
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


def test_a_rank_of_one_group_takes_part_in_it_for_the_others(tmp_path):
    """Ranks 2 and 3 have nothing to choose; the others do the like in a group of their own in between."""
    groups = {"0": [0, 1, 2, 3], "1": [0, 1]}
    for number in range(4):
        calls = [(0.0, 10.0 + number, 8, 100), (200.0, 210.0, 4, 200), (600.0, 610.0 + number, 8, 101)]
        write_rank(tmp_path, number, calls if number < 2 else calls[::2], groups=groups)
    trace = studio.link(tmp_path)
    for number in range(2):
        assert told(trace, number)["gloo:all_reduce 32"] == [("0", True), ("0", True)]
        assert told(trace, number)["gloo:all_reduce 16"] == [("1", True)]
    assert told(trace, 2)["gloo:all_reduce 32"] == [("0", False), ("0", False)]
    assert not [one for one in examine(trace) if one.level != "info"]


def test_what_a_rank_seems_to_lack_is_no_error_where_its_groups_were_inferred(tmp_path):
    groups = {"0": [0, 1, 2, 3], "1": [0, 1]}
    for number in range(4):
        calls = [(0.0, 10.0, 8, 100), (200.0, 210.0, 4, 200), (600.0, 610.0, 8, 101)]
        write_rank(tmp_path, number, calls[:2] if number < 2 else calls[::2], groups=groups)
    [found] = [one for one in examine(studio.link(tmp_path)) if one.code == "collectives-disagree"]
    assert found.level == "warning"
    assert "may be in another one" in found.message


def test_overlapping_groups_of_equal_traffic_are_told_apart_by_what_clearly_cannot_be(tmp_path):
    """Rank 0 may be in the world as in its pair, as far as it sees: what rank 2 did at other times tells that it is the pair."""
    groups = {"0": [0, 1, 2, 3], "1": [1, 2, 3], "2": [2, 3], "3": [1, 3], "4": [0, 3]}
    when = {"1": 200, "2": 400, "3": 600, "4": 640}
    for number in range(4):
        own = [name for name in when if number in groups[name]]
        calls = []
        for step in range(0, 6000, 2000):
            for name in own:
                # Rank 0 is early, and waits for rank 3 while the others do the like in their groups.
                start = float(step + (when[name] if number else 0))
                calls.append((start, start + 6, 16 if name == "1" else 8, 100 + 20 * int(name)))
        write_rank(tmp_path, number, calls, groups=groups, lasts=50 if number else 900)
    trace = studio.link(tmp_path)
    found = [[group for group, _ in told(trace, number)["gloo:all_reduce 32"]] for number in range(4)]
    assert found == [["4"] * 3, ["3"] * 3, ["2"] * 3, ["2", "3", "4"] * 3]


def test_what_studio_collect_notes_down_leaves_nothing_to_infer(tmp_path):
    trace = job(tmp_path, noted={2: "0", 602: "0"})
    for number in range(4):
        own = str(1 + number // 2)
        assert told(trace, number)["gloo:all_reduce 32"] == [("0", False), (own, False), ("0", False)]
    assert not [finding for finding in trace.findings if finding.code == "comm-group-inferred"]


def job_with_unlisted_groups(folder: Path, noted: bool, lacking: int = -1) -> Trace:
    """Pairs of ranks that reduce on a thread of their own at one time, beside collectives of all four; the group of all is listed alone."""
    for number in range(4):
        calls: list[tuple[float, float | None, int, int]] = [
            (0, 10 + number, 8, 100), (100, 110, 8 + number // 2, 200), (600, 610 + number, 8, 101),
        ]  # fmt: skip
        names = {1.0: "0", 101.0: str(7 + number // 2), 601.0: "0"}
        if number == lacking:
            del calls[1], names[101.0]
        write_rank(folder, number, calls, names if noted else None, {"0": [0, 1, 2, 3]})
    return studio.link(folder)


@pytest.mark.parametrize(("noted", "names"), [(True, ["7", "8"]), (False, ["ranks 0-1", "ranks 2-3"])])
def test_groups_that_were_made_while_it_recorded_have_the_ranks_that_met_in_them(tmp_path, noted, names):
    """Neither is in any list: notes name the one, threads of their own tell the other."""
    trace = job_with_unlisted_groups(tmp_path, noted)
    assert [(group.name, group.ranks) for group in trace.groups] == [
        ("0", (0, 1, 2, 3)), (names[0], (0, 1)), (names[1], (2, 3)),
    ]  # fmt: skip
    for number in range(4):
        found = [group for each in told(trace, number).values() for group in each]
        assert sorted(found) == [("0", not noted)] * 2 + [(names[number // 2], not noted)]
    assert not [one for one in examine(trace) if one.level != "info"]


@pytest.mark.parametrize("noted", [False, True])
def test_a_group_that_does_not_explain_all_is_made_of_no_threads(tmp_path, noted):
    """One of a pair lacks its collective: what the other had alone is in no group of two."""
    trace = job_with_unlisted_groups(tmp_path, noted, lacking=1)
    assert (0, 1) not in [group.ranks for group in trace.groups]


def test_a_disagreement_in_an_inferred_group_is_no_error_and_in_a_written_one_it_is(tmp_path):
    """Rank 3 begins two all-reduces of its pair in another order."""
    levels = {}
    for name in ("inferred", "written"):
        for number in range(4):
            own, late = str(1 + number // 2), 200 if number >= 2 else 0
            sizes = (16, 4) if number == 3 else (4, 16)
            calls = [(0, 10 + number, 8, 100), (600, 610 + number, 8, 101)]
            calls += [
                (100 + late + 20 * turn, 110 + late + 20 * turn, size, 200 + turn)
                for turn, size in enumerate(sizes)
            ]
            noted = {2: "0", 602: "0", 101 + late: own, 121 + late: own} if name == "written" else None
            write_rank(tmp_path / name, number, sorted(calls), noted)
        examined = examine(studio.link(tmp_path / name))
        levels[name] = {one.level for one in examined if one.code == "collectives-disagree"}
    assert levels == {"inferred": {"warning"}, "written": {"error"}}


def test_a_rank_that_lacks_a_collective_in_whichever_group_is_an_error(tmp_path):
    """Ranks 2 and 3 share each of their groups, so they have as many collectives of a size."""
    [found] = [one for one in examine(job(tmp_path, lacking=3)) if one.code == "collectives-disagree"]
    assert found.level == "error"
    assert "inferred" not in found.message


def test_files_of_one_machine_whose_collectives_never_meet_are_told_and_their_clock_moved(tmp_path):
    """As of a rank of another run of the script. Their times stand side by side then, and the steps keep theirs."""
    for number in range(4):
        late = 3e6 if number == 2 else 0.0
        calls = [(late + turn, late + turn + 10 + number, 8, 100) for turn in (0.0, 300.0, 600.0)]
        write_rank(tmp_path, number, calls, groups={"0": [0, 1, 2, 3]})
    trace = studio.link(tmp_path)
    assert [rank.metadata_number("clock_offset_ns") for rank in trace.ranks] == [0, 0, -3_000_001_000, 0]
    # Once, with what linking did: that times could be compared now would contradict it.
    [warned] = [one for one in examine(trace) if one.code == "clock-skew"]
    assert (warned.level, warned.ranks) == ("warning", (2,))
    assert "Linking moved its times by that" in warned.message
    assert dict(warned.evidence)["rank 2"].startswith("-3,000,001,000 ns, ")
    assert "several runs" in warned.advice


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


def test_a_collective_under_way_at_the_end_of_the_recording_does_not_lengthen_the_step(tmp_path):
    """Rank 1 began its last one long before rank 0, and was recorded no longer: it went on at once."""
    from tests.et.link.test_replay_shared import replayed

    for number in range(2):
        write_rank(
            tmp_path,
            number,
            [(0.0, 10.0, 8, 100), (100.0 + 900 * (1 - number), None, 8, 101)],
            groups={"0": [0, 1]},
        )
    trace = studio.link(tmp_path)
    assert [one.recorded_ns for one in replayed(trace)] == [1_005_000, 105_000]
    assert max(abs(one.difference) for one in replayed(trace)) < 0.01
    assert {tuple(attrs["comm_inferred"]) for attrs in collectives(trace, 1)} == {("seq",), ("end", "seq")}


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
