"""PyTorch's two recordings of one rank as columns: its execution trace and its Kineto trace."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studio.et.allocations import Allocations, build_empty_allocations
from studio.trace import NONE, Bool, Int32, Int64, UInt8

_ROOT_MARK = "[pytorch|"
_ROOT = re.compile(r"\[pytorch\|profiler\|execution_(trace|graph)\|(process|thread)\]")
_NOTE = re.compile(r"## .+ ##")
_TYPE_COLUMNS = (2, 5)
"""Where `HostTrace.io` has the types of inputs and outputs."""


class EventKind(IntEnum):
    """What an event is."""

    OTHER = 0
    OPERATOR = 1
    ANNOTATION = 2
    RUNTIME = 3
    KERNEL = 4
    COPY = 5
    FILL = 6
    SYNC = 7
    PYTHON = 8


DEVICE_KINDS = (EventKind.KERNEL, EventKind.COPY, EventKind.FILL)


@dataclass(frozen=True, slots=True)
class HostTrace:
    """The execution trace of one process, by rising id.

    N nodes.

    Attributes:
        file: Name of the file.
        schema: Schema string.
        pid: Process id, -1 if unknown.
        header: The other texts and numbers of the file's head, by key.
        id, parent: (N,) id, and id of the calling node; parent -1 where there is none.
        numbers: (N,) for each of `NUMBERS`.
        names: (N,) operator names.
        op_schema: (N,) signatures, "" where there is none.
        io: (N, 6) values, shapes and types of the inputs, then of the outputs, as indices into `texts`.
        texts: Texts written like Python lists.
        comm: What `COMM_KEYS` a node has, by row.
        extra: Other attributes that are not empty: key → rows and values.
        damaged: Whether the file is cut off or broken, so that nodes are missing.
    """

    file: str
    schema: str
    pid: int
    header: dict[str, int | str]
    id: Int64
    parent: Int64
    numbers: dict[str, Int64]
    names: list[str]
    op_schema: list[str]
    io: Int32
    texts: list[str]
    comm: dict[int, dict[str, Any]]
    extra: dict[str, tuple[list[int], list[Any]]]
    damaged: bool = False

    def __len__(self) -> int:
        return len(self.id)

    @property
    def roots(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which nodes (N,) stand for the process or a thread and not for an operator."""
        return np.array([name.startswith(_ROOT_MARK) and is_root(name) for name in self.names], np.bool_)

    @property
    def notes(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which nodes (N,) only say something about the recording, such as which process groups there are.

        Nothing runs there: `## … ##` by name, without a signature, without callees, without tensors.
        """
        is_note = np.array(
            [name[:2] == "##" and _NOTE.fullmatch(name) is not None for name in self.names], np.bool_
        )
        for row in np.flatnonzero(is_note).tolist():
            kinds = (self.texts[int(self.io[row, column])] for column in _TYPE_COLUMNS)
            is_note[row] = not self.op_schema[row] and not any("Tensor" in kind for kind in kinds)
        return is_note & ~np.isin(self.id, self.parent)


def is_root(name: str) -> bool:
    """Whether a node of this name stands for the process or a thread."""
    return name.startswith(_ROOT_MARK) and _ROOT.match(name) is not None


@dataclass(frozen=True, slots=True)
class Group:
    """A process group listed in the trace's head; without ranks where they are missing or abbreviated."""

    name: str
    description: str
    ranks: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class NotedCall:
    """A call for communication, as `studio.collect` noted it down.

    Attributes:
        time_ns: When, counted as the events are.
        group: Name of the process group.
        number: Its number in the group, -1 for messages.
        name: What was called.
        bytes: What was given, -1 where that was not noted down.
    """

    time_ns: int
    group: str
    number: int
    name: str
    bytes: int = NONE


@dataclass(frozen=True, slots=True)
class Head:
    """What a trace says about its process.

    Attributes:
        rank, world_size: Place in the job, None if unknown.
        backend: Communication library, "" if unknown.
        host: Name of the machine.
        base_ns: What times count from, None if unknown.
        groups: Process groups.
        devices: Names of the devices.
        calls: What `studio.collect` wrote of each call for communication, by time.
        recorder: What to call the file.
        has_stacks: Whether Python stacks were recorded, which makes the program slower.
        place: Of a process with several devices, or a recording of several processes, each of which is a rank: the place of this one
            among them, and how many they are.
    """

    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    host: str = ""
    base_ns: int | None = None
    groups: tuple[Group, ...] = ()
    devices: tuple[str, ...] = ()
    calls: tuple[NotedCall, ...] = ()
    recorder: str = "Kineto trace"
    has_stacks: bool = False
    place: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class DeviceTrace:
    """The events of one process and its devices, by time.

    E events.

    Attributes:
        file: Name of the file.
        head: What it says about its process.
        kind: (E,) an EventKind.
        name: (E,) index into `names`.
        start_ns, duration_ns: (E,) nanoseconds, from the base where there is one.
        thread: (E,) index into `threads`: the thread of the processor or the queue of the device.
        threads: Process and thread as the file writes them.
        record_function, external, correlation, stream, device, bytes: (E,) as in the file, -1 where missing.
        wait_stream, wait_record: (E,) stream, and correlation of the recorded event, that a SYNC waits for.
        flops: (E,) operations that the recorder counts for an operator, -1 where missing.
        grid: (E, 3) blocks that a kernel was launched with along each dimension, -1 where missing.
        comm: What an event tells about a collective, by row.
        inputs: (E,) index into `input_texts`, -1 where the event says nothing about its inputs.
        input_texts: Values, shapes and types of inputs, each as the file writes the list.
        names: Distinct names.
        pid: Process that called the operators, -1 where it is no number.
        damaged: Whether the file is cut off or broken, so that events are missing.
        allocations: What the profiler noted of memory.
        has_others: Whether the file holds events of kinds that are not read.
    """

    file: str
    head: Head
    kind: UInt8
    name: Int32
    start_ns: Int64
    duration_ns: Int64
    thread: Int32
    threads: tuple[tuple[str, str], ...]
    record_function: Int64
    external: Int64
    correlation: Int64
    stream: Int64
    device: Int64
    bytes: Int64
    wait_stream: Int64
    wait_record: Int64
    flops: Int64
    grid: Int64
    comm: dict[int, dict[str, Any]]
    inputs: Int32
    input_texts: list[tuple[str, str, str]]
    names: list[str]
    pid: int
    damaged: bool = False
    allocations: Allocations = field(default_factory=build_empty_allocations)
    has_others: bool = False

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def is_device(self) -> Bool:
        """Which events (E,) ran on a device."""
        return np.isin(self.kind, DEVICE_KINDS)

    @property
    def is_host(self) -> Bool:
        """Which events (E,) are operators or annotations of the program."""
        return np.isin(self.kind, (EventKind.OPERATOR, EventKind.ANNOTATION))


def mark_names(names: Sequence[str], codes: NDArray[np.integer], is_so: Callable[[str], bool]) -> Bool:
    """Return which of M codes of names are of one that is so; each name is looked at once, however often it is used."""
    marked = np.array([is_so(name) for name in names] or [False], np.bool_)
    is_marked: Bool = marked[codes]
    return is_marked
