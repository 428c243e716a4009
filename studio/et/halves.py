"""Sort PyTorch's host and device traces into jobs: by what their beginnings say, then by their names.

A job's files lie side by side, in one folder per rank or in one folder per kind; their names have ranks, dates, names of
machines and process ids in any order. What a file itself says of its process counts first: its rank and world size, its
process id and its time. Only then do names.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

from studio.et.format import HEAD_BYTES, Format
from studio.et.heads import Card, read_card, read_rocpd_card
from studio.et.rank_names import can_be_rank, find_counted_numbers, parse_rank_and_prefix, says_rank
from studio.et.source import SourceFile, read_head

_SAYS_NOTHING = re.compile(
    r"(pytorch|torch|kineto|chrome|chakra|execution|profiler?|et|eg|trace|traces|host|device|pt|json|gz|rank|worker"
    r"|step|observer|[0-9]+)?"
)
"""Words in file names that distinguish the sides of a rank, not jobs."""
_VERSION = re.compile(r"\.\d+\.\d+\.\d+(?=\D|$)")
_RUNS = ("plugins", "profile")
"""Folders above those of runs, for TensorBoard."""
_RUN_DATE = "%Y_%m_%d_%H_%M_%S"
_SAME_RUN_S = 10
"""Machines of one run, each of which names its folder by its own clock, do so within this time of each other."""
_SAME_RUN_US = 600_000_000
"""Traces of one run begin within this time of each other, whatever the clocks of the machines."""

_FURTHER_BYTES = (1 << 20, 1 << 24)
"""How much is read, one after the other, of files whose events do not begin in `HEAD_BYTES`."""


@dataclass(frozen=True, slots=True)
class Half:
    """One side of a rank.

    Attributes:
        file, fmt: The file and its format.
        number: The rank its name gives, None where it gives none that can be one.
        stem: Folder and distinctive words of its name, which both sides of a rank share.
        card: What its beginning says.
    """

    file: SourceFile
    fmt: Format
    number: int | None
    stem: str
    card: Card

    @property
    def is_host(self) -> bool:
        """Whether it is the host trace."""
        return self.fmt.half == "host"

    @property
    def rank(self) -> int | None:
        """The rank: what the file says, else its name."""
        return self.number if self.card.rank is None else self.card.rank

    @property
    def folder(self) -> PurePosixPath:
        """Where it lies."""
        return PurePosixPath(self.file.name).parent


def make_half(file: SourceFile, fmt: Format, start: bytes) -> Half:
    """Return a file with what its name and its beginning say."""
    prefix, number = parse_rank_and_prefix(_VERSION.sub("", file.name))
    stem = _run_of_jax(file) if fmt.name == "xplane" else None
    card = read_card(start, fmt.half)
    if fmt.name == "kineto" and card.begin_us is None:
        card = _read_further(file, len(start), card)
    elif fmt.name == "rocpd":
        card = read_rocpd_card(read_head(file, _FURTHER_BYTES[-1]))
    return Half(file, fmt, number, parse_stem(prefix) if stem is None else stem, card)


def _read_further(file: SourceFile, seen_bytes: int, card: Card) -> Card:
    """Return what a file says whose events begin later than is looked at to recognise it: it lists thousands of ranks first."""
    for most in _FURTHER_BYTES:
        if seen_bytes < HEAD_BYTES or card.begin_us is not None:
            break
        start = read_head(file, most)
        card = read_card(start, "device")
        # All of the file was seen already.
        seen_bytes = len(start) if len(start) > seen_bytes else 0
    return card


def _run_of_jax(file: SourceFile) -> str | None:
    """Return the folder of one run as JAX lays it out, with a file for each machine whatever that is called; None for others."""
    name = PurePosixPath(file.name)
    folders = (name.parent.parts, file.path.parent.parts)
    return f"{name.parent}/" if any(parts[-3:-1] == _RUNS for parts in folders) else None


def parse_stem(prefix: str) -> str:
    """Return what the names of both sides of a rank share: folder and distinctive words.

    Example:
        >>> parse_stem("run/pytorch_et"), parse_stem("run/kineto"), parse_stem("a/resnet_kineto")
        ('run/', 'run/', 'a/resnet')
    """
    folder, _, base = prefix.rpartition("/")
    words = [word for word in re.split(r"[._\- ]+", base) if not _SAYS_NOTHING.fullmatch(word.lower())]
    return f"{folder}/{'_'.join(words)}"


def find_copies(halves: Sequence[Half]) -> dict[str, str]:
    """Return files that hold the recording of another one in a form that says less: their names → the other's.

    JAX writes `host.xplane.pb` and `host.trace.json.gz` into one folder, and where it is asked to `perfetto_trace.json.gz`;
    rocprofv3 writes `7_results.db`, and `7_results.json` and `7_results.pftrace` where it is asked to.
    """
    fuller = {half.fmt.fuller for half in halves}
    kept: dict[tuple[str, PurePosixPath], dict[str, str]] = {}
    for half in halves:
        if half.fmt.name in fuller:
            others = kept.setdefault((half.fmt.name, half.folder), {})
            others.setdefault(_strip_endings(half), half.file.name)
    copies = {}
    for half in halves:
        if others := kept.get((half.fmt.fuller, half.folder), {}):
            own = _strip_endings(half)
            same = others.get(own, next(iter(others.values())) if own == "perfetto_trace" else None)
            if same is not None:
                copies[half.file.name] = same
    return copies


def find_doubles(halves: Sequence[Half]) -> dict[str, str]:
    """Return files that are another one of their folder, byte for byte, and claim no rank of their own: their names → the other's.

    What a file says of its process is said by both. A host trace that says no rank may be told apart by its name alone: it is
    left out where its name tells the same rank, or that of a device trace that is left out.
    """
    alike: dict[tuple[str, PurePosixPath, Card], list[Half]] = {}
    for half in halves:
        if half.card.rank is not None or half.card.pid is not None:
            # A folder that is a copy of another as a whole stays a job.
            alike.setdefault((half.fmt.name, half.folder, half.card), []).append(half)
    doubles: dict[str, str] = {}
    without: set[int | None] = {None}
    # Device traces first: they tell their ranks, and host traces follow them.
    for same in sorted(alike.values(), key=lambda each: each[0].is_host):
        # The one whose name tells the rank that it says is the original.
        kept: list[Half] = []
        for half in sorted(same, key=lambda each: each.number is None or each.number != each.card.rank):
            first = next((original for original in kept if _are_same(original.file, half.file)), None)
            claims = (
                half.card.rank is None and first is not None and half.number not in {first.number, *without}
            )
            if first is None or claims:
                kept.append(half)
                continue
            doubles[half.file.name] = first.file.name
            if not half.is_host and half.number != half.card.rank:
                without.add(half.number)
    return doubles


def _are_same(left: SourceFile, right: SourceFile) -> bool:
    """Whether two files are equal, byte for byte; their sizes mostly tell that they are not."""
    try:
        return filecmp.cmp(left.path, right.path, shallow=False)
    except OSError:
        # What cannot be read is told where it is read.
        return False


def _strip_endings(half: Half) -> str:
    """Return a file's name without folder and endings."""
    return re.sub(r"(\.(xplane|trace|pftrace|json|pb|db|gz))+$", "", PurePosixPath(half.file.name).name)


