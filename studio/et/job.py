"""Sort files into jobs and ranks, read them, and share equal graphs among ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from studio.errors import TraceError, TraceFormatError
from studio.et.collector import collector_paused
from studio.et.findings import said_once
from studio.et.format import (
    HEAD_BYTES,
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
    first_of,
)
from studio.et.halves import Half, find_copies, find_doubles, make_half, names_of, sort_halves
from studio.et.known import FORMATS, KINETO, PYTORCH, known_format
from studio.et.link.options import LinkOptions
from studio.et.link.rank_files import RankFiles
from studio.et.memory import refuse_beyond_memory
from studio.et.naming import name_of
from studio.et.plugins import Plugins, installed
from studio.et.rank_names import can_be_rank, counted_numbers, rank_and_prefix, says_rank
from studio.et.ranks import rank_overridden, ranks_by_file
from studio.et.recording import DeviceTrace, HostTrace
from studio.et.seen import JobSeen, RankSeen, graph_seen, half_seen, seen_by
from studio.et.shelf import Shelf
from studio.et.source import SourceFile, foreign, head, load, looks_like, measure_file, open_sources
from studio.et.workers import processors
from studio.machine_memory import available_bytes
from studio.trace import (
    GROUP_KEYS,
    NONE,
    CommGroup,
    Finding,
    Graph,
    Level,
    Rank,
    Trace,
    columns_beside_ids,
    digest,
    digest_array,
    digests,
    place_rank,
)
from studio.units import format_counted

if TYPE_CHECKING:
    from concurrent.futures import Executor

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how much is done and how much there is; may raise to stop."""

_LEAST_BYTES = 4 << 20
"""Uncompressed bytes of a job's files on average from which on others are asked to read them: files of one job that are
alike are read faster by one process, which compares them."""
_LEFT_OUT_NAMED = 100
"""Files left out that are named one by one; the rest is counted."""
_WORTH_PROCESSES = 48 << 20
"""Uncompressed bytes of a job from which on other processes are started: each takes half a second to start."""


Sizes = Sequence[tuple[int, int]]
"""Bytes of the files of ranks in their order, as they are and uncompressed."""
RankFile = tuple[SourceFile, Format, int | None]
"""The file of a rank, its format, and the rank number in its name, if there is one."""


