"""Read facts about communication from what recorders wrote: metadata, arguments, shapes of tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from math import prod
from typing import Any

from msgspec.structs import replace

from studio.et.direct import find_tensor_place
from studio.et.kineto_head import parse_ranks
from studio.et.link.facts import Communication, Facts
from studio.et.link.literals import iterate_tensors, parse_literal, read_count, sum_tensor_bytes
from studio.et.link.names import (
    NO_COLLECTIVES,
    RECEIVE,
    SEND,
    get_element_bytes,
    infer_operator_kind,
    simplify_name,
)
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace, Group, HostTrace
from studio.trace import NONE, ROOTED_TYPES, CollectiveType

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)
ONE_LIST = {
    CollectiveType.ALL_REDUCE,
    CollectiveType.BROADCAST,
    CollectiveType.REDUCE,
    CollectiveType.BARRIER,
    SEND,
    RECEIVE,
}
_GIVEN = ONE_LIST | {
    CollectiveType.ALL_GATHER,
    CollectiveType.GATHER,
    CollectiveType.SCATTER,
    CollectiveType.ALL_TO_ALL,
}
"""Kinds of which gloo's operation names the tensors that a rank gives; of a scatter on its root."""
_LAUNCHED = (_GIVEN | {CollectiveType.REDUCE_SCATTER}) - {CollectiveType.SCATTER, CollectiveType.BARRIER}
"""Kinds of which they do; of a scatter they name what is received."""
KINETO_NAMES = {
    "collective": "collective_name",
    "in_elements": "in_msg_nelems",
    "out_elements": "out_msg_nelems",
    "in_split": "in_split_size",
    "out_split": "out_split_size",
    "group": "pg_name",
    "group_size": "pg_size",
    "group_ranks": "pg_ranks",
    "first_rank": "global_rank_start",
    "rank_stride": "global_rank_stride",
    "source": "src_rank",
    "target": "dst_rank",
}
_TOLD = (
    *("dtype", "in_msg_nelems", "out_msg_nelems", "pg_name", "pg_ranks", "global_rank_start"),
    *("global_rank_stride", "pg_size", "src_rank", "dst_rank", "in_split_size", "out_split_size"),
)


LAUNCHES = "nccl:"
"""Operations that start so are those in which a call launches kernels of NCCL or RCCL; they name the tensors that a rank gives."""
_PLACED = ("global_rank_start", "global_rank_stride", "pg_size")


