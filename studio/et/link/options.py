"""The options of linking: which kinds of dependencies to derive, and what else to add or leave out."""

from __future__ import annotations

from dataclasses import dataclass

from studio.et.link.dep_kinds import DepKind
from studio.notebook import format_record


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Which dependencies to derive.

    Attributes:
        host_order: Each operator waits for the one before it on its thread.
        call_parent: Control dependencies on the calling operator.
        launch: Device operations wait for the operator that launched them.
        stream_order: Device operations wait for the one before them on their stream.
        events: Streams wait for events of other streams.
        sync: The processor waits for the device where it did.
        threads: Operators wait for those of other threads that set them going or held them up.
        data: Readers of a tensor wait for its writer.
        sequence: Collectives wait for the one of their comm group that was issued before. In a recording two may
            overlap, on two threads of gloo; simulators carry them out one by one, and hang where ranks differ in the order.
        host_gaps: Time between operators (Python, data loading) becomes nodes of that duration.
        idle: Time for which a stream of the device stood idle although all that its next operation waited for was done
            becomes nodes of that duration. Needs `stream_order`.
        least_gap_ns: Gaps shorter than this are left out.
        thread_gap_ns: A thread that was idle for shorter than this was not held up by another.
        align_clocks: Clocks of the ranks are aligned by matched collectives.
        metadata_nodes: Process groups are METADATA nodes; the reference simulator refuses traces with such nodes,
            so without this they are ordinary ones.

    Example:
        >>> import studio
        >>> options = studio.LinkOptions(sequence=False, align_clocks=False)
        >>> options.data, options.sequence
        (True, False)
    """

    host_order: bool = True
    call_parent: bool = True
    launch: bool = True
    stream_order: bool = True
    events: bool = True
    sync: bool = True
    threads: bool = True
    data: bool = True
    sequence: bool = True
    host_gaps: bool = True
    idle: bool = True
    least_gap_ns: int = 1_000
    thread_gap_ns: int = 100_000
    align_clocks: bool = True
    metadata_nodes: bool = True

    __repr__ = format_record

    @property
    def kinds(self) -> DepKind:
        """The kinds of dependencies to derive.

        Example:
            >>> import studio
            >>> studio.LinkOptions().kinds == studio.LinkOptions(data=False).kinds
            False
        """
        wanted = {
            DepKind.ORDER: self.host_order,
            DepKind.CALL: self.call_parent,
            DepKind.LAUNCH: self.launch,
            DepKind.STREAM: self.stream_order,
            DepKind.EVENT: self.events,
            DepKind.SYNC: self.sync,
            DepKind.THREAD: self.threads,
            DepKind.DATA: self.data,
            DepKind.SEQUENCE: self.sequence,
        }
        return DepKind(sum(kind for kind, on in wanted.items() if on))
