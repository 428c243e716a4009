"""Compare each step of a replay with the recording."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from studio.analysis.job.step_times import StepTime, step_times
from studio.commands.base.terminal import escape_controls
from studio.sim.matched import replays_communication
from studio.sim.recorded_order import count_untimed, is_linked_rank, is_orderable
from studio.sim.result import SimResult
from studio.trace import Trace
from studio.units import format_counted, format_ns

_FAITHFUL = 0.02
"""How far off a replay of recordings that the studio linked stays, see docs/simulator.md."""
NO_NETWORK = "no network: recorded durations"


def is_replay(result: SimResult) -> bool:
    """Whether communication took its recorded time."""
    return replays_communication(result.config)


def compare_steps(result: SimResult) -> list[StepTime]:
    """Return the steps of every rank, recorded and replayed."""
    return step_times(result.trace, result.node_times(), result.finish_ns)


def report(result: SimResult) -> list[dict[str, Any]]:
    """Return the steps as plain data."""
    return [
        {
            "rank": step.rank,
            "step": step.name,
            "recorded_ns": step.recorded_ns,
            "replayed_ns": step.replayed_ns,
            "difference": step.difference if step.recorded_ns else None,
        }
        for step in compare_steps(result)
    ]


def format_lines(result: SimResult, most: int = 32) -> Iterator[str]:
    """Format the steps for a terminal, the first `most` one by one."""
    compared = compare_steps(result)
    if not compared:
        yield "  nothing to compare: the trace has no start times"
        return
    yield f"  {'step':24}{'rank':>8}{'recorded':>14}{'replayed':>14}{'difference':>12}"
    if all(not step.name for step in compared):
        yield "  the recording has no annotations ProfilerStep: each rank is compared as a whole"
    for step in compared[:most]:
        name = escape_controls(step.name or "whole trace")
        yield (
            f"  {name[:23]:24}{step.rank:>8,}{format_ns(step.recorded_ns):>14}{format_ns(step.replayed_ns):>14}"
            f"{_format_difference(step):>12}"
        )
    longest = max(compared, key=lambda step: step.left_ns)
    if longest.left_ns[0]:
        recorded_ns, replayed_ns = longest.left_ns
        yield (
            f"  steps are those of the host; after the last one rank {longest.rank:,} went on for "
            f"{format_ns(recorded_ns)}, {format_ns(replayed_ns)} in the replay"
        )
    if any(abs(step.difference) > _FAITHFUL for step in compared):
        yield from _explain_difference(result.trace)
    if not all(step.recorded_ns for step in compared):
        yield "  –: nothing was recorded in that step, so the difference cannot be told"
    if len(compared) > most:
        timed = [step for step in compared if step.recorded_ns]
        worst = max(timed, key=lambda item: abs(item.difference), default=None)
        note = (
            f"; the largest difference is {_format_difference(worst)}, {escape_controls(worst.name)} of rank {worst.rank:,}"
            if worst
            else ""
        )
        yield f"  and {len(compared) - most:,} more{note}"


def _explain_difference(trace: Trace) -> Iterator[str]:
    """Say what the files of a job do not tell that its replay would need."""
    untimed = count_untimed(trace)
    if untimed:
        lacking = (
            f"{format_counted(untimed, 'node')} took time and {'does' if untimed == 1 else 'do'} not say when, so the order and the gaps of the "
            "recording are not known"
        )
    elif not is_orderable(trace) and not any(map(is_linked_rank, trace.ranks)):
        lacking = "the files do not say all that takes time, such as what the host does between operators and which of them run beside each other"
    else:
        return
    yield f"  more than 2 % off: {lacking}; link the recordings that they were made of (chakra-studio link)"


def _format_difference(step: StepTime) -> str:
    """Format how much longer a step took in the replay; a step that took no time has no such share.

    Example:
        >>> _format_difference(StepTime(0, "a", 10, 11)), _format_difference(StepTime(0, "b", 0, 5))
        ('+10.00 %', '–')
    """
    return f"{100 * step.difference:+.2f} %" if step.recorded_ns else "–"
