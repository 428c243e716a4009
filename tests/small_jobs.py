"""Small jobs, for tests and for the processes that tests start."""

from __future__ import annotations

from studio.et import chakra
from studio.et.format import RankPart, Reading
from studio.trace import CommGroup, Rank, Trace
from tests.et.chakra_bytes import attr, file_of, num, sized


def rank_file(nodes: int = 3, name: str = "matmul") -> bytes:
    """A Chakra file of compute nodes that name the comm group "tp"."""
    return file_of(
        *(
            num(1, i) + sized(2, name) + num(3, 4) + attr("pg_name", sized(29, "tp"))
            for i in range(1, nodes + 1)
        )
    )


def some(nodes: int = 3, name: str = "matmul") -> Trace:
    """A trace of two ranks that share a graph."""
    [part] = chakra.read(Reading("job.0.et", rank_file(nodes, name)))
    assert isinstance(part, RankPart)
    ranks = tuple(Rank(n, 0, part.rank.slots, part.rank.version, file=f"job.{n}.et") for n in (0, 3))
    return Trace((part.graph,), ranks, (CommGroup("tp", (3, 0)),))
