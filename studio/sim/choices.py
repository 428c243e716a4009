"""Where a library carries out collectives of a run in another way than the quickest, in the words of `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from studio.columns import group_places
from studio.sim.charges import build_network_ports, find_crossed_dimensions
from studio.sim.config import SystemConfig
from studio.sim.costs.model import KINDS, CostModel
from studio.sim.costs.shapes import AS_KIND, GroupShape, Ports, compute_buffer_bytes
from studio.sim.doubt_facts import TRIFLE, Facts
from studio.sim.explaining import explain
from studio.sim.result import SimResult
from studio.trace import CollectiveType, Finding, Float64, Int64
from studio.units import format_bytes, format_count, format_counted

SLOWER_WAY = "slower-way"
"""Code of the finding."""


def explain_choice(config: SystemConfig, kind: int, comm_size: int, ranks: Sequence[int]) -> str:
    """Say why a collective is not carried out in the quickest way; "" where it is, or no library chooses.

    Args:
        config: The system.
        kind: CollectiveType.
        comm_size: Its size in bytes, as Chakra counts it.
        ranks: Members of its group.
    """
    name = _name_kind(kind)
    if not config.flows or config.costs is None or not name or comm_size < 1 or len(ranks) < 2:
        return ""
    if reason := explain(config, name, comm_size, ranks).not_quickest:
        return (
            f"{name.upper()} of {format_bytes(comm_size)} by {format_counted(len(ranks), 'rank')}: {reason}"
        )
    return ""


def find_slower_ways(result: SimResult, facts: Facts | None = None) -> Iterator[Finding]:
    """Yield what `explain_choices` says as a finding, where that changes the answer."""
    if words := explain_choices(result, TRIFLE, facts):
        yield Finding("info", SLOWER_WAY, words, "chakra-studio explain compares the ways of a collective.")


def explain_choices(result: SimResult, least: float = 0.0, facts: Facts | None = None) -> str:
    """Say which collectives of a run are not carried out in the quickest way, and why of the one that loses most; "" for none.

    Args:
        result: The run.
        least: The share of the finish that a rank loses by them from which on that is said.
        facts: Those of the run, where they are known.
    """
    config = result.config
    if not config.flows or config.costs is None:
        return ""
    facts = facts or Facts(result)
    times = facts.times
    lost = np.zeros(len(times))
    for own in _group_alike(facts):
        shape = facts.site(times.groups[int(times.group[own[0]])])[1]
        ranks = _list_members(result, times.groups[int(times.group[own[0]])])
        if name := _name_kind(int(times.type[own[0]])):
            ports = build_network_ports(config.topology, find_crossed_dimensions(config.topology, ranks))
            size = times.bytes[own].astype(np.float64)
            kind, buffer = AS_KIND.get(name, name), compute_buffer_bytes(name, size, shape.ranks)
            lost[own] = _compute_lost(config.costs, kind, buffer, (shape, ports)) if shape.ranks > 1 else 0
    whole = lost * facts.alike
    slower = np.flatnonzero(lost > 0)
    per_rank = float((whole * times.members).sum()) / max(len(result.trace.ranks), 1)
    if not len(slower) or per_rank < least * result.makespan_ns:
        return ""
    worst = int(whole.argmax())
    ranks = _list_members(result, times.groups[int(times.group[worst])])
    reason = explain_choice(config, int(times.type[worst]), int(times.bytes[worst]), ranks)
    count, every = int(facts.alike[slower].sum()), int(facts.alike.sum())
    what = f"collective{'' if every == 1 else 's'} {'is' if count == 1 else 'are'}"
    return (
        f"{format_count(count)} of {format_count(every)} {what} not carried out in the quickest way: {reason}"
        if reason
        else ""
    )


def _group_alike(facts: Facts) -> Iterator[Int64]:
    """Yield the collectives of each group and type."""
    times = facts.times
    if len(times):
        # Types begin at -1.
        code = times.group * (int(times.type.max()) + 2) + times.type + 1
        yield from (own for _, own in group_places(code))


def _compute_lost(model: CostModel, kind: str, buffer: Float64, where: tuple[GroupShape, Ports]) -> Float64:
    """Return (S,) how much longer the way that is taken takes than the quickest, at sizes of the whole buffer."""
    shape, ports = where
    ways = model.possible(kind, shape, ports)
    totals = np.array([model.times(way, kind, buffer, shape, ports) for way in ways])
    taken = model.choose(kind, buffer, shape, ports, ways, totals)
    return np.asarray(totals[taken, np.arange(len(buffer))] - totals.min(axis=0))


def _list_members(result: SimResult, group: str) -> Sequence[int]:
    groups = result.trace.groups if result.config.groups is None else result.config.groups
    return next((each.ranks for each in groups if each.name == group), range(result.config.topology.npus))


def _name_kind(kind: int) -> str:
    """Return what the cost model calls a type of collective; "" where it has no costs of it, or a barrier, whose size is none."""
    name = CollectiveType(kind).name.lower() if kind >= 0 else ""
    return name if name in KINDS and name != "barrier" else ""
