"""The workspace: a folder of imported jobs, shared by the web app and the command line.

    jobs/<id>/job.json      name, dates, sizes, summary: all that a list of jobs shows
    jobs/<id>/trace.json    ranks, comm groups, findings
    jobs/<id>/graphs.arrow  one record batch per distinct graph, one list column per array of the graph
    tmp/<id>/               a job being written; renamed to jobs/<id> when it is complete
    tmp/<id>.<random>       what replaces a file, or what is being removed
    trash/<id>/             a job that was deleted, for a day

A job appears and disappears by one rename, so a kill at any moment leaves it whole or absent, and studios that
share the folder never see half of one.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
import secrets
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from studio.analysis.summary import Summary, summarise
from studio.errors import StudioError, TraceError
from studio.trace import (
    Attribute,
    CommGroup,
    Finding,
    Graph,
    Rank,
    Trace,
    ValueKind,
    arrays,
    graph_from_arrays,
)

if TYPE_CHECKING:
    import pyarrow as pa

LAYOUT = 1
NAME_AT_MOST = 200
_ABANDONED_S = 86_400
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What a list of jobs shows of one.

    Attributes:
        id: Its folder and its part in addresses.
        name: What the user calls it; untrusted text.
        created: When it was imported, seconds since the epoch.
        source: What it was imported from, in words.
        stored_bytes: Space it takes in the workspace.
        summary: The job in a few numbers.
        errors, warnings: Findings of the reader at these levels.
        fingerprint: Tells the files it was imported from, so that opening them again finds it; may be empty.
        layout: Version of the folder's layout.
    """

    id: str
    name: str
    created: float
    source: str
    stored_bytes: int
    summary: Summary
    errors: int
    warnings: int
    fingerprint: str = ""
    layout: int = LAYOUT


class _StoredAttribute(msgspec.Struct, array_like=True):
    name: str
    kind: int
    value: Any
    doc: str


class _StoredRank(msgspec.Struct, array_like=True):
    number: int
    graph: int
    slots: list[int | str]
    version: str
    metadata: list[_StoredAttribute]
    extra: bytes
    file: str


class _StoredTrace(msgspec.Struct):
    ranks: list[_StoredRank]
    groups: list[CommGroup]
    findings: list[Finding]


class _Layout(msgspec.Struct):
    """What every version of job.json tells."""

    name: str = ""
    layout: int = LAYOUT


