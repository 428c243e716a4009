"""Buckets behind the S3 protocol are watched: by s3fs, against moto's server on this machine.

Run it as `make s3`, which installs both in an environment of their own: what s3fs needs holds other packages back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from studio.cli import main
from tests.fleet_jobs import put, recorded

NEEDED = "is not installed: make s3"
s3fs = pytest.importorskip("s3fs", reason=f"s3fs {NEEDED}")
pytest.importorskip("moto", reason=f"moto {NEEDED}")


@dataclass(frozen=True)
class Bucket:
    """A bucket of a server of this machine, as its owner sees it."""

    name: str
    client: Any

    @property
    def traces(self) -> str:
        return f"s3://{self.name}/traces"

    def upload(self, folder: Path, job: str, late: int = 0) -> list[Path]:
        """Put the files of a recording."""
        files = sorted(put(folder, job, recorded(late)).iterdir())
        for file in files:
            self.put(f"{job}/{file.name}", file.read_bytes())
        return files

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"traces/{name}", Body=data)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server that speaks S3."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serving = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    serving.start()
    _, port = serving.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    serving.stop()


@pytest.fixture
def account(server, tmp_path, monkeypatch) -> Iterator[None]:
    """The environment variables that AWS's own tools take, and no account of whoever runs the test."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    given = {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(account) -> Bucket:
    import boto3

    client = boto3.client("s3")
    name = f"traces-{uuid4().hex}"
    client.create_bucket(Bucket=name)
    return Bucket(name, client)


def looked(tmp_path: Path, address: str) -> Result:
    """What one look at an address gives."""
    s3fs.S3FileSystem.clear_instance_cache()
    words = ["watch", address, "--once", "--settle", "0s", "--json", "--workspace", str(tmp_path / "ws")]
    return CliRunner().invoke(main, words)


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_what_is_put_into_a_bucket_arrives_once_and_again_when_it_changes(bucket, tmp_path):
    bucket.upload(tmp_path, "gpt-1")
    [first] = events(looked(tmp_path, bucket.traces))
    assert (first["event"], first["name"], first["ranks"]) == ("arrived", "gpt-1/gpt", 2)
    assert first["step_ns"] == 110_000
    assert [event["event"] for event in events(looked(tmp_path, bucket.traces + "/"))] == ["known"]
    bucket.upload(tmp_path, "gpt-2")
    [known, second] = events(looked(tmp_path, bucket.traces))
    assert (known["event"], second["event"], second["name"]) == ("known", "arrived", "gpt-2/gpt")
    bucket.upload(tmp_path, "gpt-1", late=20)
    changed = events(looked(tmp_path, bucket.traces))[-1]
    assert (changed["event"], changed["version"], changed["step_ns"]) == ("arrived", 2, 130_000)


def test_an_object_counts_once_all_its_parts_are_there(bucket, tmp_path):
    bucket.upload(tmp_path, "gpt-1")
    looked(tmp_path, bucket.traces)
    first, second = sorted(put(tmp_path, "gpt-2", recorded(9)).iterdir())
    where = {"Bucket": bucket.name, "Key": f"traces/gpt-2/{first.name}"}
    upload = {**where, "UploadId": bucket.client.create_multipart_upload(**where)["UploadId"]}
    part = bucket.client.upload_part(**upload, PartNumber=1, Body=first.read_bytes())
    assert [event["event"] for event in events(looked(tmp_path, bucket.traces))] == ["known"]
    bucket.put(f"gpt-2/{second.name}", second.read_bytes())
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    bucket.client.complete_multipart_upload(**upload, MultipartUpload=parts)
    arrived = events(looked(tmp_path, bucket.traces))[-1]
    assert (arrived["event"], arrived["name"], arrived["ranks"]) == ("arrived", "gpt-2/gpt", 2)


def test_an_object_that_ends_early_is_told_and_read_anew_once_it_is_whole(bucket, tmp_path):
    first, second = sorted(put(tmp_path, "gpt-3", recorded(7)).iterdir())
    bucket.put(f"gpt-3/{second.name}", second.read_bytes())
    bucket.put(f"gpt-3/{first.name}", first.read_bytes()[:-20])
    result = looked(tmp_path, bucket.traces)
    assert result.exit_code == 4
    assert events(result)[-1]["damaged"] == 1
    bucket.put(f"gpt-3/{first.name}", first.read_bytes())
    whole = events(looked(tmp_path, bucket.traces))[-1]
    assert (whole["version"], whole["ranks"], whole["damaged"]) == (2, 2, 0)


def test_what_cannot_be_reached_says_why_and_what_to_do(bucket, tmp_path, monkeypatch):
    def refused(address: str) -> str:
        result = looked(tmp_path, address)
        assert (result.exit_code, result.stdout) == (1, "")
        assert isinstance(result.exception, SystemExit)
        assert not (tmp_path / "ws").exists()
        return result.stderr

    assert "no such folder, or nothing lies in it.\nHint: Check the spelling." in refused(bucket.traces)
    assert "no such folder" in refused("s3://no-such-bucket/traces")
    assert "Invalid bucket name" in refused("s3://No!/traces")
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        without.delenv("AWS_SECRET_ACCESS_KEY")
        told = refused(bucket.traces)
        assert "Unable to locate credentials.\nHint: Name the account" in told
        assert "AWS_ACCESS_KEY_ID" in told
    # A port that nobody can listen on.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert "Could not connect" in refused(bucket.traces)
