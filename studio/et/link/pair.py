"""Find which execution trace and which Kineto trace belong to the same rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from studio.et.link.join import LEAST_SHARE, Joined, join
from studio.et.recording import DeviceTrace, HostTrace

_ALIKE = 0.8


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of one rank; one of them may be missing.

    Attributes:
        number: The rank, None where nothing tells it.
        host, device: Its traces.
        joined: How the two fit, None where one is missing.
        refused: Why the two cannot be of the same process, empty where they can.
    """

    number: int | None
    host: HostTrace | None
    device: DeviceTrace | None
    joined: Joined | None = None
    refused: str = ""


Told = tuple[HostTrace, int | None]
ToldDevice = tuple[DeviceTrace, int | None]


def pair_files(hosts: Sequence[Told], devices: Sequence[ToldDevice]) -> list[Pair]:
    """Pair the files of a job by rank and content, independent of their order.

    Args:
        hosts: Execution traces, each with the rank its name tells, if any.
        devices: Kineto traces, each with the rank its content or name tells, if any.
    """
    choice = _Choice(hosts, devices)
    by_rank = _pair_by_rank(hosts, devices)
    for host, device in by_rank:
        if _may(hosts[host], devices[device]) and choice.share(host, device) >= LEAST_SHARE:
            choice.take(host, device)
    # What the numbers do not tell, or tell wrongly, the content may.
    better = [
        (-choice.share(host, device), host, device)
        for host in choice.hosts
        for device in choice.devices
        if _may(hosts[host], devices[device])
    ]
    for share, host, device in sorted(better):
        if -share >= LEAST_SHARE:
            choice.take(host, device)
    for host, device in by_rank:
        choice.take(host, device)
    if len(choice.hosts) == len(choice.devices) == 1:
        choice.take(*choice.hosts, *choice.devices)
    pairs = [
        _check_pair(hosts[host], devices[device], choice.fit(host, device)) for host, device in choice.pairs
    ]
    pairs += [Pair(hosts[index][1], hosts[index][0], None) for index in sorted(choice.hosts)]
    return pairs + [Pair(devices[index][1], None, devices[index][0]) for index in sorted(choice.devices)]


class _Choice:
    """Pairs made so far, what is left, and how well two files fit."""

    def __init__(self, hosts: Sequence[Told], devices: Sequence[ToldDevice]) -> None:
        self.given = hosts, devices
        self.hosts, self.devices = set(range(len(hosts))), set(range(len(devices)))
        self.pairs: list[tuple[int, int]] = []
        self.known: dict[tuple[int, int], Joined] = {}

    def fit(self, host: int, device: int) -> Joined:
        """Return how two files fit."""
        if (host, device) not in self.known:
            self.known[host, device] = join(self.given[0][host][0], self.given[1][device][0])
        return self.known[host, device]

    def share(self, host: int, device: int) -> float:
        """Return the share of operators that two files have in common."""
        return self.fit(host, device).share

    def take(self, host: int, device: int) -> None:
        """Make two files a pair, if neither is taken."""
        if host in self.hosts and device in self.devices:
            self.hosts.discard(host)
            self.devices.discard(device)
            self.pairs.append((host, device))


def _pair_by_rank(hosts: Sequence[Told], devices: Sequence[ToldDevice]) -> list[tuple[int, int]]:
    by_number = {number: index for index, (_, number) in enumerate(devices) if number is not None}
    return [(index, by_number[number]) for index, (_, number) in enumerate(hosts) if number in by_number]


def _may(host: Told, device: ToldDevice) -> bool:
    return may_belong(host[0], device[0])


def may_belong(host: HostTrace, device: DeviceTrace) -> bool:
    """Whether the process ids allow two files to belong together; comparing content takes long."""
    return host.pid < 0 or device.pid < 0 or host.pid == device.pid


def _check_pair(host: Told, device: ToldDevice, joined: Joined) -> Pair:
    number = host[1] if device[1] is None else device[1]
    if joined.share >= LEAST_SHARE:
        return Pair(number, host[0], device[0], joined)
    refused = ""
    if not _may(host, device):
        refused = f"process {host[0].pid} in one, {device[0].pid} in the other, and {joined.why}"
    elif len(device[0]) and compute_likeness(host[0], device[0]) < _ALIKE:
        # What holds nothing contradicts nothing: the rank did nothing, or on threads that were not recorded.
        refused = f"only {compute_likeness(host[0], device[0]):.0%} of the operators occur in both, and {joined.why}"
    return Pair(number, host[0], device[0], joined, refused)


def compute_likeness(host: HostTrace, device: DeviceTrace) -> float:
    """Return how many operator names, each as often as it occurs, two traces share, of the shorter one."""
    roots = host.roots.tolist()
    ours = Counter(name for name, root in zip(host.names, roots, strict=True) if not root)
    theirs = Counter(device.names[code] for code in device.name[device.is_host].tolist())
    return (ours & theirs).total() / max(min(ours.total(), theirs.total()), 1)
