"""What a Kineto trace says of its recording: rank, world, comm groups, host and devices."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from studio.et.kineto_events import Content
from studio.et.kineto_times import LONGEST_NS
from studio.et.pytorch import parse_integers
from studio.et.recording import Group, Head, NotedCall
from studio.trace import NONE

_LARGEST_RANK = 2**31 - 1
_MOST_RANKS = 1 << 20


def build_head(content: Content, base_ns: int | None) -> Head:
    """Return what a trace says of its recording."""
    info = content.distributed if isinstance(content.distributed, dict) else {}
    listed = info.get("pg_config")
    groups = (
        [_parse_group(entry) for entry in listed if isinstance(entry, dict)]
        if isinstance(listed, list)
        else []
    )
    devices = content.devices if isinstance(content.devices, list) else []
    rank = parse_whole(info.get("rank"))
    return Head(
        rank=rank if rank is not None and 0 <= rank <= _LARGEST_RANK else None,
        world_size=parse_whole(info.get("world_size")),
        backend=str(info.get("backend") or ""),
        host=content.host if isinstance(content.host, str) else "",
        base_ns=base_ns,
        groups=tuple(groups),
        devices=tuple(str(entry.get("name", "")) for entry in devices if isinstance(entry, dict)),
        calls=_parse_noted_calls(content.calls) if base_ns is not None else (),
        has_stacks=content.stacks in (1, True),
    )


def _parse_noted_calls(value: Any) -> tuple[NotedCall, ...]:
    """Return what `studio.collect` wrote of each call; without what is no such entry."""
    calls = []
    for entry in value if isinstance(value, list) else ():
        if (
            isinstance(entry, list)
            and len(entry) in (4, 5)
            and isinstance(entry[1], str)
            and isinstance(entry[3], str)
        ):
            time_ns, number = parse_whole(entry[0]), parse_whole(entry[2])
            if time_ns is not None and number is not None and 0 <= time_ns <= LONGEST_NS:
                size = parse_whole(entry[4]) if len(entry) > 4 else None
                calls.append(NotedCall(time_ns, entry[1], number, entry[3], NONE if size is None else size))
    return tuple(sorted(calls, key=lambda call: call.time_ns))


def _parse_group(entry: dict[str, Any]) -> Group:
    size = parse_whole(entry.get("pg_size"))
    ranks = parse_ranks(entry.get("ranks"), size or 0)
    return Group(str(entry.get("pg_name", "")), str(entry.get("pg_desc", "")), ranks, size or len(ranks))


def parse_ranks(value: Any, size: int = 0) -> tuple[int, ...]:
    """Return rank numbers given as a list or as text; of an abbreviated text those that are told, with the size, by an even distance.

    Args:
        value: The list, or its text.
        size: How many ranks there are, 0 where that is not known.

    Example:
        >>> parse_ranks("[0, 2]"), parse_ranks("[0, 1, ..., 7]"), parse_ranks("[0, 2, ..., 6]", 4)
        ((0, 2), (), (0, 2, 4, 6))
    """
    if isinstance(value, str):
        if len(value) >= 1 << 20:
            return ()
        return _complete_ranks(value, size) if "..." in value else _parse_rank_text(value)
    if not isinstance(value, list):
        return ()
    numbers = [parse_whole(item) for item in value]
    return tuple(number for number in numbers if number is not None and 0 <= number <= _LARGEST_RANK)


@lru_cache(maxsize=1 << 10)
def _complete_ranks(text: str, size: int) -> tuple[int, ...]:
    """Return the ranks of a text that leaves out those in its middle; none where those that are there lie at other distances."""
    begin, _, end = text.partition("...")
    first, last = _parse_rank_text(begin), _parse_rank_text(end)
    if not first or not last or not len(first) + len(last) <= size <= _MOST_RANKS:
        return ()
    distance = first[1] - first[0] if len(first) > 1 else 1
    ranks = tuple(range(first[0], first[0] + distance * size, distance)) if distance > 0 else ()
    return ranks if ranks[: len(first)] == first and ranks[-len(last) :] == last else ()


@lru_cache(maxsize=1 << 10)
def _parse_rank_text(text: str) -> tuple[int, ...]:
    """Return the rank numbers in a text, which every call for communication may repeat."""
    return parse_ranks(re.findall(r"-?[0-9]+", text))


def parse_whole(value: Any) -> int | None:
    """Return a whole number of 64 bits, also one written as a text; None for anything else."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    numbers, good = parse_integers([value])
    return int(numbers[0]) if good[0] and not isinstance(value, bool) else None