class FactReader:
    """Reads communication facts from the recorded operations of a process."""

    def __init__(self, operations: Operations, host: HostTrace | None, device: DeviceTrace | None) -> None:
        self.operations, self.host, self.device = operations, host, device
        # By identity: events of every step tell the same lists.
        self.by_dims: dict[tuple[int, bool, int, int, int], Facts] = {}

    def values(self, row: int) -> list[Any]:
        """Return the inputs of an operation, empty where they are not recorded."""
        if self.host is None:
            return []
        value = parse_literal(self.host.texts[int(self.host.io[row, 0])])
        return value if isinstance(value, list) else []

    def event(self, row: int) -> dict[str, Any]:
        """Return what the Kineto event of an operation says about communication."""
        event = int(self.operations.event[row])
        return self.device.comm.get(event, {}) if self.device is not None and event >= 0 else {}

    def of_operator(self, row: int) -> Facts | None:
        """Return the facts in a c10d operator's arguments, None where it is no collective."""
        kind = infer_operator_kind(self.operations.name_of(row))
        if kind is None:
            return None
        values = self.values(row)
        if not values:
            return self._read_dims(row, kind)
        functional = not self.operations.name_of(row).startswith("c10d::")
        single = kind in ONE_LIST or functional
        first = values[0 if single else 1] if len(values) > (0 if single else 1) else None
        given = sum_tensor_bytes(first)
        taken = given if single else sum_tensor_bytes(values[0])
        facts = Facts(kind, given, taken)
        if given < 0 and any(iterate_tensors(first)):
            # Tensors without a storage, such as sparse ones, of which the shape alone is told.
            dims = self._read_dims(row, kind)
            facts = Facts(kind, dims.bytes_in, dims.bytes_out, inferred=dims.inferred)
        return facts if functional else _add_arguments(facts, values)

    def _read_dims(self, row: int, kind: int) -> Facts:
        """Return the facts in shapes and types alone; a list of tensors has no size there."""
        event = self.event(row)
        columns = event.get("dims"), event.get("types"), event.get("values")
        # All but c10d's operators name what is given first.
        single = kind in ONE_LIST or not self.operations.name_of(row).startswith("c10d::")
        dims, types, values = map(id, columns)
        key = kind, single, dims, types, values
        if key not in self.by_dims:
            self.by_dims[key] = _infer_from_dims(kind, single, *columns)
        return self.by_dims[key]

    def of_library(self, row: int, facts: Facts) -> Facts:
        """Return facts with the size of the tensors that the library's operation names, where the call's own list has none."""
        event = self.event(row)
        dims, types = event.get("dims"), event.get("types")
        is_part = facts.kind == CollectiveType.REDUCE_SCATTER
        if (
            facts.bytes_in >= 0
            or not (is_part or facts.kind in _GIVEN)
            or not isinstance(dims, list)
            or not isinstance(types, list)
        ):
            return facts
        sizes = [_compute_dims_bytes(*pair) for pair in zip(dims, types, strict=False)]
        if not sizes or min(sizes) < 0:
            return facts
        given = sum(sizes)
        if is_part:
            # Gloo sums up one part of the list after the other; each rank keeps one.
            return replace(facts, bytes_out=given)
        return replace(facts, bytes_in=given, bytes_out=given if facts.kind in ONE_LIST else facts.bytes_out)

    def of_launch(self, row: int, kind: int) -> int:
        """Return the bytes of the tensors that NCCL's own operation is given, -1 where it tells none or is not of the call's kind."""
        # Messages name both sides too: `nccl:send 0->1`.
        name = self.operations.name_of(row).split(" ", 1)[0]
        event = self.event(row)
        dims, types = event.get("dims"), event.get("types")
        if infer_operator_kind(name) != kind or kind not in _LAUNCHED:
            return NONE
        if not isinstance(dims, list) or not isinstance(types, list) or not dims or len(dims) != len(types):
            return NONE
        if kind == CollectiveType.ALL_TO_ALL and len(dims) < 2:
            # Of a list of tensors, one for each member, old versions name the first alone.
            return NONE
        sizes = [_compute_dims_bytes(*pair) for pair in zip(dims, types, strict=True)]
        return sum(sizes) if min(sizes) >= 0 else NONE

    def of_direct(self, row: int, kind: int) -> Facts:
        """Return the size of a collective from the tensors of the operator that launched its kernel, where they are what it moves."""
        place = find_tensor_place(self.operations.name_of(row), kind)
        if place is None:
            return Facts(kind)
        values = self.values(row)
        sizes = [sum_tensor_bytes(value) for value in values] if values else self._list_sizes(row)
        given = next(islice((size for size in sizes if size >= 0), place, None), NONE)
        return Facts(kind, given, given if kind == CollectiveType.ALL_REDUCE else NONE)

    def _list_sizes(self, row: int) -> list[int]:
        """Return the bytes of each input of an operation, -1 for one that is no tensor; empty where its event does not tell."""
        event = self.event(row)
        dims, types = event.get("dims"), event.get("types")
        if not isinstance(dims, list) or not isinstance(types, list):
            return []
        return [_compute_dims_bytes(*pair) for pair in zip(dims, types, strict=False)]

    def of_recorder(self, row: int, communication: Communication) -> Facts | None:
        """Return the facts in `record_param_comms`, None where it names no collective."""
        comm = dict(self.host.comm.get(row, {})) if self.host is not None else {}
        arguments = {KINETO_NAMES.get(key, key): value for key, value in self.event(row).items()} | comm
        values = self.values(row)
        arguments = _read_group(values) | arguments
        name = arguments.get("collective_name")
        if not isinstance(name, str):
            texts = [value for value in values if isinstance(value, str)]
            name = next((text for text in texts if infer_operator_kind(text) is not None), None) or ""
        kind = infer_operator_kind(name)
        if kind is None:
            if simplify_name(name) not in NO_COLLECTIVES:
                communication.add_unknown(name)
            return None
        facts = read_metadata(kind, arguments)
        if facts.bytes_in < 0 and values:
            size = sum_tensor_bytes(values[0])
            facts = replace(facts, bytes_in=size, inferred=("size",)) if size >= 0 else facts
        return facts

    def group_text(self, row: int, groups: dict[str, Group]) -> str:
        """Return the group that a functional collective names among its text arguments."""
        texts = [value for value in self.values(row) if isinstance(value, str)]
        known = [text for text in texts if text in groups]
        return (known or [""])[-1]


def _read_group(values: Sequence[Any]) -> dict[str, Any]:
    """Return what a recorder's inputs tell about the group; traces before 1.1 tell it nowhere else.

    They are tensors, a number, name and description of the group as a list, rank, collective, splits, and the group's first rank, stride
    and size. Older ones have a number for the group, which names none.
    """
    for place, value in enumerate(values):
        after = values[place + 1 :]
        kinds = list(map(type, after))
        if _is_name(value) and kinds[:2] == [int, str]:
            # Any other layout may have something else at its end.
            known = after[4:] if kinds[2:] == [list, list, int, int, int] else ()
            return {"pg_name": value[0]} | dict(zip(_PLACED, known, strict=False))
    return {}


def _is_name(value: Any) -> bool:
    """Whether an input is a name of a group, which some have not, and its description."""
    return isinstance(value, list) and list(map(type, value)) == [str, str] and value[0] != ""


