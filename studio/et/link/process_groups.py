"""The process groups that execution traces and Kineto traces list, and the nodes that do so."""

from __future__ import annotations

import json
import re
from typing import Any

from studio.et.kineto_head import parse_ranks
from studio.et.link.literals import parse_literal, read_count
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace, Group, HostTrace, is_root
from studio.trace import STEP

INIT = "process_group:init"
_MARK = re.compile(rf"{INIT}|{STEP}")


def is_timeless(name: str) -> bool:
    """Whether a node of a PyTorch trace is of a kind that has no time.

    Operators hang below nodes that stand for the process and its threads; other nodes mark process groups and steps.
    """
    return is_root(name) or _MARK.search(name) is not None


def read_groups(
    operations: Operations, host: HostTrace | None, device: DeviceTrace | None
) -> dict[str, Group]:
    """Return the process groups that a rank's files list, by name."""
    by_name = {group.name: group for group in device.head.groups} if device is not None else {}
    if host is None:
        return by_name
    for row in operations.find_named(lambda name: INIT in name).tolist():
        values = parse_literal(host.texts[int(host.io[row, 0])])
        for text in values if isinstance(values, list) else ():
            for group in _parse_groups(text):
                known = by_name.get(group.name)
                if known is None or not known.ranks:
                    by_name[group.name] = group
    return by_name


def _parse_groups(text: Any) -> list[Group]:
    try:
        entries = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return []
    groups = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and "pg_name" in entry:
            size, listed = read_count(entry.get("group_size")), entry.get("ranks")
            ranks = parse_ranks(listed, size)
            if not ranks and 0 < size <= 1 << 20 and not isinstance(listed, str):
                ranks = tuple(range(size))
            groups.append(Group(str(entry["pg_name"]), str(entry.get("pg_desc", "")), ranks, size))
    return groups