def sort_halves(halves: Sequence[Half]) -> list[list[Half]]:
    """Return the files of each job."""
    groups: dict[str, list[Half]] = {}
    for half in _number_counted(_number_namesakes(_join_dated_runs(halves))):
        groups.setdefault(half.stem, []).append(half)
    jobs = [part for group in groups.values() for part in _split_by_time(group)]
    jobs = _merge_runs(jobs)
    jobs = _add_hosts(jobs)
    return [_drop_wrong_ranks(job) for job in _pair_sides(jobs)]


def _join_dated_runs(halves: Sequence[Half]) -> list[Half]:
    """Move the files of the machines of one JAX run into one folder: each machine calls its own by the second it began.

    Folders that both have a file of one machine are two runs.
    """
    dated: dict[tuple[PurePosixPath, datetime], list[Half]] = {}
    for half in halves:
        if _run_of_jax(half.file) is not None and half.fmt.name == "xplane":
            with suppress(ValueError):
                began = datetime.strptime(half.folder.name, _RUN_DATE).replace(tzinfo=UTC)
                dated.setdefault((half.folder.parent, began), []).append(half)
    moved: dict[str, Half] = {}
    first: tuple[PurePosixPath, datetime] | None = None
    machines: set[str] = set()
    for place, members in sorted(dated.items()):
        here = {PurePosixPath(half.file.name).name for half in members}
        near = first and place[0] == first[0] and (place[1] - first[1]).total_seconds() <= _SAME_RUN_S
        if first is None or not near or machines & here:
            first, machines = place, set()
        machines |= here
        stem = dated[first][0].stem
        moved |= {half.file.name: replace(half, stem=stem) for half in members}
    return [moved.get(half.file.name, half) for half in halves]


