"""Read what the beginning of a PyTorch file says about its process, without reading the file."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,9})\b')
_WORLD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"world_size"\s*:\s*(\d{1,9})\b')
_OPERATOR = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function)"[^{}]*?"pid"\s*:\s*"?(\d{1,9})\b'
)
_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{1,17})')
_HOST_PID = re.compile(rb'"pid"\s*:\s*(\d{1,9})\b')
_OF_HEAD = 4096


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


def _find_number(pattern: re.Pattern[bytes], start: bytes) -> int | None:
    match = pattern.search(start)
    return int(match[1]) if match else None
