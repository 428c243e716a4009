"""What simulations of one trace on many systems have in common, worked out once.

Rates, latencies and costs decide about no match, check or graph plan. A sweep of a thousand systems therefore keeps what
does not depend on them. Whatever is asked for names all that it depends on, as a key; keys are compared by value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from studio.sim.check import check
from studio.sim.config import Dimension, SystemConfig, Topology
from studio.trace import Finding, Trace

T = TypeVar("T")
_MOST = 4
"""So many answers to one question are kept: a sweep in the order of its grid asks for the same ones again and again."""


class Known:
    """Facts of a trace that simulations on several systems share.

    Attributes:
        trace: The job.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._answers: dict[str, list[tuple[Any, Any]]] = {}

    def once(self, name: str, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returned the last time under this name and an equal key; the caller does not change it.

        Example:
            >>> known = Known(Trace((), ()))
            >>> known.once("sum", (1, 2), lambda: 3), known.once("sum", (1, 2), lambda: 4)
            (3, 3)
        """
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


def can_share(config: SystemConfig) -> bool:
    """Whether configurations like this one can be compared by value: not where collectives are given as traces."""
    return not (config.custom or config.custom_nodes or config.links is not None)


def _without_rates(config: SystemConfig) -> tuple[object, ...]:
    dims = tuple(Dimension(dim.kind, dim.size, 1.0, 0.0) for dim in config.topology.dims)
    same = replace(config, topology=Topology(dims), local_memory_bytes_per_ns=1.0, costs=None)
    return same, config.flows
