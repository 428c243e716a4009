"""Read the files of a job, by this process or by several, into one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from studio.errors import TraceError, TraceFormatError
from studio.et.collector import pause_collector
from studio.et.format import (
    UNSAID,
    CopiesPart,
    DevicePart,
    Format,
    GroupsPart,
    HostPart,
    JobSize,
    Part,
    RankPart,
    Reading,
)
from studio.et.job_builder import JobBuilder
from studio.et.job_files import JobFiles, RankFile, discover
from studio.et.known import KINETO, PYTORCH
from studio.et.link.options import LinkOptions
from studio.et.link.rank_files import RankFiles
from studio.et.memory import refuse_beyond_memory
from studio.et.ranks import check_rank_override, index_ranks_by_file
from studio.et.reading_meter import Meter, Progress
from studio.et.seen import JobSeen, get_seen
from studio.et.shelf import Shelf
from studio.et.source import SourceFile, load, measure_file, open_sources
from studio.et.workers import count_processors
from studio.machine_memory import read_available_bytes
from studio.trace import Trace

if TYPE_CHECKING:
    from concurrent.futures import Executor

_LEAST_BYTES = 4 << 20
"""Uncompressed bytes of a job's files on average from which on others are asked to read them: files of one job that are
alike are read faster by one process, which compares them."""
_WORTH_PROCESSES = 48 << 20
"""Uncompressed bytes of a job from which on other processes are started: each takes half a second to start."""

Sizes = Sequence[tuple[int, int]]
"""Bytes of the files of ranks in their order, as they are and uncompressed."""


def read_job(  # noqa: PLR0913 - all but the first by name
    job: JobFiles,
    *,
    ranks: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    options: LinkOptions | None = None,
    size: JobSize | None = None,
    executor: Executor | None = None,
    shelf: Shelf | None = None,
    contents: dict[str, str] | None = None,
) -> Trace:
    """Read the files of one job, and link execution traces with Kineto traces.

    Args:
        job: Its files.
        ranks: Rank numbers by file name, in place of what the files and their names tell.
        progress: Told the bytes read; an attribute `seen` of it learns of the ranks, as `JobSeen` does.
        options: What linking derives.
        size: NPUs and passes, where a workload leaves them open.
        executor: Reads and links the files; where none is given, processes of this machine do so for large jobs.
        shelf: Takes the graphs of ranks that others link, as they come; in memory where none is given.
        contents: Gets the checksum of each file that others read, by its name; not computed where none is given.

    Raises:
        RanksNeededError: The rank of some files is not known.
        NpusNeededError: A workload does not tell how many NPUs run it.
        TraceError: The user gave two files the same rank.
        TraceFormatError: A file cannot be read.
    """
    numbers = dict(ranks or {})
    sizes = [measure_file(file) for file, _, _ in job.ranks]
    meter = Meter(progress, sum(packed for packed, _ in sizes))
    total = sum(inflated for _, inflated in sizes)
    builder = JobBuilder(shelf, _build_onlooker(progress, job), contents)
    linking = (lambda done, total: progress("linking", done, total)) if progress else None
    with _choose_executor(executor, job, sizes) as chosen:
        if chosen:
            _read_anew(job)
        by_several = _group_by_rank(job, numbers) if chosen else []
        linked = False
        # What a file cannot be read for is told better, and lets the others be read, one by one.
        with suppress(TraceFormatError):
            if chosen and by_several:
                linked = builder.link_files(job, by_several, options, meter, linking, chosen)
        if linked:
            _add_others(builder, job, total)
            return builder.trace(job, numbers)
        read_one = partial(_read_or_refuse, total=total, meter=meter, size=size or UNSAID)
        if chosen:
            elsewhere = _read_elsewhere(job.ranks, chosen, total, meter, size or UNSAID)
            _add_ranks(builder, job, numbers, elsewhere)
        else:
            # The collector would look through the ranks before at every few hundred.
            with pause_collector():
                _add_ranks(builder, job, numbers, _read_here(job.ranks, sizes, read_one))
    builder.refuse_all()
    builder.link(options, linking)
    _add_others(builder, job, total)
    return builder.trace(job, numbers)


def _read_anew(job: JobFiles) -> None:
    """Forget what was read of the files of ranks: others open them by path, and are sent no content."""
    for file, _, _ in job.ranks:
        file.start.take()


def _build_onlooker(progress: Progress | None, job: JobFiles) -> JobSeen | None:
    """Return what is to learn of the ranks of a job as they are read, None where nobody looks on."""
    seen = get_seen(progress)
    if seen:
        devices = sum(fmt.half == "device" for _, fmt, _ in job.ranks)
        several = any(fmt.whole for _, fmt, _ in job.ranks)
        seen.begin(0 if several else devices or len(job.ranks))
    return seen


def _add_ranks(
    builder: JobBuilder,
    job: JobFiles,
    numbers: Mapping[str, int],
    contents: Iterable[tuple[RankFile, list[Part] | TraceFormatError]],
) -> None:
    """Add what files of ranks hold."""
    for (file, fmt, number), parts in contents:
        if isinstance(parts, TraceFormatError):
            builder.refuse(file, parts)
            continue
        for part in parts:
            if isinstance(part, GroupsPart):
                builder.add_groups(part)
            elif isinstance(part, CopiesPart):
                builder.add_copies(part)
            elif isinstance(part, HostPart | DevicePart):
                builder.add_half(part, number, numbers.get(file.name))
            elif fmt.whole:
                builder.add(part, part.number)
            else:
                of_file = number if part.number is None else part.number
                alone = len(job.ranks) == 1 and sum(isinstance(each, RankPart) for each in parts) == 1
                builder.findings += check_rank_override(file.name, part.number, numbers.get(file.name))
                builder.add(part, numbers.get(file.name, of_file), alone=alone)


def _add_others(builder: JobBuilder, job: JobFiles, total: int) -> None:
    """Read the files that describe the job as a whole."""
    for file, fmt in job.others:
        parts = _read_or_refuse(file, fmt, measure_file(file), total=total, meter=Meter(None, 0), size=UNSAID)
        if isinstance(parts, TraceFormatError):
            builder.refuse(file, parts)
            continue
        for part in parts:
            if isinstance(part, GroupsPart):
                builder.add_groups(part)
            elif isinstance(part, CopiesPart):
                builder.add_copies(part)


@contextmanager
def _choose_executor(given: Executor | None, job: JobFiles, sizes: Sizes) -> Iterator[Executor | None]:
    """Yield the executor that reads a job: the one given, processes of this machine for large jobs, else none."""
    total = sum(inflated for _, inflated in sizes)
    largest = max((inflated for _, inflated in sizes), default=0)
    ratio = max((fmt.memory_ratio for _, fmt, _ in job.ranks), default=0)
    free = read_available_bytes()
    fits = free is None or count_processors() * largest * ratio < free
    least = 0 if all(fmt.half for _, fmt, _ in job.ranks) else _LEAST_BYTES * len(job.ranks)
    small = len(job.ranks) < 2 or total < max(_WORTH_PROCESSES, least)
    if given is not None:
        yield given
    elif small or count_processors() < 2 or not fits:
        yield None
    else:
        from studio.et.executors import start_local_processes

        with start_local_processes() as executor:
            yield executor


def _group_by_rank(job: JobFiles, numbers: Mapping[str, int]) -> list[RankFiles]:
    """Return the files of each rank where names tell which they are, none where they do not."""
    if not all(fmt.name in (PYTORCH.name, KINETO.name) for _, fmt, _ in job.ranks):
        return []
    sides: dict[str, dict[int | None, SourceFile]] = {"host": {}, "device": {}}
    for file, fmt, number in job.ranks:
        sides[fmt.half][numbers.get(file.name, number)] = file
    hosts, devices = sides["host"], sides["device"]
    # Execution traces of all ranks or of none: which of them belongs to which is told by names alone here.
    sure = hosts.keys() in (devices.keys(), set()) and len(hosts) + len(devices) == len(job.ranks)
    if not sure or len(devices) < 2 or None in devices:
        return []
    return [
        RankFiles(number, hosts.get(number), device, device.name in numbers)
        for number, device in devices.items()
        if number is not None
    ]


def read(  # noqa: PLR0913 - all but the first by name
    paths: Sequence[Path | str] | Path | str,
    *,
    ranks: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    options: LinkOptions | None = None,
    npus: int | None = None,
    passes: int | None = None,
    executor: Executor | None = None,
) -> Trace:
    """Read the execution traces of one job.

    Args:
        paths: Files, folders or archives; formats are recognised by content.
        ranks: Rank numbers by file name, for files that do not tell theirs, or tell a wrong one (then a finding says so).
        progress: Called with a phase, the bytes done and the bytes in all.
        options: What linking derives where there are PyTorch traces.
        npus: How many NPUs run a text workload that does not say it.
        passes: How many times a text workload runs; once where nothing is said.
        executor: Reads and links the files, as `concurrent.futures` has them; it must see the files where they are.
            Where none is given, processes of this machine do so for large jobs.

    Raises:
        TraceError: The paths hold several jobs, ranks are unknown, or `ranks` gives two files the same one.
        TraceFormatError: A file is of no known format or damaged beyond use.

    Example:
        >>> import studio
        >>> len(studio.read(studio.sample_path("transformer_8r")).ranks)
        8
    """
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    with open_sources(given, progress) as files:
        jobs = discover(files, progress)
        if len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6]) + (", …" if len(jobs) > 6 else "")
            raise TraceError(
                f"{len(jobs)} jobs found, not one: {names}.", hint="Name the files of one of them."
            )
        size, numbers = JobSize(npus, passes), index_ranks_by_file(files, ranks or {})
        return read_job(
            jobs[0], ranks=numbers, progress=progress, options=options, size=size, executor=executor
        )


def link(
    paths: Sequence[Path | str] | Path | str,
    *,
    options: LinkOptions | None = None,
    ranks: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Trace:
    """Link the execution traces and Kineto traces that PyTorch wrote for the ranks of one job.

    Args:
        paths: Files, folders or archives; their content decides which side of which rank each is.
        options: What to derive.
        ranks: Rank numbers by file name, for files that do not tell theirs, or tell a wrong one (then a finding says so).
        progress: Called with a phase, the work done and the work in all.
        executor: As in `read`.

    Raises:
        TraceError: The two traces of a rank are of different processes, or there is nothing to link.
        TraceFormatError: A file is of no known format or damaged beyond use.

    Example:
        >>> import json, studio, tempfile
        >>> from pathlib import Path
        >>> kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "dur": 7, "pid": 0, "tid": 7}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "kineto_rank0.json")
        ...     _ = file.write_text(json.dumps({"traceEvents": [{**kernel, "args": {"stream": 7, "device": 0}}]}))
        ...     studio.link(file).graph_of(0).duration_ns.tolist()
        [7000]
    """
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    with open_sources(given, progress) as files:
        all_jobs = discover(files, progress)
        jobs = [job for job in all_jobs if any(fmt.half for _, fmt, _ in job.ranks)]
        if len(jobs) != 1:
            shown = jobs or all_jobs
            names = ", ".join(job.name for job in shown[:6]) + (", …" if len(shown) > 6 else "")
            what = (
                f"{len(jobs)} jobs with PyTorch traces found, not one"
                if jobs
                else "No PyTorch traces found, only"
            )
            raise TraceError(
                f"{what}: {names}.",
                hint="Name the execution traces and Kineto traces of one job, or the folder they are in."
                + ("" if jobs else " Traces of other formats need no linking."),
            )
        numbers = index_ranks_by_file(files, ranks or {})
        return read_job(jobs[0], ranks=numbers, progress=progress, options=options, executor=executor)


def _read_here(
    files: Sequence[RankFile],
    sizes: Sizes,
    read_one: Callable[[SourceFile, Format, tuple[int, int]], list[Part] | TraceFormatError],
) -> Iterator[tuple[RankFile, list[Part] | TraceFormatError]]:
    """Yield the content of each file in order, or why it cannot be read; read by this process."""
    formats: dict[str, Format] = {}
    for entry, measured in zip(files, sizes, strict=True):
        file, fmt, _ = entry
        if fmt.name not in formats:
            own = fmt.job_reader() if fmt.job_reader and len(files) > 1 else fmt.read
            formats[fmt.name] = replace(fmt, read=own)
        yield entry, read_one(file, formats[fmt.name], measured)


def _read_elsewhere(
    files: Sequence[RankFile], executor: Executor, total: int, meter: Meter, size: JobSize
) -> Iterator[tuple[RankFile, list[Part] | TraceFormatError]]:
    """Yield the content of each file in order, or why it cannot be read: equal graphs are soon dropped."""
    from studio.et.executors import call_in_order

    calls = [(read_parts, (file, fmt, total, size)) for file, fmt, _ in files]
    for entry, parts in zip(files, call_in_order(executor, calls, meter.look), strict=True):
        meter.tick(entry[0].name, entry[0].path.stat().st_size)
        yield entry, parts


def read_parts(file: SourceFile, fmt: Format, total: int, size: JobSize) -> list[Part] | TraceFormatError:
    """Read one file; for executors."""
    return _read_or_refuse(file, fmt, measure_file(file), total=total, meter=Meter(None, 0), size=size)


def _read_or_refuse(
    file: SourceFile, fmt: Format, measured: tuple[int, int], *, total: int, meter: Meter, size: JobSize
) -> list[Part] | TraceFormatError:
    """Return the content of a file, or why it cannot be read: the other ranks may be whole."""
    try:
        return _read_file(file, fmt, measured, total=total, meter=meter, size=size)
    except TraceFormatError as error:
        meter.tick(file.name, measured[0])
        return error


def _read_file(
    file: SourceFile, fmt: Format, measured: tuple[int, int], *, total: int, meter: Meter, size: JobSize
) -> list[Part]:
    packed_bytes, inflated = measured
    refuse_beyond_memory(file.name, inflated, fmt.memory_ratio)
    data, findings = load(file)
    share = packed_bytes / max(2 * len(data), 1)
    tick = lambda done: meter.tick(file.name, int(done * share))  # noqa: E731
    parts = fmt.read(Reading(file.name, data, total, tick, findings, size))
    meter.tick(file.name, packed_bytes)
    return parts
