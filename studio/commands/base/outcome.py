"""What came of a simulation: as plain data, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from studio.analysis.collectives.apart import describe_apart, list_apart
from studio.analysis.collectives.times import (
    CollectiveTimes,
    as_rows,
    compute_collective_times,
    compute_distinct_times,
    describe_presence,
)
from studio.analysis.job.alike import count_alike, find_first_alike
from studio.analysis.job.completeness import describe_assumed
from studio.analysis.job.ledger import EXPOSED, IDLE, PARTS, Part
from studio.analysis.job.part_words import NAMES
from studio.commands.base import replay as replaying
from studio.commands.base.systems import label_system
from studio.commands.base.terminal import align_columns, escape_controls, shorten
from studio.sim import astra
from studio.sim.agreement import format_ranks
from studio.sim.compute import compute_times
from studio.sim.doubt import Cured, Doubt
from studio.sim.network import TOPOLOGY_NAMES
from studio.sim.result import SimResult, compute_exposed_ns, compute_ledger, compute_statistics
from studio.sim.retargeting import recompute_job, recompute_words
from studio.sim.traffic import LinkTraffic
from studio.trace import Finding, Int64, label_collective
from studio.units import format_bytes, format_count, format_distinct, format_ns, format_rate

if TYPE_CHECKING:
    from studio.commands.base.engine_run import EngineRun

WHOLE = "whole array"
"""What the column is called that holds what bandwidths are of, where that is not the size of what a rank puts in."""
WHOLE_WORDS = (
    f"{WHOLE}: of an all-gather or gather what all members put in together; algbw and busbw are of it"
)
_SLOWEST = 3
_BUSIEST = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulation with its findings and how long it took to compute.

    Attributes:
        workload: What was simulated, in words.
        result: Finish times and events.
        findings: What reading and checking brought to light.
        spent_s: How long the simulation took, reading left out.
        every_rank: Whether every rank was simulated because the order of events across ranks was asked for.
        job, run: Ids of the run that was kept and of its job; None where none was.
        doubts: Why the answer is not to be believed as it stands.
        cures: What was simulated before, where this is the cure of it.
        cured_doubts: The doubts that it cures.
        engine: What ASTRA-sim's own program made of the same; None where none was run.
    """

    workload: str
    result: SimResult
    findings: tuple[Finding, ...]
    spent_s: float
    every_rank: bool = False
    job: str | None = None
    run: str | None = None
    doubts: tuple[Doubt, ...] = ()
    cures: Cured | None = None
    cured_doubts: tuple[Doubt, ...] = ()
    engine: EngineRun | None = None


