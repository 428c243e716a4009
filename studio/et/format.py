"""What a trace format is: a name, a test by content, and a reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from studio.errors import TraceError
from studio.et.recording import DeviceTrace, HostTrace
from studio.trace import CommGroup, Finding, Graph, Rank

HEAD_BYTES = 1 << 16
"""How much of the (uncompressed) start of a file a format may look at to recognise it."""
CONVERT_WITH_NPUS = "chakra-studio convert FILE FOLDER --npus NUMBER"
"""Writes a workload for a number of NPUs, so that commands without that option can read it."""


def format_first(names: Sequence[str]) -> str:
    """Return the first four names, and how many more there are."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


class NpusNeededError(TraceError):
    """A workload that does not say how many NPUs run it, so the user has to.

    Attributes:
        names: `SourceFile.name` of each file.
    """

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(
            f"{format_first(files)}: the workload does not say how many NPUs run it.",
            hint="Give --npus NUMBER.",
        )
        self.names = tuple(files)


@dataclass(frozen=True, slots=True)
class JobSize:
    """Sizes that workload descriptions leave open; None where the user gives none.

    Attributes:
        npus: How many NPUs run the workload.
        passes: How many times it runs, one after another.
    """

    npus: int | None = None
    passes: int | None = None


UNSAID = JobSize()
"""The user says nothing about the size of a job."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One file about to be read.

    Attributes:
        name: The name to speak of it by; untrusted text.
        data: The whole file, uncompressed.
        total_bytes: Size of all files of the job.
        tick: Told the bytes done, out of twice the file; may raise to stop the reading.
        findings: What was noticed while opening it, e.g. a truncated gzip stream.
        size: What the user says of the job's size.
    """

    name: str
    data: bytes | memoryview
    total_bytes: int = 0
    tick: Callable[[int], None] = field(default=lambda _done: None)
    findings: tuple[Finding, ...] = ()
    size: JobSize = UNSAID


@dataclass(frozen=True, slots=True)
class RankPart:
    """One rank as its file describes it; number and graph index are set when the job is complete.

    Attributes:
        rank: Number and graph still -1.
        graph: Its nodes.
        number: The rank's number where the file itself names it.
        findings: What the reader noticed.
    """

    rank: Rank
    graph: Graph
    number: int | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupsPart:
    """Comm groups of a job, with findings of the reader."""

    groups: tuple[CommGroup, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """A rank that has the graph of another one.

    Attributes:
        number: The rank.
        like: The rank whose graph it has.
        slots: Its own comm groups and peers, as in `Rank.slots`.
        assumed_from: The rank whose recording it repeats, None where it was recorded itself.
    """

    number: int
    like: int
    slots: tuple[int | str, ...]
    assumed_from: int | None = None


@dataclass(frozen=True, slots=True)
class CopiesPart:
    """Ranks of a job that have the graphs of others, with findings of the reader."""

    file: str
    copies: tuple[Copy, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPart:
    """A rank's host trace, not yet linked with its device trace."""

    trace: HostTrace
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class DevicePart:
    """A rank's device trace, not yet linked with its host trace."""

    trace: DeviceTrace
    findings: tuple[Finding, ...] = ()


Part = RankPart | GroupsPart | CopiesPart | HostPart | DevicePart


@dataclass(frozen=True, slots=True)
class Format:
    """A file format.

    Attributes:
        name: Short name, as used in messages and options.
        title: What users call it.
        sniff: Whether a file with this head may be of the format.
        read: Reads a file; raises TraceFormatError where it is damaged beyond use.
        describes_job: Whether it tells about the job as a whole rather than being a rank of it.
        half: Whether a file is only one side of a rank, to be linked with the other: its processor or its devices.
        fuller: The format in which a recorder writes the same recording too, with more in it; "" where there is none.
        whole: Whether a file holds all ranks of a job.
        by_itself: Whether a file is a job only where no traces are read with it: a collective's algorithm, say.
        tells_ranks: Whether the file itself tells its ranks, and its name is that of a process: files of one folder are one job.
        job_reader: Makes a function to use in place of `read` for all files of one job, in any order and from several
            threads; it may remember what they have in common.
        memory_ratio: Bytes of memory that reading takes for each byte of an uncompressed file, about.
    """

    name: str
    title: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Reading], list[Part]]
    describes_job: bool = False
    half: Literal["", "host", "device"] = ""
    fuller: str = ""
    whole: bool = False
    by_itself: bool = False
    tells_ranks: bool = False
    job_reader: Callable[[], Callable[[Reading], list[Part]]] | None = None
    memory_ratio: float = 12.0

    @property
    def job_mark(self) -> str:
        """A suffix that keeps files of this format apart from files of the same names in another format."""
        return "" if self.name == "chakra" or self.whole or self.half else f"\x1f{self.name}"
