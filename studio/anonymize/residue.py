"""Look for words of the original in what was written, and say what a reader can still learn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from studio.anonymize.numbers import Scaling
from studio.anonymize.policy import GROUPS, KEPT_METADATA, STANDARD, TEXTS, Field, Policy
from studio.anonymize.pools import PoolReader
from studio.anonymize.rename import Anonymous
from studio.anonymize.words import SHORTEST, STAYS, collect_vocabulary, list_words
from studio.columns import group_places
from studio.distinct import find_distinct
from studio.trace import (
    Attributes,
    Int64,
    NodeType,
    Trace,
    ValueKind,
    label_collective,
    read_int_column,
    type_name,
)
from studio.units import format_bytes, format_count, format_counted, format_ns, format_si

_RUNS = re.compile(rb"[a-z]{%d,}" % SHORTEST)
_TOKENS = re.compile(r"[^\W\d_]+|\d+")
_OURS = "et gz json schema group comp coll node text type doc tensor own thread memcpy ranks rank generated studio"
_NAMED = 12


def iterate_texts(trace: Trace) -> Iterator[tuple[Field | None, str]]:
    """Yield the distinct texts of a job, with the field of the policy that they are of, None where no policy keeps them."""
    return iter(dict.fromkeys(_iterate_all_texts(trace)))


def _iterate_all_texts(trace: Trace) -> Iterator[tuple[Field | None, str]]:
    """Yield the texts of each graph and rank."""
    reader = PoolReader()
    for graph in trace.graphs:
        strings, attrs = reader.read(graph.strings), graph.attrs
        yield from (("names", strings[code]) for code in find_distinct(graph.name).tolist())
        for column, what in enumerate(("tensors", "shapes", "types") * 2):
            codes = graph.io[:, column] if len(graph.io) else np.zeros(0, np.int32)
            yield from ((_IO[what], strings[code]) for code in find_distinct(codes[codes >= 0]).tolist())
        yield from (("docs", strings[code]) for code in find_distinct(attrs.doc[attrs.doc >= 0]).tolist())
        for code, where in group_places(attrs.key):
            key = strings[code]
            own: Field = "own"
            if key not in STANDARD:
                yield own, key
            here = where[~attrs.slot[where]]
            of: Field | None = "groups" if key in GROUPS else "texts" if key in TEXTS else own
            yield from (
                (of if key not in STANDARD or of != own else None, text)
                for text in _iterate_values(graph.attrs, strings, here)
            )
        yield from ((None, strings[code]) for code in graph.extra.tolist())
    for rank in trace.ranks:
        for entry in rank.metadata:
            values = entry.value if isinstance(entry.value, list) else [entry.value]
            if entry.name not in KEPT_METADATA:
                yield "metadata", entry.name
            yield from (("metadata", _convert_text(value)) for value in (*values, entry.doc))
        yield from (("groups", slot) for slot in rank.slots if isinstance(slot, str))
        yield None, rank.version
        yield None, rank.file
        yield None, _convert_text(rank.extra)
    yield from (("groups", group.name) for group in trace.groups)


_IO: Mapping[str, Field] = {"tensors": "tensors", "shapes": "shapes", "types": "types"}


def _convert_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _iterate_values(attrs: Attributes, strings: Sequence[str], where: Int64) -> Iterator[str]:
    """Yield the distinct texts among attributes."""
    kind, value, length, items = attrs.kind[where], attrs.value[where], attrs.length[where], attrs.items
    single = (kind == ValueKind.STRING) | (kind == ValueKind.BYTES)
    lists = np.flatnonzero((kind == ValueKind.STRING_LIST) | (kind == ValueKind.BYTES_LIST)).tolist()
    codes = [value[single], *(items[value[entry] : value[entry] + length[entry]] for entry in lists)]
    yield from (strings[code] for code in find_distinct(np.concatenate(codes)).tolist())


def _collect_public_words(kept: Iterable[str]) -> set[str]:
    """Return the words that tell nothing: public terms, those that the studio writes, and what the user keeps."""
    named = {word for key in (*STANDARD, *KEPT_METADATA) for word in list_words(key.lower())}
    return {*collect_vocabulary(), *(word.lower() for word in kept), *_OURS.split(), *named}


def collect_forbidden_words(
    trace: Trace, policy: Policy, name: str, kept: Iterable[str] = ()
) -> frozenset[str]:
    """Return the words of the original that may not be left, in small letters.

    Those are words of four letters and more, from wherever a text may stand, but for public terms, parts of them, and words
    of what the policy keeps.

    Args:
        trace: The original.
        policy: What becomes of its texts.
        name: What the job is called.
        kept: Words that the user said may stay.
    """
    known = _collect_public_words(kept)
    all_words = {word.lower() for word in list_words(name)}
    for field, text in iterate_texts(trace):
        words = {word.lower() for word in list_words(text)}
        if field is not None and policy[field] == "keep":
            known |= words
        all_words |= words
    joined = "\n".join(known)
    return frozenset(word for word in all_words if len(word) >= SHORTEST and word not in joined)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Words of under four letters, and numbers in texts: too common to be looked for in bytes, so as whole tokens of texts.

    Attributes:
        words, numbers: Those of the original.
        kept_words, kept_numbers: Those of them that stand in texts of the anonymous job, too.
        left: Words among them that the policy does not let stay.
    """

    words: frozenset[str]
    numbers: frozenset[str]
    kept_words: tuple[str, ...]
    kept_numbers: tuple[str, ...]
    left: tuple[str, ...]


