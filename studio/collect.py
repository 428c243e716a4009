"""Record a training script with PyTorch: two files per rank, which `studio.link` links.

    python -m studio.collect -o DIR [--wait N] [--warmup N] [--active N] train.py [ARGUMENT ...]
    torchrun --nproc-per-node 2 -m studio.collect -o DIR train.py

Runs the script as Python would, and records `--active` training steps after leaving out `--wait` and `--warmup` of
them; a step ends where the script's optimizer has made one. A script whose steps are others, or which starts its ranks
itself, uses `recorder` instead.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import math
import os
import runpy
import secrets
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from studio.errors import ConfigError, StudioError, TraceError

HOST_FILE, DEVICE_FILE = "pytorch_et_{}.json", "kineto_{}.json"
"""Names of a rank's execution trace and of its Kineto trace."""

CALLS = "chakra_studio_calls"
"""Key in the Kineto trace of what is known of each call for communication: time since 1970 in ns, group, number, name, bytes given."""

_BARRIER = "monitored_barrier"

_STEPS_HELP = "https://pytorch.org/docs/stable/profiler.html#torch.profiler.schedule"


@dataclass(slots=True)
class Recorder:
    """A recording in progress.

    Attributes:
        schedule: Steps left out, steps the profiler warms up in, steps recorded.
        rank: This process, known once it is recorded.
        steps: Steps that have ended.
        files: The execution trace and the Kineto trace, once they are written.
        profile: PyTorch's profiler.
        calls: Tells the calls for communication so far; None once they are written.
        since_ns: When the first step to record began, in nanoseconds since 1970.
    """

    schedule: tuple[int, int, int]
    rank: int = 0
    steps: int = 0
    files: tuple[Path, ...] = ()
    profile: Any = None
    calls: Callable[[], list[_Call]] | None = None
    since_ns: int = 0

    @property
    def recorded_steps(self) -> int:
        """Number of steps recorded."""
        wait, warmup, active = self.schedule
        return min(max(self.steps - wait - warmup, 0), active)

    @property
    def shortfall(self) -> str:
        """A message if fewer steps were recorded than asked for, else empty."""
        wait, warmup, active = self.schedule
        if not self.files or self.recorded_steps == active:
            return ""
        return (
            f"{self.recorded_steps} of {active} steps were recorded: {self.steps} ended, of which {wait} were left out and "
            f"{warmup} warmed up. Train for {wait + warmup + active} steps or more, or record fewer (active)."
        )

    def step(self) -> None:
        """Say that a training step has ended."""
        self.steps += 1
        wait, warmup, active = self.schedule
        if self.steps == wait + warmup:
            # Else what the steps before had left to do would be recorded without its calls, on each rank another part of it.
            _wait_for_device()
            self.since_ns = time.time_ns()
        if self.steps == wait + warmup + active:
            self.write_calls()
        if not self.files:
            self.profile.step()

    def write_calls(self) -> None:
        """Put the group and number of each collective into the Kineto trace, while it can still be added to."""
        if self.calls is not None:
            self.profile.add_metadata_json(CALLS, json.dumps(_number_calls(self.calls(), self.since_ns)))
            self.calls = None


@contextmanager
def recorder(folder: Path | str, *, wait: int = 1, warmup: int = 1, active: int = 3) -> Iterator[Recorder]:
    """Record training steps of this process, as a context in which `step()` is called after each.

    Both files appear together when the last step to record has ended, or at the end of the context if that comes first.
    They are recorded in one session, with shapes and the device's waiting, so that they can be linked exactly. Before the first step
    to record the GPU is waited for: what earlier steps had asked for is no part of the recording.

    Args:
        folder: Where the files go, the same for all ranks; made where it is not there.
        wait: Steps to leave out.
        warmup: Steps after those in which the profiler runs and keeps nothing.
        active: Steps to record.

    Warns where fewer steps than `active` end before the context does.

    Raises:
        StudioError: PyTorch is missing or too old.
        ConfigError: The schedule records nothing.
        TraceError: The folder holds ranks that this job does not have, or the context ended before the first step to
            record.

    Example:
        >>> with recorder("run1") as recording:  # doctest: +SKIP
        ...     for batch in loader:
        ...         train(batch)
        ...         recording.step()
    """
    with _record_steps(folder, (wait, warmup, active)) as recording:
        yield recording
    if recording.shortfall:
        warnings.warn(recording.shortfall, stacklevel=3)


