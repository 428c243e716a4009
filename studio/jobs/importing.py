"""Import jobs from paths, samples and uploads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from studio.errors import StudioError, TraceFormatError
from studio.et import JobFiles, Progress, discover, read_job
from studio.et.each_job import UnreadError, read_each
from studio.et.format import JobSize
from studio.et.ranks import index_ranks_by_file
from studio.et.seen import get_seen
from studio.et.source import SourceFile, label_paths, mark_content, measure_file, open_sources
from studio.samples import RECORDING, SAMPLES, sample_path
from studio.store.workspace import Workspace

_WORTH_THREADS = 1 << 20
"""Bytes a file from which on the checksums of two are computed at a time."""
_WORTH_ONCE = 1 << 30
"""Bytes of a job's files from which on each had better be read once: the first are no longer in memory when the last are read."""
_FILES = "files:"
"""How the fingerprints of jobs that were read from files begin."""


def open_paths(
    workspace: Workspace,
    paths: Sequence[Path | str],
    *,
    ranks: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    size: JobSize | None = None,
    refused: Callable[[UnreadError], object] = lambda _error: None,
) -> list[str]:
    """Import every job at `paths`; files already imported and unchanged are not read again.

    Args:
        workspace: Where to.
        paths: Files, folders or archives.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        progress: Told what is going on; may raise to stop, which leaves out the job at hand and those after it.
        size: NPUs and passes, where a workload leaves them open.
        refused: Told why a job cannot be read, where others can be.

    Returns:
        Ids of the jobs, in the order they were found.
    """
    with open_sources(paths, progress) as files:
        user_input = _Said(index_ranks_by_file(files, ranks or {}), size)
        given = label_paths([Path(path) for path in paths])

        def read(job: JobFiles) -> str:
            return _import(workspace, job, "\n".join(_select_paths(job, given)), user_input, progress)

        return read_each(discover(files, progress), read, lambda _, error: refused(error))


def _select_paths(job: JobFiles, given: Sequence[tuple[str, Path]]) -> list[str]:
    """Return those of the `given` paths, with their labels, that files of a job were found at."""
    if len(given) == 1:
        return [str(path) for _, path in given]
    labels = {label for label, _ in given}
    used: set[str] = set()
    for name in _list_file_names(job):
        # The label of a file is its name; that of a folder or archive is what its name begins with.
        parts = name.split("/")
        used |= {start for end in range(1, len(parts) + 1) if (start := "/".join(parts[:end])) in labels}
    return [str(path) for label, path in given if label in used]


def _list_file_names(job: JobFiles) -> list[str]:
    """Return the names of the files of a job, of its ranks and of the whole."""
    return [file.name for file, _, _ in job.ranks] + [file.name for file, _ in job.others]


def import_arrived(
    workspace: Workspace,
    job: JobFiles,
    source: str,
    recorded: float,
    progress: Progress | None = None,
    *,
    size: JobSize | None = None,
) -> str:
    """Import one job whose files are known; returns its id, of the job that is there where its files were imported before.

    Args:
        workspace: Where to.
        job: Its files.
        source: Where they are, for the user.
        recorded: When they were written, seconds since the epoch.
        progress: Told what is going on; may raise to stop.
        size: NPUs and passes, where a workload leaves them open.

    Raises:
        StudioError: A file cannot be read, or the workspace cannot be written.
    """
    return _import(workspace, job, source, _Said({}, size), progress, recorded)


def open_sample(workspace: Workspace, name: str) -> str:
    """Import a sample unless it exists; returns its id."""
    sample = next(
        candidate for candidate in (*SAMPLES, RECORDING) if candidate.name == sample_path(name).stem
    )
    known = workspace.find(_compute_sample_mark(name))
    if known:
        return known.id
    with open_sources([sample_path(name)]) as files:
        trace = read_job(discover(files)[0])
    return workspace.save(trace, sample.title, source="sample", fingerprint=_compute_sample_mark(name))


