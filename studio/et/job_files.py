"""Sort files into jobs: by what they say of themselves, else by folder and name."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.foreign import describe_unrecognised, find_foreign
from studio.et.format import HEAD_BYTES, Format
from studio.et.halves import Half, find_common_name, find_copies, find_doubles, make_half, sort_halves
from studio.et.known import FORMATS, find_format
from studio.et.naming import name_by_file, name_of
from studio.et.plugins import Plugins, load_installed
from studio.et.rank_names import can_be_rank, find_counted_numbers, parse_rank_and_prefix, says_rank
from studio.et.reading_meter import Progress
from studio.et.recordings import separate_recordings
from studio.et.source import SourceFile, read_head, report_looking
from studio.trace import Finding, Level
from studio.units import format_counted

_LEFT_OUT_NAMED = 100
"""Files left out that are named one by one; the rest is counted."""

RankFile = tuple[SourceFile, Format, int | None]
"""The file of a rank, its format, and the rank number in its name, if there is one."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not part of any job.

    Attributes:
        name: `SourceFile.name`.
        why: The reason, in words that follow its name and a colon.
        lost: Whether what it held of the job is lost.
        claims: The rank that it claims like another file, None where it claims none twice.
        hint: What to do about what is lost; empty to advise another copy.
    """

    name: str
    why: str
    lost: bool = False
    claims: int | None = None
    hint: str = ""

    @property
    def is_missed(self) -> bool:
        """Whether what it held of the job is lost, or seems to be: it is called like a rank and holds none."""
        return self.lost or (self.claims is None and _is_named_as_rank(self.name))


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
    return find_format(start) or (
        next((fmt for fmt in load_plugins().formats if fmt.sniff(start)), None) if start else None
    )


def load_plugins() -> Plugins:
    """Return the formats of other packages that are installed."""
    return load_installed(frozenset(fmt.name for fmt in FORMATS))


@pause_collector()
def discover(files: Sequence[SourceFile], progress: Progress | None = None) -> list[JobFiles]:
    """Sort files into jobs: by what they say of themselves, else one per folder and name before the rank.

    Files of no known format are left out, and listed with the reason.

    Args:
        files: The files.
        progress: Told how many of very many files were looked at; may raise to stop.

    Raises:
        TraceFormatError: There is no trace at all.
    """
    ranks: dict[str, list[RankFile]] = {}
    halves: list[Half] = []
    others: list[tuple[SourceFile, Format]] = []
    alone: list[tuple[SourceFile, Format]] = []
    left_out: list[LeftOut] = []
    first_start = b""
    for file in report_looking(files, "sorting", progress):
        start = b"" if file.problem else read_head(file)
        fmt = None if file.problem else recognise(start)
        if fmt is None:
            first_start = first_start or start
            left_out.append(
                LeftOut(
                    file.name,
                    file.problem or f"{describe_unrecognised(start, file.name)}, no execution trace",
                    lost=file.is_lost,
                )
            )
        elif fmt.describes_job:
            others.append((file, fmt))
        elif fmt.half:
            halves.append(make_half(file, fmt, start))
        elif fmt.by_itself:
            alone.append((file, fmt))
        else:
            key, number = _infer_job_key(file.name, fmt)
            ranks.setdefault(key, []).append((file, fmt, number))
    if ranks or halves:
        left_out += [LeftOut(file.name, f"{fmt.title}, which is opened by itself") for file, fmt in alone]
    else:
        ranks = {_infer_job_key(file.name, fmt)[0]: [(file, fmt, None)] for file, fmt in alone}
    copies = find_copies(halves)
    left_out += [
        LeftOut(name, f"the recording of {other}, which says more") for name, other in copies.items()
    ]
    halves = [half for half in halves if half.file.name not in copies]
    doubles = find_doubles(halves)
    left_out += [LeftOut(name, f"the same file as {other}, byte for byte") for name, other in doubles.items()]
    halves = [half for half in halves if half.file.name not in doubles]
    ranks = _number_counted(ranks)
    ranks = {key: _drop_wrong_ranks(members) for key, members in ranks.items()}
    apart = [part for group in sort_halves(halves) for part in separate_recordings(group)]
    for index, group in enumerate(apart):
        ranks[f"{find_common_name(group)}\x1e{index}"] = [
            (half.file, half.fmt, half.number) for half in group
        ]
    if not ranks:
        raise _build_nothing_error(others, left_out, first_start)
    jobs = _name_apart([_build_job(prefix, members, others, len(ranks)) for prefix, members in ranks.items()])
    shared = share_left_out(jobs, left_out)
    return [replace(job, left_out=tuple(files)) for job, files in zip(jobs, shared, strict=True)]


def _infer_job_key(name: str, fmt: Format) -> tuple[str, int | None]:
    """Return what files of one job have in common, and the rank that a file's name tells."""
    if fmt.whole:
        return f"{_parse_folder(name)}\0{PurePosixPath(name).name}", None
    if fmt.tells_ranks:
        return _build_unranked_key(name) + fmt.job_mark, None
    prefix, number = parse_rank_and_prefix(name)
    return (prefix if number is not None else _build_unranked_key(name)) + fmt.job_mark, number


