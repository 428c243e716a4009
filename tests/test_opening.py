"""Traces into the workspace: once, whole, and found again."""

from __future__ import annotations

import errno
import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader
from pathlib import Path

import pytest

from studio.analysis.job.files import list_job_files
from studio.analysis.job.summary import summarise
from studio.commands import info
from studio.errors import ConfigError, StudioError, TraceError, TraceFormatError
from studio.et import JobSize, NpusNeededError, RanksNeededError, discover, executors, write
from studio.et.seen import JobSeen
from studio.et.source import SourceFile, open_sources
from studio.files import open_file
from studio.jobs import importing
from studio.jobs.importing import compute_fingerprint, open_paths, open_sample, upload_reader
from studio.samples import SAMPLES
from studio.store import arrays as store_arrays
from studio.store import shelf
from studio.store.job_infos import LAYOUT
from studio.store.workspace import Workspace
from studio.trace import compute_digests
from tests.et.chakra_bytes import file_of, num
from tests.et.pytorch_files import rank_files, small_rank
from tests.small_jobs import rank_file, some

UNKNOWN_RANK = file_of(num(1, 1) + num(3, 4))
WORKLOAD = b"MICRO\n1\na -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 5\n"
"""Does not say how many NPUs run it."""


class StoppedError(Exception):
    """The wish to stop."""


class Upload:
    """What a reader of uploads is given to report to."""

    def __init__(self, stop_at: str = "", ranks: dict[str, int] | None = None) -> None:
        self.ranks = ranks or {}
        self.npus: int | None = None
        self.stop_at = stop_at
        self.told: list[tuple[str, int, int]] = []
        self.warnings: list[str] = []
        self.failed: list[str] = []
        self.seen = JobSeen()

    def __call__(self, phase: str, done: int, total: int, message: str = "") -> None:
        self.told.append((phase, done, total))
        if phase == self.stop_at:
            raise StoppedError(phase)

    def files_sorted(self, used: Mapping[Path, str], left_out: Mapping[Path, str]) -> None:
        self.left_out = {path.name: why for path, why in left_out.items()}

    def file_failed(self, file: SourceFile, error: StudioError) -> None:
        self.failed.append(f"{file.name}: {error.message}")

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def job(tmp_path) -> Path:
    write(some(), tmp_path / "in", "job")
    return tmp_path / "in"


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """The names of the jobs that were read."""
    names: list[str] = []
    read_job = importing.read_job

    def counted(job, **options):
        names.append(job.name)
        return read_job(job, **options)

    monkeypatch.setattr(importing, "read_job", counted)
    return names


