"""Read and write the communicator-group JSON beside a job's traces: `{"<name>": [rank, …], …}`."""

from __future__ import annotations

import json
import re

import msgspec

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et.format import GroupsPart, Part, Reading
from studio.trace import CommGroup, Finding, Trace
from studio.units import format_counted

_HEAD = re.compile(rb'\s*\{\s*(\}\s*$|"(?:[^"\\]|\\.)*"\s*:\s*\[\s*(-?\d|"\d+"|\]|$))')
_LARGEST_RANK = 2**31 - 1


def sniff(head: bytes) -> bool:
    """Whether `head` starts an object of lists of numbers, or of texts that are numbers, which `read` refuses."""
    return _HEAD.match(head) is not None


_groups = build_decoder(dict[str, list[int]])


def read(reading: Reading) -> list[Part]:
    """Read comm groups, in the order of the file.

    Raises:
        TraceFormatError: It is no JSON, or no object of lists of rank numbers.
    """
    try:
        table = _groups(bytes(reading.data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceFormatError(
            f"{reading.name}: not a comm group file: {error}.",
            hint='Expected one JSON object from group name to rank numbers, such as {"tp0": [0, 1], "tp1": [2, 3]}.',
        ) from error
    groups, findings = [], list(reading.findings)
    for name, ranks in table.items():
        bad = [rank for rank in ranks if not 0 <= rank <= _LARGEST_RANK]
        if bad:
            raise TraceFormatError(
                f"{reading.name}: group {name!r} has rank {bad[0]}; ranks are whole numbers from 0.",
                hint="Correct the list, or take the group out.",
            )
        distinct = tuple(dict.fromkeys(ranks))
        if len(distinct) < len(ranks):
            message = f"{reading.name}: group {name!r} names {format_counted(len(ranks) - len(distinct), 'rank')} more than once."
            findings.append(
                Finding("warning", "group-repeats", message, "Repeats were left out.", file=reading.name)
            )
        groups.append(CommGroup(name, distinct))
    return [GroupsPart(tuple(groups), tuple(findings))]


def collect_listed_groups(trace: Trace) -> dict[str, list[int]]:
    """Return the comm groups of a job that a file lists, without inferred ones."""
    return {group.name: list(group.ranks) for group in trace.groups if not group.inferred}


def write(trace: Trace) -> str:
    """Return the comm group file of a job, see `collect_listed_groups`."""
    return json.dumps(collect_listed_groups(trace))
