"""A graph of any size as a tree of blocks that open in place, few at every depth.

A block holds the nodes that a level (see `levels`) does not tell apart; opened, it shows what the level, or the one
after it, tells apart within it. Where there are more kinds than a drawing has room for they are taken together in the
order in which they come, and where nothing tells nodes apart they are cut into equal runs of their order: every graph
folds to few blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from studio.analysis.depth import Depths
from studio.analysis.levels import Level, LevelName, Source, level
from studio.analysis.neighbours import MOST_ELEMENTS, Adjacency, ranges
from studio.trace import Int32, Int64

MOST_CHILDREN = 48
"""What a block shows at most when it is opened."""
RUNS = 24
"""Into how many parts it falls where it has more."""
MOST_BLOCKS = 700
"""Blocks and nodes drawn at once; the rest of what can be drawn is left to the lines between them."""
_FEW, _MANY, _MUCH = 8, 100, 5
"""Where there are fewer blocks those that hold a fifth of all nodes are open from the beginning, if it does not get many."""
_OPENED: tuple[LevelName, ...] = ("step", "scope", "calls")
_PEEKED_AT_MOST = 200_000
_SEPARATORS: dict[LevelName, str] = {"scope": ".", "calls": " › "}

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Some nodes drawn as one.

    Attributes:
        path: Which child of which child of the whole graph.
        name: What its nodes have in common; of a single node "".
        rows: (R,) its nodes, rising.
        level: What tells nodes within it apart next, "" within a block that shows its nodes.
        depth: At which depth of the level.
    """

    path: Path
    name: str
    rows: Int64
    level: LevelName
    depth: int = 0

    @property
    def is_node(self) -> bool:
        """Whether it is one node."""
        return len(self.rows) == 1 and bool(self.path)


@dataclass(frozen=True, slots=True)
class Children:
    """What a block shows when it is opened.

    C children, L lines between them, E dependencies that lead from one to another.

    Attributes:
        blocks: In the order in which their first nodes come.
        before, after: (L,) indices into `blocks` of those between which dependencies lead ...
        count: (L,) ... and how many.
        crossing: (E,) the dependencies, places in the edges of the graph.
    """

    blocks: tuple[Block, ...]
    before: Int64
    after: Int64
    count: Int64
    crossing: Int64


@dataclass(frozen=True, slots=True)
class Folded:
    """A graph with some blocks open.

    N nodes, V blocks and single nodes that are drawn, L lines.

    Attributes:
        shown: What is drawn.
        frames: The blocks that are open, outer ones first.
        of: (N,) index into `shown` of what stands for each node.
        before, after: (L,) indices into `shown`.
        count, data_count: (L,) dependencies a line stands for, and how many of them are of data.
        lines_left_out: Lines that did not fit; those that stand for the fewest dependencies.
        closed: Blocks that were asked to be open and are not, because they did not fit.
    """

    shown: tuple[Block, ...]
    frames: tuple[Block, ...]
    of: Int32
    before: Int64
    after: Int64
    count: Int64
    data_count: Int64
    lines_left_out: int
    closed: tuple[Path, ...]


