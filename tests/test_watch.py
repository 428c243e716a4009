"""`chakra-studio watch`: each job once, as soon as it has settled, and never a word twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from studio.analysis.trends.changes import find_changes
from studio.cli import main
from studio.commands.watch import Line, Request, report, run, text
from studio.errors import StudioError
from studio.jobs.places import LocalFolder
from studio.jobs.watching import Arrived, Refused, Watch, watch_folder
from studio.session import Session
from studio.store.workspace import Workspace
from tests.fleet_jobs import put, recorded


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def place(tmp_path):
    """A watched folder, the workspace, and a watch that waits 10 s by a clock of its own; files are never old by their dates."""
    folder = tmp_path / "in"
    folder.mkdir()
    clock = Clock()

    def begin() -> Watch:
        with watch_folder(Workspace(tmp_path / "ws"), LocalFolder(folder), 10):
            return Watch(Workspace(tmp_path / "ws"), LocalFolder(folder), 10, clock=clock, now=lambda: 0.0)

    return folder, clock, begin


def settle(watch: Watch, clock: Clock):
    list(watch.look())
    clock.s += 10
    return list(watch.look())


def test_a_job_comes_when_its_files_have_settled_and_once_over_restarts(place):
    folder, clock, begin = place
    watch = begin()
    put(folder, "gpt-2026-11-20", recorded())
    assert list(watch.look()) == []
    clock.s += 9
    # One more rank file, just written: the whole folder is not there yet.
    late = folder / "gpt-2026-11-20" / "gpt.1.et"
    late.write_bytes(late.read_bytes())
    os.utime(late, ns=(5, 5))
    clock.s += 5
    assert list(watch.look()) == []
    assert watch.pending == ("gpt-2026-11-20/gpt.1.et",)
    clock.s += 10
    [arrived] = watch.look()
    assert isinstance(arrived, Arrived)
    assert arrived.version == 1
    assert watch.workspace.info(arrived.job).summary.ranks == 2
    assert list(watch.look()) == []
    again = begin()
    assert settle(again, clock) == []
    assert again.jobs == [arrived.job]
    # Touched files are the same job, changed ones a new version of it.
    os.utime(late, ns=(7, 7))
    assert settle(again, clock) == []
    put(folder, "gpt-2026-11-20", recorded(30))
    [changed] = settle(again, clock)
    assert (changed.version, changed.job != arrived.job) == (2, True)
    assert again.jobs == [changed.job]


def test_a_deleted_job_does_not_come_back_and_a_lost_record_makes_no_second_one(place):
    folder, clock, begin = place
    put(folder, "gpt-1", recorded())
    watch = begin()
    [arrived] = settle(watch, clock)
    [kept] = watch.workspace.root.glob("watched/*.json")
    raw = kept.read_bytes()
    kept.write_bytes(raw[: len(raw) // 2])
    [same] = settle(begin(), clock)
    assert same.job == arrived.job, "known by its content"
    watch.workspace.delete(arrived.job)
    assert settle(begin(), clock) == []


def test_what_lies_in_the_folder_is_sorted_by_what_files_say(place, tmp_path):
    folder, clock, begin = place
    put(folder, ".", recorded(), prefix="loose")
    put(folder, ".", recorded(5), prefix="other")
    put(folder, "night/a", recorded(10), prefix="x")
    put(folder, "night/b", recorded(15), prefix="y")
    put(tmp_path, "packed", recorded(20))
    shutil.make_archive(str(folder / "tar-2026-11-20"), "gztar", tmp_path / "packed")
    watch = begin()
    events = settle(watch, clock)
    names = sorted(watch.workspace.info(event.job).name for event in events)
    assert names == ["loose", "night/x", "night/y", "other", "tar-2026-11-20/gpt"]
    # A job that comes beside others is looked for without taking those again, while a third is still being written.
    put(folder, ".", recorded(25), prefix="third")
    list(watch.look())
    clock.s += 10
    put(folder, ".", recorded(30), prefix="fourth")
    [third] = watch.look()
    assert watch.workspace.info(third.job).name == "third"
    clock.s += 10
    [fourth] = watch.look()
    assert watch.workspace.info(fourth.job).name == "fourth"


def test_bad_files_are_said_once_until_they_change(place):
    folder, clock, begin = place
    (folder / "broken").mkdir()
    (folder / "broken" / "gpt.0.et").write_bytes(b"\xff" * 40)
    (folder / "empty").mkdir()
    (folder / "empty" / "gpt.0.et").touch()
    (folder / "notes.txt").write_text("remember the milk")
    put(folder, "good-1", recorded())
    (folder / "good-1" / "log.out").write_text("epoch 1 of 3")
    (folder / "bad.zip").write_bytes(b"PK\x03\x04 cut")
    watch = begin()
    events = settle(watch, clock)
    refused = {event.name: event for event in events if isinstance(event, Refused)}
    assert set(refused) == {"broken", "empty", "bad.zip", "good-1/log.out", str(folder)}
    assert {name for name, event in refused.items() if event.is_lost} == {"broken", "empty", "bad.zip"}
    assert "zip" in refused["bad.zip"].message
    assert "notes.txt" in refused[str(folder)].message
    assert sum(isinstance(event, Arrived) for event in events) == 1
    assert list(watch.look()) == []
    assert settle(begin(), clock) == []
    shutil.rmtree(folder / "broken")
    put(folder, "broken", recorded(7))
    (folder / "empty" / "gpt.0.et").write_bytes(b"\xff\xfe")
    events = settle(begin(), clock)
    assert [type(event) for event in events].count(Arrived) == 1
    assert [event.name for event in events if isinstance(event, Refused)] == ["empty"]


def test_a_file_called_like_a_rank_that_is_none_is_a_loss(place):
    folder, clock, begin = place
    put(folder, "gpt-1", recorded())
    (folder / "gpt-1" / "gpt.2.et").write_bytes(b"\xff" * 9)
    (folder / "gpt-1" / "readme.bin").write_bytes(b"\xff" * 9)
    refused = {event.name: event.is_lost for event in settle(begin(), clock) if isinstance(event, Refused)}
    assert refused == {"gpt-1/gpt.2.et": True, "gpt-1/readme.bin": False}


def test_trouble_that_passes_is_said_once_and_tried_again(place, monkeypatch):
    folder, clock, begin = place
    put(folder, "gpt-1", recorded())
    watch = begin()

    def full(*_args, **_more):
        raise StudioError("the disk is full", hint="Free some space.")

    with monkeypatch.context() as broken:
        broken.setattr("studio.jobs.watching.import_arrived", full)
        [refused] = settle(watch, clock)
        assert refused.message == "gpt-1/gpt: the disk is full"
        assert list(watch.look()) == []
    [arrived] = watch.look()
    assert isinstance(arrived, Arrived)


def test_a_folder_is_watched_once_at_a_time(tmp_path):
    (tmp_path / "in").mkdir()
    store = Workspace(tmp_path / "ws")
    with (
        watch_folder(store, LocalFolder(tmp_path / "in"), 1),
        pytest.raises(StudioError, match="being watched already"),
        watch_folder(store, LocalFolder(tmp_path / "in"), 1),
    ):
        pass


def invoke(*words, code=0):
    result = CliRunner().invoke(main, ["watch", *map(str, words)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Three nights of a job, the last slower, in a folder that was looked at once."""
    root = tmp_path_factory.mktemp("nights")
    for night, late in ((18, 0), (19, 0), (20, 30)):
        made = put(root / "in", f"gpt-2026-11-{night}", recorded(late))
        for file in made.iterdir():
            os.utime(file, (1.79e9 + night, 1.79e9 + night))
    first = invoke(root / "in", "--once", "--settle", "0s", "--workspace", root / "ws")
    return root, first


