"""Which execution trace and which Kineto trace belong to the same rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from studio.et.kineto import DeviceTrace
from studio.et.link.join import LEAST_SHARE, Joined, join
from studio.et.pytorch import HostTrace

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


def pair(hosts: Sequence[Told], devices: Sequence[ToldDevice]) -> list[Pair]:
    """Pair the files of a job by rank and content; the order they are given in does not count.

    Args:
        hosts, devices: Traces, each with the rank its name or content tells, if any.
    """
    scored: dict[tuple[int, int], Joined] = {}

    def fit(host: int, device: int) -> Joined:
        if (host, device) not in scored:
            scored[host, device] = join(hosts[host][0], devices[device][0])
        return scored[host, device]

    left_hosts, left_devices = set(range(len(hosts))), set(range(len(devices)))
    pairs: list[tuple[int, int]] = []

    def take(host: int, device: int) -> None:
        left_hosts.discard(host)
        left_devices.discard(device)
        pairs.append((host, device))

    by_rank = _by_rank(hosts, devices)
    for host, device in by_rank:
        if _may(hosts[host], devices[device]) and fit(host, device).share >= LEAST_SHARE:
            take(host, device)
    # What the numbers do not tell, or tell wrongly, the content may.
    better = sorted(
        ((fit(host, device).share, -host, -device) for host in left_hosts for device in left_devices if _may(hosts[host], devices[device])),
        reverse=True,
    )
    for share, host, device in better:
        if share >= LEAST_SHARE and -host in left_hosts and -device in left_devices:
            take(-host, -device)
    for host, device in by_rank:
        if host in left_hosts and device in left_devices:
            take(host, device)
    if len(left_hosts) == len(left_devices) == 1:
        take(left_hosts.pop(), left_devices.pop())
    found = [_checked(hosts[host], devices[device], fit(host, device)) for host, device in pairs]
    found += [Pair(hosts[at][1], hosts[at][0], None) for at in sorted(left_hosts)]
    return found + [Pair(devices[at][1], None, devices[at][0]) for at in sorted(left_devices)]


def _by_rank(hosts: Sequence[Told], devices: Sequence[ToldDevice]) -> list[tuple[int, int]]:
    by_number = {number: at for at, (_, number) in enumerate(devices) if number is not None}
    return [(at, by_number[number]) for at, (_, number) in enumerate(hosts) if number in by_number]


def _may(host: Told, device: ToldDevice) -> bool:
    """Whether the process ids leave it open that the two belong together; comparing content takes long."""
    return host[0].pid < 0 or device[0].pid < 0 or host[0].pid == device[0].pid


def _checked(host: Told, device: ToldDevice, joined: Joined) -> Pair:
    number = host[1] if device[1] is None else device[1]
    if joined.share >= LEAST_SHARE:
        return Pair(number, host[0], device[0], joined)
    refused = ""
    if not _may(host, device):
        refused = f"process {host[0].pid} in one, {device[0].pid} in the other, and {joined.why}"
    elif alike(host[0], device[0]) < _ALIKE:
        refused = f"only {alike(host[0], device[0]):.0%} of the operators occur in both, and {joined.why}"
    return Pair(number, host[0], device[0], joined, refused)


def alike(host: HostTrace, device: DeviceTrace) -> float:
    """Return how many operator names, each as often as it occurs, two traces share, of the shorter one."""
    roots = host.roots.tolist()
    ours = Counter(name for name, root in zip(host.names, roots, strict=True) if not root)
    theirs = Counter(device.names[code] for code in device.name[device.is_host].tolist())
    return (ours & theirs).total() / max(min(ours.total(), theirs.total()), 1)
