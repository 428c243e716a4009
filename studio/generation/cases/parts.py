"""What cases are made of: nodes written down one by one, and the sizes that a user can choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from studio.et.records import NodeRecord
from studio.sim.config import SystemConfig
from studio.trace import Attribute, CollectiveType, NodeType, Value, ValueKind

_KINDS = {bool: ValueKind.BOOL, int: ValueKind.INT64, float: ValueKind.DOUBLE, str: ValueKind.STRING}
_CUSTOMARY = {
    "comm_src": ValueKind.INT32,
    "comm_dst": ValueKind.INT32,
    "comm_tag": ValueKind.INT32,
    "tensor_size": ValueKind.UINT64,
}
US = 1000
"""Nanoseconds of a microsecond."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a user can choose, with the names and defaults of the existing generator.

    Attributes:
        npus: Ranks of a case; some faults need another number.
        runtime_us: Duration of compute nodes, in microseconds.
        tensor_bytes: Size of tensors of memory nodes and messages.
        comm_bytes: Size of collectives.
    """

    npus: int = 4
    runtime_us: int = 5
    tensor_bytes: int = 1024
    comm_bytes: int = 65536


@dataclass(frozen=True, slots=True)
class CaseJob:
    """The job of a case.

    Attributes:
        ranks: The nodes of each rank.
        groups: Comm groups; no file is written where there are none.
        metadata: What the files say of themselves.
        system: The system it is meant for, None for any.
    """

    ranks: Mapping[int, Sequence[NodeRecord]]
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    metadata: Sequence[Attribute] = ()
    system: SystemConfig | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A case.

    Attributes:
        name: What it and its files are called.
        kind: `micro`, `collective`, `algorithm` or `fault`.
        shows: What it shows, in a sentence.
        make: Makes its job.
    """

    name: str
    kind: str
    shows: str
    make: Callable[[Sizes], CaseJob]


def build_attribute(name: str, value: Value) -> Attribute:
    """Return an attribute of the customary kind."""
    kind = _CUSTOMARY.get(name) or _KINDS[type(value)]
    return Attribute(name, kind, value)


def build_node(
    number: int, kind: NodeType, *deps: int, name: str = "", duration_ns: int = 0, **attrs: Any
) -> NodeRecord:
    """Return a node that waits for others by data."""
    return NodeRecord(
        number,
        name or f"{kind.name.lower()}_{number}",
        int(kind),
        data=deps,
        start_ns=attrs.pop("start_ns", -1),
        duration_ns=duration_ns,
        attrs=[build_attribute(key, value) for key, value in attrs.items()],
    )


def build_compute(sizes: Sizes, number: int, *deps: int, **attrs: Any) -> NodeRecord:
    """Return a compute node of the chosen duration, at least a microsecond, on the device."""
    duration_ns = attrs.pop("duration_ns", max(sizes.runtime_us, 1) * US)
    return build_node(number, NodeType.COMP, *deps, duration_ns=duration_ns, **{"is_cpu_op": False, **attrs})


def build_collective(
    sizes: Sizes, number: int, kind: CollectiveType, *deps: int, size: int | None = None, **attrs: Any
) -> NodeRecord:
    """Return a collective of the chosen size."""
    amount = max(sizes.comm_bytes, 1) if size is None else size
    given = {"is_cpu_op": False, "comm_type": int(kind), "comm_size": amount, **attrs}
    return build_node(number, NodeType.COMM_COLL, *deps, **given)


def build_send(sizes: Sizes, number: int, target: int, *deps: int, tag: int = 0, **attrs: Any) -> NodeRecord:
    """Return a send to a rank."""
    given = {"comm_dst": target, "comm_size": max(sizes.tensor_bytes, 1), "comm_tag": tag, **attrs}
    return build_node(number, NodeType.COMM_SEND, *deps, is_cpu_op=False, **given)


def build_receive(
    sizes: Sizes, number: int, source: int, *deps: int, tag: int = 0, **attrs: Any
) -> NodeRecord:
    """Return a receive from a rank."""
    given = {"comm_src": source, "comm_size": max(sizes.tensor_bytes, 1), "comm_tag": tag, **attrs}
    return build_node(number, NodeType.COMM_RECV, *deps, is_cpu_op=False, **given)