def report(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data; times are whole nanoseconds."""
    result = outcome.result
    parts = astra.build_parts(result.config)
    times = compute_ledger(result).totals().columns()
    numbers = [rank.number for rank in result.trace.ranks]
    exposed = compute_exposed_ns(result).astype(np.uint64).tolist()
    stats = compute_statistics(result)
    retargeting = recompute_job(result.trace, result.config)[1]
    collectives = compute_collective_times(result.trace, result.node_times(), result.config.groups)
    ranks = [
        {
            "rank": number,
            "finish_ns": int(result.finish_ns[index]),
            **{key: int(column[index]) for key, column in times.items()},
            "reference": {
                "cycles": int(result.finish_ns[index]),
                "exposed communication": exposed[index],
                **(stats[index] if stats else {}),
            },
        }
        for index, number in enumerate(numbers)
    ]
    return {
        "workload": outcome.workload,
        "job": outcome.job,
        "run": outcome.run,
        "model": result.config.model,
        "mode": "compatible" if result.config.extensions is None else "extended",
        "finish_ns": result.makespan_ns,
        "assumed": describe_assumed(result.trace),
        "npus": result.config.topology.npus,
        "events": int(np.bincount(result.event_rank, minlength=len(numbers))[result.representative].sum()),
        "classes": result.classes,
        "unfolded": result.unfolded,
        "compute": asdict(compute_times(result.trace, result.config)),
        "recomputed": None if retargeting is None else asdict(retargeting),
        "spent_s": round(outcome.spent_s, 6),
        "config": {
            "network": parts.network,
            "system": parts.system,
            "memory": parts.memory,
            "options": parts.options,
            "congestion": parts.congestion,
        },
        "doubts": [doubt_report(doubt) for doubt in outcome.doubts],
        "cured": None
        if outcome.cures is None
        else {
            "option": outcome.cures.option,
            "finish_ns": outcome.cures.finish_ns,
            "doubts": [doubt_report(doubt) for doubt in outcome.cured_doubts],
        },
        "ranks": ranks,
        "links": _build_links_report(result.links),
        "dimensions": _build_dimensions_report(result),
        "collectives": _build_collectives_report(result, collectives),
        "apart": list_apart(collectives.apart_by_group()),
        "steps": replaying.report(result) if replaying.is_replay(result) else None,
        "engine": _build_engine_report(outcome),
        "findings": msgspec.to_builtins(outcome.findings),
    }


def _build_engine_report(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.engine is None:
        return None
    from studio.commands.base.engine_run import build_engine_report

    return build_engine_report(outcome.engine, [rank.number for rank in outcome.result.trace.ranks])


def _format_engine_lines(outcome: Outcome) -> Iterator[str]:
    if outcome.engine is None:
        return
    from studio.commands.base.engine_run import format_engine_lines

    yield ""
    yield from format_engine_lines(outcome.engine, [rank.number for rank in outcome.result.trace.ranks])


def doubt_report(doubt: Doubt) -> dict[str, Any]:
    """Return a doubt as plain data."""
    return {
        "code": doubt.code,
        "message": doubt.message,
        "impossible": doubt.impossible,
        "cure": doubt.cure.option if doubt.cure else None,
    }


def _build_links_report(links: LinkTraffic) -> list[dict[str, Any]]:
    columns = (links.source, links.target, links.bytes, links.messages, links.busy_ns, links.peak_queue)
    return [
        {
            "link": links.name(index),
            "source": source,
            "target": target,
            "bytes": size,
            "messages": messages,
            "busy_ns": busy,
            "peak_queue": peak,
        }
        for index, (source, target, size, messages, busy, peak) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def _build_dimensions_report(result: SimResult) -> list[dict[str, Any]]:
    """Return what all ranks together sent into each dimension."""
    return [
        {
            "dimension": index,
            "bytes": int(carried.bytes.sum()),
            "messages": int(carried.messages.sum()),
            "busy_ns": round(float(carried.busy_ns.sum())),
            "npu_bytes_per_ns": carried.capacity_bytes_per_ns,
            "offered_load": carried.offered_load(result.makespan_ns),
        }
        for index, carried in enumerate(result.dimensions)
    ]


def _build_collectives_report(result: SimResult, times: CollectiveTimes) -> list[dict[str, Any]]:
    """Return every collective, in the order they began."""
    graph_of = {rank.number: result.trace.graph_of(rank) for rank in result.trace.ranks}
    rows = as_rows(times, np.arange(len(times)))
    for row in rows:
        row["type"] = label_collective(row["type"])
        row["last_node"] = int(graph_of[row["last_rank"]].id[row.pop("last_row")])
    return rows


def text(outcome: Outcome) -> str:
    """Format an outcome for a terminal."""
    result = outcome.result
    finish = result.finish_ns
    times = compute_ledger(result).totals()
    lines = [
        *_doubt_lines(outcome),
        _format_header(outcome),
        f"  finish  {format_ns(result.makespan_ns)}  ({format_count(result.makespan_ns)} ns)",
        f"  simulated in {format_ns(outcome.spent_s * 1e9)}{_describe_classes(outcome)}",
        *_compute_lines(result),
        *([f"  {assumed}"] if (assumed := describe_assumed(result.trace)) else []),
        "",
        f"  {'per rank':24}{'least':>12}{'mean':>12}{'most':>12}   of finish",
    ]
    rows: list[tuple[str, Int64]] = [
        ("finish", finish),
        *((NAMES[part], times.of(part)) for part in PARTS if part not in (*EXPOSED, *IDLE)),
        (NAMES["exposed"], times.exposed_ns),
        *((f"  {_name_in(result, part)}", times.of(part)) for part in EXPOSED),
        (NAMES["idle"], times.idle_ns),
        *((f"  {NAMES[part]}", times.of(part)) for part in IDLE),
        (NAMES["after_finish"], times.after_finish_ns),
    ]
    for name, column in rows:
        if column.any() or name in ("finish", "compute", "exposed communication", "idle"):
            share = 100 * float(column.mean()) / max(result.makespan_ns, 1)
            cells = "".join(
                f"{format_ns(float(value)):>12}" for value in (column.min(), column.mean(), column.max())
            )
            lines.append(f"  {name:24}{cells}   {share:5.1f} %")
    lines += [
        "",
        *_format_slowest_ranks(result),
        *_format_links(result),
        *_format_slowest_collectives(result),
    ]
    if replaying.is_replay(result):
        lines += ["", *replaying.format_lines(result)]
    lines += _format_engine_lines(outcome)
    if outcome.run:
        kept = (
            outcome.run
            if outcome.engine is None or outcome.engine.run is None
            else f"{outcome.run} and {outcome.engine.run}"
        )
        lines += ["", f"  kept as run {kept} of job {outcome.job}"]
        if outcome.engine is not None and outcome.engine.run is None:
            lines.append("  the engine's run is not kept: its log does not hold both ends of every node")
    codes = {doubt.code for doubt in outcome.doubts}
    lines += _format_findings([finding for finding in outcome.findings if finding.code not in codes])
    return "\n".join(lines).rstrip()


def _name_in(result: SimResult, part: Part) -> str:
    """Return what a part of exposed communication is called: nothing tells waiting and transfer apart where one rank alone is replayed."""
    untold = part == "transfer" and len(result.trace.ranks) == 1 and replaying.is_replay(result)
    return NAMES["communication" if untold else part]


def _compute_lines(result: SimResult) -> Iterator[str]:
    """Say where the time of compute nodes comes from; a replay takes all of it from the recording."""
    if again := recompute_words(result):
        yield f"  {again}"
        return
    words = compute_times(result.trace, result.config).words
    if words and result.config.needs_every_rank:
        yield f"  {words}"


def _format_header(outcome: Outcome) -> str:
    """Format workload and system; a replay shows no network, because communication takes its recorded time."""
    result = outcome.result
    if replaying.is_replay(result):
        npus = len(result.trace.ranks)
        return f"{outcome.workload}: {npus:,} {'rank' if npus == 1 else 'ranks'}, {replaying.NO_NETWORK}"
    if result.config.topology.npus == 1:
        return f"{outcome.workload} on one NPU, without a network"
    return f"{outcome.workload} on {label_system(result.config)}"


def _format_slowest_ranks(result: SimResult) -> Iterator[str]:
    finish = result.finish_ns
    numbers = [rank.number for rank in result.trace.ranks]
    if int(finish.min()) == int(finish.max()):
        yield f"  all {len(numbers):,} ranks finish at the same time" if len(numbers) > 1 else "  one rank"
        return
    at_ns: dict[int, list[int]] = {}
    for number, end in zip(numbers, finish.tolist(), strict=True):
        at_ns.setdefault(end, []).append(number)
    last, first = sorted(at_ns, reverse=True)[:_SLOWEST], min(at_ns)
    finishes = format_distinct(last)
    named = ", ".join(f"{format_ranks(at_ns[end])} {text}" for end, text in zip(last, finishes, strict=True))
    spread = 100 * (int(finish.max()) - int(finish.min())) / int(finish.max())
    yield f"  last to finish   {named}"
    yield f"  first to finish  {format_ranks(at_ns[first])} {format_ns(first)} ({spread:.1f} % earlier)"


def _format_links(result: SimResult) -> Iterator[str]:
    whole = max(result.makespan_ns, 1)
    # Single links carry messages across dimensions; a table by dimension would contradict theirs.
    if result.config.links is None and any(carried.messages.any() for carried in result.dimensions):
        rows = [("dimensions", "sent by all", "messages", "rate of all", "offered load")]
        for index, (dim, carried) in enumerate(
            zip(result.config.topology.dims, result.dimensions, strict=True)
        ):
            size, name = int(carried.bytes.sum()), f"{index}: {TOPOLOGY_NAMES[dim.kind]} {dim.size}"
            share = f"{100 * carried.offered_load(whole):.1f} %" if carried.capacity_bytes_per_ns else "-"
            messages = format_count(int(carried.messages.sum()))
            rows.append((name, format_bytes(size), messages, format_rate(size / whole), share))
        yield from _indent(align_columns(rows, (24, 12, 12, 14, 14)))
    links = result.links
    rows = [("busiest links", "carried", "busy", "rate", "most waiting")]
    for index, alike in links.busiest_kinds(_BUSIEST):
        size, busy = int(links.bytes[index]), f"{100 * int(links.busy_ns[index]) / whole:.1f} %"
        queue = format_count(int(links.peak_queue[index]))
        name = count_alike(links.name(index), alike)
        rows.append((name, format_bytes(size), busy, format_rate(size / whole), queue))
    if len(rows) > 1:
        yield from _indent(align_columns(rows, (24, 12, 12, 14, 14)))


def _indent(lines: Sequence[str]) -> Iterator[str]:
    """Yield an empty line, then the lines of a table."""
    yield ""
    yield from (f"  {line}" for line in lines)


def _format_slowest_collectives(result: SimResult) -> Iterator[str]:
    times, count = compute_distinct_times(result.trace, result.node_times(), result.config.groups)
    took = times.end_ns - times.arrived_ns
    # Of a folded job whole classes of groups take the same.
    first, alike = find_first_alike(
        times.type, times.members, times.bytes, took, times.skew_ns, times.present, count=count
    )
    slowest = np.argsort(-took[first], kind="stable")[:_BUSIEST].tolist()
    apart = describe_apart(times.apart_by_group())
    if not slowest:
        if apart:
            yield from ("", f"  {apart}")
        return
    has_whole = bool((times.whole_bytes != times.bytes)[first[slowest]].any())
    whole_head = (WHOLE,) if has_whole else ()
    rows: list[tuple[str, ...]] = [
        ("slowest collectives", "size", *whole_head, "took", "skew", "algbw", "busbw")
    ]
    partly: list[str] = []
    for place in slowest:
        index = int(first[place])
        name = shorten(escape_controls(times.name(index)), 44)
        group = times.groups[int(times.group[index])]
        if words := describe_presence(result.trace, group, int(times.present[index]), result.config.groups):
            partly.append(f"{name}: {words}")
        rates = (float(column[index]) for column in (times.algorithm_bytes_per_ns, times.bus_bytes_per_ns))
        cells = (
            format_bytes(int(times.bytes[index])),
            *([format_bytes(int(times.whole_bytes[index]))] if has_whole else []),
            format_ns(int(took[index])),
            format_ns(int(times.skew_ns[index])) if times.tells_skew[index] else "–",
        )
        shown = (format_rate(rate) if rate == rate else "-" for rate in rates)
        rows.append((count_alike(name, int(alike[place])), *cells, *shown))
    widths = (44, 12, *((len(WHOLE) + 2,) if has_whole else ()), 12, 12, 14, 14)
    yield from _indent(align_columns(rows, widths))
    for words in partly:
        yield f"  {words}; it takes the time it was recorded with, waiting included"
    if has_whole:
        yield f"  {WHOLE_WORDS}"
    if apart:
        yield f"  {apart}"


def _describe_classes(outcome: Outcome) -> str:
    result = outcome.result
    if outcome.every_rank:
        return ", every rank simulated, for the order of events across ranks"
    if len(result.finish_ns) == 1:
        return ""
    if result.unfolded:
        return f", rank by rank: {result.unfolded}"
    return f", {format_count(result.classes)} of {format_count(len(result.finish_ns))} ranks standing for all"


def _doubt_lines(outcome: Outcome) -> Iterator[str]:
    """Say what makes the answer doubtful, before the answer."""
    if outcome.cures:
        yield outcome.cures.words(outcome.result.makespan_ns)
    for doubt in outcome.doubts:
        yield f"{doubt.mark}: {doubt.message}"
        if doubt.cure:
            yield f"  {doubt.cure.label}: {doubt.cure.option}"
    if any(doubt.cure for doubt in outcome.doubts) and outcome.cures is None:
        yield "  --cure does so and says what changes."
    if outcome.doubts:
        yield ""


def _format_findings(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"  {finding.level:7} {finding.message}"
        if finding.hint:
            yield f"          {finding.hint}"