def _number_namesakes(halves: Sequence[Half]) -> list[Half]:
    """Give host traces the rank of the one device trace of another folder that is called the same."""
    named: dict[tuple[bool, str], list[Half]] = {}
    for half in halves:
        named.setdefault((half.is_host, _find_own_words(half)), []).append(half)
    numbered = []
    for half in halves:
        words = _find_own_words(half)
        devices = named.get((False, words), [])
        alone = words and half.is_host and len(devices) == len(named[True, words]) == 1
        follows = alone and half.folder != devices[0].folder and _may_follow(half, devices[0])
        numbered.append(replace(half, number=devices[0].card.rank) if follows else half)
    return numbered


def _find_own_words(half: Half) -> str:
    """Return the words and numbers of a file's name by which it differs from others of its kind."""
    words = re.split(r"[._\- ]+", half.file.name.rpartition("/")[2].lower())
    return "_".join(word for word in words if word.isdigit() or not _SAYS_NOTHING.fullmatch(word))


def _may_follow(host: Half, device: Half) -> bool:
    """Whether a host trace that says nothing of its process may have the rank that a device trace tells of itself."""
    tells = host.card.rank is not None or host.card.pid is not None or says_rank(host.file.name)
    return not tells and device.card.rank is not None


def _number_counted(halves: Sequence[Half]) -> list[Half]:
    """Give files without a rank the number that counts them, where their names differ in nothing else."""
    counted = find_counted_numbers([_name_in_run(half) for half in halves if half.rank is None])
    return [
        replace(half, stem=parse_stem(counted[name][0]), number=counted[name][1])
        if (name := _name_in_run(half)) in counted
        else half
        for half in halves
    ]


def _name_in_run(half: Half) -> str:
    """Return a file's name, of a JAX run as if all of it were in one folder."""
    in_run = half.fmt.name == "xplane" and half.stem.endswith("/")
    return half.stem + PurePosixPath(half.file.name).name if in_run else half.file.name


def _split_by_time(group: list[Half]) -> list[list[Half]]:
    """Take apart the device traces that a process wrote one after another, of which each rank has several."""
    ranks = [half.card.rank for half in group]
    several = len(set(ranks)) < len(ranks) and None not in ranks
    if not several or any(half.is_host or half.card.begin_us is None for half in group):
        return [group]
    turns: list[list[Half]] = [[]]
    for half in sorted(group, key=lambda half: half.card.begin_us or 0):
        if any(other.card.rank == half.card.rank for other in turns[-1]):
            turns.append([])
        turns[-1].append(half)
    return turns


