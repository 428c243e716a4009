"""The workspace keeps what it is given, through kills, rivals, odd names and damaged files."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from studio.errors import StudioError, TraceError
from studio.et import discover, read_job
from studio.et.source import open_sources
from studio.samples import sample_path
from studio.store.job_infos import LAYOUT
from studio.store.workspace import Workspace
from studio.trace import Attribute, Finding, Trace, ValueKind, iterate_arrays
from tests.conftest import ROOT
from tests.examples import examples
from tests.kill_points import kill_everywhere
from tests.small_jobs import some
from tests.strategies import traces
from tests.waiting import PATIENCE_S

DAY_S = 86_400

CHILD = """
    import sys
    from studio.store.workspace import Workspace
    from tests.small_jobs import some
    workspace = Workspace(sys.argv[1])
    def say(*words):
        print(*words, flush=True)
"""


@pytest.fixture(scope="module")
def sample() -> Trace:
    with open_sources([sample_path("transformer_8r")]) as files:
        return read_job(discover(files)[0])


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path / "workspace")


def child(program: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """A process that works on a workspace and says what it has done."""
    code = textwrap.dedent(CHILD) + textwrap.dedent(program)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **options,
    )


def files_below(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


# ---------------------------------------------------------------------------------------------------
# What is kept


def assert_kept(trace: Trace, workspace: Workspace) -> None:
    """Everything of the trace comes back, bit for bit."""
    back = workspace.load(workspace.save(trace, "job"))
    assert back == trace
    assert (back.groups, back.findings) == (trace.groups, trace.findings)
    assert repr(back.ranks) == repr(trace.ranks)
    for one, other in zip(trace.graphs, back.graphs, strict=True):
        for (name, a), (_, b) in zip(iterate_arrays(one), iterate_arrays(other), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), name
            assert a.tobytes() == b.tobytes(), name


def test_a_sample_comes_back_as_it_was(workspace, sample):
    assert_kept(sample, workspace)


@settings(
    deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(trace=traces())
def test_any_trace_comes_back_as_it_was(tmp_path, trace):
    assert_kept(trace, Workspace(tmp_path / "workspace"))


def test_metadata_of_every_kind_comes_back_bit_for_bit(workspace):
    odd_nan = struct.unpack(">d", b"\xff\xf8\0\0\0\0\x12\x34")[0]
    values = {
        ValueKind.NONE: None,
        ValueKind.DOUBLE: odd_nan,
        ValueKind.DOUBLE_LIST: [math.inf, -math.inf, -0.0, 5e-324, odd_nan],
        ValueKind.FLOAT: 0.1,
        ValueKind.FLOAT_LIST: [],
        ValueKind.UINT64: 2**64 - 1,
        ValueKind.UINT64_LIST: [0, 2**63],
        ValueKind.INT64: -(2**63),
        ValueKind.BOOL: True,
        ValueKind.BOOL_LIST: [True, False],
        ValueKind.STRING: "ä\0\u202e",
        ValueKind.STRING_LIST: ["", "x"],
        ValueKind.BYTES: b"\xff\0",
        ValueKind.BYTES_LIST: [b"", b"\x80"],
    }
    metadata = tuple(Attribute(f"a{kind}", kind, value, "doc") for kind, value in values.items())
    trace = some()
    rank = replace(trace.ranks[0], metadata=metadata, extra=bytes(range(256)), slots=("tp", -1, 2**64 - 1))
    back = workspace.load(workspace.save(replace(trace, ranks=(rank,)), "job")).ranks[0]
    assert repr(back) == repr(rank)
    assert struct.pack(">d", back.metadata[1].value) == struct.pack(">d", odd_nan)
    assert type(back.metadata[8].value) is bool


def test_findings_and_names_of_files_that_are_no_utf8_are_kept_legibly(workspace):
    finding = Finding("error", "truncated", "job\udcff.0.et: cut", "copy it", 3, "job\udcff.0.et", 77)
    trace = some()
    trace = replace(trace, findings=(finding,), ranks=(replace(trace.ranks[0], file="job\udcff.0.et"),))
    job_id = workspace.save(trace, "job\udcff", source="/tmp/job\udcff.0.et")
    back = workspace.load(job_id)
    assert back.ranks[0].file == "job\\udcff.0.et"
    assert back.findings == (replace(finding, message="job\\udcff.0.et: cut", file="job\\udcff.0.et"),)
    info = workspace.info(job_id)
    assert (info.name, info.source, info.errors, info.warnings) == ("job", "/tmp/job\\udcff.0.et", 1, 0)


def test_a_job_without_nodes_and_one_without_ranks(workspace):
    assert_kept(some(nodes=0), workspace)
    nothing = workspace.save(Trace((), ()), "nothing")
    assert workspace.load(nothing) == Trace((), ())
    assert workspace.info(nothing).summary.nodes == 0


def test_a_thousand_equal_ranks_cost_little_more_than_one(workspace):
    trace = some(nodes=20_000)
    one = workspace.info(workspace.save(replace(trace, ranks=trace.ranks[:1]), "one"))
    ranks = tuple(replace(trace.ranks[0], number=n, file=f"job.{n}.et") for n in range(1024))
    many = workspace.save(replace(trace, ranks=ranks), "many")
    info = workspace.info(many)
    assert info.summary.ranks == 1024
    assert info.summary.nodes == 1024 * 20_000
    # Each rank brings its number, its slots and the name of its file.
    assert info.stored_bytes < one.stored_bytes + 1024 * (20 * 20_000 + 200)
    shared = workspace.load(many)
    assert len(shared.graphs) == 1
    assert shared.ranks[1023].number == 1023
    assert files_below(workspace.root / "jobs" / many) == ["graphs.arrow", "job.json", "trace.json"]


def test_the_stored_size_is_the_size_of_the_files(workspace, sample):
    job_id = workspace.save(sample, "job")
    stored = [path.stat().st_size for path in (workspace.root / "jobs" / job_id).iterdir()]
    info_bytes = (workspace.root / "jobs" / job_id / "job.json").stat().st_size
    assert workspace.info(job_id).stored_bytes == sum(stored) - info_bytes


def test_columns_are_read_from_disk_as_they_are_used(workspace):
    trace = workspace.load(workspace.save(some(), "job"))
    for name, array in iterate_arrays(trace.graphs[0]):
        assert not array.flags.owndata or not len(array), name
        assert not array.flags.writeable or not len(array), name


# ---------------------------------------------------------------------------------------------------
# Names, lists, changes


@pytest.mark.parametrize(
    ("name", "kept", "slug"),
    [
        ("Llama 70B / run 3", "Llama 70B / run 3", "llama-70b-run-3"),
        ("  two\n\tlines  ", "two lines", "two-lines"),
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>", "img-src-x-onerror-alert-1"),
        ("../../etc/passwd", "../../etc/passwd", "etc-passwd"),
        ("日本語", "日本語", "job"),
        ("a\x1b[31m\u202eb\0", "a[31mb", "a-31mb"),
        ("x" * 5000, "x" * 200, "x" * 40),
        ("-", "-", "job"),
    ],
)
def test_any_name_can_be_given(workspace, name, kept, slug):
    job_id = workspace.save(some(), name)
    assert workspace.info(job_id).name == kept
    assert job_id.rpartition("-")[0] == slug
    other = workspace.save(some(), "other")
    assert workspace.rename(other, name).name == kept
    assert [job.name for job in workspace.jobs()] == [kept, kept]


@pytest.mark.parametrize("name", ["", "   ", "\0\x1b", "\u200b"])
def test_a_name_needs_something_to_see(workspace, name):
    job_id = workspace.save(some(), "job")
    for change in (lambda: workspace.rename(job_id, name), lambda: workspace.save(some(), name)):
        with pytest.raises(StudioError, match="needs a name") as caught:
            change()
        assert caught.value.hint
    assert [job.name for job in workspace.jobs()] == ["job"]


def test_the_newest_job_is_first_and_renaming_changes_nothing_else(workspace):
    first = workspace.save(some(), "first", source="upload", fingerprint="f")
    second = workspace.save(some(), "second")
    before = workspace.info(first)
    assert workspace.rename(first, "renamed") == replace(before, name="renamed") == workspace.info(first)
    assert [job.id for job in workspace.jobs()] == [second, first]
    assert workspace.load(first) == some()
    assert not list((workspace.root / "tmp").iterdir())


def test_find_knows_the_newest_job_of_the_same_files(workspace):
    workspace.save(some(), "old", fingerprint="same")
    newest = workspace.save(some(), "new", fingerprint="same")
    workspace.save(some(), "unmarked")
    assert workspace.find("same").id == newest
    assert workspace.find("") is None
    assert workspace.find("other") is None


def test_deleting_can_be_undone_for_a_day(workspace):
    job_id = workspace.save(some(), "job")
    info = workspace.info(job_id)
    workspace.delete(job_id)
    assert workspace.jobs() == []
    for refused in (workspace.info, workspace.load, workspace.delete):
        with pytest.raises(StudioError, match="There is no job"):
            refused(job_id)
    Workspace(workspace.root).restore(job_id)
    assert workspace.jobs() == [info]
    with pytest.raises(StudioError, match="There is no job"):
        workspace.restore(job_id)
    workspace.delete(job_id)
    old_s = time.time() - DAY_S - 60
    os.utime(workspace.root / "trash" / job_id, (old_s, old_s))
    Workspace(workspace.root)
    assert files_below(workspace.root) == []
    with pytest.raises(StudioError, match="There is no job"):
        workspace.restore(job_id)


def test_a_job_imported_long_ago_and_deleted_just_now_can_be_restored(workspace):
    job_id = workspace.save(some(), "job")
    os.utime(workspace.root / "jobs" / job_id, (1e9, 1e9))
    workspace.delete(job_id)
    Workspace(workspace.root).restore(job_id)
    assert workspace.load(job_id) == some()


def test_what_killed_studios_left_behind_is_removed_after_a_day(workspace):
    tmp = workspace.root / "tmp"
    for name, age_s in (("old", DAY_S + 60), ("young", 60)):
        (tmp / name).mkdir()
        (tmp / name / "graphs.arrow").write_bytes(b"half")
        (tmp / f"{name}.file").write_bytes(b"{")
        for path in (tmp / name, tmp / f"{name}.file"):
            os.utime(path, (time.time() - age_s,) * 2)
    outside = workspace.root.parent / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (tmp / "link").symlink_to(outside)
    os.utime(tmp / "link", (1e9, 1e9), follow_symlinks=False)
    Workspace(workspace.root)
    assert sorted(path.name for path in tmp.iterdir()) == ["young", "young.file"]
    assert (outside / "precious").exists()


def test_a_job_that_is_open_survives_its_deletion_by_another_studio(workspace, sample):
    job_id = workspace.save(sample, "job")
    trace = workspace.load(job_id)
    Workspace(workspace.root).delete(job_id)
    shutil.rmtree(workspace.root / "trash" / job_id)
    assert trace == sample


def test_the_nearest_job_is_named(workspace):
    job_id = workspace.save(some(), "llama")
    with pytest.raises(StudioError, match="There is no job 'llama-'") as caught:
        workspace.load("llama-")
    assert caught.value.hint == f"The nearest is {job_id}."
    with pytest.raises(StudioError, match="Home"):
        workspace.load("zzz")


@pytest.mark.parametrize(
    "job_id",
    [
        *("", ".", "..", "../secret", "jobs/../../secret", "/etc", "a/b", "a\\b", "..\\secret"),
        *("job\0", "job\n", "JOB", "jób", "x" * 100, "-job", ".hidden", "%2e%2e", "x" * 1_000_000),
    ],
)
def test_ids_never_leave_the_workspace(workspace, job_id):
    secret = workspace.root.parent / "secret"
    secret.mkdir()
    shutil.copytree(workspace.root / "jobs" / workspace.save(some(), "job"), secret, dirs_exist_ok=True)
    before = files_below(workspace.root.parent)
    for act in (workspace.info, workspace.load, workspace.delete, workspace.restore):
        with pytest.raises(StudioError, match="There is no job"):
            act(job_id)
    with pytest.raises(StudioError, match="There is no job"):
        workspace.rename(job_id, "x")
    assert files_below(workspace.root.parent) == before


def test_a_link_out_of_the_workspace_is_no_job(workspace):
    job_id = workspace.save(some(), "job")
    outside = workspace.root.parent / "outside"
    (workspace.root / "jobs" / job_id).rename(outside)
    (workspace.root / "jobs" / job_id).symlink_to(outside)
    assert workspace.jobs() == []
    for act in (workspace.info, workspace.load, workspace.delete):
        with pytest.raises(StudioError, match="There is no job"):
            act(job_id)
    assert len(files_below(outside)) == 3


# ---------------------------------------------------------------------------------------------------
# Damage


def overwrite(path: Path, at: int, content: bytes) -> None:
    raw = bytearray(path.read_bytes())
    at %= len(raw)
    raw[at : at + len(content)] = content
    path.write_bytes(bytes(raw))


DAMAGES = {
    "graphs missing": lambda folder: (folder / "graphs.arrow").unlink(),
    "graphs empty": lambda folder: (folder / "graphs.arrow").write_bytes(b""),
    "graphs no arrow": lambda folder: (folder / "graphs.arrow").write_bytes(b"x" * 5000),
    "graphs cut": lambda folder: os.truncate(folder / "graphs.arrow", 1000),
    "graphs torn": lambda folder: overwrite(folder / "graphs.arrow", -400, b"\xff" * 380),
    "graphs of others": lambda folder: shutil.copy(other_arrow(folder), folder / "graphs.arrow"),
    "trace missing": lambda folder: (folder / "trace.json").unlink(),
    "trace cut": lambda folder: os.truncate(folder / "trace.json", 40),
    "trace no json": lambda folder: (folder / "trace.json").write_bytes(b"\xff\xfe{"),
    "trace other json": lambda folder: (folder / "trace.json").write_text("[1, 2]"),
    "rank without graph": lambda folder: rewrite(
        folder / "trace.json", lambda t: t["ranks"][0].__setitem__(1, 7)
    ),
    "odd metadata": lambda folder: rewrite(
        folder / "trace.json", lambda t: t["ranks"][0].__setitem__(4, [["a", 99, 1, ""], ["b", 3, "xyz", ""]])
    ),
    "info cut": lambda folder: os.truncate(folder / "job.json", 40),
    "info no json": lambda folder: (folder / "job.json").write_bytes(b"\xff\xfe{"),
    "info other json": lambda folder: (folder / "job.json").write_text('{"name": "x", "layout": 1}'),
}


def rewrite(path: Path, change: object) -> None:
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def other_arrow(folder: Path) -> Path:
    import pyarrow as pa

    path = folder.parent.parent / "other.arrow"
    batch = pa.record_batch([pa.array([1, 2])], names=["id"])
    with pa.ipc.new_file(str(path), batch.schema) as writer:
        writer.write_batch(batch)
    return path


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_reported_and_can_be_deleted(workspace, damage):
    good, bad = workspace.save(some(), "good"), workspace.save(some(), "bad")
    DAMAGES[damage](workspace.root / "jobs" / bad)
    with pytest.raises(TraceError, match=f"Job {bad}: its files in the workspace are damaged") as caught:
        workspace.load(bad)
    assert caught.value.hint == "Delete it and import it again."
    assert good in [job.id for job in workspace.jobs()]
    workspace.delete(bad)
    assert [job.id for job in workspace.jobs()] == [good]


def test_every_cut_of_the_arrays_is_noticed(workspace):
    job_id = workspace.save(some(), "job")
    path = workspace.root / "jobs" / job_id / "graphs.arrow"
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(TraceError, match="damaged"):
            workspace.load(job_id)
    path.write_bytes(whole)
    assert workspace.load(job_id) == some()


def flip(path: Path, place: int) -> None:
    """Turn one bit of a file around; the second time, it is as it was."""
    raw = bytearray(path.read_bytes())
    raw[place // 8] ^= 1 << place % 8
    path.write_bytes(raw)


def test_every_flipped_bit_is_noticed(workspace):
    job_id = workspace.save(some(), "job")
    folder = workspace.root / "jobs" / job_id
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["graphs.arrow", "job.json", "trace.json"]
    for name in names:
        bits = 8 * (folder / name).stat().st_size
        # Also the last bytes, where the checksums of the JSON files are.
        for place in [*range(0, bits, bits // 120), *range(bits - 8 * 24, bits, 3)]:
            flip(folder / name, place)
            with pytest.raises(TraceError, match=f"damaged \\({name}: ") as caught:
                workspace.load(job_id)
            assert caught.value.hint == "Delete it and import it again."
            flip(folder / name, place)
    assert workspace.load(job_id) == some()


def test_jobs_without_checksums_open(workspace):
    """So studios stored them before 2026-11."""
    job_id = workspace.save(some(), "job")
    for name in ("job.json", "trace.json"):

        def unseal(table: dict[str, object]) -> None:
            for key in ("sealed", "crc32", "graphs"):
                table.pop(key, None)

        rewrite(workspace.root / "jobs" / job_id / name, unseal)
    assert workspace.load(job_id) == some()
    assert workspace.rename(job_id, "other").name == "other"
    assert workspace.load(job_id) == some()


@pytest.mark.integration
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_file_that_is_cut_or_overwritten_after_it_was_opened_changes_nothing(tmp_path, in_memory):
    """Where the file itself is mapped, the child ends with SIGBUS."""
    program = """
        import os
        from studio.store import arrays
        if sys.argv[2] == "False":
            arrays._IN_MEMORY_BYTES = 0
        path = workspace.root / "jobs" / workspace.save(some(nodes=5000), "job") / "graphs.arrow"
        trace = workspace.load(path.parent.name)
        path.write_bytes(bytes(path.stat().st_size))
        assert trace == some(nodes=5000)
        os.truncate(path, 0)
        assert trace == some(nodes=5000)
        assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith("tmp")] == []
        say("whole")
    """
    process = child(program, tmp_path, in_memory)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "whole\n"), err


@pytest.mark.parametrize("shape", ["same", "other"])
def test_a_newer_layout_is_refused_by_name(workspace, shape):
    job_id = workspace.save(some(), "from the future")
    path = workspace.root / "jobs" / job_id / "job.json"
    table = json.loads(path.read_text()) if shape == "same" else {"name": "from the future", "kind": "run"}
    path.write_text(json.dumps({**table, "layout": LAYOUT + 1}))
    with pytest.raises(StudioError, match="'from the future' was imported by a newer") as caught:
        workspace.load(job_id)
    assert "Update" in caught.value.hint


def test_what_is_no_job_does_not_disturb_the_list(workspace):
    job_id = workspace.save(some(), "job")
    (workspace.root / "jobs" / "empty").mkdir()
    (workspace.root / "jobs" / "file").write_text("x")
    (workspace.root / "jobs" / ".DS_Store").write_text("x")
    assert [job.id for job in workspace.jobs()] == [job_id]


def test_a_copied_folder_is_a_job_of_its_own(workspace):
    job_id = workspace.save(some(), "job")
    shutil.copytree(workspace.root / "jobs" / job_id, workspace.root / "jobs" / "copy")
    assert sorted(job.id for job in workspace.jobs()) == sorted([job_id, "copy"])
    workspace.rename("copy", "the copy")
    assert workspace.info("copy").name == "the copy"
    assert workspace.info(job_id).name == "job"


# ---------------------------------------------------------------------------------------------------
# Folders that cannot be used


def test_a_workspace_inside_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StudioError, match="the workspace cannot be used") as caught:
            Workspace(root)
        assert "--workspace" in caught.value.hint


def test_a_workspace_that_cannot_be_written_says_so(workspace, monkeypatch):
    job_id = workspace.save(some(), "job")

    def refuse(self: Path, *arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    for name in ("mkdir", "rename", "open"):
        monkeypatch.setattr(Path, name, refuse)
    for module in ("arrays", "durable_files"):
        monkeypatch.setattr(f"studio.store.{module}.open_private", refuse)
    for act in (
        lambda: workspace.save(some(), "x"),
        lambda: workspace.rename(job_id, "x"),
        lambda: workspace.delete(job_id),
        lambda: Workspace(workspace.root),
    ):
        with pytest.raises(StudioError, match="Permission denied") as caught:
            act()
        assert "--workspace" in caught.value.hint


@pytest.mark.integration
def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """The system itself refuses to let a file grow further, as a full disk does."""
    limited = child(
        """
        import resource
        job_id = workspace.save(some(), "small")
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        from studio.errors import StudioError
        try:
            workspace.save(some(nodes=20_000), "large")
        except StudioError as error:
            say(error.message)
        workspace.rename(job_id, "renamed")
        """,
        tmp_path,
    )
    out, err = limited.communicate(timeout=PATIENCE_S)
    assert limited.returncode == 0, err
    told = re.fullmatch(
        rf"large cannot be stored: files in {tmp_path} may not grow further \(see ulimit -f\): about (.+) are needed, (.+) are free; "
        r"the (.+) written were removed again.\n",
        out,
    )
    assert told
    assert all(re.fullmatch(r"[\d.,]+ [KMGT]?i?B", size) for size in told.groups())
    workspace = Workspace(tmp_path)
    assert [job.name for job in workspace.jobs()] == ["renamed"]
    assert not list((tmp_path / "tmp").iterdir())


def test_a_workspace_removed_while_the_studio_runs(workspace):
    job_id = workspace.save(some(), "job")
    shutil.rmtree(workspace.root)
    for act in (lambda: workspace.save(some(), "x"), lambda: workspace.load(job_id), workspace.jobs):
        with pytest.raises(StudioError, match="No such file"):
            act()


def test_stopping_in_the_middle_leaves_nothing_behind(workspace):
    class CancelledError(Exception):
        pass

    trace = some()
    graphs = trace.graphs * 5

    def tick(done: int, total: int) -> None:
        assert total == 5
        if done == 3:
            raise CancelledError

    with pytest.raises(CancelledError):
        workspace.save(replace(trace, graphs=graphs), "job", tick=tick)
    assert files_below(workspace.root) == []
    assert not list((workspace.root / "tmp").iterdir())


# ---------------------------------------------------------------------------------------------------
# Kills and rivals


def work_on_jobs(folder, say):
    """Save four jobs; rename, delete, or delete and restore all but the first; report each step once it is done."""
    workspace = Workspace(folder)
    for number, act in enumerate(("", "renamed", "deleted", "restored")):
        job_id = workspace.save(some(nodes=10 * number, name=f"job {number}"), f"job {number}")
        say("saved", job_id, number)
        if act == "renamed":
            workspace.rename(job_id, f"renamed {number}")
        if act in ("deleted", "restored"):
            workspace.delete(job_id)
        if act == "restored":
            workspace.restore(job_id)
        if act:
            say(act, job_id, number)


def shelve_a_job(folder, say):
    """Save a job whose graphs are stored before it is complete, after one that nobody touches; report each once it is done."""
    workspace = Workspace(folder)
    say("saved", workspace.save(some(), "job 0"))
    trace = some(nodes=40)
    with workspace.shelf("job 1") as shelf:
        shelved = [shelf.put(f"{index}.graph", graph) for index, graph in enumerate(trace.graphs)]
        graphs = tuple(map(shelf.take, shelved))
        say("saved", workspace.save(replace(trace, graphs=graphs), "job 1", shelf=shelf))


@pytest.mark.integration
def test_a_kill_while_graphs_are_stored_before_their_job_leaves_a_whole_job_or_none(tmp_path):
    ends = kill_everywhere("tests.test_workspace:shelve_a_job", tmp_path)
    points = [end.point for end in ends]
    for kind in (
        "within a write to 0.graph",
        "before fsync",
        "before rename 0.graph",
        "after rename 0.graph",
    ):
        assert any(point.startswith(kind) for point in points), kind
    assert (points[-1], len(ends[-1].said)) == ("", 2)
    for end in ends:
        workspace = Workspace(end.folder)
        jobs = {job.name: workspace.load(job.id) for job in workspace.jobs()}
        reported = [f"job {number}" for number in range(len(end.said))]
        assert jobs.keys() >= set(reported), end
        assert all(trace == some(nodes=40) for name, trace in jobs.items() if name == "job 1"), end


@pytest.mark.integration
def test_a_kill_at_any_moment_loses_nothing_that_was_reported(tmp_path):
    """What was reported is done; what was under way is done or not begun; nothing is half there."""
    ends = kill_everywhere("tests.test_workspace:work_on_jobs", tmp_path)
    points = [end.point for end in ends]
    for kind in (
        "before a write",
        "within a write",
        "before fsync",
        "after fsync",
        "before rename",
        "after rename",
    ):
        assert any(point.startswith(kind) for point in points), kind
    assert points[-1] == ""
    assert len(ends[-1].said) == 7
    for end in ends:
        workspace = Workspace(end.folder)
        reported = {job_id: (act, int(number)) for act, job_id, number in end.said}
        listed = {job.id: job.name for job in workspace.jobs()}
        for job_id, (act, number) in reported.items():
            finished = number == 0 or act != "saved"
            names = {f"renamed {number}"} if act == "renamed" else {f"job {number}"}
            names |= set() if finished or number != 1 else {"renamed 1"}
            if job_id not in listed:
                assert act == "deleted" or (number in (2, 3) and not finished), end
                workspace.restore(job_id)
            else:
                assert act != "deleted", end
            assert workspace.info(job_id).name in names, end
            assert workspace.load(job_id) == some(nodes=10 * number, name=f"job {number}"), end
        # At most the one job that was being saved is there without having been reported, and it is whole.
        others = set(listed) - set(reported)
        assert len(others) <= 1, end
        for job_id in others:
            number = int(listed[job_id].split()[1])
            assert number == len({known for _, known in reported.values()}), end
            assert workspace.load(job_id) == some(nodes=10 * number, name=f"job {number}"), end
        assert {path.name for path in (end.folder / "jobs").iterdir()} == {job.id for job in workspace.jobs()}


@pytest.mark.integration
def test_studios_that_share_a_workspace_do_not_disturb_each_other(tmp_path):
    """Three processes save, rename, delete and restore the same jobs at once; every job stays whole."""
    shared = [Workspace(tmp_path).save(some(nodes=n), f"shared {n}") for n in range(4)]
    program = """
        import random
        from studio.errors import StudioError
        shared, chance = sys.argv[3:], random.Random(sys.argv[2])
        for i in range(50):
            job_id = chance.choice(shared)
            act = chance.choice(["rename", "delete", "restore", "load", "jobs", "open"])
            try:
                if act == "rename":
                    workspace.rename(job_id, f"name {sys.argv[2]} {i}")
                elif act == "jobs":
                    for job in workspace.jobs():
                        assert job.name, job
                elif act == "open":
                    workspace = Workspace(workspace.root)
                elif act == "load":
                    n = workspace.info(job_id).summary.nodes // 2
                    assert workspace.load(job_id) == some(nodes=n)
                else:
                    getattr(workspace, act)(job_id)
            except StudioError as error:
                assert "There is no job" in error.message, error
            if i % 10 == 0:
                say(workspace.save(some(nodes=i), f"own {sys.argv[2]} {i}"))
    """
    processes = [child(program, tmp_path, who, *shared) for who in "abc"]
    own = []
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        own += out.split()
    workspace = Workspace(tmp_path)
    for job_id in shared:
        if not (tmp_path / "jobs" / job_id).exists():
            workspace.restore(job_id)
    assert {job.id for job in workspace.jobs()} == {*shared, *own}
    for n, job_id in enumerate(shared):
        assert workspace.load(job_id) == some(nodes=n)
    for index, job_id in enumerate(own):
        assert workspace.load(job_id) == some(nodes=index % 5 * 10)
    assert not list((tmp_path / "tmp").iterdir())


def test_the_default_folder_is_the_platforms(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Workspace.default_root().name == "chakra-studio"


def test_tests_leave_the_users_workspace_alone():
    """A test that names no workspace writes into one that goes when the tests end."""
    assert Workspace.default_root().parent.name.startswith("workspace-of-tests-")


def test_saving_needs_little_more_memory_than_the_trace(workspace):
    """A job of 60 MB is written column by column."""
    trace = some(nodes=1)
    graph = trace.graphs[0]
    # The texts that the graph refers to, and a long one that nothing does.
    ends = np.append(graph.strings.offsets, 60_000_000)
    data = np.zeros(60_000_000, np.uint8)
    data[: len(graph.strings.data)] = graph.strings.data
    strings = type(graph.strings)(data, ends)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workspace.save(replace(trace, graphs=(replace(graph, strings=strings),)), "job")
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 40_000
