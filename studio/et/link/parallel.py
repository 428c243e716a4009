"""Read and link the ranks of a large job by an executor.

Each call reads the files of a rank, drafts it and puts it into a folder that all share; from outlines of all of them the
ranks are brought together here, and further calls finish them. The result is the same, to the order of the findings.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from studio.et import kineto, pytorch
from studio.et.executors import call_in_order
from studio.et.format import DevicePart, HostPart, RankPart, Reading
from studio.et.link.all_ranks import Settled, settle
from studio.et.link.assemble import assemble
from studio.et.link.draft import RankDraft, draft, outline
from studio.et.link.join import LEAST_SHARE
from studio.et.link.options import LinkOptions
from studio.et.link.pair import Pair, may_belong, pair
from studio.et.link.rank_files import RankFiles
from studio.et.source import SourceFile, load
from studio.trace import Finding


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
    executor: Executor,
    read: Callable[[str], None],
    linked: Callable[[int, int], None],
) -> LinkedRanks | None:
    """Read and link the files of a job.

    Args:
        ranks: Which files belong to which rank.
        options: What to derive.
        executor: Who reads and links.
        read: Told the name of a file that was read, and "" several times a second meanwhile; may raise to stop.
        linked: Told the ranks that are finished; may raise to stop.

    Returns:
        The ranks; None where the content of some files does not bear out their names, so that all have to be compared.
    """
    with tempfile.TemporaryDirectory(prefix="chakra-studio-link-") as scratch:
        drafts: list[Drafted] = []
        calls = [(draft_files, (files, options, Path(scratch))) for files in ranks]
        for files, made in zip(ranks, call_in_order(executor, calls, lambda: read("")), strict=True):
            if made is None:
                return None
            drafts.append(made)
            for name in files.names:
                read(name)
        settled = settle([made.outline for made in drafts], options)
        finishing = [
            (finish, (Path(scratch), outline, settled.origin_ns, settled.world, options))
            for outline in settled.drafts
        ]
        parts: list[RankPart] = []
        for part in call_in_order(executor, finishing, lambda: linked(len(parts), len(finishing))):
            parts.append(part)
            linked(len(parts), len(finishing))
    findings: dict[str, tuple[Finding, ...]] = {}
    for made in drafts:
        findings |= made.findings
    return LinkedRanks(parts, settled, findings)


# ---------------------------------------------------------------------------------------------------
# Where the executor is


@dataclass(frozen=True, slots=True)
class Drafted:
    """What is known of a rank that was drafted.

    Attributes:
        outline: All that other ranks need of it.
        findings: What the readers noticed, by file name.
    """

    outline: RankDraft
    findings: Mapping[str, tuple[Finding, ...]]


def draft_files(files: RankFiles, options: LinkOptions, scratch: Path) -> Drafted | None:
    """Read and draft a rank and put it aside; return its outline, None if the files may be of two ranks."""
    hosts = [] if files.host is None else pytorch.read(_reading(files.host))
    [device] = kineto.read(_reading(files.device))
    assert isinstance(device, DevicePart)
    said = device.trace.head.rank
    if said not in (None, files.number) and not files.by_user:
        return None
    findings = {files.device.name: device.findings}
    both = Pair(files.number, None, device.trace)
    for host in hosts:
        assert isinstance(host, HostPart)
        if not may_belong(host.trace, device.trace):
            return None
        [both] = pair([(host.trace, files.number)], [(device.trace, files.number)])
        if not _sure(both):
            return None
        findings[host.trace.file] = host.findings
    rank_draft = draft(both, options)
    (scratch / f"{files.number}.draft").write_bytes(pickle.dumps(rank_draft, protocol=5))
    return Drafted(outline(rank_draft), findings)


def _reading(file: SourceFile) -> Reading:
    data, findings = load(file)
    return Reading(file.name, data, len(data), findings=findings)


def _sure(both: Pair) -> bool:
    return both.joined is not None and both.joined.share >= LEAST_SHARE and not both.refused


def finish(scratch: Path, settled: RankDraft, origin_ns: int, world: int, options: LinkOptions) -> RankPart:
    """Finish a rank that was put aside with its settled outline."""
    path = scratch / f"{settled.number}.draft"
    rank_draft: RankDraft = pickle.loads(path.read_bytes())  # noqa: S301 (written by `draft_files`)
    path.unlink()
    rank_draft.communication.operators = settled.communication.operators
    rank_draft.communication.devices = settled.communication.devices
    rank_draft.clock = settled.clock
    return assemble(rank_draft, origin_ns, world, options)