class RanksNeededError(TraceError):
    """Files that do not say which rank they are, so the user has to.

    Attributes:
        names: `SourceFile.name` of each.
    """

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(
            f"The rank of {format_counted(len(files), 'file')} is unknown: {first_of(files)}.",
            hint="Name them <job>.<rank>.et, or after their ranks (rank0_results.json), or give --rank FILE=NUMBER once per file.",
        )
        self.names = tuple(files)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not part of any job.

    Attributes:
        name: `SourceFile.name`.
        why: The reason, in words that follow its name and a colon.
        lost: Whether what it held of the job is lost.
        claims: The rank that it claims like another file, None where it claims none twice.
    """

    name: str
    why: str
    lost: bool = False
    claims: int | None = None

    @property
    def is_missed(self) -> bool:
        """Whether what it held of the job is lost, or seems to be: it is called like a rank and holds none."""
        return self.lost or (self.claims is None and _was_a_rank(self.name))


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of one job.

    Attributes:
        name: What to call the job, taken from its files' common name.
        ranks: Files that are a rank each, with the number their name tells, if it does.
        others: Files that tell about the whole job, with their format.
        left_out: Files that are no part of it, and why.
    """

    name: str
    ranks: tuple[RankFile, ...]
    others: tuple[tuple[SourceFile, Format], ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def recognise(start: bytes) -> Format | None:
    """Return the format of a file by its first bytes, None where no format knows it.

    Formats of other packages are asked where none of the studio's knows the file.
    """
    start = start[:HEAD_BYTES]
    return known_format(start) or (
        next((fmt for fmt in plugins().formats if fmt.sniff(start)), None) if start else None
    )


def plugins() -> Plugins:
    """Return the formats of other packages that are installed."""
    return installed(frozenset(fmt.name for fmt in FORMATS))


@collector_paused()
def discover(files: Iterable[SourceFile]) -> list[JobFiles]:
    """Sort files into jobs: by what they say of themselves, else one per folder and name before the rank.

    Files of no known format are left out, and listed with the reason.

    Raises:
        TraceFormatError: There is no trace at all.
    """
    ranks: dict[str, list[RankFile]] = {}
    halves: list[Half] = []
    others: list[tuple[SourceFile, Format]] = []
    alone: list[tuple[SourceFile, Format]] = []
    left_out: list[LeftOut] = []
    last_start = b""
    for file in files:
        start = b"" if file.problem else head(file)
        fmt = None if file.problem else recognise(start)
        if fmt is None:
            left_out.append(LeftOut(file.name, file.problem or f"{looks_like(start)}, no execution trace"))
            last_start = start
        elif fmt.describes_job:
            others.append((file, fmt))
        elif fmt.half:
            halves.append(make_half(file, fmt, start))
        elif fmt.by_itself:
            alone.append((file, fmt))
        else:
            key, number = _job_key(file.name, fmt)
            ranks.setdefault(key, []).append((file, fmt, number))
    if ranks or halves:
        left_out += [LeftOut(file.name, f"{fmt.title}, which is opened by itself") for file, fmt in alone]
    else:
        ranks = {_job_key(file.name, fmt)[0]: [(file, fmt, None)] for file, fmt in alone}
    copies = find_copies(halves)
    left_out += [
        LeftOut(name, f"the recording of {other}, which says more") for name, other in copies.items()
    ]
    halves = [half for half in halves if half.file.name not in copies]
    doubles = find_doubles(halves)
    left_out += [LeftOut(name, f"the same file as {other}, byte for byte") for name, other in doubles.items()]
    halves = [half for half in halves if half.file.name not in doubles]
    ranks = _with_counted(ranks)
    ranks = {key: _believed(members) for key, members in ranks.items()}
    for index, group in enumerate(sort_halves(halves)):
        ranks[f"{names_of(group)}\x1e{index}"] = [(half.file, half.fmt, half.number) for half in group]
    if not ranks:
        raise _nothing_error(others, left_out, last_start)
    jobs = [_job(prefix, members, others, len(ranks)) for prefix, members in ranks.items()]
    shared = _share_left_out(jobs, left_out)
    return [replace(job, left_out=tuple(files)) for job, files in zip(jobs, shared, strict=True)]


def _job_key(name: str, fmt: Format) -> tuple[str, int | None]:
    """Return what files of one job have in common, and the rank that a file's name tells."""
    if fmt.whole:
        return f"{_folder(name)}\0{PurePosixPath(name).name}", None
    if fmt.tells_ranks:
        return _key_without_rank(name) + fmt.job_mark, None
    prefix, number = rank_and_prefix(name)
    return (prefix if number is not None else _key_without_rank(name)) + fmt.job_mark, number


def _share_left_out(jobs: Sequence[JobFiles], left_out: Sequence[LeftOut]) -> list[list[LeftOut]]:
    """Give each file that is left out to the one job that it lies nearest to."""
    if not left_out:
        return [[] for _ in jobs]
    # The folders of each job once: there may be a thousand ranks in one.
    folders = [{PurePosixPath(file.name).parent.parts for file, _, _ in job.ranks} for job in jobs]
    shared: list[list[LeftOut]] = [[] for _ in jobs]
    for file in left_out:
        own = PurePosixPath(file.name).parent.parts
        distances = [min(_steps_between(own, each) for each in folder) for folder in folders]
        shared[distances.index(min(distances))].append(file)
    return shared


def _steps_between(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many folders lie on the way from one to another."""
    common = len(os.path.commonprefix([one, other]))  # noqa: RUF071 - of the parts, which are no characters
    return len(one) + len(other) - 2 * common


def _nothing_error(
    others: Sequence[tuple[SourceFile, Format]], left_out: Sequence[LeftOut], last_start: bytes
) -> TraceFormatError:
    """Return the error for files among which there is no trace."""
    if left_out and left_out[0].why.endswith("no execution trace"):
        return _unrecognised_error(
            left_out[0].name, last_start if len(left_out) == 1 else b"?", len(left_out)
        )
    if left_out:
        return TraceFormatError(
            f"{left_out[0].name}: {left_out[0].why}.", hint="Make or copy the file again."
        )
    message = (
        f"{others[0][0].name}: only comm groups, no execution trace."
        if others
        else "No execution trace found."
    )
    return TraceFormatError(message, hint="Expected files such as job.0.et, job.1.et, …")


def _with_counted(ranks: dict[str, list[RankFile]]) -> dict[str, list[RankFile]]:
    """Give files without a rank the number that counts them, where their names differ in nothing else."""
    silent = {
        file.name: (file, fmt)
        for members in ranks.values()
        for file, fmt, number in members
        if number is None and not fmt.whole and not fmt.tells_ranks
    }
    counted = counted_numbers(list(silent))
    made = {
        key: kept
        for key, members in ranks.items()
        if (kept := [member for member in members if member[0].name not in counted])
    }
    for name, (stem, number) in counted.items():
        file, fmt = silent[name]
        made.setdefault(stem + fmt.job_mark, []).append((file, fmt, number))
    return made


def _believed(members: list[RankFile]) -> list[RankFile]:
    """Take back the numbers in names that cannot be ranks."""
    count = len({number for _, _, number in members} - {None})
    return [
        (file, fmt, number)
        if number is None or can_be_rank(number, count, None, said=says_rank(file.name))
        else (file, fmt, None)
        for file, fmt, number in members
    ]


def _key_without_rank(name: str) -> str:
    """Return the key that groups files without a rank in one folder."""
    return f"{_folder(name)}\0"


def _folder(name: str) -> str:
    """Return the folder part of a name, with a slash at its end."""
    return f"{PurePosixPath(name).parent}/"


_USUAL_FORMATS = ("chakra", "kineto", "pytorch", "rocprof", "xplane", "nsight", "text")
"""What people mostly open: messages name these formats first."""


def _unrecognised_error(name: str, start: bytes, count: int = 1) -> TraceFormatError:
    others = plugins()
    first = {name: place for place, name in enumerate(_USUAL_FORMATS)}
    usual = sorted(FORMATS, key=lambda fmt: first.get(fmt.name, len(first)))
    known = ", ".join(fmt.title for fmt in (*usual, *others.formats))
    message = f"{name}: not an execution trace; it looks like {looks_like(start)}."
    if count > 1:
        message = f"{format_counted(count, 'file')}, none of a known format, the first being {name}."
    elif not start:
        return TraceFormatError(f"{name}: an empty file, no bytes at all.", hint="Record or copy it again.")
    elif of_program := foreign(start):
        what, instead = of_program
        return TraceFormatError(f"{name}: {what}, which cannot be read.", hint=instead)
    hint = " ".join((f"Formats that can be opened: {known}.", *others.problems))
    return TraceFormatError(message, hint=hint)


def _job(
    prefix: str,
    members: list[RankFile],
    others: list[tuple[SourceFile, Format]],
    jobs: int,
) -> JobFiles:
    """Return one job, with the files beside it that describe the job as a whole."""
    prefix = prefix.removesuffix(members[0][1].job_mark)
    if "\x1e" in prefix:
        # Both sides of one rank tell no more than the words they share, a file alone its whole name.
        shared = PurePosixPath(prefix.partition("\x1e")[0])
        name = "" if len(members) == 1 else shared.name or _common_folder(members)
    elif "\0" in prefix:
        first = PurePosixPath(members[0][0].name)
        name = first.name.split(".")[0] if len(members) == 1 else first.parent.name
    else:
        name = PurePosixPath(prefix).name or PurePosixPath(prefix).parent.name
    name = name or name_of([file for file, _, _ in members])
    # One file of each folder: a path for each of thousands takes long.
    by_folder = {file.name.rpartition("/")[0]: file.name for file, _, _ in members}
    folders = {str(PurePosixPath(file).parent) for file in by_folder.values()}
    beside = [(file, fmt) for file, fmt in others if str(PurePosixPath(file.name).parent) in folders]
    own = [
        (file, fmt)
        for file, fmt in beside
        if PurePosixPath(file.name).name.split(".")[0] == name.split(".")[0]
    ]
    chosen = own or (beside if len(beside) == 1 else [])
    if not chosen and jobs == 1 and len(others) == 1:
        chosen = others
    return JobFiles(name, tuple(members), tuple(chosen))


def _common_folder(members: Sequence[RankFile]) -> str:
    """Return the name of the innermost folder that holds all files, "" where there is none."""
    folders = [PurePosixPath(file.name).parent.parts for file, _, _ in members]
    common = os.path.commonprefix(folders)  # noqa: RUF071 - of the parts, which are no characters
    return common[-1] if common else ""


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
    meter = _Meter(progress, sum(packed for packed, _ in sizes))
    total = sum(inflated for _, inflated in sizes)
    builder = _Builder(shelf, _onlooking(progress, job), contents)
    linking = (lambda done, total: progress("linking", done, total)) if progress else None
    with _executor_for(executor, job, sizes) as chosen:
        if chosen:
            _read_anew(job)
        by_several = _by_several(job, numbers) if chosen else []
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
            with collector_paused():
                _add_ranks(builder, job, numbers, _read_here(job.ranks, sizes, read_one))
    builder.refuse_all()
    builder.link(options, linking)
    _add_others(builder, job, total)
    return builder.trace(job, numbers)


def _read_anew(job: JobFiles) -> None:
    """Forget what was read of the files of ranks: others open them by path, and are sent no content."""
    for file, _, _ in job.ranks:
        file.start.take()


def _onlooking(progress: Progress | None, job: JobFiles) -> JobSeen | None:
    """Return what is to learn of the ranks of a job as they are read, None where nobody looks on."""
    seen = seen_by(progress)
    if seen:
        devices = sum(fmt.half == "device" for _, fmt, _ in job.ranks)
        several = any(fmt.whole for _, fmt, _ in job.ranks)
        seen.begin(0 if several else devices or len(job.ranks))
    return seen


def _add_ranks(
    builder: _Builder,
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
                builder.findings += rank_overridden(file.name, part.number, numbers.get(file.name))
                builder.add(part, numbers.get(file.name, of_file), alone=alone)


def _add_others(builder: _Builder, job: JobFiles, total: int) -> None:
    """Read the files that describe the job as a whole."""
    for file, fmt in job.others:
        parts = _read_or_refuse(
            file, fmt, measure_file(file), total=total, meter=_Meter(None, 0), size=UNSAID
        )
        if isinstance(parts, TraceFormatError):
            builder.refuse(file, parts)
            continue
        for part in parts:
            if isinstance(part, GroupsPart):
                builder.add_groups(part)
            elif isinstance(part, CopiesPart):
                builder.add_copies(part)


@contextmanager
def _executor_for(given: Executor | None, job: JobFiles, sizes: Sizes) -> Iterator[Executor | None]:
    """Yield the executor that reads a job: the one given, processes of this machine for large jobs, else none."""
    total = sum(inflated for _, inflated in sizes)
    largest = max((inflated for _, inflated in sizes), default=0)
    ratio = max((fmt.memory_ratio for _, fmt, _ in job.ranks), default=0)
    free = available_bytes()
    fits = free is None or processors() * largest * ratio < free
    least = 0 if all(fmt.half for _, fmt, _ in job.ranks) else _LEAST_BYTES * len(job.ranks)
    small = len(job.ranks) < 2 or total < max(_WORTH_PROCESSES, least)
    if given is not None:
        yield given
    elif small or processors() < 2 or not fits:
        yield None
    else:
        from studio.et.executors import start_local_processes

        with start_local_processes() as executor:
            yield executor


def _by_several(job: JobFiles, numbers: Mapping[str, int]) -> list[RankFiles]:
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
    with open_sources(given) as files:
        jobs = discover(files)
        if len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6]) + (", …" if len(jobs) > 6 else "")
            raise TraceError(
                f"{len(jobs)} jobs found, not one: {names}.", hint="Name the files of one of them."
            )
        size, numbers = JobSize(npus, passes), ranks_by_file(files, ranks or {})
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
    with open_sources(given) as files:
        all_jobs = discover(files)
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
        numbers = ranks_by_file(files, ranks or {})
        return read_job(jobs[0], ranks=numbers, progress=progress, options=options, executor=executor)


class _Meter:
    """Sums the bytes that were read and reports the total."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total = progress, max(total, 1)
        self._done: dict[str, int] = {}
        self._sum = 0

    def tick(self, name: str, done: int) -> None:
        """Record that `done` bytes of a file are read; raises what the progress callback raises."""
        self._sum += done - self._done.get(name, 0)
        self._done[name] = done
        self.look()

    def look(self) -> None:
        """Report what is known, for the callback to stop what goes on elsewhere."""
        if self._progress:
            self._progress("reading", min(self._sum, self._total), self._total)


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
    files: Sequence[RankFile], executor: Executor, total: int, meter: _Meter, size: JobSize
) -> Iterator[tuple[RankFile, list[Part] | TraceFormatError]]:
    """Yield the content of each file in order, or why it cannot be read: equal graphs are soon dropped."""
    from studio.et.executors import call_in_order

    calls = [(read_parts, (file, fmt, total, size)) for file, fmt, _ in files]
    for entry, parts in zip(files, call_in_order(executor, calls, meter.look), strict=True):
        meter.tick(entry[0].name, entry[0].path.stat().st_size)
        yield entry, parts


def read_parts(file: SourceFile, fmt: Format, total: int, size: JobSize) -> list[Part] | TraceFormatError:
    """Read one file; for executors."""
    return _read_or_refuse(file, fmt, measure_file(file), total=total, meter=_Meter(None, 0), size=size)


def _read_or_refuse(
    file: SourceFile, fmt: Format, measured: tuple[int, int], *, total: int, meter: _Meter, size: JobSize
) -> list[Part] | TraceFormatError:
    """Return the content of a file, or why it cannot be read: the other ranks may be whole."""
    try:
        return _read_file(file, fmt, measured, total=total, meter=meter, size=size)
    except TraceFormatError as error:
        meter.tick(file.name, measured[0])
        return error


def _read_file(
    file: SourceFile, fmt: Format, measured: tuple[int, int], *, total: int, meter: _Meter, size: JobSize
) -> list[Part]:
    packed_bytes, inflated = measured
    refuse_beyond_memory(file.name, inflated, fmt.memory_ratio)
    data, findings = load(file)
    share = packed_bytes / max(2 * len(data), 1)
    tick = lambda done: meter.tick(file.name, int(done * share))  # noqa: E731
    parts = fmt.read(Reading(file.name, data, total, tick, findings, size))
    meter.tick(file.name, packed_bytes)
    return parts


class _Builder:
    """Collects ranks and keeps equal graphs once."""

    def __init__(
        self,
        shelf: Shelf | None = None,
        seen: JobSeen | None = None,
        contents: dict[str, str] | None = None,
    ) -> None:
        self.shelf = shelf
        self.seen = seen
        self.contents = contents
        self.graphs_seen: dict[int, RankSeen] = {}
        self.graphs: list[Graph] = []
        self.known: dict[bytes, int] = {}
        self.by_times: dict[bytes, int] = {}
        # By identity, of graphs that are kept: files that are like one before share its graph, and need no digest,
        # or all columns but the ids, and need a digest of these alone.
        self.kept: dict[int, int] = {}
        self.shared: dict[tuple[int, ...], bytes] = {}
        # A digest of ids is only needed where those of two graphs begin and end alike.
        self.by_ends: dict[tuple[bytes, int, int, int], int] = {}
        self.ranks: list[tuple[Rank, int, int | None]] = []
        self.groups: tuple[CommGroup, ...] = ()
        self.copies: list[CopiesPart] = []
        self.findings: tuple[Finding, ...] = ()
        self.hosts: list[tuple[HostTrace, int | None]] = []
        self.devices: list[tuple[DeviceTrace, int | None]] = []
        self.refused: list[TraceFormatError] = []
        self.left_out: list[LeftOut] = []

    def refuse(self, file: SourceFile, error: TraceFormatError) -> None:
        """Leave out a file that cannot be read."""
        self.refused.append(error)
        why = error.message.removeprefix(f"{file.name}:").strip().rstrip(".")
        self.left_out.append(LeftOut(file.name, why, lost=True))
        if self.seen:
            self.seen.refused(file.name, why)

    def refuse_all(self) -> None:
        """Raise the error of the first file that cannot be read, if nothing else was."""
        if self.refused and not (self.ranks or self.hosts or self.devices):
            raise self.refused[0]

    def add_half(self, part: HostPart | DevicePart, named: int | None, given: int | None) -> None:
        """Add one side of a rank; the user's rank number wins over the file's, and that over its name's."""
        if isinstance(part, HostPart):
            number = named if given is None else given
            self.hosts.append((part.trace, number))
        else:
            named, given = (_rank_of_device(part.trace, process) for process in (named, given))
            of_file = named if part.trace.head.rank is None else part.trace.head.rank
            number = of_file if given is None else given
            self.findings += rank_overridden(part.trace.file, part.trace.head.rank, given)
            self.devices.append((part.trace, number))
        if self.seen and not (isinstance(part, HostPart) and self.devices):
            key = part.trace.file if number is None else number
            self.seen.rank(key, half_seen(part, number))
        self.findings += tuple(replace(finding, rank=number) for finding in part.findings)

    def link(self, options: LinkOptions | None, tick: Callable[[int, int], None] | None) -> None:
        """Link the sides of all ranks and add the results."""
        if not self.hosts and not self.devices:
            return
        self._settle_devices()
        # Loaded where it is needed: linking is half of what reading files could load.
        from studio.et.link.all_ranks import link_ranks

        parts, groups, findings = link_ranks(
            self.hosts, self.devices, options, tick or (lambda _done, _total: None)
        )
        if self.seen:
            self.seen.linked(len(parts))
        for part in parts:
            self.add(part, part.number, alone=len(parts) == 1)
        self.groups += groups
        self.findings += tuple(findings)

    def _settle_devices(self) -> None:
        """Number the devices of the only process of a job, and tell each rank which groups of its programs it is in."""
        first, number = self.devices[0] if self.devices else (None, None)
        alone = len({trace.file for trace, _ in self.devices}) == 1
        if alone and first is not None and first.head.place and number is None:
            count = first.head.place[1]
            self.devices = [(trace, _rank_of_device(trace, 0)) for trace, _ in self.devices]
            if first.head.world_size != count:
                message = f"{first.file}: not told which of the job's devices its {count} are; taken as ranks 0-{count - 1}."
                hint = "Give the number of the process by --rank FILE=NUMBER."
                self.findings += (Finding("info", "rank-assumed", message, hint, file=first.file),)
        untold = {trace.file for trace, _ in self.devices if trace.head.place and trace.head.rank is None}
        if untold and not alone:
            message = (
                f"{format_counted(len(untold), 'process', 'processes')} of several devices do not tell which of the job's these "
                "are: they are taken one process after another, and in comm groups as such. Numbers of TPUs follow their places "
                "instead: of these, members of groups may be others, while sizes of groups are right."
            )
            hint = "The number of a process is that in the name of its file, or --rank FILE=NUMBER."
            self.findings += (Finding("warning", "rank-assumed", message, hint),)
        if any(trace.head.backend == "xla" for trace, _ in self.devices):
            from studio.et.xla import settle_groups

            self.devices = [
                (settle_groups(trace, number or 0) if trace.head.backend == "xla" else trace, number)
                for trace, number in self.devices
            ]

    def link_files(
        self,
        job: JobFiles,
        ranks: Sequence[RankFiles],
        options: LinkOptions | None,
        meter: _Meter,
        tick: Callable[[int, int], None] | None,
        executor: Executor,
    ) -> bool:
        """Read and link the ranks by an executor; returns False if their names do not pair them."""
        from studio.et.link.parallel import Onlookers, link_files

        sizes = {file.name: file.path.stat().st_size for file, _, _ in job.ranks}
        onlookers = Onlookers(
            lambda name: meter.tick(name, sizes[name]) if name else meter.look(),
            tick or (lambda _done, _total: None),
            self.seen,
            self.contents,
        )
        with link_files(ranks, options or LinkOptions(), executor, onlookers, shelf=self.shelf) as made:
            if made is None:
                return False
            rank_of = {name: files.number for files in ranks for name in files.names}
            for file, _, _ in job.ranks:
                noticed = made.findings.get(file.name, ())
                self.findings += tuple(replace(finding, rank=rank_of[file.name]) for finding in noticed)
            for part, times in made.parts:
                self._add_linked(part, times)
            self.groups += made.settled.groups
            self.findings += tuple(made.settled.findings)
        return True

    def _add_linked(self, part: RankPart, times: bytes) -> None:
        """Add a rank that was linked elsewhere; its graph is on the shelf, where there is one, and goes if it is no new one.

        Recordings of two ranks hardly ever have the same times, so their graphs are not compared without need.
        """
        index = alike = self.by_times.setdefault(times, len(self.graphs))
        if alike < len(self.graphs):
            self.known.setdefault(b"".join(digests(self.graphs[alike])), alike)
            index = self.known.setdefault(b"".join(digests(part.graph)), len(self.graphs))
        if index == len(self.graphs):
            self.graphs.append(part.graph)
        elif self.shelf:
            self.shelf.drop(part.graph)
        self.ranks.append((part.rank, index, part.number))
        self.findings += tuple(replace(finding, rank=part.number) for finding in part.findings)

    def add_groups(self, part: GroupsPart) -> None:
        """Add comm groups."""
        self.groups += part.groups
        self.findings += part.findings

    def add_copies(self, part: CopiesPart) -> None:
        """Add ranks that have the graphs of others."""
        self.copies.append(part)
        self.findings += part.findings

    def add(self, part: RankPart, number: int | None, *, alone: bool = False) -> None:
        """Add a rank; the only rank of a job shares no graph."""
        index = self.kept.get(id(part.graph), NONE)
        if index == NONE:
            # By identity: equal ones are equal while they are kept.
            columns = tuple(map(id, columns_beside_ids(part.graph)))
            shared = self.shared.get(columns)
            if shared is None:
                shared = b"" if alone else digest(replace(part.graph, id=part.graph.id[:0]))
            index = self._graph_like(part.graph, shared)
            if index == len(self.graphs):
                self.graphs.append(part.graph)
                self.kept[id(part.graph)] = index
                self.shared[columns] = shared
        if self.seen and not alone:
            if index not in self.graphs_seen:
                self.graphs_seen[index] = graph_seen(part.graph, None)
            self.seen.rank(len(self.ranks), replace(self.graphs_seen[index], number=number))
        self.ranks.append((part.rank, index, number))
        self.findings += tuple(replace(finding, rank=number) for finding in part.findings)

    def _graph_like(self, graph: Graph, shared: bytes) -> int:
        """Return the place of an equal graph, that of the next one to come where there is none.

        Args:
            graph: The graph.
            shared: A digest of its columns but the ids.
        """
        ids = graph.id
        ends = (shared, len(ids), int(ids[0]), int(ids[-1])) if len(ids) else (shared, 0, 0, 0)
        alike = self.by_ends.setdefault(ends, len(self.graphs))
        if alike == len(self.graphs):
            return alike
        self.known.setdefault(shared + digest_array(self.graphs[alike].id), alike)
        return self.known.setdefault(shared + digest_array(ids), len(self.graphs))

    @collector_paused()
    def trace(self, job: JobFiles, given: Mapping[str, int]) -> Trace:
        """Return the finished trace, ranks in order; `given` are the rank numbers that the user gave to files."""
        # A file may hold several ranks.
        unknown = list(dict.fromkeys(rank.file for rank, _, number in self.ranks if number is None))
        findings = said_once(self.findings)
        if unknown and len(self.ranks) > 1:
            raise RanksNeededError(unknown)
        if unknown:
            findings.append(
                Finding("info", "rank-assumed", f"{unknown[0]}: no rank number; taken as rank 0.")
            )
        ranks = sorted(
            (place_rank(rank, number or 0, graph) for rank, graph, number in self.ranks),
            key=lambda rank: rank.number,
        )
        ranks = self._leave_out_claimed(ranks, given)
        for part in self.copies:
            from studio.et.copies import with_copies

            ranks = with_copies(ranks, part)
        findings += (*left_out_findings((*job.left_out, *self.left_out)), *plugins().findings())
        used = sorted({rank.graph for rank in ranks})
        place = {graph: index for index, graph in enumerate(used)}
        kept = tuple(
            rank if place[rank.graph] == rank.graph else place_rank(rank, rank.number, place[rank.graph])
            for rank in ranks
        )
        graphs = tuple(self.graphs[graph] for graph in used)
        # Every rank may list the groups that it knows, the same ones again.
        listed = tuple(dict.fromkeys(self.groups))
        return with_inferred_groups(Trace(graphs, kept, listed, tuple(findings)))

    def _leave_out_claimed(self, ranks: Sequence[Rank], given: Mapping[str, int]) -> list[Rank]:
        """Return the first of the ranks with each number, and list the files of the others as left out.

        Raises:
            TraceError: The user gave two files the same number.
        """
        kept: list[Rank] = []
        for rank in ranks:
            if not kept or kept[-1].number != rank.number:
                kept.append(rank)
                continue
            first = kept[-1]
            if {first.file, rank.file} <= given.keys():
                raise TraceError(
                    f"Rank {rank.number} is claimed by two files: {first.file} and {rank.file}.",
                    hint="Leave one of them out, or give --rank FILE=NUMBER.",
                )
            if (first.graph, first.slots) == (rank.graph, rank.slots):
                why = f"claims rank {rank.number} and holds the same nodes as {first.file}, which is used"
                self.left_out.append(LeftOut(rank.file, why, claims=rank.number))
                continue
            why = f"claims rank {rank.number} like {first.file}, which is used, and holds something else"
            self.left_out.append(LeftOut(rank.file, why, lost=True, claims=rank.number))
        return kept


def _rank_of_device(trace: DeviceTrace, process: int | None) -> int | None:
    """Return the rank of a device by the number of its process: those of a process follow each other."""
    if process is None or trace.head.place is None:
        return process
    place, count = trace.head.place
    return process * count + place


def left_out_findings(left_out: Sequence[LeftOut]) -> list[Finding]:
    """Return a finding for each file that was left out, the first ones one by one."""
    ordered = sorted(left_out, key=lambda file: not file.lost)
    findings = [_left_out_finding(file) for file in ordered[:_LEFT_OUT_NAMED]]
    if len(ordered) > _LEFT_OUT_NAMED:
        message = f"{len(ordered) - _LEFT_OUT_NAMED:,} more files were left out."
        findings.append(Finding("info", "ignored-file", message))
    return findings


def _left_out_finding(file: LeftOut) -> Finding:
    """Return the finding for a file that was left out."""
    message = f"{file.name}: {file.why}, left out."
    if file.claims is not None and file.lost:
        hint = "Leave one of them out, or give --rank FILE=NUMBER if it is another rank."
        return Finding("error", "repeated-rank", message, hint, rank=file.claims, file=file.name)
    if file.lost:
        return Finding("error", "unreadable-file", message, "Make or copy the file again.", file=file.name)
    level: Level = "warning" if file.is_missed else "info"
    return Finding(level, "ignored-file", message, rank=file.claims, file=file.name)


def _was_a_rank(name: str) -> bool:
    """Whether a file is called like a rank of a job."""
    return re.search(r"\.et(\.gz)?$", name) is not None


def with_inferred_groups(trace: Trace) -> Trace:
    """Add the comm groups that nodes name but no list defines, with the ranks that name them."""
    listed = {group.name for group in trace.groups}
    members: dict[str, list[int]] = {}
    # Graphs that differ in their ids alone share the rest, and there may be one for every rank.
    alike: dict[tuple[int, int], list[int]] = {}
    slots = []
    for graph in trace.graphs:
        key = (id(graph.slot_key), id(graph.strings))
        if key not in alike:
            alike[key] = _group_slots(graph)
        slots.append(alike[key])
    for rank in trace.ranks:
        for name in _names_at(rank, slots[rank.graph]):
            if name not in listed:
                members.setdefault(name, []).append(rank.number)
    if not members:
        return trace
    inferred = tuple(CommGroup(name, tuple(ranks), inferred=True) for name, ranks in members.items())
    names = ", ".join(repr(name) for name in list(members)[:5]) + (", …" if len(members) > 5 else "")
    finding = Finding(
        "info",
        "group-inferred",
        f"{len(members):,} comm groups are named by nodes but listed nowhere: {names}. "
        "Their members are taken to be the ranks that name them.",
        "Open the comm group JSON together with the traces to have the true order.",
    )
    return replace(trace, groups=trace.groups + inferred, findings=(*trace.findings, finding))


def _group_slots(graph: Graph) -> list[int]:
    """Return the slots of a graph that hold names of comm groups."""
    return [slot for slot, code in enumerate(graph.slot_key.tolist()) if graph.strings[code] in GROUP_KEYS]


def _names_at(rank: Rank, slots: Sequence[int]) -> list[str]:
    """Return the names that a rank has in these slots, each once."""
    return [name for name in dict.fromkeys(str(rank.slots[slot]) for slot in slots) if name]
