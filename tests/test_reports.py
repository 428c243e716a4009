"""What `info` prints of a job."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from studio.commands.info import build_job_report as report
from studio.commands.info import format_job_report as as_text
from studio.et import discover, read_job
from studio.et.source import open_sources
from studio.samples import SAMPLES, sample_path
from studio.trace import CommGroup, Finding, Trace
from tests.et.chakra_bytes import attr, file_of, num, sized
from tests.small_jobs import some
from tests.strategies import part_of

COMMUNICATING = file_of(
    num(1, 1) + num(3, 4) + num(6, 5) + num(7, 20) + attr("num_ops", num(9, 2_000_000)),
    num(1, 2)
    + num(3, 7)
    + num(6, 30)
    + num(7, 4)
    + num(5, 1)
    + attr("comm_type", num(9, 0))
    + attr("comm_size", num(9, 4096))
    + attr("pg_name", sized(29, "tp")),
)


def communicating(groups: tuple[CommGroup, ...] = ()) -> Trace:
    part = part_of(COMMUNICATING)
    ranks = tuple(replace(part.rank, number=n, graph=0, file=f"job.{n}.et") for n in (0, 1))
    return Trace((part.graph,), ranks, groups)


def test_the_report_is_plain_data_with_everything_counted_over_the_ranks():
    table = report("job", communicating((CommGroup("tp", (1, 0)), CommGroup("pp", (0,)))))
    assert json.loads(json.dumps(table))["groups"] == table["groups"]
    keys = ["name", "world_size", "missing", "files", "summary", "programs", "assumed", "ranks", "groups"]
    keys += ["memory", "findings"]
    assert list(table) == keys
    assert (table["world_size"], table["missing"]) == (2, "")
    assert table["summary"]["nodes"] == 4
    assert table["summary"]["operations"] == 4_000_000
    assert [share["name"] for share in table["summary"]["collectives"]] == ["ALL_REDUCE"]
    assert table["ranks"][1] == {"rank": 1, "file": "job.1.et", "nodes": 2, "graph": 0, "assumed_from": None}
    assert table["groups"] == [
        {"name": "tp", "ranks": [1, 0], "inferred": False, "nodes": 2, "bytes": 8192},
        {"name": "pp", "ranks": [0], "inferred": False, "nodes": 0, "bytes": 0},
    ]


def test_a_group_that_is_listed_nowhere_has_the_ranks_that_use_it():
    [group] = report("job", communicating())["groups"]
    assert group == {"name": "tp", "ranks": [0, 1], "inferred": True, "nodes": 2, "bytes": 8192}


def test_the_text_says_what_the_data_says():
    text = as_text(report("job", communicating()))
    assert text.splitlines() == [
        "job",
        "  ranks         2 (1 distinct graph)",
        "  nodes         4",
        "  dependencies  0 control, 2 data",
        "  recorded      29.0 µs",
        "  operations    4.00 MFLOP",
        "  schema        0.0.4",
        "  node types",
        "    COMM_COLL                         2",
        "    COMP                              2",
        "  communication",
        "    ALL_REDUCE                        2    8.00 KiB",
        "  comm groups   1",
        "  files         2 used",
        "    job.0.et: rank 0",
        "    job.1.et: rank 1",
        "  findings      none",
    ]


def test_findings_come_with_rank_place_and_hint():
    findings = (
        Finding("error", "truncated", "job.3.et: cut at byte 77", "Copy it again.", 3, "job.3.et", 77),
        Finding("info", "group-inferred", "2 groups"),
    )
    lines = as_text(report("job", replace(some(), findings=findings))).splitlines()
    assert lines[-3:] == [
        "  error   truncated: rank 3: job.3.et: cut at byte 77",
        "          Copy it again.",
        "  info    group-inferred: 2 groups",
    ]


def test_texts_from_files_cannot_command_the_terminal():
    hostile = "\x1b[2J\u202e\nx\x9b"
    trace = replace(some(), findings=(Finding("error", "odd", hostile, hostile),))
    text = as_text(report(hostile, trace))
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.startswith("\\x1b[2J\\u202e\\nx\\x9b\n  ranks")


def test_a_job_without_nodes_or_ranks():
    for trace in (some(nodes=0), Trace((), ())):
        text = as_text(report("nothing", trace))
        assert "  nodes         0" in text
        assert "  recorded      no start times" in text
        assert "  operations    not in the files" in text


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_samples(sample):
    with open_sources([sample_path(sample.name)]) as files:
        table = report(sample.title, read_job(discover(files)[0]))
    assert len(table["ranks"]) == sample.ranks
    assert sum(rank["nodes"] for rank in table["ranks"]) == table["summary"]["nodes"]
    assert sum(share["nodes"] for share in table["summary"]["types"]) == table["summary"]["nodes"]
    assert table["findings"] == []
    assert as_text(table).splitlines()[0] == sample.title
