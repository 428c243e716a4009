"""Words for comparisons: signed differences, names of figures, and a one-sentence verdict."""

from __future__ import annotations

from typing import Any

from studio.analysis.compare.faster_network import describe_faster_network
from studio.analysis.compare.runs import Comparison
from studio.analysis.compare.sides import Side
from studio.analysis.compare.waterfall import Basis, Waterfall
from studio.analysis.job.node_refs import describe_node
from studio.analysis.job.part_words import NAMES
from studio.units import format_bytes, format_count, format_counted, format_ns

_BEFORE = "before"
"""What of stalls lies before recordings began."""
_LEAST_BEFORE = 0.005
_NAMED = 4
"""So many parts are named in a sentence; of more, all but one, and the others together."""
_ONE_PROGRAM = 0.5
"""From this share of matched nodes on two runs count as runs of one program."""


def describe_comparison(
    comparison: Comparison, name_a: str = "A", name_b: str = "B", *, basis: Basis = "busiest"
) -> str:
    """Return a sentence: how much slower or faster, and why.

    The reasons are the parts of a waterfall that change the finish most (`list_causes`), and what the others add up to: together the
    difference. What lies before recordings began is told last, as it is no reason. Where the slower run has a network that is but
    faster, what took longer there is told. Simulations of different models are not ranked: the sentence gives both times and says why. What makes the difference doubtful comes first: see `explain_doubt`.

    Args:
        comparison: The runs.
        name_a: What to call the first.
        name_b: What to call the other.
        basis: Of which waterfall the reasons are: that of the mean, in any case, where another rank waits least in B than in A.
    """
    if comparison.unranked:
        times = [format_ns(side.makespan_ns) for side in (comparison.a, comparison.b)]
        return f"{name_a} takes {times[0]}, {name_b} {times[1]}. {comparison.unranked}"
    doubt = explain_doubt(comparison, name_a, name_b)
    why = describe_faster_network(comparison, name_a, name_b)
    return f"{doubt} {_describe_difference(comparison, name_a, name_b, basis)} {why}".strip()


def explain_doubt(comparison: Comparison, name_a: str = "A", name_b: str = "B") -> str:
    """Return why two runs may not be of the same work: few nodes match, or their numbers of ranks differ; else ""."""
    share = comparison.alignment.share
    ranks = [len(side.trace.ranks) for side in (comparison.a, comparison.b)]
    counts = f"{name_a} has {format_counted(ranks[0], 'rank')}, {name_b} {format_count(ranks[1])}"
    if share < _ONE_PROGRAM:
        more = f", and {counts}" if ranks[0] != ranks[1] else ""
        return f"These are hardly runs of one program: {format_share(share)} of their nodes match{more}."
    return f"{counts}: not the same work." if ranks[0] != ranks[1] else ""


def _describe_difference(comparison: Comparison, name_a: str, name_b: str, basis: Basis) -> str:
    grew, before = comparison.difference_ns, comparison.a.makespan_ns
    fall = comparison.waterfall(basis)
    reasons = _describe_reasons(fall, grew)
    where = "in the mean of all ranks" if fall.basis == "mean" else ""
    if not grew:
        same = f"{name_b} takes as long as {name_a}: {format_ns(before)}."
        within = f"Within it, {where}" if where else "Within it"
        return f"{same} {within}: {reasons}." if reasons else same
    word = "slower" if grew > 0 else "faster"
    share = f" ({format_share(abs(grew) / before)})" if before else ""
    return (
        f"{name_b} is {format_ns(abs(grew))}{share} {word} than {name_a}: {reasons}{where and f', {where}'}."
    )


def _describe_reasons(fall: Waterfall, grew: int) -> str:
    """Return the parts that change most, and what is left of the difference, unless it is too small to be seen in it."""
    changes = [(part, difference) for part, difference in list_causes(fall) if difference]
    large = [cause for cause in changes if abs(cause[1]) * 50 >= abs(grew)]
    named = large if len(large) <= _NAMED else large[: _NAMED - 1]
    others = changes[len(named) :]
    left = sum(difference for _, difference in others)
    parts = [_describe_cause(fall, *cause) for cause in named if cause[0] != _BEFORE]
    if left and abs(left) * 200 >= abs(grew):
        parts.append(
            _describe_cause(fall, others[0][0], left)
            if len(others) == 1
            else f"{format_signed_ns(left)} of other parts"
        )
    parts += [
        f"{format_signed_ns(difference)} before recordings began, of which nothing is known"
        for part, difference in named
        if part == _BEFORE
    ]
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _describe_cause(fall: Waterfall, part: str, difference: int) -> str:
    """Say how much a part changes; where overlapped time is in it, which the waterfall tells apart, that is said."""
    joined = {step.part for step in fall.steps if step.difference_ns}.issuperset(("overlapped", part))
    more = " (overlapped included)" if joined and part == _find_work(fall) else ""
    return f"{NAMES[part]} {format_signed_ns(difference)}{more}"


