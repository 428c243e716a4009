"""Read and write the table of copies beside a job's traces: ranks that have the graph of another one.

A job that was completed or scaled has few graphs and many ranks. It is stored as one trace for each graph and a table of all
other ranks, with the comm groups and peers that each of them has in place of those of the rank it is like.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et.format import CopiesPart, Copy, Part, Reading
from studio.trace import Rank, copy_metadata

VERSION = 1
_MARK = "chakra_studio_copies"
_LARGEST_RANK = (1 << 20) - 1


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    rank: int
    like: int
    slots: list[int | str]
    assumed_from: int | None = None


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    chakra_studio_copies: int
    copies: list[_Row]


_table = build_decoder(_Table)


def sniff(head: bytes) -> bool:
    """Whether `head` starts a table of copies."""
    return head.lstrip().startswith(b"{") and f'"{_MARK}"'.encode() in head[:64]


def read(reading: Reading) -> list[Part]:
    """Read a table of copies.

    Raises:
        TraceFormatError: It is no such table, or of a version that is not known.
    """
    try:
        table = _table(bytes(reading.data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceFormatError(
            f"{reading.name}: not a table of copies: {error}.",
            hint="`chakra-studio complete` and `scale` write it; make the job again.",
        ) from error
    if table.chakra_studio_copies != VERSION:
        raise TraceFormatError(
            f"{reading.name}: a table of copies of version {table.chakra_studio_copies}; readable: {VERSION}.",
            hint="A newer version of the studio has written it.",
        )
    bad = next((row for row in table.copies if not 0 <= row.rank <= _LARGEST_RANK), None)
    if bad is not None:
        raise TraceFormatError(f"{reading.name}: rank is {bad.rank}; allowed: 0 to {_LARGEST_RANK}.")
    copies = tuple(Copy(row.rank, row.like, tuple(row.slots), row.assumed_from) for row in table.copies)
    return [CopiesPart(reading.name, copies, tuple(reading.findings))]


def add_copies(ranks: Sequence[Rank], part: CopiesPart) -> list[Rank]:
    """Return ranks and their copies, by number.

    Raises:
        TraceFormatError: A copy is like a rank that is not there, has the number of another, or not as many comm groups and
            peers as that rank, or others in their places.
    """
    known = {rank.number: rank for rank in ranks}
    by_number = dict(known)
    for copy in part.copies:
        like = known.get(copy.like)
        if like is None:
            raise TraceFormatError(
                f"{part.file}: rank {copy.number} is like rank {copy.like}, whose trace is not there.",
                hint="Open the whole folder that the job was written into.",
            )
        if copy.number in by_number:
            raise TraceFormatError(
                f"{part.file}: there are two ranks {copy.number}.", hint="Make the job again."
            )
        if len(copy.slots) == len(like.slots) and [*map(type, copy.slots)] != [*map(type, like.slots)]:
            raise TraceFormatError(
                f"{part.file}: rank {copy.number} names comm groups and peers in another order than rank {copy.like}, which it is "
                "like.",
                hint="The trace was written anew since; make the job again.",
            )
        if len(copy.slots) != len(like.slots):
            raise TraceFormatError(
                f"{part.file}: rank {copy.number} has {len(copy.slots)} comm groups and peers; rank {copy.like}, which it "
                f"is like, has {len(like.slots)}.",
                hint="The trace was written anew since; make the job again.",
            )
        by_number[copy.number] = replace(
            like,
            number=copy.number,
            slots=copy.slots,
            metadata=copy_metadata(like, copy.number, copy.assumed_from),
            file=part.file,
        )
    return [by_number[number] for number in sorted(by_number)]


def write_table(rows: Sequence[Copy]) -> str:
    """Return the table of copies as its file holds it."""
    listed: list[dict[str, Any]] = []
    for copy in sorted(rows, key=lambda row: row.number):
        row: dict[str, Any] = {"rank": copy.number, "like": copy.like, "slots": list(copy.slots)}
        listed.append(row if copy.assumed_from is None else {**row, "assumed_from": copy.assumed_from})
    return json.dumps({_MARK: VERSION, "copies": listed}, separators=(",", ":"))
