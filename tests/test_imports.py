"""Imports survive restarts, belong to one studio at a time, and never lose what arrived."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from studio.errors import StudioError, TraceFormatError
from studio.et.records import write_metadata
from studio.et.source import SourceFile
from studio.jobs import importing
from studio.store import imports
from studio.store.durable_files import write_json
from studio.store.imports import (
    Announced,
    Import,
    ImportRefusedError,
    NpusNeededError,
    Progress,
    RanksNeededError,
    Registry,
    append_chunk,
    append_files,
    cancel_file,
    cancel_import,
    create_import,
    get_import,
    list_files,
    list_imports,
    model,
    start,
)
from studio.store.tasks import close_tasks, open_tasks
from studio.store.workspace import Workspace
from tests.waiting import wait_until

FILES = (Announced("job/a.0.et", 5, 1.0), Announced("job/a.1.et", 3, 2.0), Announced("job/empty", 0))
BODIES = (b"aaaaa", b"bbb", b"")


def names(files: list[SourceFile], progress: Progress) -> str:
    """A reader whose job is the names and bytes it was given, or why a file cannot be opened."""
    return json.dumps({file.name: file.problem or file.path.read_bytes().decode() for file in files})


class Studios:
    """Opens registries and closes them at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[Registry] = []

    def __call__(self, read_job: imports.ReadJob = names, **options: Callable[[], float]) -> Registry:
        self.opened.append(imports.open_registry(open_tasks(self.folder, **options), read_job))
        return self.opened[-1]


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studios]:
    studios = Studios(tmp_path)
    yield studios
    for registry in studios.opened:
        close_tasks(registry.tasks)


def upload(registry: Registry, import_id: str, bodies: tuple[bytes, ...] = BODIES) -> None:
    for file, body in zip(list_files(registry, import_id), bodies, strict=True):
        if file.received_bytes < len(body):
            rest = body[file.received_bytes :]
            append_chunk(registry, import_id, file.id, file.received_bytes, io.BytesIO(rest), len(rest))


def ended(registry: Registry, import_id: str) -> Import:
    wait_until(lambda: get_import(registry, import_id).status not in ("queued", "reading"))
    return get_import(registry, import_id)


def reason(action: Callable[[], object]) -> str:
    with pytest.raises(ImportRefusedError) as caught:
        action()
    return caught.value.reason


def test_files_become_a_job_and_their_uploads_are_deleted(studio: Studios) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    assert (made.name, made.status, made.files_total, made.size_bytes) == ("job", "uploading", 3, 8)
    upload(registry, made.id)
    assert get_import(registry, made.id).received_bytes == 8
    start(registry, made.id)
    done = ended(registry, made.id)
    assert done.status == "done"
    assert json.loads(done.job or "") == {"job/a.0.et": "aaaaa", "job/a.1.et": "bbb", "job/empty": ""}
    close_tasks(registry.tasks)
    assert not (registry.root / made.id / "files").exists()
    assert [file.status for file in list_files(registry, made.id)] == ["done"] * 3


def test_paths_of_users_never_reach_the_disk(studio: Studios, tmp_path: Path) -> None:
    registry = studio()
    hostile = [
        "../../x",
        "/etc/passwd",
        "C:\\x",
        "<img src=x onerror=alert(1)>",
        "a\0b",
        "\ud800",
        "x/" * 900,
    ]
    hostile.remove("\ud800")
    made = create_import(registry, [Announced(path, 1) for path in hostile])
    upload(registry, made.id, (b"x",) * len(hostile))
    found = {
        path.relative_to(registry.root / made.id).as_posix() for path in (registry.root / made.id).rglob("*")
    }
    assert found == {
        "plan.json",
        "state.json",
        "files",
        *(f"files/{n:06d}" for n in range(1, len(hostile) + 1)),
    }
    assert [file.path for file in list_files(registry, made.id)] == hostile
    assert {path.name for path in tmp_path.iterdir()} == {"imports", "tasks"}


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([], "invalid"),
        ([Announced("", 1)], "invalid"),
        ([Announced("x" * 5000, 1)], "invalid"),
        ([Announced("x", -1)], "invalid"),
        ([Announced("x", 1), Announced("x", 2)], "invalid"),
        ([Announced("x", 1 << 60)], "disk-full"),
        ([Announced(str(index), 1) for index in range(100_001)], "too-large"),
    ],
    ids=["none", "empty path", "long path", "negative", "twice", "huge", "many"],
)
def test_announcements_that_are_refused(studio: Studios, files: list[Announced], why: str) -> None:
    registry = studio()
    assert reason(lambda: create_import(registry, files)) == why
    assert list_imports(registry) == []


