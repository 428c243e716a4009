"""Measured tables are read as benchmark programs print them, and nothing is dropped in silence."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest

from studio.calibration.reading.csv_tables import is_csv, write_csv
from studio.calibration.reading.files import read_tables
from studio.calibration.reading.given import Given
from studio.calibration.tables import read_csv
from studio.errors import StudioError

HEADER = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
DEVICES = """\
# Using devices
#  Rank  0 Group  0 Pid     17 on      host1 device  0 [0x3d] Some GPU 16GB
#  Rank  1 Group  0 Pid     18 on      host1 device  1 [0x3e] Some GPU 16GB
#  Rank  2 Group  0 Pid     19 on      host2 device  0 [0x3d] Some GPU 16GB
#  Rank  3 Group  0 Pid     20 on      host2 device  1 [0x3e] Some GPU 16GB
#
"""
ROW = "     1048576        262144     float     sum      -1   120.50    8.70   13.05      0   119.00    8.81   13.22      0\n"
SLOW = "  1073741824     268435456     float     sum      -1   102934   10.43   15.65      0   102800   10.44   15.67      0\n"


def written(tmp_path, text, name="log"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


# ---------------------------------------------------------------------------------------------------
# Outputs of benchmark programs


def test_columns_come_from_the_header_and_whole_numbers_are_times(tmp_path):
    [table] = read_tables([written(tmp_path, DEVICES + HEADER + ROW + SLOW)]).tables
    assert (table.collective, table.gpus_per_node, table.nodes) == ("all_reduce", 2, 2)
    assert (table.hardware, table.dtype) == ("Some GPU 16GB", "float")
    assert table.size_bytes.tolist() == [1048576, 1073741824]
    assert table.time_us.tolist() == [120.5, 102934]


@pytest.mark.parametrize(
    "prefix",
    ["0: ", "[1,0]<stdout>:", "2026-01-05T10:11:12.123456Z ", "worker-0: ", "\x1b[32m"],
)
def test_prefixes_of_launchers_are_passed_over(tmp_path, prefix):
    text = "".join(prefix + line for line in (DEVICES + HEADER + ROW + SLOW).splitlines(keepends=True))
    [table] = read_tables([written(tmp_path, text)]).tables
    assert (table.nodes, table.time_us.tolist()) == (2, [120.5, 102934])


def test_gpus_of_a_thread_are_those_of_the_header(tmp_path):
    """Without the line of threads a thread has one GPU; tables after the first of a run have those of the run."""
    threads = (
        "# nThread 1 nGpus {} minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20\n"
    )
    two, one = threads.format(2), threads.format(1)
    several = [two + DEVICES + HEADER + ROW, HEADER + ROW, one + DEVICES + HEADER + ROW]
    read = read_tables([written(tmp_path, "".join(several))])
    assert [table.gpus_per_thread for table in read.tables] == [2, 2, 1]
    assert (
        sum("one thread launched on 2 GPUs, one after the other; small sizes" in note for note in read.notes)
        == 2
    )
    [table] = read_tables([written(tmp_path, DEVICES + HEADER + ROW)]).tables
    assert table.gpus_per_thread == 1


def test_lines_of_libraries_between_rows_are_passed_over_and_cut_rows_are_counted(tmp_path):
    noise = "[1622510351.51] [g0193:8661 :0] ucp_context.c:1437 UCX  WARN  UCP version is incompatible\n"
    wrong_rate = SLOW.replace("102934", "2934")
    text = noise + DEVICES + HEADER + ROW + wrong_rate + noise + SLOW + wrong_rate + SLOW[:60] + "\n"
    read = read_tables([written(tmp_path, text)])
    assert len(read.tables[0].size_bytes) == 2
    left_out = [note.split(": ", 1)[1] for note in read.notes]
    first = text.splitlines().index(wrong_rate.rstrip("\n")) + 1
    assert left_out == [
        f"2 lines left out, the first is {first}: rows in which algbw is not size by time.",
        f"line {len(text.splitlines())} left out: rows that break off.",
    ]


def test_processes_that_print_at_the_same_time_are_told_apart(tmp_path):
    lines = (DEVICES + HEADER + ROW + SLOW).splitlines(keepends=True)
    mixed = "".join(f"0: {line}1: {line.replace('120.50', '121.00')}" for line in lines)
    first, second = read_tables([written(tmp_path, mixed)]).tables
    assert (first.time_us[0], second.time_us[0]) == (120.5, 121.0)
    assert first.table_id != second.table_id


def test_several_collectives_of_one_log_are_tables_of_their_own(tmp_path):
    gather = (
        HEADER
        + "     1048576         65536     float    none      -1    60.00   17.48   13.11    N/A\n".replace(
            "N/A", "0"
        )
    )
    text = (
        f"# Collective test starting: all_reduce_perf\n{DEVICES}{HEADER}{ROW}# Collective test concluded: all_reduce_perf\n"
        f"# Collective test starting: all_gather_perf\n{DEVICES}{gather}"
    )
    tables = read_tables([written(tmp_path, text)]).tables
    assert [table.collective for table in tables] == ["all_reduce", "all_gather"]


def test_a_log_that_was_cut_asks_for_gpus_and_nodes_and_knows_its_ranks(tmp_path):
    path = written(tmp_path, HEADER + ROW + SLOW)
    with pytest.raises(StudioError, match="does not say on how many GPUs and nodes") as caught:
        read_tables([path])
    assert "--gpus-per-node" in caught.value.hint
    assert "4 ranks" in caught.value.message
    [table] = read_tables([path], Given(gpus_per_node=2)).tables
    assert (table.gpus_per_node, table.nodes) == (2, 2)
    with pytest.raises(StudioError, match="allowed: a product of 4"):
        read_tables([path], Given(gpus_per_node=8, nodes=2))


@pytest.mark.parametrize("value", ["abc", "nan", "-3.0", "0.00"])
def test_a_wrong_value_is_named_with_file_line_and_what_is_allowed(tmp_path, value):
    path = written(tmp_path, DEVICES + HEADER + ROW.replace("120.50", value))
    with pytest.raises(StudioError, match=rf"log: line 10: time '{value}'; allowed: a number"):
        read_tables([path])


def test_rows_that_were_mixed_up_are_left_out_and_counted(tmp_path):
    torn = ROW.replace("120.50", "12.50")
    read = read_tables([written(tmp_path, DEVICES + HEADER + torn + SLOW)])
    assert read.tables[0].size_bytes.tolist() == [1073741824]
    assert read.notes[0] == "log: line 10 left out: rows in which algbw is not size by time."
    with pytest.raises(StudioError, match="line 8: a header without busbw"):
        read_tables([written(tmp_path, DEVICES + HEADER.replace("busbw", "bXsbw") + ROW)])


def test_rows_of_size_0_are_counted(tmp_path):
    empty = ROW.replace("1048576", "      0")
    assert "size 0" in read_tables([written(tmp_path, DEVICES + HEADER + empty + ROW)]).notes[0]


def test_outputs_of_shared_agree_with_the_table_made_of_them(shared):
    """Each raw output holds rows of a table of measured.csv: found by its times, and equal in all else."""
    kept = read_tables([shared / "measured" / "measured.csv"]).tables
    read = read_tables([shared / "measured" / "raw"], Given(gpus_per_node=8)).tables
    assert len(read) == 10
    known = 0
    for table in read:
        same = [
            other
            for other in kept
            if len(other.time_us) == len(table.time_us) and np.array_equal(other.time_us, table.time_us)
        ]
        for other in same:
            known += 1
            assert other.size_bytes.tolist() == table.size_bytes.tolist()
            assert (other.collective, other.nodes, other.gpus_per_node) == (
                table.collective,
                table.nodes,
                table.gpus_per_node,
            )
    assert known >= 8


# ---------------------------------------------------------------------------------------------------
# CSV files


def test_content_decides_not_the_name_and_gzip_is_read(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_bytes(
        gzip.compress(b"size(B),time(ns),busbw(GB/s)\n1048576,51400,30.60\n1073741824,7883300,204.3\n")
    )
    [table] = read_tables([path], Given(gpus_per_node=4, collective="all_reduce")).tables
    assert table.time_us.tolist() == pytest.approx([51.4, 7883.3])
    assert (table.gpus_per_node, table.nodes) == (4, 1)


def test_tables_that_are_written_are_read_again(shared, tmp_path):
    tables = read_tables([shared / "measured" / "measured.csv"]).tables
    again = read_tables([written(tmp_path, write_csv(tables))]).tables
    assert [table.table_id for table in again] == [table.table_id for table in tables]
    for old, new in zip(tables, again, strict=True):
        assert old.time_us.tolist() == new.time_us.tolist()
        assert (old.machine, old.collective, old.interconnect, old.gpus_per_thread) == (
            new.machine,
            new.collective,
            new.interconnect,
            new.gpus_per_thread,
        )


def test_gpus_of_a_thread_are_those_of_the_column_and_of_known_sources(shared, tmp_path):
    columns = "table_id,gpus_per_node,nodes,collective,gpus_per_thread,size_bytes,time_us\n"
    text = f"{columns}a,8,1,all_gather,8,1024,35\na,8,1,all_gather,8,2048,36\nb,8,1,all_gather,,1024,9\n"
    text += "c,8,1,all_gather,2,1024,12\n"
    read = read_tables([written(tmp_path, text, "own.csv")])
    assert [table.gpus_per_thread for table in read.tables] == [8, 1, 2]
    [note] = read.notes
    assert note == (
        "own.csv: one thread launched on 2 to 8 GPUs, one after the other, in 2 of 3 tables, such as a; small sizes wait for as many "
        "calls of the host, those of a job with a process a GPU for one."
    )
    alone = read_tables([written(tmp_path, f"{columns}a,8,1,all_gather,8,1024,35\n", "one.csv")])
    assert [note.partition(";")[0] for note in alone.notes] == [
        "one.csv: one thread launched on 8 GPUs, one after the other"
    ]
    path = shared / "measured" / "measured.csv"
    known = {table.table_id: table.gpus_per_thread for table in read_tables([path]).tables}
    assert known == {table.table_id: table.gpus_per_thread for table in read_csv(path)}
    several = {name: count for name, count in known.items() if count != 1}
    assert several == {
        name: 4 if name.startswith("snellius_h100_n1_g4_") else 2
        for name in known
        if name.startswith(("snellius_h100_n1_", "2080ti_"))
    }
    assert len(several) == 7


def test_measured_csv_is_read_whole(shared):
    path = shared / "measured" / "measured.csv"
    with path.open(newline="") as file:
        rows = sum(1 for _ in csv.reader(file)) - 1
    read = read_tables([path])
    assert sum(len(table.size_bytes) for table in read.tables) == rows
    assert len(read.tables) == 139


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size_bytes,time_us\n8,1\n16\n", r"line 3: 1 value; allowed: 2"),
        ("size_bytes,time_us\n8,fast\n", r"line 2: time 'fast'; allowed: a number"),
        ("size_bytes,time_us,collective\n8,1,all_scatter\n", r"line 2: collective 'all_scatter'; allowed: all_reduce"),
        ("table_id,nodes,gpus_per_node,collective,size_bytes,time_us\na,1,8,reduce,8,1\na,2,8,reduce,16,1\n", r"line 3: nodes '2' in table 'a'"),
        ("table_id,nodes,gpus_per_node,collective,size_bytes,time_us\na,none,8,reduce,8,1\n", r"nodes 'none'; allowed: a whole"),
        ("nodes,gpus_per_node,gpus_per_thread,collective,size_bytes,time_us\n1,4,8,reduce,8,1\n", r"gpus_per_thread 8; allowed: 1 to 4"),
    ],
)  # fmt: skip
def test_mistakes_in_csv_files_are_named(tmp_path, text, message):
    with pytest.raises(StudioError, match=message):
        read_tables([written(tmp_path, text)], Given(8, 1, ""))


def test_what_holds_no_times_is_refused(tmp_path):
    with pytest.raises(StudioError, match="no measured times"):
        read_tables([written(tmp_path, "hello\n")])


# ---------------------------------------------------------------------------------------------------
# Recorded jobs


def test_a_recorded_job_gives_the_shortest_member_and_the_kernels_choice(shared):
    job = shared / "traces" / "torch_synthetic_device" / "ddp_mlp_4r"
    with pytest.raises(StudioError, match="does not tell which of its 4 ranks"):
        read_tables([job])
    [table] = read_tables([job], Given(gpus_per_node=4)).tables
    assert (table.collective, table.gpus_per_node, table.nodes) == ("all_reduce", 4, 1)
    assert set(table.choices) == {"ring LL"}
    assert table.hardware == "Synthetic device"
    [halved] = read_tables([job], Given(gpus_per_node=2)).tables
    assert (halved.gpus_per_node, halved.nodes) == (2, 2)


def test_uneven_collectives_of_a_recorded_job_are_counted(shared):
    read = read_tables([shared / "traces" / "torch_synthetic_device" / "dlrm_4r"], Given(gpus_per_node=4))
    assert any("different sizes" in note for note in read.notes)


def test_a_line_without_end_is_no_table():
    assert not is_csv("a" * 200_000)