def _compute_sample_mark(name: str) -> str:
    return "sample:" + hashlib.blake2b(sample_path(name).read_bytes(), digest_size=16).hexdigest()


class ImportProgress(Protocol):
    """Progress and warnings of an import, for the reader of uploads."""

    ranks: Mapping[str, int]
    npus: int | None

    def __call__(self, phase: str, done: int, total: int, message: str = "") -> None:
        """Report progress."""

    def warn(self, message: str) -> None:
        """Add a sentence that is shown with the finished import."""

    def files_sorted(self, used: Mapping[Path, str], left_out: Mapping[Path, str]) -> None:
        """Show what each file is used as, and which are no part of the job, and why."""

    def file_failed(self, file: SourceFile, error: StudioError) -> None:
        """Show an error beside one file."""


def upload_reader(
    workspace: Workspace, imported: Callable[[str], object] = lambda _job: None
) -> Callable[[list[SourceFile], ImportProgress], str]:
    """Return the function that imports uploaded files; it returns the id of the first job.

    Args:
        workspace: Where to.
        imported: Told the id of each job that is there.
    """

    def read(files: list[SourceFile], progress: ImportProgress) -> str:
        jobs = discover(files)
        reasons = {file.name: file.why for job in jobs for file in job.left_out}
        roles = _map_roles(jobs)
        # Of two members of an archive that have one name the last is used.
        progress.files_sorted(
            roles,
            {
                file.path: f"{file.name}: {file.problem or reasons[file.name]}"
                for file in files
                if file.name in reasons and file.path not in roles
            },
        )
        user_input = _Said(progress.ranks, JobSize(progress.npus))

        def read_one(job: JobFiles) -> tuple[str, str]:
            # Folders and archives by their own name, which is what was dropped.
            source = "\n".join(dict.fromkeys(name.partition("/")[0] for name in _list_file_names(job)))
            job_id = _import(workspace, job, source, user_input, progress)
            _tell_damaged(workspace, job_id, files, progress)
            return job_id, job.name

        def tell_refused(job: JobFiles, error: UnreadError) -> None:
            for file, _, _ in job.ranks:
                progress.file_failed(file, error)

        results = read_each(jobs, read_one, tell_refused, can_ask=True)
        for job_id, _ in results:
            imported(job_id)
        if len(results) > 1:
            progress.warn(
                f"{len(results)} jobs were found and imported: {', '.join(name for _, name in results)}."
            )
        return results[0][0]

    return read


def _tell_damaged(
    workspace: Workspace, job_id: str, files: Sequence[SourceFile], progress: ImportProgress
) -> None:
    """Show beside the files of a job that is there what could not be read of them."""
    of = {file.name: file for file in files}
    with suppress(StudioError):  # it was deleted meanwhile
        for finding in workspace.load(job_id).findings:
            if finding.level == "error" and finding.file in of:
                progress.file_failed(of[finding.file], TraceFormatError(finding.message, hint=finding.hint))


def _map_roles(jobs: Sequence[JobFiles]) -> dict[Path, str]:
    """Return the role of each file by path, as far as it is known before reading."""
    roles: dict[Path, str] = {}
    for job in jobs:
        ranks = [(file, fmt, "" if number is None else f"rank {number}, ") for file, fmt, number in job.ranks]
        for file, fmt, rank in (*ranks, *((file, fmt, "") for file, fmt in job.others)):
            of_job = f", job {job.name}" if len(jobs) > 1 else ""
            roles[file.path] = f"{rank}{fmt.title}{of_job}"
    return roles


@dataclass(frozen=True, slots=True)
class _Said:
    """Rank numbers and job size given by the user."""

    ranks: Mapping[str, int]
    size: JobSize | None = None