def test_the_same_files_go_on_where_they_stopped_and_others_never_do(studio: Studios) -> None:
    registry = studio()
    first = create_import(registry, FILES)
    append_chunk(registry, first.id, "000001", 0, io.BytesIO(b"aa"), 2)
    assert create_import(registry, FILES[::-1]).id == first.id
    assert list_files(registry, first.id)[0].received_bytes == 2
    for other in (
        FILES[:2],
        (Announced("job/a.0.et", 5, 1.5), *FILES[1:]),
        (Announced("job/a.0.et", 6, 1.0), *FILES[1:]),
        (Announced("job/b.0.et", 5, 1.0), *FILES[1:]),
    ):
        fresh = create_import(registry, other)
        assert fresh.id != first.id
        assert fresh.received_bytes == 0


@pytest.mark.parametrize("offset", [0, 1, 3, 5, 1 << 40])
def test_a_wrong_offset_tells_the_right_one(studio: Studios, offset: int) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    append_chunk(registry, made.id, "000001", 0, io.BytesIO(b"aa"), 2)
    with pytest.raises(ImportRefusedError) as caught:
        append_chunk(registry, made.id, "000001", offset, io.BytesIO(b"x"), 1)
    assert (caught.value.reason, caught.value.received) == ("conflict", 2)


def test_more_than_announced_is_refused_and_changes_nothing(studio: Studios) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    assert reason(lambda: append_chunk(registry, made.id, "000002", 0, io.BytesIO(b"bbbb"), 4)) == "too-large"
    assert list_files(registry, made.id)[1].received_bytes == 0


def test_many_small_files_arrive_in_one_stream_that_may_be_sent_again(studio: Studios) -> None:
    registry = studio()
    made = create_import(registry, [Announced(name, 4) for name in "abc"])
    ids = ["000001", "000002", "000003"]
    append_chunk(registry, made.id, "000001", 0, io.BytesIO(b"aa"), 2)
    with pytest.raises(ImportRefusedError) as caught:
        append_files(registry, made.id, ids, Breaking(b"aa", b"aa", b"b"), 12)
    assert (caught.value.reason, caught.value.received) == ("cut", 1)
    assert [file.received_bytes for file in list_files(registry, made.id)] == [4, 1, 0]
    whole = io.BytesIO(b"aaaabbbbcccc")
    assert append_files(registry, made.id, ids, whole, 12) == dict.fromkeys(ids, 4)
    assert reason(lambda: append_files(registry, made.id, ids, io.BytesIO(b"x" * 11), 11)) == "invalid"
    assert reason(lambda: append_files(registry, made.id, ["../../x"], io.BytesIO(b"x"), 1)) == "missing"
    start(registry, made.id)
    assert json.loads(ended(registry, made.id).job or "") == {"a": "aaaa", "b": "bbbb", "c": "cccc"}


