"""What a package needs to teach the studio a format of its own; see docs/plugins.md.

A package names a `Format` in the entry point group `chakra_studio.formats`. Files that no format of the studio knows are
offered to it, in every command and on the web.

Example:
    >>> part = rank_of([{"id": 1, "type": "COMP_NODE", "name": "gemm", "duration_micros": 5}], file="a.toy", number=3)
    >>> part.number, len(part.graph)
    (3, 1)
"""

from __future__ import annotations

from collections.abc import Sequence

from studio.errors import TraceFormatError
from studio.et.build import NodeDict, build_graph
from studio.et.format import Format, GroupsPart, RankPart, Reading
from studio.trace import NONE, CommGroup, Finding, Rank

__all__ = [
    "CommGroup",
    "Finding",
    "Format",
    "GroupsPart",
    "RankPart",
    "Reading",
    "TraceFormatError",
    "rank_of",
]


def rank_of(
    nodes: Sequence[NodeDict], *, file: str, number: int | None = None, findings: Sequence[Finding] = ()
) -> RankPart:
    """Return a rank made of nodes written as dictionaries.

    Args:
        nodes: Each with `id`, `type` (`COMP_NODE`, `COMM_COLL_NODE`, …), and where known `name`, `data_deps`,
            `ctrl_deps` (lists of ids), `start_micros`, `duration_micros`, and `attrs` (`comm_type`, `comm_size`,
            `pg_name`, `comm_src`, `comm_dst`, `comm_tag`, `stream`, …).
        file: Name of the file, as in `Reading.name`.
        number: The rank's number where the file tells it; else its name may, or the user.
        findings: What the reader noticed.

    Example:
        >>> send = {"id": 7, "type": "COMM_SEND_NODE", "attrs": {"comm_dst": 1, "comm_size": 64}}
        >>> rank_of([send], file="a.toy").rank.slots
        (1,)
    """
    graph, slots = build_graph(nodes)
    return RankPart(Rank(NONE, NONE, slots, file=file), graph, number, tuple(findings))