def share_left_out(jobs: Sequence[JobFiles], left_out: Sequence[LeftOut]) -> list[list[LeftOut]]:
    """Give each file that is left out to the one job that it lies nearest to; there is at least one."""
    if not left_out or not jobs:
        return [[] for _ in jobs]
    # The folders of each job once: there may be a thousand ranks in one.
    folders = [{PurePosixPath(file.name).parent.parts for file, _, _ in job.ranks} for job in jobs]
    shared: list[list[LeftOut]] = [[] for _ in jobs]
    for file in left_out:
        own = PurePosixPath(file.name).parent.parts
        distances = [min(_count_steps(own, each) for each in folder) for folder in folders]
        shared[distances.index(min(distances))].append(file)
    return shared


def _count_steps(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """Return how many folders lie on the way from one to another."""
    common = len(os.path.commonprefix([first, second]))  # noqa: RUF071 - of the parts, which are no characters
    return len(first) + len(second) - 2 * common


def _build_nothing_error(
    others: Sequence[tuple[SourceFile, Format]], left_out: Sequence[LeftOut], first_start: bytes
) -> TraceFormatError:
    """Return the error for files among which there is no trace."""
    unknown = [file for file in left_out if file.why.endswith("no execution trace")]
    lost = [file for file in left_out if file.lost]
    if unknown and not lost:
        return _build_unrecognised_error(unknown[0].name, first_start, len(left_out))
    if left_out:
        first = (*lost, *left_out)[0]
        return TraceFormatError(f"{first.name}: {first.why}.", hint="Make or copy the file again.")
    message = (
        f"{others[0][0].name}: only comm groups, no execution trace."
        if others
        else "No execution trace found."
    )
    return TraceFormatError(message, hint="Expected files such as job.0.et, job.1.et, …")


def _number_counted(ranks: dict[str, list[RankFile]]) -> dict[str, list[RankFile]]:
    """Give files without a rank the number that counts them, where their names differ in nothing else."""
    silent = {
        file.name: (file, fmt)
        for members in ranks.values()
        for file, fmt, number in members
        if number is None and not fmt.whole and not fmt.tells_ranks
    }
    counted = find_counted_numbers(list(silent))
    members_by_key = {
        key: kept
        for key, members in ranks.items()
        if (kept := [member for member in members if member[0].name not in counted])
    }
    for name, (stem, number) in counted.items():
        file, fmt = silent[name]
        members_by_key.setdefault(stem + fmt.job_mark, []).append((file, fmt, number))
    return members_by_key


def _drop_wrong_ranks(members: list[RankFile]) -> list[RankFile]:
    """Take back the numbers in names that cannot be ranks."""
    count = len({number for _, _, number in members} - {None})
    return [
        (file, fmt, number)
        if number is None or can_be_rank(number, count, None, is_said=says_rank(file.name))
        else (file, fmt, None)
        for file, fmt, number in members
    ]


def _build_unranked_key(name: str) -> str:
    """Return the key that groups files without a rank in one folder."""
    return f"{_parse_folder(name)}\0"


def _parse_folder(name: str) -> str:
    """Return the folder part of a name, with a slash at its end."""
    return f"{PurePosixPath(name).parent}/"


_USUAL_FORMATS = ("chakra", "kineto", "pytorch", "rocprof", "rocpd", "xplane", "nsight", "text")
"""What people mostly open: messages name these formats first."""


def _build_unrecognised_error(name: str, start: bytes, count: int = 1) -> TraceFormatError:
    others = load_plugins()
    first = {name: place for place, name in enumerate(_USUAL_FORMATS)}
    usual = sorted(FORMATS, key=lambda fmt: first.get(fmt.name, len(first)))
    known = ", ".join(fmt.title for fmt in (*usual, *others.formats))
    message = f"{name}: not an execution trace; it looks like {describe_unrecognised(start, name)}."
    if count > 1:
        # Of many one alone would not be all there is to do, but it is where to begin.
        counted = f"{format_counted(count, 'file')}, none of a known format, the first being {name}"
        if of_program := find_foreign(start, name):
            return TraceFormatError(f"{counted}: {of_program[0]}.", hint=of_program[1])
        message = f"{counted}."
    elif not start:
        return TraceFormatError(f"{name}: an empty file, no bytes at all.", hint="Record or copy it again.")
    elif of_program := find_foreign(start, name):
        what, instead = of_program
        return TraceFormatError(f"{name}: {what}, which cannot be read.", hint=instead)
    hint = " ".join((f"Formats that can be opened: {known}.", *others.problems))
    return TraceFormatError(message, hint=hint)


def _build_job(
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
        name = "" if len(members) == 1 else shared.name or _find_common_folder(members)
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


def _name_apart(jobs: Sequence[JobFiles]) -> list[JobFiles]:
    """Call recordings of one file each that would be called the same by the whole names of their files, if these differ."""
    alone = [job for job in jobs if len(job.ranks) == 1 and job.ranks[0][1].half]
    names = {id(job): name_by_file(job.ranks[0][0]) for job in alone}
    shared = Counter(job.name for job in jobs)
    whole = Counter(names.values())
    return [
        replace(job, name=names[id(job)])
        if id(job) in names and shared[job.name] > 1 and whole[names[id(job)]] == 1
        else job
        for job in jobs
    ]


def _find_common_folder(members: Sequence[RankFile]) -> str:
    """Return the name of the innermost folder that holds all files, "" where there is none."""
    folders = [PurePosixPath(file.name).parent.parts for file, _, _ in members]
    common = os.path.commonprefix(folders)  # noqa: RUF071 - of the parts, which are no characters
    return common[-1] if common else ""


def build_left_out_findings(left_out: Sequence[LeftOut]) -> list[Finding]:
    """Return a finding for each file that was left out, the first ones one by one."""
    ordered = sorted(left_out, key=lambda file: not file.lost)
    findings = [_build_left_out_finding(file) for file in ordered[:_LEFT_OUT_NAMED]]
    if len(ordered) > _LEFT_OUT_NAMED:
        more = len(ordered) - _LEFT_OUT_NAMED
        message = f"{format_counted(more, 'more file')} {'was' if more == 1 else 'were'} left out."
        findings.append(Finding("info", "ignored-file", message))
    return findings


def _build_left_out_finding(file: LeftOut) -> Finding:
    """Return the finding for a file that was left out."""
    message = f"{file.name}: {file.why}, left out."
    if file.claims is not None and file.lost:
        hint = "Leave one of them out, or give --rank FILE=NUMBER if it is another rank."
        return Finding("error", "repeated-rank", message, hint, rank=file.claims, file=file.name)
    if file.lost:
        hint = file.hint or "Make or copy the file again."
        return Finding("error", "unreadable-file", message, hint, file=file.name)
    level: Level = "warning" if file.is_missed else "info"
    return Finding(level, "ignored-file", message, rank=file.claims, file=file.name)


def _is_named_as_rank(name: str) -> bool:
    """Whether a file is called like a rank of a job."""
    return re.search(r"\.et(\.gz)?$", name) is not None
