"""Turn events of a Kineto trace, decoded or as the kernel has found them, into the columns of a device trace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from studio.et import event_kernel as k
from studio.et.allocations import HOST_MEMORY, Allocations, build_empty_allocations
from studio.et.columns import order_by_appearance
from studio.et.direct import OPERATORS
from studio.et.event_columns import EventRows
from studio.et.kineto_events import NO_ARGS, Args, Event, decode_anything, decode_arguments, decode_text
from studio.et.kineto_times import convert_to_ns
from studio.et.pytorch import parse_integers
from studio.et.recording import DeviceTrace, Head, mark_names
from studio.trace import NONE, Bool, Int32, Int64

MEMORY = "[memory]"
_EMPTY_LIST = 2
"""Bytes of a list without items."""
_MOST_BLOCKS = 2**31 - 1


def build_trace_from_rows(rows: EventRows, name: str) -> DeviceTrace:
    """Return the trace of events as `build_trace` does."""
    numbers = {
        key: rows.column(column) for key, column in zip(_NUMERIC, range(k.FIRST_NUMBER, k.GRID), strict=True)
    }
    raw_names, coded = rows.texts(k.NAME)
    names, worded = _merge_words([decode_text(raw) for raw in raw_names], coded)
    threads, thread = _merge_words(*_list_pairs(rows))
    communicating = np.flatnonzero(_mark_communication(names, worded) | (rows.column(k.COMMUNICATES) >= 0))
    arguments = (
        decode_arguments(raw) if raw else NO_ARGS for raw in rows.content(k.ARGUMENTS, communicating)
    )
    inputs, input_texts = _number_row_inputs(rows)
    return _make_trace(
        numbers,
        file=name,
        name=worded,
        names=names,
        thread=thread,
        threads=tuple(threads),
        grid=np.clip(
            np.stack([rows.column(k.GRID + place) for place in range(3)], axis=1), NONE, _MOST_BLOCKS
        ),
        comm={row: _collect_comm(args) for row, args in zip(communicating.tolist(), arguments, strict=True)},
        inputs=inputs,
        input_texts=input_texts,
    )


def _list_pairs(rows: EventRows) -> tuple[list[tuple[str, str]], Int32]:
    """Return the distinct processes and threads of events as they are written, and (M,) which each is of."""
    processes, process = rows.texts(k.PROCESS)
    threads, thread = rows.texts(k.THREAD)
    both = process.astype(np.int64) * len(threads) + thread
    first, codes = _number_codes(both, len(processes) * len(threads))
    words = [
        (decode_text(processes[process[row]]), decode_text(threads[thread[row]])) for row in first.tolist()
    ]
    return words, codes


_Word = TypeVar("_Word", str, tuple[str, str])


def _merge_words(words: Sequence[_Word], codes: Int32) -> tuple[list[_Word], Int32]:
    """Return the distinct words that are used, by first appearance, and (M,) codes for them."""
    used, _, _ = order_by_appearance(codes, len(words))
    known: dict[_Word, int] = {}
    table = np.zeros(len(words), np.int32)
    for code in used.tolist():
        table[code] = known.setdefault(words[code], len(known))
    return list(known), table[codes]


def _number_row_inputs(rows: EventRows) -> tuple[Int32, list[tuple[str, str, str]]]:
    """Return which inputs events have as `_number_inputs` does."""
    parts = [rows.texts(column) for column in (k.VALUES, k.DIMS, k.TYPES)]
    first, both = np.zeros(min(len(rows), 1), np.int64), np.zeros(len(rows), np.int32)
    for words, codes in parts:
        first, both = _number_codes(both.astype(np.int64) * len(words) + codes, len(first) * len(words))
    table = np.full(len(first), NONE, np.int32)
    texts: list[tuple[str, str, str]] = []
    for code, row in enumerate(first.tolist()):
        values, dims, types = (words[codes[row]] for words, codes in parts)
        if len(types) > _EMPTY_LIST:
            table[code] = len(texts)
            texts.append((_format_in_one_line(values), _format_in_one_line(dims), _format_in_one_line(types)))
    return table[both], texts


_TABLE = 1 << 20
"""Codes up to this many are numbered by a table of all that there may be, more of them by sorting."""


def _number_codes(codes: Int64, count: int) -> tuple[Int64, Int32]:
    """Number some codes (M,) below `count` by first use; returns where each is used first, and (M,) their numbers."""
    if count > _TABLE:
        distinct, codes = np.unique(codes, return_inverse=True)
        codes, count = codes.reshape(-1), len(distinct)
    _, first, number = order_by_appearance(codes, count)
    return first, number[codes]


_NUMERIC = (
    *("external", "external_old", "record_function", "correlation", "stream", "device", "bytes"),
    *("wait_stream", "wait_record", "flops"),
)
"""Fields of whole numbers, in the order of the kernel's `NUMBERS`."""


