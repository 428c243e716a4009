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

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et import chakra, jsonize
from studio.et.collector import pause_collector
from studio.et.damaged_json import decode_or_recover
from studio.et.format import Part, Reading
from studio.et.records import LARGEST_ID, LARGEST_INT32, LARGEST_NS, NodeRecord, build_rank_part, fits
from studio.et.schema import get_value_field, to_camel_case
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


def parse_integer(value: Any) -> int | None:
    """Return a whole number, also one written as a text or as 3.0; None where it is none.

    Example:
        >>> parse_integer("216"), parse_integer(4.0), parse_integer(True), parse_integer("4.5")
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


def _parse_bounded_number(value: Any, highest: int, what: str, dropped: _Dropped, default: int = 0) -> int:
    number = parse_integer(value)
    if number is not None and 0 <= number <= highest:
        return number
    if value is not None:
        dropped[what] += 1
    return default


def _parse_ids(value: Any, what: str, dropped: _Dropped) -> list[int]:
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
    numbers = [parse_integer(item) for item in items]
    good = [number for number in numbers if number is not None and 0 <= number <= LARGEST_ID]
    if len(good) < len(items):
        dropped[what] += len(items) - len(good)
    return good


def _parse_type(value: Any, dropped: _Dropped) -> int:
    """Return a node type, given as a number or as `COMP_NODE`."""
    if isinstance(value, str):
        known = NodeType.__members__.get(value.removesuffix("_NODE"))
        if known is not None:
            return int(known)
    return _parse_bounded_number(value, LARGEST_INT32, "type", dropped)


def _parse_text(value: Any, what: str, dropped: _Dropped) -> str:
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


_workload = build_decoder(_Workload)


def read_feeder(reading: Reading) -> list[Part]:
    """Read a workload graph.

    Raises:
        TraceFormatError: It is no JSON, or has no list of nodes.
    """
    with pause_collector():
        try:
            workload, findings = decode_or_recover(reading.data, _workload, reading.name)
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
        records = [record for node in nodes if (record := _parse_feeder_node(node, dropped)) is not None]
        metadata = [
            Attribute(key, ValueKind.STRING if isinstance(value, str) else ValueKind.INT64, value)
            for key in ("workload_name", "ngpus", "soc")
            if isinstance(value := getattr(workload, key), str)
            or (type(value) is int and fits(ValueKind.INT64, value))
        ]
        noticed = [*findings, *dropped.findings(reading.name)]
        return [build_rank_part(reading, records, metadata=metadata, findings=noticed)]


def _parse_feeder_node(node: Any, dropped: _Dropped) -> NodeRecord | None:
    if not isinstance(node, dict):
        dropped["node"] += 1
        return None
    plain = {key.replace("_", "").lower(): (key, value) for key, value in node.items()}

    def get_value(*keys: str) -> Any:
        return next((plain[key][1] for key in keys if key in plain), None)

    duration_us = get_value("runtime", "duration")
    return NodeRecord(
        _parse_bounded_number(get_value("id"), LARGEST_ID, "id", dropped),
        _parse_text(get_value("name"), "name", dropped),
        _parse_type(get_value("nodetype", "type"), dropped),
        _parse_ids(get_value("ctrldeps", "controldeps"), "control dependency", dropped),
        _parse_ids(get_value("datadeps"), "data dependency", dropped),
        duration_ns=_parse_duration_ns(duration_us, dropped),
        attrs=[
            attr
            for key, (written, value) in plain.items()
            if key not in _NODE_KEYS
            and (attr := _parse_feeder_attribute(key, written, value, dropped)) is not None
        ],
    )


def _parse_duration_ns(value_us: Any, dropped: _Dropped) -> int:
    """Return microseconds, whole or not, in ns."""
    if isinstance(value_us, float) and 0 <= value_us < LARGEST_NS / 1000:
        return round(value_us * 1000)
    return _parse_bounded_number(value_us, LARGEST_NS // 1000, "runtime", dropped) * 1000


def _parse_feeder_attribute(key: str, written: str, value: Any, dropped: _Dropped) -> Attribute | None:
    """Return a key that is no field of a node as the attribute Chakra files have it as."""
    name, kind = _KINDS.get(key, (written, None))
    if kind is None:
        kind = _infer_kind(value)
    if kind == ValueKind.STRING and isinstance(value, int):
        value = str(value)
    fitting = _fit_value(kind, value) if kind is not None else None
    if fitting is None:
        if value is not None:
            dropped[written[:40]] += 1
        return None
    return Attribute(name, kind or ValueKind.NONE, fitting)


def _infer_kind(value: Any) -> ValueKind | None:
    """Return the kind a JSON value has by itself."""
    if isinstance(value, bool):
        return ValueKind.BOOL
    if isinstance(value, list):
        kinds = {_infer_kind(item) for item in value}
        kind = kinds.pop() if len(kinds) == 1 else None
        return ValueKind(kind + 1) if kind is not None and not kind.is_list else None
    simple = {int: ValueKind.INT64, float: ValueKind.DOUBLE, str: ValueKind.STRING}
    return simple.get(type(value))


# ---------------------------------------------------------------------------------------------------
# Values by kind


def _fit_value(kind: ValueKind, value: Any) -> Any:
    """Return a JSON value as a value of `kind`, None where it is none."""
    if not kind.is_list:
        return _parse_scalar(kind, value)
    if not isinstance(value, list):
        return None
    items = [_parse_scalar(ValueKind(kind - 1), item) for item in value]
    return None if None in items else items


def _parse_scalar(kind: ValueKind, value: Any) -> Any:
    if kind in _READERS:
        return _READERS[kind](value)
    number = parse_integer(value)
    return number if number is not None and fits(kind, number) else None


def _parse_boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return bool(value) if isinstance(value, bool) or value in (0, 1) else None


def _parse_number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, float | int | str) and len(str(value)) < 400 else None
    except (ValueError, OverflowError):
        return None


def _parse_narrow_number(value: Any) -> float | None:
    number = _parse_number(value)
    # What fits 32 bits only as infinity is refused by the schema.
    return None if number is not None and abs(number) > 3.4e38 and number - number == 0 else number


def _parse_words(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) < _LONGEST_TEXT else None


def _parse_bytes(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, altchars=b"-_" if "-" in value or "_" in value else None)
    except (TypeError, ValueError, binascii.Error):
        return None


_READERS: Mapping[ValueKind, Callable[[Any], Any]] = {
    ValueKind.BOOL: _parse_boolean,
    ValueKind.DOUBLE: _parse_number,
    ValueKind.FLOAT: _parse_narrow_number,
    ValueKind.STRING: _parse_words,
    ValueKind.BYTES: _parse_bytes,
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
    for spelling in (get_value_field(kind), to_camel_case(get_value_field(kind)))
}
"""The fields of an attribute that hold its value, as protobuf's JSON spells them."""


