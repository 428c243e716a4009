"""Exports of Nsight Systems: kernels, streams, launches, copies and collectives; damaged and hostile databases."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import studio
from studio.analysis.job.summary import summarise
from studio.errors import StudioError, TraceFormatError
from studio.et.foreign import describe_unrecognised
from studio.et.link.dep_kinds import DepKind
from studio.et.rocprof import LibraryCalls
from studio.trace import DEVICE_NAME, Trace, list_node_attributes
from tests.et.damaged_databases import read_damaged
from tests.nsight_exports import add_payloads, add_waits, write_export


def attributes(trace: Trace, number: int = 0) -> dict[str, dict[str, object]]:
    """The attributes of each node by its name."""
    rank = trace.known_rank(number)
    graph = trace.graph_of(rank)
    return {
        graph.strings[int(graph.name[row])]: {
            one.name: one.value for one in list_node_attributes(graph, row, rank.slots)
        }
        for row in range(len(graph))
    }


@pytest.mark.parametrize("packed", [False, True])
def test_kernels_streams_launches_copies_and_collectives(tmp_path: Path, packed: bool):
    path = write_export(tmp_path / "report.sqlite")
    if packed:
        path = tmp_path / "report.sqlite.gz"
        path.write_bytes(gzip.compress((tmp_path / "report.sqlite").read_bytes()))
        (tmp_path / "report.sqlite").unlink()
    trace = studio.read(path)
    found = attributes(trace)
    gemm = found["void gemm<float>(float*)"]
    assert (gemm["stream"], gemm["device"], gemm["launched_by"], gemm["launch_ns"]) == (
        7,
        0,
        "cudaLaunchKernel",
        900,
    )
    assert found["Memcpy HtoD"]["tensor_size"] == 4096
    assert found["Memset"]["device_kind"] == "memset"
    # The second kernel says nothing of what it carries out; the range around its launch does.
    assert sorted(share.name for share in summarise(trace).collectives) == ["ALL_GATHER", "ALL_REDUCE"]
    assert DEVICE_NAME in {item.name for item in trace.ranks[0].metadata}
    assert "OSRT_API (1)" in " ".join(finding.message for finding in trace.findings)


def test_the_recording_replays_in_its_time(tmp_path: Path):
    trace = studio.read(write_export(tmp_path / "report.sqlite"))
    graph = trace.graph_of(0)
    names = [graph.strings[code] for code in graph.name.tolist()]
    at = names.index("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    assert int(graph.duration_ns[at]) == 300
    gemm = names.index("void gemm<float>(float*)")
    assert int(graph.start_ns[at] - graph.start_ns[gemm]) == 600


def test_processes_of_one_report_are_ranks_in_the_order_of_their_devices(tmp_path: Path):
    trace = studio.read(write_export(tmp_path / "report.sqlite", (900, 20)))
    assert [rank.number for rank in trace.ranks] == [0, 1]
    assert attributes(trace, 1)["void gemm<float>(float*)"]["device"] == 1
    assert "rank-assumed" in {finding.code for finding in trace.findings}


def test_what_nccl_says_beside_its_ranges_gives_sizes_groups_and_ranks(tmp_path: Path):
    path = add_payloads(write_export(tmp_path / "report.sqlite", (900, 20)), (3, 1), 4)
    trace = studio.read(path)
    assert [(rank.number, rank.metadata_number("world_size")) for rank in trace.ranks] == [(1, 4), (3, 4)]
    assert [(group.name, group.ranks) for group in trace.groups] == [("0xabc", (0, 1, 2, 3))]
    gathered = attributes(trace, 3)["ncclDevKernel_Generic_1(x)"]
    assert (gathered["pg_name"], gathered["comm_size"], gathered["bytes_out"]) == ("0xabc", 4096, 4 * 4096)
    assert "rank-assumed" not in {finding.code for finding in trace.findings}


def test_a_communicator_of_more_ranks_than_any_job_has_is_damage(tmp_path: Path):
    path = add_payloads(write_export(tmp_path / "report.sqlite"), (0,), 2**31)
    trace = studio.read(path)
    assert [(rank.number, rank.metadata_number("world_size")) for rank in trace.ranks] == [(0, 1)]
    assert max(len(group.ranks) for group in trace.groups) == 1


def test_a_communicator_of_some_ranks_does_not_tell_the_rank_where_the_name_does(tmp_path: Path):
    path = add_payloads(write_export(tmp_path / "report_rank5.sqlite"), (1,), 4)
    assert [rank.number for rank in studio.read(path).ranks] == [5]


def test_a_communicator_of_some_ranks_is_none_of_the_first_ones(tmp_path: Path):
    """As of data-parallel replicas: rank 0 has the first place in it too."""
    folder = tmp_path / "reports"
    folder.mkdir()
    for place, rank in enumerate((0, 4)):
        add_payloads(write_export(folder / f"report_rank{rank}.sqlite", (100 + rank,)), (place,), 2)
    trace = studio.read(folder)
    assert [group.ranks for group in trace.groups if group.name == "0xabc"] == [(0, 4)]


def test_a_process_with_several_places_in_a_communicator_is_none_of_them(tmp_path: Path):
    """As one that drives all devices of a machine."""
    path = write_export(tmp_path / "report.sqlite", (900, 20))
    add_payloads(path, (0, 1), 2)
    with closing(sqlite3.connect(path)) as database:
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            database.execute(f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET globalPid = 0")
        for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"):
            database.execute(f"UPDATE {table} SET globalTid = globalTid & 255")
        database.commit()
    trace = studio.read(path)
    assert [rank.number for rank in trace.ranks] == [0]
    assert {"rank-assumed", "several-devices"} <= {finding.code for finding in trace.findings}


def test_an_export_without_payloads_says_how_to_have_them(tmp_path: Path):
    path = add_payloads(write_export(tmp_path / "report.sqlite"), (0,), 1, blobs=False)
    found = {finding.code: finding.hint for finding in studio.read(path).findings}
    assert "--include-blobs=true" in found["no-payloads"]


@pytest.mark.parametrize("numbered", [True, False])
def test_a_stream_waits_for_an_event_of_another(tmp_path: Path, numbered: bool):
    trace = studio.read(add_waits(write_export(tmp_path / "report.sqlite"), numbered=numbered))
    graph = trace.graph_of(0)
    names = [graph.strings[code] for code in graph.name.tolist()]
    at = next(row for row, name in enumerate(names) if name.startswith("ncclDevKernel_AllReduce"))
    kinds = attributes(trace)[names[at]]["dep_kinds"]
    waits = dict(zip((names[row] for row in graph.data.of(at).tolist()), kinds, strict=True))
    assert waits["void gemm<float>(float*)"] & DepKind.EVENT
    assert "SYNCHRONIZATION" not in " ".join(finding.message for finding in trace.findings)


def test_reports_of_several_machines_follow_each_other(tmp_path: Path):
    """Each has the processes of its machine, and the one says no more of them than the other."""
    folder = tmp_path / "reports"
    folder.mkdir()
    for machine in range(2):
        write_export(folder / f"node{machine}.sqlite", (10 * machine + 1, 10 * machine + 2))
    trace = studio.read(folder)
    assert [(rank.number, rank.file) for rank in trace.ranks] == [
        (place, f"reports/node{place // 2}.sqlite") for place in range(4)
    ]
    assert studio.read(folder / "node0.sqlite", ranks={"node0.sqlite": 1}).ranks[0].number == 2


def put_reports(folder: Path, replaced: str = "") -> Path:
    """Reports that are named after machine and process (`nsys profile -o %h_%p`), of processes on a device each."""
    folder.mkdir()
    for device in range(2):
        path = write_export(folder / f"node7_{4243 - device}.sqlite", (4243 - device,))
        with closing(sqlite3.connect(path)) as database:
            for table in ("KERNEL", "MEMCPY", "MEMSET"):
                database.execute(f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET deviceId = {device}")
            if replaced:
                database.execute(f"UPDATE StringIds SET value = replace(value, '{replaced}', 'x')")
            database.commit()
            database.execute("VACUUM")
    return folder


def test_reports_of_processes_of_a_machine_are_ranks_in_the_order_of_their_devices(tmp_path: Path):
    trace = studio.read(put_reports(tmp_path / "reports"))
    assert {rank.number: Path(rank.file).name for rank in trace.ranks} == {
        0: "node7_4243.sqlite",
        1: "node7_4242.sqlite",
    }
    [finding] = [one for one in trace.findings if one.code == "rank-assumed"]
    assert "nsys profile" in finding.hint


def test_reports_of_programs_that_do_not_communicate_are_jobs_of_their_own(tmp_path: Path):
    with pytest.raises(StudioError, match="2 jobs found, not one"):
        studio.read(put_reports(tmp_path / "reports", "nccl"))


def test_marks_and_what_the_recorder_says_are_told(tmp_path: Path):
    path = write_export(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE ENUM_DIAGNOSTIC_SEVERITY_LEVEL (id INTEGER, name TEXT, label TEXT);"
            "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT);"
            "INSERT INTO ENUM_DIAGNOSTIC_SEVERITY_LEVEL VALUES (1, 'Info', ''), (2, 'Warning', '');"
            "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 'began'), (2, 2, 'CUDA events lost'), (3, 2, 'CUDA events lost');"
        )
    said = [finding.message for finding in studio.read(path).findings]
    assert [message for message in said if "the recorder says" in message] == [
        "report.sqlite: the recorder says: CUDA events lost"
    ]
    assert "marks and other events of NVTX (1)" in " ".join(said)


def test_reports_of_several_ranks_are_one_job(tmp_path: Path):
    folder = tmp_path / "reports"
    folder.mkdir()
    for rank in range(2):
        write_export(folder / f"report_rank{rank}.sqlite", (100 + rank,))
    assert [rank.number for rank in studio.read(folder).ranks] == [0, 1]


def test_old_exports_that_lack_columns_are_read(tmp_path: Path):
    path = write_export(tmp_path / "report.sqlite")
    database = sqlite3.connect(path)
    for table, column in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
    ):
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    for table in (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "NVTX_EVENTS",
        "TARGET_INFO_GPU",
    ):
        database.execute(f"DROP TABLE {table}")
    database.commit()
    database.close()
    assert "void gemm<float>(float*)" in attributes(studio.read(path))


def test_a_database_of_something_else_and_one_without_work_are_told(tmp_path: Path):
    path = tmp_path / "other.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    database.commit()
    database.close()
    with pytest.raises(TraceFormatError, match="none of the tables CUPTI_ACTIVITY_KIND_KERNEL"):
        studio.read(path)
    path = write_export(tmp_path / "report.sqlite", ())
    with pytest.raises(TraceFormatError, match="nothing ran on a device"):
        studio.read(path)


def test_views_in_place_of_tables_are_not_read(tmp_path: Path):
    """A view can be a query without an end."""
    path = write_export(tmp_path / "report.sqlite")
    database = sqlite3.connect(path)
    database.execute("DROP TABLE NVTX_EVENTS")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end, i AS eventType FROM n"
    database.execute(f"CREATE VIEW NVTX_EVENTS AS {endless}")
    database.commit()
    database.close()
    assert "void gemm<float>(float*)" in attributes(studio.read(path))


def test_damaged_databases_are_a_trace_or_an_error_for_the_user(tmp_path: Path):
    whole = write_export(tmp_path / "report.sqlite").read_bytes()
    assert len(read_damaged(whole, tmp_path / "damaged.sqlite")) > 1


def test_values_of_a_wrong_kind_are_counted(tmp_path: Path):
    path = write_export(tmp_path / "report.sqlite")
    database = sqlite3.connect(path)
    rows = [
        ("x", 5, 0, 1, 7, 1, 0, 3, 4, 8),
        (9, 5, 0, 1, 7, 1, 0, 3, 4, 8),
        (2**62, 2**63 - 1, "a", 1, None, 2.5, b"x", "y", None, 8),
    ]
    database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?,?)", [tuple(0 if v is None else v for v in row) for row in rows])  # fmt: skip
    database.commit()
    database.close()
    said = " ".join(finding.message for finding in studio.read(path).findings)
    assert "events without a usable time, left out: 2" in said


def test_what_would_tell_sizes_is_of_the_recorder(tmp_path: Path):
    """PyTorch's profiler was named for recordings of every program."""
    trace = studio.read(write_export(tmp_path / "report.sqlite", (900, 20)))
    [finding] = [one for one in studio.examine(trace) if one.code == "size-zero"]
    assert "--include-blobs=true" in finding.advice
    assert "PyTorch" not in finding.advice