class Breaking:
    """A stream that gives some bytes and then breaks."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = iter(pieces)

    def read(self, size: int) -> bytes:
        for piece in self.pieces:
            return piece
        raise ConnectionResetError(errno.ECONNRESET, "reset")


@pytest.mark.parametrize(
    ("size", "says"), [(1, "'' (1 byte):"), (2, "'' (2 bytes):"), (-1, "'' (-1 bytes):")]
)
def test_a_count_of_one_has_its_noun_in_the_singular(studio: Studios, size: int, says: str) -> None:
    with pytest.raises(ImportRefusedError) as caught:
        create_import(studio(), [Announced("", size)])
    assert caught.value.message.startswith(says)


def test_what_arrived_before_a_cut_is_kept(studio: Studios) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    with pytest.raises(ImportRefusedError) as caught:
        append_chunk(registry, made.id, "000001", 0, Breaking(b"aa", b"a"), 5)
    assert (caught.value.reason, caught.value.received) == ("cut", 3)
    upload(registry, made.id)
    start(registry, made.id)
    assert json.loads(ended(registry, made.id).job or "")["job/a.0.et"] == "aaaaa"


@pytest.mark.parametrize(
    ("import_id", "file_id"),
    [
        ("../../etc", "000001"),
        ("0" * 16, "000001"),
        ("", ""),
        ("0" * 15 + "\n", "000001"),
        ("x" * 16, "000001"),
    ],
)
def test_ids_are_looked_at_strictly(studio: Studios, import_id: str, file_id: str) -> None:
    registry = studio()
    for action in (
        lambda: get_import(registry, import_id),
        lambda: cancel_import(registry, import_id),
        lambda: start(registry, import_id),
        lambda: list_files(registry, import_id),
        lambda: append_chunk(registry, import_id, file_id, 0, io.BytesIO(b""), 0),
        lambda: cancel_file(registry, import_id, file_id),
    ):
        assert reason(action) == "missing"


@pytest.mark.parametrize("file_id", ["000000", "000004", "1", "../../state.json", "00000\u0661", "000001\n"])
def test_file_ids_are_looked_at_strictly(studio: Studios, file_id: str) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    assert reason(lambda: append_chunk(registry, made.id, file_id, 0, io.BytesIO(b"a"), 1)) == "missing"
    assert reason(lambda: cancel_file(registry, made.id, file_id)) == "missing"


def test_an_incomplete_import_does_not_start_and_a_cancelled_file_is_left_out(studio: Studios) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    append_chunk(registry, made.id, "000001", 0, io.BytesIO(b"aaaaa"), 5)
    append_chunk(registry, made.id, "000002", 0, io.BytesIO(b"b"), 1)
    with pytest.raises(ImportRefusedError, match=r"job/a\.1\.et has 1 of 3 bytes"):
        start(registry, made.id)
    cancel_file(registry, made.id, "000002")
    left = get_import(registry, made.id)
    assert (left.files_total, left.size_bytes, left.received_bytes) == (2, 5, 5)
    assert [file.status for file in list_files(registry, made.id)] == ["done", "cancelled", "done"]
    assert reason(lambda: append_chunk(registry, made.id, "000002", 0, io.BytesIO(b"b"), 1)) == "missing"
    start(registry, made.id)
    assert set(json.loads(ended(registry, made.id).job or "")) == {"job/a.0.et", "job/empty"}


def test_dropping_again_wants_cancelled_files_too(studio: Studios) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    cancel_file(registry, made.id, "000002")
    assert create_import(registry, FILES).id == made.id
    upload(registry, made.id)
    assert get_import(registry, made.id).received_bytes == 8


def test_cancelling_an_upload_deletes_it(studio: Studios) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    upload(registry, made.id)
    assert cancel_import(registry, made.id) is None
    assert list_imports(registry) == []
    assert [path.name for path in registry.root.iterdir() if not path.name.startswith(".")] == []


def test_archives_are_opened_and_litter_is_left_out(studio: Studios) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("job/r.0.et", "zero")
        out.writestr("__MACOSX/job/._r.0.et", "litter")
    body = packed.getvalue()
    registry = studio()
    made = create_import(registry, [Announced("all.et", len(body)), Announced(".DS_Store", 1)])
    upload(registry, made.id, (body, b"x"))
    start(registry, made.id)
    done = ended(registry, made.id)
    assert json.loads(done.job or "") == {"all.et/job/r.0.et": "zero"}
    close_tasks(registry.tasks)
    assert not (registry.root / made.id / "unpacked").exists()


def test_a_bad_archive_does_not_lose_the_other_files(studio: Studios) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("../evil", "x")
    body = packed.getvalue()
    registry = studio()
    made = create_import(registry, [Announced("bad.zip", len(body)), Announced("good.0.et", 1)])
    upload(registry, made.id, (body, b"g"))
    start(registry, made.id)
    job = json.loads(ended(registry, made.id).job or "")
    assert job["good.0.et"] == "g"
    assert "leads out" in job["bad.zip"]


def test_errors_of_the_reader_are_told_and_the_import_can_be_tried_again(studio: Studios) -> None:
    outcomes: list[Exception] = [
        TraceFormatError("job/a.0.et: no trace.", hint="Use another."),
        ZeroDivisionError("secret"),
        MemoryError(),
        OSError(errno.ENOSPC, "full"),
    ]

    def reader(files: list[SourceFile], progress: Progress) -> str:
        progress.warn("look here")
        progress.file_failed(files[1], StudioError("job/a.1.et: odd.", hint="Look at it."))
        if outcomes:
            raise outcomes.pop(0)
        return "job-1"

    registry = studio(reader)
    made = create_import(registry, FILES)
    upload(registry, made.id)
    messages = []
    for _ in range(4):
        start(registry, made.id)
        failed = ended(registry, made.id)
        assert failed.status == "failed"
        assert failed.error
        messages.append(failed.error.message)
        assert "Traceback" not in str(failed)
    assert messages[0] == "job/a.0.et: no trace."
    assert "internal error of the studio (ZeroDivisionError)" in messages[1]
    assert "secret" not in messages[1]
    assert "memory" in messages[2]
    assert "disk" in messages[3]
    start(registry, made.id)
    done = ended(registry, made.id)
    assert (done.status, done.job, done.error, done.warnings) == ("done", "job-1", None, ("look here",))
    error = list_files(registry, made.id)[1].error
    assert error
    assert error.message == "job/a.1.et: odd."


def test_what_each_file_is_used_as_is_told_before_any_is_read(
    studio: Studios, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also why others are left out; afterwards the job tells it."""
    rank, groups = write_metadata("0.0.4", []), b'{"0": [0, 1]}'
    bodies = (rank, rank, groups, b"some notes")
    names = ("job/a.0.et", "job/a.1.et", "job/a.json", "job/notes.txt")
    registry = studio(importing.upload_reader(Workspace(tmp_path)))
    made = create_import(registry, [Announced(*each) for each in zip(names, map(len, bodies), strict=True)])
    assert (made.files_used, made.files_left_out) == (None, None)
    seen = []

    def look(*_: object) -> str:
        seen.append((get_import(registry, made.id), list_files(registry, made.id)))
        return "job-1"

    monkeypatch.setattr(importing, "_import", look)
    upload(registry, made.id, bodies)
    start(registry, made.id)
    done = ended(registry, made.id)
    [(reading, files)] = seen
    assert (done.status, reading.status) == ("done", "reading")
    assert (reading.files_used, reading.files_left_out) == (3, 1)
    assert [(file.status, file.role) for file in files] == [
        ("used", "rank 0, Chakra execution trace (.et)"),
        ("used", "rank 1, Chakra execution trace (.et)"),
        ("used", "comm group JSON"),
        ("left out", ""),
    ]
    assert files[3].error
    assert files[3].error.message == "job/notes.txt: a text file, no execution trace"