def test_one_line_per_job_compares_it_with_the_one_before(nights):
    _root, first = nights
    lines = first.stdout.splitlines()
    assert len(lines) == 4
    assert [line[18:32] for line in lines[1:]] == [f"gpt-2026-11-{night}" for night in (18, 19, 20)]
    assert lines[1].endswith("first of its series")
    assert lines[2].endswith("step +0.0 %, exposed +0.0 points, imbalance +0.00")
    assert "140 µs" in lines[3]
    assert "step +27.3 %, exposed +9.7 points" in lines[3]
    assert first.stderr == "Looked once: 3 new jobs.\n"


def test_measures_are_kept_and_equal_what_the_overview_shows(nights, monkeypatch):
    root, _ = nights
    store = Workspace(root / "ws")
    session = Session(store)
    for info in store.jobs():
        kept = session.measures_made(info.id, "")
        account, steps = session.rank_use(info.id, "")[0], session.step_spans(info.id, "")
        assert kept.finish_ns == account.makespan_ns
        assert kept.step_ns == steps.typical_ns
        assert kept.exposed == account.totals().exposed_ns.mean() / account.makespan_ns
        assert sum(
            share for part, share in kept.shares.items() if part not in ("exposed", "idle")
        ) == pytest.approx(1)
        assert info.recorded > 1.79e9

    def never(*_args):
        raise AssertionError("a trace was read")

    monkeypatch.setattr(Workspace, "load", never)
    second = invoke(root / "in", "--once", "--settle", "0s", "--json", "--workspace", root / "ws")
    again = [json.loads(line) for line in second.stdout.splitlines()]
    assert [one["event"] for one in again] == ["known"] * 3
    assert [one["step_ns"] for one in again] == [110_000, 110_000, 140_000]
    assert again[2]["before"] == again[1]["job"]
    assert again[2]["verdict"]["error"] == 0
    measures = [session.measures_made(one["job"], "") for one in again]
    [step, exposed] = find_changes(measures)
    assert (
        step.words("B", "C")
        == "Step time rose 27.3 % from B to C: communication 60.0 µs → 90.0 µs of a step."
    )
    assert (exposed.key, exposed.at) == ("exposed", 2)


