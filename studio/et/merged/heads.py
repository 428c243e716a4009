"""Keep what files said of themselves as metadata of a master trace: names, metadata of ranks, comm groups, tables of copies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from studio.errors import TraceFormatError
from studio.et import chakra
from studio.et.copies import read as read_copies
from studio.et.copies import write_table
from studio.et.format import CopiesPart, Copy, Reading
from studio.et.merged.rule import ATTR, COPIES, FILE, GROUPS, GZIP, PREFIX, RANKS, RULE, VERSION
from studio.et.records import write_metadata
from studio.trace import Attribute, ValueKind

_TOKEN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?\d+|[][{}:,]|[ \t\r\n]+')
_OF_RANK = re.compile(re.escape(FILE).replace(r"\{rank\}", r"(\d{1,10})"))
_OF_GROUPS = re.compile(r"merged\.groups\.(\d{1,6})\.(.*)", re.DOTALL)
_OF_COPY = re.compile(r"merged\.copies\.(\d{1,10})\.(like|slots|assumed_from)")


@dataclass(frozen=True, slots=True)
class RankHead:
    """What the file of a rank says of itself.

    Attributes:
        rank: Its number.
        file: Its path within the job.
        gzip: Whether it is compressed.
        version, attrs: Its metadata.
    """

    rank: int
    file: str
    gzip: bool
    version: str
    attrs: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """A file beside those of the ranks: comm groups or a table of copies.

    Attributes:
        file: Its path within the job.
        gzip: Whether it is compressed.
        content: What it holds, not compressed.
    """

    file: str
    gzip: bool
    content: bytes


@dataclass(frozen=True, slots=True)
class Heads:
    """What all files of a job said of themselves.

    Attributes:
        ranks: Of those that are ranks.
        groups: Comm group files.
        copies: Tables of copies.
        count: How many ranks have nodes, as the master trace says.
        version, attrs: Metadata of ranks that have none of their own.
    """

    ranks: tuple[RankHead, ...]
    groups: tuple[Beside, ...] = ()
    copies: tuple[Beside, ...] = ()
    count: int = 0
    version: str = ""
    attrs: tuple[Attribute, ...] = field(default=())


def encode_metadata_record(head: RankHead) -> bytes:
    """Return the first record of the file of a rank."""
    return write_metadata(head.version, head.attrs)


def is_regular(record: bytes, version: str, attrs: Sequence[Attribute]) -> bool:
    """Whether a metadata record is encoded exactly as a writer encodes its content."""
    try:
        return write_metadata(version, attrs) == record
    except (ValueError, TypeError):
        return False


def to_record(heads: Heads) -> bytes:
    """Return the first record of a master trace.

    Raises:
        TraceFormatError: A file beside the ranks is of irregular form.
    """
    first = heads.ranks[0]
    alike = all((head.version, head.attrs) == (first.version, first.attrs) for head in heads.ranks)
    shared = alike and not any(attr.name.startswith(PREFIX) for attr in first.attrs)
    attrs = [Attribute(RANKS, ValueKind.INT64, len(heads.ranks), RULE)]
    for head in heads.ranks:
        attrs += _list_file_attributes(
            FILE.format(rank=head.rank), GZIP.format(rank=head.rank), head.file, head.gzip
        )
        if not shared:
            attrs.append(_build_text(VERSION.format(rank=head.rank), head.version))
            own = ATTR.format(rank=head.rank)
            attrs += [Attribute(own + attr.name, attr.kind, attr.value, attr.doc) for attr in head.attrs]
    for index, groups in enumerate(heads.groups):
        prefix = GROUPS.format(index=index)
        attrs += _list_file_attributes(f"{prefix}file", f"{prefix}gzip", groups.file, groups.gzip)
        attrs += _list_group_attributes(prefix, groups)
    for table in heads.copies:
        attrs += _list_file_attributes(f"{COPIES}file", f"{COPIES}gzip", table.file, table.gzip)
        attrs += _copy_attributes(table)
    return write_metadata(first.version, [*attrs, *(first.attrs if shared else ())])


def from_record(metadata: chakra.Metadata, stem: str) -> Heads:
    """Return what the first record of a master trace says.

    Args:
        metadata: The record.
        stem: What files are called where it does not say.

    Raises:
        TraceFormatError: What it says of a file does not fit together.
    """
    values = {attr.name: attr.value for attr in metadata.attrs}
    plain = tuple(attr for attr in metadata.attrs if not attr.name.startswith(PREFIX))
    own: dict[str, list[Attribute]] = {}
    for attr in metadata.attrs:
        match = re.match(r"(merged\.rank\.\d{1,10}\.attr\.)(.*)", attr.name, re.DOTALL)
        if match:
            own.setdefault(match[1], []).append(Attribute(match[2], attr.kind, attr.value, attr.doc))
    heads = []
    for name, value in values.items():
        match = _OF_RANK.fullmatch(name)
        if match:
            number = int(match[1])
            version = values.get(VERSION.format(rank=number))
            has_version = isinstance(version, str)
            attrs = tuple(own.get(ATTR.format(rank=number), ())) if has_version else plain
            packed = bool(values.get(GZIP.format(rank=number)))
            heads.append(
                RankHead(number, str(value), packed, str(version) if has_version else metadata.version, attrs)
            )
    count = values.get(RANKS)
    return Heads(
        tuple(heads),
        tuple(_restore_groups(values)),
        tuple(_restore_copies(values, stem)),
        count if isinstance(count, int) else len(heads),
        metadata.version,
        plain,
    )


def _list_file_attributes(name: str, mark: str, file: str, gzip: bool) -> list[Attribute]:
    return [_build_text(name, file), *([Attribute(mark, ValueKind.BOOL, True)] if gzip else [])]


def _build_text(name: str, value: str) -> Attribute:
    return Attribute(name, ValueKind.STRING, value)


# ---------------------------------------------------------------------------------------------------
# Comm groups


def _list_group_attributes(prefix: str, file: Beside) -> list[Attribute]:
    """Return the comm groups of a file, and how it sets them out."""
    layout = _find_layout(file)
    try:
        pairs = json.loads(file.content, object_pairs_hook=list)
    except ValueError as error:
        raise _build_irregular_error(file, str(error)) from error
    attrs = [
        Attribute(f"{prefix}layout", ValueKind.STRING_LIST, [x for pair in layout.items() for x in pair])
    ]
    if len({name for name, _ in pairs}) < len(pairs):
        raise _build_irregular_error(file, "a group is listed twice")
    unescaped = not file.content.isascii()
    if unescaped:
        attrs.append(Attribute(f"{prefix}unescaped", ValueKind.BOOL, True))
    attrs += [Attribute(f"{prefix}group.{name}", ValueKind.INT64_LIST, list(ranks)) for name, ranks in pairs]
    try:
        same = _set_out(pairs, layout, unescaped=unescaped) == file.content
        write_metadata("", attrs)
    except (ValueError, TypeError) as error:
        raise _build_irregular_error(file, str(error)) from error
    if not same:
        raise _build_irregular_error(file, "its texts, numbers or blanks are not written alike throughout")
    return attrs


def _build_irregular_error(file: Beside, why: str) -> TraceFormatError:
    return TraceFormatError(
        f"{file.file}: split could not write it again byte for byte: {why}.",
        hint="`chakra-studio convert JOB DIR` writes it in the usual form; merge what that writes.",
    )


def _find_layout(file: Beside) -> dict[str, str]:
    """Return which blanks stand between which kinds of tokens.

    Kinds are `{`, `}`, `:`, `,` of the outer object, `[`, `]`, `;` between ranks, `s` for names, `n` for ranks, `<` and `>` for
    begin and end.
    """
    text = file.content.decode("utf-8", "surrogateescape")
    layout, before, blanks, place, depth = dict[str, str](), "<", "", 0, 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _build_irregular_error(file, f"what stands at character {place:,} is not of such a file")
        word, place = match[0], match.end()
        if word.isspace():
            blanks = word
            continue
        depth += (word == "[") - (word == "]")
        kind = "s" if word[0] == '"' else "n" if word[0] in "-0123456789" else word
        kind = ";" if word == "," and depth else kind
        if layout.setdefault(before + kind, blanks) != blanks:
            raise _build_irregular_error(
                file, f"blanks differ from those before, at character {place - len(word):,}"
            )
        before, blanks = kind, ""
    if layout.setdefault(before + ">", blanks) != blanks:
        raise _build_irregular_error(file, "blanks differ at its end")
    return {kinds: blank for kinds, blank in layout.items() if blank}


def _set_out(
    groups: Sequence[tuple[str, Sequence[int]]], layout: Mapping[str, str], *, unescaped: bool
) -> bytes:
    """Return the comm group file with blanks as the layout has them."""
    tokens: list[tuple[str, str]] = [("{", "{")]
    for index, (name, ranks) in enumerate(groups):
        tokens += [(",", ",")] if index else []
        tokens += [("s", json.dumps(name, ensure_ascii=not unescaped)), (":", ":"), ("[", "[")]
        for place, rank in enumerate(ranks):
            tokens += [*([(";", ",")] if place else []), ("n", str(rank))]
        tokens.append(("]", "]"))
    before, parts = "<", []
    for kind, token in [*tokens, ("}", "}"), (">", "")]:
        parts.append(layout.get(before + kind, "") + token)
        before = kind
    return "".join(parts).encode()


def _restore_groups(values: Mapping[str, Any]) -> list[Beside]:
    """Return the comm group files that a master trace tells of."""
    parts: dict[int, dict[str, Any]] = {}
    for name, value in values.items():
        match = _OF_GROUPS.fullmatch(name)
        if match:
            parts.setdefault(int(match[1]), {})[match[2]] = value
    files = []
    for fields in parts.values():
        flat = fields.get("layout")
        words = [str(word) for word in flat] if isinstance(flat, list) else []
        layout = dict(zip(words[0::2], words[1::2], strict=False))
        groups = [
            (name.removeprefix("group."), ranks)
            for name, ranks in fields.items()
            if name.startswith("group.") and isinstance(ranks, list)
        ]
        content = _set_out(groups, layout, unescaped=bool(fields.get("unescaped")))
        files.append(Beside(str(fields.get("file", "groups.json")), bool(fields.get("gzip")), content))
    return files


# ---------------------------------------------------------------------------------------------------
# Tables of copies


def _copy_attributes(file: Beside) -> list[Attribute]:
    """Return what a table of copies says of each rank."""
    rows = _read_rows(file)
    if write_table(rows).encode() != file.content:
        raise TraceFormatError(
            f"{file.file}: split could not write it again byte for byte; it is not as the studio writes such tables.",
            hint="`chakra-studio convert JOB DIR` writes a file for each rank; merge those.",
        )
    attrs = []
    for row in rows:
        prefix = f"{COPIES}{row.number}."
        attrs.append(Attribute(f"{prefix}like", ValueKind.INT64, row.like))
        attrs.append(Attribute(f"{prefix}slots", ValueKind.STRING_LIST, list(map(json.dumps, row.slots))))
        if row.assumed_from is not None:
            attrs.append(Attribute(f"{prefix}assumed_from", ValueKind.INT64, row.assumed_from))
    return attrs


def _read_rows(file: Beside) -> list[Copy]:
    [part] = read_copies(Reading(file.file, file.content))
    assert isinstance(part, CopiesPart)
    return list(part.copies)


def _restore_copies(values: Mapping[str, Any], stem: str) -> list[Beside]:
    """Return the table of copies that a master trace tells of."""
    fields_by_rank: dict[int, dict[str, Any]] = {}
    for name, value in values.items():
        match = _OF_COPY.fullmatch(name)
        if match:
            fields_by_rank.setdefault(int(match[1]), {})[match[2]] = value
    file = values.get(f"{COPIES}file")
    if not fields_by_rank and file is None:
        return []
    rows = []
    for number, row in fields_by_rank.items():
        try:
            slots = tuple(json.loads(str(value)) for value in row.get("slots") or ())
            rows.append(Copy(number, int(row["like"]), slots, row.get("assumed_from")))
        except (ValueError, KeyError, TypeError) as error:
            raise TraceFormatError(
                f"{stem}: what the metadata says of the copy that is rank {number} does not fit together: {error!r}.",
                hint="Merge the job again.",
            ) from error
    packed = bool(values.get(f"{COPIES}gzip"))
    return [Beside(str(file or f"{stem}.copies.json"), packed, write_table(rows).encode())]
