"""Dumps of PyTorch's flight recorder: what is read of them, what is refused, and which rank the Doctor names."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import studio
from studio.cli import main
from studio.doctor import Diagnosis, examine
from studio.errors import StudioError, TraceFormatError
from studio.et.plain_pickle import CutOffError, load_plain
from studio.trace import NodeType, Trace, list_node_attributes
from tests.flight_dumps import as_json, dump, message, one_missing, operation, write_dumps

TP = ("5", "tp")
WORLD = ("0", "default_pg")


def hangs(trace: Trace) -> list[Diagnosis]:
    return [one for one in examine(trace) if one.code == "hang"]


def attributes(trace: Trace, rank: int, row: int) -> dict[str, object]:
    told = list_node_attributes(trace.graph_of(rank), row, trace.known_rank(rank).slots)
    return {attr.name: attr.value for attr in told}


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_never_came_and_the_collective_are_named(tmp_path: Path, form: str):
    """Though the recorder of rank 1 forgot its first operations."""
    trace = studio.read(write_dumps(tmp_path / "dumps", one_missing(), form=form))
    [hang] = hangs(trace)
    assert hang.level == "error"
    assert hang.ranks == (3,)
    assert hang.message == (
        "all_reduce of 4.00 MiB (Float) (number 5 of group 0) does not end: rank 3 never issued it; ranks 0–2 wait in it."
    )
    assert [(node.rank, node.row) for node in hang.nodes] == [(0, 4), (1, 2), (2, 4)]
    assert "number 4 of group 0): completed, the last it issued" in dict(hang.evidence)["rank 3"]
    assert form == "json" or dict(hang.evidence)["issued by rank 0 at"] == "step (train.py:45)"


def test_a_dump_becomes_collectives_with_groups_sizes_and_times(tmp_path: Path):
    trace = studio.read(write_dumps(tmp_path / "dumps", one_missing()))
    graph = trace.graph_of(0)
    told = attributes(trace, 0, 3)
    assert (told["comm_type"], told["comm_size"], told["pg_name"], told["comm_seq"]) == (0, 4 << 20, "0", 4)
    assert [group.ranks for group in trace.groups] == [(0, 1, 2, 3)]
    assert not trace.groups[0].inferred
    assert graph.duration_ns.tolist() == [300_000] * 4 + [0]
    assert (graph.start_ns[1:] - graph.start_ns[:-1]).tolist() == [1_000_000] * 4


def test_a_wait_in_another_group_is_followed_to_where_it_began(tmp_path: Path):
    ranks = {rank: [operation(1)] for rank in range(4)}
    for rank in (0, 1):
        ranks[rank].append(operation(2, state="started"))
    ranks[3].append(operation(1, "all_gather_single", "started", group=TP))
    trace = studio.read(write_dumps(tmp_path / "dumps", ranks, {WORLD: range(4), TP: [2, 3]}))
    world, tensor = hangs(trace)
    assert world.ranks == tensor.ranks == (2,)
    assert "rank 2 never issued it" in world.message
    assert "Nor did rank 3, waiting in another group." in world.message
    assert "group tp 5@2" in tensor.message


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (operation(2, "broadcast", "started"), "rank 2 broadcast of 4.00 MiB (Float) where ranks 0–1 issued all_reduce"),
        (operation(2, state="started", sizes=(8,)), "rank 2 all_reduce of 32 B (Float) where"),
        (operation(2, state="started", input_dtypes=["Half"]), "rank 2 all_reduce of 2.00 MiB (Half) where"),
    ],
)  # fmt: skip
def test_another_collective_type_or_size_under_one_number_is_named(tmp_path: Path, odd, words: str):
    ranks = {rank: [operation(1), operation(2, state="started")] for rank in range(2)} | {
        2: [operation(1), odd]
    }
    [hang] = hangs(studio.read(write_dumps(tmp_path / "dumps", ranks)))
    assert (hang.level, hang.ranks) == ("error", (2,))
    assert words in hang.message


def test_different_sizes_under_a_number_that_ended_are_a_warning(tmp_path: Path):
    """Such as a gather of uneven parts, which PyTorch carries out."""
    ranks = {rank: [operation(1), operation(2, "all_gather", sizes=(8 + rank // 2,))] for rank in range(3)}
    [hang] = hangs(studio.read(write_dumps(tmp_path / "dumps", ranks)))
    assert (hang.level, hang.ranks) == ("warning", (2,))
    assert hang.message.endswith("it did end.")


def test_all_there_and_nothing_ends_points_at_the_device_that_had_not_begun(tmp_path: Path):
    ranks = {rank: [operation(1), operation(2, state="started")] for rank in range(3)}
    ranks[1][1]["state"] = "scheduled"
    [hang] = hangs(studio.read(write_dumps(tmp_path / "dumps", ranks)))
    assert (hang.level, hang.ranks) == ("warning", (1,))
    assert "The device of rank 1 had not begun it." in hang.message


def test_a_member_without_a_dump_is_named(tmp_path: Path):
    ranks = {rank: [operation(1, state="started")] for rank in (0, 1, 3)}
    [hang] = hangs(studio.read(write_dumps(tmp_path / "dumps", ranks, {WORLD: range(4)})))
    assert "rank 2 left no dump" in hang.message
    assert (hang.level, hang.ranks) == ("error", (2,))


def test_a_job_that_went_well_has_no_hang(tmp_path: Path):
    trace = studio.read(write_dumps(tmp_path / "dumps", {rank: [operation(1)] for rank in range(2)}))
    assert not [one for one in examine(trace) if one.level == "error"]


@pytest.mark.parametrize(
    "batch",
    [message(1, "coalesced"), operation(0, "coalesced", sizes=(), collective_seq_id=0, p2p_seq_id=1)],
    ids=["a message", "a collective, as of version 2.10"],
)
def test_messages_issued_together_have_the_state_of_their_batch(tmp_path: Path, batch: dict[str, object]):
    """PyTorch leaves each as scheduled and writes one entry for the batch; a lone receive that nobody sends hangs."""
    together = [
        message(1, "send 0->1", "scheduled"),
        message(1, "recv 0<-1", "scheduled"),
        {**batch},
    ]
    answer = [
        message(1, "send 1->0", "scheduled"),
        message(1, "recv 1<-0", "scheduled"),
        {**batch},
    ]
    ranks = {0: together, 1: [*answer, message(2, "recv 1<-0", "started")]}
    pp = ("7", "pp")
    for entries in ranks.values():
        for entry in entries:
            entry["process_group"] = pp
    trace = studio.read(write_dumps(tmp_path / "dumps", ranks, {WORLD: [0, 1], pp: [1, 0]}))
    graph = trace.graph_of(0)
    assert graph.type.tolist() == [NodeType.COMM_SEND, NodeType.COMM_RECV]
    # The group's order counts: its member 1 is rank 0.
    assert attributes(trace, 1, 0)["comm_dst"] == 1
    assert {attributes(trace, 0, row)["flight_state"] for row in (0, 1)} == {"completed"}
    [hang] = hangs(trace)
    assert hang.ranks == (1,)
    assert "recv 1<-0" in hang.message


def test_the_batch_of_a_collective_that_is_told_itself_is_no_loss(tmp_path: Path):
    """Version 2.10 ends coalesced collectives with an entry of the same number."""
    entries = [operation(1, "allreduce_coalesced"), operation(1, "coalesced", sizes=())]
    trace = studio.read(write_dumps(tmp_path / "dumps", dict.fromkeys(range(2), entries)))
    assert [len(graph) for graph in trace.graphs] == [1]
    assert not [finding for finding in trace.findings if finding.code == "left-out"]


@pytest.mark.parametrize(("measured", "ranks"), [(False, []), (True, [1])])
def test_clocks_are_not_compared_by_when_the_watchdog_looked(
    tmp_path: Path, *, measured: bool, ranks: list[int]
):
    """It looks every tenth of a second: ranks of one machine were said to be as far apart."""
    entries = {rank: [operation(number) for number in range(1, 6)] for rank in range(2)}
    for each in entries[1]:
        for key in ("created", "discovered_started", "discovered_completed"):
            each[f"time_{key}_ns"] += 35_000_000
    for each in (*entries[0], *entries[1]):
        each["duration_ms"] = 0.2 if measured else None
    trace = studio.read(write_dumps(tmp_path / "dumps", entries))
    found = [one for one in examine(trace) if one.code == "clock-skew"]
    assert [rank for one in found for rank in one.ranks] == ranks


class Evil:
    """Makes a folder where a pickle is carried out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_names_code_is_refused_with_its_place_and_not_carried_out(
    tmp_path: Path, protocol: int
):
    content = dump([operation(1)], {WORLD: [0]}) | {"version": Evil(tmp_path / "made")}
    raw = pickle.dumps(content, protocol)
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(raw)
    code, at = next(
        (op.name, at) for op, _, at in pickletools.genops(raw) if op.name in ("GLOBAL", "STACK_GLOBAL")
    )
    with pytest.raises(TraceFormatError, match=f"nccl_trace_rank_0: byte {at:,} is the instruction {code}"):
        studio.read(file)
    assert not (tmp_path / "made").exists()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@given(VALUES, st.integers(2, 5))
