"""Stands in for ASTRA-sim's program: takes its command line, and prints and logs as it does.

The variable STAND_IN says how it answers: `studio` simulates the files that it is given with the studio, `copy` prints and
logs what the file LOG holds; the other words are ways in which such a program fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FILES = ("comm-group-configuration", "system-configuration", "remote-memory-configuration")


def options() -> dict[str, str]:
    """Parse the command line, and insist on what the program insists on."""
    found = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if word.startswith("--"))
    for key in FILES:
        assert key in found, f"--{key} is missing"
        assert found[key] == "empty" or Path(found[key]).is_file(), f"{found[key]} is not there"
    assert Path(f"{found['workload-configuration']}.0.et").is_file()
    return found


def copy() -> None:
    """Print and log a file: events to the log, which is moved to another file when it is full, the rest to stdout."""
    lines = Path(os.environ["LOG"]).read_text(encoding="utf-8").splitlines(keepends=True)
    events = [line for line in lines if ": issue," in line or ": callback," in line]
    if Path("logging.toml").is_file() and "--logging-configuration=logging.toml" in sys.argv:
        Path("log/events.log").write_text("".join(events), encoding="utf-8")
        Path("log/log.log").write_text("".join(events[-1:]), encoding="utf-8")
    elif events:
        half = len(events) // 2
        Path("log/log.1.log").write_text("".join(events[:half]), encoding="utf-8")
        Path("log/log.log").write_text("".join(events[half:]), encoding="utf-8")
    sys.stdout.write("".join(line for line in lines if line not in set(events)))


def simulate(given: dict[str, str]) -> None:
    """Simulate the files with the studio, and log as it writes logs."""
    import studio
    from studio.commands.base.timelines import write_events

    groups = given["comm-group-configuration"]
    imported = studio.read_config(
        given["system-configuration"],
        given["network-configuration"],
        comm_groups=None if groups == "empty" else groups,
        remote_memory=given["remote-memory-configuration"],
        options=[
            word for word in sys.argv if word.startswith(("--num-queues", "--injection", "--rendezvous"))
        ],
    )
    prefix = Path(given["workload-configuration"])
    trace = studio.read(sorted(prefix.parent.glob(f"{prefix.name}.*.et")))
    os.environ["LOG"] = "answer.log"
    write_events(studio.simulate(trace, imported.config, fold=False), Path("answer.log"))
    copy()


def hang(*, deaf: bool) -> None:
    """Wait for ever, with a child that does the same; `deaf` to polite requests to end."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    print("waiting", flush=True)
    time.sleep(600)


def main() -> int:
    """Answer in the way that is asked for; returns the exit status."""
    given = options()
    way = os.environ["STAND_IN"]
    if way == "fail":
        print("terminate called: Unsupported collective comm type \x1b[31m", file=sys.stderr)
        return 3
    if way == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if way in ("hang", "hang deaf"):
        hang(deaf=way == "hang deaf")
    if way == "garbage":
        sys.stdout.buffer.write(bytes(range(256)) * 400 + b"\nsys[x] finished, many cycles\nissue,a=\n")
    if way == "slow":
        time.sleep(0.5)
    if way in ("copy", "slow"):
        copy()
    if way == "studio":
        simulate(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
