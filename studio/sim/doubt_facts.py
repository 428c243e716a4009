"""Facts of a result that the search for doubts asks for: times of collectives, rates of ports, memory, parts of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from studio.analysis.collectives.messages import Channels, match_channels
from studio.analysis.collectives.times import (
    CollectiveTimes,
    MatchedGroups,
    compute_distinct_times,
    match_groups,
)
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.memory import MemoryUse, compute_memory_use
from studio.distinct import find_distinct
from studio.sim.charges import build_group_shape
from studio.sim.config import SystemConfig
from studio.sim.costs import GroupShape
from studio.sim.doubt import Cure
from studio.sim.known import Known, can_share
from studio.sim.parts import Parts
from studio.sim.result import SimResult, compute_ledger
from studio.sim.topology import count_ports, link_rate
from studio.trace import Int64, NodeType, read_int_column

Found = Iterator[tuple[str, Cure | None]]
FULL_CURE = Cure("Simulate with the full model", "full")
T = TypeVar("T")
TRIFLE = 0.01
"""What is below this share of both the finish and the exposed communication changes no answer."""


@dataclass(frozen=True)
class Facts:
    """A result, and what several checks need of it.

    Attributes:
        result: The result.
        parts: The system in the form that says which preset it is; None where that is not known.
        known_ledger: Where the time of each rank went, where that is known already.
        known: What simulations of the same job on other systems have in common with this one; None where there are none.
    """

    result: SimResult
    parts: Parts | None = None
    known_ledger: Ledger | None = None
    known: Known | None = None

    @property
    def config(self) -> SystemConfig:
        """The system."""
        return self.result.config

    @property
    def costs(self) -> bool:
        """Whether a cost model times collectives, so that their algorithms are the library's."""
        return self.config.flows

    @property
    def simulated(self) -> bool:
        """Whether messages were simulated on a network of several NPUs."""
        return self.config.needs_every_rank and self.config.topology.npus > 1

    @cached_property
    def groups(self) -> MatchedGroups:
        """The collectives by comm group."""
        trace, groups = self.result.trace, self.config.groups
        return self._compute_once("groups", groups, lambda: match_groups(trace, groups))

    @cached_property
    def _distinct(self) -> tuple[CollectiveTimes, Int64]:
        times = self.result.node_times()
        return compute_distinct_times(self.result.trace, times, self.config.groups, self.site, self.groups)

    @cached_property
    def channels(self) -> Channels:
        """Who sends messages to whom."""
        return self._compute_once("channels", None, lambda: match_channels(self.result.trace))

    def _compute_once(self, name: str, key: object, make: Callable[[], T]) -> T:
        """Return what `make` does of the trace, from an earlier run of it where that asked the same."""
        known = self.known
        if known is None or known.trace is not self.result.trace or not can_share(self.config):
            return make()
        return known.once(f"facts {name}", key, make)

    @property
    def times(self) -> CollectiveTimes:
        """The collectives that ran, one for all that are alike."""
        return self._distinct[0]

    @property
    def alike(self) -> Int64:
        """(C,) how many each of them stands for."""
        return self._distinct[1]

    @cached_property
    def _ranks_of(self) -> dict[str, tuple[int, ...]]:
        groups = self.result.trace.groups if self.config.groups is None else self.config.groups
        return {group.name: group.ranks for group in groups}

    @cached_property
    def _sites(self) -> dict[str, tuple[float, GroupShape]]:
        return {}

    @cached_property
    def _places(self) -> dict[str, tuple[tuple[int, ...], GroupShape]]:
        sizes = tuple(dim.size for dim in self.config.topology.dims)
        return self._compute_once("places", (self.config.groups, sizes), dict)

    def site(self, group: str) -> tuple[float, GroupShape]:
        """Return what an NPU can send in the dimensions in which the ranks of a comm group differ, and where these lie."""
        if group not in self._sites:
            ranks = self._ranks_of.get(group, range(self.config.topology.npus))
            if group not in self._places:
                shape = build_group_shape(ranks, self.config.topology.dims[0].size)
                self._places[group] = self._find_crossed(ranks), shape
            crossed, shape = self._places[group]
            self._sites[group] = self._compute_rate(ranks, crossed), shape
        return self._sites[group]

    @cached_property
    def memory(self) -> list[MemoryUse]:
        """The memory of each device of each rank."""
        return compute_memory_use(self.result.trace, self.result.node_times())

    @cached_property
    def communication_ns(self) -> Int64:
        """(R,) in how much time each rank sent all that it sent, at least 1 ns.

        That is when it communicated, if it did so in collectives alone and each message was counted where it began: a send is
        over before its message has arrived, and where messages wait, NPUs on their way pass them on.
        """
        result = self.result
        sends = any((graph.type == NodeType.COMM_SEND).any() for graph in result.trace.graphs)
        if sends or self.config.congestion == "aware":
            return np.full(len(result.finish_ns), max(result.makespan_ns, 1), np.int64)
        return np.maximum(self.ledger.totals().communicating_ns, 1)

    @cached_property
    def ledger(self) -> Ledger:
        """Where the time of each rank went."""
        return self.known_ledger or compute_ledger(self.result)

    @cached_property
    def kinds(self) -> frozenset[int]:
        """The types of collectives that the job has."""
        kinds: set[int] = set()
        for graph in self.result.trace.graphs:
            rows, types = read_int_column(graph, "comm_type")
            kinds.update(find_distinct(types[graph.type[rows] == NodeType.COMM_COLL]).tolist())
        return frozenset(kinds)

    def port_bytes_per_ns(self, ranks: Sequence[int]) -> float:
        """Return what an NPU can send, on all its ports in dimensions in which these ranks differ."""
        return self._compute_rate(ranks, self._find_crossed(ranks))

    def _find_crossed(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions in which some ranks differ."""
        below, members, crossed = 1, np.array(ranks, np.int64), []
        for index, dim in enumerate(self.config.topology.dims):
            if len(find_distinct(members // below % dim.size)) > 1:
                crossed.append(index)
            below *= dim.size
        return tuple(crossed)

    def _compute_rate(self, ranks: Sequence[int], crossed: Sequence[int]) -> float:
        config = self.config
        if config.links is not None:
            rates = np.zeros(config.links.npus)
            for link in config.links.links:
                if link.source < config.links.npus:
                    rates[link.source] += link.bytes_per_ns
            return float(rates[list(ranks)].max(initial=0.0))
        dims = config.topology.dims
        return sum((link_rate(dims[index]) * count_ports(dims[index]) for index in crossed), 0.0)