@pytest.mark.parametrize(
    ("kernels", "sizes"), [((7,), [12]), ((7, 8), [4, 8]), ((7, 8, 9), [None, None, None])]
)
def test_calls_of_a_group_are_of_the_kernels_that_it_launches(kernels: tuple[int, ...], sizes: list[int]):
    """One kernel carries out all of them, as many as calls one each; else nothing tells which carries out what."""
    group = [("ncclGroupStart", 1, 0, 1), ("ncclAllGather", 1, 2, 3), ("ncclAllGather", 1, 4, 5)]
    calls = LibraryCalls(
        [*group, ("ncclGroupEnd", 1, 6, 20)],
        {number: (1, number) for number in kernels},
        {(1, 2): {"group": "a", "in_elements": 4}, (1, 4): {"group": "a", "in_elements": 8}},
        kernels,
    )
    found = [calls.facts(number) or {} for number in kernels]
    assert [facts.get("in_elements") for facts in found] == sizes
    assert {(facts["collective"], facts["group"]) for facts in found} == {("AllGather", "a")}


@pytest.mark.parametrize(
    ("name", "content", "what", "instead"),
    [
        ("report1.nsys-rep", b"\1\2\0\3", "a report of Nsight Systems", "nsys export --type sqlite"),
        ("old.qdrep", b"\1\2\0\3", "a report of Nsight Systems", "nsys export --type sqlite"),
        (
            "report.json",
            b'{"Type":79,"CudaEvent":{"startNs":"1"}}\n',
            "an export of Nsight Systems",
            "--type sqlite",
        ),
        ("CUPTI_ACTIVITY_KIND_KERNEL.parquet", b"PAR1", "a table of an export", "--type sqlite"),
        ("gemm.ncu-rep", b"\1\2\0\3", "a report of Nsight Compute", "nsys profile"),
    ],
)
def test_other_files_of_nsight_are_called_by_name(
    tmp_path: Path, name: str, content: bytes, what: str, instead: str
):
    """They were binary data of an unknown kind, with a list of all formats as what to do."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceFormatError, match=what) as caught:
        studio.read(path)
    assert instead in str(caught.value.hint)
    assert what.split(" .*", maxsplit=1)[0] in describe_unrecognised(content, name)
