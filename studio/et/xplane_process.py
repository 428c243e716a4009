"""What a process did whose profile XLA recorded: its lines of events become a rank for each device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from studio.et import xla
from studio.et.format import DevicePart, Part, Reading
from studio.et.link.names import KERNEL
from studio.et.profile_events import Event, Events, infer_device_kind
from studio.et.recording import EventKind, Head
from studio.et.rocprof import build_findings
from studio.trace import NONE, STEP, XLA, Finding
from studio.units import format_counted

_DEVICE = re.compile(r"/device:([A-Za-z_]+):([0-9]{1,9})")
_STREAM = re.compile(r"Stream #([0-9]{1,18})")
_RUNTIME = re.compile(r"(cu|cuda|hip|hsa_)[A-Z]\w*")
_BYTES = re.compile(r"\bsize:([0-9]{1,18})")
_ASYNCHRONOUS = "Async XLA Ops"
_OPERATIONS = ("XLA Ops", _ASYNCHRONOUS)
"""Lines of a device without streams that hold what it did; the first by time, the others beside it."""
_DONE = re.compile(r"-done(\.|$)")
_MARK = re.compile(r"ThreadpoolListener::(Record|StartRegion|StopRegion)")
"""Moments that the recorder itself notes."""
_STARTED = re.compile(r"\[([0-9]{1,9})\] ")
"""Begins what the host starts on a device, which it numbers in the process."""
_PERMUTE = "collective-permute"
Timed = tuple[str, int, int, dict[str, Any]]
"""Name, start, duration and values of an event."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plane, in either form of file.

    Attributes:
        plane, name, number: Its plane's name, and its own name and number.
        events: Name, start, duration and values of each event.
    """

    plane: str
    name: str
    number: int
    events: Iterable[Timed]


@dataclass(slots=True)
class _HostEvent:
    """An event of the host.

    Attributes:
        event: The event.
        parent: Place of what it is inside of, -1 where it is inside of nothing.
        devices: The devices that it, or anything inside of it, is of.
    """

    event: Event
    parent: int
    devices: set[int]

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.event.start_ns + self.event.duration_ns


@dataclass(slots=True)
class Process:
    """What a file says so far.

    Attributes:
        programs: Its programs.
        shared: Events of the host that belong to no device alone.
        own: Those of each device, by its number in the process, or in the job where the host is the device.
        left: What was left out: the names of lines, or what it is → how many events.
        planes: Names of the planes of each device.
        numbers: Number in the job of devices, by that in the process, as far as told.
        lanes: Numbers of the lines of devices: device, plane and line → number.
        beside: Planes with asynchronous operations → these.
        untold: Start and end of collectives on the host of which no device is told.
        untold_programs: Operations of the host whose program is not in the file.
        replicas: Devices that take part in the programs, as far as known.
        talks: Whether any device communicates.
    """

    programs: xla.Programs = field(default_factory=xla.Programs)
    shared: list[Event] = field(default_factory=list)
    own: dict[int, list[Event]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    planes: dict[int, list[str]] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    lanes: dict[tuple[int, str, int], int] = field(default_factory=dict)
    untold: list[tuple[int, int]] = field(default_factory=list)
    beside: dict[str, set[str]] = field(default_factory=dict)
    untold_programs: int = 0
    replicas: int = 0
    talks: bool = False
    _ranks: dict[int, int] = field(default_factory=dict)
    _told: dict[xla.Collective, xla.Collective] = field(default_factory=dict)

    def add(self, lines: Iterable[Line]) -> None:
        """Add the events of all lines, once the programs are known."""
        by_plane: dict[str, list[Line]] = {}
        for line in lines:
            by_plane.setdefault(line.plane, []).append(line)
        # Beside devices of its own the host carries out no program.
        is_device = not any(_DEVICE.fullmatch(plane.split(" ")[0]) for plane in by_plane)
        self._ranks = {number: place for place, number in enumerate(sorted(self.programs.devices))}
        for plane, those in by_plane.items():
            device = _DEVICE.fullmatch(plane.split(" ")[0])
            # What runs beside the rest stands among the rest by its start and by who waits for it.
            for line in sorted(those, key=lambda line: line.name != _ASYNCHRONOUS):
                if device is None and plane.startswith("/host:"):
                    self._add_host_line(line, is_device=is_device)
                elif device is not None and _holds_work(line, those):
                    self._add_device_line(line, int(device[2]))
                else:
                    self._leave(line.name or plane, sum(1 for _ in line.events))

    def _leave(self, what: str, count: int = 1) -> None:
        if count:
            self.left[what] = self.left.get(what, 0) + count

    def _add_host_line(self, line: Line, *, is_device: bool) -> None:
        """Add a thread; where the host is the device, what runs for one device alone is that device's."""
        events = self._nest_events(line, is_device=is_device)
        for event in reversed(events):
            if event.parent >= 0:
                events[event.parent].devices |= event.devices
        for event in events:
            # What holds nothing of any device is of the one that what is around it is of.
            if not event.devices and event.parent >= 0 and len(events[event.parent].devices) == 1:
                event.devices = events[event.parent].devices
            if len(event.devices) == 1:
                self.own.setdefault(min(event.devices), []).append(event.event)
            else:
                self.shared.append(event.event)

    def _nest_events(self, line: Line, *, is_device: bool) -> list[_HostEvent]:
        """Return the events of a thread by their start; inside of a collective is nothing but how the host carries it out."""
        thread = (line.plane, line.name or str(line.number))
        nested: list[_HostEvent] = []
        around: list[int] = []
        for written, start_ns, duration_ns, values in sorted(
            line.events, key=lambda timed: (timed[1], -timed[2])
        ):
            while around and nested[around[-1]].end_ns <= start_ns:
                around.pop()
            if _MARK.fullmatch(written):
                self._leave("marks of thread pools")
            elif around and nested[around[-1]].event.comm is not None:
                self._leave("inside of collectives")
            else:
                event = self._build_host_event(written, start_ns, duration_ns, values, thread)
                device = self._find_device(written, values)
                if is_device and values.get("hlo_op") and not written.startswith("end: "):
                    event = self._build_operation(event, values, device)
                own = {device} if is_device and device >= 0 else set[int]()
                nested.append(_HostEvent(event, around[-1] if around else NONE, own))
                around.append(len(nested) - 1)
        return nested

    def _find_device(self, written: str, values: dict[str, Any]) -> int:
        """Return the number in the job of the device that the host does something on, -1 where none is told."""
        started, number = _STARTED.match(written), parse_whole(values.get("global_device_id"))
        if started and number >= 0:
            self.numbers[int(started[1])] = number
            return number
        return parse_whole(values.get("device_ordinal"))

    def _build_operation(self, event: Event, values: dict[str, Any], device: int) -> Event:
        """Return an operation of a program that the host carries out, with what is known of it where it is a collective."""
        if not self.programs.by_name:
            self.untold_programs += 1
            return event
        comm = self._find_facts(event.name, values)
        if comm is None:
            return event
        if device < 0 and comm["collective"] != _PERMUTE:
            self.untold.append((event.start_ns, event.start_ns + event.duration_ns))
        return event._replace(name=_name_collective(event.name, comm), comm=comm)

    @staticmethod
    def _build_host_event(
        written: str, start_ns: int, duration_ns: int, values: dict[str, Any], thread: tuple[str, str]
    ) -> Event:
        step = parse_whole(values.get("step_num"))
        # What `StepTraceAnnotation` writes; all readers call a step alike.
        name = written if step < 0 else f"{STEP}#{step}"
        runtime = _RUNTIME.fullmatch(name) is not None
        python = EventKind.PYTHON if name.startswith("$") else EventKind.OPERATOR
        kind = EventKind.RUNTIME if runtime else python
        correlation = parse_whole(values.get("correlation_id"))
        return Event(kind, name, start_ns, duration_ns, thread, correlation if runtime else NONE)

    def _add_device_line(self, line: Line, device: int) -> None:
        named = _STREAM.match(line.name)
        events = line.events if named else self._iterate_work(line)
        device_events = []
        for name, start_ns, duration_ns, values in events:
            kind = infer_device_kind(name)
            comm = None if kind != EventKind.KERNEL else self._find_facts(name, values)
            moved = _BYTES.search(str(values.get("memcpy_details") or values.get("memset_details") or ""))
            device_events.append(
                Event(
                    kind,
                    name if comm is None else _name_collective(name, comm),
                    start_ns,
                    duration_ns,
                    ("", ""),
                    parse_whole(values.get("correlation_id")),
                    NONE,
                    device,
                    int(moved[1]) if moved and kind != EventKind.KERNEL else NONE,
                    comm,
                )
            )
        if not device_events:
            return
        stream = int(named[1]) if named else self._number_lane(device, line)
        place = (f"device {device}", f"stream {stream}")
        self.own.setdefault(device, []).extend(
            event._replace(thread=place, stream=stream) for event in device_events
        )
        planes = self.planes.setdefault(device, [])
        planes.extend([line.plane] if line.plane not in planes else [])

    def _number_lane(self, device: int, line: Line) -> int:
        """Return the number of a line that is no stream: its own, unless a line of another plane of the device has it."""
        key, number = (device, line.plane, line.number), max(line.number, 0)
        taken = {lane for (other, *_), lane in self.lanes.items() if other == device}
        while number in taken and key not in self.lanes:
            number += 1
        return self.lanes.setdefault(key, number)

    def _iterate_work(self, line: Line) -> Iterator[Timed]:
        """Yield what a line of operations tells of work: no operation twice, and none that waits for another or holds others."""
        ordered = sorted(line.events, key=lambda event: (event[1], -event[2]))
        if line.name == _ASYNCHRONOUS:
            whole = list(_join_asynchronous(ordered))
            self.beside.setdefault(line.plane, set()).update(map(_name_operation, whole))
            yield from whole
            return
        beside = self.beside.get(line.plane, set())
        for place, event in enumerate(ordered):
            end = event[1] + event[2]
            following = ordered[place + 1] if place + 1 < len(ordered) else None
            operation = _name_operation(event)
            if operation in beside:
                self._leave("starts of asynchronous operations")
            elif beside and _DONE.search(operation):
                self._leave("waits for asynchronous operations")
            elif following is not None and following[1] < end and following[1] + following[2] <= end:
                self._leave("operations that hold others")
            else:
                yield event

    def _find_facts(self, name: str, values: dict[str, Any]) -> dict[str, Any] | None:
        operation = str(values.get("hlo_op") or name)
        module = str(values.get("hlo_module") or "")
        text = str(values.get("long_name") or (name if name.startswith("%") else ""))
        known = (
            self.programs.find(parse_whole(values.get("program_id")), module, operation)
            or xla.parse_collective_text(text)
            or xla.parse_collective_name(operation)
        )
        if known is None or not known.opcode:
            self.talks = self.talks or KERNEL.search(name) is not None
            return None
        self.talks = True
        self.replicas = max(self.replicas, known.devices)
        if known not in self._told:
            # Ranks are the devices of the job in the order of their numbers.
            ranks = [tuple(self._ranks.get(device, device) for device in group) for group in known.groups]
            self._told[known] = replace(known, groups=tuple(ranks))
        return self._told[known].facts()

    def ranks(self) -> dict[int, int | None]:
        """Return the rank of each device of the process, None where it is not told which of the job's devices it is."""
        local = sorted(self.own)
        every = sorted(self.programs.devices)
        numbers = dict(self.numbers) if self.planes else {device: device for device in local}
        if not numbers and len(every) == len(local) > 1:
            numbers = dict(zip(local, every, strict=True))
        ranks = {device: self._ranks.get(numbers.get(device, NONE)) for device in local}
        # Alone in its programs a device may be any of a job.
        return ranks if len(every) > 1 and None not in ranks.values() else dict.fromkeys(local)