def collect_allocations(events: list[Event]) -> tuple[Allocations, int]:
    """Return the allocations among some events, in the order of the file, and how many had to be left out."""
    noted = [event for event in events if event.ph == "i" and event.name == MEMORY]
    if not noted:
        return build_empty_allocations(), 0
    time_ns, timed = convert_to_ns([event.ts for event in noted])
    args = [event.args or NO_ARGS for event in noted]
    size, sized = parse_integers([arg.memory_bytes for arg in args])
    on_host = _parse_numbers([arg.device_type for arg in args]) == 0
    columns = {
        "time_ns": time_ns,
        "bytes": size,
        "device": np.where(on_host, HOST_MEMORY, _parse_numbers([arg.device_id for arg in args])),
        "address": _parse_numbers([arg.address for arg in args]),
        "total": _parse_numbers([arg.total for arg in args]),
        "reserved": _parse_numbers([arg.reserved for arg in args]),
    }
    kept = np.flatnonzero(timed & sized)
    threads = tuple((str(noted[place].pid), str(noted[place].tid)) for place in kept.tolist())
    return Allocations(threads=threads, **{key: column[kept] for key, column in columns.items()}), len(
        noted
    ) - len(kept)


def _number_texts(texts: Sequence[Any]) -> tuple[list[str], Int32]:
    """Return the distinct texts by first appearance, and (M,) which each is."""
    if set(map(type, texts)) - {str}:
        texts = [text if isinstance(text, str) else str(text) for text in texts]
    codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    return list(codes), np.array(list(map(codes.__getitem__, texts)), np.int32)


def _number_threads(events: Sequence[Event]) -> tuple[tuple[tuple[str, str], ...], Int32]:
    """Return the distinct threads by first appearance, and (M,) which each event is of."""
    pairs = [(event.pid, event.tid) for event in events]
    try:
        distinct = dict.fromkeys(pairs)
    except TypeError:
        pairs = [(str(pid), str(tid)) for pid, tid in pairs]
        distinct = dict.fromkeys(pairs)
    threads: dict[tuple[str, str], int] = {}
    codes = {(pid, tid): threads.setdefault((str(pid), str(tid)), len(threads)) for pid, tid in distinct}
    return tuple(threads), np.array(list(map(codes.__getitem__, pairs)), np.int32)


def build_trace(name: str, events: Sequence[Event]) -> DeviceTrace:
    """Return the trace of events, times, kinds and what the file says as a whole still to be filled in."""
    args = [event.args or NO_ARGS for event in events]
    numbers = {key: _parse_numbers(list(map(attrgetter(key), args))) for key in _NUMERIC}
    threads, thread = _number_threads(events)
    names, worded = _number_texts([event.name for event in events])
    describes_collective = [arg.collective is not None or arg.group is not None for arg in args]
    communicating = _mark_communication(names, worded) | np.array(describes_collective, np.bool_)
    inputs, input_texts = _number_inputs(args)
    return _make_trace(
        numbers,
        file=name,
        name=worded,
        names=names,
        thread=thread,
        threads=threads,
        grid=_collect_grids(args),
        comm={row: _collect_comm(args[row]) for row in np.flatnonzero(communicating).tolist()},
        inputs=inputs,
        input_texts=input_texts,
    )


