"""Give kernels that communicate their facts: from their metadata, the calls around their launch, or their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from studio.et.direct import OPERATORS, infer_direct_kind, talks_without_kind
from studio.et.link.attribute import DeviceOperations
from studio.et.link.fact_reader import KINETO_NAMES, LAUNCHES, ONE_LIST, FactReader, read_metadata
from studio.et.link.facts import Communication, Facts, merge_facts
from studio.et.link.names import KERNEL, RECEIVE, SEND, infer_kernel_kind, infer_operator_kind
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace, EventKind, mark_names
from studio.trace import NONE, Int64


def find_on_device(
    operations: Operations,
    device: DeviceTrace,
    launched: DeviceOperations,
    calls: dict[int, Facts],
    communication: Communication,
) -> set[int]:
    """Give kernels of communication libraries their facts; return the calls they carry out.

    Those launched before the recording began are unknown, unless they say what they are: which call they belong to is not known, and
    of other ranks another number of them may have been under way.
    """
    kernels = np.flatnonzero(device.kind[launched.event] == EventKind.KERNEL)
    events = launched.event[kernels]
    named = mark_names(device.names, device.name[events], lambda name: KERNEL.search(name) is not None)
    communicating = []
    for place, event, by_name in zip(kernels.tolist(), events.tolist(), named.tolist(), strict=True):
        if "collective" in device.comm.get(event, ()) or (by_name and not launched.earlier[place]):
            communicating.append((place, event))
        elif by_name:
            communication.add_unknown(device.names[device.name[event]].split("(")[0])
    communicating += _find_direct_in_calls(operations, device, launched, calls, kernels)
    calling = _find_calls_around(operations, launched, calls, [place for place, _ in communicating])
    together = _find_calls_together(operations, device, launched, calls, calling)
    of_call: dict[int, list[int]] = {}
    done: set[int] = set()
    for place, event in communicating:
        row = calling[place]
        if place in together and _add_together(
            place, [calls[each] for each in together[place]], communication
        ):
            done.update(together[place])
            continue
        facts = _infer_kernel_facts(device, event, calls.get(row), communication)
        if facts is None:
            continue
        if row >= 0:
            of_call.setdefault(row, []).append(place)
            if int(launched.operator[place]) != row:
                communication.issued_by[int(launched.operator[place])] = row
        communication.devices[place] = facts
    for row, places in of_call.items():
        _share_bytes(places, calls[row], device, launched, communication)
    _add_sizes_of_launches(
        operations,
        FactReader(operations, None, device),
        launched,
        [place for place in calling if calling[place] < 0],
        communication,
    )
    return done | set(of_call)


def _add_sizes_of_launches(
    operations: Operations,
    reader: FactReader,
    launched: DeviceOperations,
    places: Sequence[int],
    communication: Communication,
) -> None:
    """Give kernels without a call, as PyTorch recorded none before 1.11, the size of the tensors that NCCL's own operation names.

    An operation that launched several kernels does not tell the size of each.
    """
    of_launch: dict[int, list[int]] = {}
    for place in places:
        row = int(launched.operator[place])
        if row >= 0 and not operations.name_of(row).startswith(LAUNCHES):
            row = operations.find_above(row, LAUNCHES)
        if row >= 0:
            of_launch.setdefault(row, []).append(place)
    for row, own in of_launch.items():
        facts = communication.devices.get(own[0])
        size = reader.of_launch(row, facts.kind) if facts is not None and len(own) == 1 else NONE
        if facts is not None and facts.bytes_in < 0 <= size:
            taken = size if facts.kind in ONE_LIST else facts.bytes_out
            communication.devices[own[0]] = replace(facts, bytes_in=size, bytes_out=taken)


def _find_direct_in_calls(
    operations: Operations,
    device: DeviceTrace,
    launched: DeviceOperations,
    calls: Mapping[int, Facts],
    kernels: Int64,
) -> list[tuple[int, int]]:
    """Return places and events of kernels that need no library but were launched in a call for communication, which they carry out.

    So does PyTorch's own all-reduce within a node, which takes the place of NCCL's.
    """
    direct = [infer_direct_kind(name) is not None and KERNEL.search(name) is None for name in device.names]
    places = kernels[np.array(direct or [False])[device.name[launched.event[kernels]]]].tolist()
    around = _find_calls_around(operations, launched, calls, places) if calls else {}
    return [
        (place, int(launched.event[place]))
        for place in places
        if around.get(place, NONE) >= 0
        and "collective" not in device.comm.get(int(launched.event[place]), ())
    ]


def _find_calls_around(
    operations: Operations, launched: DeviceOperations, calls: Mapping[int, Facts], places: Sequence[int]
) -> dict[int, int]:
    """Return the call around the launch of each kernel, -1 where there is none, by place."""
    around = {}
    for place in places:
        row = int(launched.operator[place])
        while row >= 0 and row not in calls:
            row = int(operations.parent[row])
        around[place] = row
    return around


def _infer_kernel_facts(
    device: DeviceTrace, event: int, call: Facts | None, communication: Communication
) -> Facts | None:
    """Return type, size and group of a communication kernel; None, counted as unknown, where nothing gives them."""
    arguments = {KINETO_NAMES.get(key, key): value for key, value in device.comm.get(event, {}).items()}
    name = device.names[device.name[event]]
    kind = infer_operator_kind(str(arguments.get("collective_name", "")))
    if kind is not None:
        facts = read_metadata(kind, arguments)
        return merge_facts(facts, call) if call and call.kind == kind else facts
    if call is not None:
        return call
    kind = infer_kernel_kind(name)
    kind = infer_direct_kind(name) if kind is None else kind
    if kind is None:
        communication.add_unknown(str(arguments.get("collective_name") or name.split("(")[0]))
        return None
    return Facts(kind, inferred=("type", "size", "group"))


def _share_bytes(
    places: Sequence[int],
    call: Facts,
    device: DeviceTrace,
    launched: DeviceOperations,
    communication: Communication,
) -> None:
    """Divide a call's bytes among its kernels that have no size of their own, so that they count once."""
    silent = [
        place for place in places if "collective" not in device.comm.get(int(launched.event[place]), {})
    ]
    if len(places) < 2 or not silent or call.bytes_in < 0:
        return
    if len(silent) < len(places):
        rest = 0
    else:
        rest = call.bytes_in
    for index, place in enumerate(silent):
        part = rest * (index + 1) // len(silent) - rest * index // len(silent)
        communication.devices[place] = replace(
            communication.devices[place], bytes_in=part, bytes_out=NONE, inferred=("size",)
        )