def _name_collective(name: str, comm: dict[str, Any]) -> str:
    """Return the name of a collective; of one that is no type of Chakra's schema with what it is, which programs need not say."""
    opcode = str(comm["collective"])
    is_told = opcode != _PERMUTE or name.startswith(opcode) or "nccl" in name.lower()
    return name if is_told else f"{opcode} ({name})"


def _name_operation(event: Timed) -> str:
    return str(event[3].get("hlo_op") or event[0])


def _join_asynchronous(ordered: list[Timed]) -> Iterator[Timed]:
    """Yield asynchronous operations whole, each of which may be written as its beginning and its end, of one flow."""
    flows: dict[int, list[Timed]] = {}
    for event in ordered:
        flow = parse_whole(event[3].get("flow"))
        if flow >= 0:
            flows.setdefault(flow, []).append(event)
    for event in ordered:
        same = flows.get(parse_whole(event[3].get("flow")), [event])
        if len(same) == 2 and _DONE.search(_name_operation(same[1])):
            if event is same[0]:
                end = same[1][1] + same[1][2]
                yield event[0], event[1], end - event[1], event[3]
        else:
            yield event


def _holds_work(line: Line, lines: list[Line]) -> bool:
    """Whether a line of a device holds what it did, not what other lines hold in another grouping."""
    if any(_STREAM.match(other.name) for other in lines):
        return _STREAM.match(line.name) is not None
    if any(other.name in _OPERATIONS for other in lines):
        return line.name in _OPERATIONS
    return True


