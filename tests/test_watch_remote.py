"""Folders on other machines are watched like those of this one, by fsspec: tried on its file systems in memory and on disk."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.errors import StudioError, TraceError
from studio.jobs.places import LocalFolder, RemoteFolder, open_place
from studio.jobs.watching import Arrived, Refused, Watch, watch_folder
from studio.session import Session
from studio.store.workspace import Workspace
from tests.fleet_jobs import put, recorded

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def bucket():
    """A file system in memory, and the folder to put files into it from."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def upload(memory, folder, name, trace):
    for file in sorted(put(folder, name, trace).iterdir()):
        memory.pipe(f"/bucket/traces/{name}/{file.name}", file.read_bytes())


def watch_of(tmp_path, url="memory://bucket/traces"):
    return Watch(Workspace(tmp_path / "ws"), RemoteFolder(url), 0.0)


def test_what_arrives_in_a_bucket_is_imported_once_and_again_when_it_changes(bucket, tmp_path):
    upload(bucket, tmp_path, "gpt-1", recorded())
    bucket.pipe("/bucket/traces/gpt-1/.hidden", b"x")
    bucket.pipe("/bucket/traces/../out.et", b"x")
    bucket.pipe("/bucket/traces/bad/gpt.0.et", b"\xff" * 9)
    with watch_folder(Workspace(tmp_path / "ws"), RemoteFolder("memory://bucket/traces/"), 0.0) as watch:
        events = list(watch.look())
        assert list(watch.look()) == []
    [arrived] = [event for event in events if isinstance(event, Arrived)]
    [refused] = [event for event in events if isinstance(event, Refused)]
    assert refused.name == "bad"
    session = Session(Workspace(tmp_path / "ws"))
    info = session.workspace.info(arrived.job)
    assert (info.name, info.summary.ranks) == ("gpt-1/gpt", 2)
    assert info.source.splitlines()[0].startswith("memory://bucket/traces/gpt-1/gpt.0.et")
    assert session.measures(arrived.job, "").step_ns == 110_000
    assert list(watch_of(tmp_path).look()) == []
    upload(bucket, tmp_path, "gpt-1", recorded(20))
    [again] = watch_of(tmp_path).look()
    assert again.version == 2
    # Another address is another folder, and what is the same in both is one job.
    assert [
        event.job for event in watch_of(tmp_path, "memory://bucket").look() if isinstance(event, Arrived)
    ] != []


def test_a_file_that_goes_while_it_is_read_is_tried_again(bucket, tmp_path, monkeypatch):
    upload(bucket, tmp_path, "gpt-1", recorded())
    watch = watch_of(tmp_path)
    with monkeypatch.context() as broken:

        def refused(*_args, **_more):
            raise PermissionError("403 Forbidden")

        broken.setattr(type(bucket), "open", refused)
        [event] = watch.look()
        assert event.message == "memory://bucket/traces/gpt-1/gpt.0.et: it cannot be read: 403 Forbidden."
        assert list(watch.look()) == []
    [arrived] = watch.look()
    assert isinstance(arrived, Arrived)


def test_a_folder_on_this_disk_by_its_address_says_the_same(tmp_path):
    put(tmp_path / "in", "gpt-1", recorded())
    remote, local = open_place(f"file://{tmp_path}/in"), open_place(str(tmp_path / "in"))
    assert isinstance(remote, RemoteFolder)
    assert isinstance(local, LocalFolder)
    there, here = remote.stamps(), local.stamps()
    assert list(there) == list(here)
    assert [stamp.size_bytes for stamp in there.values()] == [stamp.size_bytes for stamp in here.values()]
    words = [
        "watch",
        f"file://{tmp_path}/in",
        "--once",
        "--settle",
        "0s",
        "--json",
        "--workspace",
        str(tmp_path / "ws"),
    ]
    told = CliRunner().invoke(main, words)
    assert json.loads(told.stdout)["step_ns"] == 110_000


def test_addresses_that_cannot_be_read_say_why(tmp_path, monkeypatch, bucket):
    with pytest.raises(TraceError, match="no such folder"):
        open_place("memory://nowhere").stamps()
    with pytest.raises(StudioError, match="Protocol not known"):
        open_place("nope://bucket")
    with monkeypatch.context() as without:
        # As where the package for the place is not installed.
        without.setitem(sys.modules, "s3fs", None)
        without.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
        with pytest.raises(StudioError, match="s3fs") as refused:
            open_place("s3://bucket/traces")
        assert "Install the package" in refused.value.hint
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(StudioError) as refused:
        open_place("s3://bucket/traces")
    assert refused.value.hint == "pip install 'chakra-studio[remote]'"