def list_causes(fall: Waterfall) -> list[tuple[str, int]]:
    """Return the parts of a waterfall with their differences in ns, the largest first.

    Compute (copies, where they take longer) counts once, whether or not communication is under way beside it: communication that takes longer hides behind more of
    it, and neither takes more time for that. The waterfall tells the two apart. Stalls before recordings began are `before`:
    nothing is known of that time.
    """
    differences: dict[str, int] = {}
    work = _find_work(fall)
    for step in fall.steps:
        part = work if step.part == "overlapped" else step.part
        differences[part] = differences.get(part, 0) + step.difference_ns
    unknown = fall.before_ns[1] - fall.before_ns[0]
    if unknown:
        differences["stall"] = differences.get("stall", 0) - unknown
        differences[_BEFORE] = unknown
    return sorted(differences.items(), key=lambda cause: -abs(cause[1]))


def _find_work(fall: Waterfall) -> str:
    """Return what the time that overlaps communication counts as: compute, or copies where they take longer."""
    took = {step.part: step.a_ns + step.b_ns for step in fall.steps}
    return max(("compute", "copy"), key=lambda part: took.get(part, 0))


def format_share(share: float) -> str:
    """Return a part of a whole in percent, with three digits or all whole ones.

    Example:
        >>> format_share(0.28412), format_share(28.9), format_share(-0.000265)
        ('28.4 %', '2,890 %', '−0.0265 %')
    """
    size = 100 * abs(share)
    return f"{'−' if share < 0 else ''}{f'{size:,.0f}' if size >= 100 else f'{size:.3g}'} %"


def format_difference_share(share: float | None) -> str:
    """Return a step's share of the difference in finish; "" where there is none, and beyond 100 %.

    The shares of the steps of a waterfall add up to 100 %. One beyond that says that others outweigh it: its time tells more.

    Example:
        >>> format_difference_share(0.284), format_difference_share(-1.0), format_difference_share(1.2), format_difference_share(None)
        ('28.4 %', '−100.0 %', '', '')
        >>> format_difference_share(-0.0002)
        '0.0 %'
    """
    if share is None or abs(share) > 1:
        return ""
    # Nothing has no sign, also where it was rounded to that.
    tenths = round(1000 * share) + 0
    return f"{tenths / 10:.1f} %".replace("-", "\N{MINUS SIGN}")


def format_signed_ns(ns: float) -> str:
    """Return a difference in time with its sign.

    Example:
        >>> format_signed_ns(1_500_000), format_signed_ns(-20), format_signed_ns(0)
        ('+1.50 ms', '−20 ns', '0 ns')
    """
    return f"{'+' if ns > 0 else '−' if ns < 0 else ''}{format_ns(abs(ns))}"


def format_signed_bytes(size: float) -> str:
    """Return a difference in bytes with its sign."""
    return f"{'+' if size > 0 else '−' if size < 0 else ''}{format_bytes(abs(size))}"


def format_signed_share(share: float) -> str:
    """Return a difference in percentage points with its sign.

    Example:
        >>> format_signed_share(0.066), format_signed_share(-0.5), format_signed_share(-0.00001)
        ('+6.6 points', '−50.0 points', '0.0 points')
    """
    points = round(100 * share, 1)
    return f"{'+' if points > 0 else '−' if points < 0 else ''}{abs(points):.1f} points"


def describe_side_node(side: Side, place: int, row: int) -> dict[str, Any]:
    """Describe a node of a side in plain data.

    Args:
        side: The run.
        place: The place of the node's rank in the trace.
        row: Its row in the rank's graph.
    """
    rank = side.trace.ranks[place]
    return describe_node(side.trace.graph_of(rank), rank.number, row)


def describe_basis(fall: Waterfall) -> str:
    """Say whose time a waterfall takes apart."""
    return (
        f"on the rank that waits least ({fall.rank})"
        if fall.basis == "busiest"
        else "in the mean of all ranks"
    )


def describe_before(fall: Waterfall, letter: str = "B") -> str:
    """Say what of stalls lies before recordings began; "" where that is hardly anything of the finish."""
    if not any(
        before > _LEAST_BEFORE * finish
        for before, finish in zip(fall.before_ns, (fall.a_ns, fall.b_ns), strict=True)
    ):
        return ""
    first, second = map(format_ns, fall.before_ns)
    return (
        f"Of stall {first} in A and {second} in {letter} lie before a rank's recording began: nothing is known of that time, and "
        "when recordings begin is no difference between the runs."
    )


def explain_devices(comparison: Comparison, letter: str = "B") -> str:
    """Say what the times of ranks with several devices are; "" where each rank of both runs has one."""
    whose = " and ".join(
        name for name, several in zip(("A", letter), comparison.has_devices, strict=True) if several
    )
    return (
        f"Ranks of {whose} have several devices: the time of such a rank is that of its devices in the mean, and the mean is over all "
        "devices."
        if whose
        else ""
    )


def explain_mean(comparison: Comparison, letter: str = "B") -> str:
    """Say why only the mean is compared; "" where one rank is, too."""
    first, second = comparison.busiest
    if len(comparison.waterfalls) > 1 or first == second:
        return ""
    return (
        f"Rank {first} waits least in A, rank {second} in {letter}: as the difference between two ranks is none between the "
        "runs, all ranks are compared in the mean."
    )