def _make_trace(numbers: dict[str, Any], **rest: Any) -> DeviceTrace:
    """Return a trace of numeric fields by name, and of what else it is made of, with times and kinds still to be filled in."""
    external, older = numbers.pop("external"), numbers.pop("external_old")
    count = len(external)
    return DeviceTrace(
        head=Head(),
        kind=np.zeros(count, np.uint8),
        start_ns=np.zeros(count, np.int64),
        duration_ns=np.zeros(count, np.int64),
        external=np.where(external < 0, older, external),
        pid=NONE,
        **numbers,
        **rest,
    )


def _mark_communication(names: Sequence[str], codes: Int32) -> Bool:
    """Return which events (M,) have the name of a call for communication."""
    return mark_names(names, codes, lambda name: name.startswith(_COMM_NAMES))


def _collect_grids(args: Sequence[Args]) -> Int64:
    """Return (M, 3) the blocks that each kernel was launched with along each dimension, -1 where nothing says it."""
    grids = np.full((len(args), 3), NONE, np.int64)
    known = [row for row, arg in enumerate(args) if isinstance(arg.grid, list) and len(arg.grid) == 3]
    if known:
        numbers = [_parse_numbers([args[row].grid[place] for row in known]) for place in range(3)]
        grids[known] = np.clip(np.stack(numbers, axis=1), NONE, _MOST_BLOCKS)
    return grids


def _number_inputs(args: Sequence[Args]) -> tuple[Int32, list[tuple[str, str, str]]]:
    """Return which inputs (M,) each event has, -1 where it says nothing, and the texts of distinct ones."""
    # One text for all three, apart by what no JSON holds: what is done for every event is done by no loop of Python.
    joined = list(map(b"\0".join, map(_INPUTS, args)))
    parts = {text: text.split(b"\0") for text in dict.fromkeys(joined)}
    # Where shapes were not recorded, `types` is missing or an empty list.
    known = [text for text, (_, _, types) in parts.items() if len(types) > _EMPTY_LIST]
    codes = dict.fromkeys(parts, NONE) | {text: code for code, text in enumerate(known)}
    texts = [tuple(map(_format_in_one_line, parts[text])) for text in known]
    column = np.array(list(map(codes.__getitem__, joined)), np.int32)
    return column, cast("list[tuple[str, str, str]]", texts)


_INPUTS = attrgetter("values", "dims", "types")


@lru_cache(maxsize=1 << 12)
def _format_in_one_line(raw: bytes) -> str:
    """Return the text of a JSON value without line breaks, which recorders write into lists."""
    return str(msgspec.json.format(raw, indent=0) if b"\n" in raw else raw, "utf-8", "replace")


def _parse_numbers(values: list[Any]) -> Int64:
    """Return (M,) whole numbers, -1 for anything else."""
    if values.count(NONE) == len(values):
        return np.full(len(values), NONE, np.int64)
    numbers, good = parse_integers(
        [NONE if value is None else value for value in values] if None in values else values
    )
    return np.where(good, numbers, NONE)


_COMM_NAMES = ("c10d::", "_c10d_functional::", "c10d_functional::", "gloo:", "nccl:", *OPERATORS)
_COMM_FIELDS = Args.__struct_fields__[
    Args.__struct_fields__.index("collective") : Args.__struct_fields__.index("dims")
]

_COMM_VALUES = attrgetter(*_COMM_FIELDS)


def _collect_comm(args: Args) -> dict[str, Any]:
    values = zip(_COMM_FIELDS, _COMM_VALUES(args), strict=True)
    facts = {field: value for field, value in values if value is not None}
    for field, raw in (("dims", args.dims), ("types", args.types), ("values", args.values)):
        if len(raw) > _EMPTY_LIST or bytes(raw) not in (b"", b"[]"):
            facts[field] = _decode_repeated(bytes(raw))
    return facts


@lru_cache(maxsize=1 << 12)
def _decode_repeated(raw: bytes) -> Any:
    """Return a value that every step may repeat: the same object then, so that what is worked out of it need be but once."""
    return decode_anything(raw)
