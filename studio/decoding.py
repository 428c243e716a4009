"""Stored and sent JSON, decoded into types.

msgspec learns what a class looks like at its first use and keeps that with the class before it is complete: two threads
that meet there crash the process (seen with 0.22). So decoders are made when modules are imported, one at a time, and
are whole before anybody decodes with them. `make lint` refuses msgspec's own functions elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_one_at_a_time = threading.Lock()


def build_decoder(kind: type[_T]) -> Callable[[bytes | memoryview | bytearray | str], _T]:
    """Return the function that decodes JSON into a type; to be called once for each, at the top of a module.

    The function raises `msgspec.MsgspecError` where the text is no JSON or of another shape, `UnicodeDecodeError` where
    it is no text.
    """
    with _one_at_a_time:
        return msgspec.json.Decoder(kind).decode  # noqa: TID251 - one at a time


def convert_value(value: Any, kind: Any) -> Any:
    """Return what decoded JSON says, as a type that is known at run time only.

    Raises:
        msgspec.ValidationError: It is of another shape.
    """
    with _one_at_a_time:
        return msgspec.convert(value, kind)  # noqa: TID251 - one at a time
