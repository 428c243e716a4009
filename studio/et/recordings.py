"""Tell recordings of programs that ran by themselves from the ranks of a job.

A PyTorch program on one GPU says nothing of a rank, and each of its recordings is a file: of one run after another, of one
step after another. Files of ranks that say no rank either communicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from studio.et.halves import Half
from studio.et.heads import Span, read_rocpd_span, read_span
from studio.et.rank_names import says_rank
from studio.et.source import read_head

_SPANS = {"kineto": read_span, "rocprof": read_span, "rocpd": read_rocpd_span, "nsight": read_rocpd_span}
"""What says of the formats in which communication can be searched for whether there is any."""
_LOOKED_AT_BYTES = 1 << 24
"""How much of a file is searched for communication, and for its times."""


def separate_recordings(job: Sequence[Half]) -> list[list[Half]]:
    """Take apart device traces of which none says a rank or communicates, as far as is seen; each with its host trace.

    Ranks in names count, unless two of the files are of one process, the second begun when the first had ended.
    """
    devices = [half for half in job if not half.is_host]
    hosts = _match_hosts(job, devices)
    if len(devices) < 2 or hosts is None or not all(map(_may_be_alone, devices)):
        return [list(job)]
    numbered = all(half.number is not None for half in devices)
    pids = [half.card.pid for half in devices if half.card.pid is not None]
    # Looked at first: there may be thousands of files, of which megabytes would be read.
    if numbered and len(set(pids)) == len(pids):
        return [list(job)]
    spans = _read_spans(devices)
    if spans is None or (numbered and not _take_turns(spans)):
        return [list(job)]
    return [
        [replace(half, number=None) for half in (*hosts.get(device.file.name, ()), device)]
        for device in devices
    ]


def _may_be_alone(half: Half) -> bool:
    """Whether neither a device trace nor a word in its name says that it is a rank of a job."""
    named = half.number is not None and says_rank(half.file.name)
    return half.fmt.name in _SPANS and half.card.rank is None and half.card.world is None and not named


def _match_hosts(job: Sequence[Half], devices: Sequence[Half]) -> dict[str, list[Half]] | None:
    """Return the host trace of each device trace that has one, by its name; None where processes do not tell which it is."""
    matched: dict[str, list[Half]] = {}
    for host in job:
        if not host.is_host:
            continue
        own = [device for device in devices if host.card.pid is not None and device.card.pid == host.card.pid]
        if len(own) != 1 or own[0].file.name in matched:
            return None
        matched[own[0].file.name] = [host]
    return matched


def _read_spans(devices: Sequence[Half]) -> list[Span] | None:
    """Return what is seen of processes and times, None where one communicates."""
    spans = []
    for device in devices:
        span = _SPANS[device.fmt.name](read_head(device.file, _LOOKED_AT_BYTES))
        if span.communicates:
            return None
        spans.append(span)
    return spans


def _take_turns(spans: Sequence[Span]) -> bool:
    """Whether one process wrote two of the files, one after another; processes of containers have equal ids at one time."""
    timed = sorted(
        (span.pid, span.begin_us, span.end_us)
        for span in spans
        if span.pid is not None and span.begin_us is not None and span.end_us is not None
    )
    return any(first[0] == second[0] and first[2] < second[1] for first, second in pairwise(timed))
