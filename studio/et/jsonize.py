"""Read and write Chakra files as JSON, record by record, so that a file need not fit into memory.

Two forms are written: one document, `{"metadata": {…}, "nodes": [{…}, …]}`, and JSON Lines, the metadata on the first line and a
node on each further one. Those are read back, and so are objects with nothing between, as Chakra's own jsonizer prints them.
What an object holds is told by `record_json`.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from studio.errors import TraceFormatError
from studio.et import chakra
from studio.et import kernel as k
from studio.et.encode import encode_varint
from studio.et.foreign import describe_unrecognised
from studio.et.record_json import BYTES, UNKNOWN, BadValueError, Kind, json_to_record, record_to_json
from studio.trace import Finding
from studio.units import format_counted

_PIECE = 1 << 20
_LONGEST_OBJECT = 1 << 28
_LONGEST_RECORD = 1 << 30
_AT_ONCE = 1 << 9
"""Records that are handed on together: a piece each would take longer than its text."""
_GZIP = b"\x1f\x8b"
_JSON_START = re.compile(rb"(\xef\xbb\xbf)?[ \t\r\n]*[{\[]")
_DOCUMENT = re.compile(r'\{\s*"(metadata|nodes)"\s*:')
_SPACE = " \t\r\n"

Content = Literal["chakra", "json"]


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, none at the end."""
        ...


@dataclass(slots=True)
class Tally:
    """What was noticed while a file was turned into another.

    Attributes:
        nodes: Nodes so far.
        kept: Records that stand as bytes beside their values, or alone.
        changed: Objects whose values were changed since, so that their bytes no longer count.
        findings: What was lost.
    """

    nodes: int = 0
    kept: int = 0
    changed: int = 0
    findings: list[Finding] = field(default_factory=list)


class Source:
    """Bytes of a file or a pipe, inflated where they are gzip, whose begin can be looked at first."""

    def __init__(self, stream: Readable, name: str, on_read: Callable[[int], None] | None = None) -> None:
        """Take a stream.

        Args:
            stream: Where bytes come from.
            name: What it is called in messages.
            on_read: Is told how many bytes of the stream were read so far.
        """
        self.name, self._stream, self._told = name, stream, on_read
        self._raw_bytes = 0
        self._ahead = self._packed = b""
        self._inflater: Any = None
        self.damage = ""
        self._ahead = self._take(_PIECE)
        if self._ahead.startswith(_GZIP):
            self._inflater = zlib.decompressobj(wbits=31)
            self._packed, self._ahead = self._ahead, b""
            self._ahead = self._take(_PIECE)
        self.head = self._ahead

    def _read_raw(self, size: int = _PIECE) -> bytes:
        piece = self._stream.read(size)
        self._raw_bytes += len(piece)
        if self._told:
            self._told(self._raw_bytes)
        return piece

    def _take(self, size: int) -> bytes:
        """Read up to `size` bytes: less only at the end, also of a pipe that gives a few at a time."""
        pieces, wanted = [], size
        while wanted > 0:
            piece = self._inflate(wanted) if self._inflater else self._read_raw(wanted)
            if not piece:
                break
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)

    def _inflate(self, size: int) -> bytes:
        """Return up to `size` inflated bytes, also of several gzip members in a row; none at the end or at damage."""
        while not self.damage:
            if self._inflater.eof:
                # Zeros between members are padding, as tape tools write it.
                self._packed = self._packed.lstrip(b"\0") or self._read_raw()
                if not self._packed:
                    return b""
                if self._packed.strip(b"\0"):
                    self._packed = self._packed.lstrip(b"\0")
                    self._inflater = zlib.decompressobj(wbits=31)
                continue
            try:
                piece: bytes = self._inflater.decompress(self._packed, size)
            except zlib.error as error:
                self.damage = f"is damaged ({error})"
                break
            self._packed = self._inflater.unused_data or self._inflater.unconsumed_tail
            if piece:
                return piece
            if not self._inflater.eof and not self._packed:
                self._packed = self._read_raw()
                self.damage = "" if self._packed else "ends early"
        return b""

    def read(self, size: int = _PIECE) -> bytes:
        """Return the next bytes, fewer than `size` only at the end."""
        if not self._ahead:
            return self._take(size)
        piece, self._ahead = self._ahead[:size], self._ahead[size:]
        return piece + self._take(size - len(piece)) if len(piece) < size else piece


def infer_content(source: Source) -> Content:
    """Tell by its first bytes whether a file is a Chakra file or JSON.

    Raises:
        TraceFormatError: It is neither.
    """
    head = source.head
    if _JSON_START.match(head) and not chakra.sniff(head[:4096]):
        return "json"
    if head and (chakra.sniff(head) or chakra.sniff(head[:4096])):
        return "chakra"
    hint = "Name a Chakra file (.et, .et.gz), or JSON that this command or Chakra's jsonizer wrote."
    likeness = (
        f"a gzip stream that {source.damage}" if source.damage and not head else describe_unrecognised(head)
    )
    raise TraceFormatError(
        f"{source.name}: neither a Chakra execution trace nor its JSON; it looks like {likeness}.", hint=hint
    )


