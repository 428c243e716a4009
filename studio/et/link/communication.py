"""Find the communicating nodes with type, size and group: from metadata, else from tensors, else from names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from studio.et.link.attribute import DeviceOperations
from studio.et.link.carried import BY_MESSAGES, find_library_rows, match_calls
from studio.et.link.device_facts import add_direct, find_on_device
from studio.et.link.fact_reader import KINETO_NAMES, LAUNCHES, ONE_LIST, FactReader, read_metadata
from studio.et.link.facts import Communication, Facts, merge_facts
from studio.et.link.names import NO_COLLECTIVES, infer_operator_kind, simplify_name
from studio.et.link.noted import match_noted
from studio.et.link.operations import Operations
from studio.et.link.process_groups import read_groups
from studio.et.recording import DeviceTrace, Group, HostTrace
from studio.trace import NONE

_RECORDER = "record_param_comms"
_NAMESPACES = ("c10d::", "_c10d_functional::", "c10d_functional::", "_c10d_functional_autograd::")


def find_communication(
    operations: Operations,
    host: HostTrace | None,
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
) -> Communication:
    """Find every communication of a rank once: as the kernel, the library's own operation, or the call."""
    communication = Communication(groups=read_groups(operations, host, device))
    calls = _collect_calls(operations, host, device, communication)
    if device is not None and device.head.calls:
        _add_noted(operations, calls, device, communication.groups)
    on_device: set[int] = set()
    if device is not None and launched is not None:
        on_device = find_on_device(operations, device, launched, calls, communication)
        add_direct(operations, FactReader(operations, host, device), launched, communication)
    carried = _move_to_library(operations, calls, host, device, on_device, communication)
    lost = _find_lost_ends(operations, calls.keys() - on_device - carried)
    for row, facts in calls.items():
        if row not in on_device and row not in carried:
            communication.operators[row] = (
                replace(facts, inferred=(*facts.inferred, "end")) if row in lost else facts
            )
    communication.callers = {
        row: _read_thread(operations, host, row)
        for row, facts in calls.items()
        if facts.group is None and not facts.group_ranks
    }
    return communication


def _read_thread(operations: Operations, host: HostTrace | None, row: int) -> int:
    """Return the number of a call's thread: an execution trace holds threads that a Kineto trace leaves out."""
    return int(operations.thread[row] if host is None else host.numbers["tid"][row])


def _find_lost_ends(operations: Operations, calls: Collection[int]) -> set[int]:
    """Return those of the calls that were made on a processor's library and that it was still carrying out when the recording ended."""
    if not find_library_rows(operations):
        return set()
    return {
        row
        for row in calls
        if operations.name_of(row).startswith("c10d::")
        and simplify_name(operations.name_of(row)) not in BY_MESSAGES
    }


def _add_noted(
    operations: Operations, calls: dict[int, Facts], device: DeviceTrace, groups: Mapping[str, Group]
) -> None:
    """Complete calls by the group and number that `studio.collect` wrote; of those it left out, only a job's one group is known."""
    kinds = {row: facts.kind for row, facts in calls.items()}
    given = {row: facts.bytes_in for row, facts in calls.items()}
    for row, note in match_noted(operations, kinds, given, device.head.calls).items():
        facts = calls[row]
        seq = facts.seq if facts.seq >= 0 else note.number
        calls[row] = replace(facts, group=facts.group or note.group, seq=seq)
    # Groups that were made while it recorded are in no list.
    known = groups.keys() | {note.group for note in device.head.calls if note.group}
    if len(known) == 1:
        [only] = known
        calls |= {row: replace(facts, group=facts.group or only) for row, facts in calls.items()}


def _move_to_library(
    operations: Operations,
    calls: dict[int, Facts],
    host: HostTrace | None,
    device: DeviceTrace | None,
    on_device: set[int],
    communication: Communication,
) -> set[int]:
    """Move calls to the operations in which the library carries them out on the processor (gloo).

    A call that a kernel carries out stays with the kernel.

    Returns:
        Calls whose communication is such an operation.
    """
    kinds = {row: facts.kind for row, facts in calls.items()}
    carried = match_calls(operations, kinds, host, device)
    communication.issued_by.update(carried)
    reader = FactReader(operations, host, device)
    communication.operators.update(
        {row: reader.of_library(row, calls[call]) for row, call in carried.items() if call not in on_device}
    )
    return set(carried.values())


# ---------------------------------------------------------------------------------------------------
# Calls