def test_one_look_waits_once_for_what_is_being_written(tmp_path):
    folder = tmp_path / "in"
    put(folder, "gpt-1", recorded())
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        put(folder, "gpt-2", recorded(40))
        for file in (folder / "gpt-1").iterdir():
            os.utime(file)

    request = Request(str(folder), tmp_path / "ws", once=True, settle_s=1000.0)
    events = list(run(request, wait=wait))
    assert waits == [1000.0]
    assert [report(event)["event"] for event in events] == ["waiting"]
    assert report(events[0])["files"] == 4


def test_names_of_files_do_not_reach_the_terminal_as_they_are(tmp_path):
    folder = tmp_path / "in"
    try:
        put(folder, "evil\x1b[2J\n-1", recorded())
        (folder / os.fsdecode(b"caf\xe9.et")).write_bytes(b"\xff")
    except OSError:
        pytest.skip("the file system takes no such names")
    told = invoke(folder, "--once", "--settle", "0s", "--workspace", tmp_path / "ws", code=4)
    assert "\x1b" not in told.output
    assert "1 new job, 1 problem" in told.stderr
    assert (
        invoke(folder, "--once", "--settle", "0s", "--workspace", tmp_path / "ws").stderr
        == "Looked once: 0 new jobs.\n"
    )


def test_a_job_without_times_has_a_line_too(tmp_path):
    from tests.small_jobs import rank_file

    (tmp_path / "in" / "plan-1").mkdir(parents=True)
    (tmp_path / "in" / "plan-1" / "job.0.et").write_bytes(rank_file())
    request = Request(str(tmp_path / "in"), tmp_path / "ws", once=True, settle_s=0.0)
    [event] = [event for event in run(request) if isinstance(event, Line)]
    assert text(event).endswith("holds no times")
    assert report(event)["step_ns"] is None
    assert report(event)["ranks"] == 1