def _merge_runs(jobs: list[list[Half]]) -> list[list[Half]]:
    """Bring together device traces of one run: of one world size, of different ranks, begun at about the same time."""
    merged: list[list[Half]] = []
    for job in jobs:
        home = next((other for other in merged if _are_one_run(other, job)), None)
        if home is None:
            merged.append(job)
        else:
            home += job
    return merged


def _are_one_run(these: Sequence[Half], those: Sequence[Half]) -> bool:
    worlds = {half.card.world for half in (*these, *those) if not half.is_host}
    if len(worlds) != 1 or worlds <= {None, 1}:
        return False
    ours, theirs = ({half.card.rank for half in group if not half.is_host} for group in (these, those))
    if not (ours and theirs) or ours & theirs or None in ours | theirs:
        return False
    begins = [half.card.begin_us for half in (*these, *those) if half.card.begin_us is not None]
    return bool(begins) and max(begins) - min(begins) <= _SAME_RUN_US


def _add_hosts(jobs: list[list[Half]]) -> list[list[Half]]:
    """Give host traces without device traces to the job of which they are the other side."""
    lonely = [job for job in jobs if all(half.is_host for half in job)]
    rest = [job for job in jobs if job not in lonely]
    joined = [list(job) for job in rest]
    for hosts in lonely:
        fits = [
            (_score_fit(hosts, job), index)
            for index, job in enumerate(rest)
            if not any(half.is_host for half in job)
        ]
        best = max(fits, default=((0, 0), 0))
        if best[0] > (0, 0) and sum(fit == best[0] for fit, _ in fits) == 1:
            joined[best[1]] += hosts
        else:
            joined.append(hosts)
    return joined


def _score_fit(hosts: Sequence[Half], devices: Sequence[Half]) -> tuple[int, int]:
    """Return how well two sides fit, more is better: processes in common, else ranks in common; then how near they lie."""
    near = max(_count_shared_folders(host, device) for host in hosts[:1] for device in devices[:1])
    ours, theirs = ({half.card.pid for half in side} - {None} for side in (hosts, devices))
    if ours and theirs:
        common = len(ours & theirs)
    else:
        common = len(({half.rank for half in hosts} & {half.rank for half in devices}) - {None})
    return (common, near) if common else (0, 0)


def _count_shared_folders(this: Half, other: Half) -> int:
    pairs = zip(this.folder.parts, other.folder.parts, strict=False)
    return next(
        (depth for depth, (a, b) in enumerate(pairs) if a != b),
        min(len(this.folder.parts), len(other.folder.parts)),
    )


def _pair_sides(jobs: list[list[Half]]) -> list[list[Half]]:
    """Pair the only host traces of a folder with its only device traces where nothing else matches."""
    joined = [list(job) for job in jobs]
    for folder in {half.folder for job in jobs for half in job}:
        here = [job for job in joined if any(half.folder == folder for half in job)]
        hosts = [job for job in here if all(half.is_host for half in job)]
        devices = [job for job in here if not any(half.is_host for half in job)]
        if len(here) == 2 and len(hosts) == len(devices) == 1:
            hosts[0] += devices[0]
            joined = [job for job in joined if job is not devices[0]]
    return joined


def _drop_wrong_ranks(job: Sequence[Half]) -> list[Half]:
    """Take back the ranks in names that cannot be ranks of this job."""
    worlds = [half.card.world for half in job if half.card.world is not None]
    world, count = max(worlds, default=None), len({half.number for half in job} - {None})
    return [
        half
        if half.number is None or can_be_rank(half.number, count, world, is_said=says_rank(half.file.name))
        else replace(half, number=None)
        for half in job
    ]


def find_common_name(halves: Iterable[Half]) -> str:
    """Return what the names of the files of a job have in common, which may be nothing."""
    stems = dict.fromkeys(half.stem for half in halves)
    return next(iter(stems)) if len(stems) == 1 else ""
