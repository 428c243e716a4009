"""Advice as plain data and in words, as commands, pages and reports give it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from studio.advice.advice import MOST_DEVIATION, WORTH, Advice, Advised, Baseline
from studio.units import format_ns


def as_data(advised: Advised) -> dict[str, Any]:
    """Return advice as plain data; times in nanoseconds."""
    return {
        "baseline_ns": advised.baseline.finish_ns,
        "baseline": baseline_words(advised.baseline),
        "recorded_ns": advised.baseline.recorded_ns,
        "deviation_percent": _percent(advised.baseline.deviation),
        "advice": [_advice_data(item) for item in advised.advice],
        "combined": None if advised.combined is None else _combined_data(advised.combined),
        "nothing_above_percent": None if advised.worth_it else 100 * WORTH,
        "system_baseline": None
        if advised.system_baseline is None
        else {
            "baseline_ns": advised.system_baseline.finish_ns,
            "baseline": baseline_words(advised.system_baseline),
            "deviation_percent": _percent(advised.system_baseline.deviation),
        },
        "sensitivity": [
            {"name": item.name, "more_ns": item.more_ns, "less_ns": item.less_ns, "knee": item.knee or None}
            for item in advised.sensitivity
        ],
        "refused": [{"kind": kind, "reason": reason} for kind, reason in advised.refused],
        "simulations": advised.considered,
        "baseline_run": advised.baseline_run,
    }


def _advice_data(item: Advice) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "action": item.action,
        "collective": item.collective,
        "group": item.group,
        "ranks": list(item.ranks),
        "nodes": [{"rank": rank, "node": node} for rank, node in item.nodes],
        "baseline_ns": item.baseline_ns,
        "saving_ns": item.saving_ns,
        "saving_percent": item.saving_percent,
        "saving_low_ns": item.saving_low_ns,
        "saving_high_ns": item.saving_high_ns,
        "settings": list(item.change.settings),
        "changes_job": bool(item.change.edits),
        "run": item.run,
    }


def _combined_data(item: Advice) -> dict[str, Any]:
    return {**_advice_data(item), "parts": list(item.parts)}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def baseline_words(baseline: Baseline) -> str:
    """Say how a baseline was made, and how far it is from the recording.

    Example:
        >>> baseline_words(Baseline(1_010_000, "replay of the recording", 1_000_000))
        'replay of the recording, which it meets within 1.00 %'
        >>> baseline_words(Baseline(1_100_000, "replay of the recording", 1_000_000))
        'replay of the recording, which it misses by +10.00 % (1.10 ms for 1.00 ms): savings are ranges'
    """
    if baseline.deviation is None or baseline.recorded_ns is None:
        return baseline.words
    off = 100 * baseline.deviation
    if not baseline.misses:
        return f"{baseline.words}, which it meets within {max(abs(off), 0.01):.2f} %"
    took = f"{format_ns(baseline.finish_ns)} for {format_ns(baseline.recorded_ns)}"
    return f"{baseline.words}, which it misses by {off:+.2f} % ({took}): savings are ranges"


def saving_words(item: Advice) -> str:
    """Return a saving in a few words, as a range where it is one."""
    if item.saving_low_ns is None or item.saving_high_ns is None:
        return f"−{format_ns(item.saving_ns)} ({item.saving_percent:.1f} %)"
    low, high = format_ns(item.saving_low_ns), format_ns(item.saving_high_ns)
    return f"−{format_ns(item.saving_ns)} ({item.saving_percent:.1f} %; {low} to {high})"


def verdict(advised: Advised) -> str:
    """Return the advice in a sentence: the largest saving, or that there is nothing above 1 %."""
    if not advised.worth_it:
        return f"Nothing above {100 * WORTH:g} %: no change that was simulated saves more of {format_ns(advised.baseline.finish_ns)}."
    best = advised.worth_it[0]
    return f"{len(advised.worth_it)} of {len(advised.advice)} savings are above {100 * WORTH:g} %; the largest: {saving_words(best)}."


def lines(advised: Advised, most: int = 12) -> Iterator[str]:
    """Format advice for a terminal, the largest saving first."""
    yield f"finish {format_ns(advised.baseline.finish_ns)}, {baseline_words(advised.baseline)}"
    if advised.system_baseline is not None:
        other = advised.system_baseline
        yield f"changes of the system: finish {format_ns(other.finish_ns)}, {baseline_words(other)}"
    yield verdict(advised)
    yield ""
    for number, item in enumerate(advised.advice[:most], start=1):
        yield from _item_lines(f"{number:>3}", item)
    if len(advised.advice) > most:
        yield f"     and {len(advised.advice) - most:,} smaller ones; --json names them all"
    if advised.combined is not None:
        yield ""
        yield from _item_lines("all", advised.combined)
    if advised.sensitivity:
        yield ""
        yield f"  {'':28}{'×2 better':>12}{'×2 worse':>12}"
        for one in advised.sensitivity:
            yield f"  {one.name:28}{format_ns(one.more_ns):>12}{format_ns(one.less_ns):>12}  {one.knee}".rstrip()
    if advised.refused:
        yield ""
        for kind, reason in advised.refused:
            yield f"  not simulated: {kind}: {reason}"
    yield ""
    yield f"  {advised.considered:,} simulations; a replay has to meet its recording within {100 * MOST_DEVIATION:g} %"


def _item_lines(number: str, item: Advice) -> Iterator[str]:
    yield f"  {number}  {saving_words(item)}  {item.action}"
    if item.run:
        yield f"       run {item.run}"