def find_remaining_tokens(trace: Trace, anonymous: Trace, policy: Policy, kept: Iterable[str] = ()) -> Tokens:
    """Look for short words and numbers of the original in the texts of the anonymous job.

    Public terms, words of names that the studio writes, and what the policy or the user keeps are not looked for.

    Args:
        trace: The original.
        anonymous: What was made of it.
        policy: What became of its texts.
        kept: Words that the user said may stay.
    """
    known = _collect_public_words(kept)
    before: set[str] = set()
    for field, text in iterate_texts(trace):
        tokens = {token.lower() for token in _TOKENS.findall(text)}
        if field is not None and policy[field] == "keep":
            known |= tokens
        before |= tokens
    after = {token.lower() for _, text in iterate_texts(anonymous) for token in _TOKENS.findall(text)}
    numbers = frozenset(token for token in before if token[0].isdigit())
    words = frozenset(token for token in before - numbers if len(token) < SHORTEST and token not in known)
    stay = sorted(words & after)
    return Tokens(
        words,
        numbers,
        tuple(stay),
        tuple(sorted(numbers & after, key=lambda token: (len(token), token))),
        tuple(token for token in stay if len(token) > STAYS),
    )


class Residue:
    """Goes through what is written and collects the runs of letters in it."""

    def __init__(self, wanted: frozenset[str]) -> None:
        """Take the words that may not be left."""
        self.wanted = wanted
        self._foreign = {word: word.encode() for word in wanted if not word.isascii()}
        self._runs: set[bytes] = set()
        self._left: set[str] = set()
        self._tail = b""
        self.bytes = 0

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield pieces of a file on, and look at them."""
        self._tail = b""
        for piece in pieces:
            self.bytes += len(piece)
            text = (self._tail + piece).lower()
            self._runs.update(_RUNS.findall(text))
            self._left.update(word for word, raw in self._foreign.items() if raw in text)
            # A word may begin in one piece and end in the next.
            self._tail = piece[-256:]
            yield piece

    def left(self) -> list[str]:
        """Return the words that were found."""
        joined = b"\n".join(self._runs).decode("ascii")
        return sorted(self._left | {word for word in self.wanted if word.isascii() and word in joined})


@dataclass(frozen=True, slots=True)
class Learnt:
    """Something that a reader of the anonymous job can learn.

    Attributes:
        about: What it is about.
        state: How it stands there: `exact`, `rounded`, `scaled`, `renamed`, `kept`.
        words: What it is, in a sentence.
    """

    about: str
    state: str
    words: str


def collect_learnt(anonymous: Anonymous, policy: Policy, scaling: Scaling) -> list[Learnt]:
    """Return what a reader of an anonymous job can still learn, from what stands in it."""
    trace = anonymous.trace
    nodes, edges = trace.node_count, 0
    types: Counter[str] = Counter()
    collectives: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    timed = 0
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        edges += len(graph.ctrl.rows) + len(graph.data.rows)
        numbers, counts = np.unique(graph.type, return_counts=True)
        types.update(
            {
                type_name(number): count
                for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
            }
        )
        rows, kinds = read_int_column(graph, "comm_type")
        for kind in kinds[graph.type[rows] == NodeType.COMM_COLL].tolist():
            collectives[label_collective(kind)] += 1
        for key in ("num_ops", "comm_size", "tensor_size"):
            totals[key] += int(read_int_column(graph, key)[1].sum())
        timed += int((graph.start_ns >= 0).sum())
        totals["time"] += int(graph.duration_ns.sum())
    learnt = [
        Learnt("structure", "exact", f"{format_counted(len(trace.ranks), 'rank')}, {format_counted(nodes, 'node')} with their ids, {format_counted(edges, 'dependency', 'dependencies')}: how the program is built, and how often its layers and steps repeat."),
        Learnt("kinds", "exact", f"Types of nodes: {_format_names(types)}."),
    ]  # fmt: skip
    if collectives:
        learnt.append(Learnt("collectives", "exact", f"{_format_names(collectives)}, with groups, peers and order: the kinds of parallelism and their degrees."))  # fmt: skip
    if trace.groups:
        sizes = Counter(len(group.ranks) for group in trace.groups)
        listed = ", ".join(
            f"{count:,} of {format_counted(size, 'rank')}" for size, count in sorted(sizes.items())
        )
        learnt.append(Learnt("comm groups", "exact", f"Members of all groups: {listed}."))
    learnt += _collect_learnt_numbers(totals, timed, scaling)
    learnt += _collect_learnt_words(anonymous, policy)
    return learnt


def _collect_learnt_numbers(totals: Counter[str], timed: int, scaling: Scaling) -> list[Learnt]:
    def describe_state(factor: float) -> tuple[str, str]:
        return (
            ("exact", "")
            if factor == 1.0
            else ("scaled", " Ratios stay; one known size gives the factor away.")
        )

    learnt = []
    if totals["num_ops"]:
        how, note = describe_state(scaling.operations)
        learnt.append(
            Learnt(
                "operations",
                how,
                f"{format_si(totals['num_ops'])} operations in all, by node: sizes of layers.{note}",
            )
        )
    size = totals["comm_size"] + totals["tensor_size"]
    if size:
        how, note = describe_state(scaling.bytes)
        learnt.append(Learnt("bytes", how, f"{format_bytes(totals['comm_size'])} of messages and {format_bytes(totals['tensor_size'])} of tensors, by node: sizes of models and batches.{note}"))  # fmt: skip
    if timed or totals["time"]:
        how, note = describe_state(scaling.times)
        if scaling.round_ns:
            how, note = (
                f"{'scaled and ' if how == 'scaled' else ''}rounded",
                f"{note} Multiples of {format_ns(scaling.round_ns)}.",
            )
        when = "starts, counted from the first, and durations" if timed else "durations"
        learnt.append(Learnt("times", how, f"{when[0].upper()}{when[1:]} of nodes, {format_ns(totals['time'])} in all: how fast the machine is.{note}"))  # fmt: skip
    return learnt


def _collect_learnt_words(anonymous: Anonymous, policy: Policy) -> list[Learnt]:
    learnt = []
    terms = Counter(anonymous.kept)
    if terms:
        learnt.append(Learnt("public terms", "kept", f"{format_counted(len(terms), 'word')} of operators, kernels and collectives stay in texts: {_format_names(terms)}."))  # fmt: skip
    if policy["names"] == "words":
        learnt.append(Learnt("names", "renamed", "Equal words are renamed alike, and numbers and signs stay: how names are made of levels, and how many layers there are."))  # fmt: skip
    elif policy["names"] == "rename":
        learnt.append(Learnt("names", "renamed", "Equal names are renamed alike: which nodes do the same."))
    if policy["shapes"] == "rename" and any(len(graph.io) for graph in anonymous.trace.graphs):
        learnt.append(
            Learnt("shapes", "renamed", "How many dimensions tensors have, and which sizes are equal.")
        )
    for field, action in policy.items():
        if action == "keep":
            learnt.append(
                Learnt(field, "kept", "As in the original, because you said so or the policy does.")
            )
    if policy["own"] == "rename":
        learnt.append(Learnt("own attributes", "renamed", "Their numbers stand as they were."))
    learnt.append(
        Learnt(
            "key",
            "exact",
            "Who has the key can test whether a word stands for a guess; keep it, or forget it.",
        )
    )
    return learnt


def _format_names(counted: Counter[str]) -> str:
    listed = ", ".join(f"{name} ({format_count(count)})" for name, count in counted.most_common(_NAMED))
    more = len(counted) - _NAMED
    return listed + (f", and {more:,} more" if more > 0 else "")
