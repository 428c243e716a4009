"""Turn one record of a Chakra file into a JSON object and back, to the byte.

The objects are protobuf's JSON as Chakra's own jsonizer prints it: keys in lowerCamelCase, 64-bit integers as texts, enums by
name, bytes as base64. Three rules are added, so that the way back gives the same bytes:

- A key that stands in an object is written, also where it holds the default; a key that is left out is not.
- `@unknown` holds, as base64, the fields of a message that the schema does not know.
- `@bytes` holds, as base64, a record and its length as they stand in the file, where the values alone would be written otherwise:
  fields in another order, numbers longer than need be, texts that are not UTF-8, NaN of unusual bits. It counts as long as the
  values beside it are those it stands for; where somebody changed them, they are written instead.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from studio.et.encode import add_length, encode_varint
from studio.et.schema import get_value_field, to_camel_case
from studio.trace import NodeType, ValueKind

BYTES, UNKNOWN = "@bytes", "@unknown"

Kind = Literal["metadata", "node"]
"""What a record is: the first of a file is the metadata, all others are nodes."""

_LOW64 = 0xFFFF_FFFF_FFFF_FFFF
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5
_INTEGER = re.compile(r"[+-]?[0-9]{1,25}")
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class BadValueError(Exception):
    """A JSON object says something that no record can hold; the text names place, value and what is allowed."""


class _DamagedError(Exception):
    """Bytes that are no message."""


class _Field(NamedTuple):
    """A field of a message.

    Attributes:
        number: Its number in the schema.
        key: Its key in JSON.
        kind: Kind of its value; the name of a message for messages, `TYPE` and `IDS` for types and ids of nodes.
    """

    number: int
    key: str
    kind: ValueKind | str


_TEXT, _UINT = ValueKind.STRING, ValueKind.UINT64
_LISTS = {
    kind: f"list of {ValueKind(kind - 1).name}"
    for kind in ValueKind
    if kind != ValueKind.NONE and kind.is_list
}
_MESSAGES: Mapping[str, tuple[_Field, ...]] = {
    "metadata": (_Field(1, "version", _TEXT), _Field(2, "attr", "attribute")),
    "node": (
        _Field(1, "id", _UINT), _Field(2, "name", _TEXT), _Field(3, "type", "TYPE"),
        _Field(4, "ctrlDeps", "IDS"), _Field(5, "dataDeps", "IDS"),
        _Field(6, "startTimeMicros", _UINT), _Field(7, "durationMicros", _UINT),
        _Field(8, "inputs", "io"), _Field(9, "outputs", "io"), _Field(10, "attr", "attribute"),
    ),
    "io": (_Field(1, "values", _TEXT), _Field(2, "shapes", _TEXT), _Field(3, "types", _TEXT)),
    "attribute": (
        _Field(1, "name", _TEXT), _Field(2, "docString", _TEXT),
        *(
            _Field(int(kind), to_camel_case(get_value_field(kind)), _LISTS[kind] if kind.is_list else kind)
            for kind in ValueKind if kind != ValueKind.NONE
        ),
    ),
    **{name: (_Field(1, "values", ValueKind(kind - 1)),) for kind, name in _LISTS.items()},
}  # fmt: skip
_NUMBERS = {name: {field.number: field for field in fields} for name, fields in _MESSAGES.items()}
_KEYS = {
    name: {
        spelling: field
        for field in fields
        for spelling in (field.key, re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), field.key))
    }
    for name, fields in _MESSAGES.items()
}

_WIRES: Mapping[ValueKind, int] = {
    ValueKind.DOUBLE: _EIGHT, ValueKind.FLOAT: _FOUR, ValueKind.FIXED32: _FOUR, ValueKind.FIXED64: _EIGHT,
    ValueKind.SFIXED32: _FOUR, ValueKind.SFIXED64: _EIGHT, ValueKind.STRING: _SIZED, ValueKind.BYTES: _SIZED,
}  # fmt: skip
_PACKED: Mapping[ValueKind, str] = {
    ValueKind.DOUBLE: "<d", ValueKind.FLOAT: "<f", ValueKind.FIXED32: "<I", ValueKind.FIXED64: "<Q",
    ValueKind.SFIXED32: "<i", ValueKind.SFIXED64: "<q",
}  # fmt: skip
_LONG = frozenset(
    (ValueKind.INT64, ValueKind.UINT64, ValueKind.SINT64, ValueKind.FIXED64, ValueKind.SFIXED64)
)
_RANGES: Mapping[ValueKind, tuple[int, int]] = {
    kind: (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for kind, bits, unsigned in (
        (ValueKind.INT32, 32, False), (ValueKind.SINT32, 32, False), (ValueKind.SFIXED32, 32, False),
        (ValueKind.INT64, 64, False), (ValueKind.SINT64, 64, False), (ValueKind.SFIXED64, 64, False),
        (ValueKind.UINT32, 32, True), (ValueKind.FIXED32, 32, True),
        (ValueKind.UINT64, 64, True), (ValueKind.FIXED64, 64, True),
    )
}  # fmt: skip


def record_to_json(raw: bytes, kind: Kind, before: bytes | None = None) -> dict[str, Any]:
    r"""Return the object of a record.

    Args:
        raw: The record.
        kind: What it is.
        before: Its length as it stands in the file, where that is not the shortest form.

    Example:
        >>> record_to_json(b"\x08\x07\x12\x01a", "node")
        {'id': '7', 'name': 'a'}
        >>> record_to_json(b"\x12\x01a\x08\x07", "node")
        {'id': '7', 'name': 'a', '@bytes': 'BRIBYQgH'}
    """
    head = encode_varint(len(raw)) if before is None else before
    try:
        value = _decode(raw, kind)
    except _DamagedError:
        return {BYTES: _encode_base64(head + raw)}
    if before is not None or _encode(value, kind, "") != raw:
        value[BYTES] = _encode_base64(head + raw)
    return value


def json_to_record(value: Any, kind: Kind) -> tuple[bytes, bool]:
    r"""Return the bytes of an object, its length included, and whether its values were changed since `@bytes` was written.

    Raises:
        BadValueError: It is no such object.

    Example:
        >>> json_to_record({"id": 7, "name": "a"}, "node")
        (b'\x05\x08\x07\x12\x01a', False)
    """
    if not isinstance(value, dict) or BYTES not in value:
        return add_length(_encode(value, kind, "")), False
    framed = _decode_base64(value[BYTES], BYTES)
    rest = {key: item for key, item in value.items() if key != BYTES}
    raw = _strip_length(framed)
    try:
        same = _encode(_decode(raw, kind), kind, "") == _encode(rest, kind, "")
    except _DamagedError:
        same = not rest
    return (framed, False) if same else (add_length(_encode(rest, kind, "")), True)


def _strip_length(framed: bytes) -> bytes:
    """Return a record without the length before it."""
    try:
        size, begin = _read_varint(framed, 0)
    except _DamagedError:
        size, begin = -1, 0
    if size != len(framed) - begin:
        raise BadValueError(
            f"{BYTES} is no record: its length is {size:,}, followed by {len(framed) - begin:,} bytes"
        )
    return framed[begin:]


# ---------------------------------------------------------------------------------------------------
# Bytes → values


class _Written(dict[str, Any]):
    """An attribute together with the bytes that its values are written as."""

    __slots__ = ("raw",)

    raw: bytes


@lru_cache(maxsize=1 << 14)
def _decode_attribute(raw: bytes) -> _Written:
    """Return an attribute; most of a file's are repeated many times."""
    plain = _decode(raw, "attribute")
    value = _Written(plain)
    value.raw = _encode(plain, "attribute", "")
    return value


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    value = shift = 0
    try:
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & _LOW64, at
            shift += 7
            if shift > 63:
                raise _DamagedError
    except IndexError:
        raise _DamagedError from None


