"""A real studio for the browser tests: the command as users start it, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from studio.samples import SAMPLES, sample_path


@dataclass(frozen=True)
class Studio:
    """A running studio.

    Attributes:
        url: Its address, without a slash at the end.
        workspace: Its folder.
    """

    url: str
    workspace: Path

    def job(self, name: str) -> str:
        """Return the id of the newest job of this name."""
        found = []
        for path in (self.workspace / "jobs").glob("*/job.json"):
            info = json.loads(path.read_text())
            if info["name"] == name:
                found.append((info["created"], info["id"]))
        return max(found)[1]

    def address(self, page: str, name: str, **view: object) -> str:
        """Return the address of a page that shows a job, by its name."""
        more = "".join(f"&{key}={value}" for key, value in view.items())
        return f"{self.url}/{page}?job={self.job(name)}{more}"


@contextmanager
def running(workspace: Path, *arguments: str) -> Iterator[Studio]:
    """Run `chakra-studio` on a free port until the block ends, then see that it stops cleanly."""
    command = [
        sys.executable,
        "-m",
        "studio",
        "--no-browser",
        "--port",
        "0",
        "--workspace",
        str(workspace),
        *arguments,
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = next((text for text in process.stdout if "is at http" in text), "")
        address = re.search(r"http://[^/\s]+", line)
        assert address, "the studio did not start"
        yield Studio(address.group(), workspace)
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
        process.stdout.close()
        assert code == 0


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """A studio with the samples open; their jobs are named after the samples' archives, such as `imbalance_8r`."""
    paths = [str(sample_path(sample.name)) for sample in SAMPLES]
    with running(tmp_path_factory.mktemp("workspace"), *paths) as found:
        yield found