@contextmanager
def _record_steps(folder: Path | str, schedule: tuple[int, int, int]) -> Iterator[Recorder]:
    """Record as `recorder` does; the caller reports missing steps."""
    wait, warmup, active = schedule
    torch = _import_torch()
    if wait < 0 or warmup < 0 or active < 1:
        raise ConfigError(
            f"wait {wait}, warmup {warmup}, active {active}: these are numbers of steps, at least 0, 0 and 1.",
            hint=f"See {_STEPS_HELP}.",
            key="schedule",
        )
    # Nothing is kept before a process group asks for it, so this is in time where the script makes its groups later.
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "20000")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    rank, size = _find_place(torch)
    _refuse_others(target, size)
    recording = Recorder((wait, warmup, active))
    # Under hidden names, which no reader opens, until both are complete.
    mark = secrets.token_hex(8)
    host, device = target / f".{mark}.et.json", target / f".{mark}.kineto.json"
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(host))

    def save(profile: Any) -> None:
        profile.export_chrome_trace(str(device))
        # The observer ends its file when it is taken off.
        observer.unregister_callback()
        # Scripts may join their process group late, or leave it early.
        torch_rank, _ = _find_place(torch)
        recording.rank = next((number for number in (torch_rank, rank) if number is not None), 0)
        recording.files = tuple(target / name.format(recording.rank) for name in (HOST_FILE, DEVICE_FILE))
        for aside, path in zip((host, device), recording.files, strict=True):
            aside.replace(path)

    # There is one cycle, so nothing is cleared; newer versions of PyTorch warn of it all the same.
    warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
    try:
        with torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=1),
            record_shapes=True,
            execution_trace_observer=observer,
            on_trace_ready=save,
            experimental_config=_build_profiler_options(torch),
        ) as profile:
            recording.profile = profile
            with _note_messages(torch) as messages:
                recording.calls = lambda: [*_list_collectives(torch), *messages]
                yield recording
            if recording.recorded_steps:
                recording.write_calls()
        if not recording.files:
            raise TraceError(
                f"Nothing was recorded: {recording.steps} steps ended, and recording starts after {wait} + {warmup}.",
                hint="Train for more steps, call step() after each, or leave out fewer of them (wait, warmup).",
            )
    finally:
        observer.unregister_callback()
        for aside in (host, device):
            aside.unlink(missing_ok=True)
        _settle_resources(host, recording.files[0] if recording.files else None)


def _settle_resources(aside: Path, kept: Path | None) -> None:
    """Put the sources of generated kernels, which some versions of PyTorch write into a folder beside an execution trace, beside the kept one.

    PyTorch 2.6 makes that folder for every recording: an empty one goes.
    """
    resources = aside.with_name(f"{aside.stem}_resources")
    if not resources.is_dir():
        return
    if kept is not None and any(resources.iterdir()):
        target = kept.with_name(f"{kept.stem}_resources")
        shutil.rmtree(target, ignore_errors=True)
        resources.replace(target)
    else:
        shutil.rmtree(resources, ignore_errors=True)


def _import_torch() -> Any:
    """Import PyTorch, which is not a dependency of this package."""
    try:
        torch = import_module("torch")
        import_module("torch.profiler")
    except ImportError as error:
        raise StudioError(
            f"Recording needs PyTorch, which cannot be imported: {error}.",
            hint='pip install "chakra-studio[torch]", or use the environment the script trains in.',
        ) from error
    known = inspect.signature(torch.profiler.profile).parameters
    if "execution_trace_observer" not in known:
        raise StudioError(
            f"PyTorch {torch.__version__} cannot record both traces in one session.",
            hint="PyTorch 2.3 and newer can.",
        )
    return torch


def _wait_for_device() -> None:
    """Wait until the GPU of this process, where it uses one, has done all it was asked for."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def _find_place(torch: Any) -> tuple[int | None, int | None]:
    """Return rank and number of processes; None if unknown."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return int(rank) if rank.isdecimal() else None, int(size) if size.isdecimal() else None


