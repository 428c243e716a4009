"""Databases as rocprofv3 writes them (rocpd), by hand from its public schema (ROCm/rocprofiler-sdk, rocpd_tables.sql)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

_PLACE = "nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT, end BIGINT"
_BY_TRACK = "track_id INTEGER, start_id INTEGER, end_id INTEGER"
_TIMED_BY_TRACK = "track_id INTEGER, start BIGINT, end BIGINT"
_TABLES = {
    "rocpd_metadata": "tag TEXT, value TEXT",
    "rocpd_string": "string TEXT",
    "rocpd_info_node": "hash BIGINT, hostname TEXT",
    "rocpd_info_process": "nid INTEGER, ppid INTEGER, pid INTEGER, command TEXT, environment JSONB",
    "rocpd_info_thread": "nid INTEGER, pid INTEGER, tid INTEGER",
    "rocpd_info_agent": "pid INTEGER, type TEXT, absolute_index INTEGER, name TEXT, product_name TEXT",
    "rocpd_info_kernel_symbol": "kernel_name TEXT, display_name TEXT",
    "rocpd_event": "category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER, correlation_id INTEGER, extdata JSONB",
    "rocpd_memory_allocate": "size INTEGER",
    "rocpd_hip_event": "event_id INTEGER",
}
_EVENTS = {
    "rocpd_region": "name_id INTEGER, event_id INTEGER",
    "rocpd_kernel_dispatch": "kernel_id INTEGER, event_id INTEGER",
    "rocpd_memory_copy": "name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, event_id INTEGER",
}
_TRACKS = {
    "rocpd_track": "pid INTEGER, tid INTEGER, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER",
    "rocpd_timestamp": "value BIGINT",
}
_KERNELS = (
    ("gemm.kd", "gemm"),
    ("ncclDevKernel_Generic_1", "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"),
    ("__amd_rocclr_copyBuffer", "__amd_rocclr_copyBuffer"),
    ("softmax.kd", "softmax"),
)
_CALLS = (
    ("HIP_RUNTIME_API_EXT", "hipLaunchKernel", 10, 15, 1, ""),
    ("HIP_RUNTIME_API_EXT", "hipLaunchKernel", 32, 37, 2, ""),
    ("HIP_RUNTIME_API_EXT", "hipMemcpyAsync", 60, 65, 3, ""),
    ("RCCL_API", "ncclAllReduce", 30, 50, 9, ""),
    ("MARKER_CORE_RANGE_API", "roctxThreadRangeA", 5, 400, 11, "step 1"),
    ("ROCDECODE_API", "rocDecCreateDecoder", 6, 7, 12, ""),
)
"""Category, name, start, end, correlation and message of each call."""


def write_rocpd(
    path: Path,
    pid: int = 42,
    gpu: int = 0,
    *,
    environment: Mapping[str, str] | None = None,
    communicates: bool = True,
    by_track: bool = False,
    timed: bool = False,
    more: int = 0,
    ending: str = "_0198c5e1_7a2b_7c3d_8e4f_001122334455",
) -> Path:
    """A gemm, an all-reduce that only the call around its launch names, a copying kernel and a copy of 4 KiB, on one of two GPUs.

    Args:
        path: Where; what is there already stays, as where databases were merged.
        pid: The process.
        gpu: The GPU it uses.
        environment: Of the process.
        communicates: Whether the second kernel is that of an all-reduce; else of a softmax.
        by_track: Whether events name a track and timestamps, as other releases have it.
        timed: Whether those that name a track have times of their own, as yet others have it.
        more: How many gemms follow.
        ending: Of the tables.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        # Small pages, so that damage of one leaves others.
        database.execute("PRAGMA page_size=512")
        writer = _Writer(database, ending, by_track=by_track, timed=timed)
        writer.describe(pid, environment or {})
        names = [names for names in _KERNELS if communicates or "nccl" not in names[0]]
        kernels = {
            names[1].partition("(")[0]: writer.insert("rocpd_info_kernel_symbol", names) for names in names
        }
        for category, name, start, end, correlation, message in _CALLS:
            event = writer.insert_event(category, correlation, message)
            writer.insert("rocpd_region", (*writer.place(start, end), writer.text(name), event))
        second = "ncclDevKernel_Generic_1" if communicates else "softmax"
        launched = [("gemm", 100, 1), (second, 200, 2), ("__amd_rocclr_copyBuffer", 300, 3)]
        launched += [("gemm", 1000 + 100 * number, 100 + number) for number in range(more)]
        for name, start, correlation in launched:
            event = writer.insert_event("KERNEL_DISPATCH", correlation)
            place = writer.place(start, start + 50, writer.agents[1 + gpu], 3)
            writer.insert("rocpd_kernel_dispatch", (*place, kernels[name], event))
        event = writer.insert_event("MEMORY_COPY", 4)
        copied = (
            writer.text("MEMORY_COPY_HOST_TO_DEVICE"),
            writer.agents[1 + gpu],
            writer.agents[0],
            4096,
            event,
        )
        writer.insert("rocpd_memory_copy", (*writer.place(400, 410, None, 4), *copied))
        writer.insert("rocpd_memory_allocate", (64,))
        writer.insert("rocpd_hip_event", (event,))
        database.commit()
    return path


