"""Fold a graph of any size into a tree of blocks that open in place, few at every depth.

A block holds the nodes that a level (see `levels`) does not tell apart; opened, it shows what the level, or the one
after it, tells apart within it. Where there are more kinds than a drawing has room for they are taken together in the
order in which they come, and where nothing tells nodes apart they are cut into equal runs of their order: every graph
folds to few blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from studio.analysis.graph.depth import Depths
from studio.analysis.graph.levels import Level, LevelName, Source, build_level
from studio.analysis.graph.neighbours import MOST_ELEMENTS, Adjacency, concatenate_ranges
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
_GAPS = ("host gap", "device gap", "itself")
"""Nodes that stand for time in which nothing was recorded, or for a call beside those within it."""
_LOOKED_AT = 50
"""Kinds of a run of which one that is no gap is looked for."""
_SEPARATORS: dict[LevelName, str] = {"scope": ".", "calls": " › "}

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes drawn as one block.

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
    """The content of an opened block.

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
    """The blocks of a graph by one level, computed as they are opened. Safe to share between threads."""

    def __init__(self, source: Source, depths: Depths, first: LevelName, then: Sequence[LevelName]) -> None:
        """Create a tree.

        Args:
            source: What the levels are made from.
            depths: Where the nodes lie.
            first: The level that is asked for.
            then: The levels that go on where it tells nothing apart any more.
        """
        self._source, self._depths = source, depths
        self._order = [first, *(level for level in then if level != first)]
        if "order" not in self._order:
            self._order.append("order")
        self._levels: dict[LevelName, Level] = {}
        self._children: dict[Path, Children] = {}
        self.root = Block((), "", np.arange(len(source.graph)), first)

    def children(self, block: Block) -> Children:
        """Return the content of a block, computing it at first use."""
        children = self._children.get(block.path)
        if children is None:
            blocks = self._split(block)
            children = Children(blocks, *_collect_lines_within(self._source.near, block, blocks))
            self._children[block.path] = children
        return children

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
        """Return the path of a node's own block."""
        block = self.root
        while not block.is_node:
            block = next(child for child in self.children(block).blocks if _holds(child, row))
        return block.path

    def first_place(self, block: Block) -> int:
        """Return the position of the block's first node."""
        return int(self._depths.place[block.rows].min())

    def to_begin_with(self) -> tuple[Path, ...]:
        """Return the blocks to open at first: those that hold much of the graph.

        Nothing where the level itself is what there is to see: phases, comm groups, types.
        """
        opened: list[Path] = []
        while self.root.level in _OPENED:
            shown, _ = self._list_visible(set(opened))
            large = [
                block.path
                for block in shown
                if len(block.rows) * _MUCH >= len(self.root.rows) and not block.is_node
            ]
            if len(shown) >= _FEW or not large or len(self._list_visible({*opened, *large})[0]) > _MANY:
                break
            opened += large
        return tuple(opened)

    def fold(self, opened: Sequence[Path]) -> Folded:
        """Return the graph with some blocks open; if they do not fit, the last ones stay closed.

        A block is open if those around it are.
        """
        wanted = list(opened)
        closed: list[Path] = []
        while True:
            shown, frames = self._list_visible(set(wanted))
            if len(shown) + len(frames) <= MOST_BLOCKS or not wanted:
                break
            # What was opened first goes first, but no block around a later one.
            last = wanted[-1]
            out = next((path for path in wanted if last[: len(path)] != path), wanted[0])
            wanted.remove(out)
            closed.append(out)
        of = np.zeros(len(self._source.graph), np.int32)
        for number, block in enumerate(shown):
            of[block.rows] = number
        return Folded(tuple(shown), tuple(frames), of, *self._collect_lines(of, shown, frames), tuple(closed))

    def _list_visible(self, opened: set[Path]) -> tuple[list[Block], list[Block]]:
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

    def _collect_lines(
        self, of: Int32, shown: list[Block], frames: list[Block]
    ) -> tuple[Int64, Int64, Int64, Int64, int]:
        edges = self._source.near.edges
        # Whatever leads from one that is drawn to another crosses within the root or within one that is open.
        crossing = np.concatenate([self.children(frame).crossing for frame in (self.root, *frames)])
        pair = of[edges.before[crossing]].astype(np.int64) * len(shown) + of[edges.after[crossing]]
        count = np.bincount(pair, minlength=len(shown) ** 2)
        data = np.bincount(pair[edges.is_data[crossing]], minlength=len(shown) ** 2)
        lines = np.flatnonzero(count)
        room = MOST_ELEMENTS - len(shown) - len(frames)
        left_out = max(0, len(lines) - room)
        if left_out:
            lines = np.sort(lines[np.argsort(-count[lines], kind="stable")[:room]])
        this, other = np.divmod(lines, max(len(shown), 1))
        return this, other, count[lines], data[lines], left_out

    # -----------------------------------------------------------------------------------------------

    def _split(self, block: Block) -> tuple[Block, ...]:
        """Return the children of a block, by their first nodes."""
        rows, place = block.rows, self._depths.place
        if len(rows) <= MOST_CHILDREN:
            order = rows[np.argsort(place[rows], kind="stable")]
            return tuple(
                Block((*block.path, place), "", order[place : place + 1], block.level)
                for place in range(len(rows))
            )
        name, depth, keys = self._find_next_level(rows, block.level, block.depth)
        if name == "order":
            return self._split_into_runs(block)
        shared = [
            self._get_level(name).label(int(rows[0]), depth_of) for depth_of in range(block.depth, depth)
        ]
        prefix = "" if name != block.level else "".join(f"{label}{_SEPARATORS[name]}" for label in shared)
        return self._split_by_key(block, prefix, name, depth, keys)

    def _find_next_level(self, rows: Int64, name: LevelName, depth: int) -> tuple[LevelName, int, Int64]:
        """Return the next level and depth at which rows differ, with their keys."""
        while name != "order":
            level = self._get_level(name)
            while True:
                keys = level.keys(rows, depth)
                if len(keys) and (keys != keys[0]).any():
                    return name, depth, keys
                if level.flat or keys[0] < 0:
                    break
                depth += 1
            name, depth = self._order[self._order.index(name) + 1], 0
        return name, 0, np.zeros(len(rows), np.int64)

    def _get_level(self, name: LevelName) -> Level:
        if name not in self._levels:
            self._levels[name] = build_level(self._source, name)
        return self._levels[name]

    def _split_by_key(
        self, block: Block, prefix: str, name: LevelName, depth: int, keys: Int64
    ) -> tuple[Block, ...]:
        """Return a block per key, or per run of keys where there are too many; all names get a prefix."""
        kind, kinds, first = _number_by_appearance(keys, self._depths.place[block.rows])
        if kinds > MOST_CHILDREN:
            run = np.arange(kinds) * RUNS // kinds
            ends = np.flatnonzero(np.diff(np.append(run, RUNS)))
            starts = np.append(0, ends[:-1] + 1)
            parts = _split_rows(block.rows, run[kind], RUNS)
            label = self._get_level(name).label
            rows = block.rows[first]
            names = [
                _label_run(lambda row: label(row, depth), rows[low : high + 1].tolist())
                for low, high in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
            following: list[tuple[LevelName, int]] = [(name, depth)] * RUNS
        else:
            parts = _split_rows(block.rows, kind, kinds)
            named = [self._describe_key(rows, name, depth) for rows in parts]
            names, following = [entry[0] for entry in named], [entry[1] for entry in named]
        return tuple(
            Block((*block.path, number), prefix + label, rows, *after)
            for number, (label, rows, after) in enumerate(zip(names, parts, following, strict=True))
        )

    def _describe_key(self, rows: Int64, name: LevelName, depth: int) -> tuple[str, tuple[LevelName, int]]:
        """Return the common name of nodes of one key, and the level and depth at which they differ next."""
        level = self._get_level(name)
        text = level.label(int(rows[0]), depth)
        if level.flat:
            return text, (self._order[self._order.index(name) + 1], 0)
        if len(rows) > _PEEKED_AT_MOST or level.keys(rows[:1], depth)[0] < 0:
            return text, (name, depth + 1)
        while len(rows) > 1:
            keys = level.keys(rows, depth + 1)
            if keys[0] < 0 or (keys != keys[0]).any():
                break
            depth += 1
            text += f"{_SEPARATORS[name]}{level.label(int(rows[0]), depth)}"
        return text, (name, depth + 1)

    def _split_into_runs(self, block: Block) -> tuple[Block, ...]:
        """Divide the nodes, in order, into runs of equal length."""
        order = block.rows[np.argsort(self._depths.place[block.rows], kind="stable")]
        bounds = np.linspace(0, len(order), RUNS + 1).astype(np.int64).tolist()
        return tuple(
            Block((*block.path, number), f"{low + 1:,} to {high:,}", np.sort(order[low:high]), "order")
            for number, (low, high) in enumerate(pairwise(bounds))
        )


def _holds(block: Block, row: int) -> bool:
    place = int(np.searchsorted(block.rows, row))
    return place < len(block.rows) and int(block.rows[place]) == row


def _label_run(label: Callable[[int], str], rows: Sequence[int]) -> str:
    """Name a run of kinds by the first and the last of them, gaps of recordings left out where there is something else near.

    Args:
        label: Names a row.
        rows: One row of each kind, in order.

    Example:
        >>> _label_run(["host gap", "aten::mm", "aten::add", "host gap"].__getitem__, range(4))
        'aten::mm to aten::add'
    """
    low, high = _label_first(label, rows), _label_first(label, rows[::-1])
    return low if low == high else f"{low} to {high}"


def _label_first(label: Callable[[int], str], rows: Sequence[int]) -> str:
    """Return the name of the first row that is no gap, or of the first one."""
    first = label(rows[0])
    if first not in _GAPS:
        return first
    later = (label(row) for row in rows[1:_LOOKED_AT])
    return next((name for name in later if name not in _GAPS), first)


def _number_by_appearance(keys: Int64, place: Int64) -> tuple[Int64, int, Int64]:
    """Number keys from 0 by first appearance; return numbers, how many, and each key's first position."""
    least = int(keys.min(initial=0))
    if int(keys.max(initial=0)) - least <= 4 * len(keys):
        code, codes = keys - least, int(keys.max(initial=0)) - least + 1
    else:
        distinct, code = np.unique(keys, return_inverse=True)
        codes = len(distinct)
    never = np.iinfo(np.int64).max
    earliest = np.full(codes, never)
    np.minimum.at(earliest, code, place)
    seen = np.flatnonzero(earliest != never)
    order = seen[np.argsort(earliest[seen], kind="stable")]
    number = np.empty(codes, np.int64)
    number[order] = np.arange(len(order))
    at_place = np.flatnonzero(place == earliest[code])
    first = np.zeros(len(order), np.int64)
    first[number[code[at_place]]] = at_place
    return number[code], len(order), first


def _split_rows(rows: Int64, part: Int64, count: int) -> list[Int64]:
    """Return the rows of each part, sorted."""
    # Numbers of 16 bits are sorted in one pass.
    part = part.astype(np.int16) if count < np.iinfo(np.int16).max else part
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[order], np.arange(count + 1))
    return [
        rows[order[low:high]] for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]


def _collect_lines_within(
    near: Adjacency, block: Block, blocks: Sequence[Block]
) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the dependencies between children of a block: from, to, how many, and which."""
    child = np.full(len(near), -1, np.int32)
    for number, block_of in enumerate(blocks):
        child[block_of.rows] = number
    whole = len(block.rows) == len(near)
    crossing = np.arange(len(near.edges)) if whole else concatenate_ranges(near.up, block.rows)
    before, after = child[near.edges.before[crossing]], child[near.edges.after[crossing]]
    apart = (before >= 0) & (after >= 0) & (before != after)
    pair = before[apart].astype(np.int64) * len(blocks) + after[apart]
    count = np.bincount(pair, minlength=len(blocks) ** 2)
    lines = np.flatnonzero(count).astype(np.int64)
    this, other = np.divmod(lines, max(len(blocks), 1))
    return this, other, count[lines].astype(np.int64), crossing[apart]