# ---------------------------------------------------------------------------------------------------
# Chakra → JSON


def write_json(source: Source, tally: Tally, *, lines: bool) -> Iterator[bytes]:
    """Yield the JSON of a Chakra file, as a document or as JSON Lines.

    Raises:
        TraceFormatError: The file does not begin with metadata as this layout has it.
    """
    chakra.read_metadata(source.head, source.name) if _has_whole_metadata(source.head) else None
    texts: list[str] = []
    for index, (before, raw) in enumerate(_iterate_records(source, tally)):
        value = record_to_json(raw, "node" if index else "metadata", before)
        tally.nodes += index > 0
        tally.kept += BYTES in value
        text = json.dumps(value, separators=(",", ":") if lines else (", ", ": "))
        if lines:
            texts.append(f"{text}\n")
        elif index == 0:
            texts.append(f'{{"metadata": {text},\n"nodes": [')
        else:
            texts.append(f"{',' * (index > 1)}\n{text}")
        if len(texts) == _AT_ONCE:
            yield "".join(texts).encode()
            texts.clear()
    yield ("".join(texts) + ("" if lines else "\n]}\n")).encode()


def _has_whole_metadata(head: bytes) -> bool:
    """Whether the first record lies within the head; a longer one is looked at without the check of its layout."""
    size, begin = k.varint(head, 0, min(len(head), 16))
    return len(head) < _PIECE or (begin > 0 and 0 <= size <= len(head) - begin)


def _iterate_records(source: Source, tally: Tally) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield the records of a file, each with its length as it stands there, None for the shortest form."""
    buffer, at, offset, ended = b"", 0, 0, False
    while True:
        size, begin = _read_length(buffer, at)
        whole = begin > 0 and size <= len(buffer) - begin
        if not whole and not ended and (begin <= 0 or size <= _LONGEST_RECORD):
            offset += at
            needed = size + 16 - (len(buffer) - at) if begin > 0 else 0
            piece = source.read(max(_PIECE, needed))
            ended = not piece
            buffer, at = buffer[at:] + piece, 0
            continue
        if at == len(buffer):
            break
        if not whole:
            _tell_cut(source, tally, offset + at, len(buffer) - at)
            return
        before = buffer[at:begin]
        yield (None if before == encode_varint(size) else before), buffer[begin : begin + size]
        at = begin + size
    if source.damage:
        message = f"{source.name}: the gzip stream {source.damage} after {offset + at:,} inflated bytes."
        hint = "What comes before was read. Copy the file again."
        tally.findings.append(
            Finding("error", "damaged-gzip", message, hint, file=source.name, offset=offset + at)
        )


def _read_length(buffer: bytes, at: int) -> tuple[int, int]:
    """Return a length and where its record begins, 0 where it does not end in the buffer."""
    value = shift = 0
    for place in range(at, min(at + 10, len(buffer))):
        byte = buffer[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    # Ten bytes that all go on are no length, however much follows.
    return (1 << 64, at) if len(buffer) - at >= 10 else (0, 0)


def _tell_cut(source: Source, tally: Tally, offset: int, rest: int) -> None:
    more = f"; the gzip stream {source.damage}" if source.damage else ""
    message = (
        f"{source.name}: the record at byte {offset:,} is cut off or damaged{more}; what comes before it was "
        f"written, {format_counted(rest, 'byte')} or more are lost."
    )
    hint = "Copy the file again, or record the trace again."
    tally.findings.append(Finding("error", "damaged-file", message, hint, file=source.name, offset=offset))


# ---------------------------------------------------------------------------------------------------
# JSON → Chakra


def write_chakra(source: Source, tally: Tally) -> Iterator[bytes]:
    """Yield the Chakra file that JSON stands for: the first object is the metadata, every other a node.

    What comes before an error is yielded before it is raised.

    Raises:
        TraceFormatError: It is no JSON, or says what no record can hold.
    """
    pieces: list[bytes] = []
    try:
        for raw in _encode_records(source, tally):
            pieces.append(raw)
            if len(pieces) == _AT_ONCE:
                yield b"".join(pieces)
                pieces.clear()
    except TraceFormatError:
        yield b"".join(pieces)
        raise
    yield b"".join(pieces)


def _encode_records(source: Source, tally: Tally) -> Iterator[bytes]:
    """Yield the records of all objects, each after its length."""
    index = -1
    for index, (place, value) in enumerate(_iterate_objects(_Text(source))):
        kind: Kind = "node" if index else "metadata"
        try:
            raw, changed = json_to_record(value, kind)
        except BadValueError as error:
            what = f"node {index:,}" if index else "the metadata"
            raise TraceFormatError(
                f"{source.name}: {what}, at character {place:,}: {error}.",
                hint=_explain_format(value)
                or "Correct it there; docs/jsonize.md lists what may stand where.",
            ) from None
        tally.nodes += index > 0
        tally.changed += changed
        tally.kept += isinstance(value, dict) and BYTES in value and not changed
        yield raw
    if index < 0:
        raise TraceFormatError(
            f"{source.name}: holds no object; the first is the metadata of a Chakra file.",
            hint="The least there is: {}",
        )


def _explain_format(value: Any) -> str:
    if isinstance(value, dict) and "workload_graph" in value:
        return (
            "This is a workload graph of Chakra's feeder: `chakra-studio convert` makes a Chakra file of it."
        )
    if isinstance(value, dict) and "traceEvents" in value:
        return (
            "This is a Chrome or Kineto trace: `chakra-studio convert` or `link` makes a Chakra file of it."
        )
    return ""


class _Text:
    """The text of a source, a piece of it at a time."""

    def __init__(self, source: Source) -> None:
        self.source, self.text, self.at, self.before, self.ended = source, "", 0, 0, False
        self._bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
        self._json = json.JSONDecoder(object_pairs_hook=_build_object)

    @property
    def place(self) -> int:
        """Characters before the current one."""
        return self.before + self.at

    def more(self) -> bool:
        """Read on; False at the end."""
        if self.ended:
            return False
        # Twice as much each time, so that a long object is not looked at again and again.
        piece = self.source.read(max(_PIECE, len(self.text) - self.at))
        self.ended = not piece
        try:
            text = self._decoder.decode(piece, final=self.ended)
        except UnicodeDecodeError as error:
            raise TraceFormatError(
                f"{self.source.name}: not UTF-8 near byte {self._bytes + error.start:,}.", hint=_CUT_HINT
            ) from None
        self._bytes += len(piece)
        self.before += self.at
        self.text, self.at = self.text[self.at :] + text, 0
        if self.ended and self.source.damage:
            raise TraceFormatError(
                f"{self.source.name}: the gzip stream {self.source.damage}.", hint="Copy the file again."
            )
        return not self.ended

    def peek(self) -> str:
        """Return the next character that is no space, "" at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def expect(self, allowed: str) -> str:
        """Return the next character, one of those allowed, and go past it."""
        character = self.peek()
        if not character or character not in allowed:
            words = " or ".join(f"'{each}'" for each in allowed)
            raise self.build_error(
                f"{character!r} where {words} should stand"
                if character
                else f"it ends where {words} should stand"
            )
        self.at += 1
        return character

    def value(self) -> Any:
        """Return the next value."""
        self.peek()
        while True:
            try:
                value, end = self._json.raw_decode(self.text, self.at)
            except (json.JSONDecodeError, RecursionError) as error:
                if len(self.text) - self.at < _LONGEST_OBJECT and self.more():
                    continue
                why = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
                if isinstance(error, json.JSONDecodeError):
                    self.at = error.pos
                raise self.build_error(f"it is no JSON: {why}") from None
            except _TwiceError as error:
                raise self.build_error(f"the key {str(error)[:40]!r} stands twice in one object") from None
            if end == len(self.text) and not isinstance(value, dict | list | str) and self.more():
                continue  # a number may go on
            self.at = end
            return value

    def build_error(self, why: str) -> TraceFormatError:
        """Return the error that names the place."""
        return TraceFormatError(f"{self.source.name}: at character {self.place:,} {why}.", hint=_CUT_HINT)


