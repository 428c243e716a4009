"""Read Chakra traces written as JSON: the feeder's workload graph, and the jsonizer's output.

The feeder's is one object whose `workload_graph` lists the nodes; how its keys are spelled differs from file to file.
The jsonizer prints protobuf's JSON, one object after another with nothing between: first the metadata, then the nodes.
What our own `jsonize` writes is such objects too, or one document of them, and may hold more; it is read as the file it stands for.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from studio.decoding import decoder
from studio.errors import TraceFormatError
from studio.et import chakra, jsonize
from studio.et.collector import collector_paused
from studio.et.format import Part, Reading
from studio.et.mend import decode_mended
from studio.et.records import LARGEST_ID, LARGEST_INT32, LARGEST_NS, NodeRecord, fits, rank_part
from studio.et.schema import camel_case, value_field
from studio.trace import Attribute, Finding, NodeType, ValueKind

_FEEDER_HEAD = re.compile(rb"\s*\{")
_JSONIZED_HEAD = re.compile(
    rb'\s*\{\s*("version"\s*:\s*"(?:[^"\\]|\\.)*"\s*,?\s*)?("attr"\s*:\s*\[\s*\{\s*"(name|docString)"'
    rb'|\}\s*(\{\s*("(id|name|type|ctrlDeps|dataDeps|attr)"|\})|$))'
)
_DOCUMENT_HEAD = re.compile(rb'\s*\{\s*"metadata"\s*:\s*\{\s*("(version|attr|@bytes|@unknown)"|\})')
_PLAIN_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,25}\s*")
_LONGEST_TEXT = 1 << 26

_KINDS = {
    "iscpuop": ("is_cpu_op", ValueKind.BOOL),
    "commtype": ("comm_type", ValueKind.INT64),
    "commsize": ("comm_size", ValueKind.INT64),
    "commsrc": ("comm_src", ValueKind.INT32),
    "commdst": ("comm_dst", ValueKind.INT32),
    "commtag": ("comm_tag", ValueKind.INT32),
    "commpriority": ("comm_priority", ValueKind.INT32),
    "commgroup": ("comm_group", ValueKind.INT32),
    "tensorsize": ("tensor_size", ValueKind.UINT64),
    "tensorloc": ("tensor_loc", ValueKind.INT64),
    "numops": ("num_ops", ValueKind.INT64),
    "pgname": ("pg_name", ValueKind.STRING),
    "involveddim": ("involved_dim", ValueKind.BOOL_LIST),
}
"""Attributes of the feeder's nodes by their keys without signs and case, and the kind Chakra files have them as."""

_NODE_KEYS = ("id", "name", "nodetype", "type", "datadeps", "ctrldeps", "controldeps", "runtime", "duration")


class _Dropped(Counter[str]):
    """Counts what could not be kept, by kind."""

    def findings(self, name: str) -> list[Finding]:
        if not self:
            return []
        what = ", ".join(f"{key} ({count:,})" for key, count in self.most_common(6))
        message = f"{name}: values of a wrong type or beyond their range were left out: {what}."
        return [Finding("error", "bad-value", message, "The nodes are kept without them.", file=name)]


