"""Divide the operators of a recorded job by more tensor-parallel ranks, where their tensors say how they are divided.

A matrix product whose result an all-reduce of the tensor dimension sums up is divided along what it sums over: what is outermost
in that size (the heads of attention, of heads × width) is a divided factor. It is followed through all operators
(`dimensions.py`), and divided wherever it is. An operator of which is not known what becomes of a divided size is refused, and so
is one that needs all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from studio.completion.dimension_rules import Dimensions, Place, Product, Tensor
from studio.completion.dimensions import Inputs, follow_dimensions, iterate_callers
from studio.completion.factors import Size
from studio.completion.mesh import Mesh
from studio.completion.rules import TENSOR
from studio.completion.surgery import with_texts
from studio.errors import ConfigError
from studio.et.link.literals import is_tensor
from studio.trace import (
    NONE,
    WORLD,
    CollectiveType,
    Graph,
    Int32,
    NodeType,
    Rank,
    Trace,
    group_slots,
    label_collective,
    read_dense_column,
)
from studio.units import format_count, format_counted

_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "t", "transpose", "view", "view_as", "as_strided", "expand", "detach", "detach_", "resolve_conj", "alias", "reshape",
        "permute", "unsqueeze", "squeeze", "slice", "select", "narrow", "split", "chunk", "empty", "empty_like", "empty_strided",
        "lift_fresh", "result_type", "is_same_size",
    )
)  # fmt: skip
"""Operators that touch no element, so that their time does not follow from how many there are."""


def divide_operators(trace: Trace, mesh: Mesh, times: int) -> Trace:
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
    kinds = read_dense_column(graph, "comm_type", NONE)
    other = Counter(
        label_collective(int(kinds[row])) for row in own if kinds[row] != CollectiveType.ALL_REDUCE
    )
    if other:
        listed = ", ".join(f"{format_count(count)} {name}" for name, count in other.most_common())
        raise _build_error(
            f"rank {rank.number} exchanges {listed} along it; known is what an all-reduce means"
        )
    inputs = Inputs(graph)
    known = follow_dimensions(graph, inputs)
    if not own or not known.products:
        raise _build_error(
            f"rank {rank.number} has {format_counted(len(own), 'collective')} along it and {format_counted(len(known.products), 'matrix product')} with recorded shapes"
        )
    divided = _find_divided_factors(graph, rank, own, known)
    for factor in sorted(divided, key=known.factors.value):
        size = known.factors.value(factor)
        if size % times:
            raise ConfigError(
                f"tp: a divided size is {format_count(size)}, which {times} times as many ranks cannot share evenly",
                hint="Choose a number of ranks that divides it.",
            )
    shapes = _Shapes(known, divided, times)
    _refuse_unclear(graph, known, shapes)
    others = set(collectives.tolist()) - set(own)
    _refuse_buckets(graph, rank, others, known.products, inputs)
    return _rewrite_graph(graph, inputs, shapes, others)


def _refuse_buckets(
    graph: Graph, rank: Rank, others: set[int], products: Sequence[Product], inputs: Inputs
) -> None:
    """Raise an error where a collective moves several tensors in one buffer, of which some may be divided.

    Raises:
        ConfigError: One does; names it.
    """
    sizes = read_dense_column(graph, "comm_size", 0)
    known = {size for product in products for shape in product.shapes for size in shape}
    for row in sorted(others):
        shapes = _flatten_shapes(inputs.lists(row, 1)) if len(graph.io) else []
        if sizes[row] > 0 and (
            not shapes or any(len(shape) == 1 and shape[0] not in known for shape in shapes)
        ):
            raise _build_error(
                f"{graph.strings[int(graph.name[row])]!r} of {format_count(int(sizes[row]))} bytes (node {graph.id[row]} of rank "
                f"{rank.number}) moves a buffer whose shape does not say which part of it belongs to divided weights"
            )


def _flatten_shapes(shapes: Any) -> list[list[int]]:
    """Return the shapes of all tensors, those of lists of tensors too."""
    if shapes and all(isinstance(item, int) for item in shapes):
        return [shapes]
    return [shape for item in shapes if isinstance(item, list) for shape in _flatten_shapes(item)]


def _build_error(why: str) -> ConfigError:
    return ConfigError(
        f"the tensor dimension (tp) cannot be scaled: {why}",
        hint="Record the job with that layout and input shapes, or scale its replicas by --dp; a generated job is made anew for any tp.",
    )


def _find_divided_factors(graph: Graph, rank: Rank, own: list[int], known: Dimensions) -> set[int]:
    """Return the factors of sizes that are divided among the ranks along the tensor dimension.

    Args:
        graph: The graph.
        rank: A rank that has it.
        own: Its collectives along the tensor dimension.
        known: What is known of sizes.

    Raises:
        ConfigError: An all-reduce sums up no product, or a product that sums over a divided size is summed up by none.
    """
    by_row = {product.row: product for product in known.products}
    sizes = read_dense_column(graph, "comm_size", NONE)
    reduced = set[int]()
    for row in own:
        terms = set(_find_partial(graph, row, known))
        if not terms:
            raise _build_error(
                f"no matrix product before the all-reduce at node {graph.id[row]} of rank {rank.number} makes its {format_counted(int(sizes[row]), 'byte')}"
            )
        reduced |= terms
    divided = set[int]()
    # Of queries, keys and values in one weight (3 × heads × width) the heads are divided, which the sums over heads × width tell.
    for factors in sorted((known.factors.split(by_row[row].summed) for row in reduced), key=len):
        if divided.isdisjoint(factors):
            divided |= set(factors[:1])
    for product in known.products:
        if product.row not in reduced and divided & set(known.factors.split(product.summed)):
            raise _build_error(
                f"{_describe_product(graph, product)} sums over a divided size ({format_count(known.factors.number(product.summed))}), and no all-reduce sums its parts up"
            )
    return divided


def _find_partial(graph: Graph, row: int, known: Dimensions) -> frozenset[int]:
    """Return the products whose sum a collective, or the operator that calls it, exchanges."""
    terms = (known.partial.get(node_row, frozenset()) for node_row in (row, *iterate_callers(graph, row)))
    return next(filter(None, terms), frozenset())


def _describe_product(graph: Graph, product: Product) -> str:
    left, right = (" × ".join(map(format_count, shape)) for shape in product.shapes)
    return (
        f"{graph.strings[int(graph.name[product.row])]!r} of {left} by {right} (node {graph.id[product.row]})"
    )


class _Shapes:
    """Shapes of tensors after the divided factors were divided."""

    def __init__(self, known: Dimensions, divided: set[int], times: int) -> None:
        self.known, self.times = known, times
        self._divided = divided

    def divides(self, size: Size) -> bool:
        """Return whether a size has a divided factor."""
        return not self._divided.isdisjoint(self.known.factors.split(size))

    def of(self, tensor: Tensor) -> list[int]:
        """Return the new shape of a tensor."""
        return [
            number // self.times if self.divides(size) else number
            for number, size in zip(tensor.shape, tensor.sizes, strict=True)
        ]


def _refuse_unclear(graph: Graph, known: Dimensions, shapes: _Shapes) -> None:
    """Raise an error where a divided size is summed over or needed whole, or where an operator does not say what becomes of it.

    Raises:
        ConfigError: Names the operators.
    """
    for size, row in known.summed:
        if shapes.divides(size):
            raise _build_error(
                f"{graph.strings[int(graph.name[row])]!r} (node {graph.id[row]}) needs all of a divided size ({format_count(known.factors.number(size))})"
            )
    odd = Counter[str]()
    for row in known.unknown:
        tensors = known.tensors[row]
        parts = [any(map(shapes.divides, tensor.sizes)) for tensor in tensors]
        inputs = [part for part, tensor in zip(parts, tensors, strict=True) if tensor.place[0] == 0]
        outputs = [
            part
            for part, tensor in zip(parts, tensors, strict=True)
            if tensor.place[0] == 3 and math.prod(tensor.shape) > 1
        ]
        if inputs and outputs and any(inputs) != any(outputs):
            odd[_name_operator(graph, row)] += 1
    if odd:
        listed = ", ".join(f"{name!r}" for name, _ in odd.most_common(3))
        raise _build_error(f"it is not known what {listed} makes of a divided size")


def _name_operator(graph: Graph, row: int) -> str:
    """Return the name of the operator that called one, which says more than that of what it is made of; else its own."""
    names = [
        graph.strings[int(graph.name[node_row])] for node_row in (next(iterate_callers(graph, row), row), row)
    ]
    return next((name for name in names if name.startswith("aten::")), names[-1])


# ---------------------------------------------------------------------------------------------------
# New sizes


def _rewrite_graph(graph: Graph, inputs: Inputs, shapes: _Shapes, others: set[int]) -> Graph:
    """Return a graph with the sizes and durations of divided operators; collectives of other groups move as much as is left."""
    io, texts, share = _rewrite_inputs(graph, inputs, shapes)
    strings, _ = with_texts(graph.strings, texts)
    # A product has a divided size once, so that its operations are divided whatever its bytes are.
    products = {product.row for product in shapes.known.products}
    operations = {row: 1 / shapes.times if row in products else left for row, left in share.items()}
    duration = graph.duration_ns.copy()
    for row in _select_working(graph, share):
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


def _rewrite_inputs(
    graph: Graph, inputs: Inputs, shapes: _Shapes
) -> tuple[Int32, list[str], dict[int, float]]:
    """Return inputs and outputs with divided sizes, the texts to add for them, and the share of elements left by row."""
    io = graph.io.copy()
    texts: dict[str, int] = {}
    share: dict[int, float] = {}

    def intern_lists(lists: Any) -> int:
        return len(graph.strings) + texts.setdefault(repr(lists).replace(", ", ","), len(texts))

    for row, tensors in _iterate_tensors(graph, shapes.known):
        new = {tensor.place: shapes.of(tensor) for tensor in tensors}
        before = sum(math.prod(tensor.shape) for tensor in tensors)
        after = sum(map(math.prod, new.values()))
        if after == before:
            continue
        share[row] = after / before
        changed = {
            tensor.shape: new[tensor.place] for tensor in tensors if list(tensor.shape) != new[tensor.place]
        }
        for column in (0, 3):
            values, listed = deepcopy(inputs.lists(row, column)), deepcopy(inputs.lists(row, column + 1))
            for tensor in tensors:
                if tensor.place[0] == column:
                    _put(listed, tensor.place[1:], new[tensor.place])
                    value = _get_item(values, tensor.place[1:])
                    value[3] = value[3] * math.prod(new[tensor.place]) // math.prod(tensor.shape)
            values = [_rewrite_argument(value, changed) for value in values]
            io[row, column] = intern_lists(values) if values else io[row, column]
            io[row, column + 1] = intern_lists(listed) if listed else io[row, column + 1]
    return io, list(texts), share


def _iterate_tensors(graph: Graph, known: Dimensions) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield the tensors of rows, of operations of a device those of the operator that launched them where they are the same."""
    yield from known.tensors.items()
    if not len(graph.io):
        return
    for row in np.flatnonzero(graph.io[:, 1] >= 0).tolist():
        if row in known.tensors:
            continue
        for above in iterate_callers(graph, row):
            if above in known.tensors and (graph.io[above, :2] == graph.io[row, :2]).all():
                yield row, [tensor for tensor in known.tensors[above] if tensor.place[0] == 0]
                break


def _rewrite_argument(value: Any, changed: dict[tuple[int, ...], list[int]]) -> Any:
    """Return an argument that names a size of a divided tensor with the new one."""
    whole = isinstance(value, list) and not is_tensor(value) and all(type(number) is int for number in value)
    return changed.get(tuple(value), value) if whole else value


def _get_item(values: Any, place: Place) -> Any:
    for index in place:
        values = values[index]
    return values


def _put(values: Any, place: Place, value: Any) -> None:
    _get_item(values, place[:-1])[place[-1]] = value


def _select_working(graph: Graph, rows: Iterable[int]) -> Iterator[int]:
    """Yield those of some rows whose time follows from how many elements they have: operations of a device, else operators."""
    on_device = bool(len(graph.rows_with("stream")[0]))
    is_cpu = read_dense_column(graph, "is_cpu_op", 1) != 0
    for row in rows:
        name = graph.strings[int(graph.name[row])]
        works = not is_cpu[row] if on_device else name.startswith("aten::") and name not in _VIEWS
        if works and graph.type[row] == NodeType.COMP and graph.duration_ns[row] > 0:
            yield row
