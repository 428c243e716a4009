"""Divide the operators of a recorded job by more tensor-parallel ranks, where the shapes of their inputs say how they are divided.

A matrix product whose result an all-reduce of the tensor dimension sums up is divided along what it sums over. That number is a
divided size: tensors that have it belong to divided operators, and a product that has it twice, or sums over it without
being summed up by an all-reduce, shows that something else has the same size, so that the shapes do not tell.
Attention is refused: its operators name heads, which no shape tells from other numbers.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from studio.completion.mesh import Mesh
from studio.completion.rules import TENSOR
from studio.completion.surgery import with_texts
from studio.errors import ConfigError
from studio.trace import (
    NONE,
    WORLD,
    CollectiveType,
    Graph,
    Int32,
    NodeType,
    Rank,
    Trace,
    collective_name,
    dense_column,
    group_slots,
)
from studio.units import format_count, format_counted

_PRODUCTS = ("aten::mm", "aten::addmm")
_UNCLEAR = re.compile(r"bmm|attention|einsum|conv(olution|\d)|_attn|flash_|expert|all_to_all", re.IGNORECASE)
_DEEPEST = 64
"""Calls within calls that are looked through."""
_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "t", "transpose", "view", "view_as", "as_strided", "expand", "detach", "detach_", "resolve_conj", "alias", "reshape",
        "permute", "unsqueeze", "squeeze", "slice", "select", "narrow", "split", "chunk", "empty", "empty_like", "empty_strided",
        "lift_fresh", "result_type", "is_same_size",
    )
)  # fmt: skip
"""Operators that touch no element, so that their time does not follow from how many there are."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A matrix product (M × K by K × N) at a row of a graph, with the bytes of its result."""

    row: int
    rows: int
    summed: int
    columns: int
    bytes: int

    @property
    def words(self) -> str:
        return f"{format_count(self.rows)} × {format_count(self.summed)} by {format_count(self.summed)} × {format_count(self.columns)}"


def divided_operators(trace: Trace, mesh: Mesh, times: int) -> Trace:
    """Return a job whose operators are divided among so many times as many tensor-parallel ranks.

    Args:
        trace: The job.
        mesh: Its mesh.
        times: How many times as many.

    Raises:
        ConfigError: Shapes do not tell how operators are divided, or do not divide; names the operators.
    """
    first: dict[int, Rank] = {}
    for rank in trace.ranks:
        first.setdefault(rank.graph, rank)
    axis = mesh.axis(TENSOR)
    assert axis is not None
    groups = {group.name: group.ranks for group in trace.groups}
    graphs = list(trace.graphs)
    for index, rank in first.items():
        names = [str(value) for value in rank.slots]
        along = {
            name
            for name in {*names, WORLD}
            if {axis.place(member) for member in groups.get(name, range(mesh.world))}
            != {axis.place(rank.number)}
        }
        graphs[index] = _divide_operators(trace.graphs[index], rank, along, times)
    return replace(trace, graphs=tuple(graphs))


def _divide_operators(graph: Graph, rank: Rank, along: set[str], times: int) -> Graph:
    """Return a graph with divided operators.

    Args:
        graph: The graph.
        rank: A rank that has it.
        along: The names of its comm groups along the tensor dimension.
        times: How many times as many ranks divide it.
    """
    slots = group_slots(graph)
    collectives = np.flatnonzero(graph.type == NodeType.COMM_COLL)
    own = [
        row
        for row in collectives.tolist()
        if (str(rank.slots[slots[row]]) if slots[row] != NONE else WORLD) in along
    ]
    kinds = dense_column(graph, "comm_type", NONE)
    other = Counter(
        collective_name(int(kinds[row])) for row in own if kinds[row] != CollectiveType.ALL_REDUCE
    )
    if other:
        listed = ", ".join(f"{format_count(count)} {name}" for name, count in other.most_common())
        raise _unclear(f"rank {rank.number} exchanges {listed} along it; known is what an all-reduce means")
    products = _products(graph)
    if not own or not products:
        raise _unclear(
            f"rank {rank.number} has {format_counted(len(own), 'collective')} along it and {format_counted(len(products), 'matrix product')} with recorded shapes"
        )
    odd = Counter(
        name for name in (graph.strings[int(code)] for code in graph.name.tolist()) if _UNCLEAR.search(name)
    )
    if odd:
        listed = ", ".join(f"{name!r}" for name, _ in odd.most_common(3))
        raise _unclear(f"shapes of {listed} do not say along which side they are divided")
    divided = _divided_sizes(graph, rank, own, products)
    for size in sorted(divided):
        if size % times:
            raise ConfigError(
                f"tp: a divided size is {format_count(size)}, which {times} times as many ranks cannot share evenly",
                hint="Choose a number of ranks that divides it.",
            )
    others = set(collectives.tolist()) - set(own)
    _refuse_buckets(graph, rank, others, products)
    return _rewritten(graph, divided, times, others)


