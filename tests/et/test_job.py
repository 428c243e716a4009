"""From files to jobs: which rank a file is, what belongs together, and ranks that share a graph."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

import studio
from studio.errors import TraceError, TraceFormatError
from studio.et import RanksNeededError, discover, read_job
from studio.et.naming import name_of
from studio.et.rank_names import parse_rank_and_prefix
from studio.et.source import SourceFile, open_sources
from studio.trace import Trace, compute_digest, iterate_arrays, list_node_attributes
from tests.et.chakra_bytes import attr, file_of, framed, num, sized, varint

NODE = num(1, 1) + num(3, 4)


def collective(group: str, size: int = 8, source: int = 0) -> bytes:
    body = num(1, 1) + num(3, 7) + attr("comm_size", num(9, size))
    return body + attr("pg_name", sized(29, group)) + attr("comm_src", num(7, source))


def make(folder: Path, **files: bytes | str) -> Path:
    """Files by name; `__` stands for a dot and `_in_` for a slash."""
    for name, content in files.items():
        path = folder / name.replace("_in_", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def put(folder: Path, names: list[str], content: bytes = b"") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content or file_of(NODE))
    return folder


def numbers(trace: Trace) -> list[int]:
    return [rank.number for rank in trace.ranks]


def found(trace: Trace) -> list[str]:
    return [finding.code for finding in trace.findings]


# ---------------------------------------------------------------------------------------------------
# Names


@pytest.mark.parametrize(
    ("name", "prefix", "rank"),
    [
        ("job.0.et", "job", 0),
        ("job.12.et.gz", "job", 12),
        ("llama_8r.3.et", "llama_8r", 3),
        ("a.b.7.et", "a.b", 7),
        ("job_v1.0.et", "job_v1", 0),
        ("job_rank_12.bin", "job", 12),
        ("rank3.et", "", 3),
        ("rank-3_trace.et", "trace", 3),
        ("trace[rank3].et", "trace[", 3),
        ("run/rank3/trace.et", "run/trace", 3),
        ("run/job_rank3/trace.et", "run/job/trace", 3),
        ("rank3/trace.et", "trace", 3),
        ("trace.3", "trace", 3),
        ("trace-3.chakra", "trace", 3),
        ("0.et", "", 0),
        ("run/17", "run/", 17),
        ("single.et", "single", None),
        ("run/frank3.et", "run/frank3", None),
        ("job.1234567890.et", "job", None),
        ("trace.20261122.et", "trace", None),
        ("h100__1016005.json.gz", "h100__1016005", None),
        # What the usual form says counts more than words in names of files and folders.
        ("run_rank8/job.2.et", "run_rank8/job", 2),
        ("job_rank8.2.et", "job_rank8", 2),
        ("rank4_cluster/trace_2.et", "rank4_cluster/trace", 2),
    ],
)
def test_what_a_name_tells(name, prefix, rank):
    assert parse_rank_and_prefix(name) == (prefix, rank)


@pytest.mark.parametrize(
    "names",
    [
        ["job.0.et", "job.1.et", "job.2.et"],
        ["job.0.et", "job.1.et.gz", "job.2.et"],
        ["rank0/trace.et", "rank1/trace.et", "rank2/trace.et"],
        ["job_rank_0.bin", "job_rank_1.bin", "job_rank_2.bin"],
        ["trace.0", "trace.1", "trace.2"],
        ["0.et", "1.et", "2.et"],
        ["trace.0.txt", "trace.1.png", "trace.2.json"],
    ],
)
def test_ranks_by_name_whatever_the_suffix(tmp_path, names):
    """Formats are recognised by content: a .txt that is a trace opens."""
    put(tmp_path, names)
    trace = studio.read(tmp_path)
    assert numbers(trace) == [0, 1, 2]
    assert len(trace.graphs) == 1
    assert trace.findings == ()
    # The files named one by one, as a shell does with a pattern.
    assert studio.read([tmp_path / name for name in names]) == trace


def test_ranks_are_sorted_as_numbers_and_may_be_few(tmp_path):
    put(tmp_path, ["job.10.et", "job.9.et", "job.100.et"])
    assert numbers(studio.read(tmp_path)) == [9, 10, 100]


def test_the_file_itself_tells_its_rank_better_than_its_name(tmp_path):
    inside = framed(sized(1, "1.0") + sized(2, sized(1, "rank") + num(9, 6)))
    make(tmp_path, job__0__et=file_of(NODE, metadata=inside), job__1__et=file_of(NODE))
    assert numbers(studio.read(tmp_path)) == [1, 6]


def test_one_file_without_a_rank_is_taken_for_rank_0(tmp_path):
    put(tmp_path, ["single.et"])
    trace = studio.read(tmp_path / "single.et")
    assert numbers(trace) == [0]
    [finding] = trace.findings
    assert (finding.code, finding.level) == ("rank-assumed", "info")
    assert "single.et" in finding.message


def test_several_files_without_a_rank_are_asked_for(tmp_path):
    put(tmp_path, ["a.et", "b.et", "c.et"])
    with pytest.raises(RanksNeededError, match="3 files is unknown") as caught:
        studio.read(tmp_path)
    names = [f"{tmp_path.name}/{name}.et" for name in "abc"]
    assert list(caught.value.names) == names
    assert "ranks=" in caught.value.hint
    with pytest.raises(RanksNeededError) as caught:
        studio.read(tmp_path, ranks={names[0]: 4})
    assert list(caught.value.names) == names[1:]
    trace = studio.read(tmp_path, ranks={names[0]: 4, names[1]: 0, names[2]: 1})
    assert [(r.number, r.file) for r in trace.ranks] == [(0, names[1]), (1, names[2]), (4, names[0])]


def test_a_rank_told_by_the_user_counts_most(tmp_path):
    put(tmp_path, ["job.0.et", "job.1.et"])
    name = f"{tmp_path.name}/job.0.et"
    trace = studio.read(tmp_path, ranks={name: 7})
    assert (numbers(trace), trace.findings) == ([1, 7], ())


def test_a_rank_told_by_the_user_against_the_file_is_said(tmp_path):
    """A slip of the user would else make a job of wrong ranks that nothing tells."""
    inside = framed(sized(1, "1.0") + sized(2, sized(1, "rank") + num(9, 6)))
    make(tmp_path, job__0__et=file_of(NODE, metadata=inside), job__1__et=file_of(NODE))
    trace = studio.read(tmp_path, ranks={"job.0.et": 7})
    [finding] = trace.findings
    assert (numbers(trace), finding.code, finding.level, finding.rank) == (
        [1, 7],
        "rank-overridden",
        "warning",
        7,
    )
    assert "job.0.et: says that it is rank 6; taken as rank 7" in finding.message
    assert studio.read(tmp_path, ranks={"job.0.et": 6}).findings == ()


def test_of_two_files_that_claim_one_rank_the_later_is_left_out(tmp_path):
    put(tmp_path, ["job.2.et", "job.3.et", "job.3.et.gz"])
    trace = studio.read(tmp_path)
    assert numbers(trace) == [2, 3]
    [finding] = trace.findings
    assert (finding.level, finding.code, finding.file) == (
        "info",
        "ignored-file",
        f"{tmp_path.name}/job.3.et.gz",
    )
    assert f"holds the same nodes as {tmp_path.name}/job.3.et, which is used, left out" in finding.message
    # Of other content it is a loss, which names both.
    (tmp_path / "job.3.et.gz").write_bytes(file_of(NODE, NODE))
    trace = studio.read(tmp_path)
    assert numbers(trace) == [2, 3]
    assert len(trace.graphs) == 1
    [finding] = [finding for finding in trace.findings if finding.code == "repeated-rank"]
    assert (finding.level, finding.rank) == ("error", 3)
    assert f"like {tmp_path.name}/job.3.et, which is used, and holds something else" in finding.message
    assert "--rank" in finding.hint


def test_a_file_left_out_is_listed_with_the_job_it_lies_beside(tmp_path):
    put(tmp_path, ["one/a.0.et", "one/a.1.et", "two/b.0.et"])
    (tmp_path / "one" / "notes.txt").write_text("notes")
    (tmp_path / "two" / "c.txt").write_text("more")
    (tmp_path / "read.me").write_text("above both")
    with open_sources([tmp_path]) as files:
        jobs = {job.name: [PurePosixPath(file.name).name for file in job.left_out] for job in discover(files)}
    assert jobs == {"a": ["notes.txt", "read.me"], "b": ["c.txt"]}


def test_two_files_that_the_user_gives_one_rank_are_refused(tmp_path):
    put(tmp_path, ["job.3.et", "job.3.et.gz"])
    both = {f"{tmp_path.name}/{name}": 3 for name in ("job.3.et", "job.3.et.gz")}
    with pytest.raises(TraceError, match=r"Rank 3 .*/job\.3\.et and .*/job\.3\.et\.gz") as caught:
        studio.read(tmp_path, ranks=both)
    assert "ranks=" in caught.value.hint
    trace = studio.read(tmp_path, ranks={f"{tmp_path.name}/job.3.et.gz": 4})
    assert numbers(trace) == [3, 4]


def test_the_same_path_given_twice_is_one_file(tmp_path, monkeypatch):
    put(tmp_path, ["job.0.et"])
    monkeypatch.chdir(tmp_path)
    assert studio.read(["job.0.et", "./job.0.et", tmp_path / "job.0.et"]).node_count == 1


def test_a_folder_by_its_dots(tmp_path, monkeypatch):
    put(tmp_path, ["sub/x", "job.0.et"], file_of(NODE))
    (tmp_path / "sub" / "x").unlink()
    monkeypatch.chdir(tmp_path / "sub")
    assert studio.read("..").ranks[0].file == f"{tmp_path.name}/job.0.et"


# ---------------------------------------------------------------------------------------------------
# Jobs


def test_two_jobs_in_a_folder(tmp_path):
    put(tmp_path, ["a.0.et", "a.1.et", "b.0.et", "b.1.et", "b.2.et"])
    make(tmp_path, a__json='{"g": [0, 1]}', b__json='{"h": [0, 1, 2]}')
    with open_sources([tmp_path]) as files:
        jobs = {job.name: read_job(job) for job in discover(files)}
    assert {name: (numbers(t), [g.name for g in t.groups]) for name, t in jobs.items()} == {
        "a": ([0, 1], ["g"]),
        "b": ([0, 1, 2], ["h"]),
    }
    with pytest.raises(TraceError, match=r"2 jobs found, not one: a, b\."):
        studio.read(tmp_path)


@pytest.mark.parametrize(
    ("names", "loose", "in_a_folder"),
    [
        (["job.0.et", "job.1.et"], "job", "job"),
        (["0.et"], "0", "run 7"),
        (["0.et", "1.et", "2.et"], "0.et and 2 more", "run 7"),
        (["rank0.et", "rank1.et"], "rank0.et and 1 more", "run 7"),
        (["mnist_a.et", "mnist_b.et"], "mnist", "mnist"),
        (["mnist.et", "mnemonic.et"], "mnist + mnemonic", "run 7"),
        (["single.et"], "single", "single"),
    ],
)
def test_a_job_is_named_after_what_its_files_have_in_common(tmp_path, names, loose, in_a_folder):
    """Else after the folder they were named in, which files that were uploaded do not have."""
    folder = put(tmp_path / "run 7", names)
    with open_sources([folder / name for name in names]) as files:
        assert [job.name for job in discover(files)] == [in_a_folder]
        uploaded = [
            replace(file, place=put(tmp_path, [f"up/{at}"]) / f"up/{at}") for at, file in enumerate(files)
        ]
    assert [job.name for job in discover(uploaded)] == [loose]


def test_both_sides_of_loose_pytorch_traces_name_their_job(tmp_path):
    names = ["kineto_0.json", "pytorch_et_0.json", "kineto_1.json", "pytorch_et_1.json"]
    files = [SourceFile(name, tmp_path / "up" / str(at)) for at, name in enumerate(names)]
    assert name_of(files) == "kineto + pytorch_et"
    assert name_of([replace(file, place=tmp_path / file.name, named=True) for file in files]) == tmp_path.name
    long = [SourceFile(f"{'a' * 80}.{'b' * 80}_{at}.json", tmp_path) for at in (0, 1)]
    assert re.fullmatch("a{29}…b{30}", name_of(long))


def test_jobs_of_one_name_in_two_folders_are_two(tmp_path):
    put(tmp_path, ["x/job.0.et", "y/job.0.et"])
    with open_sources([tmp_path]) as files:
        assert [job.name for job in discover(files)] == ["job", "job"]


def test_groups_of_the_file_beside(tmp_path):
    table = {"tp0": [1, 0], "all": [0, 1], "none": []}
    make(
        tmp_path,
        job__0__et=file_of(collective("tp0")),
        job__1__et=file_of(collective("dp")),
        job__json=json.dumps(table),
    )
    trace = studio.read(tmp_path)
    assert [(g.name, g.ranks, g.inferred) for g in trace.groups] == [
        ("tp0", (1, 0), False),
        ("all", (0, 1), False),
        ("none", (), False),
        ("dp", (1,), True),
    ]
    assert found(trace) == ["group-inferred"]


def test_groups_under_another_name_when_there_is_one_file_only(tmp_path):
    make(tmp_path, job__0__et=file_of(NODE), groups__txt='{"g": [0]}')
    assert [g.name for g in studio.read(tmp_path).groups] == ["g"]
    make(tmp_path, other__json='{"h": [0]}')
    assert studio.read(tmp_path).groups == (), "of two it is not known which is meant"


def test_a_rank_named_twice_in_a_group(tmp_path):
    make(tmp_path, job__0__et=file_of(NODE), job__json='{"g": [0, 0, 1]}')
    trace = studio.read(tmp_path)
    assert trace.groups[0].ranks == (0, 1)
    assert found(trace) == ["group-repeats"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"g": [-1, 2]}', "rank -1; ranks are whole numbers from 0"),
        ('{"g": [0, 99999999999]}', "rank 99999999999"),
        ('{"g": [0, 1.5]}', "not a comm group file"),
        ('{"g": [0, "1"]}', "not a comm group file"),
        ('{"g": ["0", "1"]}', "not a comm group file"),
        ('{"g": [0], "h": 3}', "not a comm group file"),
        ('{"g": [0, 1', "not a comm group file"),
        (b'{"g": [0], "\xff": [1]}', "not a comm group file"),
        (b'{"g": [0], "' + b"\\ud800" + b'": [1]}', "not a comm group file"),
    ],
)
def test_wrong_group_files(tmp_path, content, words):
    make(tmp_path, job__0__et=file_of(NODE), job__json=content)
    trace = studio.read(tmp_path)
    [finding] = trace.findings
    assert (finding.code, finding.level, finding.file) == (
        "unreadable-file",
        "error",
        f"{tmp_path.name}/job.json",
    )
    assert words in finding.message
    assert trace.groups == ()


def test_json_that_lists_no_ranks_is_no_group_file(tmp_path):
    make(tmp_path, job__0__et=file_of(NODE), job__json="[[0, 1]]")
    trace = studio.read(tmp_path)
    assert found(trace) == ["ignored-file"]
    [finding] = studio.read([tmp_path / "job.0.et", tmp_path / "job.json"]).findings
    assert finding.message == "job.json: a JSON file, no execution trace, left out."


def test_groups_alone_are_no_trace(tmp_path):
    make(tmp_path, job__json='{"g": [0]}')
    with pytest.raises(TraceFormatError, match="only comm groups"):
        studio.read(tmp_path)


def test_unknown_files_in_a_folder_are_named_and_left_out(tmp_path):
    put(tmp_path, ["job.0.et"])
    put(tmp_path, ["notes.md", "a/photo.png", "log.txt", "x1", "x2"], b"some text")
    put(tmp_path, [".hidden", ".git/config"], b"\xff")
    trace = studio.read(tmp_path)
    assert {(finding.code, finding.level) for finding in trace.findings} == {("ignored-file", "info")}
    names = ["a/photo.png", "log.txt", "notes.md", "x1", "x2"]
    assert [finding.file for finding in trace.findings] == [f"{tmp_path.name}/{name}" for name in names]
    put(tmp_path, [f"more/{index}.txt" for index in range(200)], b"some text")
    assert studio.read(tmp_path).findings[-1].message == "105 more files were left out."


def test_one_bad_file_does_not_lose_the_others(tmp_path):
    put(tmp_path, [f"job.{rank}.et" for rank in range(31)])
    put(tmp_path, ["notes.txt"], b"some text")
    put(tmp_path, ["job.31.et", "broken.zip", "wrong.json"], b"PK\x03\x04")
    (tmp_path / "job.31.et").write_bytes(b"")
    (tmp_path / "wrong.json").write_text('{"traceEvents": 7, "schemaVersion": 1}')
    for given in (tmp_path, sorted(tmp_path.iterdir())):
        with open_sources([given] if given == tmp_path else given) as files:
            job = next(job for job in discover(files) if len(job.ranks) == 31)
            trace = read_job(job)
        assert numbers(trace) == list(range(31))
        left = {(finding.file or "").rpartition("/")[2]: finding for finding in trace.findings}
        assert left.keys() == {"notes.txt", "job.31.et", "broken.zip"}
        assert left["job.31.et"].level == "warning"
        assert left["job.31.et"].message.endswith("job.31.et: an empty file, no execution trace, left out.")
    put(tmp_path / "few", ["job.0.et"])
    (tmp_path / "few" / "job.1.et").write_bytes(file_of(NODE)[:0] + b"")
    assert numbers(studio.read([tmp_path / "few" / "job.0.et", tmp_path / "few" / "job.1.et"])) == [0]


def test_folders_without_a_trace(tmp_path):
    with pytest.raises(TraceFormatError, match=f"{tmp_path}: the folder is empty"):
        studio.read(tmp_path)
    put(tmp_path, ["one.txt"], b"text")
    with pytest.raises(
        TraceFormatError, match=r"one\.txt: not an execution trace; it looks like a text file"
    ):
        studio.read(tmp_path)
    put(tmp_path, ["two.txt"], b"text")
    with pytest.raises(
        TraceFormatError, match=r"2 files, none of a known format, the first being .*one\.txt"
    ):
        studio.read(tmp_path)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(TraceError, match="no such file or folder"):
        studio.read(tmp_path / "nothing.0.et")


def test_a_zip_of_traces(tmp_path):
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr("run/job.0.et", file_of(collective("g")))
        archive.writestr("run/job.1.et.gz", gzip.compress(file_of(collective("h"))))
        archive.writestr("run/job.json", '{"g": [0, 1], "h": [1, 0]}')
        archive.writestr("README", "words")
    trace = studio.read(tmp_path / "job.zip")
    assert numbers(trace) == [0, 1]
    assert [g.name for g in trace.groups] == ["g", "h"]
    assert trace.ranks[0].file == "job.zip/run/job.0.et"
    assert found(trace) == ["ignored-file"]


def test_one_broken_rank_does_not_hide_the_others(tmp_path):
    make(
        tmp_path,
        job__0__et=file_of(NODE),
        job__1__et=file_of(NODE) + framed(b"\x0b"),
        job__2__et=file_of(NODE),
    )
    trace = studio.read(tmp_path)
    assert numbers(trace) == [0, 1, 2]
    [finding] = trace.findings
    assert (finding.code, finding.rank, finding.offset) == ("damaged-file", 1, len(file_of(NODE)))


def test_progress_rises_to_the_end_and_can_stop_the_reading(tmp_path):
    put(tmp_path, [f"job.{i}.et" for i in range(9)])
    calls: list[tuple[str, int, int]] = []
    studio.read(tmp_path, progress=lambda *call: calls.append(call))
    total = 9 * len(file_of(NODE))
    assert {(phase, whole) for phase, _, whole in calls} == {("reading", total)}
    assert calls[-1][1] == total

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studio.read(tmp_path, progress=stop)


# ---------------------------------------------------------------------------------------------------
# Sharing


def test_ranks_that_differ_in_groups_and_peers_alone_share_a_graph(tmp_path):
    for rank in range(6):
        body = collective(f"tp{rank // 2}", source=rank) + attr("comm_dst", num(7, rank + 1))
        make(
            tmp_path,
            **{
                f"job__{rank}__et": file_of(
                    body, collective("all", source=99) + attr("comm_group", num(7, rank))
                )
            },
        )
    trace = studio.read(tmp_path)
    assert len(trace.graphs) == 1
    for rank in trace.ranks:
        assert rank.slots == (f"tp{rank.number // 2}", rank.number, rank.number + 1, "all", 99, rank.number)
        got = {a.name: a.value for a in list_node_attributes(trace.graph_of(rank), 0, rank.slots)}
        assert got == {
            "comm_size": 8,
            "pg_name": f"tp{rank.number // 2}",
            "comm_src": rank.number,
            "comm_dst": rank.number + 1,
        }


@pytest.mark.parametrize(
    "other",
    [
        file_of(collective("a", size=9), collective("a")),
        file_of(collective("a"), collective("b")),  # the first has one group for both nodes, this one two
        file_of(collective("a"), collective("a"), NODE),
        file_of(collective("a") + num(5, 1), collective("a")),
        file_of(collective("a"), collective("a") + num(6, 0)),
        file_of(collective("a"), num(1, 1) + num(3, 7) + attr("pg_name", sized(29, "a"))),
    ],
    ids=["size", "slot pattern", "node", "dependency", "start", "attributes"],
)
def test_ranks_that_differ_elsewhere_do_not(tmp_path, other):
    make(tmp_path, job__0__et=file_of(collective("a"), collective("a")), job__1__et=other)
    trace = studio.read(tmp_path)
    assert len(trace.graphs) == 2
    assert [rank.graph for rank in trace.ranks] == [0, 1]


def test_equal_names_of_different_kind_are_different_slots(tmp_path):
    body = attr("comm_src", num(7, 5)) + attr("comm_dst", num(7, 5)) + attr("comm_src", num(9, 5))
    make(tmp_path, job__0__et=file_of(body, body))
    trace = studio.read(tmp_path)
    assert trace.ranks[0].slots == (5, 5, 5)
    assert [a.kind.name for a in list_node_attributes(trace.graphs[0], 1, trace.ranks[0].slots)] == [
        "INT32",
        "INT32",
        "INT64",
    ]


def test_1024_equal_ranks_cost_one_graph(tmp_path):
    nodes = [
        collective("a") + sized(2, f"layer {i}") + num(1, i) + sized(5, varint(i - 1)) for i in range(1, 40)
    ]
    put(tmp_path, ["one/job.0.et"], file_of(*nodes))
    for rank in range(1024):
        content = file_of(*(node.replace(b"\x01a", b"\x01" + bytes([65 + rank % 26])) for node in nodes))
        put(tmp_path, [f"all/job.{rank}.et"], content)
    trace, alone = studio.read(tmp_path / "all"), studio.read(tmp_path / "one")
    assert (len(trace.ranks), len(trace.graphs)) == (1024, 1)
    assert trace.node_count == 1024 * 39

    def size_bytes(trace: Trace) -> int:
        return sum(array.nbytes for graph in trace.graphs for _, array in iterate_arrays(graph))

    assert size_bytes(trace) == size_bytes(alone)
    assert {rank.slots[0] for rank in trace.ranks} == {chr(65 + i) for i in range(26)}


def test_shared_graphs_are_written_with_each_ranks_own_values(tmp_path):
    raw = {rank: file_of(collective(f"g{rank}", source=rank)) for rank in range(3)}
    make(tmp_path, **{f"job__{rank}__et": content for rank, content in raw.items()})
    trace = studio.read(tmp_path)
    paths = studio.write(replace(trace, groups=()), tmp_path / "out", "job")
    assert [path.read_bytes() for path in paths] == list(raw.values())


def test_files_of_a_folder_come_in_the_order_of_their_paths_and_hidden_ones_not_at_all(tmp_path):
    names = ["a.b/1.et", "a/2.et", "a/b/3.et", "a/b.c/4.et", "ab/5.et", "0.et", "A/6.et"]
    put(tmp_path, [*names, ".x/7.et", "a/.8.et", "a/.y/b/9.et"], file_of(NODE))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.et").symlink_to(tmp_path / "nowhere")
    (tmp_path / "other.et").symlink_to(tmp_path / "0.et")
    with open_sources([tmp_path]) as files:
        listed = [(file.name, file.path) for file in files if not file.problem]
        assert [file.path.name for file in files if file.problem] == ["gone.et"]
    paths = sorted(tmp_path / name for name in [*names, "other.et"])
    assert listed == [(f"{tmp_path.name}/{path.relative_to(tmp_path).as_posix()}", path) for path in paths]


def test_of_ranks_that_take_turns_in_two_graphs_two_are_digested(tmp_path, monkeypatch):
    digested = []
    monkeypatch.setattr(
        "studio.et.job_builder.compute_digest", lambda graph: digested.append(graph) or compute_digest(graph)
    )
    for rank in range(8):
        record = collective(f"g{rank}", size=8 + rank % 2)
        (tmp_path / f"job.{rank}.et").write_bytes(file_of(record))
    trace = studio.read(tmp_path)
    assert [rank.graph for rank in trace.ranks] == [0, 1] * 4
    assert [rank.slots[0] for rank in trace.ranks] == [f"g{rank}" for rank in range(8)]
    assert len(digested) == 2
