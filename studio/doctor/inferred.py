"""Keep what is only inferred, or was never recorded, from being the ground of an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.analysis.job.completeness import is_recording
from studio.analysis.job.inferred_facts import is_inferred
from studio.doctor.diagnosis import Case, Found, NodeAt
from studio.sim.unrecorded import find_unrecorded_ranks
from studio.trace import NONE, CollectiveType, Int64, Level, NodeType

_WORDS = {
    "group": "The recording names no comm group there: it was inferred, and may be another one.",
    "size": "The recording gives no size there: it was inferred, and may be another one.",
}
_MOST_TRIED = 1 << 20
"""Groups times ranks up to which it is worked out how often each group can have communicated."""
_ROUNDED = 1e-3
_UNEVEN = (CollectiveType.ALL_TO_ALL, CollectiveType.GATHER, CollectiveType.SCATTER)
RAN = "The job ran in an order in which they agree; a simulator may take another."
"""Of a recording in which nothing but an order that others may take is wrong."""
_ELSEWHERE = (
    "The recording names no comm group of what the rank that has none did: it was inferred, and what seems to be missing may be in "
    "another one."
)
_UNTIMED = (
    "The recording has no time of some calls there, as of those on threads of the script that were not recorded: in which order "
    "they were made is not known."
)


_UNRECORDED = (
    "The recording lacks calls of these ranks, or their times, as of those that gloo's own threads make for hooks: what stands beside "
    "each other there need not have met."
)
_KNOWN = "The job ran all the same: nothing proves in which order its ranks did this."
_CONSEQUENCE = "A simulation may stop there, or let ranks wait that did not; a replay has the recorded times."
_ADVICE = "Record with studio.collect, which writes the group and number of every collective."


def hedge_finding(case: Case, finding: Found) -> Found:
    """Return the result of a check, as a warning where it rests on groups or sizes that were inferred, or on calls without a time.

    Likewise where the recording of a rank lacks calls that gloo's threads made: what comes after these is matched with others.
    Of a job that ran none says that it hangs then.
    """
    ran = finding.doubtful != "" and is_recording(case.trace)
    if finding.level != "error" and not ran:
        return finding
    why = _find_doubt(case, finding)
    if not why:
        return finding
    if ran:
        message = f"{finding.doubtful} {_KNOWN} {why}"
        return replace(finding, level="warning", message=message, consequence=_CONSEQUENCE, advice=_ADVICE)
    return replace(finding, level="warning", message=f"{finding.message} {why}")


def _find_doubt(case: Case, finding: Found) -> str:
    """Return why a finding is not certain, "" where it is."""
    differ = dict(finding.evidence).get("they differ in")
    facts = ["group", "size"] if differ == "size" else ["group"]
    if differ and differ != "root" and not may_be_of_other_groups(case, finding.nodes):
        # Whatever groups the recording did not name.
        facts = facts[1:]
    for fact in facts:
        if any(_is_inferred(case, node, fact) for node in finding.nodes):
            return _WORDS[fact]
    lacking = (
        set(finding.ranks) - {node.rank for node in finding.nodes} if differ and "group" in facts else set()
    )
    alike = [row for number in lacking for node in finding.nodes for row in _find_alike(case, node, number)]
    if any(_is_inferred(case, node, "group") for node in alike):
        return _ELSEWHERE
    if any(_is_untimed(case, node) for node in finding.nodes):
        return _UNTIMED
    if differ and not find_unrecorded_ranks(case.trace).isdisjoint(
        [*finding.ranks, *(node.rank for node in finding.nodes)]
    ):
        return _UNRECORDED
    return ""


def are_counted(case: Case, group: GroupMatching) -> bool:
    """Whether linking counted some of a group's collectives, by the names of steps or their order: no recorder numbered them."""
    return any(
        _is_inferred(case, NodeAt(member, int(rows[0])), "seq")
        for member, index in zip(group.members, group.sequence_of.tolist(), strict=True)
        if index != NONE and len(rows := group.sequences[index].rows[group.sequences[index].rows != NONE])
    )


def choose_missing_level(case: Case, *, everywhere: bool) -> Level:
    """Return how bad it is that nodes lack a fact: no error where a job ran and its recorder never writes that fact."""
    return "warning" if everywhere and is_recording(case.trace) else "error"


def may_be_of_other_groups(case: Case, nodes: Sequence[NodeAt]) -> bool:
    """Whether the collectives of the kinds and sizes of some nodes can be in groups so that the members of each have as many.

    If not, some rank has too few or too many of them, in whichever groups they are. Sizes that were inferred prove nothing.

    Args:
        case: The job.
        nodes: Collectives.
    """
    numbers = [rank.number for rank in case.trace.ranks]
    groups = {tuple(number in group.ranks for number in numbers) for group in case.trace.groups}
    if not groups or len(groups) * len(numbers) > _MOST_TRIED:
        return True
    belongs = np.array(sorted(groups), np.float64).T
    for node in nodes:
        alike = [_find_alike(case, node, number) for number in numbers]
        if any(_is_inferred(case, each, "size") for own in alike for each in own):
            return True
        count = np.array([len(own) for own in alike], np.float64)
        fitting, *_ = np.linalg.lstsq(belongs, count, rcond=None)
        if np.abs(belongs @ fitting - count).max() > _ROUNDED:
            return False
    return True


def _find_alike(case: Case, node: NodeAt, number: int) -> list[NodeAt]:
    """Return the collectives of a rank that have the kind and size of a node; of its kind alone where ranks may bring other sizes."""
    columns = _read_content(case, node.rank)
    kind, size = (column[node.row] for column in columns)
    if kind == NONE:
        return []
    kinds, sizes = _read_content(case, number)
    same = kinds == kind
    if kind not in _UNEVEN:
        same &= sizes == size
    return [NodeAt(number, row) for row in np.flatnonzero(same).tolist()]


def _read_content(case: Case, number: int) -> tuple[Int64, Int64]:
    """Return the type and size (N,) of a rank's collectives."""
    own = case.by_rank[number]
    return own.collective, own.sizes


def _is_inferred(case: Case, node: NodeAt, fact: str) -> bool:
    rank = case.trace.rank(node.rank)
    if rank is None:
        return False
    return is_inferred(case.trace.graph_of(rank), node.row, fact)


def _is_untimed(case: Case, node: NodeAt) -> bool:
    """Whether a node communicates on a rank of which some communication was recorded without a time, though the rank has times."""
    rank = case.trace.rank(node.rank)
    if rank is None or node.row < 0:
        return False
    graph = case.trace.graph_of(rank)
    talks = np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL))
    is_timed = bool((graph.start_ns[~talks] >= 0).any())
    return bool(talks[node.row] and is_timed and (graph.start_ns[talks] < 0).any())
