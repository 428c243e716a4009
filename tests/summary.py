"""What the end of a test run says: tests without traces to read, tests run twice, processor time."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

import psutil
import pytest

SHARED_ABSENT = "the shared trace folder is absent"


@dataclass
class CpuTime:
    """Processor seconds: of this process, of programs tests started, of browsers."""

    tests: float = 0.0
    programs: float = 0.0
    browsers: float = 0.0

    def add(self, other: dict[str, object]) -> None:
        """Add the times of a worker."""
        for name in ("tests", "programs", "browsers"):
            setattr(self, name, getattr(self, name) + other[name])


_browsers: dict[int, float] = {}
"""Seconds by process."""
_ended_browsers_s = 0.0


def _seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def count_browsers() -> None:
    """Count the processor time of the browsers that run, with all that they have ended; they are about to be closed.

    The system tells of a child's time once it has ended, and of a grandchild's only where the child has waited for it, which
    browsers do not.
    """
    drivers = [one for one in psutil.Process().children() if one.name().startswith("node")]
    for process in [one for driver in drivers for one in driver.children(recursive=True)]:
        with suppress(psutil.Error):  # it has just ended
            _browsers[process.pid] = sum(process.cpu_times()[:4])


@contextmanager
def ending_driver() -> Iterator[None]:
    """Leave out of the programs that tests started what ends in this block: Playwright's driver, and browsers."""
    global _ended_browsers_s  # noqa: PLW0603 (one total per process)
    before = _seconds(resource.RUSAGE_CHILDREN)
    yield
    _ended_browsers_s += _seconds(resource.RUSAGE_CHILDREN) - before


def cpu_time() -> CpuTime:
    """Return the processor time of this process so far, and of what it started that has ended."""
    children = _seconds(resource.RUSAGE_CHILDREN)
    return CpuTime(_seconds(resource.RUSAGE_SELF), children - _ended_browsers_s, sum(_browsers.values()))


class Summary:
    """Collects from the workers what the summary needs. Registered in the process that prints it."""

    def __init__(self) -> None:
        self.workers = CpuTime()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error) -> None:
        """Take over what a worker measured."""
        self.workers.add(getattr(node, "workeroutput", {}).get("cpu", asdict(CpuTime())))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the sections."""
        write_absent(terminalreporter)
        write_reruns(terminalreporter)
        own = cpu_time()
        total = CpuTime(own.tests, 0.0, own.browsers)
        # Workers, where there are any, are programs of this process; they have counted themselves.
        if self.workers.tests:
            total.add(asdict(self.workers))
        else:
            total.programs = own.programs
        terminalreporter.section("processor time")
        terminalreporter.line(
            f"Python {total.tests + total.programs:.0f} s (tests {total.tests:.0f} s, programs they started "
            f"{total.programs:.0f} s), browsers {total.browsers:.0f} s"
        )


def write_absent(reporter: pytest.TerminalReporter) -> None:
    """Name and count the tests that had no traces to read."""
    skipped = reporter.getreports("skipped")
    names = sorted(report.nodeid for report in skipped if SHARED_ABSENT in str(report.longrepr))
    if names:
        reporter.section(SHARED_ABSENT)
        for name in names:
            reporter.line(f"SKIPPED {name}")
        noun = "test" if len(names) == 1 else "tests"
        reporter.line(f"{len(names)} {noun} skipped because {SHARED_ABSENT}")


def write_reruns(reporter: pytest.TerminalReporter) -> None:
    """Name and count the tests that failed and were run once more, with the reason."""
    reruns = reporter.getreports("rerun")
    if reruns:
        reporter.section("failed, then run once more")
        for report in reruns:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = crash.message.splitlines() if crash and crash.message else [str(report.longrepr)[-300:]]
            # What a browser complained of stands below the line that says so.
            reason = " | ".join(lines[:3])[:600]
            reporter.line(f"RERUN {report.nodeid} ({report.when}): {reason}")
        noun = "retry" if len(reruns) == 1 else "retries"
        reporter.line(f"{len(reruns)} {noun}; `make test FLAKY=forbid` forbids them")
