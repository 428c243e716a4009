"""What nodes occupy: the accelerator, the network, remote memory, the host, nothing, or a device's memory; and the types they are counted by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

from studio.kernel_names import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    LIBRARIES,
    MARKS,
    REDUCE_SCATTER,
    UNNAMED,
    join_expressions,
)
from studio.trace import (
    ARRIVAL,
    IDLE_GAPS,
    LAUNCH_NS,
    NONE,
    STALLED,
    Bool,
    Graph,
    Int32,
    Int64,
    NodeType,
    Trace,
    are_assumed_arrivals,
    are_copies,
    are_idle,
    communicates,
    decode_value,
    get_shown_type,
    get_shown_types,
    read_int_column,
    type_name,
)

COMPUTE, COMMUNICATION, MEMORY, CPU, NOTHING, COPY = range(6)

HOST_GAP, DEVICE_GAP = "host gap", "device gap"
"""What stands in lists of types for nodes that are written as compute although nothing computes: as linking names them."""
LIBRARY_KERNEL = "communication kernel"
"""What stands there for kernels that communicate and of which too little is known for a collective, also written as compute."""
ASSUMED_ARRIVAL = "assumed arrival"
"""What stands there for time of assumed ranks before they come to collectives: no recording has it."""
HOST_GAP_TYPE, DEVICE_GAP_TYPE, LIBRARY_KERNEL_TYPE, ASSUMED_ARRIVAL_TYPE = (
    -(2**31) + 1 + at for at in range(4)
)
"""Types of theirs, beside those of files and `COPY`."""
_TYPES_APART = {
    HOST_GAP_TYPE: HOST_GAP,
    DEVICE_GAP_TYPE: DEVICE_GAP,
    LIBRARY_KERNEL_TYPE: LIBRARY_KERNEL,
    ASSUMED_ARRIVAL_TYPE: ASSUMED_ARRIVAL,
}

_LIBRARY_KERNEL = re.compile(
    join_expressions(LIBRARIES, UNNAMED, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL).encode(),
    re.IGNORECASE,
)
"""Kernels that communicate. Of those that were launched before a recording began nothing else is known."""
_PERMUTE = re.compile(rb"collective-permute")
"""Begins what XLA's devices carry out as messages in a circle or the like, for which Chakra's schema has no type."""
_PERMUTE_MARKS = (b"collective-permute",)
_MARKS = tuple(mark.encode() for mark in MARKS)
_XLA_MARKS = (b"pjrt",)
"""The runtime of XLA, by which JAX runs programs."""
_XLA_OPERATION = re.compile(rb"[a-z_][a-z0-9_.-]*")
"""What operations of its programs are called; its runtime calls classes and says what it waits for."""
_LIBRARY_CALL = re.compile(
    rb"_?c10d(?:_functional)?(?:_autograd)?::|record_param_comms|(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl):"
)
"""How names of calls of communication libraries begin: a processor that is inside of one waits or hands over."""


def infer_node_kinds(graph: Graph) -> Int64:
    """Return (N,) the kind of work of each node of a graph."""
    kinds = np.full(len(graph), NOTHING, np.int64)
    kinds[graph.type == NodeType.COMP] = COMPUTE
    kinds[are_copies(graph)] = COPY
    kinds[are_idle(graph)] = NOTHING
    kinds[communicates(graph) | is_library_kernel(graph)] = COMMUNICATION
    kinds[(graph.type == NodeType.MEM_LOAD) | (graph.type == NodeType.MEM_STORE)] = MEMORY
    rows, values = read_int_column(graph, "is_cpu_op")
    kinds[rows[values != 0]] = CPU
    return kinds


def infer_counted_types(graph: Graph) -> Int32:
    """Return (N,) the types of nodes as they are shown, but types of their own for what is written as compute and is not.

    That are gaps and kernels of communication libraries: added up as compute they would contradict every account of where the time
    went. `label_counted_type` names the types.
    """
    types, gaps = get_shown_types(graph), graph.rows_with("gap")[0]
    gaps, kernels = gaps[graph.type[gaps] == NodeType.COMP], is_library_kernel(graph)
    if not len(gaps) and not kernels.any():
        return types
    types = types.copy()
    types[kernels] = LIBRARY_KERNEL_TYPE
    types[gaps] = HOST_GAP_TYPE
    types[are_idle(graph)] = DEVICE_GAP_TYPE
    types[are_assumed_arrivals(graph)] = ASSUMED_ARRIVAL_TYPE
    return types


def infer_counted_type(graph: Graph, row: int) -> int:
    """Return the type of one node, as `infer_counted_types` has it."""
    shown = get_shown_type(graph, row)
    if graph.type[row] != NodeType.COMP:
        return shown
    marks = {}
    for index in range(int(graph.attrs.offsets[row]), int(graph.attrs.offsets[row + 1])):
        key = graph.strings.raw(int(graph.attrs.key[index]))
        if key in (b"gap", b"is_cpu_op"):
            marks[key.decode()] = decode_value(graph.attrs, index, graph.strings, ())
    on_device = not marks.get("is_cpu_op")
    if "gap" in marks:
        if marks["gap"] == ARRIVAL:
            return ASSUMED_ARRIVAL_TYPE
        return DEVICE_GAP_TYPE if on_device and marks["gap"] in IDLE_GAPS else HOST_GAP_TYPE
    name = graph.strings.raw(int(graph.name[row])) if graph.name[row] != NONE else b""
    is_library = on_device and _LIBRARY_KERNEL.search(name) is not None
    return LIBRARY_KERNEL_TYPE if is_library or _PERMUTE.match(name) else shown


def label_counted_type(number: int) -> str:
    """Return the name of a type of `infer_counted_types`."""
    return _TYPES_APART.get(number) or type_name(number)


def infer_work_kinds(trace: Trace) -> list[Int64]:
    """Return for each graph (N,) the kind of work of each node as accounts of time have it.

    As `infer_node_kinds`, but time for which a stream waited to be given work is the host's; what it had been given long before, the
    host did not hold up, and of a host that was not recorded nobody knows. And where no node of the job computes on an accelerator, the processor is what it runs on:
    operators are compute, collectives communication, and the time between operators stays the host's, as does that of calls of
    communication libraries.
    """
    by_graph = [infer_node_kinds(graph) for graph in trace.graphs]
    on_processor = _use_no_accelerator(by_graph)
    for graph, kinds in zip(trace.graphs, by_graph, strict=True):
        if not lacks_host(graph):
            kinds[are_idle(graph)] = CPU
            kinds[are_idle(graph, (STALLED,))] = NOTHING
        if on_processor:
            working = kinds == CPU
            working[graph.rows_with("gap")[0]] = False
            kinds[working & computes_on_processor(graph)] = COMPUTE
            kinds[working & (communicates(graph) | _permutes(graph))] = COMMUNICATION
    return by_graph


def lacks_host(graph: Graph) -> bool:
    """Whether a graph has time for which streams stood idle, but no operator of the host and no launch: these were not recorded."""
    if not are_idle(graph).any() or len(graph.rows_with(LAUNCH_NS)[0]):
        return False
    _, values = read_int_column(graph, "is_cpu_op")
    return not values.any()


def runs_on_processor(trace: Trace) -> bool:
    """Return whether no node of a job computes on an accelerator: then the processor is what it runs on."""
    return _use_no_accelerator(infer_node_kinds(graph) for graph in trace.graphs)


def _use_no_accelerator(kinds: Iterable[Int64]) -> bool:
    return not any(np.isin(of_graph, (COMPUTE, COPY)).any() for of_graph in kinds)


def computes_on_processor(graph: Graph) -> Bool:
    """Return (N,) which nodes of a job that runs on its processor compute: its operators.

    Neither the time between operators does, nor calls of communication libraries, nor what XLA's runtime does around its operations.
    """
    working = (graph.type == NodeType.COMP) & ~_match_names(graph, _LIBRARY_CALL.match)
    working[graph.rows_with("gap")[0]] = False
    if len(graph.strings.holding(_XLA_MARKS)):
        working &= _match_names(graph, _XLA_OPERATION.fullmatch)
    return np.asarray(working)


def is_library_kernel(graph: Graph) -> Bool:
    """Return (N,) which compute nodes are kernels that communicate, by their names; not what is marked as work of the processor."""
    is_kernel = _match_names(graph, _LIBRARY_KERNEL.search, _MARKS)
    if is_kernel.any():
        rows, values = read_int_column(graph, "is_cpu_op")
        is_kernel[rows[values != 0]] = False
    return is_kernel | _permutes(graph)


def _permutes(graph: Graph) -> Bool:
    """Return (N,) which compute nodes are XLA's collective-permutes."""
    return _match_names(graph, _PERMUTE.match, _PERMUTE_MARKS)


def _match_names(graph: Graph, matches: Callable[[bytes], object], marks: tuple[bytes, ...] = ()) -> Bool:
    """Return (N,) which compute nodes have a name that matches.

    Args:
        graph: The graph.
        matches: Whether a name does.
        marks: Letters of which each that matches holds some, in either case; none where that is not known.
    """
    computes = graph.type == NodeType.COMP
    used = np.zeros(len(graph.strings) + 1, np.bool_)
    used[graph.name[computes]] = True
    codes = graph.strings.holding(marks) if marks else np.arange(len(graph.strings))
    matched = np.zeros(len(used), np.bool_)
    for code in codes[used[codes]].tolist():
        matched[code] = bool(matches(graph.strings.raw(code)))
    # Nodes without a name have the last place, which is none of a text.
    return np.asarray(matched[graph.name] & computes)
