"""Adapt traces for ASTRA-sim: leave out what it cannot read, and count it by kind.

It stops at METADATA nodes, at six of the ten collectives, at communication marked as work of the processor, and at comm
groups that are no whole numbers above 0 or are not in the comm group file; an all-gather of nothing never ends there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from studio.analysis.collectives.matching import match_collectives
from studio.distinct import find_distinct
from studio.doctor import edit
from studio.trace import (
    GROUP_KEYS,
    NONE,
    Bool,
    CollectiveType,
    CommGroup,
    Finding,
    Graph,
    NodeType,
    Rank,
    Trace,
    communicates,
    is_flagged,
    label_collective,
    list_world_names,
    read_dense_column,
)
from studio.units import format_counted

Reader = Literal["astra-sim"]
CODE = "for-astra-sim"
_KNOWN = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.BROADCAST,
)


def adapt_for_reader(trace: Trace, reader: Reader | None) -> Trace:
    """Adapt a trace for the simulator named; unchanged if none is."""
    return adapt_for_astra_sim(trace) if reader == "astra-sim" else trace


def adapt_for_astra_sim(trace: Trace) -> Trace:
    """Return a trace that ASTRA-sim reads; its findings list what was left out or changed."""
    uses = np.bincount([rank.graph for rank in trace.ranks], minlength=len(trace.graphs))
    counts: dict[str, int] = {}
    new_graphs: dict[int, Graph] = {}
    for index, graph in enumerate(trace.graphs):
        gone = np.zeros(len(graph), np.bool_)
        for what, chosen in _find_refused_nodes(graph).items():
            counts[what] = counts.get(what, 0) + int((chosen & ~gone).sum()) * int(uses[index])
            gone |= chosen
        on_cpu = np.flatnonzero(communicates(graph) & is_flagged(graph, "is_cpu_op") & ~gone)
        counts[_ON_CPU] = counts.get(_ON_CPU, 0) + len(on_cpu) * int(uses[index])
        changed = edit.with_zero(graph, "is_cpu_op", on_cpu) if len(on_cpu) else graph
        if gone.any():
            changed = edit.without_nodes(changed, np.flatnonzero(gone))
        if changed is not graph:
            new_graphs[index] = changed
    changes = [f"{count:,} {what}" for what, count in counts.items() if count]
    done, about_groups = _number_groups(edit.with_graphs(trace, new_graphs) if new_graphs else trace)
    findings = [*_change_findings(changes), *about_groups, *_check_uneven(done)]
    return replace(done, findings=(*trace.findings, *findings))


_ON_CPU = "communication nodes no longer marked as CPU operations"


def _find_refused_nodes(graph: Graph) -> dict[str, Bool]:
    """Return masks (N,) of the nodes that ASTRA-sim cannot run, by kind."""
    kind, size = read_dense_column(graph, "comm_type", NONE), read_dense_column(graph, "comm_size", NONE)
    collective = graph.type == NodeType.COMM_COLL
    refused: dict[str, Bool] = {"METADATA nodes left out": np.asarray(graph.type == NodeType.METADATA)}
    for number in find_distinct(kind[collective & ~np.isin(kind, _KNOWN)]).tolist():
        name = "collectives without type" if number == NONE else f"{label_collective(number)} collectives"
        refused[f"{name} left out"] = collective & (kind == number)
    empty = collective & (kind == CollectiveType.ALL_GATHER) & (size == 0)
    refused["all-gathers of 0 bytes left out"] = np.asarray(empty)
    return refused


def _change_findings(changes: list[str]) -> list[Finding]:
    if not changes:
        return []
    message = f"For ASTRA-sim: {'; '.join(changes)}."
    return [
        Finding("warning", CODE, message, "Nodes that waited for a node left out wait for its dependencies.")
    ]


# ---------------------------------------------------------------------------------------------------
# Comm groups


def _number_groups(trace: Trace) -> tuple[Trace, list[Finding]]:
    """Rename comm groups to numbers above 0, list all of them, and drop the group of all ranks."""
    world = list_world_names(trace.groups, [rank.number for rank in trace.ranks])
    own = [group for group in trace.groups if group.name not in world]
    taken = {int(group.name) for group in own if _is_number(group.name)}
    free = max(taken, default=0)
    names: dict[str, str] = {}
    for group in own:
        if not _is_number(group.name):
            free += 1
            names[group.name] = str(free)
    groups = tuple(CommGroup(names.get(group.name, group.name), group.ranks) for group in own)
    findings = []
    if names:
        shown = ", ".join(f"{old!r} is {new}" for old, new in list(names.items())[:8])
        more = ", …" if len(names) > 8 else ""
        message = f"For ASTRA-sim: {format_counted(len(names), 'comm group has a number for its name', 'comm groups have numbers for names')}: {shown}{more}."
        findings.append(Finding("info", CODE, message))
    listed = sum(group.inferred for group in own)
    if listed:
        message = f"For ASTRA-sim: {format_counted(listed, 'comm group that no file listed was', 'comm groups that no file listed were')} written with the ranks that name {'it' if listed == 1 else 'them'}."
        findings.append(Finding("info", CODE, message))
    if len(own) < len(trace.groups):
        message = "For ASTRA-sim: the comm group of all ranks is not listed; nodes that name it mean all ranks there."
        findings.append(Finding("info", CODE, message))
    ranks = tuple(_rename_groups(trace, rank, names) for rank in trace.ranks) if names else trace.ranks
    return replace(trace, ranks=ranks, groups=groups), findings


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and 0 < int(name) < 2**31 and name == str(int(name))


def _rename_groups(trace: Trace, rank: Rank, names: dict[str, str]) -> Rank:
    graph = trace.graph_of(rank)
    keys = [graph.strings[code] for code in graph.slot_key.tolist()]
    slots = tuple(
        _convert_name(value, names[str(value)]) if key in GROUP_KEYS and str(value) in names else value
        for key, value in zip(keys, rank.slots, strict=True)
    )
    return replace(rank, slots=slots)


def _convert_name(value: int | str, name: str) -> int | str:
    """Convert a group's number to the type of its old name."""
    return name if isinstance(value, str) else int(name)


def _check_uneven(trace: Trace) -> list[Finding]:
    """Warn of all-to-alls with sizes that differ between members; ASTRA-sim would hang on them."""
    for group in match_collectives(trace, by_number=False):
        present = group.sequence_of[group.sequence_of != NONE]
        used = [group.sequences[position] for position in find_distinct(present).tolist()]
        if (
            len({sequence.bytes[sequence.type == CollectiveType.ALL_TO_ALL].tobytes() for sequence in used})
            > 1
        ):
            message = "For ASTRA-sim: ranks have different sizes in an all-to-all, and it would wait for them forever."
            hint = "The extended mode here simulates them."
            return [Finding("warning", CODE, message, hint)]
    return []
