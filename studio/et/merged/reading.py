"""Open a master trace as the job it was made of: ranks by attribute, comm groups, copies."""

from __future__ import annotations

from dataclasses import replace

from studio.et import alike, chakra, copies, groups
from studio.et.format import CopiesPart, Part, RankPart, Reading
from studio.et.merged.rule import LOOKED_AT, RANKS
from studio.et.merged.split import iterate_rank_pieces, open_master

_MARK = bytes([0x0A, len(RANKS)]) + RANKS.encode()


def sniff(head: bytes) -> bool:
    """Whether `head` starts a master trace: metadata that begins with how many ranks there are."""
    return _MARK in head[:LOOKED_AT] and chakra.sniff(head)


def read(reading: Reading) -> list[Part]:
    """Read a master trace into its ranks, comm groups and copies.

    Raises:
        TraceFormatError: A node does not say its rank, or is damaged beyond use.
    """
    master = open_master(reading.data, reading.name, reading.total_bytes)
    # Ranks that are alike are compared, as files of ranks are.
    read_rank = alike.JobReader() if len(master.heads.ranks) > 1 else chakra.read
    parts: list[Part] = []
    whole, done = max(len(reading.data), 1), 0
    for head in master.heads.ranks:
        content = b"".join(iterate_rank_pieces(master, head.rank))
        done += len(content)
        [part] = read_rank(Reading(reading.name, content, reading.total_bytes))
        assert isinstance(part, RankPart)
        parts.append(replace(part, number=head.rank))
        reading.tick(min(whole + done, 2 * whole))
    for file in master.heads.groups:
        parts += groups.read(Reading(reading.name, file.content))
    for file in master.heads.copies:
        parts += [
            replace(part, file=reading.name) if isinstance(part, CopiesPart) else part
            for part in copies.read(Reading(reading.name, file.content))
        ]
    findings = (*reading.findings, *master.findings)
    if isinstance(parts[0], RankPart):
        parts[0] = replace(parts[0], findings=(*findings, *parts[0].findings))
    return parts