def test_workloads_get_the_size_that_they_leave_open(tmp_path):
    work = "DATA\n1\nfc1 -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1048576 5\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "fc.txt").write_text(work)
    words = [tmp_path / "in", "--once", "--settle", "0s", "--workspace", tmp_path / "ws"]
    assert "does not say how many NPUs" in invoke(*words, code=4).stderr
    assert invoke(*words).stderr == "Looked once: 0 new jobs.\n"
    assert invoke(*words, "--npus", 4).stderr == "Looked once: 1 new job.\n"
    assert invoke(*words, "--npus", 4).stderr == "Looked once: 0 new jobs.\n"
    assert " 8 " in invoke(*words, "--npus", 8).stdout.splitlines()[-1]


def test_jobs_of_one_name_in_one_folder_or_archive_are_told_apart(place, tmp_path):
    folder, clock, begin = place
    for inner, late in (("a", 10), ("b", 15)):
        put(tmp_path, f"packed/{inner}", recorded(late))
    shutil.make_archive(str(folder / "many"), "zip", tmp_path / "packed")
    put(folder, "night/a", recorded(10))
    put(folder, "night/b", recorded(15))
    made = put(folder, ".", recorded(20))
    shutil.copy(made / "gpt.0.et", folder / "alone.et")
    watch = begin()
    events = settle(watch, clock)
    assert [event.version for event in events] == [1] * 6
    names = sorted(watch.workspace.info(event.job).name for event in events)
    assert names == ["alone", "gpt", "many/a/gpt", "many/b/gpt", "night/a/gpt", "night/b/gpt"]
    assert settle(begin(), clock) == []


def test_links_lead_to_folders_elsewhere_and_to_none_twice(place, tmp_path):
    folder, clock, begin = place
    put(folder, "gpt-1", recorded())
    put(tmp_path, "elsewhere", recorded(5))
    (folder / "latest").symlink_to("gpt-1")
    (folder / "gpt-2").symlink_to(tmp_path / "elsewhere")
    (folder / "up").symlink_to(tmp_path)
    (folder / "gone").symlink_to(tmp_path / "gone")
    watch = begin()
    events = settle(watch, clock)
    assert sorted(watch.workspace.info(event.job).name for event in events) == ["gpt-1/gpt", "gpt-2/gpt"]


def test_a_workspace_within_the_folder_is_not_watched(tmp_path, monkeypatch):
    put(tmp_path, "gpt-1", recorded())
    monkeypatch.chdir(tmp_path)
    for count in (1, 0):
        told = invoke(".", "--once", "--settle", "0s", "--workspace", "ws")
        assert told.stderr == f"Looked once: {count} new job{'s' * (count != 1)}.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: no such folder"),
        ([__file__], "a file, not a folder"),
        (["{in}", "--settle", "soon"], "Invalid value for '--settle'"),
        (["{in}", "--interval", "-1s"], "a time below 0"),
        (["nope://bucket/x"], "nope://bucket/x: it cannot be read"),
        ([""], "it is empty"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path, words, message):
    (tmp_path / "in").mkdir()
    given = [word.replace("{in}", str(tmp_path / "in")) for word in words]
    result = CliRunner().invoke(main, ["watch", *given, "--once", "--workspace", str(tmp_path / "ws")])
    assert result.exit_code in (1, 2)
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "ws").exists()


@pytest.mark.integration
def test_an_interrupt_ends_a_watch_cleanly(tmp_path):
    put(tmp_path / "in", "gpt-1", recorded())
    words = ["watch", "in", "--settle", "0s", "--interval", "1h", "--json", "--workspace", "ws"]
    with subprocess.Popen(
        [sys.executable, "-m", "studio", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
    ) as watch:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["event"] == "arrived"
        time.sleep(0.1)
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate(timeout=60)
    assert (watch.returncode, out) == (0, b"")
    assert err == b"Watching in every 3600 s. Press Ctrl+C to end.\n"
