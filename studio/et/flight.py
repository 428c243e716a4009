"""Read what PyTorch's flight recorder wrote of a rank: its last collectives and messages, and how far each came.

A dump is a pickle or JSON: `version`, `pg_config` (the process groups that the rank knows, with their members), `pg_status`
and `entries`, one per operation. The recorder keeps the last few thousand operations, so the first ones are missing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et.build import build_graph
from studio.et.collector import pause_collector
from studio.et.damaged_json import decode_or_recover
from studio.et.format import GroupsPart, Part, RankPart, Reading
from studio.et.link.names import RECEIVE, SEND, choose_node_type, get_element_bytes, infer_operator_kind
from studio.et.plain_pickle import CutOffError, load_plain
from studio.et.records import clean
from studio.trace import NONE, TIMES_NOTICED, WORLD_NAMES, Attribute, CommGroup, Finding, Rank, ValueKind
from studio.units import format_counted

RECORDER = "flight recorder"
"""What the metadata `recorder` of a rank says that was read from a dump."""
STATE, CALLED_AT = "flight_state", "called_at"
"""Attributes of a node: how far the operation came (`scheduled`, `started`, `completed`), and the calls that issued it."""
SERIAL = "comm_seq"
DTYPE = "dtype"

_KEYS = (b"pg_config", b"collective_seq_id", b"pg_status", b"profiling_name")
_OBJECT = re.compile(
    rb'\s*\{\s*"(version|comm_lib_version|nccl_version|entries|pg_config|pg_status|nccl_comm_state)"\s*:'
)
"""How an object begins whose keys are those of a dump."""
_PEERS = re.compile(r"(?:send (?P<from>\d{1,9})->(?P<to>\d{1,9})|recv (?P<own>\d{1,9})<-(?P<other>\d{1,9}))$")
_STATES = ("scheduled", "started", "completed")
_COALESCED = "coalesced"
_ITEMS_PER_BYTE, _LEAST_ITEMS = 8, 1 << 16
"""Sizes, calls and members that are looked at for each byte of a file: a pickle may say the same list any number of times."""
_MOST_TENSORS, _MOST_SIZES, _MOST_FRAMES = 1 << 16, 64, 128
_LARGEST_BYTES = 2**62
_LARGEST_NS = 2**62
_DAMAGED = "Copy the dump again, or take it anew."


def sniff(head: bytes) -> bool:
    """Whether `head` starts a dump: a pickle or an object with the recorder's keys."""
    pickled = head[:1] == b"\x80" and 2 <= int.from_bytes(head[1:2]) <= 5
    return (pickled or _OBJECT.match(head) is not None) and any(key in head for key in _KEYS)


_json = build_decoder(dict[str, Any])


def read(reading: Reading) -> list[Part]:
    """Read the dump of one rank: its process groups and its operations.

    Raises:
        TraceFormatError: It is no dump, names code, or is damaged from the start.
    """
    with pause_collector():
        content, findings = _read_content(reading)
        reading.tick(len(reading.data))
        most = max(_ITEMS_PER_BYTE * len(reading.data), _LEAST_ITEMS)
        return _Dump(content, reading.name, [*reading.findings, *findings], most).parts()


def _read_content(reading: Reading) -> tuple[Mapping[str, Any], Sequence[Finding]]:
    """Return the object that a file holds, and what was noticed."""
    data = reading.data
    if bytes(data[:1]) != b"\x80":
        try:
            return decode_or_recover(data, _json, reading.name)
        except msgspec.ValidationError as error:
            raise TraceFormatError(
                f"{reading.name}: no flight recorder's dump: {error}.", hint=_DAMAGED
            ) from error
    findings: list[Finding] = []
    try:
        content = load_plain(bytes(data), reading.name, reading.tick)
    except CutOffError as cut:
        content = cut.value
        message = f"{reading.name}: the pickle ends early, after {format_counted(cut.offset, 'byte')}; what comes before was read."
        findings.append(
            Finding("error", "damaged-file", message, _DAMAGED, file=reading.name, offset=cut.offset)
        )
    if not isinstance(content, dict):
        raise TraceFormatError(
            f"{reading.name}: the pickle holds a {type(content).__name__}, no dictionary with the key 'entries'.",
            hint=_DAMAGED,
        )
    return content, findings


