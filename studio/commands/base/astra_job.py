"""Make of a job and a system what ASTRA-sim's programs take.

What the programs would stop at is converted or left out, and counted; what they lack is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.commands.base.backends import LOG_KEEPS_BYTES, LOGGING, WHOLE_LOG
from studio.commands.base.for_astra_sim import CODE, adapt_for_astra_sim
from studio.completion.surgery import with_numbers
from studio.doctor import edit
from studio.errors import ConfigError, TraceError
from studio.sim.check import check
from studio.sim.config import Congestion, SystemConfig
from studio.sim.models import with_model
from studio.sim.parts import EXTENDED, NO_CUSTOM, CustomAlgorithms, Parts, get_table, interpret, is_extended
from studio.trace import (
    NONE,
    Finding,
    Graph,
    Int64,
    NodeType,
    Rank,
    Strings,
    Trace,
    ValueKind,
    is_flagged,
    read_int_column,
)
from studio.units import format_bytes, format_count, format_counted, format_ns

_NETWORK_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_EXACT_DURATION = "duration_ns"
_EVENT_BYTES = 115
"""Length of an event line in ASTRA-sim's log, without the node's name."""
_MESSAGES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job and a system as ASTRA-sim takes them.

    Attributes:
        trace: The job, without what ASTRA-sim cannot run.
        parts: The system's tables under ASTRA-sim's model, comm groups left out: they are the trace's.
        custom: Algorithms given as traces.
        config: What the tables mean.
        findings: What was converted, left out or lost, and what ASTRA-sim would say.
        changed: Whether the job is another than the one given.
    """

    trace: Trace
    parts: Parts
    custom: CustomAlgorithms
    config: SystemConfig
    findings: tuple[Finding, ...]
    changed: bool

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the system on a command line."""
        return tuple(f"--{key}={_format_value(value)}" for key, value in self.parts.options.items())


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def prepare(
    trace: Trace,
    parts: Parts,
    custom: CustomAlgorithms = NO_CUSTOM,
    *,
    congestion: Congestion | None = None,
    keep_durations: bool = False,
) -> Prepared:
    """Convert a job and a system to what ASTRA-sim takes.

    Args:
        trace: The job.
        parts: The system's tables.
        custom: Algorithms given as traces.
        congestion: Which network; None is that of the tables.
        keep_durations: Whether compute keeps the durations that it has, although the system has a roofline. So it does beyond
            ASTRA-sim's model unless the system says otherwise, and there it always does.

    Raises:
        ConfigError: The system has what ASTRA-sim has not and cannot be converted.
        TraceError: ASTRA-sim would stop at the job; says at what.
    """
    system, about_system = _adapt_system(parts)
    system = replace(system, congestion=congestion or system.congestion)
    given = trace
    if system.groups is not None:
        trace = replace(trace, groups=interpret(system, custom).config.groups or ())
        system = replace(system, groups=None)
    keeps = keep_durations or (
        is_extended(parts) and get_table(parts, "extended").get("compute-times", "recorded") == "recorded"
    )
    system, about_compute = _with_compute(trace, system, keep_durations=keeps)
    adapted, about_job = _adapt_job(trace, durations=not system.system.get("roofline-enabled"))
    imported = interpret(system, custom)
    if imported.config.topology.npus < 2:
        raise ConfigError(
            "The system has one NPU; allowed: two or more, ASTRA-sim simulates no fewer",
            hint="A job of one rank needs no network: chakra-studio simulate runs it.",
        )
    findings = (
        *about_system,
        *about_job,
        *about_compute,
        *_check_log(adapted),
        *imported.findings,
        *check(adapted, imported.config),
    )
    _refuse(findings)
    _refuse_dimensions(imported.config)
    return Prepared(adapted, system, custom, imported.config, findings, adapted is not given)


def _check_log(trace: Trace) -> Iterator[Finding]:
    """Say where the log of a run will be longer than what ASTRA-sim's logger keeps."""
    size = 0
    for graph, uses in zip(trace.graphs, trace.count_ranks(), strict=True):
        lengths = np.diff(graph.strings.offsets)[graph.name[graph.name >= 0]]
        size += 2 * uses * (len(graph) * _EVENT_BYTES + int(lengths.sum()))
    if size > LOG_KEEPS_BYTES:
        message = (
            f"For ASTRA-sim: its log of events will have about {format_bytes(size)}, and its logger keeps the last "
            f"{format_bytes(LOG_KEEPS_BYTES)}."
        )
        hint = (
            f"--logging-configuration={LOGGING} on its command line has it write all of them to {WHOLE_LOG}."
        )
        yield Finding("info", CODE, message, hint)


def _refuse(findings: Sequence[Finding]) -> None:
    errors = [finding for finding in findings if finding.level == "error"]
    if not errors:
        return
    rest = "".join(f"\nAlso: {finding.message}" for finding in errors[1:_MESSAGES_SHOWN])
    more = f"\nAnd {len(errors) - _MESSAGES_SHOWN:,} more." if len(errors) > _MESSAGES_SHOWN else ""
    raise TraceError(
        f"ASTRA-sim would stop at this job: {errors[0].message}{rest}{more}",
        hint=f"{errors[0].hint} What ASTRA-sim lacks, chakra-studio simulate has with --model full.".lstrip(),
    )


