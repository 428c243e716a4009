"""The words of the trace model: types of nodes, collectives and values, and names of attributes and metadata."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

NONE = -1
"""Stands for "not there" in columns of indices and of start times."""


class NodeType(IntEnum):
    """The type of a node. Files may use other numbers; they are kept and shown as `TYPE <n>`."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CollectiveType(IntEnum):
    """The collective a COMM_COLL node takes part in (attribute `comm_type`)."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


NEEDS_ALL = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK,
    CollectiveType.BARRIER,
)
"""Collectives that no member can leave before all have come."""
ROOTED_TYPES = (
    CollectiveType.BROADCAST,
    CollectiveType.REDUCE,
    CollectiveType.GATHER,
    CollectiveType.SCATTER,
)
"""Collectives in which one member, the root, has a part of its own."""
UNEVEN_TYPES = (
    CollectiveType.ALL_TO_ALL,
    CollectiveType.ALL_GATHER,
    CollectiveType.GATHER,
    CollectiveType.SCATTER,
    CollectiveType.BARRIER,
)
"""Collectives to which members may bring different sizes."""


class ValueKind(IntEnum):
    """Type of an attribute's value. Numbers are the schema's field numbers; an even number is a list."""

    NONE = 0
    DOUBLE = 3
    DOUBLE_LIST = 4
    FLOAT = 5
    FLOAT_LIST = 6
    INT32 = 7
    INT32_LIST = 8
    INT64 = 9
    INT64_LIST = 10
    UINT32 = 11
    UINT32_LIST = 12
    UINT64 = 13
    UINT64_LIST = 14
    SINT32 = 15
    SINT32_LIST = 16
    SINT64 = 17
    SINT64_LIST = 18
    FIXED32 = 19
    FIXED32_LIST = 20
    FIXED64 = 21
    FIXED64_LIST = 22
    SFIXED32 = 23
    SFIXED32_LIST = 24
    SFIXED64 = 25
    SFIXED64_LIST = 26
    BOOL = 27
    BOOL_LIST = 28
    STRING = 29
    STRING_LIST = 30
    BYTES = 31
    BYTES_LIST = 32

    @property
    def is_list(self) -> bool:
        """Whether values of this kind are lists."""
        return self != ValueKind.NONE and self % 2 == 0


TEXT_KINDS = (ValueKind.STRING, ValueKind.STRING_LIST, ValueKind.BYTES, ValueKind.BYTES_LIST)
UNSIGNED_KINDS = (ValueKind.UINT64, ValueKind.UINT64_LIST, ValueKind.FIXED64, ValueKind.FIXED64_LIST)
INT_KINDS = tuple(k for k in ValueKind if ValueKind.INT32 <= k <= ValueKind.SFIXED64 and not k.is_list)


@lru_cache(maxsize=8)
def build_kind_table(kinds: tuple[ValueKind, ...]) -> Bool:
    """Return (256,) whether a kind, as stored in a column, is among `kinds`."""
    table = np.zeros(256, np.bool_)
    table[list(kinds)] = True
    return table


SLOT_KEYS = ("pg_name", "comm_group", "comm_src", "comm_dst")
"""Attributes whose scalar values may differ between ranks that share a graph: comm groups and peers."""

WAITS_FOR = "waits_for"
"""Attribute of a node of the host that is a call which waited, for the `device`: its time is what was left of it then."""

STEP = "ProfilerStep"
"""Annotations that start so, with a number behind, stand for a whole training step and take no time of their own: PyTorch's word."""
_NAMED_STEP = re.compile(
    r"(?:^|[^A-Za-z])(?:step|iteration|iter)[ _#.:=\-]{0,3}(\d{1,9})(?![A-Za-z0-9])", re.IGNORECASE
)

UNRECORDED_CALLS = "unrecorded_calls"
"""Metadata of a rank: how many of its collectives the recording lacks, or has without a time though they were made while it was recorded."""
TIMES_NOTICED = "times_noticed"
"""Metadata of a rank: how many of its operations are timed by when a watchdog looked, up to a tenth of a second late."""