@dataclass(slots=True)
class _Operation:
    """An entry of a dump.

    Attributes:
        place: Its place in the file.
        name: Without the library: `all_reduce`, `send 0->1`.
        kind: A CollectiveType, or SEND or RECEIVE.
        group: Name of its comm group.
        state: One of `_STATES`.
        start_ns, duration_ns: As a node has them.
        batch: Its group, whether it is a message, and its number among those.
        attrs: The node's attributes.
    """

    place: int
    name: str
    kind: int | None
    group: str
    state: str
    start_ns: int
    duration_ns: int
    batch: tuple[str, bool, int]
    attrs: dict[str, Any] = field(default_factory=dict)


class _Dump:
    """One file being read."""

    def __init__(
        self, content: Mapping[str, Any], name: str, noticed: list[Finding], most_items: int
    ) -> None:
        self.content, self.name, self.findings, self.most_items = content, name, noticed, most_items
        self.items = 0
        self.counts: dict[str, int] = {}

    def parts(self) -> list[Part]:
        """Return the comm groups and the rank."""
        entries = self.content.get("entries", [])
        if not isinstance(entries, list) or not ("entries" in self.content or "pg_config" in self.content):
            raise TraceFormatError(
                f"{self.name}: no list 'entries' in the dump; its keys are "
                f"{', '.join(str(key) for key in list(self.content)[:8]) or 'none'}.",
                hint="Dump with the operations in it (include collectives), "
                "TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE) larger than 0.",
            )
        groups = self.groups()
        members = {key: group for key, group in groups.items() if group.ranks}
        operations = self.operations(entries, groups)
        nodes, starts, durations = self.nodes(operations)
        graph, slots = build_graph(nodes)
        graph = replace(graph, start_ns=np.array(starts, np.int64), duration_ns=np.array(durations, np.int64))
        self.notice()
        rank = Rank(NONE, NONE, slots, metadata=tuple(self.metadata()), file=self.name)
        listed = tuple(members.values())
        return [GroupsPart(listed), RankPart(rank, graph, None, tuple(self.findings))]

    def count(self, what: str) -> None:
        """Count something that is said of the file as a whole."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def look(self, items: object, most: int) -> list[Any]:
        """Return the items of a list, at most so many; an empty one for anything else."""
        if not isinstance(items, list | tuple):
            return []
        self.items += min(len(items), most)
        if self.items > self.most_items:
            raise TraceFormatError(
                f"{self.name}: more than {self.most_items:,} sizes, calls and members in one dump.",
                hint="A dump of a few thousand operations has far fewer; make a new one.",
            )
        if len(items) > most:
            self.count("cut")
        return list(items[:most])

    def groups(self) -> dict[str, CommGroup]:
        """Return the comm groups by the names that entries give them."""
        config = self.content.get("pg_config")
        groups: dict[str, CommGroup] = {}
        if config is not None and not isinstance(config, dict):
            self.count("group")
        for key, config_entry in config.items() if isinstance(config, dict) else ():
            if not isinstance(config_entry, dict):
                self.count("group")
                continue
            ranks = config_entry.get("ranks")
            if isinstance(ranks, str):
                try:
                    ranks = json.loads(ranks)
                except (ValueError, RecursionError):
                    ranks = None
            numbers = [number for number in self.look(ranks, self.most_items) if _is_rank(number)]
            if not isinstance(ranks, list | tuple) or len(numbers) < len(ranks):
                self.count("group")
            name = clean(str(config_entry.get("name", key)))
            groups[name] = CommGroup(
                _format_group_name(name, _parse_text(config_entry.get("desc")), numbers),
                tuple(dict.fromkeys(numbers)),
            )
        return groups

    def operations(self, entries: list[Any], groups: Mapping[str, CommGroup]) -> list[_Operation]:
        """Return the operations; those issued together have the state and times of the entry that stands for all."""
        operations: list[_Operation] = []
        waiting: dict[tuple[str, bool, int], list[_Operation]] = {}
        batches: set[tuple[str, bool, int]] = set()
        for place, entry in enumerate(entries):
            operation = self.operation(entry, place, groups) if isinstance(entry, dict) else None
            if operation is None:
                self.count("entry")
                continue
            if operation.name.lower() == _COALESCED:
                # Newer versions number it among the collectives, also where it holds messages.
                keys = [_build_batch_key(entry, operation.batch[0], is_p2p) for is_p2p in (True, False)]
                held = next((waiting.pop(key) for key in keys if waiting.get(key)), [])
                for each in held:
                    each.state = operation.state
                    each.start_ns, each.duration_ns = operation.start_ns, operation.duration_ns
                    each.attrs |= {STATE: operation.state, "batch": place + 1}
                if not held and batches.isdisjoint(keys):
                    self.count("batch")
                continue
            if operation.state == "scheduled":
                waiting.setdefault(operation.batch, []).append(operation)
            else:
                waiting.pop(operation.batch, None)
            batches.add(operation.batch)
            operations.append(operation)
        return operations

    def operation(
        self, entry: dict[Any, Any], place: int, groups: Mapping[str, CommGroup]
    ) -> _Operation | None:
        """Return one operation, None where the entry says too little."""
        profiling_name, state = entry.get("profiling_name"), entry.get("state")
        if not isinstance(profiling_name, str) or state not in _STATES:
            return None
        name = clean(profiling_name.partition(":")[2] or profiling_name)
        group_words = [
            clean(word) for word in self.look(entry.get("process_group"), 2) if isinstance(word, str)
        ]
        key = group_words[0] if group_words else ""
        group = groups.get(key)
        is_p2p = entry.get("is_p2p") is True
        peers = _PEERS.match(name)
        kind = infer_operator_kind(name.split(" ")[0])
        batch = _build_batch_key(entry, key, is_p2p)
        serial = batch[2]
        start_ns, duration_ns = self.times(entry, state)
        known = (
            group.name
            if group
            else _format_group_name(key, group_words[1] if len(group_words) > 1 else "", [])
        )
        operation = _Operation(place, name, kind, known, state, start_ns, duration_ns, batch)
        operation.attrs = {
            "is_cpu_op": False,
            "pg_name": known,
            **({"comm_type": kind} if kind is not None and kind >= 0 else {}),
            **self.size(entry, kind),
            **({SERIAL: serial} if serial >= 0 and not is_p2p else {}),
            **({"p2p_seq": serial} if serial >= 0 and is_p2p else {}),
            STATE: state,
            **self.ends(peers, group),
            **self.asides(entry),
        }
        if group_words[1:] and group_words[1] not in ("", "undefined"):
            operation.attrs["pg_desc"] = group_words[1]
        return operation

    def ends(self, peers: re.Match[str] | None, group: CommGroup | None) -> dict[str, int]:
        """Return the other end of a message: names number the members of the group."""
        if peers is None:
            return {}
        key = "comm_dst" if peers["to"] else "comm_src"
        number = int(peers["to"] or peers["other"])
        if group is None or not group.ranks:
            return {key: number, "comm_tag": 0} if group is None else {"comm_tag": 0}
        if number >= len(group.ranks):
            self.count("peer")
            return {"comm_tag": 0}
        return {key: group.ranks[number], "comm_tag": 0}

    def size(self, entry: Mapping[Any, Any], kind: int | None) -> dict[str, Any]:
        """Return bytes and type of what the rank gives; of a receive, of what it gets."""
        sides = ("output", "input") if kind == RECEIVE else ("input", "output")
        for side in sides:
            tensors = self.look(entry.get(f"{side}_sizes"), _MOST_TENSORS)
            types = self.look(entry.get(f"{side}_dtypes"), _MOST_TENSORS)
            total = 0
            for number, tensor in enumerate(tensors):
                lengths = self.look(tensor, _MOST_SIZES)
                dtype = types[min(number, len(types) - 1)] if types else ""
                each = get_element_bytes(dtype) if isinstance(dtype, str) else NONE
                if each < 0 or any(_parse_number(length) < 0 for length in lengths):
                    self.count("size")
                    total = NONE
                    break
                total += math.prod(lengths) * each
            if tensors and 0 <= total <= _LARGEST_BYTES:
                first = [types[0]] if types and isinstance(types[0], str) else []
                return {"comm_size": total, **({DTYPE: clean(first[0])} if first else {})}
        return {}

    def asides(self, entry: Mapping[Any, Any]) -> dict[str, Any]:
        """Return further facts about an operation: its calls, time limit, thread and number."""
        facts: dict[str, Any] = {}
        for key, name in (("record_id", "record_id"), ("op_id", "op_id"), ("timeout_ms", "timeout_ms")):
            if _parse_number(entry.get(key)) >= 0:
                facts[name] = _parse_number(entry.get(key))
        if isinstance(entry.get("thread_name"), str) and entry["thread_name"]:
            facts["thread"] = clean(entry["thread_name"])
        calls = [
            f"{_parse_text(frame.get('name'))} ({_parse_text(frame.get('filename'))}:{_parse_number(frame.get('line'))})"
            for frame in self.look(entry.get("frames"), _MOST_FRAMES)
            if isinstance(frame, dict)
        ]
        if calls:
            facts[CALLED_AT] = "\n".join(calls)
        return facts

    def times(self, entry: Mapping[Any, Any], state: str) -> tuple[int, int]:
        """Return when an operation began and how long it took, as far as the recorder noticed."""
        created, began, ended = (
            _parse_time(entry.get(f"time_{what}_ns"))
            for what in ("created", "discovered_started", "discovered_completed")
        )
        start = began if began > 0 else created
        took = entry.get("duration_ms")
        if isinstance(took, int | float) and not isinstance(took, bool) and 0 <= took < _LARGEST_NS / 1e6:
            self.count("measured")
            took_ns = round(took * 1e6)
            # Both are noticed late, at times together: it began no later than its end allows, nor before it was issued.
            if ended > 0 and start > 0:
                start = max(min(start, ended - took_ns), created)
            return start, took_ns
        if state == "completed" and ended > 0 and start > 0:
            self.count("noticed")
            return start, max(ended - start, 0)
        return start, 0

    def nodes(self, operations: Sequence[_Operation]) -> tuple[list[dict[str, Any]], list[int], list[int]]:
        """Return nodes with their times; an operation waits for the one before it in its group, or to the same peer."""
        nodes: list[dict[str, Any]] = []
        last: dict[tuple[Any, ...], tuple[int, Any]] = {}
        before: dict[tuple[Any, ...], int] = {}
        for number, operation in enumerate(operations, 1):
            attrs = operation.attrs
            kind = operation.kind
            message = kind in (SEND, RECEIVE)
            if kind is None:
                self.count("kind")
            line = (
                (operation.group, kind, attrs.get("comm_src"), attrs.get("comm_dst"))
                if message
                else (operation.group,)
            )
            previous, batch = last.get(line, (0, None))
            if batch is not None and batch == attrs.get("batch"):
                previous = before.get(line, 0)
            else:
                before[line] = previous
            last[line] = number, attrs.get("batch")
            nodes.append(
                {
                    "id": number,
                    "type": choose_node_type(NONE if kind is None else kind).name,
                    "name": operation.name,
                    "data_deps": [previous] if previous else [],
                    "attrs": attrs,
                }
            )
            if operation.state != "completed":
                self.count("open")
        starts = [each.start_ns for each in operations]
        return nodes, starts, [each.duration_ns for each in operations]

    def metadata(self) -> Iterator[Attribute]:
        """Yield what the dump says of the rank as a whole."""
        yield Attribute("recorder", ValueKind.STRING, RECORDER)
        if self.counts.get("noticed"):
            yield Attribute(TIMES_NOTICED, ValueKind.INT64, self.counts["noticed"])
        for key in ("version", "comm_lib_version", "nccl_version"):
            if isinstance(self.content.get(key), str):
                yield Attribute(key, ValueKind.STRING, clean(self.content[key]))
        status = self.content.get("pg_status")
        for key, values in list(status.items())[:_MOST_TENSORS] if isinstance(status, dict) else ():
            if isinstance(values, dict):
                words = ", ".join(
                    f"{_parse_text(what)} {_parse_text(value)}" for what, value in list(values.items())[:8]
                )
                yield Attribute(f"pg_status {_parse_text(key)}", ValueKind.STRING, words)

    def notice(self) -> None:
        """Add what was counted to the findings."""
        what_of = {
            "entry": ("error", "bad-value", "entries without a name or a state, left out"),
            "group": ("warning", "bad-value", "process groups whose members could not be read in full"),
            "size": ("warning", "bad-value", "operations with sizes or types that are not known, read without a size"),
            "peer": ("warning", "bad-value", "messages to a member that their group does not have, read without it"),
            "kind": ("warning", "unknown-type", "operations of a kind that is not known"),
            "cut": ("warning", "left-out", "lists that are too long, of which the rest was left out"),
            "batch": ("info", "left-out", "batches without the operations they hold, left out"),
            "open": ("info", "unfinished", "operations that had not ended, kept with no duration"),
            "noticed": (
                "info",
                "times-noticed",
                "operations timed by when the watchdog noticed their start and end, later than they were",
            ),
        }  # fmt: skip
        hints = {"noticed": "Set TORCH_NCCL_ENABLE_TIMING=1 to have durations measured."}
        for key, (level, code, what) in what_of.items():
            if self.counts.get(key):
                message = f"{self.name}: {what}: {self.counts[key]:,}."
                self.findings.append(
                    Finding(level, code, message, hints.get(key, ""), file=self.name)  # type: ignore[arg-type]
                )
        state = self.content.get("nccl_comm_state")
        if isinstance(state, dict) and state:
            message = f"{self.name}: the library's own state of {format_counted(len(state), 'communicator')}, left out."
            self.findings.append(Finding("info", "left-out", message, file=self.name))


def _format_group_name(name: str, description: str, members: Sequence[int]) -> str:
    """Return what to call a process group: groups that ranks split off carry one name and differ in members.

    Example:
        >>> _format_group_name("0", "default_pg", [0, 1]), _format_group_name("5", "tp", [4, 5]), _format_group_name("5", "undefined", [4, 5])
        ('0', 'tp 5@4', '5@4')
    """
    if name in WORLD_NAMES or not members:
        return name
    words = name if description in ("", "undefined") else f"{description} {name}"
    return f"{words}@{min(members)}"


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _build_batch_key(entry: Mapping[Any, Any], group: str, is_p2p: bool) -> tuple[str, bool, int]:
    """Return what messages, or collectives, that were issued together have in common: their group and number in it."""
    return group, is_p2p, _parse_number(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id"))


def _parse_number(value: object) -> int:
    """Return a whole number from 0 on that 64 bits hold, -1 for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62:
        return value
    return NONE


def _parse_time(value: object) -> int:
    number = _parse_number(value)
    return number if number < _LARGEST_NS else NONE


def _parse_text(value: object) -> str:
    return clean(value) if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
