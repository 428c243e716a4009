"""Join and sort the columns of device traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from studio.et.allocations import join_allocations
from studio.et.columns import order_by_appearance
from studio.et.recording import DeviceTrace
from studio.trace import NONE, Int32, Int64

_Word = TypeVar("_Word")


def join_events(traces: Sequence[DeviceTrace]) -> DeviceTrace:
    """Return the events of several pieces of one file, one after another.

    Args:
        traces: At least one; what is said of the file as a whole is taken from the first.
    """
    if len(traces) == 1:
        return traces[0]
    names: dict[str, int] = {}
    threads: dict[tuple[str, str], int] = {}
    before = np.cumsum([0, *(len(trace) for trace in traces)]).tolist()
    columns = _join_columns(traces)
    columns["name"] = np.concatenate([_recode_words(trace.name, trace.names, names) for trace in traces])
    columns["thread"] = np.concatenate(
        [_recode_words(trace.thread, trace.threads, threads) for trace in traces]
    )
    inputs: dict[tuple[str, str, str], int] = {}
    columns["inputs"] = np.concatenate(
        [_recode_words(trace.inputs, trace.input_texts, inputs) for trace in traces]
    )
    comm = {
        first + row: facts
        for first, trace in zip(before, traces, strict=False)
        for row, facts in trace.comm.items()
    }
    return replace(
        traces[0],
        names=list(names),
        threads=tuple(threads),
        comm=comm,
        input_texts=list(inputs),
        allocations=join_allocations([trace.allocations for trace in traces]),
        **columns,
    )


def reorder_events(trace: DeviceTrace, order: Int64) -> DeviceTrace:
    """Return some of the events in another order; names and threads are numbered by first appearance."""
    columns: dict[str, Any] = {name: column[order] for name, column in _join_columns([trace]).items()}
    columns["name"], names = _keep_used(columns["name"], trace.names)
    columns["thread"], threads = _keep_used(columns["thread"], trace.threads)
    place = np.full(len(trace), -1, np.int64)
    place[order] = np.arange(len(order))
    rows = np.array(list(trace.comm), np.int64)
    moved = zip(place[rows].tolist(), trace.comm.values(), strict=True)
    comm = dict(sorted(((row, facts) for row, facts in moved if row >= 0), key=lambda item: item[0]))
    return replace(trace, names=names, threads=tuple(threads), comm=comm, **columns)


def order_by_begin(start: Int64, end: Int64, then: Int64 | None = None) -> Int64:
    """Return the order (N,) of intervals by their begin, longer ones first; of equal ones the first comes first.

    Args:
        start: (N,) when they begin.
        end: (N,) when they end.
        then: (N,) what orders those that begin and end at the same times.
    """
    # Any sort will do but for intervals that begin at one time, which are few: a stable one takes four times as long.
    order = np.argsort(start)
    begun = start[order]
    same = begun[1:] == begun[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if len(order) else order
    rows = order[tied]
    keys = (rows, -end[rows], start[rows]) if then is None else (rows, then[rows], -end[rows], start[rows])
    order[tied] = rows[np.lexsort(keys)]
    return order


def _join_columns(traces: Sequence[DeviceTrace]) -> dict[str, Any]:
    """Return every column of the traces, by name, one after another."""
    names = [field.name for field in fields(DeviceTrace)]
    return {
        name: np.concatenate([getattr(trace, name) for trace in traces])
        if len(traces) > 1
        else getattr(traces[0], name)
        for name in names
        if isinstance(getattr(traces[0], name), np.ndarray)
    }


def _recode_words(codes: Int32, words: Sequence[_Word], known: dict[_Word, int]) -> Int32:
    """Return codes of words as codes of all words known, to which new ones are added; -1 stays."""
    table = np.array([*(known.setdefault(word, len(known)) for word in words), NONE], np.int32)
    return table[codes] if len(codes) else codes


def _keep_used(codes: Int32, words: Sequence[_Word]) -> tuple[Int32, list[_Word]]:
    """Return codes by first appearance, and the words for them."""
    used, _, number = order_by_appearance(codes, len(words))
    return number[codes], [words[code] for code in used.tolist()]
