"""Run ASTRA-sim's own program on a job: `simulate --engine`.

The program gets a folder of its own, no shell, no input, and a process group, which is ended with it when the time is up,
when it writes without end, or when the command is interrupted. What it prints and logs is untrusted text.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from studio.commands.base.astra_folder import write_folder
from studio.commands.base.astra_job import Prepared
from studio.commands.base.backends import (
    BACKEND_NAMES,
    DEFAULT_TIMEOUT_S,
    LOGGING,
    WHOLE_LOG,
    Backend,
    build_arguments,
    find_backend,
    get_analytical_backend,
    guess_backend,
)
from studio.commands.base.engine_run import LINE_CUT, LINES_SHOWN, EngineRun, read_engine_run
from studio.commands.base.terminal import escape_controls
from studio.errors import ConfigError, TraceError
from studio.sim.result import SimResult
from studio.units import format_bytes

_MOST_BYTES = 4 << 30
_POLL_S = 0.02
_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Engine:
    """A program to run.

    Attributes:
        program: Its path, or its name where it is found on the PATH.
        backend: The backend it was built with, by name; None is what its name tells, else the system's network.
        timeout_s: After how long it is ended.
        arguments: Further arguments, after all others.
    """

    program: str
    backend: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    arguments: tuple[str, ...] = ()


def find_program(given: str) -> Path:
    """Return the path of a program.

    Raises:
        ConfigError: There is none, or it cannot be run.
    """
    path = Path(given)
    if not path.exists() and os.sep not in given and (on_path := shutil.which(given)):
        path = Path(on_path)
    what = ""
    if not path.exists():
        what = "there is no such file"
    elif path.is_dir():
        what = "is a folder"
    elif not os.access(path, os.X_OK):
        what = "is a file that may not be executed"
    if what:
        hint = (
            f"chmod +x {given} makes it executable."
            if "executed" in what
            else "Name the program itself, such as build/bin/AstraSim_Analytical_Congestion_Unaware."
        )
        raise ConfigError(f"--engine {given}: {what}; allowed: a program", hint=hint)
    return path.absolute()


def choose_backend(engine: Engine, program: Path, prepared: Prepared) -> tuple[Backend, str]:
    """Return the backend of a program, and the evidence for it.

    Raises:
        ConfigError: It simulates another network than the system's.
    """
    if engine.backend is not None:
        backend, by = find_backend(engine.backend), "given"
    elif (guessed := guess_backend(program)) is not None:
        backend, by = guessed, "name"
    else:
        backend, by = get_analytical_backend(prepared.config.congestion), "network"
    if backend.congestion is not None and backend.congestion != prepared.config.congestion:
        raise ConfigError(
            f"--engine {engine.program}: is of the backend {backend.name}, and the network is congestion-"
            f"{prepared.config.congestion}; allowed: the same on both sides",
            hint=f"Give --congestion {backend.congestion}, or --engine-backend with one of: {', '.join(BACKEND_NAMES)}.",
        )
    return backend, by


def run_engine(
    engine: Engine,
    prepared: Prepared,
    ours: SimResult,
    progress: Callable[[str, int, int], None] | None = None,
) -> EngineRun:
    """Run a program on a prepared job and read what it made of it.

    Args:
        engine: What to run.
        prepared: The job and the system.
        ours: The simulation of the same here.
        progress: Told the seconds of the time limit that have passed.

    Raises:
        ConfigError: The program cannot be run.
        TraceError: It failed, took too long, or said nothing of the job.
    """
    program = find_program(engine.program)
    backend, by = choose_backend(engine, program, prepared)
    further = map(_resolve_word, engine.arguments)
    command = [*build_arguments(backend, prepared.options, groups=bool(prepared.trace.groups)), *further]
    with tempfile.TemporaryDirectory(prefix="chakra-studio-engine-") as name:
        folder = Path(name)
        write_folder(prepared, folder, backend)
        (folder / "log").mkdir()
        begun = time.monotonic()
        _run(engine, [str(program), *command], folder, progress)
        spent_s = time.monotonic() - begun
        log = b"\n".join(_read(path) for path in _list_logs(folder))
        output = _read(folder / "stdout")
        about = (str(program), backend.name, by, tuple(command), spent_s)
        return read_engine_run(engine.program, ours, log, output, about)


def _resolve_word(word: str) -> str:
    """Return an argument with the absolute path of the file that it names, if it does: the program runs elsewhere."""
    key, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    if not value or value == LOGGING or not Path(value).exists():
        return word
    return f"{key}{equals}{Path(value).absolute()}"


def _run(
    engine: Engine, argv: Sequence[str], folder: Path, progress: Callable[[str, int, int], None] | None
) -> None:
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        try:
            process = subprocess.Popen(  # noqa: S603 (the user's own program, by its path and without a shell)
                argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            what = (
                "is no program of this machine"
                if error.errno == errno.ENOEXEC
                else f"cannot be run: {error.strerror}"
            )
            raise ConfigError(
                f"--engine {engine.program}: {what}", hint="A script needs a first line such as #!/bin/sh."
            ) from error
        try:
            _wait(engine, process, folder, progress)
        finally:
            _end(process)
    if process.returncode:
        raise _build_error(engine, process.returncode, folder)


def _wait(
    engine: Engine,
    process: subprocess.Popen[bytes],
    folder: Path,
    progress: Callable[[str, int, int], None] | None,
) -> None:
    begun = time.monotonic()
    pause_s = _POLL_S
    while process.poll() is None:
        passed = time.monotonic() - begun
        if passed > engine.timeout_s:
            raise TraceError(
                f"--engine {engine.program}: was ended after {engine.timeout_s:g} s, its time limit.{_read_last_words(folder)}",
                hint="Raise --engine-timeout. ASTRA-sim waits for ever where ranks do not agree on their collectives: chakra-studio check finds that.",
            )
        if _count_written_bytes(folder) > _MOST_BYTES:
            raise TraceError(
                f"--engine {engine.program}: was ended since it had written more than {format_bytes(_MOST_BYTES)}.",
                hint="Is this ASTRA-sim's program?",
            )
        if progress:
            progress("engine", min(int(passed), int(engine.timeout_s)), max(int(engine.timeout_s), 1))
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.25)
    if progress:
        progress("engine", 1, 1)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, and all that it started."""
    if process.poll() is not None:
        return
    _send_signal(process, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    # Its children may have stayed.
    _send_signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    process.wait()


def _send_signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            # The group has the number of its first process, which was given one of its own.
            os.killpg(process.pid, number)
        else:
            process.kill()


def _build_error(engine: Engine, status: int, folder: Path) -> TraceError:
    how = f"ended with exit status {status}"
    if status < 0:
        try:
            how = f"was ended by the signal {signal.Signals(-status).name}"
        except ValueError:
            how = f"was ended by signal {-status}"
    return TraceError(
        f"--engine {engine.program}: {how}.{_read_last_words(folder)}",
        hint="chakra-studio export astra-sim writes the folder that it was given, to run it by hand.",
    )


def _read_last_words(folder: Path) -> str:
    """Return the last lines that a program wrote to stderr, else to stdout; "" where it wrote none."""
    for name in ("stderr", "stdout"):
        path = folder / name
        with path.open("rb") as stream:
            stream.seek(max(path.stat().st_size - (LINES_SHOWN * LINE_CUT), 0))
            text = stream.read().decode("utf-8", "replace")
        lines = [escape_controls(line[:LINE_CUT]) for line in text.splitlines() if line.strip()][
            -LINES_SHOWN:
        ]
        if lines:
            return f" Its last words on {name}:" + "".join(f"\n  {line}" for line in lines)
    return " It said nothing."


def _count_written_bytes(folder: Path) -> int:
    return sum(
        path.stat().st_size
        for path in (folder / "stdout", folder / "stderr", *_list_logs(folder))
        if path.exists()
    )


def _list_logs(folder: Path) -> list[Path]:
    """Return the logs of a program, the oldest first: one with all events, or what its logger kept.

    The logger moves full files to log.1.log, log.2.log and so on.
    """
    whole = folder / WHOLE_LOG
    if whole.is_file() and whole.stat().st_size:
        return [whole]
    numbered = {path.name.split(".")[1]: path for path in (folder / "log").glob("log.*.log")}
    rotated = sorted((int(number), path) for number, path in numbered.items() if number.isdecimal())
    last = folder / "log" / "log.log"
    return [*(path for _, path in reversed(rotated)), *([last] if last.is_file() else [])]


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else b""
