"""Stands in for ASTRA-sim's program: takes its command line, and prints and logs as it does.

What it does besides is told by the variable STAND_IN: nothing answers by simulating the files that it is given with the
studio; the other words are the ways in which such a program fails. TICKS makes all its times as many ticks later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

PREFIX = "[2026-03-25T10:00:00+0000] [{}] <workload>: "
REQUIRED = (
    "workload-configuration",
    "comm-group-configuration",
    "system-configuration",
    "remote-memory-configuration",
)


def options() -> dict[str, str]:
    found = dict(
        word.removeprefix("--").split("=", 1)
        for word in sys.argv[1:]
        if word.startswith("--") and "=" in word
    )
    for key in REQUIRED:
        assert key in found, f"--{key} is missing"
        if key != "workload-configuration" and found[key] != "empty":
            assert Path(found[key]).is_file(), f"{found[key]} is not there"
    assert Path(f"{found['workload-configuration']}.0.et").is_file()
    return found


def answer(given: dict[str, str], *, only: int | None = None, log_events: bool = True) -> None:
    """Simulate the files with the studio; print the finish of ranks, and log the events, of which only the first count."""
    import studio
    from studio.commands.base.timelines import event_lines
    from studio.sim import astra
    from studio.sim.result import exposed_ns

    later = int(os.environ.get("TICKS", "0"))
    groups = given["comm-group-configuration"]
    imported = studio.read_config(
        given["system-configuration"],
        given["network-configuration"],
        comm_groups=None if groups == "empty" else groups,
        remote_memory=given["remote-memory-configuration"],
        congestion="aware" if "unaware" not in os.environ.get("NETWORK", "unaware") else "unaware",
    )
    assert astra.options([]) == {}
    prefix = Path(given["workload-configuration"])
    trace = studio.read(sorted(prefix.parent.glob(f"{prefix.name}.*.et")))
    result = studio.simulate(trace, imported.config, fold=False)
    lines = [
        line.strip().replace(",", ", ").replace("issue, ", "issue,", 1).replace("callback, ", "callback,", 1)
        for line in event_lines(result)
    ]
    if later:
        lines = [shifted(line, later) for line in lines]
    if log_events:
        Path("log").mkdir(exist_ok=True)
        half = len(lines) // 2
        # The logger moves what is full to another file.
        for name, some in (("log.1.log", lines[:half]), ("log.log", lines[half:only])):
            Path("log", name).write_text("".join(f"{PREFIX.format('D')}{line}\n" for line in some))
    for rank, finish, exposed in zip(trace.ranks, result.finish_ns, exposed_ns(result), strict=True):
        if only is None or rank.number == 0:
            print(
                PREFIX.format("I")
                + f"sys[{rank.number}] finished, {finish + later} cycles, exposed communication {exposed} cycles."
            )


def shifted(line: str, later: int) -> str:
    head, _, rest = line.partition("tick=")
    tick, _, tail = rest.partition(",")
    return f"{head}tick={int(tick) + later},{tail}"


def main() -> int:
    given = options()
    way = os.environ.get("STAND_IN", "")
    if way == "fail":
        print("uncaught: Unsupported collective comm type \x1b[31m", file=sys.stderr)
        return 3
    if way == "crash":
        os.abort()
    if way in ("hang", "hang deaf"):
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {child.pid}")
        if way == "hang deaf":
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("waiting", flush=True)
        time.sleep(600)
    if way == "garbage":
        sys.stdout.buffer.write(bytes(range(256)) * 400 + b"\nsys[x] finished, many cycles\n")
        return 0
    if way == "silent":
        return 0
    if way == "strangers":
        print("sys[0] finished, 5 cycles, exposed communication 0 cycles.")
        print("sys[99] finished, 5 cycles, exposed communication 0 cycles.")
        print("issue,sys->id=99, tick=0, node->id=1, node->name=x, node->type=4")
        return 0
    if way == "slow":
        time.sleep(0.5)
    answer(given, only=-3 if way == "partial" else None, log_events=way != "no events")
    return 0


if __name__ == "__main__":
    sys.exit(main())