def _infer_from_dims(kind: int, single: bool, dims: Any, types: Any, values: Any) -> Facts:
    """Return the facts in shapes, types and values; `single` where what is given comes first."""
    if not isinstance(dims, list) or not isinstance(types, list):
        return Facts(kind)
    sizes = [_compute_dims_bytes(*pair) for pair in zip(dims, types, strict=False)]
    given = sizes[0 if single else 1] if len(sizes) > (0 if single else 1) else NONE
    facts = Facts(kind, given, given if single or not sizes else sizes[0], inferred=("size",))
    return (
        _add_arguments(facts, [_parse_concrete(value) for value in values])
        if isinstance(values, list)
        else facts
    )


def read_metadata(kind: int, arguments: dict[str, Any]) -> Facts:
    """Return facts from the named arguments of a recorder or a kernel."""
    values = tuple(map(arguments.get, _TOLD))
    try:
        facts = _infer_from_values(kind, values, tuple(map(type, values)))
    except TypeError:
        # Lists cannot be looked up.
        facts = _infer_from_values.__wrapped__(kind, values, ())
    return replace(facts, seq=read_count(arguments.get("seq")))


@lru_cache(maxsize=1 << 10)
def _infer_from_values(kind: int, values: tuple[Any, ...], _types: tuple[type, ...]) -> Facts:
    """Return facts from the values of `_TOLD`, which every step may repeat. Types tell 1 from true."""
    dtype, given_count, taken_count, group, listed, *strided, source, target, split_in, split_out = values
    size = get_element_bytes(str(dtype or ""))
    given, taken = read_count(given_count), read_count(taken_count)
    known = size > 0
    start, stride, members = map(read_count, strided)
    ranks = parse_ranks(listed, members)
    if not ranks and start >= 0 and stride > 0 and 0 < members <= 1 << 20:
        ranks = tuple(range(start, start + stride * members, stride))
    peer = read_count(source if kind == RECEIVE else target) if kind in (SEND, RECEIVE) else NONE
    return Facts(
        kind,
        given * size if known and given >= 0 else NONE,
        taken * size if known and taken >= 0 else NONE,
        group=str(group) if isinstance(group, str | int) else None,
        group_ranks=ranks,
        peer=peer,
        peer_is_global=peer >= 0,
        members=len(ranks) or max(members, 0),
        splits_in=tuple(part * size for part in _parse_numbers(split_in)) if known else (),
        splits_out=tuple(part * size for part in _parse_numbers(split_out)) if known else (),
    )


def _parse_numbers(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return _parse_number_text(value)
    return (
        tuple(map(read_count, value))
        if isinstance(value, list) and all(read_count(part) >= 0 for part in value)
        else ()
    )


@lru_cache(maxsize=1 << 10)
def _parse_number_text(text: str) -> tuple[int, ...]:
    """Return the numbers in a text written like a list, which every call for communication may repeat."""
    value = parse_literal(text)
    return () if isinstance(value, str) else _parse_numbers(value)


def _add_arguments(facts: Facts, values: Sequence[Any]) -> Facts:
    """Add root, peer, tag, splits and whether the caller waits from the arguments of a c10d operator."""
    kind = facts.kind
    if values[-2:-1] == [False] and values[-2] is False and type(values[-1]) is int:
        # In newer versions of PyTorch they end with `async_op` and `timeout`.
        facts = replace(facts, blocks=True)
    whole = [value for value in values[2:] if isinstance(value, int) and not isinstance(value, bool)]
    if kind in (SEND, RECEIVE) and len(whole) >= 2:
        return replace(facts, peer=read_count(whole[0]), tag=max(whole[1], 0))
    if kind == RECEIVE and whole:
        # From any rank.
        return replace(facts, tag=max(whole[0], 0))
    if kind in ROOTED_TYPES and whole:
        return replace(facts, root=read_count(whole[0]))
    lists = [value for value in values[2:] if isinstance(value, list)]
    if kind == CollectiveType.ALL_TO_ALL and len(lists) == 2:
        return replace(
            facts,
            splits_out=_split_bytes(facts.bytes_out, lists[0]),
            splits_in=_split_bytes(facts.bytes_in, lists[1]),
        )
    return facts


def _parse_concrete(text: Any) -> Any:
    """Return the value of an argument that a Kineto trace writes as text."""
    return _parse_value(text) if isinstance(text, str) else None


@lru_cache(maxsize=1 << 10)
def _parse_value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    # What tensors are written as, and most numbers.
    return (int(text) if _WHOLE.fullmatch(text) else parse_literal(text)) if text else None


def _split_bytes(total: int, parts: Any) -> tuple[int, ...]:
    counts = _parse_numbers(parts)
    rows = sum(counts)
    return tuple(total * count // rows for count in counts) if rows > 0 and total >= 0 else ()


def _compute_dims_bytes(dims: Any, kind: Any) -> int:
    size = get_element_bytes(kind) if isinstance(kind, str) else NONE
    if size < 0 or not isinstance(dims, list) or not all(isinstance(dim, int) for dim in dims):
        return NONE
    return size * prod(dims)
