"""Notes of memory on the nodes of a generated job, as a profiler would write them: what a rank holds over a step.

What `memory.py` counts is taken when a unit's forward pass is over, and given back when its backward pass is. A timeline so has
memory as a counter, and the peak that is simulated is the one that closed forms give.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from studio.generation.program import Program

_DEVICE = 0


@dataclass(slots=True)
class MemoryNotes:
    """Notes allocations on the last compute node of a program.

    Attributes:
        program: Whose nodes they are.
        held: Bytes held so far; at first what does not change over a step.
        blocks: Address and bytes of what is held, by what it is of.
        known: Addresses given out so far.
    """

    program: Program
    held: int
    blocks: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    known: int = 0

    def take(self, what: Hashable, size: int) -> None:
        """Note that something is held from now on; nothing where it has no bytes."""
        if size:
            self.known += 1
            self.blocks[what] = self.known, size
            self._note(self.known, size)

    def give(self, what: Hashable) -> None:
        """Note that something is held no longer."""
        if what in self.blocks:
            address, size = self.blocks.pop(what)
            self._note(address, -size)

    def _note(self, address: int, size: int) -> None:
        self.held += size
        attrs = self.program.nodes[self.program.last["compute"] - 1]["attrs"]
        # The allocator's reserve is not known.
        event = {
            "ns": 0,
            "bytes": size,
            "device": _DEVICE,
            "address": address,
            "total": self.held,
            "reserved": -1,
        }
        for key, value in event.items():
            attrs.setdefault(f"memory_{key}", []).append(value)
