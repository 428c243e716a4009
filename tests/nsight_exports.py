"""Databases as Nsight Systems exports them, written by hand from its public schema (docs.nvidia.com/nsight-systems, exported data)."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

HEX_PID = 24
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, busLocation TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT NOT NULL, nameEnum INTEGER, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, value INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,
  globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, nameId INTEGER NOT NULL);
"""
NAMES = (
    "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "void gemm<float>(float*)", "gemm",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic_1(x)", "ncclAllGather",
)  # fmt: skip


def write_export(path: Path, processes: tuple[int, ...] = (4242,)) -> Path:
    """A gemm, an all-reduce, an all-gather that only a range tells, a copy of 4 KiB and a fill, of each process."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(NAMES, 1)))
    database.execute(
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3', ''), (1, 'NVIDIA H100 80GB HBM3', '')"
    )
    database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'x', 'Hostname', 1, 'node7')")
    database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '')")
    database.execute("INSERT INTO OSRT_API VALUES (1, 2, 1)")
    for device, process in enumerate(processes):
        pid, tid = process << HEX_PID, process << HEX_PID | 77
        for correlation, (start, name) in enumerate(((100, 1), (200, 1), (300, 1), (400, 2), (500, 1)), 1):
            row = (start, start + 10, 0, tid, correlation, name, 0, None)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", row)
        for start, end, stream, correlation, long, short in (
            (1000, 1500, 7, 1, 3, 4),
            (1600, 1900, 9, 2, 5, 5),
            (2000, 2400, 9, 3, 6, 6),
        ):
            row = (start, end, device, 1, stream, correlation, pid, long, short, 8)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?,?)", row)
        copy = (2500, 2600, device, 7, 4, pid, 4096, 1)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?)", copy)
        fill = (2700, 2710, device, 7, 5, pid, 64, 0)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?,?,?,?,?,?,?,?)", fill)
        for start, end, kind, text, number in (
            (50, 3000, 59, "step 1", None),
            (295, 320, 59, None, 7),
            (60, None, 34, "mark", None),
        ):
            row = (start, end, kind, 0, text, tid, number, 0)
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?,?,?)", row)
    database.commit()
    database.close()
    return path


_PAYLOADS = {
    1001: (("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12), ("CUDA device", 5, 16)),
    1002: (("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8), ("Reduction operation", 9001, 16)),
}  # fmt: skip
"""Fields of payloads as NCCL describes them, with NVTX's numbers of types and, but for the first, offsets."""


def add_payloads(path: Path, ranks: Sequence[int], size: int, *, blobs: bool = True) -> Path:
    """Add what NCCL says beside its ranges: each process, in their order, is one of `ranks` of a communicator of `size`.

    Args:
        path: An export that `write_export` wrote.
        ranks: Of each process.
        size: Of the communicator.
        blobs: Whether the payloads themselves were exported, and not their schemas alone.
    """
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData BLOB; CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES "
            "(domainId INTEGER, schemaId INTEGER, idx INTEGER, flags INTEGER, type INTEGER, name TEXT, offset INTEGER);"
        )
        for schema, fields in _PAYLOADS.items():
            for place, (name, kind, offset) in enumerate(fields):
                row = (0, schema, place, None, kind, name, offset)
                database.execute("INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?,?,?,?,?,?,?)", row)
        threads = [
            tid for (tid,) in database.execute("SELECT DISTINCT globalTid FROM NVTX_EVENTS ORDER BY rowid")
        ]
        for tid, rank in zip(threads, ranks, strict=True):
            made = _pack(1001, struct.pack("<QIIII", 0xABC, size, rank, 0, 0))
            gathered = _pack(1002, struct.pack("<QQII", 0xABC, 4096, 0, 0))
            for start, end, name, payload in (
                (5, 9, "ncclCommInitRankConfig", made),
                (298, 310, "ncclAllGather", gathered),
            ):
                row = (start, end, 59, 0, name, tid, None, 0, payload if blobs else None)
                database.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?,?,?,?)", row)
        database.commit()
    return path


def _pack(schema: int, payload: bytes) -> bytes:
    return struct.pack("<QQQQ", 0, schema, len(payload), 32 + len(payload)) + payload


def add_waits(path: Path, process: int = 4242, *, numbered: bool = True) -> Path:
    """Add an event that stream 7 records after the gemm, and the wait of stream 9 for it before the all-reduce.

    Args:
        path: An export that `write_export` wrote.
        process: The process.
        numbered: Whether event and wait have a number in common, as newer exports have it.
    """
    pid, tid = process << HEX_PID, process << HEX_PID | 77
    columns = "deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, eventId INTEGER"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f"CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT ({columns}, eventSyncId INTEGER); CREATE TABLE "
            f"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, syncType INTEGER, {columns}, eventSyncId INTEGER);"
        )
        number = 3 if numbered else None
        # The event was recorded before, when nothing had been launched, and is again after the wait.
        for correlation, stream, start, each in ((10, 7, 90, None), (11, 7, 120, number), (13, 9, 450, None)):
            row = (start, start + 1, 0, tid, correlation, 1, 0, None)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", row)
            row = (0, 1, stream, correlation, pid, 5, each)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (?,?,?,?,?,?,?)", row)
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)",
            (130, 131, 0, tid, 12, 1, 0, None),
        )
        for start, kind, stream, correlation, event, each in (
            (130, 2, 9, 12, 5, number),
            (2800, 4, 2**32 - 1, 14, -1, None),
        ):
            row = (start, start + 1, kind, 0, 1, stream, correlation, pid, event, each)
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (?,?,?,?,?,?,?,?,?,?)", row
            )
        database.commit()
    return path
