"""Checks of clocks: how far the recorded times of different ranks can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from studio.doctor.diagnosis import Case, Found
from studio.sim.agreement import format_ranks
from studio.units import format_count, format_ns

_CLOCKS_LISTED = 8
_FAR_APART_NS = 1_000_000


def check_clock_skew(case: Case) -> Iterator[Found]:
    """Yield ranks whose clocks differ, by the ends of matched collectives, or that linking moved far."""
    yield from _find_moved_clocks(case)
    skewed = [offset for offset in case.clocks if offset.is_skewed]
    if skewed:
        worst = max(skewed, key=lambda offset: abs(offset.offset_ns))
        ahead = "ahead of" if worst.offset_ns > 0 else "behind"
        base = min(offset.rank for offset in case.clocks)
        yield Found(
            "warning",
            f"The clock{'s' if len(skewed) > 1 else ''} of {format_ranks([offset.rank for offset in skewed])} "
            f"{'differ' if len(skewed) > 1 else 'differs'} from that of rank {base}: rank {worst.rank} is "
            f"{format_ns(abs(worst.offset_ns))} {ahead} it.",
            tuple(offset.rank for offset in skewed),
            (),
            len(skewed),
            (
                ("largest offset", f"{worst.offset_ns:+,} ns (rank {worst.rank})"),
                ("remaining median distance", format_ns(max(offset.residual_ns for offset in skewed))),
                ("collectives compared", format_count(worst.matched)),
            ),
        )


def _find_split_machines(case: Case, far: Mapping[int, int]) -> Iterator[Found]:
    """Yield a finding where linking moved the clock of a rank against that of another on the same machine."""
    machines: dict[str, list[int]] = {}
    for rank in case.trace.ranks:
        machines.setdefault(str(rank.metadata_value("clock_host", "")), []).append(rank.number)
    machines.pop("", None)
    for machine, numbers in machines.items():
        moved = {number: far.get(number, 0) for number in numbers}
        usual = Counter(moved.values()).most_common(1)[0][0]
        odd = [number for number in numbers if abs(moved[number] - usual) >= _FAR_APART_NS]
        if odd:
            by = max(abs(moved[number] - usual) for number in odd)
            several = len(odd) > 1
            yield Found(
                "warning",
                f"The files of {format_ranks(numbers)} name one machine, {machine}, which has one clock; but no collective took place on "
                f"{format_ranks(odd)} when it did on the others, by up to {format_ns(by)}. Linking moved "
                f"{'their times' if several else 'its times'} by that, so that matched collectives end together.",
                tuple(odd),
                (),
                len(odd),
                _format_clock_moves(case, moved, odd),
                "Where files of several runs are mixed, ranks seem to wait for each other that never met; where times were shifted, "
                "waits are known as far as the remaining distance allows.",
                "Times were shifted, or files of several runs are mixed: open those of one run together.",
                is_repairable=False,
            )


def _format_clock_moves(
    case: Case, moved: Mapping[int, int], ranks: Sequence[int]
) -> tuple[tuple[str, str], ...]:
    """Return by how much linking moved the clock of each rank, and what distance of matched ends stays."""
    stays = {rank.number: max(rank.metadata_number("clock_residual_ns"), 0) for rank in case.trace.ranks}
    return tuple(
        (f"rank {rank}", f"{moved[rank]:+,} ns, {format_ns(stays[rank])} stays")
        for rank in ranks[:_CLOCKS_LISTED]
    )


def _find_moved_clocks(case: Case) -> Iterator[Found]:
    """Yield findings of linking about clocks that differed much before it aligned them."""
    moved = {rank.number: rank.metadata_number("clock_offset_ns") for rank in case.trace.ranks}
    # -1 stands for no such number; a nanosecond is no skew either.
    far = {rank: by for rank, by in moved.items() if abs(by) >= _FAR_APART_NS}
    if not far:
        return
    odd = list(_find_split_machines(case, far))
    yield from odd
    # What a warning has told is not told again as something that makes times comparable.
    warned = {rank for finding in odd for rank in finding.ranks}
    rest = sorted(far.keys() - warned)
    if not rest:
        return
    worst = max(rest, key=lambda rank: abs(far[rank]))
    yield Found(
        "info",
        f"Linking moved the clock{'s' if len(rest) > 1 else ''} of {format_ranks(rest)}, by up to "
        f"{format_ns(abs(far[worst]))} (rank {worst}), so that matched collectives end together.",
        tuple(rest),
        (),
        len(rest),
        _format_clock_moves(case, far, rest),
        "Times of different ranks can be compared as far as the remaining distance allows.",
        is_repairable=False,
    )
