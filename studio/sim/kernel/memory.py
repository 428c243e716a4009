"""Remote memory (SEMANTICS.md, section 9): requests, one at a time where ranks share it."""

from __future__ import annotations

from studio.sim.kernel.clock import alloc, release
from studio.sim.kernel.order import later
from studio.sim.kernel.records import Action, Pool, Rank, Waiting


def request_memory(m, rank, pos):
    """Start a node's request of remote memory, or let it wait for those before it."""
    pool = m[rank + Rank.MEMORY]
    if pool == 0:
        later(m, rank, m[m[rank + Rank.TIMES] + pos], Action.NODE, 0, pos)
    elif m[pool + Pool.BUSY] == 0:
        m[pool + Pool.BUSY] = 1
        later(m, rank, m[m[rank + Rank.TIMES] + pos], Action.MEMORY, 0, pos)
    else:
        r = alloc(m)
        m[r + Waiting.NEXT] = 0
        m[r + Waiting.RANK] = rank
        m[r + Waiting.NODE] = pos
        if m[pool + Pool.FIRST] == 0:
            m[pool + Pool.FIRST] = r
        else:
            m[m[pool + Pool.LAST] + Waiting.NEXT] = r
        m[pool + Pool.LAST] = r


def start_next_request(m, pool):
    """Start the next request of a memory that ranks share."""
    r = m[pool + Pool.FIRST]
    if r == 0:
        m[pool + Pool.BUSY] = 0
        return
    m[pool + Pool.FIRST] = m[r + Waiting.NEXT]
    other = m[r + Waiting.RANK]
    at = m[r + Waiting.NODE]
    release(m, r)
    later(m, other, m[m[other + Rank.TIMES] + at], Action.MEMORY, 0, at)
