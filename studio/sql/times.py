"""Make what runs and recordings tell: spans, collectives, links, exposed time, and where the time of ranks went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from studio.analysis.collectives.times import compute_collective_times
from studio.analysis.job.group_times import COLUMNS as EXPOSED_PARTS
from studio.analysis.job.group_times import sum_group_times
from studio.analysis.job.ledger import PARTS, Ledger
from studio.arrow import convert_optional_texts, to_arrow
from studio.columns import join_columns
from studio.comparing import Compared
from studio.sim.traffic import LinkTraffic
from studio.sql.arrow_columns import build_column, build_table, build_word_column
from studio.sql.graphs import compute_first_nodes
from studio.sql.sources import RunSource
from studio.trace import NONE, Float64, Int64, label_collective

if TYPE_CHECKING:
    import pyarrow as pa

_TOLD_APART = ("queueing", "latency", "transfer")
"""Parts that a recording does not tell; it has `communication` in their place."""


def has_times(run: RunSource) -> bool:
    """Return whether a run is one: a recording may hold no times."""
    if run.result is not None:
        return True
    return any(bool((graph.start_ns >= 0).any()) for graph in run.job.trace().graphs)


def build_timed_table(side: Compared) -> pa.Table:
    """Return which times each rank has: `place`, `times`. Ranks that one was simulated for share theirs."""
    places, number, _ = _find_shared_times(side)
    return build_table(place=to_arrow(places), times=to_arrow(number))


def build_times_table(side: Compared) -> pa.Table:
    """Return when nodes ran: `times`, `at` (place among the nodes of all graphs), `start_ns`, `end_ns`, `own_ns`."""
    _, _, distinct = _find_shared_times(side)
    times, first_of = side.side.times, compute_first_nodes(side.side.trace)
    at, starts, ends, owns, counts = [], [], [], [], []
    for first, graph in distinct:
        own = slice(first, first + len(side.side.trace.graphs[graph]))
        rows = np.flatnonzero(times.start_ns[own] >= 0)
        at.append(rows + int(first_of[graph]))
        starts.append(times.start_ns[own][rows] - side.side.origin_ns)
        ends.append(
            np.where(times.end_ns[own][rows] < 0, NONE, times.over_ns[own][rows] - side.side.origin_ns)
        )
        owns.append(times.end_ns[own][rows] - times.start_ns[own][rows])
        counts.append(len(rows))
    end = join_columns(ends)
    return build_table(
        times=to_arrow(np.repeat(np.arange(len(counts)), counts)),
        at=to_arrow(join_columns(at)),
        start_ns=to_arrow(join_columns(starts)),
        end_ns=build_column(end, end >= 0),
        own_ns=build_column(join_columns(owns), end >= 0),
    )


def _find_shared_times(side: Compared) -> tuple[Int64, Int64, list[tuple[int, int]]]:
    """Return the places of ranks with times, which times each has, and where those begin, with the graph they are of."""
    known: dict[tuple[int, int], int] = {}
    places, number = [], []
    for place, (rank, first) in enumerate(
        zip(side.side.trace.ranks, side.side.times.first.tolist(), strict=True)
    ):
        if first != NONE:
            places.append(place)
            number.append(known.setdefault((first, rank.graph), len(known)))
    return np.array(places, np.int64), np.array(number, np.int64), list(known)


def build_collectives_table(side: Compared) -> pa.Table:
    """Return every collective that ran."""
    times = compute_collective_times(side.side.trace, side.side.times, side.side.groups)
    origin = side.side.origin_ns
    columns: dict[str, Int64] = {
        "position": times.position,
        "members": times.members,
        "present": times.present,
        "bytes": times.bytes,
        "whole_bytes": times.whole_bytes,
        "start_ns": times.start_ns - origin,
        "arrived_ns": times.arrived_ns - origin,
        "end_ns": times.end_ns - origin,
        "duration_ns": times.duration_ns,
        "skew_ns": times.skew_ns,
        "last_rank": times.last_rank,
        "last_node": times.last_row,
    }
    rates: dict[str, Float64] = {
        "algorithm_bytes_per_ns": times.algorithm_bytes_per_ns,
        "bus_bytes_per_ns": times.bus_bytes_per_ns,
    }
    return build_table(
        comm_group=build_word_column(times.group, lambda number: times.groups[number]),
        type=build_word_column(times.type, label_collective),
        **{name: to_arrow(column) for name, column in columns.items()},
        **{name: build_column(column, ~np.isnan(column)) for name, column in rates.items()},
    )


def build_links_table(run: RunSource) -> pa.Table | None:
    """Return what the links of a run carried; None where it has none: a recording, or a network without them."""
    if run.result is None:
        return None
    result = run.result()
    links: LinkTraffic = result.links
    if not len(links):
        return None
    makespan = max(result.makespan_ns, 1)
    return build_table(
        link=to_arrow(np.arange(len(links))),
        name=convert_optional_texts([links.name(link) for link in range(len(links))]),
        source=to_arrow(links.source),
        target=to_arrow(links.target),
        bytes=to_arrow(links.bytes),
        messages=to_arrow(links.messages),
        busy_ns=to_arrow(links.busy_ns),
        utilisation=to_arrow(links.busy_ns / makespan),
        peak_queue=to_arrow(links.peak_queue),
    )


def build_exposed_table(side: Compared, account: Ledger) -> pa.Table:
    """Return whose communication each rank's exposed time and bubbles are."""
    shares = sum_group_times(side.side.trace, account, groups=side.side.groups)
    all_true = np.ones(len(shares), np.bool_)
    exposed = shares.ns[:, 1:].sum(axis=1) if len(shares) else np.zeros(0, np.int64)
    ranks = np.array(account.numbers, np.int64)
    return build_table(
        rank=to_arrow(ranks[shares.rank] if len(shares) else ranks[:0]),
        comm_group=convert_optional_texts(shares.group),
        type=convert_optional_texts(shares.type),
        **{
            f"{part}_ns": build_column(
                shares.ns[:, index] if len(shares) else exposed, all_true & _tells(account, part)
            )
            for index, part in enumerate(EXPOSED_PARTS)
        },
        exposed_ns=to_arrow(exposed),
    )


def build_parts_table(account: Ledger) -> pa.Table:
    """Return where the time of each rank went: `place`, `finish_ns` and a column for each part."""
    totals = account.totals()
    all_true = np.ones(len(account), np.bool_)
    sums: Mapping[str, Int64] = {
        "exposed": totals.exposed_ns,
        "idle": totals.idle_ns,
        "after_finish": totals.after_finish_ns,
    }
    columns = {
        f"{part}_ns": build_column(totals.of(part), all_true & _tells(account, part)) for part in PARTS
    }
    columns |= {f"{name}_ns": to_arrow(column) for name, column in sums.items()}
    return build_table(place=to_arrow(account.places), finish_ns=to_arrow(account.finish_ns), **columns)


def _tells(account: Ledger, part: str) -> bool:
    return part not in (_TOLD_APART if account.is_recording else ("communication",))