def test_a_first_picture_is_there_before_the_last_rank_is_read(
    studio: Studios, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the ranks read so far, of all there are, what they do and send."""
    monkeypatch.setattr(model, "_PROGRESS_EVERY_S", 0.0)
    names = [f"job/a.{rank}.et" for rank in range(3)]
    body = write_metadata("0.0.4", [])
    registry = studio(importing.upload_reader(Workspace(tmp_path)))
    made = create_import(registry, [Announced(name, len(body)) for name in names])
    shown = []

    def look(path: Path, value: object, **options: bool) -> None:
        write_json(path, value, **options)
        if path.name == "progress.json":
            shown.append(get_import(registry, made.id).progress)

    monkeypatch.setattr(model, "write_json", look)
    upload(registry, made.id, (body,) * 3)
    start(registry, made.id)
    assert ended(registry, made.id).status == "done"
    pictures = [phase.picture for phase in shown if phase and phase.phase == "reading" and phase.picture]
    assert {picture.ranks for picture in pictures} >= {1, 2}
    assert {picture.of_ranks for picture in pictures} == {3}
    assert all(phase.picture is None for phase in shown if phase and phase.phase == "checking")
    assert {phase.unit for phase in shown if phase and phase.phase == "reading"} == {"bytes"}
    assert get_import(registry, made.id).progress is None


def test_details_of_an_internal_error_stay_in_the_state(studio: Studios) -> None:
    def reader(files: list[SourceFile], progress: Progress) -> str:
        raise KeyError("inner")

    registry = studio(reader)
    made = create_import(registry, FILES)
    upload(registry, made.id)
    start(registry, made.id)
    ended(registry, made.id)
    state = json.loads((registry.root / made.id / "state.json").read_text())
    assert "KeyError: 'inner'" in state["details"]


def test_progress_is_seen_and_cancelling_stops_the_reader(studio: Studios) -> None:
    reported = threading.Event()

    def reader(files: list[SourceFile], progress: Progress) -> str:
        progress("reading", 1, 64, "1 of 64 ranks")
        reported.set()
        while True:
            progress("reading", 2, 64)
            threading.Event().wait(0.005)

    registry = studio(reader)
    made = create_import(registry, FILES)
    upload(registry, made.id)
    start(registry, made.id)
    assert reported.wait(10)
    seen = get_import(registry, made.id)
    assert seen.status == "reading"
    assert seen.progress
    assert (seen.progress.phase, seen.progress.total) == ("reading", 64)
    assert reason(lambda: cancel_file(registry, made.id, "000001")) == "conflict"
    assert reason(lambda: append_chunk(registry, made.id, "000001", 5, io.BytesIO(b"x"), 1)) == "conflict"
    assert start(registry, made.id).status == "reading"
    stopping = cancel_import(registry, made.id)
    assert stopping
    assert ended(registry, made.id).status == "cancelled"
    assert get_import(registry, made.id).received_bytes == 8
    assert cancel_import(registry, made.id) is None
    assert list_imports(registry) == []


def test_imports_are_read_one_at_a_time_and_a_queued_one_can_be_cancelled(studio: Studios) -> None:
    go, running, most = threading.Event(), [0], [0]

    def reader(files: list[SourceFile], progress: Progress) -> str:
        running[0] += 1
        most[0] = max(most[0], running[0])
        assert go.wait(10)
        running[0] -= 1
        return "job"

    registry = studio(reader)
    ids = []
    for index in range(3):
        made = create_import(registry, [Announced(f"{index}.et", 1)])
        upload(registry, made.id, (b"x",))
        ids.append(start(registry, made.id).id)
    cancelled = cancel_import(registry, ids[1])
    assert cancelled
    assert cancelled.status == "cancelled"
    go.set()
    assert [ended(registry, one).status for one in ids] == ["done", "cancelled", "done"]
    assert most == [1]


def test_the_user_is_asked_for_ranks_and_the_reader_gets_them(studio: Studios) -> None:
    def reader(files: list[SourceFile], progress: Progress) -> str:
        unknown = [file.name for file in files if file.name not in progress.ranks]
        if unknown:
            raise RanksNeededError(unknown)
        return json.dumps(dict(progress.ranks))

    registry = studio(reader)
    made = create_import(registry, FILES[:2])
    upload(registry, made.id, BODIES[:2])
    start(registry, made.id)
    failed = ended(registry, made.id)
    assert failed.error
    assert failed.error.ranks_for == ("job/a.0.et", "job/a.1.et")
    start(registry, made.id, ranks={"job/a.0.et": 4, "job/a.1.et": 7})
    assert json.loads(ended(registry, made.id).job or "") == {"job/a.0.et": 4, "job/a.1.et": 7}


def test_the_user_is_asked_for_the_number_of_npus_and_the_reader_gets_it(studio: Studios) -> None:
    def reader(files: list[SourceFile], progress: Progress) -> str:
        if progress.npus is None:
            raise NpusNeededError([file.name for file in files])
        return str(progress.npus)

    registry = studio(reader)
    made = create_import(registry, FILES[:1])
    upload(registry, made.id, BODIES[:1])
    start(registry, made.id)
    failed = ended(registry, made.id)
    assert failed.error
    assert failed.error.npus_for == ("job/a.0.et",)
    assert failed.error.ranks_for == ()
    start(registry, made.id, npus=16)
    assert ended(registry, made.id).job == "16"


def test_another_studio_sees_an_import_but_leaves_it_alone(studio: Studios) -> None:
    one, two = studio(), studio()
    made = create_import(one, FILES)
    append_chunk(one, made.id, "000001", 0, io.BytesIO(b"aa"), 2)
    assert get_import(two, made.id).status == "uploading"
    assert get_import(two, made.id).idle_s is None
    for action in (
        lambda: append_chunk(two, made.id, "000001", 2, io.BytesIO(b"a"), 1),
        lambda: cancel_file(two, made.id, "000001"),
        lambda: start(two, made.id),
        lambda: cancel_import(two, made.id),
    ):
        assert reason(action) == "conflict"
    assert create_import(two, FILES).id != made.id
    close_tasks(one.tasks)
    assert get_import(two, made.id).status == "interrupted"
    append_chunk(two, made.id, "000001", 2, io.BytesIO(b"aaa"), 3)
    assert get_import(two, made.id).status == "uploading"


# Two threads print: each writes its line at once, so that none stands within the other.
CHILD = """
import io, os, sys, time
from pathlib import Path
from studio.store import imports
from studio.store.tasks import close_tasks, open_tasks
from studio.store.workspace import Workspace
def reader(files, progress):
    progress("reading", 3, 9)
    os.write(1, b"reading\\n")
    time.sleep(600)
registry = imports.open_registry(open_tasks(Path(sys.argv[1])), reader)
half = imports.create_import(registry, [imports.Announced("half.et", 4, 1.0)])
imports.append_chunk(registry, half.id, "000001", 0, io.BytesIO(b"ab"), 2)
whole = imports.create_import(registry, [imports.Announced("whole.et", 1, 1.0)])
imports.append_chunk(registry, whole.id, "000001", 0, io.BytesIO(b"w"), 1)
imports.start(registry, whole.id)
os.write(1, f"{half.id} {whole.id}\\n".encode())
time.sleep(600)
"""


@pytest.mark.integration
def test_a_killed_studio_leaves_imports_that_the_next_one_finishes(studio: Studios, tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert child.stdout
        lines = {child.stdout.readline().strip(), child.stdout.readline().strip()}
        half, whole = next(line for line in lines if line != "reading").split()
        early = studio()
        assert get_import(early, whole).status == "reading"
        assert get_import(early, half).status == "uploading"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        if child.stdout:
            child.stdout.close()
    late = studio()
    assert {one.status for one in list_imports(late)} == {"interrupted"}
    assert start(late, whole).status in ("queued", "reading", "done")
    assert json.loads(ended(late, whole).job or "") == {"whole.et": "w"}
    again = create_import(late, [Announced("half.et", 4, 1.0)])
    assert (again.id, again.status, again.received_bytes) == (half, "uploading", 2)
    append_chunk(late, half, "000001", 2, io.BytesIO(b"cd"), 2)
    start(late, half)
    assert json.loads(ended(late, half).job or "") == {"half.et": "abcd"}


KILLED = """
import os, signal, sys
from itertools import count
from pathlib import Path
from studio.store import imports
from studio.store.tasks import open_tasks
def stopping(step, done, at):
    def stop(*arguments, **options):
        done.append(step)
        if len(done) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*arguments, **options)
    return stop
