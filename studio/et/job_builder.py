"""Put the ranks of a job together as they are read, and keep equal graphs once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from studio.errors import TraceError, TraceFormatError
from studio.et.collector import pause_collector
from studio.et.findings import merge_findings
from studio.et.format import CopiesPart, DevicePart, GroupsPart, HostPart, RankPart, format_first
from studio.et.job_files import JobFiles, LeftOut, build_left_out_findings, load_plugins
from studio.et.link.options import LinkOptions
from studio.et.link.rank_files import RankFiles
from studio.et.ranks import check_rank_override
from studio.et.reading_meter import Meter
from studio.et.recording import DeviceTrace, HostTrace
from studio.et.seen import JobSeen, RankSeen, summarise_graph, summarise_half
from studio.et.shelf import Shelf
from studio.et.source import SourceFile
from studio.trace import (
    GROUP_KEYS,
    NONE,
    NSIGHT,
    CommGroup,
    Finding,
    Graph,
    Rank,
    Trace,
    compute_digest,
    compute_digests,
    digest_array,
    list_other_columns,
    place_rank,
)
from studio.units import format_counted

if TYPE_CHECKING:
    from concurrent.futures import Executor


class RanksNeededError(TraceError):
    """Files that do not say which rank they are, so the user has to.

    Attributes:
        names: `SourceFile.name` of each.
    """

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(
            f"The rank of {format_counted(len(files), 'file')} is unknown: {format_first(files)}.",
            hint="Name them <job>.<rank>.et, or after their ranks (rank0_results.json), or give --rank FILE=NUMBER once per file.",
        )
        self.names = tuple(files)


class JobBuilder:
    """Collects ranks and keeps equal graphs once."""

    def __init__(
        self,
        shelf: Shelf | None = None,
        seen: JobSeen | None = None,
        contents: dict[str, str] | None = None,
    ) -> None:
        self.shelf = shelf
        self.seen = seen
        self.contents = contents
        self.graphs_seen: dict[int, RankSeen] = {}
        self.graphs: list[Graph] = []
        self.known: dict[bytes, int] = {}
        self.by_times: dict[bytes, int] = {}
        # By identity, of graphs that are kept: files that are like one before share its graph, and need no digest,
        # or all columns but the ids, and need a digest of these alone.
        self.kept: dict[int, int] = {}
        self.shared: dict[tuple[int, ...], bytes] = {}
        # A digest of ids is only needed where those of two graphs begin and end alike.
        self.by_ends: dict[tuple[bytes, int, int, int], int] = {}
        self.ranks: list[tuple[Rank, int, int | None]] = []
        self.groups: tuple[CommGroup, ...] = ()
        self.copies: list[CopiesPart] = []
        self.findings: tuple[Finding, ...] = ()
        self.hosts: list[tuple[HostTrace, int | None]] = []
        self.devices: list[tuple[DeviceTrace, int | None]] = []
        self.refused: list[TraceFormatError] = []
        self.left_out: list[LeftOut] = []

    def refuse(self, file: SourceFile, error: TraceFormatError) -> None:
        """Leave out a file that cannot be read."""
        self.refused.append(error)
        why = error.message.removeprefix(f"{file.name}:").strip().rstrip(".")
        self.left_out.append(LeftOut(file.name, why, lost=True))
        if self.seen:
            self.seen.note_refused(file.name, why)

    def refuse_all(self) -> None:
        """Raise the error of the first file that cannot be read, if nothing else was."""
        if self.refused and not (self.ranks or self.hosts or self.devices):
            raise self.refused[0]

    def add_half(self, part: HostPart | DevicePart, named: int | None, given: int | None) -> None:
        """Add one side of a rank; the user's rank number wins over the file's, and that over its name's."""
        if isinstance(part, HostPart):
            number = named if given is None else given
            self.hosts.append((part.trace, number))
        else:
            named, given = (_compute_device_rank(part.trace, process) for process in (named, given))
            of_file = named if part.trace.head.rank is None else part.trace.head.rank
            number = of_file if given is None else given
            self.findings += check_rank_override(part.trace.file, part.trace.head.rank, given)
            self.devices.append((part.trace, number))
        if self.seen and not (isinstance(part, HostPart) and self.devices):
            key = part.trace.file if number is None else number
            self.seen.rank(key, summarise_half(part, number))
        self.findings += tuple(replace(finding, rank=number) for finding in part.findings)

    def link(self, options: LinkOptions | None, tick: Callable[[int, int], None] | None) -> None:
        """Link the sides of all ranks and add the results."""
        if not self.hosts and not self.devices:
            return
        self._settle_devices()
        # Loaded where it is needed: linking is half of what reading files could load.
        from studio.et.link.all_ranks import link_ranks

        parts, groups, findings = link_ranks(
            self.hosts, self.devices, options, tick or (lambda _done, _total: None)
        )
        if self.seen:
            self.seen.note_linked(len(parts))
        for part in parts:
            self.add(part, part.number, alone=len(parts) == 1)
        self.groups += groups
        self.findings += tuple(findings)

    def _settle_devices(self) -> None:
        """Number the devices of the only process of a job, and tell each rank which groups of its programs it is in."""
        self._order_devices()
        self.devices = _take_back_worlds(self.devices)
        first, number = self.devices[0] if self.devices else (None, None)
        alone = len({trace.file for trace, _ in self.devices}) == 1
        if alone and first is not None and first.head.place and number is None:
            count = first.head.place[1]
            self.devices = [(trace, _compute_device_rank(trace, 0)) for trace, _ in self.devices]
            # Of the processes of a report its reader says so.
            if first.head.world_size != count and first.head.backend == "xla":
                message = f"{first.file}: not told which of the job's devices its {count} are; taken as ranks 0-{count - 1}."
                hint = "Give the number of the process by --rank FILE=NUMBER."
                self.findings += (Finding("info", "rank-assumed", message, hint, file=first.file),)
        untold = {
            trace.file: trace.head.backend == "xla"
            for trace, _ in self.devices
            if trace.head.place and trace.head.rank is None
        }
        if not alone:
            self._add_untold_findings(sum(untold.values()), sum(not is_xla for is_xla in untold.values()))
        if any(trace.head.backend == "xla" for trace, _ in self.devices):
            from studio.et.xla import settle_groups

            self.devices = [
                (settle_groups(trace, number or 0) if trace.head.backend == "xla" else trace, number)
                for trace, number in self.devices
            ]

    def _add_untold_findings(self, devices: int, reports: int) -> None:
        """Say of how many processes of several devices, and reports of several processes, the ranks follow the order of the files."""
        if devices:
            message = (
                f"{format_counted(devices, 'process', 'processes')} of several devices do not tell which of the job's these "
                "are: they are taken one process after another, and in comm groups as such. Numbers of TPUs follow their places "
                "instead: of these, members of groups may be others, while sizes of groups are right."
            )
            hint = "The number of a process is that in the name of its file, or --rank FILE=NUMBER."
            self.findings += (Finding("warning", "rank-assumed", message, hint),)
        if reports:
            message = (
                f"{format_counted(reports, 'recording')} of several processes, which do not tell their ranks: those of one recording "
                "follow those of the other, in the order of the numbers in the names of the files."
            )
            hint = "The place of a recording is the number in the name of its file, or --rank FILE=NUMBER, counted from 0."
            self.findings += (Finding("warning", "rank-assumed", message, hint),)

    def _order_devices(self) -> None:
        """Number processes that nothing else numbers by the order of their devices, where that tells their ranks."""
        if self.hosts or len(self.devices) < 2 or any(number is not None for _, number in self.devices):
            return
        # Loaded where it is needed: few jobs have such files.
        from studio.et.device_order import build_machine_finding, find_ranks_by_device

        traces = [trace for trace, _ in self.devices]
        ranks = find_ranks_by_device(traces)
        if ranks is not None:
            self.devices = [*zip(traces, ranks, strict=True)]
            self.findings += (build_machine_finding(traces),)

    def link_files(
        self,
        job: JobFiles,
        ranks: Sequence[RankFiles],
        options: LinkOptions | None,
        meter: Meter,
        tick: Callable[[int, int], None] | None,
        executor: Executor,
    ) -> bool:
        """Read and link the ranks by an executor; returns False if their names do not pair them."""
        from studio.et.link.parallel import Onlookers, link_files

        sizes = {file.name: file.path.stat().st_size for file, _, _ in job.ranks}
        onlookers = Onlookers(
            lambda name: meter.tick(name, sizes[name]) if name else meter.look(),
            tick or (lambda _done, _total: None),
            self.seen,
            self.contents,
        )
        with link_files(ranks, options or LinkOptions(), executor, onlookers, shelf=self.shelf) as linked:
            if linked is None:
                return False
            rank_of = {name: files.number for files in ranks for name in files.names}
            for file, _, _ in job.ranks:
                noticed = linked.findings.get(file.name, ())
                self.findings += tuple(replace(finding, rank=rank_of[file.name]) for finding in noticed)
            for part, times in linked.parts:
                self._add_linked(part, times)
            self.groups += linked.settled.groups
            self.findings += tuple(linked.settled.findings)
        return True

    def _add_linked(self, part: RankPart, times: bytes) -> None:
        """Add a rank that was linked elsewhere; its graph is on the shelf, where there is one, and goes if it is no new one.

        Recordings of two ranks hardly ever have the same times, so their graphs are not compared without need.
        """
        index = alike = self.by_times.setdefault(times, len(self.graphs))
        if alike < len(self.graphs):
            self.known.setdefault(b"".join(compute_digests(self.graphs[alike])), alike)
            index = self.known.setdefault(b"".join(compute_digests(part.graph)), len(self.graphs))
        if index == len(self.graphs):
            self.graphs.append(part.graph)
        elif self.shelf:
            self.shelf.drop(part.graph)
        self.ranks.append((part.rank, index, part.number))
        self.findings += tuple(replace(finding, rank=part.number) for finding in part.findings)

    def add_groups(self, part: GroupsPart) -> None:
        """Add comm groups."""
        self.groups += part.groups
        self.findings += part.findings

    def add_copies(self, part: CopiesPart) -> None:
        """Add ranks that have the graphs of others."""
        self.copies.append(part)
        self.findings += part.findings

    def add(self, part: RankPart, number: int | None, *, alone: bool = False) -> None:
        """Add a rank; the only rank of a job shares no graph."""
        index = self.kept.get(id(part.graph), NONE)
        if index == NONE:
            # By identity: equal ones are equal while they are kept.
            columns = tuple(map(id, list_other_columns(part.graph)))
            shared = self.shared.get(columns)
            if shared is None:
                shared = b"" if alone else compute_digest(replace(part.graph, id=part.graph.id[:0]))
            index = self._find_equal_graph(part.graph, shared)
            if index == len(self.graphs):
                self.graphs.append(part.graph)
                self.kept[id(part.graph)] = index
                self.shared[columns] = shared
        if self.seen and not alone:
            if index not in self.graphs_seen:
                self.graphs_seen[index] = summarise_graph(part.graph, None)
            self.seen.rank(len(self.ranks), replace(self.graphs_seen[index], number=number))
        self.ranks.append((part.rank, index, number))
        self.findings += tuple(replace(finding, rank=number) for finding in part.findings)

    def _find_equal_graph(self, graph: Graph, shared: bytes) -> int:
        """Return the place of an equal graph, that of the next one to come where there is none.

        Args:
            graph: The graph.
            shared: A digest of its columns but the ids.
        """
        ids = graph.id
        ends = (shared, len(ids), int(ids[0]), int(ids[-1])) if len(ids) else (shared, 0, 0, 0)
        alike = self.by_ends.setdefault(ends, len(self.graphs))
        if alike == len(self.graphs):
            return alike
        self.known.setdefault(shared + digest_array(self.graphs[alike].id), alike)
        return self.known.setdefault(shared + digest_array(ids), len(self.graphs))

    @pause_collector()
    def trace(self, job: JobFiles, given: Mapping[str, int]) -> Trace:
        """Return the finished trace, ranks in order; `given` are the rank numbers that the user gave to files."""
        # A file may hold several ranks.
        unknown = list(dict.fromkeys(rank.file for rank, _, number in self.ranks if number is None))
        findings = merge_findings(self.findings)
        if unknown and len(self.ranks) > 1:
            raise RanksNeededError(unknown)
        if unknown:
            findings.append(
                Finding("info", "rank-assumed", f"{unknown[0]}: no rank number; taken as rank 0.")
            )
        ranks = sorted(
            (place_rank(rank, number or 0, graph) for rank, graph, number in self.ranks),
            key=lambda rank: rank.number,
        )
        ranks = self._leave_out_claimed(ranks, given)
        for part in self.copies:
            from studio.et.copies import add_copies

            ranks = add_copies(ranks, part)
        findings += (*build_left_out_findings((*job.left_out, *self.left_out)), *load_plugins().findings())
        used = sorted({rank.graph for rank in ranks})
        place = {graph: index for index, graph in enumerate(used)}
        kept = tuple(
            rank if place[rank.graph] == rank.graph else place_rank(rank, rank.number, place[rank.graph])
            for rank in ranks
        )
        graphs = tuple(self.graphs[graph] for graph in used)
        # Every rank may list the groups that it knows, the same ones again.
        listed = tuple(dict.fromkeys(self.groups))
        return add_inferred_groups(Trace(graphs, kept, listed, tuple(findings)))

    def _leave_out_claimed(self, ranks: Sequence[Rank], given: Mapping[str, int]) -> list[Rank]:
        """Return the first of the ranks with each number, and list the files of the others as left out.

        Raises:
            TraceError: The user gave two files the same number.
        """
        kept: list[Rank] = []
        for rank in ranks:
            if not kept or kept[-1].number != rank.number:
                kept.append(rank)
                continue
            first = kept[-1]
            if {first.file, rank.file} <= given.keys():
                raise TraceError(
                    f"Rank {rank.number} is claimed by two files: {first.file} and {rank.file}.",
                    hint="Leave one of them out, or give --rank FILE=NUMBER.",
                )
            if (first.graph, first.slots) == (rank.graph, rank.slots):
                why = f"claims rank {rank.number} and holds the same nodes as {first.file}, which is used"
                self.left_out.append(LeftOut(rank.file, why, claims=rank.number))
                continue
            why = f"claims rank {rank.number} like {first.file}, which is used, and holds something else"
            self.left_out.append(LeftOut(rank.file, why, lost=True, claims=rank.number))
        return kept


