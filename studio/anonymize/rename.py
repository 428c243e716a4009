"""Make an anonymous job of a job: texts by policy, numbers by scaling; the structure stays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from studio.anonymize.numbers import Scaling
from studio.anonymize.policy import (
    ADDRESSES,
    GROUPS,
    KEPT_METADATA,
    OWN_TIMES,
    STANDARD,
    TERMS,
    TEXTS,
    Action,
    Policy,
)
from studio.anonymize.pools import PoolReader
from studio.anonymize.words import Renamer
from studio.columns import group_places
from studio.et.columns import Texts
from studio.trace import (
    GENERATED,
    INT_KINDS,
    NONE,
    Attribute,
    Attributes,
    CommGroup,
    Graph,
    Int32,
    Int64,
    NodeType,
    Rank,
    Scalar,
    Trace,
    ValueKind,
    are_copies,
    build_kind_table,
)

_SIZE = re.compile(r"\d+(\.\d*)?")
_SCHEMA = re.compile(r"[\d.]+(-chakra\.[\d.]+)?|symbolic_tensor_network")
_VERSION = re.compile(r"[\d.]{0,12}")
_NUMBER_NAME = re.compile(r"\d{0,6}")
_INTS = build_kind_table((*INT_KINDS, *(ValueKind(kind + 1) for kind in INT_KINDS)))
_STRING_LIST, _BYTES_LIST = int(ValueKind.STRING_LIST), int(ValueKind.BYTES_LIST)
_TEXT_KINDS = (ValueKind.STRING, ValueKind.STRING_LIST)


@dataclass(frozen=True, slots=True)
class Anonymous:
    """An anonymous job.

    Attributes:
        trace: The job.
        changed: How many entries of what kind were renamed or dropped.
        kept: Public terms that stayed in names, and how often.
    """

    trace: Trace
    changed: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)


def anonymize_job(trace: Trace, policy: Policy, scaling: Scaling, renamer: Renamer) -> Anonymous:
    """Return the job without what the policy takes out of it.

    Ranks, nodes, ids, types, dependencies, comm groups' members, kinds of collectives and peers stay. Recorded times begin at 0.
    """
    work = _Work(policy, scaling, renamer, _find_origin(trace))
    graphs = tuple(work.graph(graph) for graph in trace.graphs)
    ranks = tuple(work.rank(rank, trace.graph_of(rank)) for rank in trace.ranks)
    groups = tuple(CommGroup(work.group(group.name), group.ranks, group.inferred) for group in trace.groups)
    return Anonymous(Trace(graphs, ranks, groups), dict(work.changed), dict(renamer.stayed))


def _find_origin(trace: Trace) -> int:
    """Return the first recorded start of all ranks, 0 where there is none."""
    first = [
        int(graph.start_ns[graph.start_ns >= 0].min())
        for graph in trace.graphs
        if (graph.start_ns >= 0).any()
    ]
    return min(first, default=0)


class _Work:
    """The changes to one job."""

    def __init__(self, policy: Policy, scaling: Scaling, renamer: Renamer, origin_ns: int) -> None:
        self.policy, self.scaling, self.renamer, self.origin_ns = policy, scaling, renamer, origin_ns
        self.changed: Counter[str] = Counter()
        self.addresses: dict[int, int] = {}
        self.reader = PoolReader()

    # -----------------------------------------------------------------------------------------------
    # Texts

    def text(self, action: Action, text: str, what: str) -> str:
        """Return what becomes of a text."""
        if action == "keep" or not text:
            return text
        if action == "drop":
            return ""
        return self.renamer.words(text) if action == "words" else f"{what}_{self.renamer.word(text, what)}"

    def group(self, name: str) -> str:
        """Return the new name of a comm group; numbers say nothing and stay."""
        if self.policy["groups"] == "keep" or _NUMBER_NAME.fullmatch(name):
            return name
        return f"group_{self.renamer.word(name, 'group')}"

    def key(self, name: str) -> str | None:
        """Return the new name of an attribute, None where it is dropped."""
        if name in OWN_TIMES:
            return None
        if name in STANDARD or self.policy["own"] == "keep":
            return name
        return None if self.policy["own"] == "drop" else f"own_{self.renamer.word(name, 'attribute')}"

    def value(self, key: str, text: str) -> str:
        """Return what becomes of a text in an attribute."""
        if key in GROUPS:
            return self.group(text)
        if key in TERMS:
            return self.renamer.words(text)
        if key in TEXTS:
            if self.policy["texts"] != "drop" and key in ("inputs", "outputs") and _SIZE.fullmatch(text):
                return self._scale_size(text)
            action = self.policy["texts"]
            # Threads are told apart by their names.
            return self.text("rename" if key == "thread" and action == "drop" else action, text, key)
        return self.text(self.policy["own"], text, "text")

    def _scale_size(self, text: str) -> str:
        """Return bytes of a tensor that a generator wrote as a text."""
        return text if self.scaling.bytes == 1.0 else str(round(float(text) * self.scaling.bytes))

    # -----------------------------------------------------------------------------------------------
    # Graphs

    def graph(self, graph: Graph) -> Graph:
        """Return an anonymous graph."""
        pool, strings = Texts(), self.reader.read(graph.strings)
        name = self._change_names(graph, strings, pool)
        attrs = self._change_attributes(graph, strings, pool)
        io = self._change_io(graph, strings, pool)
        slot_key = np.array([pool.code(strings[code]) for code in graph.slot_key.tolist()], np.int32)
        if len(graph.extra_row):
            self.changed["unknown fields dropped"] += len(graph.extra_row)
        start = np.where(graph.start_ns >= 0, graph.start_ns - self.origin_ns, NONE)
        empty = np.zeros(0, np.int32)
        return Graph(
            graph.id,
            graph.type,
            name,
            self.scaling.scale_times(start, duration=False),
            self.scaling.scale_times(graph.duration_ns, duration=True),
            graph.ctrl,
            graph.data,
            io,
            attrs,
            slot_key,
            empty,
            empty,
            pool.strings(),
        )

    def _change_names(self, graph: Graph, strings: Sequence[str], pool: Texts) -> Int32:
        action = self.policy["names"]
        copied = are_copies(graph)
        distinct, back = np.unique(
            np.stack((graph.name.astype(np.int64), graph.type.astype(np.int64) * 2 + copied)),
            axis=1,
            return_inverse=True,
        )
        codes = []
        for code, kind in distinct.T.tolist():
            old = strings[code]
            new = self.text(action, old, _type_word(kind >> 1))
            if kind & 1 and action in ("rename", "drop"):
                # Copies are known by how their names begin.
                new = f"Memcpy {new}".strip()
            self.changed[
                "different names of nodes renamed" if new else "different names of nodes dropped"
            ] += new != old
            codes.append(pool.code(new))
        return np.array(codes, np.int32)[back.reshape(-1)] if codes else graph.name

    def _change_attributes(self, graph: Graph, strings: Sequence[str], pool: Texts) -> Attributes:
        attrs = graph.attrs
        stays = np.full(len(attrs.key), True)
        value, items, kind = attrs.value.copy(), attrs.items.copy(), attrs.kind
        key = np.zeros(len(attrs.key), np.int32)
        for code, where in group_places(attrs.key):
            old = strings[code]
            new = self.key(old)
            if new is None:
                stays[where] = False
                self.changed["own attributes dropped"] += len(where) * (old not in OWN_TIMES)
                continue
            self.changed["own attributes renamed"] += len(where) * (new != old)
            key[where] = pool.code(new)
            self._change_values(strings, pool, old, (attrs, where), (value, items))
        owner = np.repeat(np.arange(len(graph)), np.diff(attrs.offsets))[stays]
        offsets = np.zeros(len(graph) + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=len(graph)), out=offsets[1:])
        doc = self._change_docs(strings, pool, attrs.doc[stays])
        return Attributes(
            offsets, key[stays], doc, kind[stays], value[stays], attrs.length[stays], attrs.slot[stays], items
        )

    def _change_values(
        self,
        strings: Sequence[str],
        pool: Texts,
        key: str,
        entries: tuple[Attributes, Int64],
        columns: tuple[Int64, Int64],
    ) -> None:
        """Change the values of the attributes of one name, in place."""
        (attrs, where), (value, items) = entries, columns
        where = where[~attrs.slot[where]]
        kind = attrs.kind[where]
        whole = where[_INTS[kind] & (kind % 2 == 1)]
        value[whole] = self.scaling.scale(key, value[whole])
        for float_kind, stored, bits in (
            (ValueKind.DOUBLE, np.int64, np.float64),
            (ValueKind.FLOAT, np.uint32, np.float32),
        ):
            real = where[kind == float_kind] if self.scaling.changes(key) else where[:0]
            numbers = self.scaling.scaled_reals(key, value[real].astype(stored).view(bits).astype(np.float64))
            # What gets too large becomes infinite.
            with np.errstate(over="ignore", invalid="ignore"):
                value[real] = numbers.astype(bits).view(stored).astype(np.int64)
        known: dict[int, int] = {}

        def rename_code(code: int) -> int:
            if code not in known:
                known[code] = pool.code(self.value(key, strings[code]))
            return known[code]

        lists = where[(kind % 2 == 0) & (kind != ValueKind.NONE)]
        columns_of_lists = (column[lists].tolist() for column in (attrs.kind, attrs.value, attrs.length))
        for list_kind, begin, length in zip(*columns_of_lists, strict=True):
            part = slice(begin, begin + length)
            if list_kind == _STRING_LIST:
                items[part] = [rename_code(code) for code in items[part].tolist()]
            elif list_kind == _BYTES_LIST:
                items[part] = pool.code("")
                self.changed["bytes emptied"] += 1
            elif _INTS[list_kind]:
                items[part] = self._change_numbers(key, items[part])
        texts = where[kind == ValueKind.STRING]
        codes, back = np.unique(attrs.value[texts], return_inverse=True)
        value[texts] = np.array([rename_code(code) for code in codes.tolist()], np.int64)[back.reshape(-1)]
        raw = where[kind == ValueKind.BYTES]
        value[raw] = pool.code("")
        self.changed["bytes emptied"] += len(raw)

    def _change_numbers(self, key: str, values: Int64) -> Int64:
        """Return the items of a list of integers."""
        if key != ADDRESSES:
            return self.scaling.scale(key, values)
        known = self.addresses
        new = [
            address if address < 0 else known.setdefault(address, len(known) + 1)
            for address in values.tolist()
        ]
        return np.array(new, np.int64)

    def _change_docs(self, strings: Sequence[str], pool: Texts, doc: Int32) -> Int32:
        codes, back, count = np.unique(doc, return_inverse=True, return_counts=True)
        new_codes = [NONE] * len(codes)
        for place, (code, entries) in enumerate(zip(codes.tolist(), count.tolist(), strict=True)):
            if code != NONE:
                new = self.text(self.policy["docs"], strings[code], "doc")
                self.changed["doc strings renamed" if new else "doc strings dropped"] += entries
                new_codes[place] = pool.code(new) if new else NONE
        return np.array(new_codes, np.int32)[back.reshape(-1)]

    def _change_io(self, graph: Graph, strings: Sequence[str], pool: Texts) -> Int32:
        if not len(graph.io):
            return graph.io
        io = graph.io.copy()
        changes: dict[str, Callable[[str], str]] = {
            "shapes": self._change_shape,
            "types": lambda text: self.text(self.policy["types"], text, "type"),
            "tensors": lambda text: self.text(self.policy["tensors"], text, "tensor"),
        }
        for column, what in enumerate(("tensors", "shapes", "types") * 2):
            codes, back = np.unique(graph.io[:, column], return_inverse=True)
            new_codes = [NONE] * len(codes)
            for place, code in enumerate(codes.tolist()):
                if code != NONE:
                    new = changes[what](strings[code])
                    self.changed[f"{what} changed"] += new != strings[code]
                    new_codes[place] = pool.code(new)
            io[:, column] = np.array(new_codes, np.int32)[back.reshape(-1)]
        return io

    def _change_shape(self, text: str) -> str:
        action = self.policy["shapes"]
        return (
            self.renamer.dimensions(self.renamer.words(text))
            if action == "rename"
            else ""
            if action == "drop"
            else self.renamer.words(text)
        )

    # -----------------------------------------------------------------------------------------------
    # Ranks

    def rank(self, rank: Rank, graph: Graph) -> Rank:
        """Return an anonymous rank."""
        strings = self.reader.read(graph.strings)
        keys = [strings[code] for code in graph.slot_key.tolist()]
        slots = tuple(
            self.group(slot) if isinstance(slot, str) and key in GROUPS else
            self.renamer.words(slot) if isinstance(slot, str) else slot
            for key, slot in zip(keys, rank.slots, strict=True)
        )  # fmt: skip
        metadata = tuple(self._change_metadata(rank.metadata))
        self.changed["entries of metadata dropped"] += len(rank.metadata) - len(metadata) + bool(rank.extra)
        version = rank.version if _VERSION.fullmatch(rank.version) else self.renamer.words(rank.version)
        return replace(
            rank, slots=slots, version=version, metadata=metadata, extra=b"", file=f"rank {rank.number}"
        )

    def _change_metadata(self, entries: tuple[Attribute, ...]) -> Iterator[Attribute]:
        action = self.policy["metadata"]
        for entry in entries:
            number = isinstance(entry.value, int)
            text = str(entry.value)
            if action == "keep":
                yield entry
            elif (entry.name in KEPT_METADATA and (number or text.isdecimal())) or (
                entry.name == "schema" and _SCHEMA.fullmatch(text)
            ):
                yield replace(entry, doc="")
            elif entry.name == GENERATED:
                # Durations that nobody recorded must not pass for a recording; of what model they are goes.
                yield Attribute(GENERATED, ValueKind.STRING, "chakra-studio")
            elif action == "words" and entry.kind in _TEXT_KINDS:
                values = entry.value if isinstance(entry.value, list) else [entry.value]
                new: list[Scalar] = [self.renamer.words(str(value)) for value in values]
                key = f"own_{self.renamer.word(entry.name, 'attribute')}"
                yield Attribute(key, entry.kind, new if entry.kind.is_list else new[0])


@cache
def _type_word(number: int) -> str:
    if number not in NodeType._value2member_map_:
        return "node"
    return NodeType(number).name.lower()
