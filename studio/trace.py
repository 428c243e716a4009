"""The trace model: execution traces of all ranks of one job, in columns.

A `Trace` maps every rank to a `Graph`. Ranks whose graphs are equal up to the comm groups and peers they
name share one `Graph`: the values that differ are *slots* of the graph, and each `Rank` brings its own
values for them. A job of 1,024 equal ranks costs one graph and 1,024 short tuples.

Ragged data is values + offsets throughout; texts live once in the graph's `Strings`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from studio.distinct import find_distinct
from studio.errors import TraceError
from studio.notebook import exact_tuple, line, one_line, table
from studio.units import format_counted

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

NONE = -1
"""Stands for "not there" in columns of indices and of start times."""


class NodeType(IntEnum):
    """The type of a node. Files may use other numbers; they are kept and shown as `TYPE <n>`."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CollectiveType(IntEnum):
    """The collective a COMM_COLL node takes part in (attribute `comm_type`)."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


NEEDS_ALL = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK,
    CollectiveType.BARRIER,
)
"""Collectives that no member can leave before all have come."""


class ValueKind(IntEnum):
    """Type of an attribute's value. Numbers are the schema's field numbers; an even number is a list."""

    NONE = 0
    DOUBLE = 3
    DOUBLE_LIST = 4
    FLOAT = 5
    FLOAT_LIST = 6
    INT32 = 7
    INT32_LIST = 8
    INT64 = 9
    INT64_LIST = 10
    UINT32 = 11
    UINT32_LIST = 12
    UINT64 = 13
    UINT64_LIST = 14
    SINT32 = 15
    SINT32_LIST = 16
    SINT64 = 17
    SINT64_LIST = 18
    FIXED32 = 19
    FIXED32_LIST = 20
    FIXED64 = 21
    FIXED64_LIST = 22
    SFIXED32 = 23
    SFIXED32_LIST = 24
    SFIXED64 = 25
    SFIXED64_LIST = 26
    BOOL = 27
    BOOL_LIST = 28
    STRING = 29
    STRING_LIST = 30
    BYTES = 31
    BYTES_LIST = 32

    @property
    def is_list(self) -> bool:
        """Whether values of this kind are lists."""
        return self != ValueKind.NONE and self % 2 == 0


TEXT_KINDS = (ValueKind.STRING, ValueKind.STRING_LIST, ValueKind.BYTES, ValueKind.BYTES_LIST)
UNSIGNED_KINDS = (ValueKind.UINT64, ValueKind.UINT64_LIST, ValueKind.FIXED64, ValueKind.FIXED64_LIST)
INT_KINDS = tuple(k for k in ValueKind if ValueKind.INT32 <= k <= ValueKind.SFIXED64 and not k.is_list)


@lru_cache(maxsize=8)
def kind_table(kinds: tuple[ValueKind, ...]) -> Bool:
    """Return (256,) whether a kind, as stored in a column, is among `kinds`."""
    table = np.zeros(256, np.bool_)
    table[list(kinds)] = True
    return table


SLOT_KEYS = ("pg_name", "comm_group", "comm_src", "comm_dst")
"""Attributes whose scalar values may differ between ranks that share a graph: comm groups and peers."""

WAITS_FOR = "waits_for"
"""Attribute of a node of the host that is a call which waited, for the `device`: its time is what was left of it then."""

STEP = "ProfilerStep"
"""Annotations that start so, with a number behind, stand for a whole training step and take no time of their own: PyTorch's word."""

UNRECORDED_CALLS = "unrecorded_calls"
"""Metadata of a rank: how many of its collectives the recording lacks, or has without a time though they were made while it was recorded."""
TIMES_NOTICED = "times_noticed"
"""Metadata of a rank: how many of its operations are timed by when a watchdog looked, up to a tenth of a second late."""

LAUNCH_NS, LAUNCH_CALL_NS, LAUNCHED_BY = "launch_ns", "launch_call_ns", "launched_by"
"""Attributes of an operation of a device: how long before its start the call that launched it began, how long that call took,
and its name."""

GROUP_KEYS = ("pg_name", "comm_group")
"""Attributes that name a node's comm group; of both the first counts."""
PEER_KEYS = ("comm_src", "comm_dst")
"""Attributes that name the other rank of a message."""
GENERATED = "generated_by"
"""Metadata of a rank that was generated: what made it."""
RECIPE = "generated_from"
"""Metadata of a generated training job: model, ranks and options as JSON, from which it can be made again."""
WORLD = ""
"""Stands for the comm group of a node that names none: all ranks."""
WORLD_NAMES = (WORLD, "0")
"""How nodes name the group of all ranks: not at all, or by PyTorch's number for it."""

