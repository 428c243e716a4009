"""Write the files of all ranks of a job as one master trace, from which split makes the same files again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath

import numpy as np

from studio.distinct import find_distinct
from studio.errors import TraceError, TraceFormatError
from studio.et import chakra, encode, groups, wire
from studio.et import kernel as k
from studio.et.encode import encode_attribute
from studio.et.job import read_job
from studio.et.job_builder import RanksNeededError
from studio.et.job_files import JobFiles, build_left_out_findings
from studio.et.known import CHAKRA, COPIES, GROUPS, MERGED
from studio.et.merged.heads import Beside, Heads, RankHead, is_regular, to_record
from studio.et.merged.records import Changed, Chunk, find_odd_encoding, iterate_chunks, rewrite_records
from studio.et.merged.rule import BLOCK, MISSING_IDS, ORIGINAL_ID, RANK
from studio.et.naming import format_file_name
from studio.et.reading_meter import Progress
from studio.et.source import SourceFile, load, measure_file, read_head
from studio.files import read_start
from studio.trace import Finding, Int64, Trace, UInt64, ValueKind

_KEPT_BYTES = 32 << 20
"""Records of smaller files are kept between the two looks at them."""
_LARGEST_RANK = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Merged:
    """A master trace that is about to be written.

    Attributes:
        name: What the job is called.
        heads: What its files say of themselves.
        pieces: The bytes of the master trace; to be taken once. `counts` and `findings` are complete afterwards.
        counts: Of `nodes`, and of `renumbered` ones, whose id does not follow the rule.
        findings: What was lost in damaged files, and which files are no part of the job.
        converted: Whether the job was of another format, so that split writes Chakra files of it.
    """

    name: str
    heads: Heads
    pieces: Iterator[bytes]
    counts: dict[str, int]
    findings: list[Finding]
    converted: bool


@dataclass(frozen=True, slots=True)
class _Source:
    """The file of a rank: its number, what it says of itself, and how to get its content."""

    head: RankHead
    content: Callable[[], tuple[bytes | memoryview, tuple[Finding, ...]]]


def merge(
    job: JobFiles, *, ranks: Mapping[str, int] | None = None, progress: Progress | None = None
) -> Merged:
    """Return the master trace of a job.

    Args:
        job: Its files.
        ranks: Rank numbers by file name, where neither the files nor their names tell.
        progress: Told the bytes merged; may raise to stop.

    Raises:
        TraceError: Two files claim one rank, or there is one master trace already.
        TraceFormatError: A file cannot be read, or split could not write it again byte for byte.
    """
    formats = {fmt.name for _, fmt, _ in job.ranks}
    if MERGED.name in formats:
        raise TraceError(
            f"{job.ranks[0][0].name}: a master trace already.", hint="`chakra-studio split` takes it apart."
        )
    findings = build_left_out_findings(job.left_out)
    if formats == {CHAKRA.name}:
        prefix = _find_common_folder(
            [*(entry[0].name for entry in job.ranks), *(file.name for file, _ in job.others)]
        )
        sources = [_open_file(entry[0], entry[2], ranks or {}, prefix) for entry in job.ranks]
        if len(sources) > 1 and (unknown := [source.head.file for source in sources if source.head.rank < 0]):
            raise RanksNeededError(unknown)
        sources = [replace(s, head=replace(s.head, rank=max(s.head.rank, 0))) for s in sources]
        beside = [(_read_beside(file, prefix), fmt.name) for file, fmt in job.others]
        groups_files = tuple(file for file, kind in beside if kind == GROUPS.name)
        tables = tuple(file for file, kind in beside if kind == COPIES.name)
        total = sum(measure_file(file)[1] for file, *_ in job.ranks)
    else:
        trace = read_job(job, ranks=ranks, progress=progress)
        findings = list(trace.findings)
        stem = format_file_name(job.name)
        sources, tables = [_convert_rank(trace, index, stem) for index in range(len(trace.ranks))], ()
        listed = groups.collect_listed_groups(trace)
        groups_files = (Beside(f"{stem}.json", False, groups.write(trace).encode()),) if listed else ()
        total = 0
    sources.sort(key=lambda source: source.head.rank)
    _refuse_claimed(sources)
    heads = Heads(tuple(source.head for source in sources), groups_files, tables, len(sources))
    counts = {"nodes": 0, "renumbered": 0}
    first = to_record(heads)
    pieces = _iterate_pieces(first, sources, counts, findings, progress, total)
    return Merged(job.name, heads, pieces, counts, findings, formats != {CHAKRA.name})


def _find_common_folder(names: Sequence[str]) -> str:
    """Return the folder that holds all files, with a slash at its end; "" where there is none."""
    folders = [PurePosixPath(name).parent.parts for name in names]
    common = 0
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        common += 1
    return "".join(f"{part}/" for part in folders[0][:common])


def _open_file(file: SourceFile, named: int | None, given: Mapping[str, int], prefix: str) -> _Source:
    """Return the file of a rank.

    Raises:
        TraceFormatError: Its first record is damaged, or could not be written again byte for byte.
    """
    data: bytes | memoryview = read_head(file)
    size, begin = k.varint(data, 0, min(len(data), 16))
    if not 0 < begin <= begin + size <= len(data):
        data, _ = load(file)
    metadata = chakra.read_metadata(data, file.name)
    record = bytes(data[: metadata.end])
    if not is_regular(record, metadata.version, metadata.attrs):
        raise _build_refusal(file.name, 0, "its metadata is not written in the usual form")
    of_file = chakra.read_rank_number(metadata.attrs)
    number = given.get(file.name, named if of_file is None else of_file)
    packed = read_start(file.path, 2) == b"\x1f\x8b"
    head = RankHead(
        -1 if number is None else number,
        file.name.removeprefix(prefix),
        packed,
        metadata.version,
        metadata.attrs,
    )
    return _Source(head, lambda: load(file))


def _read_beside(file: SourceFile, prefix: str) -> Beside:
    """Return a file that tells about the whole job."""
    data, _ = load(file)
    return Beside(file.name.removeprefix(prefix), read_start(file.path, 2) == b"\x1f\x8b", bytes(data))


def _convert_rank(trace: Trace, index: int, name: str) -> _Source:
    """Return a rank of a job of another format as the Chakra file that `convert` writes."""
    rank = trace.ranks[index]
    head = RankHead(rank.number, f"{name}.{rank.number}.et", False, rank.version, rank.metadata)
    return _Source(head, lambda: (b"".join(encode.write(trace.graph_of(rank), rank)), ()))


def _refuse_claimed(sources: Sequence[_Source]) -> None:
    """Raise an error if two files claim one rank, or one a number that is none."""
    for first, second in pairwise(sources):
        if first.head.rank == second.head.rank:
            raise TraceError(
                f"Rank {first.head.rank} is claimed by two files: {first.head.file} and {second.head.file}.",
                hint="Leave one of them out, or give --rank FILE=NUMBER.",
            )
    if sources[-1].head.rank > _LARGEST_RANK:
        raise TraceError(
            f"{sources[-1].head.file}: rank {sources[-1].head.rank}; allowed: 0 to {_LARGEST_RANK}."
        )


def _build_refusal(name: str, at: int, why: str) -> TraceFormatError:
    return TraceFormatError(
        f"{name}: the record at byte {at:,} could not be written again byte for byte by split: {why}.",
        hint="`chakra-studio convert JOB DIR` writes the job in the usual form; merge what that writes.",
    )


def _iterate_pieces(
    first: bytes,
    sources: Sequence[_Source],
    counts: dict[str, int],
    findings: list[Finding],
    progress: Progress | None,
    total: int,
) -> Iterator[bytes]:
    """Yield the master trace."""
    yield first
    done = 0
    for source in sources:
        data, noticed = source.content()
        findings += [replace(finding, rank=source.head.rank) for finding in noticed]
        start = chakra.read_metadata(data, source.head.file).end
        end, damage, count = wire.scan_records(data, start, lambda _done: None, max(total, len(data)))
        if damage:
            message = (
                f"{source.head.file}: {damage} at byte {end:,} of {len(data):,}; {count:,} nodes before it were "
                "merged, what follows is lost."
            )
            findings.append(
                Finding(
                    "error", "damaged-file", message, rank=source.head.rank, file=source.head.file, offset=end
                )
            )
        for piece, nodes, renumbered in _merge_rank(data, start, end, source.head):
            counts["nodes"] += nodes
            counts["renumbered"] += renumbered
            yield piece
            if progress:
                done += len(piece)
                progress("merging", min(done, total), max(total, 1))
    if progress:
        progress("merging", 1, 1)


def _merge_rank(
    data: bytes | memoryview, start: int, end: int, head: RankHead
) -> Iterator[tuple[bytes, int, int]]:
    """Yield the records of a rank as the master trace has them, how many they are, and how many are renumbered."""
    kept = list(iterate_chunks(data, start, end)) if end - start < _KEPT_BYTES else None
    ids, most = [], 0
    for chunk in kept if kept is not None else iterate_chunks(data, start, end):
        odd = find_odd_encoding(chunk)
        if odd is not None:
            raise _build_refusal(
                head.file,
                chunk.at + int(chunk.place[odd[0]]),
                f"{odd[1]} written in more bytes than it takes",
            )
        ids.append(chunk.ids)
        most = max(most, int(chunk.ids.max(initial=0)), int(chunk.deps.max(initial=0)))
    every = np.concatenate([np.empty(0, np.uint64), *ids])
    again = kept if kept is not None else iterate_chunks(data, start, end)
    numbering = _Numbering.of(
        every, most, lambda: kept if kept is not None else iterate_chunks(data, start, end)
    )
    base, plain = np.uint64(head.rank * BLOCK), encode_attribute(RANK, ValueKind.INT32, head.rank, "")
    row = 0
    for chunk in again:
        rows = slice(row, row + len(chunk))
        row = rows.stop
        local, special = numbering.ids(chunk.ids, rows)
        deps, missing = numbering.deps(chunk.deps, chunk.dep_of)
        tails, tail = [plain], np.zeros(len(chunk), np.int64)
        for index in sorted({*special, *missing}):
            more = plain
            if index in special:
                more += encode_attribute(ORIGINAL_ID, ValueKind.UINT64, int(chunk.ids[index]), "")
            if index in missing:
                more += encode_attribute(MISSING_IDS, ValueKind.UINT64_LIST, missing[index], "")
            tail[index] = len(tails)
            tails.append(more)
        changed = Changed(local + base, deps + base, np.stack([chunk.end, chunk.end]), tails, tail)
        yield rewrite_records(chunk, changed), len(chunk), len(special)


class _Numbering:
    """The numbers of a rank's nodes within its block: their ids, but for those that are taken or too large."""

    def __init__(self, special: Int64, numbers: UInt64, large: UInt64, large_numbers: UInt64) -> None:
        self.special, self.numbers = special, numbers
        self.large, self.large_numbers = large, large_numbers
        self.named: set[int] = set()
        self.of_nodes: set[int] = set()

    @classmethod
    def of(cls, ids: UInt64, most: int, again: Callable[[], Sequence[Chunk] | Iterator[Chunk]]) -> _Numbering:
        """Return the numbering of (N,) nodes of which the largest id, named or waited for, is `most`."""
        nothing = np.empty(0, np.uint64)
        distinct, first = np.unique(ids, return_index=True)
        if len(distinct) == len(ids) and most < BLOCK:
            return cls(np.empty(0, np.int64), nothing, nothing, nothing)
        repeated = np.ones(len(ids), np.bool_)
        repeated[first] = False
        special = np.flatnonzero(repeated | (ids >= BLOCK))
        waited = find_distinct(np.concatenate([nothing, *(find_distinct(chunk.deps) for chunk in again())]))
        used = np.union1d(distinct, waited)
        large = used[used >= BLOCK]
        taken = used[used < BLOCK]
        wanted = len(special) + len(large)
        free = np.setdiff1d(np.arange(wanted + len(taken), dtype=np.uint64), taken)[:wanted]
        numbers, spare = free[: len(special)], free[len(special) :]
        # An id that nodes have means the first of them.
        large_numbers = spare.copy()
        place = np.searchsorted(distinct, large)
        known = np.append(distinct, np.uint64(0))[place] == large if len(large) else np.zeros(0, np.bool_)
        firsts = first[place[known]]
        large_numbers[known] = numbers[np.searchsorted(special, firsts)]
        numbering = cls(special, numbers, large, large_numbers)
        numbering.of_nodes = set(large[known].tolist())
        return numbering

    def ids(self, ids: UInt64, rows: slice) -> tuple[UInt64, set[int]]:
        """Return the numbers of some nodes, and which of them are not their ids."""
        low, high = np.searchsorted(self.special, (rows.start, rows.stop)).tolist()
        places = self.special[low:high] - rows.start
        numbers = ids.copy()
        numbers[places] = self.numbers[low:high]
        return numbers, set(places.tolist())

    def deps(self, deps: UInt64, of: Int64) -> tuple[UInt64, dict[int, list[int]]]:
        """Return the numbers waited for, and pairs of number and id of those that no node has, by the first node that waits."""
        large = np.flatnonzero(deps >= BLOCK)
        numbers = deps.copy()
        numbers[large] = self.large_numbers[np.searchsorted(self.large, deps[large])]
        missing: dict[int, list[int]] = {}
        for place in large.tolist():
            wanted = int(deps[place])
            if wanted not in self.of_nodes and wanted not in self.named:
                self.named.add(wanted)
                missing.setdefault(int(of[place]), []).extend((int(numbers[place]), wanted))
        return numbers, missing
