"""Advice as plain data and in words, as commands, pages and reports give it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from studio.advice.candidates import describe_ranks, label_collectives
from studio.advice.terms import MOST_DEVIATION, WORTH, Advice, Advised, Baseline, Kind
from studio.sim.models import get_model
from studio.trace import CollectiveType
from studio.units import format_counted, format_ns

LABELS: Mapping[Kind, str] = MappingProxyType(
    {
        "balance-sizes": "balance sizes",
        "balance-experts": "spread experts' load",
        "place-experts": "place experts anew",
        "slow-rank": "slow to median",
        "equal-arrivals": "arrive together",
        "slow-collectives": "as fast as attained",
        "overlap": "begin earlier",
        "merge": "merge small ones",
        "micro-batches": "more micro-batches",
        "schedule": "other order of passes",
        "host-gaps": "no host gaps",
        "compute": "compute 10 % faster",
        "bandwidth": "more bandwidth",
        "latency": "less latency",
        "algorithm": "other algorithm",
        "chunks": "other chunks",
        "dimension-order": "other order of dimensions",
        "combined": "the best together",
    }
)
"""What kinds of change are called where there is little room."""
_MORE_THAN_SINGLY = 1.25
"""That changes do more together than one by one is said where they save more than so many times what they save singly."""
_SHOWN_PERCENT = 0.1
"""Smaller savings are not listed on a terminal."""


def as_data(advised: Advised) -> dict[str, Any]:
    """Return advice as plain data; times in nanoseconds."""
    return {
        "baseline_ns": advised.baseline.finish_ns,
        "baseline": describe_baseline(advised.baseline),
        "recorded_ns": advised.baseline.recorded_ns,
        "deviation_percent": _scale_to_percent(advised.baseline.deviation),
        "doubt": describe_doubt(advised) or None,
        "advice": [_build_advice_data(item) for item in advised.advice],
        "combined": None if advised.combined is None else _build_combined_data(advised.combined),
        "nothing_above_percent": None if advised.worth_it else 100 * WORTH,
        "system_baseline": None
        if advised.system_baseline is None
        else {
            "baseline_ns": advised.system_baseline.finish_ns,
            "baseline": describe_baseline(advised.system_baseline),
            "deviation_percent": _scale_to_percent(advised.system_baseline.deviation),
        },
        "sensitivity": [
            {
                "name": item.name,
                "more_ns": item.more_ns,
                "less_ns": item.less_ns,
                "knee": item.knee or None,
                "why": item.why or None,
            }
            for item in advised.sensitivity
        ],
        "refused": [{"kind": kind, "reason": reason} for kind, reason in advised.refused],
        "impossible_baseline": advised.baseline.impossible or None,
        "impossible": [
            {"kind": kind, "changes": count, "reason": reason} for kind, count, reason in advised.impossible
        ],
        "simulations": advised.considered,
        "baseline_run": advised.baseline_run,
    }


def _build_advice_data(item: Advice) -> dict[str, Any]:
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


def _build_combined_data(item: Advice) -> dict[str, Any]:
    return {**_build_advice_data(item), "parts": list(item.parts)}


def _scale_to_percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def describe_baseline(baseline: Baseline) -> str:
    """Say how a baseline was made, and how far it is from the recording.

    Example:
        >>> describe_baseline(Baseline(1_010_000, "replay of the recording", 1_000_000))
        'replay of the recording, which it meets within 1.00 %'
        >>> describe_baseline(Baseline(1_100_000, "replay of the recording", 1_000_000))
        'replay of the recording, which it misses by +10.0 % (1.10 ms for 1.00 ms): savings are ranges'
    """
    if baseline.deviation is None or baseline.recorded_ns is None:
        return baseline.words
    off = 100 * baseline.deviation
    if not baseline.misses:
        return f"{baseline.words}, which it meets within {max(abs(off), 0.01):.2f} %"
    return f"{baseline.words}, which it misses by {describe_miss(baseline)}: savings are ranges"


def describe_miss(baseline: Baseline) -> str:
    """Say how far a replay is from its recording; "" where there is none.

    Example:
        >>> describe_miss(Baseline(900_000, "replay of the recording", 1_000_000))
        '−10.0 % (900 µs for 1.00 ms)'
    """
    if baseline.deviation is None or baseline.recorded_ns is None:
        return ""
    sign = "−" if baseline.deviation < 0 else "+"
    took = f"{format_ns(baseline.finish_ns)} for {format_ns(baseline.recorded_ns)}"
    return f"{sign}{100 * abs(baseline.deviation):.1f} % ({took})"


def describe_doubt(advised: Advised) -> str:
    """Say what is doubtful of the run that changes are compared with; "" where there is nothing."""
    baselines = [each for each in (advised.baseline, advised.system_baseline) if each is not None]
    return " ".join(dict.fromkeys(each.doubt for each in baselines if each.doubt))


def describe_saving(item: Advice) -> str:
    """Return a saving in a few words, as a range where it is one."""
    if item.saving_low_ns is None or item.saving_high_ns is None:
        return f"−{format_ns(item.saving_ns)} ({item.saving_percent:.1f} %)"
    low, high = format_ns(item.saving_low_ns), format_ns(item.saving_high_ns)
    return f"−{format_ns(item.saving_ns)} ({item.saving_percent:.1f} %; {low} to {high})"


def describe_advice(advised: Advised) -> str:
    """Return the advice in a sentence: the largest saving, or that there is nothing above 1 %."""
    if not advised.worth_it:
        which = "was simulated, and that a network could have," if advised.impossible else "was simulated"
        return f"No change that {which} saves more than {100 * WORTH:g} % of {format_ns(advised.baseline.finish_ns)}."
    best = advised.worth_it[0]
    return f"Largest saving: {describe_saving(best).removeprefix('−')}. {best.action}"


def format_advice(advised: Advised, most: int = 12) -> Iterator[str]:
    """Format advice for a terminal, the largest saving first."""
    yield from _format_baseline(advised)
    if not advised.worth_it:
        yield describe_advice(advised)
    if advised.advice:
        yield ""
    shown = [item for item in advised.advice[:most] if item.saving_percent >= _SHOWN_PERCENT]
    for number, item in enumerate(shown, start=1):
        yield from _format_item(f"{number:>3}", item)
    if len(advised.advice) > len(shown):
        yield f"       and {len(advised.advice) - len(shown):,} that save less; --json names them all"
    if advised.combined is not None:
        yield ""
        yield from _format_item("all", advised.combined, describe_together(advised.combined, shown))
    if advised.sensitivity:
        yield ""
        yield f"  {'':28}{'×2 better':>12}{'×2 worse':>12}"
        for rate in advised.sensitivity:
            yield f"  {rate.name:28}{format_ns(rate.more_ns):>12}{format_ns(rate.less_ns):>12}  {rate.knee}".rstrip()
        for rate in advised.sensitivity:
            if rate.why:
                yield f"  {rate.name}: {rate.why}"
    yield from _format_left_out(advised)
    yield ""
    of_replays = f"; a replay has to meet its recording within {100 * MOST_DEVIATION:g} %"
    yield f"  {format_counted(advised.considered, 'simulation')}{'' if advised.baseline.deviation is None else of_replays}"


def _format_left_out(advised: Advised) -> Iterator[str]:
    if advised.impossible:
        yield ""
    for kind, count, reason in advised.impossible:
        yield f"  left out as IMPOSSIBLE: {LABELS[kind]}, {format_counted(count, 'change')}: {reason}"
    if advised.refused:
        yield ""
    for kinds, reason in group_by_reason(advised):
        yield f"  not simulated: {kinds}: {reason}"


def _format_baseline(advised: Advised) -> Iterator[str]:
    yield f"finish {format_ns(advised.baseline.finish_ns)}, {describe_baseline(advised.baseline)}"
    if advised.baseline.impossible:
        yield f"IMPOSSIBLE, and so is what changes save: {advised.baseline.impossible}"
        if get_model(advised.on) == "astra-sim":
            yield "  with --model full messages wait for ports"
    if advised.system_baseline is not None:
        other = advised.system_baseline
        yield f"changes of the system: finish {format_ns(other.finish_ns)}, {describe_baseline(other)}"
    if doubt := describe_doubt(advised):
        yield f"DOUBTFUL: {doubt}"


def group_by_reason(advised: Advised) -> list[tuple[str, str]]:
    """Return which kinds of change were not simulated, in words, by the reason.

    Example:
        >>> from types import SimpleNamespace
        >>> group_by_reason(SimpleNamespace(refused=(("bandwidth", "no network"), ("chunks", "whole ones"), ("latency", "no network"))))
        [('more bandwidth, less latency', 'no network'), ('other chunks', 'whole ones')]
    """
    grouped: dict[str, list[str]] = {}
    for kind, reason in advised.refused:
        grouped.setdefault(reason, []).append(LABELS[kind])
    return [(", ".join(kinds), reason) for reason, kinds in grouped.items()]


def describe_together(combined: Advice, listed: Sequence[Advice], others: Sequence[Advice] = ()) -> str:
    """Name the changes of a combination by their numbers in a list, those that are only among `others` in words.

    "" where one of them is in neither, or all are among the others.

    Savings do not add. Where they come to much more than one by one, the words say why.
    """
    left: set[object] = {*map(id, combined.change.edits), *combined.change.settings}
    numbers, spelt, singly_ns = [], [], 0
    for number, item in enumerate((*listed, *others), start=1):
        changes: set[object] = {*map(id, item.change.edits), *item.change.settings}
        # Of two that change the same only the first is one of the set.
        if changes and changes <= left:
            left -= changes
            if number <= len(listed):
                numbers.append(str(number))
            else:
                spelt.append(item.action)
            singly_ns += item.saving_ns
    if left or not numbers or len(numbers) + len(spelt) < 2:
        return ""
    more = combined.saving_ns > _MORE_THAN_SINGLY * singly_ns
    why = ": more than one by one, as each alone leaves another wait as long" if more else ""
    *first, last = numbers
    named = f"{', '.join(first)} and {last}" if first else last
    return f"{named} together with: {'; '.join(spelt)}{why}" if spelt else f"{named} together{why}"


def _format_item(number: str, item: Advice, words: str = "") -> Iterator[str]:
    yield f"  {number}  {describe_saving(item)}  {words or item.action}"
    if item.run:
        yield f"       run {item.run}"


# ---------------------------------------------------------------------------------------------------
# The tornado


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a tornado: what a change does to the finish, in percent of it.

    Attributes:
        label: What is changed, short; holds names of the trace.
        words: What to do, and what it saves.
        better_percent: What the change saves.
        worse_percent: What its opposite costs; 0 where there is none.
        low_percent, high_percent: What it may save as well; None where the model meets the recording.
        better, worse: The same as times, in words; "" where there is none.
        combined: Whether several changes were made at once.
    """

    label: str
    words: str
    better_percent: float
    worse_percent: float = 0.0
    low_percent: float | None = None
    high_percent: float | None = None
    better: str = ""
    worse: str = ""
    combined: bool = False


