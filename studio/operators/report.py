"""Add up what the operators of a job did: a row per operator, the share of time that has a formula, and the rest by time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from studio.analysis.job.renumbered import share_graphs
from studio.distinct import find_distinct
from studio.notebook import build_html_table, format_parts
from studio.operators.calls import Calls, Part, collect_calls
from studio.operators.table import OPERATORS
from studio.trace import (
    LAUNCHED_BY,
    NONE,
    Bool,
    Graph,
    Trace,
    ValueKind,
    list_recorded_devices,
    read_dense_column,
)
from studio.units import format_counted


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """All calls of one operator, over all ranks.

    Attributes:
        operator: Its name.
        family: What operators of its kind are called.
        type: The data type whose peak bounds it.
        count: Its recorded calls.
        time_ns: The time of what they ran, and of what was joined by name.
        by_name_ns: The part of it that was joined by name, because its launch was not recorded.
        flop, bytes: What was done in all that time.
        told_flop: What the recorder itself counts for these calls; None where it counts none.
        formula: The operations in words.
        bytes_formula: The bytes in words.
        source: Where the formula is from.
        by_name_count: Device operations that were joined by name; none of them is among the calls.
        by_name_flop, by_name_bytes: The part of `flop` and `bytes` that these did.
    """

    operator: str
    family: str
    type: str
    count: int
    time_ns: int
    by_name_ns: int
    flop: float
    bytes: float
    told_flop: float | None
    formula: str
    bytes_formula: str
    source: str
    by_name_count: int = 0
    by_name_flop: float = 0.0
    by_name_bytes: float = 0.0

    @property
    def called_ns(self) -> int:
        """The time of what its recorded calls ran."""
        return self.time_ns - self.by_name_ns

    @property
    def called_flop(self) -> float:
        """The operations of its recorded calls."""
        return self.flop - self.by_name_flop

    @property
    def called_bytes(self) -> float:
        """The bytes of its recorded calls."""
        return self.bytes - self.by_name_bytes

    @property
    def flop_per_s(self) -> float:
        """Achieved operations per second; 0 where it took no time."""
        return self.flop / self.time_ns * 1e9 if self.time_ns else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Achieved bytes per second; 0 where it took no time."""
        return self.bytes / self.time_ns * 1e9 if self.time_ns else 0.0

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None where no byte is counted."""
        return self.flop / self.bytes if self.bytes else None


@dataclass(frozen=True, slots=True)
class UncoveredRow:
    """Work without a formula.

    Attributes:
        name: The operator, or the kernel where no operator launched it.
        count: Device operations, or calls.
        time_ns: Their time.
        why: What is lacking.
    """

    name: str
    count: int
    time_ns: int
    why: str


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What the operators of a job did.

    Attributes:
        device: The GPU it was recorded on; empty where the trace does not tell.
        on_device: Whether times are those of a device; otherwise those of operators on the processor.
        rows: The operators, by falling time.
        uncovered: What has no formula, by falling time.
        time_ns: Compute time of all ranks, without communication and copies over the links to the host and to other GPUs.
        covered_ns: The part of it that has a formula.
        by_name_ns: The part of that which was joined by name.
        communication_ns, host_link_ns, peer_link_ns: Time of a device that is neither: of communication, of copies from and to the host, and
            of copies between GPUs.
    """

    device: str
    on_device: bool
    rows: tuple[OperatorRow, ...]
    uncovered: tuple[UncoveredRow, ...]
    time_ns: int
    covered_ns: int
    by_name_ns: int
    communication_ns: int
    host_link_ns: int
    peer_link_ns: int = 0

    @property
    def coverage(self) -> float | None:
        """The share of compute time that has a formula; None where there is no such time."""
        return self.covered_ns / self.time_ns if self.time_ns else None

    def __repr__(self) -> str:
        """Return it in a line."""
        share = "no time" if self.coverage is None else f"{100 * self.coverage:.1f} % of compute time covered"
        return format_parts("OperatorReport", [format_counted(len(self.rows), "operator"), share])

    def _repr_html_(self) -> str:
        """Return its operators as a table."""
        rows = [
            (
                *(row.operator, row.count, row.by_name_count),
                *(f"{row.time_ns / 1e6:.3f} ms", f"{row.flop:.3g}", f"{row.bytes:.3g}"),
            )
            for row in self.rows
        ]
        head = ("operator", "calls", "kernels without a call", "time of both", "FLOP", "bytes")
        return build_html_table(repr(self), head, rows)


@dataclass(slots=True)
class _Sum:
    count: int = 0
    time_ns: int = 0
    by_name_count: int = 0
    by_name_ns: int = 0
    by_name_flop: float = 0.0
    by_name_bytes: float = 0.0
    flop: float = 0.0
    bytes: float = 0.0
    recorded_flop: float | None = None
    why: Counter[str] = field(default_factory=Counter)