def _refuse_buckets(graph: Graph, rank: Rank, others: set[int], products: list[_Product]) -> None:
    """Raise an error where a collective moves several tensors in one buffer, of which some may be divided.

    Raises:
        ConfigError: One does; names it.
    """
    sizes = dense_column(graph, "comm_size", 0)
    known = {size for one in products for size in (one.rows, one.summed, one.columns)}
    for row in sorted(others):
        shapes = _flat(_read_column(graph, row, 1)) if len(graph.io) else []
        if sizes[row] > 0 and (
            not shapes or any(len(shape) == 1 and shape[0] not in known for shape in shapes)
        ):
            raise _unclear(
                f"{graph.strings[int(graph.name[row])]!r} of {format_count(int(sizes[row]))} bytes (node {graph.id[row]} of rank "
                f"{rank.number}) moves a buffer whose shape does not say which part of it belongs to divided weights"
            )


def _flat(shapes: Any) -> list[list[int]]:
    """Return the shapes of all tensors, those of lists of tensors too."""
    if shapes and all(isinstance(one, int) for one in shapes):
        return [shapes]
    return [found for one in shapes if isinstance(one, list) for found in _flat(one)]


def _unclear(why: str) -> ConfigError:
    return ConfigError(
        f"the tensor dimension (tp) cannot be scaled: {why}",
        hint="Record the job with that layout and input shapes, or scale its replicas by --dp; a generated job is made anew for any tp.",
    )


def _products(graph: Graph) -> list[_Product]:
    """Return the matrix products of a graph in order, without those that call another one."""
    if not len(graph.io):
        return []
    codes = {graph.strings.find(name) for name in _PRODUCTS} - {NONE}
    rows = np.flatnonzero(
        np.isin(graph.name, list(codes)) & (graph.io[:, 1] >= 0) & (dense_column(graph, "is_cpu_op", 1) != 0)
    )
    outer = set[int]()
    wanted = set(rows.tolist())
    for row in rows.tolist():
        above = _caller(graph, row)
        for _ in range(_DEEPEST):
            outer |= wanted & {above}
            above = _caller(graph, above)
    found = []
    for row in rows[np.argsort(graph.start_ns[rows], kind="stable")].tolist():
        if row in outer:
            continue
        shapes = [
            shape for shape in _read_column(graph, row, 1) if isinstance(shape, list) and len(shape) == 2
        ]
        if len(shapes) >= 2 and shapes[-2][1] == shapes[-1][0]:
            one, two = shapes[-2:]
            values = _read_column(graph, row, 0)
            width = next((value[4] for value in values if isinstance(value, list) and len(value) == 6), 4)
            found.append(_Product(row, one[0], one[1], two[1], one[0] * two[1] * width))
    return found


def _caller(graph: Graph, row: int) -> int:
    """Return the operator that called one, -1 where there is none."""
    above = graph.ctrl.of(row) if row >= 0 else graph.ctrl.rows[:0]
    return int(above[0]) if len(above) else NONE


def _divided_sizes(graph: Graph, rank: Rank, own: list[int], products: list[_Product]) -> set[int]:
    """Return the sizes that are divided among the ranks along the tensor dimension.

    Raises:
        ConfigError: Shapes contradict each other.
    """
    sizes = dense_column(graph, "comm_size", NONE)
    start = [int(graph.start_ns[product.row]) for product in products]
    divided = set[int]()
    for row in own:
        before = np.searchsorted(start, graph.start_ns[row])
        source = next((one for one in reversed(products[:before]) if one.bytes == sizes[row]), None)
        if source is None:
            raise _unclear(
                f"no matrix product before the all-reduce at node {graph.id[row]} of rank {rank.number} makes its {format_count(int(sizes[row]))} bytes"
            )
        divided.add(source.summed)
    for one in products:
        if sum(size in divided for size in (one.rows, one.summed, one.columns)) > 1:
            raise _unclear(
                f"{graph.strings[int(graph.name[one.row])]!r} of {one.words} (node {graph.id[one.row]}) has divided sizes ({', '.join(map(format_count, sorted(divided)))}) twice"
            )
    summed = sum(one.summed in divided for one in products)
    if summed != len(own):
        raise _unclear(
            f"rank {rank.number} has {format_counted(summed, 'matrix product')} that sum over a divided size ({', '.join(map(format_count, sorted(divided)))}) and {format_counted(len(own), 'all-reduce')} to sum them up"
        )
    return divided