def _decode(raw: bytes, message: str) -> dict[str, Any]:
    """Return the values of a message, in the order of the schema; raises _DamagedError."""
    fields, contents, unknown = _NUMBERS[message], dict[int, Any](), b""
    at, end = 0, len(raw)
    while at < end:
        start = at
        tag, at = _read_varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise _DamagedError
        content: int | bytes
        if wire == _VARINT:
            content, at = _read_varint(raw, at)
        else:
            if wire == _SIZED:
                size, at = _read_varint(raw, at)
            elif wire in (_EIGHT, _FOUR):
                size = 8 if wire == _EIGHT else 4
            else:
                raise _DamagedError
            if size > end - at:
                raise _DamagedError
            content, at = raw[at : at + size], at + size
        field = fields.get(number)
        if field is None or not _put(contents, field, message, wire, content):
            unknown += raw[start:at]
    value = {fields[number].key: contents[number] for number in sorted(contents)}
    if unknown:
        value[UNKNOWN] = _encode_base64(unknown)
    return value


def _put(contents: dict[int, Any], field: _Field, message: str, wire: int, content: int | bytes) -> bool:
    """Add a field to the values of its message; False where its wire type is none that its kind can have."""
    number, kind = field.number, field.kind
    if isinstance(kind, ValueKind):
        if number == 1 and message in _LISTS.values():
            return _put_items(contents.setdefault(number, []), kind, wire, content)
        if wire != _WIRES.get(kind, _VARINT):
            return False
        _forget_others(contents, message, number)
        contents[number] = _to_json(kind, content)
    elif kind == "TYPE":
        if wire != _VARINT or not isinstance(content, int):
            return False
        contents[number] = _format_type(_convert_to_signed(content, 32))
    elif kind == "IDS":
        return _put_items(contents.setdefault(number, []), _UINT, wire, content)
    elif wire != _SIZED or not isinstance(content, bytes):
        return False
    elif kind == "attribute":
        contents.setdefault(number, []).append(
            _decode_attribute(content) if len(content) < 512 else _decode(content, kind)
        )
    else:
        _forget_others(contents, message, number)
        contents[number] = _decode(content, kind)
    return True