_CUT_HINT = "Write the file again. `chakra-studio convert FILE OUT.et` keeps what comes before the damage, but not every byte."


class _TwiceError(Exception):
    """A key stands twice."""


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        raise _TwiceError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return value


def _iterate_objects(text: _Text) -> Iterator[tuple[int, Any]]:
    """Yield the metadata, then the nodes, each with the character it begins at."""
    text.peek()
    if text.text.startswith("[", text.at):
        raise text.build_error("a list begins where the metadata, an object, should stand")
    while not _DOCUMENT.match(text.text, text.at) and len(text.text) - text.at < 4096 and text.more():
        pass
    if _DOCUMENT.match(text.text, text.at):
        yield from _iterate_document(text)
        return
    while text.peek():
        yield text.place, text.value()


def _iterate_document(text: _Text) -> Iterator[tuple[int, Any]]:
    text.expect("{")
    seen: list[str] = []
    while True:
        text.peek()
        place, key = text.place, text.value()
        if key not in ("metadata", "nodes") or key in seen or (key == "nodes" and "metadata" not in seen):
            raise text.build_error(f"the key {str(key)[:40]!r}; allowed: 'metadata', then 'nodes', once each")
        seen.append(key)
        text.expect(":")
        text.peek()
        place = text.place
        if key == "metadata":
            yield place, text.value()
        else:
            text.expect("[")
            yield from _iterate_items(text)
        if text.expect(",}") == "}":
            break
    if text.peek():
        raise text.build_error("more follows the end of the document")


def _iterate_items(text: _Text) -> Iterator[tuple[int, Any]]:
    if text.peek() == "]":
        text.at += 1
        return
    while True:
        text.peek()
        place = text.place
        yield place, text.value()
        if text.expect(",]") == "]":
            return


def is_exact(data: bytes | memoryview) -> bool:
    """Whether JSON is a document of this module, or holds bytes that only this module writes."""
    whole = bytes(data)
    return _DOCUMENT.match(
        whole[:4096].decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    ) is not None or any(f'"{key}"'.encode() in whole for key in (BYTES, UNKNOWN))
