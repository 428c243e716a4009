"""What simulations of one trace on many systems have in common, worked out once.

Rates, latencies and costs decide about no match, check or graph plan. A sweep of a thousand systems therefore keeps what
does not depend on them. Whatever is asked for names all that it depends on, as a key; keys are compared by value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from studio.analysis.job.renumbered import share_graphs
from studio.sim.check import check
from studio.sim.config import Dimension, SystemConfig, Topology
from studio.sim.retimed import is_retimed_graph
from studio.trace import Finding, Trace

T = TypeVar("T")
_TIMELESS = frozenset(
    {"bundles", "facts groups", "facts channels", "facts places", "alike", "expansion", "recorded orders"}
)
"""What depends neither on how long nodes took nor on their operations and sizes of tensors, or on the recording alone."""
_MOST = 4
"""So many answers to one question are kept: a sweep in the order of its grid asks for the same ones again and again."""


class Known:
    """Facts of a trace that simulations on several systems share.

    Attributes:
        trace: The job.
    """

    def __init__(self, trace: Trace, like: Known | None = None) -> None:
        """Make one of a job; `like` are those of a job that differs from it in times and operations of nodes only."""
        self.trace = trace
        self._like = like
        self._answers: dict[str, list[tuple[Any, Any]]] = {}

    def of_changed(self, trace: Trace) -> Known:
        """Return the facts of this job after a change: what holds of both is not worked out again."""
        if trace is self.trace:
            return self
        return Known(trace, self if is_retimed(trace, self.trace) else None)

    def once(self, name: str, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returned the last time under this name and an equal key; the caller does not change it.

        Example:
            >>> known = Known(Trace((), ()))
            >>> known.once("sum", (1, 2), lambda: 3), known.once("sum", (1, 2), lambda: 4)
            (3, 3)
        """
        if self._like is not None and name in _TIMELESS:
            return self._like.once(name, key, make)
        answers = self._answers.setdefault(name, [])
        for place, (asked, answer) in enumerate(answers):
            if asked == key:
                answers.append(answers.pop(place))
                cached: T = answer
                return cached
        value = make()
        answers.append((key, value))
        del answers[:-_MOST]
        return value

    def check(self, config: SystemConfig) -> list[Finding]:
        """Return what `studio.sim.check.check` finds; it does not look at rates, latencies or costs."""
        if not can_share(config):
            return check(self.trace, config)
        return self.once("check", _without_rates(config), lambda: check(self.trace, config))


def is_retimed(trace: Trace, other: Trace) -> bool:
    """Whether two jobs, of which one was made by changing the other, differ in nothing but times and operations of nodes.

    Columns that were not changed are the very same ones; ranks share graphs alike.
    """
    if share_graphs(trace) is not trace or share_graphs(other) is not other:
        return False
    same = trace.groups is other.groups and len(trace.graphs) == len(other.graphs)
    pairs = zip(trace.ranks, other.ranks, strict=False)
    same = same and len(trace.ranks) == len(other.ranks)
    return (
        same
        and all(
            (rank.number, rank.graph) == (counterpart.number, counterpart.graph)
            and rank.slots is counterpart.slots
            for rank, counterpart in pairs
        )
        and all(map(is_retimed_graph, trace.graphs, other.graphs))
    )


def can_share(config: SystemConfig) -> bool:
    """Whether configurations like this one can be compared by value: not where collectives are given as traces."""
    return not (config.custom or config.custom_nodes or config.links is not None)


def _without_rates(config: SystemConfig) -> tuple[object, ...]:
    dims = tuple(Dimension(dim.kind, dim.size, 1.0, 0.0) for dim in config.topology.dims)
    same = replace(config, topology=Topology(dims), local_memory_bytes_per_ns=1.0, costs=None)
    return same, config.flows
