"""Repairs of messages: correct or remove sends and receives that do not fit each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from studio.analysis.collectives.messages import Messages
from studio.completion.surgery import with_numbers
from studio.distinct import find_distinct
from studio.doctor import edit
from studio.doctor.changes import SHOWN, Change, Tick
from studio.doctor.diagnosis import Case
from studio.sim.agreement import label_node
from studio.trace import NONE, Bool, Graph, Int64, Trace
from studio.units import format_counted


def _drop_messages(
    trace: Trace, tick: Tick, halves: list[tuple[Int64, Int64]], noun: str
) -> tuple[Trace, list[Change]]:
    """Remove sends and receives, given by rank index and row."""
    place = np.concatenate([rank for rank, _ in halves])
    row = np.concatenate([rows for _, rows in halves])
    wanted = {
        index: tuple(find_distinct(row[place == index]).tolist()) for index in find_distinct(place).tolist()
    }
    first = [
        f"rank {trace.ranks[index].number}: {label_node(trace.graph_of(trace.ranks[index]), node)}"
        for index, rows in wanted.items()
        for node in rows[:SHOWN]
    ]

    def change(graph: Graph, rows: object) -> Graph:
        assert isinstance(rows, tuple)
        return edit.without_nodes(graph, np.array(rows, np.int64))

    count = sum(map(len, wanted.values()))
    repaired = edit.drop_unused_slots(edit.change_ranks(trace, wanted, change, tick)) if wanted else trace
    return repaired, [Change(f"{format_counted(count, noun)} removed", count, tuple(first[:SHOWN]))]


def repair_receives(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Give receives the tag, size or source of the sends they evidently belong to, or those their target; remove the others."""
    case = Case(trace, tick)
    messages, unmatched = case.messages, case.unmatched
    corrected, change = _correct_receives(trace, tick, messages, unmatched.pairs)
    named, ends = _set_ends(corrected, tick, _list_wrong_ends(messages, unmatched.crossed))
    lone = np.setdiff1d(unmatched.receives, np.concatenate((unmatched.pairs, *unmatched.crossed), axis=1)[0])
    halves = messages.receive_rank[lone], messages.receive_row[lone]
    repaired, dropped = _drop_messages(named, tick, [halves], "receive")
    return repaired, [change, *ends, *dropped]


def _correct_receives(trace: Trace, tick: Tick, messages: Messages, pairs: Int64) -> tuple[Trace, Change]:
    """Give the receives (2, P) of the first line the tags and sizes of the sends of the second."""
    wanted: dict[int, list[tuple[int, int, int]]] = {}
    first: list[str] = []
    for receive, send in pairs.T.tolist():
        place, row = int(messages.receive_rank[receive]), int(messages.receive_row[receive])
        wanted.setdefault(place, []).append((row, int(messages.tag[send]), int(messages.bytes[send])))
        if len(first) < SHOWN:
            rank = trace.ranks[place]
            words = [
                f"{name} {int(values[receive]):,} became {int(values[send]):,}"
                for name, values in (("tag", messages.tag), ("size", messages.bytes))
                if values[receive] != values[send]
            ]
            first.append(f"rank {rank.number}: {label_node(trace.graph_of(rank), row)}: {', '.join(words)}")

    def change(graph: Graph, rows: object) -> Graph:
        assert isinstance(rows, tuple)
        row, tag, size = np.array(rows, np.int64).T
        return with_numbers(with_numbers(graph, "comm_tag", row, tag), "comm_size", row, size)

    keys = {place: tuple(sorted(rows)) for place, rows in wanted.items()}
    repaired = edit.change_ranks(trace, keys, change, tick) if keys else trace
    count = pairs.shape[1]
    return repaired, Change(f"{format_counted(count, 'receive')} corrected", count, tuple(first))


