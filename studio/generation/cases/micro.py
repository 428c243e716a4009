"""The fourteen micro-cases of the existing generator (`chakra_generator`), each with one or two nodes a rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from studio.et.records import NodeRecord
from studio.generation.cases.parts import US, Case, CaseJob, Sizes, build_node
from studio.trace import Attribute, CollectiveType, NodeType, Value, ValueKind

_FLOAT, _TEXTS = (1.2345, 2.3456), [str(number) for number in range(12345, 12355)]
_LARGE, _SMALL = 9876543210, 12345
_VALUES: dict[str, tuple[Value, list[int | float | bool | str | bytes]]] = {
    "double": (_FLOAT[0], list(_FLOAT)),
    "float": (_FLOAT[0], list(_FLOAT)),
    "int32": (_SMALL, [_SMALL, 23456]),
    "int64": (_LARGE, [_LARGE, 1234567890]),
    "uint32": (_SMALL, [_SMALL, 23456]),
    "uint64": (_LARGE, [_LARGE, 1234567890]),
    "sint32": (-_SMALL, [_SMALL, -23456]),
    "sint64": (-_LARGE, [_LARGE, -1234567890]),
    "fixed32": (_SMALL, [_SMALL, 23456]),
    "fixed64": (_LARGE, [_LARGE, 1234567890]),
    "sfixed32": (-_SMALL, [_SMALL, -23456]),
    "sfixed64": (-_LARGE, [_LARGE, -1234567890]),
    "bool": (True, [True, False] * 5),
    "string": (_TEXTS[0], list(_TEXTS)),
    "bytes": (_TEXTS[0].encode(), [text.encode() for text in _TEXTS]),
}
_DOCUMENTED = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "string")
"""Kinds of which the existing generator gives the scalar a doc string."""


def _build_every_kind(_sizes: Sizes, number: int) -> list[NodeRecord]:
    attrs = []
    for name, (scalar, listed) in _VALUES.items():
        kind = ValueKind[name.upper()]
        attrs.append(Attribute(name, kind, scalar, name if name in _DOCUMENTED else ""))
        attrs.append(Attribute(f"{name}_list", ValueKind(kind + 1), listed))
    return [NodeRecord(number, "METADATA_NODE", int(NodeType.METADATA), attrs=attrs)]


def _prepare_tensor_node(kind: NodeType) -> Callable[[Sizes, int], list[NodeRecord]]:
    """Return what makes a node that moves a tensor."""
    return lambda sizes, number: [
        build_node(number, kind, name=f"{kind.name}_NODE", is_cpu_op=False, tensor_size=sizes.tensor_bytes)
    ]


def _prepare_compute_nodes(count: int, *, dependent: bool) -> Callable[[Sizes, int], list[NodeRecord]]:
    def build_nodes(sizes: Sizes, number: int) -> list[NodeRecord]:
        return [
            build_node(
                number + place,
                NodeType.COMP,
                *([number + place - 1] if dependent and place else []),
                name="COMP_NODE",
                duration_ns=sizes.runtime_us * US,
                is_cpu_op=False,
            )
            for place in range(count)
        ]

    return build_nodes


def _prepare_collective(kind: CollectiveType) -> Callable[[Sizes, int], list[NodeRecord]]:
    return lambda sizes, number: [
        build_node(
            number,
            NodeType.COMM_COLL,
            name=kind.name,
            is_cpu_op=False,
            comm_type=int(kind),
            comm_size=0 if kind == CollectiveType.BARRIER else sizes.comm_bytes,
        )
    ]


_TABLE: Sequence[tuple[str, str, int, Callable[[Sizes, int], list[NodeRecord]]]] = (
    ("one_metadata_node_all_types", "A metadata node with an attribute of every kind.", 1, _build_every_kind),
    ("one_remote_mem_load_node", "A load from remote memory.", 1, _prepare_tensor_node(NodeType.MEM_LOAD)),
    ("one_remote_mem_store_node", "A store to remote memory.", 1, _prepare_tensor_node(NodeType.MEM_STORE)),
    ("one_comp_node", "A compute node.", 1, _prepare_compute_nodes(1, dependent=False)),
    (
        "two_comp_nodes_independent",
        "Two compute nodes that wait for nothing.",
        2,
        _prepare_compute_nodes(2, dependent=False),
    ),
    (
        "two_comp_nodes_dependent",
        "A compute node that waits for another.",
        2,
        _prepare_compute_nodes(2, dependent=True),
    ),
    *(
        (kind.name, f"The collective {kind.name} of all ranks.", 1, _prepare_collective(kind))
        for kind in (
            CollectiveType.ALL_REDUCE,
            CollectiveType.ALL_TO_ALL,
            CollectiveType.ALL_GATHER,
            CollectiveType.REDUCE_SCATTER,
            CollectiveType.BROADCAST,
            CollectiveType.BARRIER,
        )
    ),
    ("one_comm_send_node", "A send that does not say where to.", 1, _prepare_tensor_node(NodeType.COMM_SEND)),
    (
        "one_comm_recv_node",
        "A receive that does not say where from.",
        1,
        _prepare_tensor_node(NodeType.COMM_RECV),
    ),
)
"""Name, what it shows, nodes of a rank, and what makes them from the sizes and the first id."""


def _build_case(index: int) -> Case:
    name, shows, count, build = _TABLE[index]

    def make(sizes: Sizes) -> CaseJob:
        # Ids run on from rank to rank and from case to case, as those of the existing generator do.
        before = sum(nodes for _, _, nodes, _ in _TABLE[:index]) * sizes.npus
        return CaseJob({rank: build(sizes, before + rank * count) for rank in range(sizes.npus)})

    return Case(name, "micro", shows, make)


MICRO: tuple[Case, ...] = tuple(_build_case(index) for index in range(len(_TABLE)))
"""In the order of the existing generator."""