def list_operators(trace: Trace) -> OperatorReport:
    """Return what the operators of a job did: FLOP and bytes by formula, and the time they took.

    Example:
        >>> import studio
        >>> list_operators(studio.read(studio.sample_path("transformer_8r")))
        OperatorReport(0 operators, 0.0 % of compute time covered)
    """
    trace = share_graphs(trace)
    ranks = Counter(rank.graph for rank in trace.ranks)
    covered: dict[tuple[str, int, str], _Sum] = {}
    rest: dict[str, _Sum] = {}
    totals: Counter[Part] = Counter()
    named_ns, on_device = 0, False
    each = {index: collect_calls(trace.graphs[index]) for index in ranks}
    on_device = any(calls.on_device for calls in each.values())
    for index, calls in each.items():
        if calls.on_device != on_device:
            continue
        graph, times = trace.graphs[index], ranks[index]
        for part in Part:
            totals[part] += times * int(graph.duration_ns[calls.part == part].sum())
        named_ns += times * int(graph.duration_ns[calls.known & calls.by_name].sum())
        _add_covered(covered, graph, calls, times)
        _add_rest(rest, graph, calls, times)
    rows = [_build_row(*key, amount) for key, amount in covered.items() if amount.time_ns or amount.flop]
    lacking = [
        UncoveredRow(name, amount.count, amount.time_ns, amount.why.most_common(1)[0][0])
        for name, amount in rest.items()
    ]
    return OperatorReport(
        next(iter(list_recorded_devices(trace)), ""),
        on_device,
        tuple(sorted(rows, key=lambda row: (-row.time_ns, row.operator))),
        tuple(sorted(lacking, key=lambda row: (-row.time_ns, row.name))),
        totals[Part.COMPUTE],
        sum(amount.time_ns for amount in covered.values()),
        named_ns,
        totals[Part.COMMUNICATION],
        totals[Part.HOST_LINK],
        totals[Part.PEER_LINK],
    )


def _build_row(name: str, operator: int, kind: str, amount: _Sum) -> OperatorRow:
    row = OPERATORS[operator]
    return OperatorRow(
        name,
        row.family,
        kind,
        amount.count,
        amount.time_ns,
        amount.by_name_ns,
        amount.flop,
        amount.bytes,
        amount.recorded_flop,
        row.flop,
        row.bytes,
        row.source,
        amount.by_name_count,
        amount.by_name_flop,
        amount.by_name_bytes,
    )


def _add_covered(sums: dict[tuple[str, int, str], _Sum], graph: Graph, calls: Calls, times: int) -> None:
    known = np.flatnonzero(calls.known & (calls.part == Part.COMPUTE))
    call = calls.call[known]
    count = len(calls.row)
    own = known[~calls.by_name[known]]
    run = np.bincount(calls.call[own], minlength=count) > 0
    spent = np.bincount(call, graph.duration_ns[known], count)
    named = known[calls.by_name[known]]
    loose = np.bincount(calls.call[named], graph.duration_ns[named], count)
    loose_count = np.bincount(calls.call[named], minlength=count)
    loose_part = np.bincount(calls.call[named], calls.share[named], count)
    part_of = np.bincount(call, calls.share[known], count)
    recorded_flop = read_dense_column(graph, "flops", NONE)[calls.row]
    for index in np.flatnonzero(spent + run).tolist():
        kind = calls.types[int(calls.type[index])]
        key = (graph.strings[int(graph.name[calls.row[index]])], int(calls.operator[index]), kind)
        amount = sums.setdefault(key, _Sum())
        amount.count += times * int(run[index])
        amount.time_ns += times * int(spent[index])
        amount.by_name_count += times * int(loose_count[index])
        amount.by_name_ns += times * int(loose[index])
        amount.by_name_flop += times * float(calls.flop[index] * loose_part[index])
        amount.by_name_bytes += times * float(calls.bytes[index] * loose_part[index])
        if run[index] and recorded_flop[index] > 0:
            amount.recorded_flop = (amount.recorded_flop or 0.0) + times * int(recorded_flop[index])
        amount.flop += times * float(calls.flop[index] * part_of[index])
        amount.bytes += times * float(calls.bytes[index] * part_of[index])


def _add_rest(sums: dict[str, _Sum], graph: Graph, calls: Calls, times: int) -> None:
    loose = np.flatnonzero((calls.part == Part.COMPUTE) & ~calls.known & (graph.duration_ns > 0))
    replayed = _find_replayed(graph)
    for row in loose.tolist():
        call = int(calls.call[row])
        why = "no formula for this operator"
        if call != NONE:
            why = calls.reasons[int(calls.lacking[call])]
            named = int(calls.row[call])
        elif replayed[row]:
            # What is around the launch of a graph is no operator of its kernels, but often a mark around the whole step.
            named, why = row, "replayed graph, no operator recorded"
        else:
            above = graph.ctrl.of(row)
            named = int(above[0]) if len(above) and above[0] >= 0 and calls.on_device else row
            if named == row and calls.on_device:
                why = "no operator launched it, and no formula for its name"
        amount = sums.setdefault(graph.strings[int(graph.name[named])], _Sum())
        amount.count += times
        amount.time_ns += times * int(graph.duration_ns[row])
        amount.why[why] += times * int(graph.duration_ns[row])


def _find_replayed(graph: Graph) -> Bool:
    """Return (N,) which operations of a device were launched by the launch of a graph of them (CUDA and HIP graphs)."""
    replayed = np.zeros(len(graph), np.bool_)
    rows, where = graph.rows_with(LAUNCHED_BY)
    is_text = graph.attrs.kind[where] == ValueKind.STRING
    rows, where = rows[is_text], where[is_text]
    texts = graph.attrs.value[where]
    launches = [code for code in find_distinct(texts).tolist() if "GraphLaunch" in graph.strings[code]]
    replayed[rows] = np.isin(texts, launches)
    return replayed