def test_plain_values_are_read_as_python_reads_them(value, protocol: int):
    raw = pickle.dumps(value, protocol)
    assert load_plain(raw, "x") == pickle.loads(raw)
    for end in range(2, len(raw), max(len(raw) // 6, 1)):
        with pytest.raises((CutOffError, TraceFormatError)):
            load_plain(raw[:end], "x")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x02r\xff\xff\xff\xff.",  # keeps what is not there, at a place that would take gigabytes
        b"\x80\x02X\xff\xff\xff\xffpg_config",  # a text longer than the file
        b"\x80\x02\x8b\xff\xff\xff\x7f",
        b"\x80\x02]K\x01e.", b"\x80\x02K\x01K\x02s.", b"\x80\x02}]K\x01s.", b"\x80\x02h\x07.", b"\x80\x02(.", b"\x80\x02\x84\x01.",
        b"\x80\x02P0\n.", b"\x80\x02N\x85b.", b"\x80\x02]" + b"2" * 99 + b".",
    ],
)  # fmt: skip
def test_damaged_and_hostile_pickles_are_errors_for_the_user(raw: bytes):
    with pytest.raises((TraceFormatError, CutOffError)):
        load_plain(raw, "x")


def test_what_was_written_before_a_dump_was_cut_off_is_read(tmp_path: Path):
    folder = write_dumps(tmp_path / "dumps", one_missing())
    file = folder / "nccl_trace_rank_0"
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 3 // 4])
    trace = studio.read(folder)
    assert 2 <= len(trace.graph_of(0)) < 5
    assert "damaged-file" in {finding.code for finding in trace.findings}


