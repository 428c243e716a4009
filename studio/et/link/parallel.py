"""Read and link the ranks of a large job by an executor.

Each call reads the files of a rank, drafts it and puts it into a folder that all share; from outlines of all of them the
ranks are brought together here, and further calls finish them. The result is the same, to the order of the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from studio.et import kineto, pytorch
from studio.et.aside import put_aside, take_up
from studio.et.collector import pause_collector
from studio.et.executors import call_in_order
from studio.et.format import DevicePart, HostPart, RankPart, Reading
from studio.et.link.all_ranks import Settled, settle
from studio.et.link.assemble import assemble
from studio.et.link.draft import Clock, RankDraft, draft_rank, select_essence, select_outline
from studio.et.link.facts import Facts
from studio.et.link.intervals import compile_kernel
from studio.et.link.join import LEAST_SHARE
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.options import LinkOptions
from studio.et.link.pair import Pair, may_belong, pair_files
from studio.et.link.rank_files import RankFiles
from studio.et.ranks import check_rank_override
from studio.et.recording import DeviceTrace
from studio.et.seen import JobSeen, RankSeen, Work, summarise_device, with_communication
from studio.et.shelf import Shelf
from studio.et.source import SourceFile, load, mark_content
from studio.files import make_scratch_folder
from studio.trace import Finding, Graph, Rank, digest_array

SettledPart = tuple[dict[int, Facts], dict[int, Facts], int, Clock]
"""Of a rank its communication on the host and on devices, how much was not recorded, and its clock."""
_WORTH_COMPILING_BYTES = 1 << 29
"""Bytes of Kineto traces from which on a job is linked sooner compiled, including the wait for the compiler."""


@dataclass(frozen=True, slots=True)
class LinkedRanks:
    """The linked ranks of a job.

    Attributes:
        parts: One per rank, as they are finished, each with a fingerprint of the times in its graph.
        settled: Groups and findings of the job.
        findings: What the readers noticed, by file name.
    """

    parts: Iterator[tuple[RankPart, bytes]]
    settled: Settled
    findings: dict[str, tuple[Finding, ...]]


@dataclass(frozen=True, slots=True)
class Onlookers:
    """Callbacks for the progress of linking, and for what ranks tell meanwhile.

    Attributes:
        read: Told the name of a file that was read, and "" several times a second meanwhile; may raise to stop.
        linked: Told the ranks that are finished; may raise to stop.
        seen: Told what each rank tells once it is drafted.
        contents: Gets the checksum of each file by its name, as `mark_content` computes it.
    """

    read: Callable[[str], None]
    linked: Callable[[int, int], None]
    seen: JobSeen | None = None
    contents: dict[str, str] | None = None


@contextmanager
def link_files(
    ranks: Sequence[RankFiles],
    options: LinkOptions,
    executor: Executor,
    onlookers: Onlookers,
    *,
    shelf: Shelf | None = None,
) -> Iterator[LinkedRanks | None]:
    """Read and link the files of a job.

    Args:
        ranks: Which files belong to which rank.
        options: What to derive.
        executor: Who reads and links.
        onlookers: Told how far it is.
        shelf: Takes the graphs, and drafts wait there; in a folder for temporary files, which the executor sees, where none is given.

    Yields:
        The ranks, whose parts are there within the `with` alone; None where the content of some files does not bear out
        their names, so that all have to be compared.
    """
    folder = shelf.folder if shelf else None
    with make_scratch_folder("chakra-studio-link-", folder) as place:
        outlines: list[RankDraft] = []
        findings: dict[str, tuple[Finding, ...]] = {}
        if sum(files.device.path.stat().st_size for files in ranks) > _WORTH_COMPILING_BYTES:
            # One compiles, for the ranks after the first ones, which are linked interpreted meanwhile.
            executor.submit(compile_kernel)
        marked = onlookers.contents is not None
        calls = [(draft_files, (files, options, place, marked)) for files in ranks]
        for files, drafted in zip(
            ranks, call_in_order(executor, calls, lambda: onlookers.read("")), strict=True
        ):
            if drafted is None:
                yield None
                return
            outlines.append(take_up(place / f"{files.number}.outline"))
            findings |= drafted.findings
            if onlookers.contents is not None:
                onlookers.contents.update(drafted.contents)
            if onlookers.seen:
                onlookers.seen.rank(files.number, drafted.seen)
            for name in files.names:
                onlookers.read(name)
        settled = settle(outlines, options)
        yield LinkedRanks(
            _iterate_finished(executor, place, (settled, options), onlookers.linked, shelf), settled, findings
        )


def _iterate_finished(
    executor: Executor,
    scratch: Path,
    known: tuple[Settled, LinkOptions],
    linked: Callable[[int, int], None],
    shelf: Shelf | None,
) -> Iterator[tuple[RankPart, bytes]]:
    """Yield the parts of ranks as they are finished."""
    settled, options = known
    put = shelf.put if shelf else partial(_put_into, scratch)
    common = settled.origin_ns, settled.world, options, put
    calls = [
        (finish, (scratch, rank_draft.number, select_settled_part(rank_draft), *common))
        for rank_draft in settled.drafts
    ]
    done = 0
    answers = call_in_order(executor, calls, lambda: linked(done, len(calls)))
    with shelf.storing() if shelf else nullcontext():
        for finished in answers:
            # Graphs wait in files, so that they may be many.
            graph = shelf.take(finished.graph) if shelf else take_up(finished.graph)
            part = RankPart(finished.rank, graph, finished.number, finished.findings)
            yield part, finished.times
            done += 1
            linked(done, len(calls))


# ---------------------------------------------------------------------------------------------------
# Where the executor is


@dataclass(frozen=True, slots=True)
class Drafted:
    """What is told of a rank that was drafted and put aside.

    Attributes:
        findings: What the readers noticed, by file name.
        seen: What the rank tells at once.
        contents: Checksums of its files by name, if they were asked for.
    """

    findings: Mapping[str, tuple[Finding, ...]]
    seen: RankSeen
    contents: dict[str, str]


@pause_collector()
def draft_files(files: RankFiles, options: LinkOptions, scratch: Path, marked: bool) -> Drafted | None:
    """Read and draft a rank, and put it and its outline aside; returns None if the files may be of two ranks, or are of several.

    Args:
        files: Its files.
        options: What to derive.
        scratch: Where to put it.
        marked: Whether to compute checksums of the files.
    """
    contents: dict[str, str] = {}
    noted = contents if marked else None
    hosts = [] if files.host is None else pytorch.read(_load_file(files.host, noted))
    devices = kineto.read(_load_file(files.device, noted))
    if len(devices) > 1:
        return None
    [device] = devices
    assert isinstance(device, DevicePart)
    recorded_number = device.trace.head.rank
    if recorded_number not in (None, files.number) and not files.by_user:
        return None
    given = files.number if files.by_user else None
    findings = {
        files.device.name: (*device.findings, *check_rank_override(device.trace.file, recorded_number, given))
    }
    both = Pair(files.number, None, device.trace)
    for host in hosts:
        assert isinstance(host, HostPart)
        if not may_belong(host.trace, device.trace):
            return None
        [both] = pair_files([(host.trace, files.number)], [(device.trace, files.number)])
        if not _is_sure(both):
            return None
        findings[host.trace.file] = host.findings
    rank_draft = draft_rank(both, options)
    # Outlines of all ranks are at hand together, drafts one by one.
    put_aside(scratch / f"{files.number}.outline", select_outline(rank_draft), small=True)
    put_aside(scratch / f"{files.number}.draft", select_essence(rank_draft), narrowed=True)
    return Drafted(findings, _build_seen(rank_draft, device.trace), contents)


def _build_seen(rank_draft: RankDraft, device: DeviceTrace) -> RankSeen:
    """Return what a rank that was drafted tells at once."""
    rank = summarise_device(device, rank_draft.number)
    communication = rank_draft.communication
    on_device = [_classify_call(facts) for facts in communication.devices.values()]
    on_host = [_classify_call(facts) for facts in communication.operators.values()]
    return with_communication(with_communication(rank, on_device, on_device=True), on_host, on_device=False)


def _classify_call(facts: Facts) -> tuple[Work, int]:
    """Return what kind of work a communication is, and the bytes it sends."""
    is_message = facts.kind in (SEND, RECEIVE)
    return "message" if is_message else "collective", 0 if facts.kind == RECEIVE else facts.bytes


def _load_file(file: SourceFile, contents: dict[str, str] | None) -> Reading:
    """Load a file; its checksum is computed while its content is in memory, if it is asked for."""
    data, findings = load(file)
    if contents is not None:
        contents[file.name] = mark_content(file, data)
    return Reading(file.name, data, len(data), findings=findings)


def _is_sure(both: Pair) -> bool:
    return both.joined is not None and both.joined.share >= LEAST_SHARE and not both.refused


def select_settled_part(rank_draft: RankDraft) -> SettledPart:
    """Return what was settled of a rank: its communication, how much of it was not recorded, and its clock."""
    communication = rank_draft.communication
    return communication.operators, communication.devices, communication.unrecorded, rank_draft.clock


@dataclass(frozen=True, slots=True)
class Finished:
    """A rank whose graph was put somewhere.

    Attributes:
        rank, number, findings: As of a `RankPart`.
        graph: What tells where the graph is.
        times: A fingerprint of the times in it.
    """

    rank: Rank
    number: int | None
    findings: tuple[Finding, ...]
    graph: Any
    times: bytes


@pause_collector()
def finish(  # noqa: PLR0913 - called by position, in another process
    scratch: Path,
    number: int,
    settled: SettledPart,
    origin_ns: int,
    world: int,
    options: LinkOptions,
    put: Callable[[str, Graph], Any],
) -> Finished:
    """Finish a rank that was put aside with what was settled of it, and put its graph where it belongs."""
    rank_draft: RankDraft = take_up(scratch / f"{number}.draft")
    communication = rank_draft.communication
    communication.operators, communication.devices, communication.unrecorded, rank_draft.clock = settled
    part = assemble(rank_draft, origin_ns, world, options)
    shelved = put(f"{number}.graph", part.graph)
    return Finished(part.rank, part.number, part.findings, shelved, digest_array(part.graph.start_ns))


def _put_into(folder: Path, name: str, graph: Graph) -> Path:
    """Put a graph aside in a folder; returns its file."""
    put_aside(folder / name, graph)
    return folder / name