class BlockTree:
    """The blocks of a graph by one level, worked out as they are opened. Threads may share one."""

    def __init__(self, source: Source, depths: Depths, first: LevelName, then: Sequence[LevelName]) -> None:
        """Begin a tree.

        Args:
            source: What the levels are made from.
            depths: Where the nodes lie.
            first: The level that is asked for.
            then: The levels that go on where it tells nothing apart any more.
        """
        self._source, self._depths = source, depths
        self._order = [first, *(one for one in then if one != first)]
        if "order" not in self._order:
            self._order.append("order")
        self._levels: dict[LevelName, Level] = {}
        self._children: dict[Path, Children] = {}
        self.root = Block((), "", np.arange(len(source.graph)), first)

    def children(self, block: Block) -> Children:
        """Return what a block shows when it is opened."""
        found = self._children.get(block.path)
        if found is None:
            blocks = self._split(block)
            found = Children(blocks, *_lines_within(self._source.near, block, blocks))
            self._children[block.path] = found
        return found

    def find(self, path: Path) -> Block | None:
        """Return the block at a path, None where there is none."""
        block = self.root
        for number in path:
            blocks = self.children(block).blocks if not block.is_node else ()
            if not 0 <= number < len(blocks):
                return None
            block = blocks[number]
        return block

    def path_of(self, row: int) -> Path:
        """Return the path of the block that is the node alone."""
        block = self.root
        while not block.is_node:
            block = next(one for one in self.children(block).blocks if _holds(one, row))
        return block.path

    def first_place(self, block: Block) -> int:
        """Return the place of the node of a block that comes first."""
        return int(self._depths.place[block.rows].min())

    def to_begin_with(self) -> tuple[Path, ...]:
        """Return what to open so that the first drawing tells something: what holds much of the graph.

        Nothing where the level itself is what there is to see: phases, comm groups, types.
        """
        opened: list[Path] = []
        while self.root.level in _OPENED:
            shown, _ = self._shown(set(opened))
            large = [
                one.path for one in shown if len(one.rows) * _MUCH >= len(self.root.rows) and not one.is_node
            ]
            if len(shown) >= _FEW or not large or len(self._shown({*opened, *large})[0]) > _MANY:
                break
            opened += large
        return tuple(opened)

    def folded(self, opened: Sequence[Path]) -> Folded:
        """Return the graph with some blocks open; if they do not fit, with those named last.

        A block is open if those around it are.
        """
        wanted = list(opened)
        closed: list[Path] = []
        while True:
            shown, frames = self._shown(set(wanted))
            if len(shown) + len(frames) <= MOST_BLOCKS or not wanted:
                break
            # What was opened first goes first, but no block around a later one.
            last = wanted[-1]
            out = next((one for one in wanted if last[: len(one)] != one), wanted[0])
            wanted.remove(out)
            closed.append(out)
        of = np.zeros(len(self._source.graph), np.int32)
        for at, block in enumerate(shown):
            of[block.rows] = at
        return Folded(tuple(shown), tuple(frames), of, *self._lines(of, shown, frames), tuple(closed))

    def _shown(self, opened: set[Path]) -> tuple[list[Block], list[Block]]:
        shown: list[Block] = []
        frames: list[Block] = []

        def visit(block: Block) -> None:
            for child in self.children(block).blocks:
                if child.path in opened and not child.is_node:
                    frames.append(child)
                    visit(child)
                else:
                    shown.append(child)

        if len(self.root.rows):
            visit(self.root)
        return shown, frames

    def _lines(
        self, of: Int32, shown: list[Block], frames: list[Block]
    ) -> tuple[Int64, Int64, Int64, Int64, int]:
        edges = self._source.near.edges
        # Whatever leads from one that is drawn to another crosses within the root or within one that is open.
        at = np.concatenate([self.children(one).crossing for one in (self.root, *frames)])
        pair = of[edges.before[at]].astype(np.int64) * len(shown) + of[edges.after[at]]
        count = np.bincount(pair, minlength=len(shown) ** 2)
        data = np.bincount(pair[edges.is_data[at]], minlength=len(shown) ** 2)
        lines = np.flatnonzero(count)
        room = MOST_ELEMENTS - len(shown) - len(frames)
        left_out = max(0, len(lines) - room)
        if left_out:
            lines = np.sort(lines[np.argsort(-count[lines], kind="stable")[:room]])
        one, other = np.divmod(lines, max(len(shown), 1))
        return one, other, count[lines], data[lines], left_out

    # -----------------------------------------------------------------------------------------------

    def _split(self, block: Block) -> tuple[Block, ...]:
        """Return the children of a block, in the order in which their first nodes come."""
        rows, place = block.rows, self._depths.place
        if len(rows) <= MOST_CHILDREN:
            order = rows[np.argsort(place[rows], kind="stable")]
            return tuple(
                Block((*block.path, at), "", order[at : at + 1], block.level) for at in range(len(rows))
            )
        name, depth, keys = self._telling(rows, block.level, block.depth)
        if name == "order":
            return self._runs(block)
        shared = [self._level(name).label(int(rows[0]), at) for at in range(block.depth, depth)]
        prefix = "" if name != block.level else "".join(f"{one}{_SEPARATORS[name]}" for one in shared)
        return self._kinds(block, prefix, name, depth, keys)

    def _telling(self, rows: Int64, name: LevelName, depth: int) -> tuple[LevelName, int, Int64]:
        """Return the next level and depth that tells rows apart, from a level and depth on, and their keys there."""
        while name != "order":
            one = self._level(name)
            while True:
                keys = one.keys(rows, depth)
                if len(keys) and (keys != keys[0]).any():
                    return name, depth, keys
                if one.flat or keys[0] < 0:
                    break
                depth += 1
            name, depth = self._order[self._order.index(name) + 1], 0
        return name, 0, np.zeros(len(rows), np.int64)

    def _level(self, name: LevelName) -> Level:
        if name not in self._levels:
            self._levels[name] = level(self._source, name)
        return self._levels[name]

    def _kinds(
        self, block: Block, prefix: str, name: LevelName, depth: int, keys: Int64
    ) -> tuple[Block, ...]:
        """Return a block for every key, or for runs of keys where they are too many; all names begin with a prefix."""
        kind, kinds, first = _numbered(keys, self._depths.place[block.rows])
        if kinds > MOST_CHILDREN:
            run = np.arange(kinds) * RUNS // kinds
            ends = np.flatnonzero(np.diff(np.append(run, RUNS)))
            starts = np.append(0, ends[:-1] + 1)
            parts = _parts(block.rows, run[kind], RUNS)
            label = self._level(name).label
            names = [
                _range(label(int(block.rows[first[low]]), depth), label(int(block.rows[first[high]]), depth))
                for low, high in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
            following: list[tuple[LevelName, int]] = [(name, depth)] * RUNS
        else:
            parts = _parts(block.rows, kind, kinds)
            named = [self._named(rows, name, depth) for rows in parts]
            names, following = [one[0] for one in named], [one[1] for one in named]
        return tuple(
            Block((*block.path, at), prefix + one, rows, *after)
            for at, (one, rows, after) in enumerate(zip(names, parts, following, strict=True))
        )

    def _named(self, rows: Int64, name: LevelName, depth: int) -> tuple[str, tuple[LevelName, int]]:
        """Return what nodes of one key are called, with the parts that all of them share, and what tells them apart next."""
        one = self._level(name)
        text = one.label(int(rows[0]), depth)
        if one.flat:
            return text, (self._order[self._order.index(name) + 1], 0)
        if len(rows) > _PEEKED_AT_MOST or one.keys(rows[:1], depth)[0] < 0:
            return text, (name, depth + 1)
        while len(rows) > 1:
            keys = one.keys(rows, depth + 1)
            if keys[0] < 0 or (keys != keys[0]).any():
                break
            depth += 1
            text += f"{_SEPARATORS[name]}{one.label(int(rows[0]), depth)}"
        return text, (name, depth + 1)

    def _runs(self, block: Block) -> tuple[Block, ...]:
        """Return equal runs of the nodes in their order."""
        order = block.rows[np.argsort(self._depths.place[block.rows], kind="stable")]
        bounds = np.linspace(0, len(order), RUNS + 1).astype(np.int64).tolist()
        return tuple(
            Block((*block.path, at), f"{low + 1:,} to {high:,}", np.sort(order[low:high]), "order")
            for at, (low, high) in enumerate(pairwise(bounds))
        )


def _holds(block: Block, row: int) -> bool:
    at = int(np.searchsorted(block.rows, row))
    return at < len(block.rows) and int(block.rows[at]) == row


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _numbered(keys: Int64, place: Int64) -> tuple[Int64, int, Int64]:
    """Return keys as numbers from 0 in the order in which they come first, how many, and where each comes first."""
    distinct, inverse = np.unique(keys, return_inverse=True)
    earliest = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(earliest, inverse, place)
    order = np.argsort(earliest, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    at_place = np.flatnonzero(place == earliest[inverse])
    first = np.zeros(len(distinct), np.int64)
    first[number[inverse[at_place]]] = at_place
    return number[inverse], len(distinct), first


def _parts(rows: Int64, part: Int64, count: int) -> list[Int64]:
    """Return the rows of each part, rising."""
    # Numbers of 16 bits are sorted in one pass.
    part = part.astype(np.int16) if count < np.iinfo(np.int16).max else part
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[order], np.arange(count + 1))
    return [
        rows[order[low:high]] for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]


def _lines_within(
    near: Adjacency, block: Block, blocks: Sequence[Block]
) -> tuple[Int64, Int64, Int64, Int64]:
    """Return between which children of a block dependencies lead, how many, and which these are."""
    child = np.full(len(near), -1, np.int32)
    for number, block_of in enumerate(blocks):
        child[block_of.rows] = number
    whole = len(block.rows) == len(near)
    at = np.arange(len(near.edges)) if whole else ranges(near.up, block.rows)
    before, after = child[near.edges.before[at]], child[near.edges.after[at]]
    apart = (before >= 0) & (after >= 0) & (before != after)
    pair = before[apart].astype(np.int64) * len(blocks) + after[apart]
    count = np.bincount(pair, minlength=len(blocks) ** 2)
    lines = np.flatnonzero(count).astype(np.int64)
    one, other = np.divmod(lines, max(len(blocks), 1))
    return one, other, count[lines].astype(np.int64), at[apart]