def _forget_others(contents: dict[int, Any], message: str, number: int) -> None:
    """Forget the values that an attribute had before: the last one counts."""
    if message == "attribute" and number > 2:
        for other in [other for other in contents if other > 2]:
            del contents[other]


def _put_items(items: list[Any], kind: ValueKind, wire: int, content: int | bytes) -> bool:
    """Add to the items of a list; numbers stand one after another in one field, or in a field each."""
    own = _WIRES.get(kind, _VARINT)
    if wire == own:
        items.append(_to_json(kind, content))
        return True
    if wire != _SIZED or not isinstance(content, bytes):
        return False
    at = 0
    if own == _VARINT:
        while at < len(content):
            number, at = _read_varint(content, at)
            items.append(_to_json(kind, number))
        return True
    size = 8 if own == _EIGHT else 4
    if len(content) % size:
        raise _DamagedError
    items.extend(_to_json(kind, content[at : at + size]) for at in range(0, len(content), size))
    return True


def _convert_to_signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _to_json(kind: ValueKind, content: Any) -> Any:
    """Return a value of an attribute as JSON has it."""
    if kind == ValueKind.STRING:
        return content.decode("utf-8", "replace")
    if kind == ValueKind.BYTES:
        return _encode_base64(content)
    if kind == ValueKind.BOOL:
        return bool(content)
    if kind in (ValueKind.DOUBLE, ValueKind.FLOAT):
        [number] = struct.unpack(_PACKED[kind], content)
        return _float_to_json(number, narrow=kind == ValueKind.FLOAT)
    if kind in _PACKED:
        [number] = struct.unpack(_PACKED[kind], content)
    elif kind in (ValueKind.SINT32, ValueKind.SINT64):
        content &= 0xFFFF_FFFF if kind == ValueKind.SINT32 else _LOW64
        number = (content >> 1) ^ -(content & 1)
    elif kind in (ValueKind.INT32, ValueKind.INT64):
        number = _convert_to_signed(content, 32 if kind == ValueKind.INT32 else 64)
    else:
        number = content & 0xFFFF_FFFF if kind == ValueKind.UINT32 else content
    return str(number) if kind in _LONG else number


