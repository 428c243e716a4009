"""Measured tables from recorded jobs: how long collectives of each size and group took.

A member that arrives early waits inside its kernel, so of all members of a collective the shortest duration is the time
that the collective itself takes. The same collective runs many times in a job; the median of these times counts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from studio.analysis.collectives.members import Members, collect_members
from studio.analysis.collectives.messages import match_messages
from studio.analysis.collectives.nccl_tests import compute_whole_bytes
from studio.analysis.job.completeness import is_recording
from studio.calibration.reading.given import COLLECTIVES, Given, Tables
from studio.calibration.tables import MeasuredTable
from studio.errors import TraceError
from studio.et.inspector import MEMBERS, NODES
from studio.timeline import NodeTimes, read_recorded_times
from studio.trace import NONE, WORLD, CollectiveType, Trace, list_recorded_devices

_CHOICE = re.compile(
    r"_(?P<algorithm>RING|TREE|NVLS_?TREE|NVLS|COLLNET_?DIRECT|COLLNET_?CHAIN|PAT)_(?P<protocol>LL128|LL|SIMPLE)"
)
_ALGORITHMS = {"NVLSTREE": "nvls-tree", "COLLNETDIRECT": "collnet-direct", "COLLNETCHAIN": "collnet-chain"}

_Key = tuple[str, int, int]
"""What a table is of: the collective, members in a node, and nodes."""
_Found = dict[_Key, dict[int, list[tuple[float, str]]]]
"""By table and size: the durations, each with what its kernel's name tells."""


def parse_kernel_choice(name: str) -> str:
    """Return the algorithm and protocol in a kernel's name; "" where there are none.

    Example:
        >>> parse_kernel_choice("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
        'ring LL'
    """
    match = _CHOICE.search(name)
    if match is None:
        return ""
    algorithm = match["algorithm"].replace("_", "")
    protocol = {"SIMPLE": "Simple"}.get(match["protocol"], match["protocol"])
    return f"{_ALGORITHMS.get(algorithm, algorithm.lower())} {protocol}"


def read_recorded(name: str, trace: Trace, given: Given) -> Tables:
    """Return tables of the collectives and messages of a recorded job.

    Args:
        name: The job.
        trace: It.
        given: How many GPUs a node has; recordings do not tell.

    Raises:
        TraceError: The job has no recorded times of collectives, or it is not known where its nodes end.
    """
    if not is_recording(trace):
        raise TraceError(
            f"{name}: a job without recorded times", hint="Its collectives have to have run: record it."
        )
    per_node = _infer_gpus_per_node(name, trace, given)
    skipped: Counter[str] = Counter()
    times = read_recorded_times(trace)
    by_table: _Found = defaultdict(lambda: defaultdict(list))
    _add_collectives(trace, times, per_node, by_table, skipped)
    _add_messages(trace, times, per_node, by_table, skipped)
    notes = [f"{name}: {count} {what}." for what, count in skipped.items()]
    if not by_table:
        why = f" {' '.join(notes)}" if notes else ""
        raise TraceError(
            f"{name}: no collective of known size and duration.{why}", hint="Record kernels and groups."
        )
    devices = list_recorded_devices(trace)
    hardware = devices[0] if devices else ""
    tables = tuple(_build_table(name, hardware, key, sizes) for key, sizes in sorted(by_table.items()))
    return Tables(tables, tuple(notes))


def _infer_gpus_per_node(name: str, trace: Trace, given: Given) -> int:
    world = max((rank.number for rank in trace.ranks), default=0) + 1
    world = max([world, *(max(group.ranks, default=0) + 1 for group in trace.groups)])
    if given.gpus_per_node is not None:
        return given.gpus_per_node
    if given.nodes is not None and world % given.nodes == 0:
        return world // given.nodes
    if recorded := _read_gpus_per_node(trace):
        return recorded
    raise TraceError(
        f"{name}: a recording does not tell which of its {world} ranks share a node",
        hint="Give --gpus-per-node, such as --gpus-per-node 8; ranks are taken to fill one node after the other.",
    )


def _read_gpus_per_node(trace: Trace) -> int:
    """Return the GPUs of a node where every rank's recorder tells alike, 0 where it does not."""
    facts = {
        tuple(item.value for item in rank.metadata if item.name in (MEMBERS, NODES)) for rank in trace.ranks
    }
    numbers = facts.pop() if len(facts) == 1 else ()
    if len(numbers) != 2 or not all(isinstance(number, int) and number > 0 for number in numbers):
        return 0
    members, nodes = (int(number) for number in numbers)  # type: ignore[arg-type]  # whole numbers, as tested
    return members // nodes if members % nodes == 0 else 0