def _collect_calls(
    operations: Operations, host: HostTrace | None, device: DeviceTrace | None, communication: Communication
) -> dict[int, Facts]:
    """Return the facts of each call by row; of nested calls for one collective the outermost."""
    reader = FactReader(operations, host, device)
    rows: dict[int, Facts] = {}
    recorders, functional = [], []
    telling = operations.find_named(lambda name: name == _RECORDER or name.startswith(_NAMESPACES))
    for row in telling.tolist():
        name = operations.name_of(row)
        if name.startswith("c10d::"):
            facts = reader.of_operator(row)
            if facts:
                rows[row] = facts
            elif simplify_name(name) not in NO_COLLECTIVES:
                communication.add_unknown(name)
        elif name == _RECORDER:
            recorders.append(row)
        elif infer_operator_kind(name) is not None:
            functional.append(row)
    _add_recorded(operations, reader, recorders, rows, communication)
    _add_functional(operations, reader, functional, rows, communication)
    _add_launched(operations, reader, rows)
    _add_programs(operations, device, rows, communication)
    return rows


def _add_recorded(
    operations: Operations,
    reader: FactReader,
    recorders: list[int],
    rows: dict[int, Facts],
    communication: Communication,
) -> None:
    """Complete calls with what recorders below them say; a recorder without a call becomes one."""
    for row in recorders:
        facts = reader.of_recorder(row, communication)
        call = operations.find_above(row, "c10d::")
        if facts and call in rows:
            rows[call] = merge_facts(facts, rows[call])
        elif facts:
            rows[row] = facts


def _add_functional(
    operations: Operations,
    reader: FactReader,
    functional: list[int],
    rows: dict[int, Facts],
    communication: Communication,
) -> None:
    """Give calls the group and size that the functional collective above them names; one without a call becomes one."""
    named = {row: reader.group_text(row, communication.groups) for row in functional}
    covered = set()
    for row, facts in list(rows.items()):
        above = operations.find_above(row, _NAMESPACES[1:])
        covered.add(above)
        completed = facts if facts.group is not None else replace(facts, group=named.get(above) or None)
        if completed.bytes_in < 0 and above >= 0:
            # Calls of one collective in a list of tensors have no size in a Kineto trace alone.
            size = reader.of_operator(above)
            if size is not None and size.kind == completed.kind:
                completed = replace(
                    completed, bytes_in=size.bytes_in, inferred=completed.inferred or size.inferred
                )
        rows[row] = completed
    for row in named.keys() - covered:
        if facts_of_row := reader.of_operator(row):
            rows[row] = replace(facts_of_row, group=named[row] or None)


def _add_launched(operations: Operations, reader: FactReader, rows: dict[int, Facts]) -> None:
    """Give calls on lists of tensors, whose shapes a Kineto trace leaves out, the size of what NCCL's own operations in them name."""
    if all(facts.bytes_in >= 0 for facts in rows.values()):
        return
    given: dict[int, int] = {}
    for row in operations.find_named(lambda name: name.startswith(LAUNCHES)).tolist():
        call = _find_call_around(operations, row, rows)
        if call >= 0 and rows[call].bytes_in < 0:
            size = reader.of_launch(row, rows[call].kind)
            # One without a size leaves the whole unknown.
            before = given.get(call, 0)
            given[call] = before + size if before >= 0 <= size else NONE
    for call, size in given.items():
        facts = rows[call]
        if size >= 0:
            taken = size if facts.kind in ONE_LIST else facts.bytes_out
            inferred = tuple(dict.fromkeys((*facts.inferred, "size")))
            rows[call] = replace(facts, bytes_in=size, bytes_out=taken, inferred=inferred)


def _add_programs(
    operations: Operations, device: DeviceTrace | None, rows: dict[int, Facts], communication: Communication
) -> None:
    """Add the collectives of XLA's programs that processors carry out, which are operations of the host."""
    if device is None or device.head.backend != "xla":
        return
    of_event = {event: row for row, event in enumerate(operations.event.tolist()) if event >= 0}
    for event in device.comm.keys() & of_event.keys():
        arguments = {KINETO_NAMES.get(key, key): value for key, value in device.comm[event].items()}
        kind = infer_operator_kind(str(arguments.get("collective_name", "")))
        if kind is not None:
            rows[of_event[event]] = read_metadata(kind, arguments)
        else:
            communication.add_unknown(str(arguments.get("collective_name")))


def _find_call_around(operations: Operations, row: int, calls: Collection[int]) -> int:
    """Return the nearest call around an operation of a library, -1 where there is none or another such operation lies between."""
    for _ in range(64):
        row = int(operations.parent[row])
        if row < 0 or operations.name_of(row).startswith(LAUNCHES):
            break
        if row in calls:
            return row
    return NONE