def _float_to_json(number: float, *, narrow: bool) -> float | str:
    """Return a number, the shortest that is the same in 32 bits where it is narrow; a word where it is none."""
    if number != number:
        return "NaN"
    if number - number != 0:
        return "Infinity" if number > 0 else "-Infinity"
    if not narrow:
        return number
    packed = struct.pack("<f", number)
    for digits in (6, 7, 8):
        shorter = float(f"{number:.{digits}g}")
        try:
            if struct.pack("<f", shorter) == packed:
                return shorter
        except OverflowError:
            continue
    return number


def _format_type(number: int) -> str | int:
    return f"{NodeType(number).name}_NODE" if number in NodeType._value2member_map_ else number


def _encode_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


# ---------------------------------------------------------------------------------------------------
# Values → bytes


def _encode(value: Any, message: str, place: str) -> bytes:
    """Return the bytes of a message, fields in the order of the schema; `place` is where it stands in its record."""
    if type(value) is _Written and message == "attribute":
        return value.raw
    if not isinstance(value, dict):
        what = message if message in ("metadata", "node", "attribute") else "message"
        raise BadValueError(f"{place or 'the ' + what} is {_format_item(value)}; allowed: an object")
    keys, fields, unknown = _KEYS[message], dict[int, bytes](), b""
    for key, item in value.items():
        where = f"{place}.{key}" if place else key
        if key == UNKNOWN:
            unknown = _decode_base64(item, where)
            continue
        field = keys.get(key)
        if field is None:
            allowed = ", ".join(field.key for field in _MESSAGES[message])
            raise BadValueError(f"the key {where!r} is not of the schema; allowed: {allowed}")
        if field.number in fields:
            raise BadValueError(f"{where} is given twice, in two spellings; allowed: once")
        fields[field.number] = _encode_field(field, item, message, where)
    if message == "attribute" and len(held := [number for number in fields if number > 2]) > 1:
        both = " and ".join(_NUMBERS[message][number].key for number in held[:2])
        raise BadValueError(f"{place or 'the attribute'} has {len(held)} values, {both}; allowed: one")
    return b"".join(fields[number] for number in sorted(fields)) + unknown


def _encode_field(field: _Field, item: Any, message: str, where: str) -> bytes:
    number, kind = field.number, field.kind
    if isinstance(kind, ValueKind):
        if message in _LISTS.values():
            return _encode_list(number, kind, item, where)
        return _encode_tag(number, kind) + _from_json(kind, item, where)
    if kind == "TYPE":
        return encode_varint(number << 3) + _encode_number(_parse_type(item, where))
    if kind == "IDS":
        return _encode_list(number, _UINT, item, where)
    tag = encode_varint(number << 3 | _SIZED)
    if kind == "attribute":
        return b"".join(
            tag + add_length(_encode(value, kind, f"{where}[{index}]"))
            for index, value in enumerate(_check_list(item, where))
        )
    return tag + add_length(_encode(item, kind, where))


def _encode_list(number: int, kind: ValueKind, item: Any, where: str) -> bytes:
    contents = [
        _from_json(kind, value, f"{where}[{index}]") for index, value in enumerate(_check_list(item, where))
    ]
    tag = encode_varint(number << 3 | _SIZED)
    if _WIRES.get(kind) == _SIZED:
        return b"".join(tag + content for content in contents)
    return tag + add_length(b"".join(contents))


