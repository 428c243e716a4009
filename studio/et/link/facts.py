"""What is known about the communication of a rank: facts of each call, kernel or operation of a library."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from studio.et.recording import Group
from studio.trace import NONE, CollectiveType


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What is known about one communication on one rank.

    Long recordings have tens of thousands of them, which msgspec makes and pickles fast.

    Attributes:
        kind: A CollectiveType, SEND or RECEIVE.
        bytes_in, bytes_out: Bytes given and received by this rank, -1 where not known.
        group: Name of the process group, None where nothing names it.
        group_ranks: Its ranks where the node itself tells them.
        peer: Other side of a message, -1 where there is none.
        peer_is_global: Whether that is a rank of the job rather than a place in the group.
        tag: Tag of a message.
        root: Root of a rooted collective, -1 where there is none: its place in the group until the members are known, then its rank.
        splits_in, splits_out: Bytes to and from each member; empty where they are equal.
        seq: Number in the group that the recorder gave it or that was counted, -1 where there is none.
        turn: Which it is of the messages alike between two ranks, counted from a common one where their recordings begin apart; else -1.
        calls: Calls that one kernel carries out together.
        members: How many ranks the group has, 0 where not known: as the node itself tells until the groups are known, then as these are.
        blocks: Whether the thread that called for it goes on once it has ended, as after a call of PyTorch that is not asynchronous.
        inferred: Which of these facts are not written anywhere: `type`, `size`, `group`, `peer`, `seq`.
    """

    kind: int
    bytes_in: int = NONE
    bytes_out: int = NONE
    group: str | None = None
    group_ranks: tuple[int, ...] = ()
    peer: int = NONE
    peer_is_global: bool = False
    tag: int = 0
    root: int = NONE
    splits_in: tuple[int, ...] = ()
    splits_out: tuple[int, ...] = ()
    seq: int = NONE
    turn: int = NONE
    calls: int = 1
    members: int = 0
    blocks: bool = False
    inferred: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it moves nothing, as collectives of empty tensors: a library waits for nobody then, but in a barrier."""
        return max(self.bytes_in, self.bytes_out) == 0 and self.kind != CollectiveType.BARRIER

    @property
    def lacks_size(self) -> bool:
        """Whether nothing tells how much it moves."""
        return max(self.bytes_in, self.bytes_out) < 0 and self.kind != CollectiveType.BARRIER

    @property
    def bytes(self) -> int:
        """The size that simulators use: the bytes a rank sends, else those it receives; of a scatter those the root sends."""
        if self.kind == CollectiveType.SCATTER and self.bytes_in <= 0:
            return max(self.bytes_out, 0) * max(self.members, 1)
        return self.bytes_in if self.bytes_in > 0 else max(self.bytes_out, 0)


@dataclass(slots=True)
class Communication:
    """The communication of one rank.

    Attributes:
        operators: Facts by row of the operation that is the communication itself.
        devices: Facts by place among the device operations.
        batches: All messages of a device operation that sends or receives several, by place; the first is in `devices` too.
        issued_by: Row of the call behind a communicating operation of another thread.
        callers: Number of the thread that made each call of a collective whose group nothing names, by row.
        groups: Process groups the rank's files list.
        unknown: Names of collectives that are not known → how often.
        unrecorded: How many of its collectives the recording lacks, or has without a time.
        begins_apart: Comm groups of which the recording begins with another collective than that of some other rank.
    """

    operators: dict[int, Facts] = field(default_factory=dict)
    devices: dict[int, Facts] = field(default_factory=dict)
    batches: dict[int, tuple[Facts, ...]] = field(default_factory=dict)
    issued_by: dict[int, int] = field(default_factory=dict)
    callers: dict[int, int] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    unrecorded: int = 0
    begins_apart: set[str] = field(default_factory=set)

    def add_unknown(self, name: str) -> None:
        """Count a collective that is not known."""
        self.unknown[name] = self.unknown.get(name, 0) + 1


def merge_facts(first: Facts, second: Facts) -> Facts:
    """Merge the facts of two sources about one call; the first wins where both know."""
    return replace(
        first,
        bytes_in=first.bytes_in if first.bytes_in >= 0 else second.bytes_in,
        bytes_out=first.bytes_out if first.bytes_out >= 0 else second.bytes_out,
        group=first.group if first.group is not None else second.group,
        group_ranks=first.group_ranks or second.group_ranks,
        peer=first.peer if first.peer >= 0 else second.peer,
        blocks=first.blocks or second.blocks,
        peer_is_global=first.peer_is_global if first.peer >= 0 else second.peer_is_global,
        tag=first.tag or second.tag,
        root=first.root if first.root >= 0 else second.root,
        splits_in=first.splits_in or second.splits_in,
        splits_out=first.splits_out or second.splits_out,
        seq=first.seq if first.seq >= 0 else second.seq,
        members=first.members or second.members,
        inferred=tuple(
            what for what in first.inferred if what in second.inferred or not _has_fact(second, what)
        ),
    )


def _has_fact(facts: Facts, what: str) -> bool:
    return {"size": facts.bytes_in >= 0 or facts.bytes_out >= 0, "group": facts.group is not None}.get(
        what, True
    )