def read_jsonized(reading: Reading) -> list[Part]:
    """Read the jsonizer's output up to where it is damaged.

    Raises:
        TraceFormatError: The first object is damaged.
    """
    if jsonize.is_exact(reading.data):
        return _read_exact(reading)
    with pause_collector():
        objects = _iterate_objects(bytes(reading.data), reading.name)
        dropped = _Dropped()
        version, metadata, records, findings = "", [], [], []
        for index, (value, finding) in enumerate(objects):
            if finding is not None:
                findings.append(finding)
            elif not isinstance(value, dict):
                dropped["node"] += 1
            elif index == 0:
                version = _parse_text(value.get("version"), "version", dropped)
                metadata = _parse_attributes(value.get("attr"), dropped)
            else:
                records.append(_parse_jsonized_node(value, dropped))
        reading.tick(len(reading.data) // 2)
        findings += dropped.findings(reading.name)
        return [build_rank_part(reading, records, version=version, metadata=metadata, findings=findings)]


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


def _iterate_objects(data: bytes, name: str) -> Iterator[tuple[Any, Finding | None]]:
    """Yield the objects of a file one by one; at damage, yield a finding and stop.

    Raises:
        TraceFormatError: The first object is damaged.
    """
    text = data.decode("utf-8", "replace")
    decode = json.JSONDecoder(strict=False).raw_decode
    position, first = 0, True
    while (position := _find_next(text, position)) < len(text):
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


def _find_next(text: str, position: int) -> int:
    """Return where the next object begins."""
    while position < len(text) and text[position] in " \t\r\n,\0":
        position += 1
    return position


def _parse_jsonized_node(value: dict[str, Any], dropped: _Dropped) -> NodeRecord:
    def get_value(*keys: str) -> Any:
        return next((value[key] for key in keys if key in value), None)

    start_us = get_value("startTimeMicros", "start_time_micros")
    return NodeRecord(
        _parse_bounded_number(get_value("id"), LARGEST_ID, "id", dropped),
        _parse_text(get_value("name"), "name", dropped),
        _parse_type(get_value("type"), dropped),
        _parse_ids(get_value("ctrlDeps", "ctrl_deps"), "control dependency", dropped),
        _parse_ids(get_value("dataDeps", "data_deps"), "data dependency", dropped),
        -1
        if start_us is None
        else _parse_bounded_number(start_us, LARGEST_NS // 1000, "start", dropped) * 1000,
        _parse_bounded_number(
            get_value("durationMicros", "duration_micros"), LARGEST_NS // 1000, "duration", dropped
        )
        * 1000,
        _parse_io(get_value("inputs"), dropped),
        _parse_io(get_value("outputs"), dropped),
        _parse_attributes(get_value("attr"), dropped),
    )


def _parse_io(value: Any, dropped: _Dropped) -> tuple[str, str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        dropped["inputs or outputs"] += 1
        return None
    values, shapes, types = (
        _parse_text(value.get(key), key, dropped) for key in ("values", "shapes", "types")
    )
    return values, shapes, types


def _parse_attributes(value: Any, dropped: _Dropped) -> list[Attribute]:
    if not isinstance(value, list):
        if value is not None:
            dropped["attributes"] += 1
        return []
    return [attr for item in value if (attr := _parse_attribute(item, dropped)) is not None]


def _parse_attribute(item: Any, dropped: _Dropped) -> Attribute | None:
    if not isinstance(item, dict):
        dropped["attribute"] += 1
        return None
    name = _parse_text(item.get("name"), "attribute's name", dropped)
    doc = _parse_text(item.get("docString", item.get("doc_string")), "doc string", dropped)
    key = next((key for key in item if key in _VALUES), None)
    if key is None:
        return Attribute(name, ValueKind.NONE, None, doc)
    kind, value = _VALUES[key], item[key]
    if kind.is_list:
        value = value.get("values", []) if isinstance(value, dict) else None
    fitting = _fit_value(kind, value)
    if fitting is None:
        dropped[name[:40]] += 1
        return None
    return Attribute(name, kind, fitting, doc)