def _check_list(item: Any, where: str) -> Iterable[Any]:
    if isinstance(item, list):
        return item
    raise BadValueError(f"{where} is {_format_item(item)}; allowed: a list")


def _encode_tag(number: int, kind: ValueKind) -> bytes:
    return encode_varint(number << 3 | _WIRES.get(kind, _VARINT))


def _encode_number(number: int) -> bytes:
    return encode_varint(number & _LOW64)


def _parse_type(item: Any, where: str) -> int:
    if isinstance(item, str) and item.removesuffix("_NODE") in NodeType.__members__:
        return int(NodeType[item.removesuffix("_NODE")])
    try:
        return _parse_integer(ValueKind.INT32, item, where)
    except BadValueError:
        names = ", ".join(f"{kind.name}_NODE" for kind in NodeType)
        raise BadValueError(
            f"{where} is {_format_item(item)}; allowed: {names}, or a whole number of 32 bits"
        ) from None


def _from_json(kind: ValueKind, item: Any, where: str) -> bytes:
    """Return the bytes of a value, without its tag."""
    if kind == ValueKind.STRING:
        return add_length(_encode_text(item, where))
    if kind == ValueKind.BYTES:
        return add_length(_decode_base64(item, where))
    if kind == ValueKind.BOOL:
        if not isinstance(item, bool):
            raise BadValueError(f"{where} is {_format_item(item)}; allowed: true, false")
        return b"\1" if item else b"\0"
    if kind in (ValueKind.DOUBLE, ValueKind.FLOAT):
        return _encode_float(kind, item, where)
    number = _parse_integer(kind, item, where)
    if kind in _PACKED:
        return struct.pack(_PACKED[kind], number)
    if kind in (ValueKind.SINT32, ValueKind.SINT64):
        number = number << 1 if number >= 0 else (-number << 1) - 1
    return _encode_number(number)


def _parse_integer(kind: ValueKind, item: Any, where: str) -> int:
    low, high = _RANGES[kind]
    number = None
    if type(item) is int:
        number = item
    elif (isinstance(item, str) and _INTEGER.fullmatch(item)) or (
        isinstance(item, float) and item.is_integer() and abs(item) < 2**53
    ):
        number = int(item)
    if number is None or not low <= number <= high:
        raise BadValueError(
            f"{where} is {_format_item(item)}; allowed: a whole number from {low} to {high}, or its text"
        )
    return number


def _encode_float(kind: ValueKind, item: Any, where: str) -> bytes:
    number = item
    if isinstance(item, str):
        number = _FLOATS.get(item)
    if isinstance(number, float | int) and not isinstance(number, bool):
        try:
            return struct.pack(_PACKED[kind], number)
        except (OverflowError, struct.error):
            pass
    bits = 32 if kind == ValueKind.FLOAT else 64
    raise BadValueError(
        f'{where} is {_format_item(item)}; allowed: a number of {bits} bits, "NaN", "Infinity", "-Infinity"'
    )


def _encode_text(item: Any, where: str) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError:
            raise BadValueError(f"{where} holds half of a character; allowed: a text of Unicode") from None
    raise BadValueError(f"{where} is {_format_item(item)}; allowed: a text")


def _decode_base64(item: Any, where: str) -> bytes:
    if isinstance(item, str):
        try:
            return base64.b64decode(item.replace("-", "+").replace("_", "/"), validate=True)
        except (ValueError, binascii.Error):
            pass
    raise BadValueError(f"{where} is {_format_item(item)}; allowed: bytes as base64")


def _format_item(item: Any) -> str:
    text = (
        repr(item)
        if not isinstance(item, dict | list)
        else f"a{'n object' if isinstance(item, dict) else ' list'}"
    )
    return text if len(text) < 60 else f"{text[:58]}…"
