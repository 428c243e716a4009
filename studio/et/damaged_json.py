"""Recover what damaged JSON holds: cut off, with control characters in texts, bare `nan`, or commas before the end of a list.

A recording process that is killed leaves a file without its end, and profilers write names and numbers unchecked. Chrome's viewer
takes lists of events with a comma behind the last one and without their end, so tools write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec
import numpy as np

from studio.errors import TraceFormatError
from studio.trace import Finding
from studio.units import format_counted

Decoded = TypeVar("Decoded")

_CONTROL = bytes(max(byte, 32) for byte in range(256))
_BARE_NUMBER = re.compile(rb"(?<=[\[,:\s])([-+]?(?:nan|NaN|inf(?:inity)?|Infinity))(?=\s*[,\]}])")
_OUT_OF_RANGE = "Number out of range"
_TOO_LARGE = (_OUT_OF_RANGE, "Integer value out of range")
"""What is said of numbers that no type can hold, the second of those of thousands of digits."""
_TRAILING = "trailing characters"
# Decimal exponents of floats end at 308; shorter numbers that match as well are right as texts, too.
_HUGE = re.compile(rb"[eE]\+?\d{3}|\d{309}")
_TEXT_OR_HUGE = re.compile(
    rb'"(?:[^"\\]|\\.)*"|(?<![\w.+-])(-?(?:\d+(?:\.\d+)?[eE]\+?\d{3,}|\d{309,}(?:\.\d+)?(?:[eE][-+]?\d+)?))(?=[\s,\]}])',
    re.DOTALL,
)
_COMMA = re.compile(rb",(?=\s*[\]}])")
_TEXT_OR_COMMA = re.compile(rb'"(?:[^"\\]|\\.)*"|,(?=\s*[\]}])', re.DOTALL)
_OFFSET = re.compile(r"\(byte (\d+)\)")
_PIECE_BYTES = 1 << 24
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")] = 1
_STEP[list(b"}]")] = -1


def decode_or_recover(
    data: bytes | memoryview,
    decode: Callable[[bytes | memoryview], Decoded],
    name: str,
    depths: tuple[int, ...] = (),
) -> tuple[Decoded, tuple[Finding, ...]]:
    """Decode a JSON file; of a damaged one recover what is there.

    Args:
        data: The file.
        decode: Raises msgspec.DecodeError where it is no JSON, msgspec.ValidationError where it is not of the
            wanted shape; the latter is passed on.
        name: The file's name for messages.
        depths: Of how many brackets around them the lists are whose whole items count where the file is cut off; by default those that
            are the file itself or a member of the object that it is.

    Raises:
        TraceFormatError: Nothing of it can be read.
    """
    try:
        return _decode(data, decode, name, depths)
    except msgspec.ValidationError as error:
        if _OUT_OF_RANGE not in str(error):
            raise
        # What looks like a number beyond all types, and was not made a text, is no number at all, as `2e98306.0`.
        raise TraceFormatError(
            f"{name}: {str(error).replace(' - at', ', or no number at all, at')}.",
            hint="Look for numbers with exponents of three digits or more, or copy or record the file again.",
        ) from None


def _decode(
    data: bytes | memoryview,
    decode: Callable[[bytes | memoryview], Decoded],
    name: str,
    depths: tuple[int, ...],
) -> tuple[Decoded, tuple[Finding, ...]]:
    """Decode a file, as it is if that is possible, else with what is odd replaced, else the part before the damage."""
    try:
        return decode(data), ()
    except msgspec.ValidationError as error:
        if not any(words in str(error) for words in _TOO_LARGE):
            raise
        problem: Exception = error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = error
    raw = bytes(data)
    plain = _drop_commas(_quote_huge_numbers(_replace_odd_bytes(raw)))
    if plain != raw:
        try:
            return decode(plain), (_build_replaced_finding(name),)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = error
    if isinstance(problem, msgspec.ValidationError):
        raise problem
    closed = _close_list(plain)
    if closed is not None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decode(closed), (_build_open_finding(name),)
    return _decode_start(plain, decode, problem, name, depths)


def _decode_start(
    plain: bytes,
    decode: Callable[[bytes | memoryview], Decoded],
    problem: Exception,
    name: str,
    depths: tuple[int, ...],
) -> tuple[Decoded, tuple[Finding, ...]]:
    """Return the content of the part before the damage."""
    match = _OFFSET.search(str(problem))
    end = int(match[1]) if match else len(plain)
    if _TRAILING in str(problem):
        # The first of these has been read.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decode(plain[: end - 1]), (_build_trailing_finding(plain, end - 1, name),)
    kept = find_last_item(plain[:end], depths)
    refused = TraceFormatError(
        f"{name}: no JSON from byte {end:,} of {len(plain):,} on, and nothing complete before it: {problem}.",
        hint="Copy or record the file again.",
    )
    if not kept:
        raise refused
    try:
        value = decode(plain[:kept] + _list_closing(plain[:kept]))
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise refused from None
    finding = Finding(
        "error",
        "damaged-file",
        f"{name}: {_explain_problem(problem)} at byte {end:,} of {len(plain):,}; what comes before byte {kept:,} was read, "
        "the rest is lost.",
        "Copy or record the file again; a recording process that was killed leaves such a file.",
        file=name,
        offset=end,
    )
    return value, (finding,)


def _explain_problem(problem: Exception) -> str:
    return "cut off" if "truncated" in str(problem) else "damaged"


def _build_trailing_finding(plain: bytes, end: int, name: str) -> Finding:
    """Return the finding about what comes behind a whole document: it is lost if it may be JSON, too."""
    rest = plain[end:]
    if rest[:1] in (b"{", b"[") or b'"' in rest:
        message = f"{name}: its JSON ends at byte {end:,} of {len(plain):,}, and more follows; what comes before was read, the rest is lost."
        hint = "Write each recording into a file of its own, or copy the file again."
        return Finding("error", "damaged-file", message, hint, file=name, offset=end)
    message = f"{name}: {format_counted(len(rest), 'byte')} behind the end of its JSON, ignored."
    return Finding("warning", "mended-json", message, file=name)


def _build_replaced_finding(name: str) -> Finding:
    return Finding(
        "warning",
        "mended-json",
        f"{name}: not valid JSON as it stands (control characters, bytes that are no UTF-8, bare nan, commas before the end of a list, "
        "or numbers too large for any type); read with those replaced.",
        file=name,
    )


def _replace_odd_bytes(raw: bytes) -> bytes:
    """Replace what JSON does not allow but whose meaning is clear."""
    text = raw.translate(_CONTROL)
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
    return _BARE_NUMBER.sub(rb'"\1"', text)


def _quote_huge_numbers(text: bytes) -> bytes:
    """Make numbers that no type can hold texts, outside of the texts there are."""
    if not _HUGE.search(text):
        return text
    return _TEXT_OR_HUGE.sub(lambda match: b'"%b"' % match[1] if match[1] else match[0], text)


def _build_open_finding(name: str) -> Finding:
    return Finding(
        "warning",
        "mended-json",
        f"{name}: the list of events has no end, which Chrome's viewer allows, so nothing says whether any are missing there.",
        "Look whether the last step is whole.",
        file=name,
    )


def _drop_commas(text: bytes) -> bytes:
    """Drop commas behind which a list or an object ends, outside of texts.

    Example:
        >>> _drop_commas(b'[{"a": ",]",}, 2, ]')
        b'[{"a": ",]"}, 2 ]'
    """
    if not _COMMA.search(text):
        return text
    return _TEXT_OR_COMMA.sub(lambda match: match[0] if match[0] != b"," else b"", text)


def _close_list(text: bytes) -> bytes | None:
    """Return a list of events with its end, where it lacks that alone."""
    if text.lstrip()[:1] != b"[":
        return None
    items = text.rstrip().removesuffix(b",").rstrip()
    return items + b"]" if items.endswith(b"}") else None


def find_last_item(data: bytes, depths: tuple[int, ...] = ()) -> int:
    """Return where the last complete object of the file's list of objects ends, 0 where there is none.

    The list is the file itself, or a member of the object that the file is; or one with so many brackets around its items.

    Example:
        >>> find_last_item(b'{"nodes": [{"id": 1}, {"id": [2')
        20
        >>> find_last_item(b'[{"parts": [{"a": [1]}, {"b"', (3,))
        22
    """
    if not depths:
        depths = (2,) if data.lstrip()[:1] == b"{" else (1,)
    last_end = 0
    for marks, kinds, after in _iterate_brackets(data):
        closing = np.flatnonzero(np.isin(after, depths) & (kinds == ord("}")))
        if len(closing):
            last_end = int(marks[closing[-1]]) + 1
    return last_end


def _list_closing(data: bytes) -> bytes:
    """Return what closes the lists and objects that a text leaves open.

    Example:
        >>> _list_closing(b'{"a": [{"b": [1], "c": [{}')
        b']}]}'
    """
    opened: list[int] = []
    for _, kinds, after in _iterate_brackets(data):
        if not len(after):
            continue
        lowest, last = int(after.min()), int(after[-1])
        del opened[max(lowest, 0) :]
        for depth in range(len(opened) + 1, last + 1):
            own = np.flatnonzero((after == depth) & ((kinds == ord("{")) | (kinds == ord("["))))
            opened.append(int(kinds[own[-1]]))
    return bytes(ord("}") if kind == ord("{") else ord("]") for kind in reversed(opened))


_Brackets = tuple[
    np.ndarray[tuple[int], np.dtype[np.int64]],
    np.ndarray[tuple[int], np.dtype[np.uint8]],
    np.ndarray[tuple[int], np.dtype[np.int64]],
]


def _iterate_brackets(data: bytes) -> Iterator[_Brackets]:
    """Yield places (M,) of brackets outside of texts, what they are, and how many are open behind each, piece by piece."""
    depth, inside, start = 0, False, 0
    raw = np.frombuffer(data, np.uint8)
    while start < len(raw):
        end = _find_piece_end(data, min(start + _PIECE_BYTES, len(raw)))
        piece = raw[start:end]
        quotes = _find_unescaped_quotes(piece)
        marks = np.flatnonzero(_STEP[piece])
        before = np.searchsorted(quotes, marks)
        marks = marks[(before + inside) % 2 == 0]
        after = depth + np.cumsum(_STEP[piece[marks]], dtype=np.int64)
        yield marks + start, piece[marks], after
        depth = int(after[-1]) if len(after) else depth
        inside = bool((len(quotes) + inside) % 2)
        start = end


def _find_piece_end(data: bytes, end: int) -> int:
    """Move a boundary so that it splits no escape sequence."""
    while end < len(data) and data[end - 1] == _BACKSLASH:
        end += 1
    return min(end + 1, len(data)) if end < len(data) and data[end - 2] == _BACKSLASH else end


def _find_unescaped_quotes(
    piece: np.ndarray[tuple[int], np.dtype[np.uint8]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    quotes = np.flatnonzero(piece == _QUOTE)
    slashes = np.flatnonzero(piece == _BACKSLASH)
    if not len(slashes):
        return quotes
    breaks = np.flatnonzero(np.diff(slashes) != 1)
    first = slashes[np.concatenate(([0], breaks + 1))]
    last = slashes[np.concatenate((breaks, [len(slashes) - 1]))]
    escaped = last[(last - first) % 2 == 0] + 1
    return quotes[~np.isin(quotes, escaped)]