LAUNCH_NS, LAUNCH_CALL_NS, LAUNCHED_BY = "launch_ns", "launch_call_ns", "launched_by"
"""Attributes of an operation of a device: how long before its start the call that launched it began, how long that call took,
and its name."""

GROUP_KEYS = ("pg_name", "comm_group")
"""Attributes that name a node's comm group; of both the first counts."""
PEER_KEYS = ("comm_src", "comm_dst")
"""Attributes that name the other rank of a message."""
ROOT_KEYS = ("root_rank", "comm_root", "root")
"""Attributes that name a collective's root, a rank of the job; the first one that a node has counts."""

GENERATED = "generated_by"
"""Metadata of a rank that was generated: what made it."""
RECIPE = "generated_from"
"""Metadata of a generated training job: model, ranks and options as JSON, from which it can be made again."""

WORLD = ""
"""Stands for the comm group of a node that names none: all ranks."""
WORLD_NAMES = (WORLD, "0")
"""How nodes name the group of all ranks: not at all, or by PyTorch's number for it."""

RANK_NAMES = ("rank", "global_rank", "rank_id")
"""Metadata of a rank that gives its number."""
ASSUMED = "assumed_from_rank"
"""Metadata of a rank that was not recorded: the rank whose recording it repeats."""

WITH_STACK = "with_stack"
"""Metadata of a rank that was recorded with Python stacks, which made it slower."""
RECORDER = "recorder"
"""Metadata of a rank that another program than PyTorch's profiler recorded: what its recordings are called."""
NSIGHT, ROCPROF, XLA = "Nsight Systems export", "rocprof recording", "JAX (XLA) recording"
"""Such names."""
DEVICE_NAME = "device_name"
"""Metadata of a rank that names the device it was recorded on."""
ASSUMED_STAGE = "assumed_stage"
"""Metadata of a rank in a pipeline stage of which no rank was recorded: how the stage was built, in words."""

COPY = -(2**31)
"""Stands beside the types of files for copies: memcpy and memset, which recorders and converters write as compute."""
COPY_KINDS = ("memcpy", "memset")
"""What linking writes as `device_kind` of a copy."""

RECORDED_LATE_NS = 1_000_000
"""So late may recorders note the beginning or end of communication: a collective may seem to end on one rank before it begins on another."""

IDLE = "idle"
STALLED = "stall"
"""What `gap` says of time for which a stream stood idle although it had been given its next operation long before."""
IDLE_GAPS = (IDLE, STALLED)

ARRIVAL = "arrival"
"""What `gap` says of time for which an assumed rank is on the host before it comes to a collective."""

Scalar = int | float | bool | str | bytes
Value = Scalar | list[Scalar] | None
Level = Literal["error", "warning", "info"]


def label_stream(stream: int, device: int = NONE) -> str:
    """Return the name of a stream, with its device where that tells it apart.

    Example:
        >>> label_stream(25), label_stream(25, 3)
        ('25', '25 of device 3')
    """
    return str(stream) if device == NONE else f"{stream} of device {device}"


def type_name(number: int) -> str:
    """Return the name of a node type, `TYPE 42` for numbers the schema does not define."""
    if number == COPY:
        return "COPY"
    return NodeType(number).name if number in NodeType._value2member_map_ else f"TYPE {number}"


def label_collective(number: int) -> str:
    """Return the name of a collective: `COLLECTIVE 42` for undefined numbers, a word where there is none."""
    if number == NONE:
        return "UNNAMED COLLECTIVE"
    known = number in CollectiveType._value2member_map_
    return CollectiveType(number).name if known else f"COLLECTIVE {number}"


def step_of_name(name: str) -> int:
    """Return the training step in a node's name, -1 where there is none."""
    match = _NAMED_STEP.search(name)
    return int(match[1]) if match else NONE