def create(folder, at):
    registry = imports.open_registry(open_tasks(folder), lambda files, progress: "job")
    done = []
    for name in ("mkdir", "fsync", "replace", "rename"):
        setattr(os, name, stopping(getattr(os, name), done, at))
    imports.create_import(registry, [imports.Announced("a.et", 1, 1.0)])
for at in count(1):
    child = os.fork()
    if not child:
        create(Path(sys.argv[1]) / str(at), at)
        os._exit(0)
    if not os.waitpid(child, 0)[1]:
        print(at)
        break
"""


@pytest.mark.integration
def test_a_kill_while_an_import_is_made_leaves_a_whole_one_or_none(tmp_path: Path) -> None:
    """Killed before each step that changes the disk; the last child is not."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env=environ,
        timeout=120,
        check=True,
        capture_output=True,
        text=True,
    )
    steps = int(run.stdout)
    assert steps > 8
    for at in range(1, steps + 1):
        tasks = open_tasks(tmp_path / str(at))
        registry = imports.open_registry(tasks, names)
        left = list_imports(registry)
        assert [one.status for one in left] in ([], ["interrupted"])
        made = create_import(registry, [Announced("a.et", 1, 1.0)])
        assert [one.id for one in left] in ([], [made.id])
        append_chunk(registry, made.id, "000001", 0, io.BytesIO(b"a"), 1)
        start(registry, made.id)
        assert ended(registry, made.id).status == "done"
        assert {entry.name for entry in registry.root.iterdir()} == {".lock", made.id}
        close_tasks(tasks)


