"""Read and link the ranks of a large job in several processes.

Each process reads the files of a rank, drafts it and keeps it; from outlines of all of them the ranks are brought together
here, and every process finishes its own. The result is the same, to the order of the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from studio.et import kineto, pytorch
from studio.et.format import DevicePart, HostPart, RankPart, Reading
from studio.et.link import Settled, settle
from studio.et.link.assemble import assemble
from studio.et.link.draft import RankDraft, draft, outline
from studio.et.link.join import LEAST_SHARE
from studio.et.link.options import LinkOptions
from studio.et.link.pair import Pair, may_belong, pair
from studio.et.source import SourceFile, load
from studio.et.workers import State, Team, Tick, Worker
from studio.trace import Finding


@dataclass(frozen=True, slots=True)
class RankFiles:
    """Both files of a rank, by their names.

    Attributes:
        number: The rank.
        host: Its execution trace.
        device: Its Kineto trace.
        by_user: Whether the user gave the rank, which then wins over the file.
    """

    number: int
    host: SourceFile
    device: SourceFile
    by_user: bool = False


@dataclass(frozen=True, slots=True)
class LinkedRanks:
    """The linked ranks of a job.

    Attributes:
        parts: One per rank.
        settled: Groups and findings of the job.
        findings: What the readers noticed, by file name.
    """

    parts: list[RankPart]
    settled: Settled
    findings: dict[str, tuple[Finding, ...]]


def link_files(
    ranks: Sequence[RankFiles],
    options: LinkOptions,
    workers: int,
    read: Callable[[str, int], None],
    linked: Callable[[int, int], None],
) -> LinkedRanks | None:
    """Read and link the files of a job by several processes.

    Args:
        ranks: Which files belong to which rank.
        options: What to derive.
        workers: How many processes.
        read: Told the name of a file and the share of it that was read, of 1,000; may raise to stop.
        linked: Told the ranks that are finished; may raise to stop.

    Returns:
        The ranks; None where the content of some files does not bear out their names, so that all have to be compared.
    """
    with Team(min(workers, len(ranks))) as team:

        def draft_on(worker: Worker, files: RankFiles) -> _Drafted | None:
            sides = files.host.name, files.device.name

            def tick(done: int) -> None:
                read(sides[done // 1001], done % 1001)

            answer: _Drafted | None = worker.ask(draft_files, files, options, tick=tick)
            if answer is None:
                raise _UnsureError
            for name in sides:
                read(name, 1000)
            return answer

        try:
            drafts = team.share(ranks, draft_on)
        except _UnsureError:
            return None
        outlines = [answer.outline for _, answer in drafts if answer is not None]
        settled = settle(outlines, options)
        whose = {files.number: worker for files, (worker, _) in zip(ranks, drafts, strict=True)}
        tasks = [(whose[outline.number or 0], outline) for outline in settled.drafts]
        done: list[int] = []

        def finish_on(worker: Worker, settled_outline: RankDraft) -> RankPart:
            part: RankPart = worker.ask(finish, settled_outline, settled.origin_ns, settled.world, options)
            done.append(1)
            linked(len(done), len(tasks))
            return part

        parts = team.run_own(tasks, finish_on)
    findings: dict[str, tuple[Finding, ...]] = {}
    for _, answer in drafts:
        findings |= answer.findings if answer is not None else {}
    return LinkedRanks(parts, settled, findings)


class _UnsureError(Exception):
    """The content of files contradicts their names."""


# ---------------------------------------------------------------------------------------------------
# In the other process


@dataclass(frozen=True, slots=True)
class _Drafted:
    outline: RankDraft
    findings: Mapping[str, tuple[Finding, ...]]


def draft_files(state: State, tick: Tick, files: RankFiles, options: LinkOptions) -> _Drafted | None:
    """Read and draft a rank and keep it here; return its outline, None if the files may be of two ranks."""
    [host] = pytorch.read(_reading(files.host, tick))
    [device] = kineto.read(_reading(files.device, lambda done: tick(1001 + done)))
    assert isinstance(host, HostPart)
    assert isinstance(device, DevicePart)
    said = device.trace.head.rank
    if (said not in (None, files.number) and not files.by_user) or not may_belong(host.trace, device.trace):
        return None
    [both] = pair([(host.trace, files.number)], [(device.trace, files.number)])
    if not _sure(both):
        return None
    rank_draft = draft(both, options)
    state[files.number] = rank_draft
    return _Drafted(outline(rank_draft), {files.host.name: host.findings, files.device.name: device.findings})


def _reading(file: SourceFile, tick: Tick) -> Reading:
    data, findings = load(file)
    whole = max(2 * len(data), 1)
    return Reading(file.name, data, len(data), lambda done: tick(1000 * done // whole), findings)


def _sure(both: Pair) -> bool:
    return both.joined is not None and both.joined.share >= LEAST_SHARE and not both.refused


def finish(
    state: State, _tick: Tick, settled: RankDraft, origin_ns: int, world: int, options: LinkOptions
) -> RankPart:
    """Finish a kept rank with its settled outline."""
    rank_draft: RankDraft = state.pop(settled.number)
    rank_draft.communication.operators = settled.communication.operators
    rank_draft.communication.devices = settled.communication.devices
    rank_draft.clock = settled.clock
    return assemble(rank_draft, origin_ns, world, options)
