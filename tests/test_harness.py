"""The test harness itself: retries are reported, nothing stays running, inherited signal handling does not matter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT
from tests.processes import MARK

FAILS_ONCE = """
import pathlib
import pytest

@pytest.mark.e2e
def test_once():
    flag = pathlib.Path(__file__).with_name("flag")
    if not flag.exists():
        flag.touch()
        raise AssertionError("the answer came late")
"""
LEAVES_A_PROCESS = """
import subprocess
import sys

def test_forgetful():
    # A child of a child, as a server that a shell starts: it is nobody's any more when the shell ends.
    program = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(900)', __file__])"
    subprocess.run([sys.executable, "-c", program.replace("__file__", repr(__file__))], check=True)
"""
STOPS_BY_INTERRUPT = """
import signal
import subprocess
import sys

def test_interrupt():
    # Loaded before it says so: an interrupt while a module is loaded may be raised where nobody is told of it.
    program = "import time\\nprint('up', flush=True)\\ntime.sleep(900)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait() == -signal.SIGINT
"""


def run_pytest(folder: Path, source: str, *options: str, **popen: object) -> tuple[int, str]:
    """Run pytest with the project's conftest on one file; return its exit status and what it printed."""
    path = folder / "test_sample.py"
    path.write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    done = subprocess.run(
        [*command, "--rootdir", str(folder), "-p", "no:cacheprovider", *options, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
        **popen,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_browser_test_that_fails_is_run_once_more_and_reported_with_its_reason(tmp_path, workers):
    code, output = run_pytest(tmp_path, FAILS_ONCE, "--numprocesses", workers)
    assert code == 0, output
    assert "RERUN test_sample.py::test_once (call): AssertionError: the answer came late" in output
    assert "1 retry; `make test FLAKY=forbid` forbids them" in output
    assert "processor time" in output


@pytest.mark.integration
def test_retries_can_be_forbidden(tmp_path):
    code, output = run_pytest(tmp_path, FAILS_ONCE, "--flaky=forbid")
    assert code == 1, output
    assert "1 failed" in output


@pytest.mark.integration
def test_a_process_that_outlives_its_test_is_killed_and_fails_the_run(tmp_path):
    code, output = run_pytest(tmp_path, LEAVES_A_PROCESS)
    assert code == 1, output
    assert "left running:" in output
    assert not [
        process for process in psutil.process_iter() if str(tmp_path / "test_sample.py") in _command(process)
    ]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send")
def test_a_run_that_was_started_with_signals_ignored_can_interrupt_its_children(tmp_path):
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    code, output = run_pytest(tmp_path, STOPS_BY_INTERRUPT, preexec_fn=ignore)
    assert code == 0, output
