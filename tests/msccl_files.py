"""Algorithms as MSCCL writes them in XML, made by hand from its public form (microsoft/msccl, microsoft/msccl-tools)."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[str, int, int, int]
"""What a step does, the chunks it reads and writes, and how many."""


def step(
    number: int,
    what: str,
    source: tuple[str, int],
    target: tuple[str, int],
    count: int = 1,
    depends: tuple[int, int] = (-1, -1),
) -> str:
    """One step."""
    return (
        f'      <step s="{number}" type="{what}" srcbuf="{source[0]}" srcoff="{source[1]}" dstbuf="{target[0]}" '
        f'dstoff="{target[1]}" cnt="{count}" depid="{depends[0]}" deps="{depends[1]}" hasdep="0"/>\n'
    )


def block(number: int, send: int, receive: int, steps: Sequence[str], channel: int = 0) -> str:
    """One thread block."""
    return (
        f'    <tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">\n{"".join(steps)}    </tb>\n'
    )


def algorithm(
    collective: str, gpus: Sequence[str], sizes: tuple[int, int, int], *, inplace: int = 0, name: str = "mine"
) -> bytes:
    """A file of GPUs, each given by its thread blocks."""
    inner = "".join(
        f'  <gpu id="{number}" i_chunks="{sizes[0]}" o_chunks="{sizes[1]}" s_chunks="{sizes[2]}">\n{blocks}  </gpu>\n'
        for number, blocks in enumerate(gpus)
    )
    loop = max(sizes[:2])
    return (
        f'<algo name="{name}" proto="Simple" nchannels="1" nchunksperloop="{loop}" ngpus="{len(gpus)}" coll="{collective}" '
        f'inplace="{inplace}">\n{inner}</algo>\n'
    ).encode()


def ring_all_reduce(gpus: int) -> bytes:
    """The ring in one thread block: n - 1 steps that add, then n - 1 that pass the sums on; in place."""
    made = []
    for rank in range(gpus):
        chunk = lambda back, rank=rank: ("i", (rank - back) % gpus)  # noqa: E731
        steps = [step(0, "s", chunk(0), chunk(0))]
        kinds = ["rrs"] * (gpus - 2) + ["rrcs"] + ["rcs"] * (gpus - 2) + ["r"]
        steps += [step(back, what, chunk(back), chunk(back)) for back, what in enumerate(kinds, 1)]
        made.append(block(0, (rank + 1) % gpus, (rank - 1) % gpus, steps))
    return algorithm("allreduce", made, (gpus, 0, 0), inplace=1, name="ring")


def all_pairs_all_gather(gpus: int) -> bytes:
    """Everybody sends to everybody, a thread block each; the own chunk is copied."""
    made = []
    for rank in range(gpus):
        blocks = [block(0, -1, -1, [step(0, "cpy", ("i", 0), ("o", rank))])]
        for number, peer in enumerate((other for other in range(gpus) if other != rank), 1):
            blocks.append(
                block(
                    number,
                    peer,
                    peer,
                    [step(0, "s", ("i", 0), ("o", rank)), step(1, "r", ("i", 0), ("o", peer))],
                )
            )
        made.append("".join(blocks))
    return algorithm("allgather", made, (1, gpus, 0), name="all pairs")


def direct_reduce_scatter(gpus: int) -> bytes:
    """Everybody sends its part to everybody through scratch; one block adds them once the others have received."""
    made = []
    for rank in range(gpus):
        peers = [other for other in range(gpus) if other != rank]
        blocks = [
            block(
                number,
                peer,
                peer,
                [step(0, "s", ("i", peer), ("s", rank)), step(1, "r", ("i", rank), ("s", peer))],
            )
            for number, peer in enumerate(peers)
        ]
        steps = [step(0, "cpy", ("i", rank), ("o", 0))]
        steps += [
            step(number, "re", ("s", peer), ("o", 0), depends=(number - 1, 1))
            for number, peer in enumerate(peers, 1)
        ]
        made.append("".join([*blocks, block(len(peers), -1, -1, steps)]))
    return algorithm("reduce_scatter", made, (gpus, 1, gpus), name="direct")


def direct_all_to_all(gpus: int) -> bytes:
    """Everybody sends to everybody."""
    made = []
    for rank in range(gpus):
        blocks = [block(0, -1, -1, [step(0, "cpy", ("i", rank), ("o", rank))])]
        for number, peer in enumerate((other for other in range(gpus) if other != rank), 1):
            steps = [step(0, "s", ("i", peer), ("o", rank)), step(1, "r", ("i", rank), ("o", peer))]
            blocks.append(block(number, peer, peer, steps))
        made.append("".join(blocks))
    return algorithm("alltoall", made, (gpus, gpus, 0), name="direct")