def _refuse_dimensions(config: SystemConfig) -> None:
    if config.congestion == "aware" and len(config.topology.dims) > 1:
        raise ConfigError(
            f"The network has {len(config.topology.dims)} dimensions and is congestion-aware; allowed: one dimension there",
            hint="Take the unaware network (--congestion unaware), or a system of one dimension.",
        )


def _adapt_system(parts: Parts) -> tuple[Parts, list[Finding]]:
    """Return a system under ASTRA-sim's model, and what it lost."""
    findings = []
    plain = with_model(parts, "astra-sim")
    if is_extended(parts):
        lost = [f"{EXTENDED}.{key}" for key in get_table(parts, "extended")]
        lost += [key for key in parts.network if key not in plain.network]
        message = "For ASTRA-sim: the system is that of the model astra-sim, congestion-unaware"
        message += f"; it has no {', '.join(lost)}." if lost else "."
        hint = "Times differ from those of the model full."
        findings.append(Finding("warning", CODE, message, hint))
    network = {key: plain.network[key] for key in _NETWORK_KEYS if key in plain.network}
    memory = plain.memory or {"memory-type": "NO_MEMORY_EXPANSION"}
    return replace(plain, network=network, memory=memory), findings


def _with_compute(trace: Trace, parts: Parts, *, keep_durations: bool) -> tuple[Parts, list[Finding]]:
    """Turn the roofline off where nodes with durations do not say enough for it, or are to keep them; says what it does else."""
    if not parts.system.get("roofline-enabled"):
        return parts, []
    lacking = lacking_timed = timed = untimed = 0
    uses = trace.count_ranks()
    for index, graph in enumerate(trace.graphs):
        compute = (graph.type == NodeType.COMP) & ~is_flagged(graph, "is_cpu_op")
        is_sized = np.ones(len(graph), np.bool_)
        for key in ("num_ops", "tensor_size"):
            has = np.zeros(len(graph), np.bool_)
            has[read_int_column(graph, key)[0]] = True
            is_sized &= has
        has_time = graph.duration_ns > 0
        lacking += int((compute & ~is_sized).sum()) * uses[index]
        lacking_timed += int((compute & ~is_sized & has_time).sum()) * uses[index]
        timed += int((compute & has_time).sum()) * uses[index]
        untimed += int((compute & ~has_time).sum()) * uses[index]
    off = replace(
        parts, system={key: value for key, value in parts.system.items() if key != "roofline-enabled"}
    )
    if lacking_timed:
        message = (
            f"For ASTRA-sim: the roofline is off, since {format_counted(lacking, 'compute node')} "
            f"{'lacks' if lacking == 1 else 'lack'} num_ops or tensor_size; recorded durations count."
        )
        return off, [Finding("warning", CODE, message)]
    if not timed:
        return parts, []
    with_times = (
        f"{format_counted(timed, 'compute node')} {'has a duration' if timed == 1 else 'have durations'}"
    )
    if keep_durations and untimed <= timed:
        rest = f"; {format_count(untimed)} without one take 1 ns each" if untimed else ""
        message = f"For ASTRA-sim: the roofline is off, since {with_times}, and these count{rest}."
        return off, [Finding("warning" if untimed else "info", CODE, message)]
    hint = (
        f"{format_count(untimed)} have none, and ASTRA-sim times either all or none by it."
        if keep_durations
        else "With roofline-enabled=0 in the system the durations count."
    )
    message = (
        f"For ASTRA-sim: {with_times}, which do not count: the roofline times all compute anew, at peak rates; "
        "hardware takes longer."
    )
    return parts, [Finding("warning", CODE, message, hint)]


def _adapt_job(trace: Trace, *, durations: bool) -> tuple[Trace, list[Finding]]:
    """Return a job that ASTRA-sim reads, and what was changed.

    Args:
        trace: The job.
        durations: Whether compute on devices takes its durations, so that rounding them changes answers.
    """
    uses = trace.count_ranks()
    counts = {"names": 0, "tags": 0, "rounded": 0, "cpu": 0}
    drift_ns = 0
    new_graphs: dict[int, Graph] = {}
    for index, graph in enumerate(trace.graphs):
        changed, renamed = _with_group_names(graph)
        changed, tagged = _with_tags(changed)
        changed, grown_ns = _round_durations(changed)
        counts["names"] += renamed * uses[index]
        counts["tags"] += tagged * uses[index]
        on_cpu = (graph.type == NodeType.COMP) & is_flagged(graph, "is_cpu_op")
        counted = on_cpu | (graph.type == NodeType.COMP) if durations else on_cpu
        counts["rounded"] += int((counted & (grown_ns != 0)).sum()) * uses[index]
        drift_ns += int(grown_ns[counted].sum()) * uses[index]
        in_memory = (graph.type == NodeType.MEM_LOAD) | (graph.type == NodeType.MEM_STORE)
        counts["cpu"] += int((on_cpu | in_memory).sum()) * uses[index]
        if changed is not graph:
            new_graphs[index] = changed
    before = trace.findings
    adapted = edit.with_graphs(trace, new_graphs) if new_graphs else trace
    done = adapt_for_astra_sim(_with_text_slots(adapted) if counts["names"] else adapted)
    findings = [*_describe_adaptions(counts, drift_ns), *done.findings[len(before) :]]
    same = done.groups == trace.groups and all(
        old is new
        for old, new in zip((*trace.graphs, *trace.ranks), (*done.graphs, *done.ranks), strict=True)
    )
    return trace if same else replace(done, findings=before), findings


