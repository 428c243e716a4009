"""Look at the first fields of a protobuf message without its schema, to recognise a format by them."""

from __future__ import annotations


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return a varint and where it ends, (-1, -1) where there is none.

    Example:
        >>> read_varint(bytes([0x96, 0x01]), 0)
        (150, 2)
    """
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    return -1, -1


def read_field_kinds(head: bytes, tag: bytes) -> dict[int, int | bytes]:
    """Return the fields of the first message in `head`, as far as they are in it and look like fields.

    Args:
        head: The start of a file of messages that are a field each.
        tag: What each message begins with.

    Returns:
        The first value of each field: a number, or the bytes of a text or message, maybe cut; none where it is no
        message.
    """
    size, at = read_varint(head, len(tag)) if head.startswith(tag) else (-1, -1)
    end, fields = at + size, dict[int, int | bytes]()
    while 0 <= at < min(end, len(head)):
        key, at = read_varint(head, at)
        number, wire = key >> 3, key & 7
        if at < 0 or not 0 < number < 1 << 29 or wire in (3, 4, 6, 7):
            return {}
        if wire == 0:
            value, at = read_varint(head, at)
            fields.setdefault(number, value)
            continue
        length, at = read_varint(head, at) if wire == 2 else (8 if wire == 1 else 4, at)
        if at < 0 or length < 0 or at + length > end:
            return {}
        fields.setdefault(number, head[at : at + length])
        at += length
    return fields


def find_whole_end(data: bytes | memoryview, tag: int) -> int:
    """Return where the last whole message ends in a file of messages that are a field each, of one tag.

    Example:
        >>> find_whole_end(bytes([10, 2, 1, 1, 10, 1, 5, 10, 9, 1]), 10)
        7
    """
    at = 0
    while at < len(data) and data[at] == tag:
        size, begin = read_varint(data, at + 1)
        if size < 0 or begin + size > len(data):
            break
        at = begin + size
    return at
