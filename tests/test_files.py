"""Only plain files are read, whatever a path may be by then; what the workspace holds is its owner's alone."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import studio
from studio.errors import ConfigError, TraceFormatError
from studio.et import source
from studio.files import SpecialFileError, make_scratch_folder, open_file, open_private, read_file, read_start
from studio.sim import astra
from studio.store.access import ensure_workspace_token
from studio.store.durable_files import write_atomically
from studio.store.workspace import Workspace
from tests.small_jobs import rank_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither these files nor modes")


def a_pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def a_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    return path


def a_device(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


SPECIAL = pytest.mark.parametrize(
    ("make", "word"), [(a_pipe, "a pipe"), (a_socket, "a socket"), (a_device, "a device")]
)
Make = Callable[[Path], Path]


@SPECIAL
def test_special_files_are_refused_at_once(tmp_path: Path, make: Make, word: str) -> None:
    """Neither waits for a writer nor reads without end."""
    with pytest.raises(SpecialFileError, match=word):
        open_file(make(tmp_path / "s"))


@SPECIAL
def test_traces_and_configurations_are_plain_files(tmp_path: Path, make: Make, word: str) -> None:
    path = make(tmp_path / "s")
    with pytest.raises(TraceFormatError, match=word):
        studio.read(path)
    with pytest.raises(ConfigError, match=word):
        astra.load_given(system=path, network=None, comm_groups=None, remote_memory=None)


def test_a_job_whose_file_became_a_pipe_is_left_out(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    broken = workspace.root / "jobs" / "broken"
    broken.mkdir()
    a_pipe(broken / "job.json")
    assert workspace.jobs() == []


def test_folders_and_missing_files_are_told_as_the_system_does(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOENT])
@pytest.mark.parametrize("named", [True, False])
def test_a_file_that_cannot_be_read_loses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, named: bool
) -> None:
    """A folder with one file of another account could not be opened."""
    ranks = [tmp_path / f"job.{rank}.et" for rank in range(3)]
    for path in ranks:
        path.write_bytes(rank_file())
    opened = source.read_start_and_size

    def fail(path: Path | str, count: int) -> tuple[bytes, int]:
        if str(path).endswith("job.1.et"):
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, count)

    monkeypatch.setattr(source, "read_start_and_size", fail)
    trace = studio.read(ranks if named else tmp_path)
    assert [rank.number for rank in trace.ranks] == [0, 2]
    assert any(f"job.1.et: cannot be read: {os.strerror(number)}" in each.message for each in trace.findings)
    with pytest.raises(OSError, match=r"job\.1\.et"):
        studio.read(ranks[1])


def test_a_file_whose_disk_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path := tmp_path / "a.et").write_bytes(b"abc")

    def fail(_handle: int, _count: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("studio.files.os.read", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        read_start(path, 8)
    assert caught.value.filename == str(path)


def test_written_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_private(tmp_path / "f") as stream:
            stream.write(b"x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "f") == 0o600
    assert read_file(tmp_path / "f") == b"x"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_workspace_is_closed_to_others(tmp_path: Path) -> None:
    """A new one, an empty folder, and one of an older version; not a folder that holds other things."""
    for name in ("new", "empty", "old", "home"):
        root = tmp_path / name
        if name != "new":
            root.mkdir(0o755)
        for part in ("jobs", "tmp", "trash") if name == "old" else ():
            (root / part).mkdir(0o755)
        if name == "home":
            (root / "letter.txt").touch()
        Workspace(root)
        assert mode(root) == (0o755 if name == "home" else 0o700)
    assert mode(tmp_path / "home" / "jobs") == 0o700


def test_the_token_of_a_workspace_stays(tmp_path: Path) -> None:
    token = ensure_workspace_token(tmp_path)
    assert len(token) >= 32
    assert ensure_workspace_token(tmp_path) == token
    assert mode(tmp_path / "token") == 0o600
    # Taken away, or damaged: a new one, which locks out whoever had the old one.
    (tmp_path / "token").write_bytes(b"short")
    new = ensure_workspace_token(tmp_path)
    assert new != token
    (tmp_path / "token").unlink()
    assert ensure_workspace_token(tmp_path) not in (token, new)


def test_a_folder_that_is_still_written_to_is_removed_and_hides_no_error(tmp_path: Path) -> None:
    """As by a process that links one rank while the file of another turns out to be unreadable."""
    begun = threading.Event()

    def write(folder: Path) -> None:
        for number in range(1000):
            try:
                (folder / f"{number}").write_bytes(b"")
            except OSError:
                return
            begun.set()
            time.sleep(0.001)

    def fail() -> None:
        with make_scratch_folder("scratch-", tmp_path) as folder:
            writers.append(threading.Thread(target=write, args=(folder,)))
            writers[0].start()
            begun.wait()
            raise KeyError

    writers: list[threading.Thread] = []
    with pytest.raises(KeyError):
        fail()
    writers[0].join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """As root a device such as /dev/null was replaced by a file, for every program."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    with write_atomically(pipe, "--out") as stream:
        stream.write("words")
    assert os.read(reader, 99) == b"words"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