def drop_sends(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Remove sends that no rank receives."""
    case = Case(trace, tick)
    messages, sends = case.messages, case.unmatched.sends
    return _drop_messages(trace, tick, [(messages.send_rank[sends], messages.send_row[sends])], "send")


def repair_self_messages(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Give messages of a rank to itself the rank they evidently go between, and remove the others."""
    corrected, changes = _correct_ends(trace, tick, lambda _case, near, far: near == far)
    messages = Case(corrected, tick).messages
    itself = messages.source == messages.target
    sent, received = itself & (messages.send_row != NONE), itself & (messages.receive_row != NONE)
    halves = [
        (messages.send_rank[sent], messages.send_row[sent]),
        (messages.receive_rank[received], messages.receive_row[received]),
    ]
    repaired, dropped = _drop_messages(corrected, tick, halves, "send or receive")
    return repaired, [*changes, *dropped]


def name_own_ranks(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Set the near end of lone sends and receives to the rank that they are on."""
    messages = Case(trace, tick).messages
    numbers = np.array([*(rank.number for rank in trace.ranks), NONE], np.int64)
    ends = []
    for side in (0, 1):
        row, rank, near, _ = _get_side(messages, side)
        other_row = _get_side(messages, 1 - side)[0]
        ends += [
            (
                int(rank[message]),
                int(row[message]),
                _END_KEYS[side],
                int(numbers[rank[message]]),
                int(near[message]),
            )
            for message in np.flatnonzero(
                (row != NONE) & (other_row == NONE) & (numbers[rank] != near)
            ).tolist()
        ]
    return _set_ends(trace, tick, ends)


def name_missing_ends(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Name the other end of sends and receives that name none."""
    return _correct_ends(trace, tick, lambda _case, _near, far: far == NONE)


def name_ends_inside(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Correct the other end of sends and receives that name a rank outside of the job."""
    return _correct_ends(
        trace,
        tick,
        lambda case, _near, far: np.isin(np.arange(len(far)), np.concatenate(case.unmatched.outside)),
    )


_END_KEYS = ("comm_src", "comm_dst")
"""The attribute with the own rank of a send and of a receive; that of the other end is the other one's."""
_End = tuple[int, int, str, int, int]
"""Place of a rank in the job, a row, an attribute, and the number that it becomes and was."""


def _get_side(messages: Messages, side: int) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the rows and ranks of sends (0) or receives (1), the rank at their own end and that at the other."""
    if side:
        return messages.receive_row, messages.receive_rank, messages.target, messages.source
    return messages.send_row, messages.send_rank, messages.source, messages.target


def _correct_ends(
    trace: Trace, tick: Tick, is_meant: Callable[[Case, Int64, Int64], Bool]
) -> tuple[Trace, list[Change]]:
    """Give sends and receives the other end that they evidently belong to.

    Args:
        trace: The job.
        tick: Called now and then.
        is_meant: Returns (M,) which messages are to be corrected, of the job, and the rank at the own end and the other of each.
    """
    case = Case(trace, tick)
    meant = [is_meant(case, *_get_side(case.messages, side)[2:]) for side in (0, 1)]
    chosen = [pairs[:, meant[side][pairs[1 - side]]] for side, pairs in enumerate(case.unmatched.misnamed)]
    return _set_ends(trace, tick, _list_wrong_ends(case.messages, (chosen[0], chosen[1])))


def _list_wrong_ends(messages: Messages, pairs: tuple[Int64, Int64]) -> list[_End]:
    """Return what to correct, of receives and the sends they belong to, (2, Q) where the send is wrong and (2, W) where the receive is."""
    ends = []
    for side, both in enumerate(pairs):
        row, rank, _, far = _get_side(messages, side)
        # The half that names a wrong rank, and the one that says whom it belongs to.
        for wrong, right in (both if side else both[::-1]).T.tolist():
            ends.append(
                (int(rank[wrong]), int(row[wrong]), _END_KEYS[1 - side], int(far[right]), int(far[wrong]))
            )
    return ends


def _sort_by_key(chosen: tuple[tuple[str, int, int], ...]) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return rows and values by attribute."""
    parts = ((key, [(row, value) for name, row, value in chosen if name == key]) for key in _END_KEYS)
    return [(key, rows) for key, rows in parts if rows]


def _set_ends(trace: Trace, tick: Tick, ends: list[_End]) -> tuple[Trace, list[Change]]:
    wanted: dict[int, list[tuple[str, int, int]]] = {}
    for place, row, key, value, _ in ends:
        wanted.setdefault(place, []).append((key, row, value))
    first = tuple(
        f"rank {trace.ranks[place].number}: {label_node(trace.graph_of(trace.ranks[place]), row)}: {key} "
        f"{'none' if was == NONE else was} became {value}"
        for place, row, key, value, was in ends[:SHOWN]
    )

    def change(graph: Graph, chosen: object) -> Graph:
        assert isinstance(chosen, tuple)
        for key, rows in _sort_by_key(chosen):
            graph = edit.with_peers(graph, key, *np.array(rows, np.int64).T)
        return graph

    keys = {place: tuple(sorted(rows)) for place, rows in wanted.items()}
    repaired = edit.change_ranks(trace, keys, change, tick) if keys else trace
    ranks = list(repaired.ranks)
    for place, chosen in keys.items():
        added = [value for _, rows in _sort_by_key(chosen) for value in sorted({value for _, value in rows})]
        ranks[place] = replace(ranks[place], slots=(*ranks[place].slots, *added))
    repaired = edit.drop_unused_slots(replace(repaired, ranks=tuple(ranks))) if keys else trace
    return repaired, [
        Change(
            f"{format_counted(len(ends), 'send or receive', 'sends or receives')} corrected", len(ends), first
        )
    ]
