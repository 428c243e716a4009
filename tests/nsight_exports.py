"""Databases as Nsight Systems exports them, written by hand from its public schema (docs.nvidia.com/nsight-systems, exported data)."""

from __future__ import annotations

import sqlite3
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
    database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3', '')")
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