RANK_NAMES = ("rank", "global_rank", "rank_id")
"""Metadata of a rank that gives its number."""
ASSUMED = "assumed_from_rank"
"""Metadata of a rank that was not recorded: the rank whose recording it repeats."""

WITH_STACK = "with_stack"
"""Metadata of a rank that was recorded with Python stacks, which made it slower."""
DEVICE_NAME = "device_name"
"""Metadata of a rank that names the device it was recorded on."""
ASSUMED_STAGE = "assumed_stage"
"""Metadata of a rank in a pipeline stage of which no rank was recorded: how the stage was built, in words."""

COPY = -(2**31)
"""Stands beside the types of files for copies: memcpy and memset, which recorders and converters write as compute."""
_COPY_NAMES = (b"Memcpy", b"Memset", b"__amd_rocclr_copy", b"__amd_rocclr_fill", b"MEMORY_COPY_")
"""How profilers begin the names of copies that ran on a device."""
COPY_KINDS = ("memcpy", "memset")
"""What linking writes as `device_kind` of a copy."""

Scalar = int | float | bool | str | bytes
Value = Scalar | list[Scalar] | None
Level = Literal["error", "warning", "info"]


_PIECE_BYTES = 1 << 20
"""So much of a pool is looked through at a time."""


class Strings(Sequence[str]):
    """The distinct texts of a graph, stored as one block.

    P texts, B bytes. Texts are UTF-8; values of kind BYTES share the pool and may hold anything.

    Attributes:
        data: (B,) the texts, one after another.
        offsets: (P+1,) text i is data[offsets[i]:offsets[i+1]].
    """

    __slots__ = ("_found", "_holding", "data", "offsets")

    def __init__(self, data: UInt8, offsets: Int64) -> None:
        self.data = data
        self.offsets = offsets
        # A pool never changes, and every check and every reader of an attribute asks for the same few names.
        self._found: dict[str, int] = {}
        self._holding: dict[tuple[bytes, ...], Int64] = {}

    def __reduce__(self) -> tuple[type[Strings], tuple[UInt8, Int64]]:
        """Return what makes an equal pool in another process."""
        return Strings, (self.data, self.offsets)

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Strings:
        """Return the pool that holds `texts` in this order.

        Example:
            >>> list(Strings.of(["a", "bc"]))
            ['a', 'bc']
        """
        raw = [t.encode("utf-8", "surrogateescape") if isinstance(t, str) else t for t in texts]
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum([len(r) for r in raw], out=offsets[1:])
        return cls(np.frombuffer(b"".join(raw), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        """Return it in a line."""
        return line("Strings", [f"{len(self):,} texts", f"{len(self.data):,} bytes"])

    def raw(self, index: int) -> bytes:
        """Return text `index` as stored bytes."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # no one needs slices of a pool
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.raw(index).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        block = self.data.tobytes()
        bounds = self.offsets.tolist()
        for start, end in pairwise(bounds):
            yield block[start:end].decode("utf-8", "replace")

    def holding(self, letters: tuple[bytes, ...]) -> Int64:
        """Return the indices of the texts that hold any of some small letters, in either case, rising; perhaps others beside them.

        Looks through the pool once for each, which takes a hundredth of the time of a pattern on each text.

        Example:
            >>> Strings.of(["aten::mm", "ncclKernel", "RCCL"]).holding((b"ccl",)).tolist()
            [1, 2]
        """
        if letters not in self._holding:
            self._holding[letters] = self._look_for_letters(letters)
        return self._holding[letters]

    def _look_for_letters(self, letters: tuple[bytes, ...]) -> Int64:
        texts, more, places = self.data.data, max(map(len, letters)) - 1, []
        # Piece by piece, as a copy of all may be large.
        for begin in range(0, len(texts), _PIECE_BYTES):
            piece = bytes(texts[begin : begin + _PIECE_BYTES + more]).lower()
            for some in letters:
                places += [begin + found.start() for found in re.finditer(re.escape(some), piece)]
        return find_distinct(np.searchsorted(self.offsets, np.array(places, np.int64), "right") - 1)

    def find(self, text: str) -> int:
        """Return the index of `text`, or -1. Looks through the pool once for each text."""
        if text not in self._found:
            self._found[text] = self._look_for(text)
        return self._found[text]

    def _look_for(self, text: str) -> int:
        """Return the index of `text`, or -1. Compares only texts of equal length."""
        raw = text.encode("utf-8", "surrogateescape")
        alike = np.flatnonzero(np.diff(self.offsets) == len(raw))
        if len(alike) and raw:
            texts = self.data[self.offsets[alike, None] + np.arange(len(raw))]
            alike = alike[(texts == np.frombuffer(raw, np.uint8)).all(axis=1)]
        return int(alike[0]) if len(alike) else NONE


@dataclass(frozen=True, slots=True)
class Attributes:
    """Named values of the nodes of a graph, in the order of the file.

    N nodes, A attributes, L list items.

    Attributes:
        offsets: (N+1,) node i has attributes offsets[i]:offsets[i+1].
        key: (A,) name, index into the graph's strings.
        doc: (A,) doc string likewise, -1 where there is none.
        kind: (A,) a ValueKind.
        value: (A,) the scalar's bits; for text an index into the strings; for a list its first item;
            where `slot` is set the slot's number.
        length: (A,) items of a list, 0 for scalars.
        slot: (A,) whether the value is the rank's, see `Rank.slots`.
        items: (L,) values of lists, encoded as scalars are.
    """

    offsets: Int64
    key: Int32
    doc: Int32
    kind: UInt8
    value: Int64
    length: Int32
    slot: Bool
    items: Int64

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Which nodes each node waits for.

    N nodes, D dependencies, K of them dangling.

    Attributes:
        offsets: (N+1,) node i waits for rows[offsets[i]:offsets[i+1]].
        rows: (D,) the row waited for; a negative number -1-k stands for the k-th dangling id.
        dangling: (K,) ids that no node of the graph has, in order of appearance.
    """

    offsets: Int64
    rows: Int32
    dangling: UInt64

    __repr__ = one_line

    def of(self, row: int) -> Int32:
        """Return the rows node `row` waits for, dangling ones as negative numbers."""
        return self.rows[self.offsets[row] : self.offsets[row + 1]]


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of one rank, and of every rank with an equal graph.

    N nodes, S slots, U pieces of unknown fields.

    Attributes:
        id: (N,) id written in the file; usually, not necessarily, unique.
        type: (N,) a NodeType or whatever number the file holds.
        name: (N,) index into `strings`.
        start_ns: (N,) recorded start, -1 where the file has none.
        duration_ns: (N,) recorded duration; 0 also where the file has none.
        ctrl, data: control and data dependencies.
        io: (N, 6) or, where no node has any, (0, 6): values, shapes and types of the inputs, then of the
            outputs, as indices into `strings`; three times -1 where the node has no such message.
        attrs: attributes.
        slot_key: (S,) the attribute a slot belongs to, index into `strings`.
        extra_row: (U,) node that carries fields this version does not know ...
        extra: (U,) ... and their bytes, index into `strings`, to be written back as they are.
        strings: the texts all indices point to.
    """

    id: UInt64
    type: Int32
    name: Int32
    start_ns: Int64
    duration_ns: Int64
    ctrl: Dependencies
    data: Dependencies
    io: Int32
    attrs: Attributes
    slot_key: Int32
    extra_row: Int32
    extra: Int32
    strings: Strings

    def __len__(self) -> int:
        return len(self.id)

    def __repr__(self) -> str:
        """Return it in a line."""
        waits = len(self.ctrl.rows) + len(self.data.rows)
        return line(
            "Graph",
            [f"{len(self):,} nodes", f"{waits:,} dependencies", f"{len(self.attrs.key):,} attributes"],
        )

    def has_attribute(self, key: str) -> bool:
        """Whether any node has attribute `key`."""
        code = self.strings.find(key)
        return code != NONE and bool((self.attrs.key == code).any())

    def rows_with(self, key: str, among: Int64 | None = None) -> tuple[Int32, Int64]:
        """Return the rows and entries of attribute `key`.

        Args:
            key: Its name.
            among: (S,) the rows to look at, rising; all of them where none are given, which takes a look at every
                attribute of the graph.

        Returns:
            (M,) node rows, rising, and (M,) positions in the attribute columns.
        """
        code = self.strings.find(key)
        if among is not None:
            first = self.attrs.offsets[among].astype(np.int64)
            count = self.attrs.offsets[among + 1] - first
            before = np.cumsum(count) - count
            where = np.repeat(first - before, count) + np.arange(int(count.sum()))
            is_key = self.attrs.key[where] == code
            return np.repeat(among, count)[is_key].astype(np.int32), where[is_key]
        where = np.flatnonzero(self.attrs.key == code) if code != NONE else np.zeros(0, np.int64)
        rows = np.searchsorted(self.attrs.offsets, where, side="right") - 1
        return rows.astype(np.int32), where


def arrays(
    record: Graph | Attributes | Dependencies, prefix: str = ""
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Yield every array of a graph under a dotted name, in a fixed order.

    The one walk over the columns: storage, equality and size all use it.
    """
    for spec in fields(record):
        value = getattr(record, spec.name)
        if isinstance(value, (Attributes, Dependencies)):
            yield from arrays(value, f"{prefix}{spec.name}.")
        elif isinstance(value, Strings):
            yield f"{prefix}{spec.name}.data", value.data
            yield f"{prefix}{spec.name}.offsets", value.offsets
        else:
            yield prefix + spec.name, value


_BESIDE_IDS = attrgetter(*(spec.name for spec in fields(Graph) if spec.name != "id"))


def columns_beside_ids(graph: Graph) -> tuple[Any, ...]:
    """Return what a graph has apart from its ids, in the order of its fields."""
    columns: tuple[Any, ...] = _BESIDE_IDS(graph)
    return columns


def with_ids(graph: Graph, ids: UInt64) -> Graph:
    """Return a graph with other ids, which come first among its fields; there may be one for each of thousands of files."""
    return Graph(ids, *columns_beside_ids(graph))


def graph_from_arrays(columns: dict[str, NDArray[np.generic]]) -> Graph:
    """Return the graph whose `arrays` are `columns`."""
    nested: dict[str, dict[str, object]] = {}
    flat: dict[str, object] = {}
    for name, array in columns.items():
        head, _, tail = name.partition(".")
        if tail:
            nested.setdefault(head, {})[tail] = array
        else:
            flat[head] = array
    flat["io"] = np.asarray(flat["io"]).reshape(-1, 6)
    kinds = {"ctrl": Dependencies, "data": Dependencies, "attrs": Attributes, "strings": Strings}
    return Graph(**flat, **{name: kinds[name](**parts) for name, parts in nested.items()})  # type: ignore[arg-type]


def digest_array(array: NDArray[np.generic]) -> bytes:
    """Return a fingerprint of the numbers of an array."""
    return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).digest()


def digest(graph: Graph) -> bytes:
    """Return a fingerprint of a graph, equal for equal graphs."""
    state = hashlib.blake2b(digest_size=16)
    for name, array in arrays(graph):
        state.update(f"{name}{array.shape}{array.dtype.str}".encode())
        state.update(np.ascontiguousarray(array).data)
    return state.digest()


def digests(graph: Graph) -> tuple[bytes, bytes]:
    """Return fingerprints of a graph without its ids, and of these: both are equal for equal graphs."""
    return digest(replace(graph, id=graph.id[:0])), digest_array(graph.id)


def trace_digest(trace: Trace) -> str:
    """Return a fingerprint of a trace, equal for equal traces on any machine."""
    ranks, groups = trace.essence()
    # In full, whatever a line shows: what is cut off may be all that differs.
    text = f"({ranks!r}, {exact_tuple(groups)})"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute as readers of a trace use it: name, kind, value, doc string."""

    name: str
    kind: ValueKind
    value: Value
    doc: str = ""

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class CommGroup:
    """Ranks that communicate together, in ring order.

    Attributes:
        name: The name nodes refer to it by (`pg_name`).
        ranks: Rank numbers.
        inferred: Whether the members were derived from the nodes for lack of a written list.
    """

    name: str
    ranks: tuple[int, ...]
    inferred: bool = False

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that the reader noticed and the user should know.

    Attributes:
        level: How bad: `error` lost data, `warning` may mislead, `info` is worth knowing.
        code: Stable short name, e.g. `truncated`.
        message: What was found and where.
        hint: What to do about it.
        rank: The rank concerned, None for the job as a whole.
        file: Name of the file, empty where none is concerned.
        offset: Byte offset in the (uncompressed) file, -1 where there is none.
    """

    level: Level
    code: str
    message: str
    hint: str = ""
    rank: int | None = None
    file: str = ""
    offset: int = NONE

    __repr__ = one_line

    def _repr_html_(self) -> str:
        """Return it as a table."""
        where = "" if self.rank is None else f" of rank {self.rank}"
        rows = [("what", self.message), *([("advice", self.hint)] if self.hint else [])]
        return table(f"{self.level} {self.code}{where}", (), rows)


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of the job.

    Attributes:
        number: The rank's number.
        graph: Index into `Trace.graphs`.
        slots: The rank's values for its graph's slots.
        version: Schema version its file names.
        metadata: Attributes of the file's metadata record.
        extra: Fields of the metadata record this version does not know, as bytes.
        file: Name of the file it was read from.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> rank = trace.rank(3)
        >>> len(studio.to_pandas(trace, rank)) == len(trace.graph_of(rank))
        True
    """

    number: int
    graph: int
    slots: tuple[int | str, ...] = ()
    version: str = ""
    metadata: tuple[Attribute, ...] = ()
    extra: bytes = b""
    file: str = ""

    __repr__ = one_line

    def metadata_value(self, name: str, missing: Value = None) -> Value:
        """Return the first value of this name in the metadata; `missing` where there is none.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.ranks[0].metadata_value("schema", "none said")
            'chakra-studio-sample'
        """
        return next((item.value for item in self.metadata if item.name == name), missing)

    @property
    def lacks_calls(self) -> bool:
        """Whether its recording lacks some of its collectives, or has some without a time.

        Example:
            >>> import studio
            >>> studio.read(studio.sample_path("transformer_8r")).ranks[0].lacks_calls
            False
        """
        return self.metadata_number(UNRECORDED_CALLS) > 0

    def metadata_number(self, name: str) -> int:
        """Return a whole number from the metadata, -1 where there is none of that name.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.ranks[0].metadata_number("no such name")
            -1
        """
        value = self.metadata_value(name)
        return value if isinstance(value, int) else NONE


_BESIDE_PLACE = attrgetter(*(spec.name for spec in fields(Rank) if spec.name not in ("number", "graph")))


def place_rank(rank: Rank, number: int, graph: int) -> Rank:
    """Return a rank with another number and another graph, which come first among its fields; there may be thousands."""
    return Rank(number, graph, *_BESIDE_PLACE(rank))


def copied_metadata(like: Rank, number: int, source: int | None) -> tuple[Attribute, ...]:
    """Return the metadata of a rank that has the graph of another one.

    Args:
        like: The other rank.
        number: The rank's own number.
        source: The rank whose recording it repeats, None where it was recorded itself.
    """
    kept = tuple(
        replace(item, value=str(number) if isinstance(item.value, str) else number)
        if item.name in RANK_NAMES
        else item
        for item in like.metadata
        if item.name != ASSUMED and (item.name != ASSUMED_STAGE or source is not None)
    )
    return kept if source is None else (*kept, Attribute(ASSUMED, ValueKind.INT64, source))


def is_generated(rank: Rank) -> bool:
    """Return whether a rank was generated, so that its durations are of no recording."""
    return any(item.name == GENERATED for item in rank.metadata)


def assumed_from(rank: Rank) -> int | None:
    """Return the rank whose recording a rank repeats; None where it was recorded itself."""
    value = rank.metadata_value(ASSUMED)
    return value if isinstance(value, int) else None


def assumed_stage(rank: Rank) -> str:
    """Return how the pipeline stage of a rank was built where no rank of it was recorded; "" where one was."""
    return str(rank.metadata_value(ASSUMED_STAGE, ""))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Trace:
    """Execution traces of all ranks of one job. Immutable; passes return a new Trace.

    Attributes:
        graphs: The distinct graphs.
        ranks: The ranks present, by rising number.
        groups: Comm groups, in the order of their file, inferred ones last.
        findings: What the reader noticed.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> trace
        Trace(8 ranks, 8 graphs, 2,488 nodes, 13 comm groups, 0 findings)
        >>> trace.graph_of(3)
        Graph(297 nodes, 708 dependencies, 2,080 attributes)
    """

    graphs: tuple[Graph, ...]
    ranks: tuple[Rank, ...]
    groups: tuple[CommGroup, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), compare=False)

    def graph_of(self, rank: Rank | int) -> Graph:
        """Return the graph of a rank, given itself or by number.

        Raises:
            TraceError: There is no such rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.graph_of(3) is trace.graph_of(trace.ranks[3])
            True
        """
        return self.graphs[(rank if isinstance(rank, Rank) else self.known_rank(rank)).graph]

    def rank(self, number: int) -> Rank | None:
        """Return rank `number`, None where the job has no such rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.rank(3).number, trace.rank(99)
            (3, None)
        """
        return next((r for r in self.ranks if r.number == number), None)

    def known_rank(self, rank: Rank | int) -> Rank:
        """Return a rank, given itself or by number.

        Raises:
            TraceError: There is no such rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.known_rank(3) is trace.known_rank(trace.ranks[3])
            True
        """
        found = self.rank(int(rank.number if isinstance(rank, Rank) else rank))
        if found is None:
            listed = ", ".join(str(known.number) for known in self.ranks[:8])
            number = rank.number if isinstance(rank, Rank) else rank
            raise TraceError(
                f"The trace has no rank {number}.",
                hint=f"Its ranks are {listed}{', …' if len(self.ranks) > 8 else ''}.",
            )
        return found

    def group(self, name: str | None) -> CommGroup | None:
        """Return the listed comm group of a name, None where there is none.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.group("tp0")
            CommGroup(name='tp0', ranks=(0, 1), inferred=False)
        """
        return next((group for group in self.groups if group.name == name), None)

    def __repr__(self) -> str:
        """Return it in a line."""
        counts = {
            "rank": len(self.ranks),
            "graph": len(self.graphs),
            "node": self.node_count,
            "comm group": len(self.groups),
            "finding": len(self.findings),
        }
        return line("Trace", [format_counted(count, what) for what, count in counts.items()])

    def _repr_html_(self) -> str:
        """Return its ranks, types of nodes, and findings as tables."""
        uses = Counter(rank.graph for rank in self.ranks)
        types: Counter[str] = Counter()
        for index, ranks in uses.items():
            graph = self.graphs[index]
            gaps = graph.rows_with("gap")[0]
            gaps = gaps[graph.type[gaps] == NodeType.COMP]
            # Time in which nothing ran is written as compute: counted as such it would contradict every other account.
            types["gap"] += len(gaps) * ranks
            numbers, counts = np.unique(np.delete(shown_types(graph), gaps), return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                types[type_name(number)] += count * ranks
        ranks_of = [(rank.number, len(self.graphs[rank.graph]), rank.graph, rank.file) for rank in self.ranks]
        found = [(finding.level, finding.code, finding.message) for finding in self.findings]
        return (
            table(
                repr(self),
                ("type", "nodes"),
                [(kind, count) for kind, count in types.most_common() if count],
            )
            + table("Ranks", ("rank", "nodes", "graph", "file"), ranks_of)
            + (table("Findings of the readers", ("level", "code", "message"), found) if found else "")
        )

    @property
    def node_count(self) -> int:
        """Nodes of all ranks; shared graphs count once per rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.node_count == sum(len(trace.graph_of(rank)) for rank in trace.ranks)
            True
        """
        sizes = [len(g) for g in self.graphs]
        return sum(sizes[r.graph] for r in self.ranks)

    def __eq__(self, other: object) -> bool:
        """Equal where ranks, groups and every column agree; files and findings do not count."""
        if not isinstance(other, Trace):
            return NotImplemented
        return self.essence() == other.essence()

    def __hash__(self) -> int:
        return hash(self.essence())

    def essence(self) -> tuple[tuple[object, ...], tuple[CommGroup, ...]]:
        """Return what makes traces equal: ranks, graph fingerprints, and comm groups.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.essence() == studio.read(studio.sample_path("transformer_8r")).essence()
            True
        """
        marks = [digest(g) for g in self.graphs]
        ranks = tuple(
            (r.number, marks[r.graph], r.slots, r.version, exact_tuple(r.metadata), r.extra)
            for r in self.ranks
        )
        return ranks, self.groups


def decode_scalar(kind: ValueKind, bits: int, strings: Strings) -> Scalar:
    """Return the value that `bits` encode in a column of `kind`."""
    base = ValueKind(kind - 1) if kind.is_list else kind
    if base == ValueKind.STRING:
        return strings[bits]
    if base == ValueKind.BYTES:
        return strings.raw(bits)
    if base == ValueKind.BOOL:
        return bool(bits)
    if base == ValueKind.DOUBLE:
        return float(np.int64(bits).view(np.float64))
    if base == ValueKind.FLOAT:
        return float(np.uint32(bits & 0xFFFFFFFF).view(np.float32))
    return bits & 0xFFFF_FFFF_FFFF_FFFF if base in UNSIGNED_KINDS else bits


def decode_value(attrs: Attributes, index: int, strings: Strings, slots: Sequence[int | str]) -> Value:
    """Return the value of attribute `index` for the rank whose slot values are `slots`."""
    kind, bits = ValueKind(int(attrs.kind[index])), int(attrs.value[index])
    if kind == ValueKind.NONE:
        return None
    if attrs.slot[index]:
        return slots[bits]
    if kind.is_list:
        items = attrs.items[bits : bits + int(attrs.length[index])].tolist()
        return [decode_scalar(kind, item, strings) for item in items]
    return decode_scalar(kind, bits, strings)


def node_attributes(graph: Graph, row: int, slots: Sequence[int | str] = ()) -> list[Attribute]:
    """Return the attributes of node `row`, in file order, with the rank's values in the slots."""
    attrs, strings, attributes = graph.attrs, graph.strings, []
    for index in range(int(attrs.offsets[row]), int(attrs.offsets[row + 1])):
        doc = int(attrs.doc[index])
        attributes.append(
            Attribute(
                strings[int(attrs.key[index])],
                ValueKind(int(attrs.kind[index])),
                decode_value(attrs, index, strings, slots),
                strings[doc] if doc >= 0 else "",
            )
        )
    return attributes


def int_column(
    graph: Graph, key: str, slots: Sequence[int | str] = (), among: Int64 | None = None
) -> tuple[Int32, Int64]:
    """Return the integer values of attribute `key`, whatever integer width the file uses.

    Where a node carries the attribute more than once the last one counts; lists and texts do not. `among` is as in
    `Graph.rows_with`.

    Returns:
        (M,) node rows, rising and distinct, and (M,) values.
    """
    rows, where = graph.rows_with(key, among)
    keep = kind_table((*INT_KINDS, ValueKind.BOOL))[graph.attrs.kind[where]]
    rows, where = rows[keep], where[keep]
    values = graph.attrs.value[where].copy()
    bound = graph.attrs.slot[where]
    if bound.any():
        table = np.array([v - 2**64 if v >= 2**63 else v for v in map(_int_or_zero, slots)], np.int64)
        values[bound] = table[values[bound]]
    last = np.append(rows[1:] != rows[:-1], True) if len(rows) else np.zeros(0, bool)
    return rows[last], values[last]


def named_lanes(graph: Graph, key: str) -> tuple[Int32, Int64, list[str]]:
    """Return the rows that name a thread or a stream, (R,) which of those named it is, and their names.

    Args:
        graph: The graph.
        key: `tid` or `stream`, which are numbers, or `thread`, which is a text: profilers name threads, PyTorch's recorder numbers them.
            Where a rank has several devices, streams are named with theirs.
    """
    if key == "thread":
        rows, where = graph.rows_with(key)
        distinct, number = np.unique(graph.attrs.value[where], return_inverse=True)
        return rows, number, [graph.strings[text] for text in distinct.tolist()]
    rows, values = int_column(graph, key)
    device = (
        dense_column(graph, "device", NONE)[rows] if key == "stream" else np.full(len(rows), NONE, np.int64)
    )
    if len(find_distinct(device[device != NONE])) < 2:
        device[:] = NONE
    distinct, number = np.unique(np.stack([values, device]), axis=1, return_inverse=True)
    return rows, number, [stream_name(*one) for one in distinct.T.tolist()]


def stream_name(stream: int, device: int = NONE) -> str:
    """Return the name of a stream, with its device where that tells it apart.

    Example:
        >>> stream_name(25), stream_name(25, 3)
        ('25', '25 of device 3')
    """
    return str(stream) if device == NONE else f"{stream} of device {device}"


def _int_or_zero(value: int | str) -> int:
    return value if isinstance(value, int) else 0


def dense_column(graph: Graph, key: str, missing: int) -> Int64:
    """Return the (N,) integer values of attribute `key`, `missing` where a node has none."""
    column = np.full(len(graph), missing, np.int64)
    rows, values = int_column(graph, key)
    column[rows] = values
    return column


def is_flagged(graph: Graph, key: str) -> Bool:
    """Return (N,) which nodes have the attribute `key` with a value other than 0, such as `is_cpu_op`."""
    return np.asarray(dense_column(graph, key, 0) != 0)


def group_slots(graph: Graph) -> Int64:
    """Return (N,) the slot that holds the name of each node's comm group, -1 where the node names none."""
    slots = np.full(len(graph), NONE, np.int64)
    for key in reversed(GROUP_KEYS):
        rows, where = graph.rows_with(key)
        bound = graph.attrs.slot[where]
        slots[rows[bound]] = graph.attrs.value[where[bound]]
    return slots


def world_names(groups: Iterable[CommGroup], numbers: Iterable[int]) -> frozenset[str]:
    """Return the names that mean all ranks: "0" does, unless a list gives it other members.

    Args:
        groups: The comm groups that are listed.
        numbers: The numbers of all ranks.
    """
    zero = next((group for group in groups if group.name == "0"), None)
    own = zero is not None and not zero.inferred and set(zero.ranks) != set(numbers)
    return frozenset({WORLD} if own else WORLD_NAMES)


def dependency_ids(graph: Graph, deps: Dependencies) -> UInt64:
    """Return the (D,) ids of dependencies as written in the file, dangling ones included."""
    ids: UInt64 = np.empty(len(deps.rows), np.uint64)
    there = deps.rows >= 0
    ids[there] = graph.id[deps.rows[there]]
    ids[~there] = deps.dangling[-1 - deps.rows[~there]]
    return ids


def communicates(graph: Graph) -> Bool:
    """Return (N,) which nodes are collectives, or halves of messages."""
    return np.asarray((graph.type >= NodeType.COMM_SEND) & (graph.type <= NodeType.COMM_COLL))


def copies(graph: Graph) -> Bool:
    """Return (N,) which nodes are copies on a device: written as compute, a memcpy or memset by kind or by name."""
    chosen = np.zeros(len(graph), np.bool_)
    rows, where = graph.rows_with("device_kind")
    # Most graphs have neither, and np.isin imports masked arrays.
    if len(rows):
        words = [graph.strings.find(word) for word in COPY_KINDS]
        chosen[rows[np.isin(graph.attrs.value[where], [word for word in words if word != NONE])]] = True
    names = _copy_names(graph.strings)
    if len(names):
        chosen |= np.isin(graph.name, names)
    return _on_device(graph, chosen)


IDLE = "idle"
STALLED = "stall"
"""What `gap` says of time for which a stream stood idle although it had been given its next operation long before."""
IDLE_GAPS = (IDLE, STALLED)


def idles(graph: Graph, whys: Sequence[str] = IDLE_GAPS) -> Bool:
    """Return (N,) which nodes are time for which a stream of a device stood idle: written as compute, its `gap` being one of some words."""
    chosen = np.zeros(len(graph), np.bool_)
    rows, where = graph.rows_with("gap")
    for why in whys:
        idle = graph.strings.find(why)
        if idle != NONE:
            chosen[rows] |= graph.attrs.value[where] == idle
    return _on_device(graph, chosen)


ARRIVAL = "arrival"
"""What `gap` says of time for which an assumed rank is on the host before it comes to a collective."""


def assumed_arrivals(graph: Graph) -> Bool:
    """Return (N,) which nodes stand for the time before an assumed rank comes to a collective: nobody recorded it."""
    chosen = np.zeros(len(graph), np.bool_)
    why = graph.strings.find(ARRIVAL)
    if why != NONE:
        rows, where = graph.rows_with("gap")
        chosen[rows] = graph.attrs.value[where] == why
    return chosen


def device_waits(graph: Graph) -> Bool:
    """Return (N,) which nodes are calls of the host that waited for the device, without the time they waited."""
    chosen = np.zeros(len(graph), np.bool_)
    chosen[graph.rows_with(WAITS_FOR)[0]] = True
    return chosen


def _on_device(graph: Graph, chosen: Bool) -> Bool:
    """Return (N,) which of the nodes chosen are written as compute of a device."""
    chosen = chosen & (graph.type == NodeType.COMP)
    if chosen.any():
        rows, values = int_column(graph, "is_cpu_op", among=np.flatnonzero(chosen))
        chosen[rows[values != 0]] = False
    return chosen


def _copy_names(strings: Strings) -> list[int]:
    """Return the texts that begin as the names of copies do."""
    starts, ends = strings.offsets[:-1], strings.offsets[1:]
    # Of the first bytes of a million texts few are those of a copy: nothing else of the texts is read.
    there = np.flatnonzero(ends > starts)
    first = strings.data[starts[there]]
    found: list[int] = []
    for word in _COPY_NAMES:
        alike = there[first == word[0]]
        alike = alike[ends[alike] - starts[alike] >= len(word)]
        for place, byte in enumerate(word):
            alike = alike[strings.data[starts[alike] + place] == byte]
        found += alike.tolist()
    return found


def recorded_devices(trace: Trace) -> tuple[str, ...]:
    """Return the names of the devices that the ranks of a job were recorded on, those of most ranks first."""
    named = Counter(
        item.value
        for rank in trace.ranks
        for item in rank.metadata
        if item.name == DEVICE_NAME and isinstance(item.value, str) and item.value
    )
    return tuple(name for name, _ in named.most_common())


def without_starts(trace: Trace) -> Trace:
    """Return a job without the times at which its nodes began; how long they took stays.

    Of a job that never ran only a simulation says when nodes begin.
    """
    graphs = (replace(graph, start_ns=np.full_like(graph.start_ns, NONE)) for graph in trace.graphs)
    return replace(trace, graphs=tuple(graphs))


def shown_types(graph: Graph) -> Int32:
    """Return (N,) the types of nodes as they are shown: those of the file, but `COPY` for copies."""
    chosen = copies(graph)
    return np.where(chosen, np.int32(COPY), graph.type) if chosen.any() else graph.type


def shown_type(graph: Graph, row: int) -> int:
    """Return the type of one node as it is shown."""
    if graph.type[row] != NodeType.COMP:
        return int(graph.type[row])
    is_copy = graph.strings.raw(int(graph.name[row])).startswith(_COPY_NAMES)
    for index in range(int(graph.attrs.offsets[row]), int(graph.attrs.offsets[row + 1])):
        key = graph.strings.raw(int(graph.attrs.key[index]))
        if key == b"is_cpu_op" and graph.attrs.value[index]:
            return int(graph.type[row])
        is_copy |= key == b"device_kind" and decode_value(graph.attrs, index, graph.strings, ()) in COPY_KINDS
    return COPY if is_copy else int(graph.type[row])


def type_name(number: int) -> str:
    """Return the name of a node type, `TYPE 42` for numbers the schema does not define."""
    if number == COPY:
        return "COPY"
    return NodeType(number).name if number in NodeType._value2member_map_ else f"TYPE {number}"


def collective_name(number: int) -> str:
    """Return the name of a collective: `COLLECTIVE 42` for undefined numbers, a word where there is none."""
    if number == NONE:
        return "UNNAMED COLLECTIVE"
    known = number in CollectiveType._value2member_map_
    return CollectiveType(number).name if known else f"COLLECTIVE {number}"
