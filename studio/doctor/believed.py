"""Say in a line why a recording is not to be believed as it stands, for those who look at its times and not at its check."""

from __future__ import annotations

from studio.doctor.checks import CHECKS, Examination, run_checks
from studio.doctor.diagnosis import Case, Found
from studio.doctor.recordings import check_early_ends, check_impossible_times, check_mixed_runs
from studio.trace import Finding, Trace
from studio.units import format_counted

MOST_NODES = 200_000
"""Of jobs with more nodes, over all distinct graphs, only what can be told from times is looked at: all checks take 5 µs a node."""
MOST_RANKS = 1024
"""The same of jobs with more ranks."""
_OF_TIMES = ("mixed-runs", "ends-early", "times-contradict")
"""Checks whose warnings make every account of the ranks' times doubtful."""
_NOTICED = ("busy-before",)
"""The same of what readers notice."""
_CODES = frozenset(check.code for check in CHECKS)


def explain_time_doubt(trace: Trace, known: Examination | None = None) -> str:
    """Return why the times of a recording are in doubt, "" where nothing is found: how many errors there are, and the first.

    What the reader lost is left out: commands tell of that by themselves. A large job that was not examined before is not
    examined for this; then only its times are looked at.

    Args:
        trace: The recording.
        known: What came of examining it, None where it was not yet.
    """
    nodes = sum(map(len, trace.graphs))
    if known is None and (nodes > MOST_NODES or len(trace.ranks) > MOST_RANKS):
        problems = _check_times(trace) or select_time_findings(trace)
        return (
            _format_doubt(problems[0].message, sum(item.level == "error" for item in problems))
            if problems
            else ""
        )
    diagnoses = [item for item in (known or run_checks(trace)).diagnoses if item.code in _CODES]
    errors = [item for item in diagnoses if item.level == "error"]
    doubts = (
        errors
        or [item for item in diagnoses if item.level == "warning" and item.code in _OF_TIMES]
        or select_time_findings(trace)
    )
    return _format_doubt(doubts[0].message, len(errors)) if doubts else ""


def select_time_findings(trace: Trace) -> list[Finding]:
    """Return what was noticed on reading that makes an account of a rank's times doubtful."""
    return [finding for finding in trace.findings if finding.code in _NOTICED]


def _check_times(trace: Trace) -> list[Found]:
    """Return what the checks of times find, the worst first."""
    case = Case(trace)
    return [
        problem
        for find in (check_mixed_runs, check_early_ends, check_impossible_times)
        for problem in find(case)
    ]


def _format_doubt(first: str, errors: int) -> str:
    count = (
        f"{format_counted(errors, 'error')}, the first" if errors > 1 else "an error" if errors else "a doubt"
    )
    return f"`check` finds {count}: {first}"