def test_lists_that_a_file_shares_without_end_are_refused(tmp_path: Path):
    """Each of ten thousand operations names the same ten thousand sizes."""
    entry = operation(1)
    entry["input_sizes"] = [[1]] * 10_000
    entry["frames"] = []
    content = dump([], {WORLD: [0]}) | {"entries": [entry] * 10_000}
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(pickle.dumps(content, 2))
    with pytest.raises(TraceFormatError, match="sizes, calls and members in one dump"):
        studio.read(file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"entries": None}, "no list 'entries'"),
        (
            {"entries": [1, None, {}, {"profiling_name": "nccl:x", "state": "gone"}]},
            "entries without a name or a state, left out: 4",
        ),
        ({"pg_config": [1]}, "process groups whose members could not be read in full: 1"),
        (
            {"pg_config": {"0": {"ranks": "[["}, "1": 7, "2": {"ranks": [-1, "x", 2**99]}}},
            "process groups whose members could not be read in full: 3",
        ),
        ({"entries": [operation(1, sizes=("x",))]}, "operations with sizes or types that are not known"),
        ({"entries": [message(1, "send 0->9")]}, "messages to a member that their group does not have"),
    ],
)
def test_values_of_a_wrong_kind_are_said(tmp_path: Path, change, words: str):
    file = tmp_path / "nccl_trace_rank_0"
    file.write_text(json.dumps(json.loads(as_json(dump([operation(1)], {WORLD: [0]}))) | change))
    try:
        said = " ".join(finding.message for finding in studio.read(file).findings)
    except StudioError as error:
        said = error.message
    assert words in said


def test_check_tells_the_hang_and_exits_with_1(tmp_path: Path):
    folder = write_dumps(tmp_path / "dumps", one_missing())
    result = CliRunner().invoke(main, ["check", str(folder), "--json"])
    assert result.exit_code == 1
    [first, *_] = json.loads(result.output)["findings"]
    assert (first["code"], first["ranks"]) == ("hang", [3])