def uploads(folder: Path) -> list[SourceFile]:
    """Files as an import hands them over: paths as the user sees them, stored under numbers."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [SourceFile(path.relative_to(folder).as_posix(), path, named=True) for path in paths]


def nothing_in(workspace: Workspace) -> bool:
    return not workspace.jobs() and not list((workspace.root / "tmp").iterdir())


def test_a_folder_becomes_a_job(workspace, job):
    told = Upload()
    [job_id] = open_paths(workspace, [job], progress=told)
    assert workspace.load(job_id) == some()
    info = workspace.info(job_id)
    assert (info.name, info.source) == ("job", str(job))
    assert [phase for phase, done, total in told.told if done == total] == [
        "checking",
        *["reading"] * 2,
        "storing",
    ] or {phase for phase, *_ in told.told} == {"checking", "reading", "storing"}
    assert all(0 <= done <= total for _, done, total in told.told)


def test_files_that_did_not_change_are_not_read_again(workspace, job, reads, tmp_path):
    [first] = open_paths(workspace, [job])
    assert open_paths(workspace, [job]) == [first]
    # Touched, named one by one in any order, copied, or opened in a later studio: the same files.
    for path in job.iterdir():
        os.utime(path, (1e9, 1e9))
    assert open_paths(workspace, [job]) == [first]
    assert open_paths(workspace, sorted(job.iterdir(), reverse=True)) == [first]
    [loose] = open_paths(Workspace(workspace.root / "other"), sorted(job.iterdir()))
    paths = Workspace(workspace.root / "other").info(loose).source.splitlines()
    assert paths == [str(path) for path in sorted(job.iterdir())]
    job.rename(tmp_path / "moved")
    assert open_paths(Workspace(workspace.root), [tmp_path / "moved"]) == [first]
    assert reads == ["job", "job"]  # once by each workspace


def test_a_change_anywhere_in_a_file_is_noticed(workspace, tmp_path, reads):
    path = tmp_path / "job.0.et"
    raw = bytearray(rank_file(nodes=20_000))
    path.write_bytes(raw)
    stamp = path.stat()
    [first] = open_paths(workspace, [path])
    at = raw.index(b"matmul", len(raw) // 2)
    raw[at : at + 6] = b"MATMUL"
    path.write_bytes(raw)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    [second] = open_paths(workspace, [path])
    assert second != first
    assert reads == ["job", "job"]
    assert len(workspace.jobs()) == 2


def test_other_ranks_groups_or_names_are_another_job(workspace, job, tmp_path):
    def mark(folder: Path, ranks: dict[str, int] | None = None) -> str:
        with open_sources([folder]) as files:
            return compute_fingerprint(discover(files)[0], ranks or {})

    before = mark(job)
    assert mark(job) == before
    assert mark(job, {"in/job.0.et": 5}) != before
    (job / "job.json").write_text('{"tp": [0, 3]}')
    assert mark(job) != before
    (job / "job.json").unlink()
    without = mark(job)
    assert without != before
    (job / "job.3.et").rename(job / "job.4.et")
    assert mark(job) != without


def test_a_deleted_job_is_read_again(workspace, job, reads):
    [first] = open_paths(workspace, [job])
    workspace.delete(first)
    [second] = open_paths(workspace, [job])
    assert second != first
    assert reads == ["job", "job"]


def test_several_jobs_in_one_folder_become_several(workspace, job, tmp_path):
    write(some(nodes=5), job, "other")
    ids = open_paths(workspace, [job])
    assert [workspace.info(job_id).name for job_id in ids] == ["job", "other"]
    assert workspace.load(ids[1]) == some(nodes=5)


@pytest.mark.parametrize("phase", ["checking", "reading", "storing"])
def test_stopping_leaves_nothing_behind(workspace, job, phase):
    with pytest.raises(StoppedError):
        open_paths(workspace, [job], progress=Upload(stop_at=phase))
    assert nothing_in(workspace)


def test_an_error_leaves_nothing_behind(workspace, tmp_path):
    (tmp_path / "job.0.et").write_bytes(rank_file())
    (tmp_path / "notes.txt").write_text("not a trace at all")
    with pytest.raises(TraceFormatError, match=r"notes\.txt: not an execution trace"):
        open_paths(workspace, [tmp_path / "notes.txt"])
    assert nothing_in(workspace)
    [job_id] = open_paths(workspace, [tmp_path / "job.0.et", tmp_path / "notes.txt"])
    [finding] = [finding for finding in workspace.load(job_id).findings if finding.file]
    assert finding.message == "notes.txt: a text file, no execution trace, left out."


def test_ranks_may_be_given_by_name(workspace, tmp_path, reads):
    (tmp_path / "in").mkdir()
    for name in ("a.et", "b.et"):
        (tmp_path / "in" / name).write_bytes(UNKNOWN_RANK)
    with pytest.raises(RanksNeededError) as caught:
        open_paths(workspace, [tmp_path / "in"])
    assert caught.value.names == ("in/a.et", "in/b.et")
    assert nothing_in(workspace)
    [job_id] = open_paths(workspace, [tmp_path / "in"], ranks={"in/a.et": 7, "b.et": 2})
    assert [rank.number for rank in workspace.load(job_id).ranks] == [2, 7]
    # The same files as other ranks are another job.
    assert open_paths(workspace, [tmp_path / "in"], ranks={"a.et": 7, "b.et": 2}) == [job_id]
    assert open_paths(workspace, [tmp_path / "in"], ranks={"a.et": 2, "b.et": 7}) != [job_id]
    with pytest.raises(ConfigError, match="no such file") as unknown:
        open_paths(workspace, [tmp_path / "in"], ranks={"aa.et": 1})
    assert unknown.value.hint == "The nearest is a.et."


def test_a_rank_for_a_name_that_two_files_have_is_refused(workspace, tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.et").write_bytes(UNKNOWN_RANK)
    with pytest.raises(ConfigError, match=r"2 files have this name: x/a\.et, y/a\.et"):
        open_paths(workspace, [tmp_path / "x", tmp_path / "y"], ranks={"a.et": 1})


# ---------------------------------------------------------------------------------------------------
# Uploads


def test_an_upload_becomes_a_job_and_is_found_by_path_later(workspace, job, reads):
    progress = Upload()
    job_id = upload_reader(workspace)(uploads(job), progress)
    assert workspace.load(job_id) == some()
    assert (workspace.info(job_id).source, progress.warnings) == ("job.0.et\njob.3.et\njob.json", [])
    assert open_paths(workspace, [job]) == [job_id]
    assert reads == ["job"]


def test_an_upload_asks_for_ranks_and_takes_them(workspace, tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.et", "b.et"):
        (tmp_path / "in" / name).write_bytes(UNKNOWN_RANK)
    read, files = upload_reader(workspace), uploads(tmp_path / "in")
    with pytest.raises(RanksNeededError) as caught:
        read(files, Upload())
    answered = dict(zip(caught.value.names, (3, 1), strict=True))
    job_id = read(files, Upload(ranks=answered))
    ranks = workspace.load(job_id).ranks
    assert [(rank.number, rank.file) for rank in ranks] == [(1, "b.et"), (3, "a.et")]


def test_several_jobs_in_one_upload_are_all_imported_and_said(workspace, job):
    write(some(nodes=5), job, "other")
    progress = Upload()
    job_id = upload_reader(workspace)(uploads(job), progress)
    assert workspace.info(job_id).name == "job"
    assert sorted(info.name for info in workspace.jobs()) == ["job", "other"]
    assert progress.warnings == ["2 jobs were found and imported: job, other."]


def test_a_job_is_said_to_come_from_its_own_files_alone(workspace, job, tmp_path):
    """Not from all that were opened with it: of paths its own, of uploads the names of its own."""
    write(some(nodes=5), tmp_path / "more" / "deep", "other")
    write(some(nodes=7), tmp_path / "loose", "loose")
    (loose,) = (tmp_path / "loose").glob("loose.0.et")
    made = open_paths(workspace, [job, tmp_path / "more", loose])
    sources = {workspace.info(made_job).name: workspace.info(made_job).source for made_job in made}
    assert sources == {"job": str(job), "other": str(tmp_path / "more"), "loose": str(loose)}
    files = [SourceFile(f"in/{file.name}", file.path) for file in uploads(job)]
    files += [SourceFile(f"more.zip/{file.name}", file.path) for file in uploads(tmp_path / "more" / "deep")]
    elsewhere = Workspace(tmp_path / "elsewhere")
    upload_reader(elsewhere)(files, Upload())
    assert {info.name: info.source for info in elsewhere.jobs()} == {"job": "in", "other": "more.zip"}


def test_files_of_an_upload_that_cannot_be_read_are_told_with_the_reason(workspace, tmp_path):
    """Beside the file itself, in words, though the rest became a job."""
    for number in (0, 1):
        rank_files(tmp_path / "in", number, *small_rank(number))
    broken = tmp_path / "in" / "kineto_1.json"
    broken.write_bytes(broken.read_bytes()[:-40])
    progress = Upload()
    upload_reader(workspace)(uploads(tmp_path / "in"), progress)
    [told] = progress.failed
    assert told.startswith("kineto_1.json: kineto_1.json: ")


@pytest.mark.parametrize("phase", ["checking", "reading", "storing"])
def test_an_upload_cancelled_leaves_nothing_behind(workspace, job, phase):
    with pytest.raises(StoppedError):
        upload_reader(workspace)(uploads(job), Upload(stop_at=phase))
    assert nothing_in(workspace)


# ---------------------------------------------------------------------------------------------------
# Samples and archives


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_opened_twice_is_one_job(workspace, sample, reads):
    first = open_sample(workspace, sample.name)
    assert open_sample(workspace, sample.name) == first
    info = workspace.info(first)
    assert (info.name, info.source, info.summary.ranks) == (sample.title, "sample", sample.ranks)
    assert len(reads) == 1


def test_an_archive_is_the_same_job_as_the_files_in_it(workspace, job, tmp_path, reads):
    [first] = open_paths(workspace, [job])
    with zipfile.ZipFile(tmp_path / "packed.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in job.iterdir():
            archive.write(path, f"deep/{path.name}")
    assert open_paths(workspace, [tmp_path / "packed.zip"]) == [first]
    assert reads == ["job"]


def test_a_workload_with_another_number_of_npus_is_another_job(workspace, tmp_path):
    path = tmp_path / "w.txt"
    path.write_bytes(WORKLOAD)
    told = Upload()
    with pytest.raises(NpusNeededError):
        upload_reader(workspace)([SourceFile("w.txt", path)], told)
    told.npus = 4
    first = upload_reader(workspace)([SourceFile("w.txt", path)], told)
    assert len(workspace.load(first).ranks) == 4
    assert open_paths(workspace, [path], size=JobSize(npus=4)) == [first]
    [other] = open_paths(workspace, [path], size=JobSize(npus=8))
    assert len(workspace.load(other).ranks) == 8


def test_an_upload_lists_what_is_left_out_before_the_others_are_read(workspace, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "job.0.et").write_bytes(rank_file())
    (tmp_path / "in" / "job.1.et").write_bytes(b"")
    (tmp_path / "in" / "notes.txt").write_text("not a trace at all")
    told = Upload()
    job_id = upload_reader(workspace)(uploads(tmp_path / "in"), told)
    assert told.left_out == {
        "job.1.et": "job.1.et: an empty file, no execution trace",
        "notes.txt": "notes.txt: a text file, no execution trace",
    }
    files = list_job_files(workspace.load(job_id))
    assert [file.name for file in files.used] == ["job.0.et"]
    assert [(file.name, file.why, file.level) for file in files.left_out] == [
        ("job.1.et", "an empty file, no execution trace", "warning"),
        ("notes.txt", "a text file, no execution trace", "info"),
    ]


def test_links_to_nothing_are_listed_as_left_out(tmp_path):
    (tmp_path / "job.0.et").write_bytes(rank_file())
    (tmp_path / "job.1.et").symlink_to(tmp_path / "gone.et")
    (tmp_path / "job.2.et").symlink_to("job.2.et")
    (tmp_path / "job.3.et").symlink_to("job.0.et")
    [job] = info.run(info.Request((tmp_path,)))
    files = list_job_files(job.trace)
    assert [file.rank for file in files.used] == [0, 3]
    assert [(file.name, file.why, file.level) for file in files.left_out] == [
        (f"{tmp_path.name}/job.{number}.et", "a link to a file that is not there", "warning")
        for number in (1, 2)
    ]
    for number in (0, 3):
        (tmp_path / f"job.{number}.et").unlink()
    with pytest.raises(TraceFormatError, match=r"job\.1\.et: a link to a file that is not there"):
        info.run(info.Request((tmp_path,)))


def test_a_cut_archive_lists_what_it_has_and_what_it_lost(workspace, tmp_path):
    """Before the import and after it, and the last of two members of one name is used."""
    path = tmp_path / "job.tar"
    with tarfile.open(path, "w") as packed:
        for name, content in (
            ("job.0.et", b""),
            ("job.0.et", rank_file(0)),
            ("job.1.et", rank_file(1)),
            ("job.2.et", b"x" * 600),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
        cut = packed.offset - 1024
    path.write_bytes(path.read_bytes()[:cut])
    with open_sources([path]) as files:
        told = Upload()
        job_id = upload_reader(workspace)(files, told)
    reasons = [
        "job.tar/job.0.et: an earlier member of this name, which comes again and then counts",
        "job.tar/job.2.et: cut off after 0 of 600 bytes",
        "job.tar: whatever came behind job.2.et, where the archive is cut off",
    ]
    assert sorted(told.left_out.values()) == sorted(reasons)
    listed = list_job_files(workspace.load(job_id))
    assert [(file.name, file.rank) for file in listed.used] == [
        ("job.tar/job.0.et", 0),
        ("job.tar/job.1.et", 1),
    ]
    assert sorted(f"{file.name}: {file.why}" for file in listed.left_out) == sorted(reasons)
    assert [file.level for file in listed.left_out if "cut off" in file.why] == ["error"] * 2


def test_info_names_the_files_that_are_used_and_those_left_out(tmp_path):
    (tmp_path / "job.0.et").write_bytes(rank_file())
    (tmp_path / "notes.txt").write_text("no trace")
    jobs = info.run(info.Request((tmp_path,)))
    report, name = info.report(jobs), tmp_path.name
    assert report["files"] == {
        "used": [{"file": f"{name}/job.0.et", "rank": 0}],
        "left_out": [{"file": f"{name}/notes.txt", "why": "a text file, no execution trace"}],
    }
    text = info.text(jobs)
    assert f"    {name}/job.0.et: rank 0\n" in text
    assert f"    {name}/notes.txt: left out: a text file, no execution trace\n" in text


@pytest.mark.parametrize("bad_is_large", [False, True])
def test_a_job_that_cannot_be_read_loses_no_other(workspace, tmp_path, bad_is_large):
    """It is listed with the nearest of the others, by `info` as by an import, whichever is read first."""
    (tmp_path / "in").mkdir()
    for number in range(1 if bad_is_large else 3):
        (tmp_path / "in" / f"job.{number}.et").write_bytes(rank_file())
    bad = [tmp_path / "in" / f"kineto_{number}.json" for number in range(2 if bad_is_large else 1)]
    for path in bad:
        path.write_text(
            '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1'
        )
    [job] = info.run(info.Request((tmp_path / "in",)))
    lost = list_job_files(job.trace).left_out
    assert [file.name for file in lost] == [f"in/{path.name}" for path in bad]
    assert {file.level for file in lost} == {"error"}
    told: list[str] = []
    [opened] = open_paths(workspace, [tmp_path / "in"], refused=lambda error: told.append(error.message))
    assert workspace.info(opened).name == "job"
    [message] = told
    assert "nothing complete before it" in message
    progress = Upload()
    elsewhere = Workspace(tmp_path / "elsewhere")
    uploaded = upload_reader(elsewhere)(uploads(tmp_path / "in"), progress)
    assert [job.id for job in elsewhere.jobs()] == [uploaded]
    assert {failed.partition(":")[0] for failed in progress.failed} == {path.name for path in bad}
    for path in (tmp_path / "in").glob("*.et"):
        path.unlink()
    with pytest.raises(TraceFormatError, match="nothing complete before it"):
        info.run(info.Request((tmp_path / "in",)))


@pytest.mark.parametrize(
    ("files", "why", "hint"),
    [
        ({"w.txt": WORKLOAD}, "the workload does not say how many NPUs run it", "convert FILE FOLDER --npus"),
        (
            {"a/first.et": UNKNOWN_RANK, "a/second.et": UNKNOWN_RANK},
            "its rank is unknown",
            "--rank FILE=NUMBER",
        ),
    ],
)
def test_a_job_that_leaves_something_open_loses_no_other(workspace, tmp_path, files, why, hint):
    """Commands, which cannot ask, list it and what to do about it; an upload asks before it reads on."""
    folder = tmp_path / "in"
    for name, content in {"job.0.et": rank_file(), **files}.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)
    [job] = info.run(info.Request((folder,)))
    lost = [finding for finding in job.trace.findings if finding.code == "unreadable-file"]
    assert [finding.message for finding in lost] == [f"in/{name}: {why}, left out." for name in files]
    assert all(hint in finding.hint for finding in lost)
    told: list[str] = []
    [opened] = open_paths(workspace, [folder], refused=lambda error: told.append(error.message))
    assert workspace.info(opened).name == "job"
    assert len(told) == 1
    with pytest.raises((RanksNeededError, NpusNeededError)) as asked:
        upload_reader(workspace)(uploads(folder), Upload())
    assert asked.value.names == tuple(files)


# ---------------------------------------------------------------------------------------------------
# Graphs that are stored as they come


@pytest.fixture
def linked_by_others(monkeypatch):
    """Every job of PyTorch traces is linked by an executor."""

    @contextmanager
    def one_thread():
        with ThreadPoolExecutor(1) as executor:
            yield executor

    monkeypatch.setattr(executors, "start_local_processes", one_thread)
    monkeypatch.setattr("studio.et.job._WORTH_PROCESSES", 0)
    monkeypatch.setattr("studio.et.job.count_processors", lambda: 2)


def recorded(folder: Path, ranks: int = 3) -> Path:
    """Write a recording whose first two ranks differ in nothing but their number; in others an operator takes longer."""
    for number in range(ranks):
        rank_files(folder, number, *small_rank(number, shift_us=10 * (number // 2), pid=7))
        device = folder / f"kineto_{number}.json"
        device.write_text(device.read_text().replace('"dur": 300', f'"dur": {300 + 10 * (number // 2)}'))
    return folder


def test_graphs_that_are_stored_by_whoever_makes_them_are_those_of_one_process(
    workspace, tmp_path, linked_by_others, monkeypatch
):
    """Each is in a file of its own, written once; of ranks with equal graphs one is kept."""
    folder = recorded(tmp_path / "run")
    written: list[str] = []
    write = shelf.write_columns
    monkeypatch.setattr(
        shelf,
        "write_columns",
        lambda path, *given, **how: written.append(path.name) or write(path, *given, **how),
    )
    told = Upload()
    [job_id] = open_paths(workspace, [folder], progress=told)
    assert written == ["0.graph", "1.graph", "2.graph"]
    assert told.told[-1][0] == "storing"
    assert [entry.name for entry in (workspace.root / "tmp").iterdir()] == []
    kept = workspace.root / "jobs" / job_id
    assert sorted(path.name for path in kept.iterdir()) == [
        "graphs.0.arrow",
        "graphs.1.arrow",
        "job.json",
        "trace.json",
    ]
    monkeypatch.setattr("studio.et.job._WORTH_PROCESSES", 1 << 60)
    other = Workspace(tmp_path / "other")
    [other_id] = open_paths(other, [folder])
    assert len(written) == 3
    assert (other.root / "jobs" / other_id / "graphs.arrow").is_file()
    trace, one = workspace.load(job_id), other.load(other_id)
    assert trace == one
    assert trace.findings == one.findings
    assert [compute_digests(graph) for graph in trace.graphs] == [
        compute_digests(graph) for graph in one.graphs
    ]
    info, of_one = workspace.info(job_id), other.info(other_id)
    assert info.summary == of_one.summary == summarise(one)
    assert (info.layout, of_one.layout) == (LAYOUT, 1)


def test_graphs_that_are_not_all_those_of_the_job_are_stored_anew(workspace):
    trace = some()
    with workspace.shelf("job") as kept_by:
        shelved = [kept_by.put(f"{index}.graph", graph) for index, graph in enumerate(trace.graphs)]
        kept = replace(trace, graphs=tuple(map(kept_by.take, shelved)))
        more = kept.graphs[0]
        twice = replace(kept, graphs=(*kept.graphs, more))
        assert kept == trace
        assert workspace.load(workspace.save(twice, "job", shelf=kept_by)) == twice
        assert workspace.load(workspace.save(kept, "job", shelf=kept_by)) == trace
    assert [entry.name for entry in (workspace.root / "tmp").iterdir()] == []


def test_files_of_a_large_job_that_cannot_be_known_are_read_once(
    workspace, tmp_path, linked_by_others, monkeypatch
):
    """Their checksums come from whoever reads them, and are those that find the job again."""
    folder = recorded(tmp_path / "run")
    (folder / "pytorch_et_0.json").write_bytes((folder / "pytorch_et_0.json").read_bytes() + b" " * (1 << 20))
    packed = folder / "kineto_1.json"
    (folder / "kineto_1.json.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    with open_sources([folder]) as files:
        mark = compute_fingerprint(discover(files)[0], {})
    looked: list[str] = []
    mark_content = importing.mark_content
    monkeypatch.setattr(
        importing, "mark_content", lambda file: looked.append(file.name) or mark_content(file)
    )
    monkeypatch.setattr(importing, "_WORTH_ONCE", 0)
    told = Upload()
    [first] = open_paths(workspace, [folder], progress=told)
    assert (looked, workspace.info(first).fingerprint) == ([], mark)
    assert "checking" not in {phase for phase, _, _ in told.told}
    write(some(), tmp_path / "others", "job")
    open_paths(Workspace(tmp_path / "empty"), [tmp_path / "others"])
    assert len(looked) == len(list((tmp_path / "others").iterdir()))
    looked.clear()
    assert open_paths(workspace, [folder]) == [first]
    assert len(looked) == 6
    other = Workspace(tmp_path / "other")
    older = other.save(some(), "of a studio that did not note sizes", fingerprint=mark)
    assert open_paths(other, [folder]) == [older]
    assert len(looked) == 12
    device = folder / "kineto_0.json"
    device.write_text(device.read_text().replace('"dur": 300', '"dur": 301'))
    [second] = open_paths(workspace, [folder])
    assert len(looked) == 18
    assert second != first


@pytest.fixture
def of_several_files(workspace, tmp_path, linked_by_others) -> Path:
    """The folder of a job that has its four graphs in files of their own."""
    [job_id] = open_paths(workspace, [recorded(tmp_path / "run", 8)])
    return workspace.root / "jobs" / job_id


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: os.truncate(path, path.stat().st_size - 8),
        lambda path: path.write_bytes(path.read_bytes()[:-400] + b"\xff" * 380 + path.read_bytes()[-20:]),
        lambda path: path.write_bytes((path.parent / "graphs.0.arrow").read_bytes()),
    ],
    ids=["missing", "empty", "cut", "torn", "another"],
)
def test_a_graph_in_a_file_of_its_own_that_is_damaged_is_told(workspace, of_several_files, damage):
    damage(of_several_files / "graphs.1.arrow")
    with pytest.raises(TraceError, match=r"its files in the workspace are damaged \(.*graphs\.1\.arrow"):
        workspace.load(of_several_files.name)


def test_files_of_graphs_are_copied_into_one_room_by_several_threads(
    workspace, of_several_files, monkeypatch
):
    """No more are open than are copied, and nobody who changes a file afterwards changes what is there."""
    one = workspace.load(of_several_files.name)
    monkeypatch.setattr(store_arrays, "_WORTH_THREADS_BYTES", 0)
    monkeypatch.setattr(store_arrays, "_IN_MEMORY_BYTES", 0)
    several = workspace.load(of_several_files.name)
    streams: list[BufferedReader] = []
    most = 0

    def watched(path: Path) -> BufferedReader:
        nonlocal most
        streams.append(open_file(path))
        most = max(most, sum(not stream.closed for stream in streams))
        return streams[-1]

    monkeypatch.setattr(store_arrays, "open_file", watched)
    assert workspace.load(of_several_files.name) == one
    assert (len(streams), most <= 2) == (4, True)
    for path in of_several_files.glob("graphs.*"):
        path.write_bytes(b"x" * path.stat().st_size)
    assert several == one


@pytest.mark.parametrize("phase", ["reading", "linking"])
def test_stopping_while_ranks_are_linked_leaves_nothing_behind(workspace, tmp_path, linked_by_others, phase):
    with pytest.raises(StoppedError):
        open_paths(workspace, [recorded(tmp_path / "run", 2)], progress=Upload(stop_at=phase))
    assert nothing_in(workspace)


def test_a_disk_that_fills_while_graphs_come_is_an_error_for_the_user(
    workspace, tmp_path, linked_by_others, monkeypatch
):
    def full(*_given: object, **_how: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shelf, "write_columns", full)
    with pytest.raises(StudioError, match=r"run cannot be stored: the disk of .* is full"):
        open_paths(workspace, [recorded(tmp_path / "run", 2)])
    assert nothing_in(workspace)
