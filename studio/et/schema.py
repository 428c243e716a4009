"""Protobuf messages described at run time: those of the Chakra schema, for writing, and those of other formats.

Described rather than generated: generated code refuses protobuf releases older than its generator, and
registers itself globally, where it would clash with the Chakra package of the same process.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from studio.errors import TraceFormatError
from studio.et.format import Reading
from studio.et.varints import find_whole_end
from studio.trace import Finding, ValueKind

_PACKAGE = "ChakraProtoMsg"
_FIRST_FIELD = 10
"""The tag of field 1 where it is a message."""
_AGAIN = "Copy or record the file again."


Fields = Mapping[str, tuple[int, str]]
"""The fields of a message: name → number and type, a scalar in capitals or a message, with `repeated` before it."""


def build_message_classes(package: str, messages: Mapping[str, Fields]) -> dict[str, Any]:
    r"""Return classes that read and write the messages described, by name; fields that are not described are skipped.

    Example:
        >>> point = build_message_classes("example", {"Point": {"x": (1, "INT32"), "y": (2, "INT32")}})["Point"]
        >>> point(x=3).SerializeToString()
        b'\x08\x03'
    """
    # Reading Chakra traces needs no protobuf.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"chakra_studio/{package}.proto", package=package, syntax="proto3"
    )
    for name, specs in messages.items():
        _add_message(file, name, [(field, *spec) for field, spec in specs.items()])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


class Schema(NamedTuple):
    """The message classes a writer needs."""

    metadata: Any
    node: Any
    attribute: Any


def to_camel_case(name: str) -> str:
    """Return the name of a field as protobuf's JSON spells it.

    Example:
        >>> to_camel_case("int64_list")
        'int64List'
    """
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def get_value_field(kind: ValueKind) -> str:
    """Return the AttributeProto field that holds values of `kind`.

    Example:
        >>> get_value_field(ValueKind.INT64), get_value_field(ValueKind.INT64_LIST)
        ('int64_val', 'int64_list')
    """
    name = kind.name.lower()
    return name if kind.is_list else f"{name}_val"


@lru_cache(maxsize=1)
def load_schema() -> Schema:
    """Return the message classes of the current layout (v0.0.4 and later)."""
    # Reading needs no protobuf.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="chakra_studio/et_def.proto", package=_PACKAGE, syntax="proto3"
    )
    kinds = [kind for kind in ValueKind if kind != ValueKind.NONE]
    for kind in kinds:
        if kind.is_list:
            scalar = ValueKind(kind - 1).name
            _add_message(file, _list_name(kind), [("values", 1, f"repeated {scalar}")])
    attribute = _add_message(file, "AttributeProto", [("name", 1, "STRING"), ("doc_string", 2, "STRING")])
    attribute.oneof_decl.add(name="value")
    for kind in kinds:
        kind_type = _list_name(kind) if kind.is_list else kind.name
        _add_field(attribute, get_value_field(kind), int(kind), kind_type, _PACKAGE).oneof_index = 0
    attrs = "repeated AttributeProto"
    _add_message(file, "GlobalMetadata", [("version", 1, "STRING"), ("attr", 2, attrs)])
    _add_message(
        file, "IOInfo", [(name, i, "STRING") for i, name in enumerate(("values", "shapes", "types"), 1)]
    )
    node = [("id", 1, "UINT64"), ("name", 2, "STRING"), ("type", 3, "INT32")]
    node += [("ctrl_deps", 4, "repeated UINT64"), ("data_deps", 5, "repeated UINT64")]
    node += [("start_time_micros", 6, "UINT64"), ("duration_micros", 7, "UINT64")]
    node += [("inputs", 8, "IOInfo"), ("outputs", 9, "IOInfo"), ("attr", 10, attrs)]
    _add_message(file, "Node", node)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node", "AttributeProto")
    descriptors = [pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in names]
    return Schema(*map(message_factory.GetMessageClass, descriptors))


def parse_node(record: bytes) -> Any | None:
    """Return a node's record as a message, None where protobuf refuses it, above all for texts that are not UTF-8."""
    from google.protobuf.message import DecodeError

    try:
        return load_schema().node.FromString(record)
    except DecodeError:
        return None


def _list_name(kind: ValueKind) -> str:
    return ValueKind(kind - 1).name.title() + "List"


def _add_message(file: Any, name: str, specs: list[tuple[str, int, str]]) -> Any:
    message = file.message_type.add(name=name)
    for field_name, number, type_name in specs:
        _add_field(message, field_name, number, type_name, file.package)
    return message


def _add_field(message: Any, name: str, number: int, type_name: str, package: str) -> Any:
    """Add a field; `type_name` is a scalar in capitals or a message, with `repeated` before it."""
    repeated = type_name.startswith("repeated ")
    type_name = type_name.removeprefix("repeated ")
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if type_name.isupper():
        field.type = getattr(field, f"TYPE_{type_name}")
    else:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{package}.{type_name}"
    return field


def parse_whole_part(message_class: Any, reading: Reading, what: str) -> tuple[Any, list[Finding]]:
    """Return the content of a file of messages that are field 1 each, and the finding about its damage, where it is damaged.

    What lies before the damage is whole: such messages are written one after another.

    Raises:
        TraceFormatError: There is no whole message before the damage.
    """
    data = bytes(reading.data)
    end = len(data)
    for attempt in range(2):
        try:
            content = message_class.FromString(data[:end])
        except Exception as error:
            if type(error).__name__ != "DecodeError":
                raise
            end = 0 if attempt else find_whole_end(data, _FIRST_FIELD)
            if not end:
                raise TraceFormatError(
                    f"{reading.name}: not a whole {what}: {error}.", hint=_AGAIN
                ) from error
        else:
            break
    if end == len(data):
        return content, []
    message = f"{reading.name}: damaged at byte {end:,}; what comes before was read, the rest is lost."
    return content, [Finding("error", "damaged-file", message, _AGAIN, file=reading.name, offset=end)]