def build_bars(advised: Advised, most: int = 12) -> list[Bar]:
    """Return the rows of a tornado, the widest first: all savings, and what half of each rate, or twice a latency, costs.

    Twice and half of a rate share a row. The best set stands above all.
    """
    rows = [
        _build_bar(item)
        for item in advised.advice
        if item.kind not in ("bandwidth", "latency") or not advised.sensitivity
    ]
    base = (advised.system_baseline or advised.baseline).finish_ns
    for rate in advised.sensitivity:
        better, worse = base - rate.more_ns, rate.less_ns - base
        sentence = f"{rate.name}: {format_ns(rate.more_ns)} with twice as good a one, {format_ns(rate.less_ns)} with half"
        why = f" {rate.why[0].upper()}{rate.why[1:]}" if rate.why else ""
        rows.append(
            Bar(
                rate.name,
                f"{sentence}{'; ' if rate.knee else ''}{rate.knee}.{why}",
                100 * better / max(base, 1),
                100 * worse / max(base, 1),
                better=_format_signed(-better),
                worse=_format_signed(worse),
            )
        )
    rows = [row for row in rows if row.better_percent or row.worse_percent]
    rows.sort(key=lambda row: (-max(row.better_percent, row.worse_percent), row.label))
    return ([] if advised.combined is None else [_build_bar(advised.combined)]) + rows[:most]


def label_advice(item: Advice) -> str:
    """Return what an advice is called where there is little room.

    Its collectives or group, else its ranks, stand first.
    """
    about = ""
    if item.collective is not None:
        about = (
            label_collectives(CollectiveType[item.collective])
            if item.collective in CollectiveType.__members__
            else item.collective
        )
    if item.group:
        about = f"{about} {item.group[:16]}".strip()
    if item.ranks and item.kind in ("slow-rank", "compute"):
        about = describe_ranks(item.ranks)
    return f"{about}: {LABELS[item.kind]}" if about else LABELS[item.kind]


def _build_bar(item: Advice) -> Bar:
    share = 100 / max(item.baseline_ns, 1)
    return Bar(
        label_advice(item),
        f"{item.action} {describe_saving(item)}",
        item.saving_percent,
        low_percent=None if item.saving_low_ns is None else item.saving_low_ns * share,
        high_percent=None if item.saving_high_ns is None else item.saving_high_ns * share,
        better=_format_signed(-item.saving_ns),
        combined=item.kind == "combined",
    )


def _format_signed(change_ns: int) -> str:
    if not change_ns:
        return ""
    return f"{'+' if change_ns > 0 else '−'}{format_ns(abs(change_ns))}"
