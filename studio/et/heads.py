"""Read what the beginning of a PyTorch file says about its process, without reading the file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,9})\b')
_WORLD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"world_size"\s*:\s*(\d{1,9})\b')
_OPERATOR = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function)"[^{}]*?"pid"\s*:\s*"?(\d{1,9})\b'
)
_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{1,17})')
_HOST_PID = re.compile(rb'"pid"\s*:\s*(\d{1,9})\b')
_OF_HEAD = 4096
_NAME = re.compile(rb'"(?:formatted_kernel_)?name"\s*:\s*"([^"]*)"')
_CALLS = (
    r"record_param_comms",
    r"c10d(_functional)?(_autograd)?::",
    r"(nccl|rccl|gloo|mpi|ucc|xccl|hccl)[:_]",
)
_OF_JOBS = (b'"distributedInfo"', b'"Collective name"')
"""Keys of a process that is one of several."""
PLACES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
"""Variables of the environment in which a launcher tells a process its rank, and how many ranks there are."""
_RCCL_KERNEL = re.compile(rb"(nccl|rccl)\w{0,40}Kernel", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Card:
    """Facts about a process from the beginning of its file; None where they are not there.

    Attributes:
        rank, world: Place in the job, and how many ranks it has.
        pid: Process.
        begin_us: Time of an event near the beginning, by a clock that machines set alike.
    """

    rank: int | None = None
    world: int | None = None
    pid: int | None = None
    begin_us: int | None = None


def read_card(start: bytes, side: str) -> Card:
    """Return what the (uncompressed) beginning of a host or device trace says.

    Example:
        >>> read_card(b'{"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": []}', "device")
        Card(rank=3, world=8, pid=None, begin_us=None)
        >>> read_card(b'{"schema": "1.1.1-chakra.0.0.4", "pid": 812, "nodes": [', "host")
        Card(rank=None, world=None, pid=812, begin_us=None)
    """
    if side == "host":
        return Card(pid=_find_number(_HOST_PID, start[:_OF_HEAD]))
    rank, world = _find_number(_RANK, start), _find_number(_WORLD, start)
    if rank is not None and world is not None and rank >= world:
        rank = world = None
    return Card(rank, world, _find_number(_OPERATOR, start), _find_number(_TIME, start))


def read_rocpd_card(start: bytes) -> Card:
    """Return what the beginning of a database of rocprofv3 says: the environment of its process stands in it as text.

    Example:
        >>> read_rocpd_card(b'... {"RANK": "3", "WORLD_SIZE": "8"} ...')
        Card(rank=3, world=8, pid=None, begin_us=None)
    """
    for names in PLACES:
        rank, world = (
            _find_number(re.compile(rb'"%s"\s*:\s*"(\d{1,9})"' % name.encode()), start) for name in names
        )
        if rank is not None and world is not None and rank < world and world > 1:
            return Card(rank, world)
    return Card()


@dataclass(frozen=True, slots=True)
class Span:
    """What the events seen of a device trace say; None where they do not say it.

    Attributes:
        pid: Process.
        begin_us, end_us: The first and the last time at which an event began.
        communicates: Whether it calls other processes, or says that there are any.
    """

    pid: int | None
    begin_us: int | None
    end_us: int | None
    communicates: bool


def read_span(start: bytes) -> Span:
    """Return what the (uncompressed) beginning of a device trace says of its process among others.

    Example:
        >>> read_span(b'{"traceEvents": [{"cat": "cpu_op", "name": "aten::mm", "pid": 7, "ts": 3}, {"name": "gemm", "ts": 5.5}')
        Span(pid=7, begin_us=3, end_us=5, communicates=False)
        >>> read_span(b'[{"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ts": 5}').communicates
        True
    """
    times = [int(time) for time in _TIME.findall(start)]
    names = {name.decode(errors="replace") for name in _NAME.findall(start)}
    return Span(
        _find_number(_OPERATOR, start),
        min(times, default=None),
        max(times, default=None),
        any(key in start for key in _OF_JOBS) or any(map(_compile_communication().search, names)),
    )


def read_rocpd_span(start: bytes) -> Span:
    """Return what the beginning of a database of rocprofv3 or Nsight says of its process among others: its kernels stand in it as text."""
    return Span(None, None, None, _RCCL_KERNEL.search(start) is not None)


@cache
def _compile_communication() -> re.Pattern[str]:
    """Return what finds the names of calls and kernels of communication."""
    # Loaded and compiled where it is needed: every command reads heads, and few files are asked for communication.
    from studio.kernel_names import (
        ALL_GATHER,
        ALL_REDUCE,
        ALL_TO_ALL,
        LIBRARIES,
        REDUCE_SCATTER,
        UNNAMED,
        join_expressions,
    )

    names = join_expressions(LIBRARIES, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, UNNAMED, _CALLS)
    return re.compile(names, re.IGNORECASE)


def _find_number(pattern: re.Pattern[bytes], start: bytes) -> int | None:
    match = pattern.search(start)
    return int(match[1]) if match else None
