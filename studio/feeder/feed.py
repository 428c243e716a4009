"""The feeder: which node can be issued next, and what its completion makes possible."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from studio.errors import TraceError, TraceFormatError
from studio.et.chakra import Metadata
from studio.et.merged.records import Chunk
from studio.feeder.ids import IdSet
from studio.feeder.nodes import FeederNode
from studio.feeder.stream import RecordStream
from studio.units import format_counted

WINDOW = 1 << 18
"""Nodes that are read and not complete, of which a feeder holds as many as it can."""
_NAMED = 8


@dataclass(frozen=True, slots=True)
class NeverReady:
    """A node that can never be issued.

    Attributes:
        id: The node.
        name: Its name.
        waits_for: What it waits for in vain.
        missing: Of those, the ids that no node of the file has.
    """

    id: int
    name: str
    waits_for: tuple[int, ...]
    missing: tuple[int, ...]


class Feeder:
    """Feeds the nodes of one rank's Chakra file in the order that dependencies allow.

    A node can be issued once all it waits for are complete; of several the one with the lowest id is next. The file is read as
    far as `window` nodes are held that are not complete: later nodes are not known yet. So a file of up to `window` nodes is
    fed as if all of it were known, and of any file no more is held than that and the ids of complete nodes, as long as nodes
    stand after those they wait for; where the nodes held wait for later ones, the file is read until they are found.

    Attributes:
        metadata: What the file says of itself: `version` and `attrs`.

    Example:
        The examples of its methods go on from this one.

        >>> import studio, tempfile
        >>> trace = studio.generate("resnet50", ranks=2)
        >>> file = studio.write(trace, tempfile.mkdtemp(), "job")[0]
        >>> order = []
        >>> with studio.Feeder(file) as feeder:
        ...     while feeder.has_nodes_to_issue():
        ...         node = feeder.next_issuable()
        ...         order.append(node.id)
        ...         freed = feeder.complete(node.id)
        >>> len(order), order[:3]
        (306, [1, 2, 3])
    """

    def __init__(self, path: Path | str, *, window: int = WINDOW) -> None:
        """Open a file.

        Args:
            path: A Chakra file (`.et`), which may be compressed.
            window: Nodes that are held at a time, see above.

        Raises:
            TraceError: There is no such file, or `window` is below 1.
            TraceFormatError: It is no Chakra file.
        """
        if window < 1:
            raise TraceError(f"window is {window}; allowed: 1 or more.")
        self._stream = RecordStream(Path(path))
        self.metadata: Metadata = self._stream.metadata
        self._window = window
        self._records: dict[int, bytes] = {}
        self._waits: dict[int, int] = {}
        """How many nodes each waits for still; those that wait for none are not here."""
        self._children: dict[int, list[int]] = {}
        """Who waits for a node that is not complete, whether it was read already or not."""
        self._ready: list[int] = []
        self._issued: dict[int, FeederNode] = {}
        self._complete = IdSet()

    def __enter__(self) -> Feeder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        """Return it in a line."""
        held, done = len(self._records) + len(self._issued), len(self._complete)
        return f"Feeder({self._stream.name!r}, {format_counted(done, 'node')} complete, {held:,} held)"

    def close(self) -> None:
        """Close the file.

        Example:
            >>> feeder = studio.Feeder(file)
            >>> feeder.next_issuable()
            FeederNode(1, 'step0.conv1.fwd')
            >>> feeder.close()
        """
        self._stream.close()

    def has_nodes_to_issue(self) -> bool:
        """Whether there are nodes that are not complete: to be issued now, later, or under way.

        Raises:
            TraceError: There are, but none of them can ever be issued; the message names them, `never_ready` lists them.
            TraceFormatError: The file is damaged; the message says where.

        Example:
            >>> with studio.Feeder(file) as feeder:
            ...     feeder.has_nodes_to_issue()
            True
        """
        self._read_on()
        if self._ready or self._issued:
            return True
        if not self._records:
            return False
        raise TraceError(self._explain_stuck(), hint="`chakra-studio check FILE` tells what can be repaired.")

    def next_issuable(self) -> FeederNode | None:
        """Return the node to issue next, the one with the lowest id of those that wait for nothing; None where all wait.

        It is under way then, until `complete` or `push_back` is called.

        Raises:
            TraceFormatError: The file is damaged; the message says where.

        Example:
            >>> with studio.Feeder(file) as feeder:
            ...     feeder.next_issuable(), feeder.next_issuable()
            (FeederNode(1, 'step0.conv1.fwd'), None)
        """
        self._read_on()
        if not self._ready:
            return None
        number = heapq.heappop(self._ready)
        node = self._issued[number] = FeederNode(number, self._records.pop(number))
        return node

    def push_back(self, number: int) -> None:
        """Give a node back that cannot be issued now: it will be returned again.

        Raises:
            TraceError: It is not under way.

        Example:
            >>> with studio.Feeder(file) as feeder:
            ...     node = feeder.next_issuable()
            ...     feeder.push_back(node.id)
            ...     feeder.next_issuable()
            FeederNode(1, 'step0.conv1.fwd')
        """
        node = self._take_issued(number)
        self._records[number] = node.record
        heapq.heappush(self._ready, number)

    def complete(self, number: int) -> list[int]:
        """Say that a node is complete; returns the ids of nodes that can be issued for that, lowest first.

        Raises:
            TraceError: It is not under way.

        Example:
            >>> with studio.Feeder(file) as feeder:
            ...     node = feeder.next_issuable()
            ...     feeder.complete(node.id), feeder.next_issuable()
            ([2], FeederNode(2, 'step0.conv1.norm.fwd'))
        """
        self._take_issued(number)
        self._complete.add(number)
        freed = []
        for child in self._children.pop(number, ()):
            self._waits[child] -= 1
            if not self._waits[child]:
                del self._waits[child]
                heapq.heappush(self._ready, child)
                freed.append(child)
        return sorted(freed)

    def lookup(self, number: int) -> FeederNode:
        """Return a node that was read and is not complete.

        Raises:
            TraceError: There is none of that id.

        Example:
            >>> with studio.Feeder(file) as feeder:
            ...     first = feeder.next_issuable()
            ...     feeder.lookup(2), feeder.lookup(2).data_deps
            (FeederNode(2, 'step0.conv1.norm.fwd'), [1])
        """
        if number in self._issued:
            return self._issued[number]
        if number not in self._records:
            why = "it is complete" if number in self._complete else "no node of that id has been read"
            raise TraceError(
                f"{self._stream.name}: node {number} is not held: {why}.",
                hint="A node can be looked up from when it is read until it is complete.",
            )
        return FeederNode(number, self._records[number])

    def never_ready(self) -> list[NeverReady]:
        """Return the nodes that can never be issued, lowest id first; none before the file has been read to its end.

        They wait for each other, for ids that the file does not have, or for nodes of which one of both is true.

        Example:
            >>> from pathlib import Path
            >>> from studio.generation.cases import Sizes, select_cases, write_cases
            >>> faulty = write_cases(select_cases(["fault_self-loop"]), Path(tempfile.mkdtemp()), Sizes())
            >>> with studio.Feeder(faulty[0]) as feeder:
            ...     while node := feeder.next_issuable():
            ...         freed = feeder.complete(node.id)
            ...     feeder.never_ready()
            [NeverReady(id=2, name='comp_2', waits_for=(2,), missing=())]
        """
        if not self._stream.ended or self._ready or self._issued:
            return []
        stuck = []
        for number in sorted(self._records):
            node = FeederNode(number, self._records[number])
            waits = [
                other
                for other in dict.fromkeys((*node.ctrl_deps, *node.data_deps))
                if other not in self._complete
            ]
            missing = tuple(other for other in waits if other not in self._records)
            stuck.append(NeverReady(number, node.name, tuple(waits), missing))
        return stuck

    def _take_issued(self, number: int) -> FeederNode:
        """Return a node that was issued, which is not under way any more."""
        node = self._issued.pop(number, None)
        if node is None:
            raise TraceError(
                f"{self._stream.name}: node {number} is not under way.",
                hint="Nodes are under way from next_issuable to complete or push_back.",
            )
        return node

    def _read_on(self) -> None:
        """Read until enough nodes are held and there is one to issue, or the file has ended."""
        while not self._stream.ended and (
            len(self._records) + len(self._issued) < self._window or not (self._ready or self._issued)
        ):
            for chunk in self._stream.read():
                self._take(chunk)

    def _take(self, chunk: Chunk) -> None:
        """Hold the nodes of a chunk."""
        raw = chunk.raw.tobytes()
        ids: list[int] = chunk.ids.tolist()
        for number, begin, end in zip(ids, chunk.begin.tolist(), chunk.end.tolist(), strict=True):
            if number in self._records or number in self._issued:
                self._refuse_repeated(number)
            self._records[number] = raw[begin:end]
        again = self._complete.contain(chunk.ids)
        if again.any():
            self._refuse_repeated(int(chunk.ids[np.argmax(again)]))
        left = np.zeros(len(chunk), np.int64)
        for row, number in _iterate_unsatisfied(chunk, self._complete):
            self._children.setdefault(number, []).append(ids[row])
            left[row] += 1
        waits = left.tolist()
        for number, count in zip(ids, waits, strict=True):
            if count:
                self._waits[number] = count
            else:
                heapq.heappush(self._ready, number)

    def _refuse_repeated(self, number: int) -> None:
        raise TraceFormatError(
            f"{self._stream.name}: two nodes have the id {number}, so it is unknown which of them others wait for.",
            hint="`chakra-studio check FILE --repair OUT` gives repeated ids new numbers.",
        )

    def _explain_stuck(self) -> str:
        """Say which nodes can never be issued, and why."""
        stuck = self.never_ready()
        nodes = f"{len(stuck):,} nodes" if len(stuck) > 1 else "1 node"
        words = [f"{self._stream.name}: {nodes} can never be issued"]
        lacking = [node for node in stuck if node.missing]
        words += [
            f"node {node.id} ({node.name}) waits for {', '.join(map(str, node.missing[:_NAMED]))}, which the file does not have"
            for node in lacking[:_NAMED]
        ]
        if len(lacking) > _NAMED:
            words.append(f"{len(lacking) - _NAMED:,} more wait for missing nodes")
        circle = _find_cycle({node.id: node for node in stuck})
        if circle:
            shown = [*circle[:_NAMED], *(["…"] if len(circle) > _NAMED else []), circle[0]]
            words.append(f"nodes wait for each other: {' → '.join(map(str, shown))}")
        return f"{words[0]}: {'; '.join(words[1:])}."


def _iterate_unsatisfied(chunk: Chunk, complete: IdSet) -> Iterator[tuple[int, int]]:
    """Yield the record and the id of each dependency on a node that is not complete, each once."""
    if not len(chunk.deps):
        return
    open_ = ~complete.contain(chunk.deps)
    of, deps = chunk.dep_of[open_], chunk.deps[open_]
    order = np.lexsort((deps, of))
    of, deps = of[order], deps[order]
    new = np.append(True, (of[1:] != of[:-1]) | (deps[1:] != deps[:-1]))[: len(of)]
    yield from zip(of[new].tolist(), deps[new].tolist(), strict=True)


def _find_cycle(stuck: dict[int, NeverReady]) -> list[int]:
    """Return nodes that each wait for the next, and the last for the first; none where there are no such."""
    done: set[int] = set()
    for start in stuck:
        path: list[int] = []
        place: dict[int, int] = {}
        number: int | None = start
        while number is not None and number not in done:
            place[number] = len(path)
            path.append(number)
            done.add(number)
            number = next((other for other in stuck[number].waits_for if other in stuck), None)
            if number in place:
                return path[place[number] :]
    return []