@pytest.mark.parametrize("left", [(), ("files",), ("files", "plan.json"), ("files", "state.json")])
def test_half_an_import_is_skipped_and_removed(studio: Studios, left: tuple[str, ...]) -> None:
    registry = studio()
    whole = create_import(registry, FILES)
    half = registry.root / ("0" * 16)
    half.mkdir()
    for name in left:
        if name == "files":
            (half / name).mkdir()
        else:
            (half / name).write_bytes((registry.root / whole.id / name).read_bytes())
    assert [one.id for one in list_imports(registry)] == [whole.id]
    made = create_import(registry, [Announced("other.et", 1)])
    assert {one.id for one in list_imports(registry)} == {whole.id, made.id}
    assert not half.exists()
    half.mkdir()
    studio()
    assert not half.exists()


def test_a_damaged_state_is_shown_and_can_be_dismissed(studio: Studios) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    for damage in (b"", b"{", b'{"status": "nonsense"}', b"\xff\xfe"):
        (registry.root / made.id / "state.json").write_bytes(damage)
        (found,) = list_imports(registry)
        assert found.status == "failed"
        assert found.error
        assert "cannot be read" in found.error.message
    cancel_import(registry, made.id)
    assert list_imports(registry) == []


def test_opening_tidies_what_kills_left_and_forgets_old_jobs(studio: Studios, tmp_path: Path) -> None:
    registry = studio()
    made = create_import(registry, FILES)
    upload(registry, made.id)
    start(registry, made.id)
    ended(registry, made.id)
    close_tasks(registry.tasks)
    (registry.root / ".gone-0-1").mkdir()
    (registry.tasks.root / ".studios" / ("0" * 16 + ".lock")).touch()
    (registry.root / made.id / "files").mkdir(exist_ok=True)
    second = studio()
    assert [one.status for one in list_imports(second)] == ["done"]
    assert not (registry.root / ".gone-0-1").exists()
    assert not (registry.root / made.id / "files").exists()
    assert [lock.stem for lock in (registry.tasks.root / ".studios").iterdir()] == [second.tasks.token]
    third = studio(now=lambda: time.time() + 8 * 86_400)
    assert list_imports(third) == []