def _refuse_others(folder: Path, size: int | None) -> None:
    """Refuse a folder with files of ranks that this job does not have; `link` would add them to it."""
    prefix, suffix = HOST_FILE.split("{}")
    names = [path.name[len(prefix) : -len(suffix)] for path in folder.glob(HOST_FILE.format("*"))]
    others = sorted(
        int(name) for name in names if name.isdecimal() and size is not None and int(name) >= size
    )
    if others:
        raise TraceError(
            f"{folder}: holds a recording of rank {others[0]}, and this job has {size} ranks.",
            hint="Name an empty folder, or remove the files of the other job.",
        )


_Call = tuple[int, str, str, bool, int, int]
"""Time since 1970 in ns, group, name, whether it is a collective, the bytes given, and PyTorch's number; -1 where not known."""


def _number_calls(calls: Sequence[_Call], since_ns: int) -> list[tuple[int, str, int, str, int]]:
    """Return the recorded calls by time, the collectives of each group with numbers that are the same on all ranks.

    PyTorch numbers them from the beginning of the job, so that a thread may communicate while steps end. A monitored barrier, for which
    it leaves numbers out, and what older versions remember without one, come after the collective before them.

    Example:
        >>> calls = [(10, "0", "gloo:all_reduce", True, 8, 7), (20, "0", "monitored_barrier", True, -1, -1), (30, "0", "send", False, -1, -1)]
        >>> _number_calls(calls, 15)
        [(20, '0', 8, 'monitored_barrier', -1), (30, '0', -1, 'send', -1)]
    """
    following: Counter[str] = Counter()
    numbered = []
    for time_ns, group, name, is_collective, size, number in sorted(calls):
        given = -1
        if is_collective:
            given = number if number >= 0 else following[group]
            following[group] = max(following[group], given + 1)
        if time_ns >= since_ns:
            numbered.append((time_ns, group, given, name, size))
    return numbered


def _list_collectives(torch: Any) -> list[_Call]:
    """Return the collectives that PyTorch's flight recorder remembers."""
    try:
        dump = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())  # noqa: SLF001 (public nowhere else)
        return [
            (
                int(entry["time_created_ns"]),
                str(entry["process_group"][0]),
                str(entry["profiling_name"]),
                True,
                _sum_tensor_bytes(entry.get("input_sizes"), entry.get("input_dtypes")),
                int(entry.get("collective_seq_id", -1)),
            )
            for entry in dump.get("entries", ())
            if not entry.get("is_p2p")
        ]
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError):
        # Older versions remember none, or tell it otherwise; linking then infers the groups.
        return []


def _sum_tensor_bytes(shapes: Any, kinds: Any) -> int:
    """Return the bytes of tensors by their shapes and types, -1 where something of them is not known.

    Example:
        >>> _sum_tensor_bytes([[2, 3], [4]], ["Float", "Half"])
        32
    """
    from studio.et.link.names import get_element_bytes

    try:
        sizes = [get_element_bytes(kind) for kind in kinds]
        known = bool(sizes) and min(sizes) > 0 and len(sizes) == len(shapes)
        return (
            sum(math.prod(shape) * size for shape, size in zip(shapes, sizes, strict=True)) if known else -1
        )
    except (TypeError, AttributeError):
        return -1


@contextmanager
def _note_messages(torch: Any) -> Iterator[list[_Call]]:
    """Note down what the flight recorder of gloo leaves out: each send and receive, and the monitored barrier."""
    noted: list[_Call] = []
    group = getattr(getattr(torch, "distributed", None), "ProcessGroup", None)
    left_out = ("send", "recv", "recv_anysource", _BARRIER)
    names = [name for name in left_out if callable(getattr(group, name, None))]
    plain = {name: getattr(group, name) for name in names}
    # Put back as they were found: as attributes of the class, pybind's functions do not bind to an object.
    originals = {name: vars(group)[name] for name in names if name in vars(group)}

    def note_calls(name: str) -> Callable[..., Any]:
        inner = plain[name]

        @functools.wraps(inner)
        def call(self: Any, *args: Any, **keywords: Any) -> Any:
            noted.append((time.time_ns(), str(self.group_name), name, name == _BARRIER, -1, -1))
            return inner(self, *args, **keywords)

        return call

    try:
        for name in names:
            setattr(group, name, note_calls(name))
        yield noted
    finally:
        for name in names:
            if name in originals:
                setattr(group, name, originals[name])
            elif name in vars(group):
                delattr(group, name)