def integer(value: Any) -> int | None:
    """Return a whole number, also one written as a text or as 3.0; None where it is none.

    Example:
        >>> integer("216"), integer(4.0), integer(True), integer("4.5")
        (216, 4, None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _PLAIN_INTEGER.fullmatch(value):
        return int(value)
    return None


def _bounded_number(value: Any, highest: int, what: str, dropped: _Dropped, default: int = 0) -> int:
    number = integer(value)
    if number is not None and 0 <= number <= highest:
        return number
    if value is not None:
        dropped[what] += 1
    return default


def _ids(value: Any, what: str, dropped: _Dropped) -> list[int]:
    """Return a list of ids; accepts a single id too."""
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    try:
        # The usual list, at once.
        if all(type(item) is int for item in items) and (
            not items or 0 <= min(items) <= max(items) <= LARGEST_ID
        ):
            return items
        ids = [int(item) for item in items if type(item) is str and item.isdecimal() and len(item) < 20]
        if len(ids) == len(items):
            return ids
    except (TypeError, ValueError):
        pass
    numbers = [integer(item) for item in items]
    good = [number for number in numbers if number is not None and 0 <= number <= LARGEST_ID]
    if len(good) < len(items):
        dropped[what] += len(items) - len(good)
    return good


def _type(value: Any, dropped: _Dropped) -> int:
    """Return a node type, given as a number or as `COMP_NODE`."""
    if isinstance(value, str):
        known = NodeType.__members__.get(value.removesuffix("_NODE"))
        if known is not None:
            return int(known)
    return _bounded_number(value, LARGEST_INT32, "type", dropped)


def _text(value: Any, what: str, dropped: _Dropped) -> str:
    if isinstance(value, str):
        return value
    if value is not None:
        dropped[what] += 1
    return ""


# ---------------------------------------------------------------------------------------------------
# The feeder's workload graph


def sniff_feeder(head: bytes) -> bool:
    """Whether `head` starts an object with a workload graph."""
    return _FEEDER_HEAD.match(head) is not None and b'"workload_graph"' in head


class _Workload(msgspec.Struct):
    workload_graph: Any = None
    workload_name: Any = None
    ngpus: Any = None
    soc: Any = None


_workload = decoder(_Workload)


def read_feeder(reading: Reading) -> list[Part]:
    """Read a workload graph.

    Raises:
        TraceFormatError: It is no JSON, or has no list of nodes.
    """
    with collector_paused():
        try:
            workload, findings = decode_mended(reading.data, _workload, reading.name)
        except msgspec.ValidationError:
            workload, findings = _Workload(), ()
        nodes = workload.workload_graph
        if not isinstance(nodes, list):
            raise TraceFormatError(
                f"{reading.name}: 'workload_graph' is not a list of nodes.",
                hint="Export the workload graph again.",
            )
        reading.tick(len(reading.data) // 2)
        dropped = _Dropped()
        records = [record for node in nodes if (record := _feeder_node(node, dropped)) is not None]
        metadata = [
            Attribute(key, ValueKind.STRING if isinstance(value, str) else ValueKind.INT64, value)
            for key in ("workload_name", "ngpus", "soc")
            if isinstance(value := getattr(workload, key), str)
            or (type(value) is int and fits(ValueKind.INT64, value))
        ]
        noticed = [*findings, *dropped.findings(reading.name)]
        return [rank_part(reading, records, metadata=metadata, findings=noticed)]


def _feeder_node(node: Any, dropped: _Dropped) -> NodeRecord | None:
    if not isinstance(node, dict):
        dropped["node"] += 1
        return None
    plain = {key.replace("_", "").lower(): (key, value) for key, value in node.items()}

    def of(*keys: str) -> Any:
        return next((plain[key][1] for key in keys if key in plain), None)

    duration_us = of("runtime", "duration")
    return NodeRecord(
        _bounded_number(of("id"), LARGEST_ID, "id", dropped),
        _text(of("name"), "name", dropped),
        _type(of("nodetype", "type"), dropped),
        _ids(of("ctrldeps", "controldeps"), "control dependency", dropped),
        _ids(of("datadeps"), "data dependency", dropped),
        duration_ns=_duration_ns(duration_us, dropped),
        attrs=[
            attr
            for key, (written, value) in plain.items()
            if key not in _NODE_KEYS and (attr := _feeder_attribute(key, written, value, dropped)) is not None
        ],
    )


def _duration_ns(value_us: Any, dropped: _Dropped) -> int:
    """Return microseconds, whole or not, in ns."""
    if isinstance(value_us, float) and 0 <= value_us < LARGEST_NS / 1000:
        return round(value_us * 1000)
    return _bounded_number(value_us, LARGEST_NS // 1000, "runtime", dropped) * 1000


def _feeder_attribute(key: str, written: str, value: Any, dropped: _Dropped) -> Attribute | None:
    """Return a key that is no field of a node as the attribute Chakra files have it as."""
    name, kind = _KINDS.get(key, (written, None))
    if kind is None:
        kind = _natural_kind(value)
    if kind == ValueKind.STRING and isinstance(value, int):
        value = str(value)
    fitting = _fitting(kind, value) if kind is not None else None
    if fitting is None:
        if value is not None:
            dropped[written[:40]] += 1
        return None
    return Attribute(name, kind or ValueKind.NONE, fitting)


def _natural_kind(value: Any) -> ValueKind | None:
    """Return the kind a JSON value has by itself."""
    if isinstance(value, bool):
        return ValueKind.BOOL
    if isinstance(value, list):
        kinds = {_natural_kind(item) for item in value}
        kind = kinds.pop() if len(kinds) == 1 else None
        return ValueKind(kind + 1) if kind is not None and not kind.is_list else None
    simple = {int: ValueKind.INT64, float: ValueKind.DOUBLE, str: ValueKind.STRING}
    return simple.get(type(value))


# ---------------------------------------------------------------------------------------------------
# Values by kind


def _fitting(kind: ValueKind, value: Any) -> Any:
    """Return a JSON value as a value of `kind`, None where it is none."""
    if not kind.is_list:
        return _scalar(kind, value)
    if not isinstance(value, list):
        return None
    items = [_scalar(ValueKind(kind - 1), item) for item in value]
    return None if None in items else items


def _scalar(kind: ValueKind, value: Any) -> Any:
    if kind in _READERS:
        return _READERS[kind](value)
    number = integer(value)
    return number if number is not None and fits(kind, number) else None


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return bool(value) if isinstance(value, bool) or value in (0, 1) else None


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, float | int | str) and len(str(value)) < 400 else None
    except (ValueError, OverflowError):
        return None


def _narrow_number(value: Any) -> float | None:
    number = _number(value)
    # What fits 32 bits only as infinity is refused by the schema.
    return None if number is not None and abs(number) > 3.4e38 and number - number == 0 else number


def _words(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) < _LONGEST_TEXT else None


def _bytes(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, altchars=b"-_" if "-" in value or "_" in value else None)
    except (TypeError, ValueError, binascii.Error):
        return None


_READERS: Mapping[ValueKind, Callable[[Any], Any]] = {
    ValueKind.BOOL: _boolean,
    ValueKind.DOUBLE: _number,
    ValueKind.FLOAT: _narrow_number,
    ValueKind.STRING: _words,
    ValueKind.BYTES: _bytes,
}


# ---------------------------------------------------------------------------------------------------
# The jsonizer's objects


def sniff_jsonized(head: bytes) -> bool:
    """Whether `head` starts with metadata as the jsonizer, or our own, prints it."""
    return (_JSONIZED_HEAD.match(head) or _DOCUMENT_HEAD.match(head)) is not None


_VALUES = {
    spelling: kind
    for kind in ValueKind
    if kind != ValueKind.NONE
    for spelling in (value_field(kind), camel_case(value_field(kind)))
}
"""The fields of an attribute that hold its value, as protobuf's JSON spells them."""


