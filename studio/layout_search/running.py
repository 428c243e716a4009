"""Generate and simulate one layout, or work out how fast it can be at best; in this process or in others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from studio.analysis.job.group_times import COLUMNS, sum_group_times
from studio.analysis.job.ledger import AFTER_FINISH, Ledger
from studio.errors import StudioError
from studio.et.executors import call_in_order
from studio.generation.job import make_job
from studio.generation.models import Model
from studio.generation.workload import build_workload
from studio.layout_search.bound import close_bound
from studio.sim.parts import Parts, interpret
from studio.sim.play import play
from studio.sim.result import compute_ledger
from studio.trace import Trace

EXPOSED = "exposed "
"""Before the kind of a comm group: what its communication takes that no work hides."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all layouts of a search are simulated with.

    Attributes:
        model: What is trained.
        ranks: How many ranks.
        system: The system.
    """

    model: Model
    ranks: int
    system: Parts


@dataclass(frozen=True, slots=True)
class Answer:
    """What a simulation of a layout says.

    Attributes:
        finish_ns: When the last rank finished all steps.
        parts_ns: Mean over the ranks of the time in each part: `compute`, hidden communication included; `exposed tp` and so
            on by kind of comm group; `bubble`, waiting for another pipeline stage; `idle`, all else in which nothing is under
            way; `after_finish`. They add up to `finish_ns`.
        nodes: Nodes of its graphs.
    """

    finish_ns: int
    parts_ns: Mapping[str, float] = field(default_factory=dict)
    nodes: int = 0


def generate_job(setting: Setting, options: Mapping[str, Any]) -> Trace:
    """Return the job of a layout."""
    workload = build_workload(setting.model, setting.ranks, options)
    return make_job(workload.model, workload.layout, workload.speed)


def simulate_layout(setting: Setting, options: Mapping[str, Any]) -> Answer | str:
    """Generate and simulate a layout; what makes that impossible, such as too many nodes, is the answer then."""
    try:
        job = generate_job(setting, options)
        result, plan = play(job, interpret(setting.system).config)
    except StudioError as error:
        return error.message
    parts = compute_parts(job, compute_ledger(result, plan.flows))
    return Answer(result.makespan_ns, parts, sum(map(len, job.graphs)))


def bound_layout(setting: Setting, options: Mapping[str, Any]) -> int | str:
    """Return a lower bound of the finish of a layout, see `bound.close_bound`, or what makes the layout impossible."""
    try:
        workload = build_workload(setting.model, setting.ranks, options)
        return close_bound(workload, options, interpret(setting.system).config)
    except StudioError as error:
        return error.message


def compute_parts(job: Trace, account: Ledger) -> dict[str, float]:
    """Return the mean over the ranks of the time in each part of a run, as `Answer` has them; parts of nothing are left out."""
    totals, ranks = account.totals(), len(account)
    sums: dict[str, float] = {"compute": float(totals.of("compute", "overlapped", "copy").sum())}
    # Ranks that share their course share their times, and kinds of comm groups: one of each tells it.
    first, weight = np.unique(account.course, return_index=True, return_counts=True)[1:]
    few = replace(
        account,
        numbers=[account.numbers[place] for place in first.tolist()],
        places=account.places[first],
        finish_ns=account.finish_ns[first],
        course=account.course[first],
    )
    times = sum_group_times(job, few)
    bubble = COLUMNS.index("bubble")
    for rank, group, ns in zip(times.rank.tolist(), times.group, times.ns, strict=True):
        key = EXPOSED + (group.rstrip("0123456789") or "all")
        sums[key] = sums.get(key, 0.0) + float(weight[rank] * (ns.sum() - ns[bubble]))
    sums["bubble"] = float(totals.of("bubble").sum())
    sums["idle"] = float(totals.of("host", "stall").sum())
    sums[AFTER_FINISH] = float(totals.after_finish_ns.sum())
    return {part: value / ranks for part, value in sums.items() if value or part == "compute"}


@dataclass(frozen=True, slots=True)
class Runner:
    """Carries out calls for layouts, in this process or by an executor.

    Attributes:
        setting: What all layouts have in common.
        executor: Who does it; None for this process.
        poll: Asked in between; may raise to stop.
    """

    setting: Setting
    executor: Executor | None = None
    poll: Callable[[], None] = lambda: None

    def bounds(self, options: Sequence[Mapping[str, Any]]) -> list[int | str]:
        """Return close bounds of some layouts, or what makes them impossible."""
        return list(self._iterate_calls(bound_layout, options))

    def answers(self, options: Sequence[Mapping[str, Any]]) -> list[Answer | str]:
        """Return the answers of some layouts, or what makes them impossible."""
        return list(self._iterate_calls(simulate_layout, options))

    def _iterate_calls(
        self, function: Callable[..., Any], options: Sequence[Mapping[str, Any]]
    ) -> Iterator[Any]:
        calls = [(function, (self.setting, layout_options)) for layout_options in options]
        if self.executor is None:
            for call, arguments in calls:
                self.poll()
                yield call(*arguments)
        else:
            yield from call_in_order(self.executor, calls, self.poll, ahead=len(calls))