def _add_collectives(
    trace: Trace, times: NodeTimes, per_node: int, by_table: _Found, skipped: Counter[str]
) -> None:
    members = collect_members(trace, times)
    if not len(members):
        return
    groups = {group.name: group.ranks for group in trace.groups}
    everyone = tuple(rank.number for rank in trace.ranks)
    whole = compute_whole_bytes(
        members.type.astype(np.int64), _select_first(members, members.bytes), members.size.astype(np.int64)
    )
    for place in range(len(members)):
        name = members.groups[members.group[place]]
        ranks = groups.get(name, everyone if name == WORLD else ())
        why = _explain_untimed(members, place, len(ranks))
        if why:
            skipped[why] += 1
            continue
        span = slice(members.offsets[place], members.offsets[place + 1])
        if span.stop - span.start < members.size[place]:
            skipped[
                "collectives of which some ranks are not recorded count with those that are; they may hold waiting"
            ] += 1
        shortest = float((members.end_ns[span] - members.start_ns[span]).min())
        kind = CollectiveType(int(members.type[place])).name.lower()
        shape = _compute_shape(ranks, per_node)
        choice = parse_kernel_choice(members.titles[members.title[place]])
        by_table[(kind, *shape)][int(whole[place])].append((shortest, choice))


def _select_first(members: Members, column: np.ndarray) -> np.ndarray:
    return column[members.offsets[:-1]]


def _explain_untimed(members: Members, place: int, ranks: int) -> str:
    """Return why a collective tells no time; "" where it does."""
    span = slice(members.offsets[place], members.offsets[place + 1])
    kind = int(members.type[place])
    if kind == NONE or CollectiveType(kind).name.lower() not in COLLECTIVES:
        return "collectives left out: barriers, or of no known kind"
    if members.apart[place]:
        return "collectives left out: members differ in type or size, so that they are not one"
    if (members.start_ns[span] < 0).any() or (members.end_ns[span] <= members.start_ns[span]).any():
        return "collectives left out: without recorded times"
    if ranks < 2:
        return "collectives left out: of one rank, or of a group whose ranks are not known"
    size = members.bytes[span]
    if (size <= 0).any():
        return "collectives left out: without a size"
    return "collectives left out: of ranks that give different sizes" if (size != size[0]).any() else ""


def _add_messages(
    trace: Trace, times: NodeTimes, per_node: int, by_table: _Found, skipped: Counter[str]
) -> None:
    messages = match_messages(trace)
    whole = (messages.send_rank != NONE) & (messages.receive_rank != NONE) & (messages.bytes > 0)
    if len(messages) - int(whole.sum()):
        skipped["messages left out: without a size or one of both halves"] += len(messages) - int(whole.sum())
    for place in np.flatnonzero(whole).tolist():
        durations = [
            _compute_duration(times, int(rank[place]), int(row[place]))
            for rank, row in (
                (messages.send_rank, messages.send_row),
                (messages.receive_rank, messages.receive_row),
            )
        ]
        if min(durations) <= 0:
            skipped["messages left out: without recorded times"] += 1
            continue
        ends = (int(messages.source[place]), int(messages.target[place]))
        by_table[("send_recv", *_compute_shape(ends, per_node))][int(messages.bytes[place])].append(
            (min(durations), "")
        )


def _compute_duration(times: NodeTimes, rank: int, row: int) -> float:
    first = int(times.first[rank])
    if first < 0 or times.start_ns[first + row] < 0:
        return -1.0
    return float(times.end_ns[first + row] - times.start_ns[first + row])


def _compute_shape(ranks: tuple[int, ...], per_node: int) -> tuple[int, int]:
    """Return members in the fullest node, and nodes."""
    nodes = Counter(rank // per_node for rank in ranks)
    return max(nodes.values()), len(nodes)


def _build_table(
    name: str, hardware: str, key: _Key, sizes: Mapping[int, list[tuple[float, str]]]
) -> MeasuredTable:
    collective, per_node, nodes = key
    ordered = sorted(sizes)
    choices = [Counter(choice for _, choice in sizes[size]).most_common(1)[0][0] for size in ordered]
    stem = re.sub(r"[^\w.-]+", "_", name.rsplit("/", 1)[-1]) or "job"
    return MeasuredTable(
        table_id=f"{stem}_n{nodes}_g{per_node}_{collective}",
        source=f"recorded job {name}",
        hardware=hardware,
        gpus_per_node=per_node,
        nodes=nodes,
        interconnect="",
        nominal_gbytes_per_s=float("nan"),
        library_version="",
        collective=collective,
        dtype="",
        size_bytes=np.array(ordered, np.float64),
        time_us=np.array([float(np.median([time for time, _ in sizes[size]])) / 1e3 for size in ordered]),
        machine="",
        choices=tuple(choices) if any(choices) else (),
    )