class _Writer:
    """Writes the tables of one process."""

    def __init__(
        self, database: sqlite3.Connection, ending: str, *, by_track: bool, timed: bool = False
    ) -> None:
        self._database, self._ending = database, ending
        self._by_track, self._timed = by_track, timed
        self._texts: dict[str, int] = {}
        self.agents: list[int] = []
        self._process = self._thread = 0
        where = (_TIMED_BY_TRACK if timed else _BY_TRACK) if by_track else _PLACE
        tables = _TABLES | {name: f"{where}, {columns}" for name, columns in _EVENTS.items()}
        for table, columns in (tables | _TRACKS if by_track else tables).items():
            key = "id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"
            database.execute(f"CREATE TABLE `{table}{ending}` ({key}, {columns})")

    def describe(self, pid: int, environment: Mapping[str, str]) -> None:
        """Write what is known of the process and its machine."""
        self.insert("rocpd_metadata", ("schema_version", "3"))
        self.insert("rocpd_info_node", (7, "node7"))
        self._process = self.insert(
            "rocpd_info_process", (1, 1, pid, "python train.py", json.dumps(environment))
        )
        self._thread = self.insert("rocpd_info_thread", (1, self._process, pid))
        for index, (kind, name) in enumerate((("CPU", "EPYC"), ("GPU", "MI300X"), ("GPU", "MI300X"))):
            self.agents.append(self.insert("rocpd_info_agent", (self._process, kind, index, name, name)))

    def insert(self, table: str, values: Sequence[object]) -> int:
        """Write a row; returns its number."""
        marks = ", ".join("?" * (len(values) + 1))
        done = self._database.execute(
            f"INSERT INTO `{table}{self._ending}` VALUES ({marks})", (None, *values)
        )
        assert done.lastrowid is not None
        return done.lastrowid

    def text(self, value: str) -> int:
        """Return the number of a text."""
        if value not in self._texts:
            self._texts[value] = self.insert("rocpd_string", (value,))
        return self._texts[value]

    def insert_event(self, category: str, correlation: int, message: str = "") -> int:
        """Write what a call and the work that it launched have in common."""
        more = json.dumps({"message": message} if message else {})
        return self.insert("rocpd_event", (self.text(category), correlation, correlation, 0, more))

    def place(
        self, start: int, end: int, agent: int | None = None, stream: int | None = None
    ) -> tuple[object, ...]:
        """Return the columns that say where and when something ran."""
        where = (self._process, self._thread, agent, None if agent is None else 77, stream)
        if not self._by_track:
            return 1, *where, start, end
        track = self.insert("rocpd_track", where)
        if self._timed:
            return track, start, end
        return track, self.insert("rocpd_timestamp", (start,)), self.insert("rocpd_timestamp", (end,))