def test_many_threads_at_one_import_agree(studio: Studios) -> None:
    registry = studio()
    body = os.urandom(20_000)
    made = create_import(registry, [Announced("a.et", len(body)), Announced("b.et", len(body))])

    def push(file_id: str) -> None:
        at = 0
        while at < len(body):
            piece = body[at : at + 700]
            try:
                at = append_chunk(registry, made.id, file_id, at, io.BytesIO(piece), len(piece))
            except ImportRefusedError as error:
                at = error.received or 0

    threads = [threading.Thread(target=push, args=(file_id,)) for file_id in ("000001", "000002") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(registry.root / made.id / "files" / f"00000{n}").read_bytes() == body for n in (1, 2)] == [
        True,
        True,
    ]


def test_a_full_disk_is_said(studio: Studios, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = studio()
    made = create_import(registry, FILES)

    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("studio.store.imports.upload.open_private", lambda *_: Full())
    with pytest.raises(
        ImportRefusedError, match=rf"the disk of {registry.root} is full: 1 B more are needed"
    ) as caught:
        append_chunk(registry, made.id, "000001", 0, io.BytesIO(b"a"), 1)
    assert caught.value.reason == "disk-full"


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["gpt/gpt.0.et", "gpt/sub/x.et"], "gpt"),
        (["run.0.et", "run.1.et", "run.10.et", "comm_group.json"], "run"),
        (["traces.tar.gz"], "traces"),
        (["a/x.et", "b/y.et"], "x"),
        ([".DS_Store"], ".DS_Store"),
    ],
)
def test_a_name_is_made_of_the_paths(studio: Studios, paths: list[str], name: str) -> None:
    assert create_import(studio(), [Announced(path, 1) for path in paths]).name == name
