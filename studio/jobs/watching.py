"""Import what arrives in a folder: each job once, as soon as its files have not changed for a while.

Each entry of the folder is looked at by itself: a folder or an archive in it, and together the other files that lie in it
directly. Which files are one job is told by the files, as everywhere. What was seen is kept in the workspace
(`watched/<name>.json`), so that a watch that is begun again goes on where it was.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
from filelock import FileLock, Timeout

from studio.decoding import build_decoder
from studio.errors import ConfigError, StudioError, TraceError, TraceFormatError
from studio.et import JobFiles, Progress, discover
from studio.et.archive import is_litter
from studio.et.format import UNSAID, JobSize
from studio.files import PRIVATE_FILE, PRIVATE_FOLDER, read_file
from studio.jobs.importing import import_arrived
from studio.jobs.places import Place, Stamp
from studio.store.durable_files import escape_name, write_json
from studio.store.tasks import build_problem
from studio.store.workspace import Workspace

_LOOSE: Final = ""
"""The entry that stands for the files that lie in the folder directly."""
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_FIRST_DATE_S: Final = 631_152_000.0
"""1990: earlier dates are what archives put for none."""
_TRACES = (".et", ".json", ".gz", ".pb", ".pftrace", ".csv", *_ARCHIVES)
"""Endings of files that were meant to be traces, if they are none."""
_OF_THE_FILES = (TraceError, TraceFormatError, ConfigError, MemoryError)
"""Errors that stay until the files change; others may pass, such as a full disk."""


@dataclass(slots=True)
class Handled:
    """A job of a watched folder as it was last seen.

    Attributes:
        digest: Of the names, sizes and dates of its files.
        job: Its id in the workspace; "" where it could not be read.
        version: How many versions of it have come.
    """

    digest: str
    job: str
    version: int = 1


@dataclass(slots=True)
class _Record:
    """What is kept of a watched folder.

    Attributes:
        place: Which folder.
        jobs: Jobs by entry and name.
        entries: Entries that are done with, by the digest of their files.
        said: Files that were said to be of no job, by digest.
    """

    place: str
    jobs: dict[str, Handled] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)


_record = build_decoder(_Record)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A job that was imported.

    Attributes:
        job: Its id in the workspace.
        version: 1, or how many versions of these files have come.
    """

    job: str
    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Files that could not be read, or are of no job.

    Attributes:
        name: The file, or the entry of the folder; untrusted text.
        message, hint: Why, and what to do.
        is_lost: Whether it should have been a job; files of other kinds may lie in the folder as well.
    """

    name: str
    message: str
    hint: str = ""
    is_lost: bool = True


class Watch:
    """A folder that is watched, for one workspace; made by `watch_folder`."""

    def __init__(
        self,
        workspace: Workspace,
        place: Place,
        settle_s: float,
        size: JobSize = UNSAID,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Begin where an earlier watch of the folder ended.

        Args:
            workspace: Where to import.
            place: The folder.
            settle_s: How long the files of a job must not have changed.
            size: NPUs and passes, where a workload leaves them open.
            clock: Tells how long files were watched.
            now: Tells how old they are, in seconds since the epoch.
        """
        self.workspace, self.place, self.settle_s, self.size = workspace, place, settle_s, size
        self.pending: tuple[str, ...] = ()
        """Files that were still changing at the last look."""
        self._clock, self._now = clock, now
        self._path = _build_path(workspace, place)
        self._kept = self._load()
        self._seen: dict[str, tuple[Stamp, float]] = {}
        self._passing: set[tuple[str, str]] = set()
        self._trouble = False
        """Whether something of the entry that is looked at has to be tried again."""

    @property
    def jobs(self) -> list[str]:
        """Ids of the jobs that came from the folder, the last version of each."""
        return list(dict.fromkeys(known.job for known in self._kept.jobs.values() if known.job))

    def look(self, progress: Progress | None = None) -> Iterator[Arrived | Refused]:
        """Look once, and yield what has come, the oldest entry first.

        Args:
            progress: Told what is going on; may raise to stop.

        Raises:
            StudioError: The folder cannot be listed.
        """
        stamps = {name: stamp for name, stamp in self.place.stamps().items() if not is_litter(name)}
        settled = self._find_settled(stamps)
        self.pending = tuple(name for name in stamps if name not in settled)
        entries: dict[str, list[str]] = {}
        for name in stamps:
            entries.setdefault(_parse_entry(name), []).append(name)
        for entry, names in sorted(entries.items(), key=lambda item: _find_newest(stamps, item[1])):
            ready = [name for name in names if name in settled]
            # Of a folder all files have to be there; files that lie beside each other may come one job after another.
            if not ready or (entry != _LOOSE and len(ready) < len(names)):
                continue
            digest = self._compute_entry_digest(stamps, ready)
            if self._kept.entries.get(escape_name(entry)) == digest:
                continue
            yield from self._look_into(entry, names if entry == _LOOSE else ready, stamps, settled, progress)

    def _look_into(
        self,
        entry: str,
        names: Sequence[str],
        stamps: Mapping[str, Stamp],
        settled: set[str],
        progress: Progress | None,
    ) -> Iterator[Arrived | Refused]:
        self._trouble = False
        try:
            with self.place.open_files(names) as files:
                jobs = discover(files)
                jobs.sort(key=lambda job: _find_newest(stamps, _list_own_files(job, stamps)))
                for job, key, name in zip(jobs, _list_keys(jobs), _name_jobs(entry, jobs), strict=True):
                    own = _list_own_files(job, stamps)
                    if all(name in settled for name in own):
                        yield from self._take(key, replace(job, name=name), own, stamps, progress)
                yield from self._iterate_left_out(jobs, stamps, settled)
        except (StudioError, OSError, MemoryError) as error:
            # Of what is still being written nothing can be said yet.
            if all(name in settled for name in names):
                name = entry or self.place.name
                meant = any(file_name.lower().endswith(_TRACES) for file_name in names)
                for event in self._refuse(name, error):
                    yield event if meant else replace(event, hint="", is_lost=False)
            else:
                self._trouble = True
        if not self._trouble:
            ready = [name for name in names if name in settled]
            self._kept.entries[escape_name(entry)] = self._compute_entry_digest(stamps, ready)
            self._save()

    def _take(
        self,
        key: str,
        job: JobFiles,
        own: Sequence[str],
        stamps: Mapping[str, Stamp],
        progress: Progress | None,
    ) -> Iterator[Arrived | Refused]:
        """Import a job, unless these very files were seen."""
        is_open = any(fmt.whole for _, fmt, _ in job.ranks)
        digest = _compute_digest(stamps, own) + (self._said_size if is_open else "")
        known = self._kept.jobs.get(key)
        if known is not None and known.digest == digest:
            return
        before = 0 if known is None else known.version
        source = "\n".join(sorted({f"{self.place.name}/{name}" for name in own})[:100])
        try:
            job_id = import_arrived(
                self.workspace, job, source, _clean_date(stamps, own), progress, size=self.size
            )
        except Exception as error:  # noqa: BLE001 - whatever one file brings about must not end the watch of the others
            if isinstance(error, _OF_THE_FILES) or not isinstance(error, StudioError | OSError):
                self._kept.jobs[key] = Handled(digest, "" if known is None else known.job, before)
                self._save()
            yield from self._refuse(job.name, error)
            return
        # Files that were only touched, or copied there again, are the same job.
        is_new = known is None or known.job != job_id
        self._kept.jobs[key] = Handled(digest, job_id, before + is_new)
        self._save()
        if is_new:
            yield Arrived(job_id, before + 1)

    def _compute_entry_digest(self, stamps: Mapping[str, Stamp], names: Sequence[str]) -> str:
        return _compute_digest(stamps, names) + self._said_size

    @property
    def _said_size(self) -> str:
        """What tells files that were refused for want of a size from the same ones with it."""
        return "" if self.size == UNSAID else f" {self.size.npus} {self.size.passes}"

    def _iterate_left_out(
        self, jobs: Sequence[JobFiles], stamps: Mapping[str, Stamp], settled: set[str]
    ) -> Iterator[Refused]:
        for job in jobs:
            for file in job.left_out:
                own = _find_own_file(file.name, stamps)
                if own not in settled:
                    continue
                digest = _compute_digest(stamps, [own])
                key = escape_name(file.name)
                if self._kept.said.get(key) != digest:
                    self._kept.said[key] = digest
                    yield Refused(file.name, f"{file.name}: {file.why}.", is_lost=file.is_missed)

    def _refuse(self, name: str, error: Exception) -> Iterator[Refused]:
        """Yield why something was refused; what may pass is said once by a watch, and tried again."""
        hint = ""
        if isinstance(error, StudioError):
            message, hint = error.message, error.hint
        elif isinstance(error, OSError):
            message = f"{error.filename or name}: {error.strerror or error}."
        else:
            problem = build_problem("import", error)
            message, hint = problem.message, problem.hint
        if isinstance(error, StudioError | OSError) and not isinstance(error, _OF_THE_FILES):
            self._trouble = True
            if (name, message) in self._passing:
                return
            self._passing.add((name, message))
        yield Refused(name, message if name in message else f"{name}: {message}", hint)

    def _find_settled(self, stamps: Mapping[str, Stamp]) -> set[str]:
        """Return the files that have not changed for a while: by their own dates, or as long as they were watched."""
        clock, now_ns, settle_ns = self._clock(), int(self._now() * 1e9), int(self.settle_s * 1e9)
        settled, seen = set(), {}
        for name, stamp in stamps.items():
            before = self._seen.get(name)
            since = before[1] if before is not None and before[0].key == stamp.key else clock
            seen[name] = stamp, since
            is_old = stamp.changed_ns > 0 and now_ns - stamp.changed_ns >= settle_ns
            if is_old or clock - since >= self.settle_s:
                settled.add(name)
        self._seen = seen
        return settled

    def _load(self) -> _Record:
        try:
            return _record(read_file(self._path))
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            # Without it everything is looked at again; what was imported is known by its content.
            return _Record(escape_name(self.place.name))

    def _save(self) -> None:
        self._path.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
        # After a power cut it may be lost: then everything is looked at again, and known by its content.
        write_json(self._path, self._kept, durable=False)