def _take_back_worlds(
    devices: Sequence[tuple[DeviceTrace, int | None]],
) -> list[tuple[DeviceTrace, int | None]]:
    """Return traces without members of comm groups that a report of Nsight took for all ranks, where the job has more.

    The largest group that was made while it was recorded may be one of several.
    """
    world = max(
        (
            max(trace.head.world_size or 0, (NONE if number is None else number) + 1)
            for trace, number in devices
        ),
        default=0,
    )
    settled = []
    for trace, number in devices:
        head = trace.head
        if head.recorder == NSIGHT and 0 < (head.world_size or 0) < world:
            groups = tuple(replace(group, ranks=()) for group in head.groups)
            head = replace(head, world_size=None, groups=groups)
        settled.append((trace if head is trace.head else replace(trace, head=head), number))
    return settled


def _compute_device_rank(trace: DeviceTrace, process: int | None) -> int | None:
    """Return the rank of a device by the number of its process: those of a process follow each other."""
    if process is None or trace.head.place is None:
        return process
    place, count = trace.head.place
    return process * count + place


def add_inferred_groups(trace: Trace) -> Trace:
    """Add the comm groups that nodes name but no list defines, with the ranks that name them."""
    listed = {group.name for group in trace.groups}
    members: dict[str, list[int]] = {}
    # Graphs that differ in their ids alone share the rest, and there may be one for every rank.
    alike: dict[tuple[int, int], list[int]] = {}
    slots = []
    for graph in trace.graphs:
        key = (id(graph.slot_key), id(graph.strings))
        if key not in alike:
            alike[key] = _find_group_slots(graph)
        slots.append(alike[key])
    for rank in trace.ranks:
        for name in _list_names(rank, slots[rank.graph]):
            if name not in listed:
                members.setdefault(name, []).append(rank.number)
    if not members:
        return trace
    inferred = tuple(CommGroup(name, tuple(ranks), inferred=True) for name, ranks in members.items())
    names = ", ".join(repr(name) for name in list(members)[:5]) + (", …" if len(members) > 5 else "")
    finding = Finding(
        "info",
        "group-inferred",
        f"{len(members):,} comm groups are named by nodes but listed nowhere: {names}. "
        "Their members are taken to be the ranks that name them.",
        "Open the comm group JSON together with the traces to have the true order.",
    )
    return replace(trace, groups=trace.groups + inferred, findings=(*trace.findings, finding))


def _find_group_slots(graph: Graph) -> list[int]:
    """Return the slots of a graph that hold names of comm groups."""
    return [slot for slot, code in enumerate(graph.slot_key.tolist()) if graph.strings[code] in GROUP_KEYS]


def _list_names(rank: Rank, slots: Sequence[int]) -> list[str]:
    """Return the names that a rank has in these slots, each once."""
    return [name for name in dict.fromkeys(str(rank.slots[slot]) for slot in slots) if name]