def _build_profiler_options(torch: Any) -> Any:
    """Return the profiler's options to record device synchronization and threads of the script; None in old PyTorch versions."""
    config = getattr(torch._C._profiler, "_ExperimentalConfig", None)  # noqa: SLF001 (public nowhere else)
    wanted = {"enable_cuda_sync_events": True, "profile_all_threads": True}
    while config is not None and wanted:
        try:
            return config(**wanted)
        except TypeError:
            # An older version: without the newest of them.
            wanted.popitem()
    return None


# ---------------------------------------------------------------------------------------------------
# Scripts


def main(arguments: Sequence[str] | None = None) -> Any:
    """Record a script; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m studio.collect",
        description="Run a training script and record some of its steps: an execution trace and a Kineto trace per rank.",
        epilog="Under torchrun every rank records itself: torchrun --nproc-per-node 2 -m studio.collect -o DIR train.py",
    )
    parser.add_argument("-o", "--out", metavar="DIR", type=Path, required=True, help="where the files go")
    parser.add_argument("--wait", metavar="N", type=int, default=1, help="steps to leave out (1)")
    parser.add_argument("--warmup", metavar="N", type=int, default=1, help="steps to warm up in (1)")
    parser.add_argument("--active", metavar="N", type=int, default=3, help="steps to record (3)")
    parser.add_argument("script", type=Path, help="the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    try:
        if not options.script.is_file():
            raise StudioError(f"{options.script}: no such file.", hint="Check the spelling.")
        recording, ended = _run_recorded(options)
    except StudioError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    if not recording.files:
        # The script's exit message is printed when the process exits.
        sys.stderr.write("Nothing was recorded: the script ended before the first step to record.\n")
        return ended
    host, device = recording.files
    sys.stderr.write(f"rank {recording.rank}: {host} and {device.name}\n")
    if recording.shortfall:
        sys.stderr.write(f"Warning: rank {recording.rank}: {recording.shortfall}\n")
    if recording.rank == 0:
        sys.stderr.write(f"Next: chakra-studio link {options.out} -o linked\n")
    return ended


def _run_recorded(options: argparse.Namespace) -> tuple[Recorder, Any]:
    """Run the script under the profiler; returns the recording and the exit status.

    Raises:
        TraceError: The script ended as it should, before the first step to record.
    """
    torch = _import_torch()
    sys.argv = [str(options.script), *options.arguments]
    sys.path[0] = str(options.script.resolve().parent)
    ended: Any = 0
    try:
        with (
            _record_steps(options.out, (options.wait, options.warmup, options.active)) as recording,
            _call_after_steps(torch.optim.Optimizer, recording.step),
        ):
            try:
                runpy.run_path(str(options.script), run_name="__main__")
            except SystemExit as end:
                ended = end.code
                if ended:
                    # Why the script failed matters more than that nothing was recorded.
                    raise
    except SystemExit:
        pass
    return recording, ended


@contextmanager
def _call_after_steps(optimizer: Any, step: Callable[[], None]) -> Iterator[None]:
    """Call `step` after each step of the first optimizer that makes one.

    PyTorch's own hooks run inside the range that it records for the step, which would then be cut in two.
    """
    hook = optimizer.profile_hook_step
    first: list[int] = []
    running: list[int] = []

    def add_hook(function: Callable[..., Any]) -> Callable[..., Any]:
        inner = hook(function)

        @functools.wraps(inner)
        def run(self: Any, *args: Any, **keywords: Any) -> Any:
            running.append(id(self))
            try:
                result = inner(self, *args, **keywords)
            finally:
                running.pop()
            # An optimizer that shares its work between ranks calls another one.
            if not running:
                first[:] = first or [id(self)]
                if first == [id(self)]:
                    step()
            return result

        return run

    optimizer.profile_hook_step = staticmethod(add_hook)
    try:
        yield
    finally:
        optimizer.profile_hook_step = staticmethod(hook)


if __name__ == "__main__":
    sys.exit(main())