def _find_calls_together(
    operations: Operations,
    device: DeviceTrace,
    launched: DeviceOperations,
    calls: Mapping[int, Facts],
    calling: Mapping[int, int],
) -> dict[int, list[int]]:
    """Return the calls of kernels that were launched after them, for several at once, by place.

    Within a group of calls NCCL launches nothing until its end, which is outside of all of them. They are those that no kernel was
    launched in, since the kernel of a library that the thread launched before; on one group of ranks, as one kernel is.
    """
    launches = [place for place in calling if int(launched.launch[place]) >= 0]
    if not any(calling[place] < 0 for place in launches):
        return {}
    busy = set(calling.values())
    steps: list[tuple[int, int, bool, int]] = []
    for place in launches:
        launch = int(launched.launch[place])
        steps.append((int(device.thread[launch]), int(device.start_ns[launch]), True, place))
    for row in calls:
        event = int(operations.event[row])
        if event >= 0 and row not in busy:
            steps.append((int(device.thread[event]), int(device.start_ns[event]), False, row))
    together: dict[int, list[int]] = {}
    held: list[int] = []
    last = None
    for thread, _, is_launch, number in sorted(steps):
        if thread != last:
            held, last = [], thread
        if not is_launch:
            held.append(number)
        else:
            if calling[number] < 0 and held:
                together[number] = [row for row in held if calls[row].group == calls[held[-1]].group]
            held = []
    return together


def _add_together(place: int, facts: Sequence[Facts], communication: Communication) -> bool:
    """Give a kernel the facts of the calls it carries out together; return whether they can be."""
    kinds = {each.kind for each in facts}
    are_messages = kinds <= {SEND, RECEIVE}
    if len(kinds) > 1 and not are_messages:
        return False
    whole = facts[0]
    if len(facts) > 1 and are_messages:
        communication.batches[place] = tuple(facts)
    elif len(facts) > 1:
        total = sum(max(each.bytes_in, 0) for each in facts)
        whole = replace(whole, bytes_in=total or NONE, calls=len(facts), inferred=("size",))
    communication.devices[place] = whole
    return True


def add_direct(
    operations: Operations, reader: FactReader, launched: DeviceOperations, communication: Communication
) -> None:
    """Give kernels that communicate without a library their facts; those that do not tell which are counted as unknown."""
    device = reader.device
    assert device is not None
    kinds = [infer_direct_kind(name) for name in device.names]
    named = np.array([kind is not None for kind in kinds] or [False])[device.name[launched.event]]
    for place in np.flatnonzero(named & (device.kind[launched.event] == EventKind.KERNEL)).tolist():
        if place in communication.devices:
            continue
        kind = kinds[int(device.name[int(launched.event[place])])]
        assert kind is not None
        row = int(launched.operator[place])
        if row >= 0 and not operations.name_of(row).startswith(OPERATORS):
            row = operations.find_above(row, OPERATORS)
        facts = Facts(kind)
        while row >= 0 and facts.bytes_in < 0:
            # The innermost may name handles of memory alone.
            facts, row = reader.of_direct(row, kind), operations.find_above(row, OPERATORS)
        communication.devices[place] = replace(facts, inferred=("type", "size", "group"))
    _add_unnamed(device, launched, communication)


def _add_unnamed(device: DeviceTrace, launched: DeviceOperations, communication: Communication) -> None:
    """Count kernels that communicate without telling what as unknown."""
    unnamed = [talks_without_kind(name) for name in device.names]
    named = np.array(unnamed or [False])[device.name[launched.event]]
    for place in np.flatnonzero(named & (device.kind[launched.event] == EventKind.KERNEL)).tolist():
        if place not in communication.devices:
            name = device.names[device.name[int(launched.event[place])]]
            communication.add_unknown(name.replace("(anonymous namespace)::", "").split("(")[0])