def _describe_adaptions(counts: Mapping[str, int], drift_ns: int) -> Iterator[Finding]:
    if counts["names"]:
        what = (
            f"{format_counted(counts['names'], 'node')} named their comm group by comm_group, now by pg_name"
        )
        yield Finding("info", CODE, f"For ASTRA-sim: {what}, the only name that it reads.")
    if counts["tags"]:
        what = f"{format_counted(counts['tags'], 'send and receive', 'sends and receives')} without comm_tag"
        yield Finding("info", CODE, f"For ASTRA-sim: {what} got tag 0; they are paired in their order.")
    if counts["rounded"]:
        change = f"{'+' if drift_ns >= 0 else '-'}{format_ns(abs(drift_ns))}"
        message = f"For ASTRA-sim: {format_counted(counts['rounded'], 'duration')} rounded to whole microseconds, {change} in all."
        yield Finding("warning", CODE, message, "ASTRA-sim reads whole microseconds; 0 takes 1 ns.")
    if counts["cpu"]:
        message = (
            f"For ASTRA-sim: {format_counted(counts['cpu'], 'operation')} of the processor or of memory: it runs them, "
            "and prints no statistics after the finish lines of their ranks."
        )
        yield Finding("info", CODE, message)


def _with_group_names(graph: Graph) -> tuple[Graph, int]:
    """Name comm groups by `pg_name`, as text, where only the older `comm_group` does."""
    rows, where = graph.rows_with("comm_group")
    named, texts = graph.rows_with("pg_name")
    older = ~np.isin(rows, named)
    numbers = graph.attrs.kind[texts] != ValueKind.STRING
    if not older.any() and not numbers.any():
        return graph, 0
    code = graph.strings.find("pg_name")
    strings = graph.strings
    if code == NONE:
        strings, code = Strings.of((*graph.strings, "pg_name")), len(graph.strings)
    attrs = graph.attrs
    key, kind, slot_key = attrs.key.copy(), attrs.kind.copy(), graph.slot_key.copy()
    moved = where[older]
    key[moved] = code
    for places in (moved, texts):
        kind[places[attrs.slot[places]]] = ValueKind.STRING
    slots = attrs.value[moved[attrs.slot[moved]]]
    slot_key[slots] = code
    changed = replace(graph, strings=strings, slot_key=slot_key, attrs=replace(attrs, key=key, kind=kind))
    return changed, int(older.sum()) + int(numbers.sum())


def _with_text_slots(trace: Trace) -> Trace:
    """Return a trace whose ranks name comm groups by texts, as `pg_name` is one."""

    def convert_slots(rank: Rank) -> Rank:
        graph = trace.graph_of(rank)
        code = graph.strings.find("pg_name")
        slots = zip(graph.slot_key.tolist(), rank.slots, strict=True)
        return replace(rank, slots=tuple(str(value) if key == code else value for key, value in slots))

    return replace(trace, ranks=tuple(map(convert_slots, trace.ranks)))


def _with_tags(graph: Graph) -> tuple[Graph, int]:
    message = (graph.type == NodeType.COMM_SEND) | (graph.type == NodeType.COMM_RECV)
    has = np.zeros(len(graph), np.bool_)
    has[read_int_column(graph, "comm_tag")[0]] = True
    rows = np.flatnonzero(message & ~has)
    if not len(rows):
        return graph, 0
    return with_numbers(graph, "comm_tag", rows, np.zeros(len(rows), np.int64)), len(rows)


def _round_durations(graph: Graph) -> tuple[Graph, Int64]:
    """Round durations to whole microseconds; returns by how much each (N,) grew."""
    duration = graph.duration_ns
    whole = np.where(duration > 0, (duration + 500) // 1000 * 1000, duration)
    grown_ns = whole - duration
    off = grown_ns != 0
    if not off.any():
        return graph, grown_ns
    # Files may hold the exact time as an attribute beside it.
    rows = np.intersect1d(graph.rows_with(_EXACT_DURATION)[0], np.flatnonzero(off))
    exact = with_numbers(graph, _EXACT_DURATION, rows, whole[rows]) if len(rows) else graph
    return replace(exact, duration_ns=whole), grown_ns