def _literal(text: str) -> list[Any]:
    """Return recorded inputs as a list; empty where the text is no list."""
    try:
        made = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return made if isinstance(made, list) else []


# ---------------------------------------------------------------------------------------------------
# New sizes


def _rewritten(graph: Graph, divided: set[int], times: int, others: set[int]) -> Graph:
    """Return a graph with the sizes and durations of divided operators; collectives of other groups move as much as is left."""
    io, texts, share = _new_inputs(graph, divided, times)
    strings, _ = with_texts(graph.strings, texts)
    # A product has a divided size once, so that its operations are divided whatever its bytes are.
    operations = {**share, **{one.row: 1 / times for one in _products(graph) if one.row in share}}
    duration = graph.duration_ns.copy()
    for row in _working(graph, share):
        duration[row] = max(round(duration[row] * operations[row]), 1)
    value = graph.attrs.value.copy()
    moved = {row: left for row, left in share.items() if row in others}
    for key, left in (
        ("comm_size", moved),
        ("tensor_size", share),
        ("num_ops", operations),
        ("flops", operations),
    ):
        for row, where in zip(*(column.tolist() for column in graph.rows_with(key)), strict=True):
            if row in left and value[where] > 0:
                value[where] = round(int(value[where]) * left[row])
    return replace(
        graph, io=io, strings=strings, duration_ns=duration, attrs=replace(graph.attrs, value=value)
    )


def _new_inputs(graph: Graph, divided: set[int], times: int) -> tuple[Int32, list[str], dict[int, float]]:
    """Return inputs and outputs with divided sizes, the texts to add for them, and the share of elements left by row."""
    io = graph.io.copy()
    texts: dict[str, int] = {}
    share: dict[int, float] = {}

    def code(lists: Any) -> int:
        return len(graph.strings) + texts.setdefault(repr(lists).replace(", ", ","), len(texts))

    for row in np.flatnonzero((graph.io[:, 1] >= 0) | (graph.io[:, 4] >= 0)).tolist():
        before = after = 0
        for column in (0, 3):
            shapes = _read_column(graph, row, column + 1)
            new = _divided_shapes(shapes, divided, times)
            before, after = before + _elements(shapes), after + _elements(new)
            if new != shapes:
                io[row, column + 1] = code(new)
                values = _read_column(graph, row, column)
                io[row, column] = code(_divided_values(values, shapes, new)) if values else io[row, column]
        if after < before:
            share[row] = after / before
    return io, list(texts), share


def _working(graph: Graph, rows: Iterable[int]) -> Iterator[int]:
    """Yield those of some rows whose time follows from how many elements they have: operations of a device, else operators."""
    on_device = bool(len(graph.rows_with("stream")[0]))
    is_cpu = dense_column(graph, "is_cpu_op", 1) != 0
    for row in rows:
        name = graph.strings[int(graph.name[row])]
        works = not is_cpu[row] if on_device else name.startswith("aten::") and name not in _VIEWS
        if works and graph.type[row] == NodeType.COMP and graph.duration_ns[row] > 0:
            yield row


def _read_column(graph: Graph, row: int, column: int) -> list[Any]:
    """Return what a recorder wrote in a column of inputs and outputs, as lists; an empty one where it is none."""
    return _literal(graph.strings[int(graph.io[row, column])]) if graph.io[row, column] >= 0 else []


def _divided_shapes(shapes: Any, divided: set[int], times: int) -> Any:
    if isinstance(shapes, list):
        return [_divided_shapes(one, divided, times) for one in shapes]
    return shapes // times if isinstance(shapes, int) and shapes in divided else shapes


def _elements(shapes: Any) -> int:
    """Return the elements of all tensors of some shapes."""
    return sum(math.prod(shape) for shape in _flat(shapes))


def _divided_values(values: Any, shapes: Any, new: Any) -> Any:
    """Return inputs with the numbers of elements that their new shapes have: a tensor is its ids, offset, elements, width and device."""
    if not isinstance(values, list) or not isinstance(shapes, list):
        return values
    if (
        len(values) == 6
        and isinstance(values[5], str)
        and shapes
        and all(isinstance(one, int) for one in shapes)
    ):
        before, after = _elements(shapes), _elements(new)
        return [*values[:3], values[3] * after // before if before else values[3], *values[4:]]
    if len(values) != len(shapes):
        return values
    return [_divided_values(*each) for each in zip(values, shapes, new, strict=True)]