def parse_whole(value: Any) -> int:
    """Return a whole number from 0 that a value or its digits are, -1 where they are none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**63 else NONE


def build_parts(
    reading: Reading, process: Process, host: str, base_ns: int | None, noticed: list[Finding]
) -> list[Part]:
    """Return a rank for each device of a process, or one where there is one or it is not told which did what."""
    damaged = any(finding.level == "error" for finding in noticed)
    if _has_overlap(process.untold):
        noticed.append(_build_untold_finding(reading.name, len(process.untold)))
        process.shared = [
            event if event.comm is None or event.comm["collective"] == _PERMUTE else event._replace(comm=None)
            for event in process.shared
        ]
    if process.untold_programs:
        noticed.append(_build_unknown_finding(reading.name, process.untold_programs))
    # Devices that exchange nothing are one rank, as those of other recorders.
    several = len(process.own) > 1 and process.talks
    devices = process.ranks() if several or len(process.own) == 1 else {}
    common = Head(
        world_size=process.replicas or None, backend="xla", host=host, base_ns=base_ns, recorder=XLA
    )
    parts: list[Part] = []
    dropped = 0
    for place, device in enumerate(devices or (NONE,)):
        own = process.own[device] if devices else [event for each in process.own.values() for event in each]
        correlations = {event.correlation for event in own}
        events = Events()
        for event in (*process.shared, *own):
            # Launches of other devices, and stacks of Python, which become no nodes, are not repeated.
            if not several or not (
                (event.kind == EventKind.RUNTIME and event.correlation not in correlations)
                or (event.kind == EventKind.PYTHON and place)
            ):
                events.add(event)
        head = replace(
            common,
            rank=devices.get(device),
            devices=tuple(
                plane
                for owner, planes in process.planes.items()
                if owner == device or not devices
                for plane in planes
            ),
            place=(place, len(devices)) if several else None,
        )
        dropped = max(dropped, events.damaged)
        parts.append(DevicePart(events.trace(reading.name, head, damaged=damaged)))
    noticed += build_findings(reading.name, dropped, process.left)
    if several:
        message = (
            f"{reading.name}: one process with {len(devices)} devices, each of which is a rank; what its host did for all of "
            "them is on each of these ranks."
        )
        noticed.append(Finding("info", "device-ranks", message, file=reading.name))
    first = parts[0]
    assert isinstance(first, DevicePart)
    return [replace(first, findings=tuple(noticed)), *parts[1:]]


def _has_overlap(spans: list[tuple[int, int]]) -> bool:
    """Whether any two of some times overlap."""
    ordered = sorted(spans)
    return any(later[0] < earlier[1] for earlier, later in pairwise(ordered))


def _build_unknown_finding(name: str, count: int) -> Finding:
    message = (
        f"{name}: the programs are not in it, so which of {count:,} operations on the host are collectives is not known; all of "
        "them count as other work of the host."
    )
    hint = "Open the .xplane.pb of the same recording, which holds the programs."
    return Finding("warning", "unknown-collective", message, hint, file=name)


def _build_untold_finding(name: str, count: int) -> Finding:
    message = (
        f"{name}: {format_counted(count, 'collective')} of several devices on the host, and it is not told which device each is of; they "
        "count as other work of the host."
    )
    hint = "Record again with a newer jaxlib, which says it, or with one device for each process."
    return Finding("warning", "unknown-collective", message, hint, file=name)
