"""Join the nodes of a recorded graph to the calls of operators they carry out, and work out what each call does.

The nodes whose time counts are operations of a device, or, of a rank that used none, the operators themselves. A
device operation belongs to the innermost operator around its launch that is in the table. Where the launch was not
recorded, it is taken to do what the operation of the same name, and nearest in duration, does whose call is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np

from studio.analysis.job.kinds import is_library_kernel
from studio.operators.table import OPERATORS, find_operator
from studio.operators.tables import GRADIENT, LOOKUP, fits_gradient
from studio.operators.tensors import (
    Call,
    NotRecordedError,
    Tensor,
    find_kernel_type,
    read_tensors,
    read_values,
)
from studio.operators.work import VECTOR, Work
from studio.trace import (
    NONE,
    Bool,
    Float64,
    Graph,
    Int64,
    NodeType,
    are_copies,
    are_idle,
    is_flagged,
    read_dense_column,
)

_HOST_LINK = ("HtoD", "DtoH", "HtoH", "Host", "HOST")
"""Words in the names of copies that cross the link between the processor's memory and the device's."""
_PEER_LINK = ("PtoP", "Peer")
"""Words in the names of copies from the memory of one device to that of another: the link between them bounds these, not either memory."""


class Part(IntEnum):
    """What a node's time counts as; NONE is for nodes whose time is not the device's."""

    NONE = 0
    COMPUTE = 1
    HOST_LINK = 2
    PEER_LINK = 3
    COMMUNICATION = 4


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of operators in one graph of N nodes, C calls.

    Attributes:
        part: (N,) a `Part`.
        call: (N,) the call that a node of part COMPUTE carries out, -1 where none is known.
        share: (N,) its part of the call's time.
        by_name: (N,) whether that is only known by the name of another node.
        row: (C,) the node that is the call.
        operator: (C,) row of the table.
        flop, bytes: (C,) what it does; NaN where its formula needs what was not recorded.
        type: (C,) the type whose peak bounds it, index into `types`.
        types: Data types.
        lacking: (C,) what the formula lacks, index into `reasons`, -1 where it lacks nothing.
        reasons: In words.
        on_device: Whether the nodes whose time counts are those of a device.
    """

    part: Int64
    call: Int64
    share: Float64
    by_name: Bool
    row: Int64
    operator: Int64
    flop: Float64
    bytes: Float64
    type: Int64
    types: tuple[str, ...]
    lacking: Int64
    reasons: tuple[str, ...]
    on_device: bool

    @property
    def known(self) -> Bool:
        """Which nodes (N,) have a formula that could be worked out."""
        is_known = self.call >= 0
        is_known[is_known] = self.lacking[self.call[is_known]] < 0
        return is_known


def collect_calls(graph: Graph) -> Calls:
    """Return the calls of a graph's operators."""
    is_cpu = is_flagged(graph, "is_cpu_op")
    part = _classify_parts(graph, is_cpu)
    on_device = bool((part == Part.COMPUTE).any())
    matched = _match_operators(graph)
    parent = _find_parents(graph)
    if not on_device:
        part = np.where(is_cpu & (graph.type == NodeType.COMP) & (parent >= 0), Part.COMPUTE, part)
        part = np.where(find_dense_gaps(graph), Part.NONE, part)
    counted = (matched >= 0) & is_cpu
    _drop_outer(counted, matched, parent)
    outer = (matched >= 0) & is_cpu & ~counted
    if not on_device:
        # On the processor they take time of their own, in which nothing but the call is made.
        counted |= outer
    around = _find_nearest(parent, counted)
    sized = read_dense_column(graph, "tensor_size", NONE) >= 0
    alone = (part == Part.COMPUTE) & (around < 0) & (matched >= 0) & ~is_cpu & sized
    counted |= alone
    around[alone] = np.flatnonzero(alone)
    rows = np.flatnonzero(counted)
    place = np.full(len(graph), NONE, np.int64)
    place[rows] = np.arange(len(rows))
    call = np.where((part == Part.COMPUTE) & (around >= 0), place[around], NONE) if len(graph) else place
    by_name = np.zeros(len(graph), np.bool_)
    time = np.bincount(call[call >= 0], graph.duration_ns[call >= 0], len(rows))
    share = np.zeros(len(graph), np.float64)
    share[call >= 0] = graph.duration_ns[call >= 0] / np.maximum(time[call[call >= 0]], 1)
    if on_device:
        _join_by_name(graph, part, call, share, by_name)
    flop, moved, kind, types, lacking, reasons = _collect_work(graph, rows, matched, call, outer[rows])
    return Calls(
        part, call, share, by_name, rows, matched[rows], flop, moved, kind, types, lacking, reasons, on_device
    )


