"""Dependencies as they are collected, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from studio.et.link.dep_kinds import DepKind
from studio.trace import Int32, Int64


@dataclass(slots=True)
class Dependencies:
    """Dependencies collected so far, by rows: N operations, then gaps, then device operations."""

    sources: list[Int64] = field(default_factory=list)
    targets: list[Int64] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)

    def add(self, source: Int64, target: Int64, kind: DepKind) -> None:
        """Add dependencies of one reason: the rows `target` wait for the rows `source`."""
        self.sources.append(np.asarray(source, np.int64))
        self.targets.append(np.asarray(target, np.int64))
        self.kinds.append(int(kind))


def select_dependencies(
    draft: Dependencies, order: Int64, wanted: DepKind
) -> tuple[Int64, Int64, Int32, dict[str, int]]:
    """Return the wanted dependencies, each pair once with all its reasons, none pointing forward."""
    empty = np.zeros(0, np.int64)
    source = np.concatenate([empty, *draft.sources])
    target = np.concatenate([empty, *draft.targets])
    kind = np.repeat(np.array(draft.kinds, np.int64), [len(part) for part in draft.sources])
    keep = (kind & int(wanted)) != 0
    forward = order[source] >= order[target]
    left_out = kind[forward & keep]
    dropped = {reason.name.lower(): int((left_out == reason).sum()) for reason in DepKind if reason.name}
    keep &= ~forward
    source, target, kind = source[keep], target[keep], kind[keep]
    key = target * len(order) + source
    sort = np.argsort(key, kind="stable")
    key, kind = key[sort], kind[sort]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else empty
    kinds = np.bitwise_or.reduceat(kind, first) if len(first) else empty
    return (
        key[first] % len(order),
        key[first] // len(order),
        kinds.astype(np.int32),
        {name: number for name, number in dropped.items() if number},
    )