@contextmanager
def watch_folder(
    workspace: Workspace, place: Place, settle_s: float, size: JobSize = UNSAID
) -> Iterator[Watch]:
    """Watch a folder for a workspace, alone.

    Raises:
        StudioError: It is watched already, or the workspace cannot be written.
    """
    path = _build_path(workspace, place)
    path.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0, mode=PRIVATE_FILE):
            yield Watch(workspace, place, settle_s, size)
    except Timeout as error:
        raise StudioError(
            f"{place.name} is being watched already, for the workspace {workspace.root}.",
            hint="End the other watch, or choose another workspace with --workspace DIR.",
        ) from error


def _build_path(workspace: Workspace, place: Place) -> Path:
    mark = hashlib.blake2b(place.name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    words = re.sub(r"[^A-Za-z0-9]+", "-", place.name.rstrip("/").rpartition("/")[2]).strip("-")[:40]
    return workspace.root / "watched" / f"{words or 'folder'}-{mark}.json"


def _parse_entry(name: str) -> str:
    """Return the entry of the watched folder that a file belongs to."""
    first, _, rest = name.partition("/")
    return first if rest or first.lower().endswith(_ARCHIVES) else _LOOSE


def _list_keys(jobs: Sequence[JobFiles]) -> list[str]:
    """Return what jobs are known by from one look to the next: folder and name, and where several share them a file."""
    files = [PurePosixPath(min(file.name for file, _, _ in job.ranks)) for job in jobs]
    places = [escape_name(f"{file.parent}/{job.name}") for file, job in zip(files, jobs, strict=True)]
    shared = Counter(places)
    return [
        place if shared[place] == 1 else f"{place}/{escape_name(file.name)}"
        for place, file in zip(places, files, strict=True)
    ]


def _name_jobs(entry: str, jobs: Sequence[JobFiles]) -> list[str]:
    """Return the names of the jobs of an entry: the entry's name, then folders and job names where they add something."""
    stem = entry
    for ending in sorted(_ARCHIVES, key=len, reverse=True):
        if entry.lower().endswith(ending):
            stem = entry[: -len(ending)]
            break
    shared = Counter(job.name for job in jobs)
    names = []
    for job in jobs:
        if not stem or stem == job.name:
            names.append(job.name)
        elif len(jobs) == 1 and _says_nothing(job):
            names.append(stem)
        else:
            _, *between = PurePosixPath(job.ranks[0][0].name).parent.parts or ("",)
            names.append("/".join([stem, *(between if shared[job.name] > 1 else ()), job.name]))
    return names


def _says_nothing(job: JobFiles) -> bool:
    """Whether a job's name is made of kinds of files or of nothing but `rank`, which the folder's name says better."""
    words = set(re.split(r"[^a-z]+", job.name.lower())) - {""}
    return words <= {
        "rank",
        "et",
        "kineto",
        "pytorch",
        "trace",
        "traces",
        "chakra",
        "host",
        "device",
        "job",
        "worker",
    }


def _find_own_file(name: str, stamps: Mapping[str, Stamp]) -> str:
    """Return the file of the folder that a file is, or was unpacked from."""
    while name not in stamps and "/" in name:
        name = name.rpartition("/")[0]
    return name


def _list_own_files(job: JobFiles, stamps: Mapping[str, Stamp]) -> list[str]:
    files = [file for file, _, _ in job.ranks] + [file for file, _ in job.others]
    return sorted({own for file in files if (own := _find_own_file(file.name, stamps)) in stamps})


def _find_newest(stamps: Mapping[str, Stamp], names: Sequence[str]) -> float:
    """Return when the last of some files was written, in seconds since the epoch."""
    return max((stamps[name].modified_ns for name in names), default=0) / 1e9


def _clean_date(stamps: Mapping[str, Stamp], names: Sequence[str]) -> float:
    """Return the same, 0 for a date that stands for none, as archives have it."""
    newest = _find_newest(stamps, names)
    return newest if newest >= _FIRST_DATE_S else 0.0


def _compute_digest(stamps: Mapping[str, Stamp], names: Sequence[str]) -> str:
    keys = [(name, *stamps[name].key) for name in sorted(names)]
    text = "\0".join(map(str, keys)).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