def find_dense_gaps(graph: Graph) -> Bool:
    """Return (N,) which nodes stand for time between operators."""
    gaps = np.zeros(len(graph), np.bool_)
    gaps[graph.rows_with("gap")[0]] = True
    return gaps


def _classify_parts(graph: Graph, is_cpu: Bool) -> Int64:
    """Return (N,) what the nodes of the device count as."""
    part = np.full(len(graph), Part.NONE, np.int64)
    on_device = ~is_cpu & _says_where(graph)
    part[on_device & (graph.type == NodeType.COMP) & ~are_idle(graph)] = Part.COMPUTE
    moving = np.flatnonzero(are_copies(graph) & (part == Part.COMPUTE))
    for link, words in ((Part.PEER_LINK, _PEER_LINK), (Part.HOST_LINK, _HOST_LINK)):
        crossing = [
            any(word in graph.strings[int(code)] for word in words) for code in graph.name[moving].tolist()
        ]
        part[moving[np.array(crossing, np.bool_)]] = link
    communicates = np.isin(graph.type, (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV))
    part[on_device & (communicates | is_library_kernel(graph))] = Part.COMMUNICATION
    return part


def _says_where(graph: Graph) -> Bool:
    """Return (N,) which nodes say on which stream of a device they ran."""
    says = np.zeros(len(graph), np.bool_)
    says[graph.rows_with("stream")[0]] = True
    return says


def _match_operators(graph: Graph) -> Int64:
    """Return (N,) the row of the table that each node's name matches, -1 where there is none."""
    codes, back = np.unique(graph.name, return_inverse=True)
    row_of_name = np.array([find_operator(graph.strings[int(code)]) for code in codes.tolist()], np.int64)
    return row_of_name[back.reshape(-1)] if len(codes) else np.zeros(0, np.int64)


def _find_parents(graph: Graph) -> Int64:
    """Return (N,) the call that each node was made in, or that launched it; -1 where there is none."""
    parent = np.full(len(graph), NONE, np.int64)
    has = np.flatnonzero(np.diff(graph.ctrl.offsets) > 0)
    parent[has] = graph.ctrl.rows[graph.ctrl.offsets[has]]
    parent[(parent < 0) | (parent == np.arange(len(graph)))] = NONE
    return parent


_DEEPEST = 256


def _drop_outer(counted: Bool, matched: Int64, parent: Int64) -> None:
    """Take out calls in which an operator of the same family is called, which is the one that does the work."""
    families = {
        name: number for number, name in enumerate(dict.fromkeys(operator.family for operator in OPERATORS))
    }
    family_of = np.array([families[operator.family] for operator in OPERATORS], np.int64)
    family = np.where(matched >= 0, family_of[matched], NONE)
    rows = np.flatnonzero(counted)
    above = parent[rows]
    for _ in range(_DEEPEST):
        has_parent = above >= 0
        rows, above = rows[has_parent], above[has_parent]
        if not len(rows):
            return
        counted[above[family[above] == family[rows]]] = False
        above = parent[above]


def _find_nearest(parent: Int64, counted: Bool) -> Int64:
    """Return (N,) the node itself or the nearest one above it that is a call, -1 where there is none."""
    nearest = np.where(counted, np.arange(len(parent)), NONE)
    left = np.flatnonzero(~counted)
    above = parent[left]
    for _ in range(_DEEPEST):
        has_parent = above >= 0
        left, above = left[has_parent], above[has_parent]
        if not len(left):
            break
        hit = counted[above]
        nearest[left[hit]] = above[hit]
        left, above = left[~hit], parent[above[~hit]]
    return nearest