def _import(
    workspace: Workspace,
    job: JobFiles,
    source: str,
    user_input: _Said,
    progress: Progress | None,
    recorded: float = 0.0,
) -> str:
    if seen := get_seen(progress):
        # What it knows is of the job before.
        seen.begin(0)
    mark, size_bytes = "", _sum_file_sizes(job)
    contents: dict[str, str] = {}
    if not _is_read_once(job, size_bytes) or _may_be_known(workspace, size_bytes):
        mark = compute_fingerprint(job, user_input.ranks, progress, user_input.size)
        known = workspace.find(mark)
        if known:
            return known.id
    tick = (lambda done, total: progress("storing", done, total)) if progress else None
    with workspace.shelf(job.name) as shelf:
        trace = read_job(
            job,
            ranks=user_input.ranks,
            progress=progress,
            size=user_input.size,
            shelf=shelf,
            contents=None if mark else contents,
        )
        # Whoever looks on has been told that the files were read.
        mark = mark or compute_fingerprint(
            job, user_input.ranks, None if contents else progress, user_input.size, contents
        )
        return workspace.save(
            trace,
            job.name,
            source=source,
            fingerprint=mark,
            tick=tick,
            recorded=recorded,
            shelf=shelf,
            source_bytes=size_bytes,
        )


def _sum_file_sizes(job: JobFiles) -> int:
    """Return the bytes of the files that tell a job from others."""
    files = [file for file, _, _ in job.ranks] + [file for file, _ in job.others]
    return sum(measure_file(file)[0] for file in files)


def _is_read_once(job: JobFiles, size_bytes: int) -> bool:
    """Whether the files of a job are read by others, who can tell their checksums, and are so many that this pays."""
    return size_bytes >= _WORTH_ONCE and all(fmt.half for _, fmt, _ in job.ranks)


def _may_be_known(workspace: Workspace, size_bytes: int) -> bool:
    """Whether a job of the workspace may have been read from files of so many bytes; older jobs do not say."""
    return any(
        info.source_bytes in (0, size_bytes)
        for info in workspace.jobs()
        if info.fingerprint.startswith(_FILES)
    )


def compute_fingerprint(
    job: JobFiles,
    ranks: Mapping[str, int],
    progress: Progress | None = None,
    size: JobSize | None = None,
    contents: Mapping[str, str] | None = None,
) -> str:
    """Return a fingerprint of a job: contents of its files, rank numbers, and name.

    Where they lie and in which order they are given does not count, nor when they were changed: a copy is the same job, and a trace that was written
    anew with one duration changed is another.

    Args:
        job: The job.
        ranks: Rank numbers by file name, where the user has told them.
        progress: Told the bytes that were looked at; may raise to stop.
        size: NPUs and passes, where a workload leaves them open.
        contents: Checksums of contents by file name, as far as they are known from when the files were read.
    """
    numbered = [(file, str(ranks.get(file.name, number))) for file, _, number in job.ranks]
    numbered += [(file, "job") for file, _ in job.others]
    files = [file for file, _ in numbered]
    sizes = [measure_file(file)[0] for file in files]
    done, total = 0, sum(sizes)
    marks = []
    known = contents or {}

    def mark(file: SourceFile) -> str:
        return known.get(file.name) or mark_content(file)

    # Handing over a small file takes longer than reading it.
    at_once = 2 if total > _WORTH_THREADS * len(files) else 1
    with ThreadPoolExecutor(max_workers=2) as pool:
        try:
            computed = pool.map(mark, files) if at_once > 1 else map(mark, files)
            for (file, number), size_bytes, content in zip(numbered, sizes, computed, strict=True):
                marks.append(f"{file.name.rpartition('/')[2]}\0{number}\0{content}")
                done += size_bytes
                if progress:
                    progress("checking", done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if any(fmt.whole for _, fmt, _ in job.ranks) and size is not None:
        marks.append(f"npus {size.npus}, passes {size.passes}")
    whole = "\0".join([job.name, *sorted(marks)]).encode("utf-8", "surrogateescape")
    return f"{_FILES}{hashlib.blake2b(whole, digest_size=16).hexdigest()}"
