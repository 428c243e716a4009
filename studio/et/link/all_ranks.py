"""Bring the execution traces and Kineto traces of all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from studio.errors import TraceError
from studio.et.collector import pause_collector
from studio.et.format import RankPart
from studio.et.link.assemble import assemble
from studio.et.link.clock import align, correct_times
from studio.et.link.draft import RankDraft, draft_rank
from studio.et.link.membership import list_world_sizes, resolve
from studio.et.link.numbering import number_collectives
from studio.et.link.options import LinkOptions
from studio.et.link.pair import Pair, pair_files
from studio.et.link.scattered import share_sizes
from studio.et.link.senders import find_senders
from studio.et.link.turns import number_messages
from studio.et.link.unrecorded import find_unrecorded
from studio.et.recording import DeviceTrace, HostTrace
from studio.trace import CommGroup, Finding


@pause_collector()
def link_ranks(
    hosts: Sequence[tuple[HostTrace, int | None]],
    devices: Sequence[tuple[DeviceTrace, int | None]],
    options: LinkOptions | None = None,
    tick: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[list[RankPart], tuple[CommGroup, ...], list[Finding]]:
    """Link the traces of a job's ranks.

    Args:
        hosts: Execution traces, each with the rank that its name or the user tells, if any.
        devices: Kineto traces likewise.
        options: What to derive.
        tick: Told the steps done, two for each rank; may raise to stop.

    Returns:
        One part per rank, the comm groups, and findings about the job.

    Raises:
        TraceError: The two traces of a rank are of different processes.
    """
    chosen = options or LinkOptions()
    pairs = pair_files(hosts, devices)
    findings = _build_mismatch_findings(pairs)
    fitting = [candidate for candidate in pairs if not candidate.refused]
    drafts: list[RankDraft] = []
    tick(0, 2 * len(fitting))
    for candidate in fitting:
        drafts.append(draft_rank(candidate, chosen))
        tick(len(drafts), 2 * len(fitting))
    settled = settle(drafts, chosen)
    parts: list[RankPart] = []
    for rank_draft in settled.drafts:
        parts.append(assemble(rank_draft, settled.origin_ns, settled.world, chosen))
        tick(len(drafts) + len(parts), 2 * len(fitting))
    return parts, settled.groups, [*findings, *settled.findings]


@dataclass(frozen=True, slots=True)
class Settled:
    """The ranks of a job with common groups, clocks and numbers.

    Attributes:
        drafts: The ranks, in order; every communication has its group, every rank its clock.
        groups: The comm groups.
        findings: Findings about groups and clocks.
        origin_ns: Time of the common clock that becomes 0.
        world: Ranks of the job.
    """

    drafts: list[RankDraft]
    groups: tuple[CommGroup, ...]
    findings: list[Finding]
    origin_ns: int
    world: int


def settle(drafts: Sequence[RankDraft], options: LinkOptions) -> Settled:
    """Give ranks common groups, clocks and collective numbers; outlines of them suffice."""
    ordered = sorted(drafts, key=lambda rank_draft: -1 if rank_draft.number is None else rank_draft.number)
    groups, about_groups = resolve(ordered)
    number_collectives(ordered)
    share_sizes(ordered)
    about_calls = find_unrecorded(ordered)
    number_messages(ordered)
    about_clocks = align(ordered) if options.align_clocks else []
    find_senders(ordered)
    # Those of any rank are told by now, too.
    number_messages(ordered)
    origin = min(
        (
            _begin(rank_draft)
            for rank_draft in ordered
            if rank_draft.device is not None and len(rank_draft.device)
        ),
        default=0,
    )
    world = max([len(ordered), *(len(group.ranks) for group in groups), *list_world_sizes(ordered)])
    return Settled(ordered, groups, [*about_groups, *about_calls, *about_clocks], origin, world)


def _build_mismatch_findings(pairs: Sequence[Pair]) -> list[Finding]:
    """Return findings about files of different processes; raise if nothing else is left."""
    findings = []
    for candidate in pairs:
        if candidate.refused and candidate.host is not None and candidate.device is not None:
            message = f"{candidate.host.file} and {candidate.device.file} are not of the same process: {candidate.refused}."
            hint = "Open the execution trace and the Kineto trace that one process recorded together."
            if all(other.refused for other in pairs):
                raise TraceError(message, hint=hint)
            findings.append(
                Finding(
                    "error", "unrelated", message, hint, rank=candidate.number, file=candidate.device.file
                )
            )
    return findings


def _begin(rank_draft: RankDraft) -> int:
    assert rank_draft.device is not None
    return int(correct_times(rank_draft.device.start_ns[:1], rank_draft.clock)[0])