def _join_by_name(graph: Graph, part: Int64, call: Int64, share: Float64, by_name: Bool) -> None:
    """Give nodes without a launch the call of the node of their name that is nearest in duration."""
    loose = np.flatnonzero((part == Part.COMPUTE) & (call < 0))
    known = np.flatnonzero((part == Part.COMPUTE) & (call >= 0))
    order = known[np.lexsort((graph.duration_ns[known], graph.name[known]))]
    names = graph.name[order]
    for row in loose.tolist():
        first, after = (int(np.searchsorted(names, graph.name[row], side)) for side in ("left", "right"))
        if first == after:
            continue
        times, own = graph.duration_ns[order[first:after]], int(graph.duration_ns[row])
        at = int(np.searchsorted(times, own))
        near = [place for place in (at - 1, at) if 0 <= place < after - first]
        best = near[int(np.argmin(np.abs(times[near] - own)))]
        twin = int(order[first + best])
        call[row], share[row], by_name[row] = call[twin], share[twin], True


# ---------------------------------------------------------------------------------------------------
# Work

_Kernels = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and grid of each kernel."""


def _collect_work(
    graph: Graph, rows: Int64, matched: Int64, call: Int64, outer: Bool
) -> tuple[Float64, Float64, Int64, tuple[str, ...], Int64, tuple[str, ...]]:
    """Return what every call does: FLOP, bytes, type; each distinct one is worked out once.

    Those within which an operator of their family is called (`outer`) do nothing themselves.
    """
    flop, moved = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    kind, lacking = np.full(len(rows), NONE, np.int64), np.full(len(rows), NONE, np.int64)
    types: dict[str, int] = {}
    reasons: dict[str, int] = {}
    hints, meanings = _collect_hints(graph, call, len(rows))
    kernels, launched = _index_kernels(graph, call, matched[rows])
    needs_values = np.array([entry.needs_values for entry in OPERATORS], np.bool_)
    io = graph.io[rows, :3].astype(np.int64) if len(graph.io) else np.full((len(rows), 3), NONE, np.int64)
    io[~needs_values[matched[rows]], 0] = NONE
    gradients = _match_look_ups(graph, rows, io)
    size = read_dense_column(graph, "tensor_size", NONE)[rows]
    told_size = np.where(io[:, 1] < 0, size, NONE)
    keys = np.column_stack((graph.name[rows], matched[rows], io, hints, told_size, kernels, gradients))
    distinct, back = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(back.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(back.reshape(-1), minlength=len(distinct)))
    groups = [order[start:end] for start, end in pairwise((0, *ends.tolist()))]
    for own, (name, operator, values, shapes, kinds, hint, own_bytes, ran, *gradient) in zip(
        groups, distinct.tolist(), strict=True
    ):
        try:
            told_by_kernels = (*meanings[hint], launched.get(ran, ()))
            inputs = (values, shapes, kinds, own_bytes, *gradient)
            done = _compute_work(graph, name, operator, inputs, told_by_kernels)
        except NotRecordedError as error:
            lacking[own] = reasons.setdefault(f"not recorded: {error}", len(reasons))
            continue
        flop[own], moved[own] = done.flop, done.bytes
        kind[own] = types.setdefault(done.type, len(types))
    flop[outer], moved[outer], lacking[outer] = 0.0, 0.0, NONE
    kind[outer] = types.setdefault(VECTOR, len(types))
    return flop, moved, kind, tuple(types), lacking, tuple(reasons)


def _match_look_ups(graph: Graph, rows: Int64, io: Int64) -> Int64:
    """Give backward passes of FBGEMM's look-ups, which are recorded with the gradient alone, the arguments of their look-up.

    That is the last one before it that no other backward pass has, whose results have as many elements as the gradient, or, where
    nothing tells the width of its rows, as many rows.

    Returns:
        (C, 2) shapes and types of the gradient of each look-up and of its backward pass, -1 where there is none.
    """
    gradients = np.full((len(rows), 2), NONE, np.int64)
    ahead, back = (
        np.flatnonzero(graph.name[rows] == graph.strings.find(name)) for name in (LOOKUP, GRADIENT)
    )
    order = np.concatenate((ahead, back)) if len(ahead) else ahead
    waiting: list[tuple[int, Call]] = []
    lookups = set(ahead.tolist())
    for call in order[np.argsort(graph.start_ns[rows[order]], kind="stable")].tolist():
        tensors = _get_tensors(graph, io[call])
        if call in lookups:
            waiting.append((call, Call(LOOKUP, tensors)))
            continue
        fitting = [
            at
            for at, (_, lookup_call) in enumerate(waiting)
            if tensors and fits_gradient(lookup_call, tensors[0])
        ]
        if fitting:
            gradients[call] = io[call, 1:]
            lookup, _ = waiting.pop(fitting[-1])
            gradients[lookup] = io[call, 1:]
            io[call] = io[lookup]
    return gradients


def _get_tensors(graph: Graph, io: Int64) -> tuple[Tensor | tuple[Tensor, ...] | None, ...]:
    shapes, kinds = int(io[1]), int(io[2])
    return () if shapes < 0 or kinds < 0 else read_tensors(graph.strings[shapes], graph.strings[kinds])


def _compute_work(
    graph: Graph,
    name: int,
    operator: int,
    inputs: tuple[int, ...],
    kernels: tuple[str, bool, _Kernels],
) -> Work:
    """Return the work of a call.

    Args:
        graph: The graph.
        name: Its name.
        operator: Row of the table.
        inputs: Texts of values, shapes and types, the bytes that the node itself tells, and texts of shapes and types of the
            gradient of a look-up; -1 for what is missing.
        kernels: What its kernels tell: type, TF32, and which they are.
    """
    row = OPERATORS[operator]
    values, shapes, kinds, own_bytes, *gradient = inputs
    if shapes < 0 or kinds < 0:
        # A copy or fill on the device that no operator stands for tells its bytes itself.
        tensors: tuple[Tensor | tuple[Tensor, ...] | None, ...] = (
            (Tensor((own_bytes,), "int8"),) if own_bytes >= 0 else ()
        )
        return row.work(Call(graph.strings[name], tensors))
    tensors = read_tensors(graph.strings[shapes], graph.strings[kinds])
    if gradient[0] >= 0:
        tensors += read_tensors(graph.strings[gradient[0]], graph.strings[gradient[1]])[:1]
    plain = read_values(graph.strings[values]) if values >= 0 else ()
    try:
        return row.work(Call(graph.strings[name], tensors, plain, *kernels))
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError) as error:
        raise NotRecordedError("a shape that fits the operator") from error


def _index_kernels(graph: Graph, call: Int64, operator: Int64) -> tuple[Int64, dict[int, _Kernels]]:
    """Return (C,) numbers of the sets of kernels that calls launched, -1 where no formula needs them, and the sets."""
    needed = np.array([entry.needs_kernels for entry in OPERATORS], np.bool_)[operator]
    numbers = np.full(len(operator), NONE, np.int64)
    if not needed.any():
        return numbers, {}
    rows, where = graph.rows_with("grid")
    grids = {
        row: tuple(graph.attrs.items[first : first + length].tolist())
        for row, first, length in zip(
            rows.tolist(), graph.attrs.value[where].tolist(), graph.attrs.length[where].tolist(), strict=True
        )
    }
    sets: dict[_Kernels, int] = {}
    joined = np.flatnonzero(call >= 0)
    joined = joined[needed[call[joined]]]
    ran: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for row, number in zip(joined.tolist(), call[joined].tolist(), strict=True):
        ran.setdefault(number, []).append((graph.strings[int(graph.name[row])], grids.get(row, ())))
    for number, each in ran.items():
        numbers[number] = sets.setdefault(tuple(each), len(sets))
    return numbers, {number: each for each, number in sets.items()}


def _collect_hints(graph: Graph, call: Int64, count: int) -> tuple[Int64, list[tuple[str, bool]]]:
    """Return (C,) what the kernels of each call tell by their names, as numbers, and what these mean."""
    joined = np.flatnonzero(call >= 0)
    codes, back = np.unique(graph.name[joined], return_inverse=True)
    meanings: dict[tuple[str, bool], int] = {("", False): 0}
    hint_of_name = []
    for code in codes.tolist():
        text = graph.strings[code]
        hint_of_name.append(
            meanings.setdefault((find_kernel_type(text), "tf32" in text.lower()), len(meanings))
        )
    of_name = np.array(hint_of_name, np.int64)
    hints = np.zeros(count, np.int64)
    if len(joined):
        # Of several kernels one that is named after TF32 tells most, then any that names a type.
        ranking = np.array([2 * tf32 + bool(kind) for kind, tf32 in meanings], np.int64)
        each = of_name[back.reshape(-1)]
        order = np.argsort(ranking[each], kind="stable")
        hints[call[joined[order]]] = each[order]
    return hints, list(meanings)