class Workspace:
    """A folder of jobs."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).expanduser().absolute()
        with self._storing("the workspace cannot be used"):
            for part in ("jobs", "tmp", "trash"):
                (self.root / part).mkdir(parents=True, exist_ok=True)
            self._sweep()

    @classmethod
    def default_root(cls) -> Path:
        """Return the platform's folder for the data of this user."""
        import platformdirs

        return Path(platformdirs.user_data_dir("chakra-studio", appauthor=False))

    def jobs(self) -> list[JobInfo]:
        """Return all jobs, newest first. Folders that cannot be read are left out."""
        found = []
        for job_id in self._ids():
            with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                raw = (self.root / "jobs" / job_id / "job.json").read_bytes()
                found.append(replace(msgspec.json.decode(raw, type=JobInfo), id=job_id))
        return sorted(found, key=lambda job: (-job.created, job.id))

    def info(self, job_id: str) -> JobInfo:
        """Return what the list shows of one job.

        Raises:
            StudioError: There is no such job (names the nearest one), or a newer studio has written it.
            TraceError: What is stored about it is damaged.
        """
        try:
            with self._storing(f"job {job_id} cannot be read"):
                raw = (self._folder(job_id) / "job.json").read_bytes()
        except FileNotFoundError:
            raise self._missing(job_id) from None
        try:
            known = msgspec.json.decode(raw, type=_Layout)
            if known.layout <= LAYOUT:
                return replace(msgspec.json.decode(raw, type=JobInfo), id=job_id)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _damaged(job_id, error) from error
        raise StudioError(
            f"Job {known.name or job_id!r} was imported by a newer Chakra Studio.",
            hint="Update Chakra Studio, or import the traces again.",
        )

    def load(self, job_id: str) -> Trace:
        """Open a job. Its arrays are read from disk as they are used.

        Raises:
            StudioError: There is no such job, or a newer studio has written it.
            TraceError: Its files are damaged.
        """
        import pyarrow as pa

        self.info(job_id)
        folder = self._folder(job_id)
        try:
            stored = msgspec.json.decode((folder / "trace.json").read_bytes(), type=_StoredTrace)
            with pa.ipc.open_file(pa.memory_map(str(folder / "graphs.arrow"))) as reader:
                graphs = tuple(_graph(reader.get_batch(i)) for i in range(reader.num_record_batches))
            ranks = tuple(_rank(stored_rank, len(graphs)) for stored_rank in stored.ranks)
        except (OSError, msgspec.MsgspecError, pa.ArrowException, *_ODD_CONTENT) as error:
            if not folder.is_dir():
                raise self._missing(job_id) from None
            raise _damaged(job_id, error) from error
        return Trace(graphs, ranks, tuple(stored.groups), tuple(stored.findings))

    def save(
        self,
        trace: Trace,
        name: str,
        *,
        source: str = "",
        fingerprint: str = "",
        tick: Callable[[int, int], None] | None = None,
    ) -> str:
        """Store a job and return its id.

        Args:
            trace: The job.
            name: What to call it; cut to 200 characters.
            source: What it was imported from, in words.
            fingerprint: Tells the files apart, see `find`.
            tick: Told the graphs written and the graphs in all; may raise to stop, leaving nothing behind.

        Raises:
            StudioError: The disk is full or the workspace cannot be written.
        """
        cleaned = _clean_name(name)
        job_id = f"{_slug(cleaned)}-{secrets.token_hex(3)}"
        aside = self.root / "tmp" / job_id
        try:
            with self._storing(f"{cleaned} cannot be stored"):
                aside.mkdir()
                _write_graphs(trace, aside / "graphs.arrow", tick)
                _write(aside / "trace.json", msgspec.json.encode(_stored(trace)))
                size = sum(path.stat().st_size for path in aside.iterdir())
                info = _info(trace, job_id, cleaned, size)
                info = replace(info, source=_encodable(source), fingerprint=fingerprint)
                _write(aside / "job.json", msgspec.json.encode(info))
                _sync_folder(aside)
                aside.rename(self.root / "jobs" / job_id)
                _sync_folder(self.root / "jobs")
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return job_id

    def find(self, fingerprint: str) -> JobInfo | None:
        """Return the newest job imported from the files of this fingerprint."""
        return next((job for job in self.jobs() if fingerprint and job.fingerprint == fingerprint), None)

    def rename(self, job_id: str, name: str) -> JobInfo:
        """Give a job another name.

        Raises:
            StudioError: There is no such job, or the name is empty.
        """
        info = replace(self.info(job_id), name=_clean_name(name))
        folder = self._folder(job_id)
        aside = self._aside(job_id)
        try:
            with self._storing(f"{info.name} cannot be renamed"):
                _write(aside, msgspec.json.encode(info))
                aside.replace(folder / "job.json")
        except FileNotFoundError:
            raise self._missing(job_id) from None
        finally:
            aside.unlink(missing_ok=True)
        return info

    def delete(self, job_id: str) -> None:
        """Delete a job. For a day it can be restored; then the next start of a studio frees its space.

        Raises:
            StudioError: There is no such job.
        """
        folder = self._folder(job_id)
        trash = self.root / "trash" / job_id
        try:
            with self._storing(f"job {job_id} cannot be deleted"):
                # Before it lies in the trash, or a studio that starts just now would take it for a day old.
                os.utime(folder)
                folder.rename(trash)
        except FileNotFoundError:
            raise self._missing(job_id) from None

    def restore(self, job_id: str) -> None:
        """Take back the deletion of a job.

        Raises:
            StudioError: It was not deleted, or longer ago than it is kept.
        """
        self._folder(job_id)
        try:
            (self.root / "trash" / job_id).rename(self.root / "jobs" / job_id)
        except OSError:
            raise self._missing(job_id) from None

    def _ids(self) -> list[str]:
        with self._storing("the jobs cannot be listed"), os.scandir(self.root / "jobs") as entries:
            return [entry.name for entry in entries if _ID.fullmatch(entry.name) and not entry.is_symlink()]

    def _folder(self, job_id: str) -> Path:
        """Return the folder of a job; ids come from addresses, so only what an id may look like passes."""
        folder = self.root / "jobs" / job_id if _ID.fullmatch(job_id) else None
        if folder is None or folder.is_symlink():
            raise self._missing(job_id)
        return folder

    def _aside(self, job_id: str) -> Path:
        return self.root / "tmp" / f"{job_id}.{secrets.token_hex(4)}"

    def _missing(self, job_id: str) -> StudioError:
        near = difflib.get_close_matches(job_id[:80], self._ids(), n=1)
        hint = f"The nearest is {near[0]}." if near else "Open Home for the list of jobs."
        return StudioError(f"There is no job {job_id[:80]!r} in this workspace.", hint=hint)

    @contextlib.contextmanager
    def _storing(self, what: str) -> Iterator[None]:
        """Say in the user's words why the workspace cannot be written; that a file is gone is for the caller."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.root.is_dir():
                raise
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            reason = "the disk is full" if full else error.strerror or str(error)
            raise StudioError(
                f"{self.root}: {what}: {reason}.",
                hint="Free some space, or choose another disk with --workspace DIR."
                if full
                else "Choose another folder with --workspace DIR, or mend its permissions.",
            ) from error

    def _sweep(self) -> None:
        """Remove what a killed studio left half done; younger leftovers may belong to a running one."""
        for path in [*(self.root / "tmp").iterdir(), *(self.root / "trash").iterdir()]:
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime <= _ABANDONED_S:
                    continue
                # Renamed first, so that half of a job can never be restored from the trash.
                gone = path.rename(self._aside(path.name[:80]))
                if gone.is_dir() and not gone.is_symlink():
                    shutil.rmtree(gone)
                else:
                    gone.unlink()


_ODD_CONTENT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
"""What damaged files that still decode raise on their way into arrays."""


def _damaged(job_id: str, error: Exception) -> TraceError:
    return TraceError(
        f"Job {job_id}: its files in the workspace are damaged ({error}).",
        hint="Delete it and import it again.",
    )


def _info(trace: Trace, job_id: str, name: str, size: int) -> JobInfo:
    levels = [finding.level for finding in trace.findings]
    return JobInfo(
        id=job_id,
        name=name,
        created=time.time(),
        source="",
        stored_bytes=size,
        summary=summarise(trace),
        errors=levels.count("error"),
        warnings=levels.count("warning"),
    )


def _slug(name: str) -> str:
    """Return what of a name can stand in an address.

    Example:
        >>> _slug("Llama 70B / run 3")
        'llama-70b-run-3'
    """
    ascii_only = name.encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_only).strip("-")[:40].strip("-") or "job"


def _clean_name(name: str) -> str:
    cleaned = " ".join("".join(c for c in name if c.isprintable() or c.isspace()).split())[:NAME_AT_MOST]
    if not cleaned:
        raise StudioError("A job needs a name.", hint="Enter at least one visible character.")
    return cleaned


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last through a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_graphs(trace: Trace, path: Path, tick: Callable[[int, int], None] | None) -> None:
    import pyarrow as pa

    with path.open("wb") as stream:
        writer = None
        for index, graph in enumerate(trace.graphs):
            batch = _batch(graph)
            writer = writer or pa.ipc.new_file(stream, batch.schema)
            writer.write_batch(batch)
            if tick:
                tick(index + 1, len(trace.graphs))
        if writer is None:
            writer = pa.ipc.new_file(stream, pa.schema([]))
        writer.close()
        stream.flush()
        os.fsync(stream.fileno())


def _batch(graph: Graph) -> pa.RecordBatch:
    """Return a graph as one row: a list per array. Booleans become bytes, so that reading needs no copy."""
    import pyarrow as pa

    columns, names = [], []
    for name, array in arrays(graph):
        flat = np.ascontiguousarray(array).reshape(-1)
        flat = flat.view(np.uint8) if flat.dtype == np.bool_ else flat
        offsets = _arrow(np.array([0, len(flat)], np.int64))
        columns.append(pa.LargeListArray.from_arrays(offsets, _arrow(flat)))
        names.append(name)
    return pa.RecordBatch.from_arrays(columns, names)


def _arrow(values: NDArray[np.generic]) -> pa.Array:
    """Return values as Arrow has them, without copying."""
    import pyarrow as pa

    # From the buffer itself: pa.array() would import pandas to ask whether this is one of its own.
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _graph(batch: pa.RecordBatch) -> Graph:
    batch.validate()
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = _column(column.values)
        columns[name] = values.view(np.bool_) if name == "attrs.slot" else values
    return graph_from_arrays(columns)


def _column(values: pa.Array) -> NDArray[np.generic]:
    """Return a column without copying it."""
    kind = np.dtype(str(values.type))
    if not len(values):
        return np.zeros(0, kind)
    # From the buffer itself: to_numpy() would import pandas, which takes longer than all the rest.
    return np.frombuffer(values.buffers()[1], kind, len(values), values.offset * kind.itemsize)


def _stored(trace: Trace) -> _StoredTrace:
    ranks = [
        _StoredRank(
            rank.number,
            rank.graph,
            list(rank.slots),
            rank.version,
            [_StoredAttribute(a.name, int(a.kind), _plain(a.value), a.doc) for a in rank.metadata],
            rank.extra,
            _encodable(rank.file),
        )
        for rank in trace.ranks
    ]
    findings = [
        replace(finding, message=_encodable(finding.message), file=_encodable(finding.file))
        for finding in trace.findings
    ]
    return _StoredTrace(ranks, list(trace.groups), findings)


def _encodable(text: str) -> str:
    r"""Return a text that UTF-8 can hold: of file names that are none, the odd bytes as escapes.

    Example:
        >>> _encodable("job\udcff.0.et")
        'job\\udcff.0.et'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    """Return a value that JSON keeps exactly: floats and bytes as text, NaNs with all their bits."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    return value.hex() if isinstance(value, bytes) else value


def _rank(stored: _StoredRank, graphs: int) -> Rank:
    if not 0 <= stored.graph < graphs:
        raise ValueError(f"rank {stored.number} has no graph")
    metadata = tuple(
        Attribute(a.name, ValueKind(a.kind), _restored(ValueKind(a.kind), a.value), a.doc)
        for a in stored.metadata
    )
    return Rank(
        stored.number,
        stored.graph,
        tuple(stored.slots),
        stored.version,
        metadata,
        stored.extra,
        stored.file,
    )


def _restored(kind: ValueKind, value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(kind, item) for item in value]
    if kind in (ValueKind.DOUBLE, ValueKind.DOUBLE_LIST, ValueKind.FLOAT, ValueKind.FLOAT_LIST):
        return struct.unpack(">d", bytes.fromhex(value))[0]
    return bytes.fromhex(value) if kind in (ValueKind.BYTES, ValueKind.BYTES_LIST) else value