def read_jsonized(reading: Reading) -> list[Part]:
    """Read the jsonizer's output up to where it is damaged.

    Raises:
        TraceFormatError: The first object is damaged.
    """
    if jsonize.is_exact(reading.data):
        return _read_exact(reading)
    with collector_paused():
        objects = _objects(bytes(reading.data), reading.name)
        dropped = _Dropped()
        version, metadata, records, findings = "", [], [], []
        for index, (value, finding) in enumerate(objects):
            if finding is not None:
                findings.append(finding)
            elif not isinstance(value, dict):
                dropped["node"] += 1
            elif index == 0:
                version = _text(value.get("version"), "version", dropped)
                metadata = _attributes(value.get("attr"), dropped)
            else:
                records.append(_jsonized_node(value, dropped))
        reading.tick(len(reading.data) // 2)
        findings += dropped.findings(reading.name)
        return [rank_part(reading, records, version=version, metadata=metadata, findings=findings)]


def _read_exact(reading: Reading) -> list[Part]:
    """Read what our own `jsonize` wrote, as the Chakra file that it stands for, up to where it is damaged."""
    pieces: list[bytes] = []
    findings: tuple[Finding, ...] = ()
    source = jsonize.Source(io.BytesIO(reading.data), reading.name)
    try:
        # Not list(): what comes before an error is kept.
        pieces.extend(jsonize.write_chakra(source, jsonize.Tally()))
    except TraceFormatError as error:
        if not any(pieces):
            raise
        message = f"{error.message} What comes before it was read, the rest is lost."
        findings = (Finding("error", "damaged-file", message, error.hint, file=reading.name),)
    whole = replace(reading, data=b"".join(pieces), findings=(*reading.findings, *findings))
    return chakra.read(whole)


def _objects(data: bytes, name: str) -> Iterator[tuple[Any, Finding | None]]:
    """Yield the objects of a file one by one; at damage, yield a finding and stop.

    Raises:
        TraceFormatError: The first object is damaged.
    """
    text = data.decode("utf-8", "replace")
    decode = json.JSONDecoder(strict=False).raw_decode
    position, first = 0, True
    while (position := _next(text, position)) < len(text):
        try:
            value, position = decode(text, position)
        except (ValueError, RecursionError) as error:
            if first:
                raise TraceFormatError(
                    f"{name}: the first object, the metadata, is not JSON: {error}.",
                    hint="Print the trace again.",
                ) from error
            offset = len(text[:position].encode())
            message = (
                f"{name}: the object at byte {offset:,} of {len(data):,} is cut off or damaged; "
                "what comes before it was read, the rest is lost."
            )
            finding = Finding(
                "error", "damaged-file", message, "Print the trace again.", file=name, offset=offset
            )
            yield None, finding
            return
        first = False
        yield value, None


def _next(text: str, position: int) -> int:
    """Return where the next object begins."""
    while position < len(text) and text[position] in " \t\r\n,\0":
        position += 1
    return position


def _jsonized_node(value: dict[str, Any], dropped: _Dropped) -> NodeRecord:
    def of(*keys: str) -> Any:
        return next((value[key] for key in keys if key in value), None)

    start_us = of("startTimeMicros", "start_time_micros")
    return NodeRecord(
        _bounded_number(of("id"), LARGEST_ID, "id", dropped),
        _text(of("name"), "name", dropped),
        _type(of("type"), dropped),
        _ids(of("ctrlDeps", "ctrl_deps"), "control dependency", dropped),
        _ids(of("dataDeps", "data_deps"), "data dependency", dropped),
        -1 if start_us is None else _bounded_number(start_us, LARGEST_NS // 1000, "start", dropped) * 1000,
        _bounded_number(of("durationMicros", "duration_micros"), LARGEST_NS // 1000, "duration", dropped)
        * 1000,
        _io(of("inputs"), dropped),
        _io(of("outputs"), dropped),
        _attributes(of("attr"), dropped),
    )


def _io(value: Any, dropped: _Dropped) -> tuple[str, str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        dropped["inputs or outputs"] += 1
        return None
    values, shapes, types = (_text(value.get(key), key, dropped) for key in ("values", "shapes", "types"))
    return values, shapes, types


def _attributes(value: Any, dropped: _Dropped) -> list[Attribute]:
    if not isinstance(value, list):
        if value is not None:
            dropped["attributes"] += 1
        return []
    return [attr for item in value if (attr := _attribute(item, dropped)) is not None]


def _attribute(item: Any, dropped: _Dropped) -> Attribute | None:
    if not isinstance(item, dict):
        dropped["attribute"] += 1
        return None
    name = _text(item.get("name"), "attribute's name", dropped)
    doc = _text(item.get("docString", item.get("doc_string")), "doc string", dropped)
    key = next((key for key in item if key in _VALUES), None)
    if key is None:
        return Attribute(name, ValueKind.NONE, None, doc)
    kind, value = _VALUES[key], item[key]
    if kind.is_list:
        value = value.get("values", []) if isinstance(value, dict) else None
    fitting = _fitting(kind, value)
    if fitting is None:
        dropped[name[:40]] += 1
        return None
    return Attribute(name, kind, fitting, doc)
