"""A case for each fault that the Doctor knows: the smallest job in which its check, and no other, finds something.

The rows are called as the checks are. A new check needs a row here, which a test asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from studio.et.records import NodeRecord
from studio.generation.cases.parts import (
    US,
    Case,
    CaseJob,
    Sizes,
    build_attribute,
    build_collective,
    build_compute,
    build_node,
    build_receive,
    build_send,
)
from studio.trace import CollectiveType, NodeType

_AHEAD_NS = 1_000_000
_AR, _AG = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER


def _build_ranks(
    sizes: Sizes, nodes: Callable[[int], Sequence[NodeRecord]], least: int = 2
) -> dict[int, Sequence[NodeRecord]]:
    """Return the nodes of each rank, of which there are two at least."""
    return {rank: nodes(rank) for rank in range(max(sizes.npus, least))}


def _enclose_nodes(sizes: Sizes, middle: Iterable[NodeRecord]) -> list[NodeRecord]:
    """Return nodes between two compute nodes: the first has id 1, the last waits for all of them."""
    between = list(middle)
    return [build_compute(sizes, 1), *between, build_compute(sizes, 100, *(node.id for node in between))]


def _build_plain(sizes: Sizes, *nodes: NodeRecord) -> CaseJob:
    """Return a job in which every rank has the same nodes."""
    return CaseJob(_build_ranks(sizes, lambda _rank: nodes))


def _build_missing_rank(sizes: Sizes) -> CaseJob:
    count = max(sizes.npus, 2)
    nodes = _enclose_nodes(sizes, [build_collective(sizes, 2, _AR, 1, pg_name="all")])
    return CaseJob({rank: nodes for rank in range(count + 1) if rank != 1}, {"all": range(count + 1)})


def _build_pairs(
    sizes: Sizes, half: Callable[[int, int], Sequence[NodeRecord]], other: Sequence[NodeRecord]
) -> CaseJob:
    """Return a job in which ranks 0 and 1 have nodes made from their number and that of the other, all others the same."""
    return CaseJob(_build_ranks(sizes, lambda rank: half(rank, 1 - rank) if rank < 2 else other))


def _build_one_sided(sizes: Sizes, odd: NodeRecord) -> CaseJob:
    """Return a job in which rank 0 has a message of its own besides those that match."""

    def build_nodes(rank: int) -> list[NodeRecord]:
        peer = 1 - rank
        messages = _enclose_nodes(
            sizes, [build_send(sizes, 2, peer, 1), build_receive(sizes, 3, peer, 1)] if rank < 2 else []
        )
        return [*messages, odd, build_compute(sizes, 101, 100, odd.id)] if rank == 0 else messages

    return CaseJob(_build_ranks(sizes, build_nodes))


def _build_grouped(sizes: Sizes, groups: Mapping[str, Sequence[int]] | None) -> CaseJob:
    nodes = _enclose_nodes(sizes, [build_collective(sizes, 2, _AR, 1, pg_name="tp0")])
    return CaseJob(_build_ranks(sizes, lambda _rank: nodes, least=3), groups or {})


def _build_disagreement(sizes: Sizes) -> CaseJob:
    return CaseJob(
        _build_ranks(
            sizes,
            lambda rank: _enclose_nodes(sizes, [build_collective(sizes, 2, _AG if rank == 0 else _AR, 1)]),
        )
    )


def _build_hang(sizes: Sizes) -> CaseJob:
    """Return what flight recorders dump when rank 0 waits in a collective that no other rank began."""

    def build_nodes(rank: int) -> list[NodeRecord]:
        states = ["completed", "completed", *(["started"] if rank == 0 else [])]
        return [
            build_collective(sizes, number, _AR, comm_seq=number, flight_state=state)
            for number, state in enumerate(states, 1)
        ]

    return CaseJob(_build_ranks(sizes, build_nodes))


def _build_deadlock(sizes: Sizes) -> CaseJob:
    return _build_pairs(
        sizes,
        lambda _rank, peer: [
            build_receive(sizes, 1, peer),
            build_send(sizes, 2, peer, 1),
            build_compute(sizes, 3, 1, 2),
        ],
        [build_compute(sizes, 1)],
    )


def _build_units(sizes: Sizes) -> CaseJob:
    def build_nodes(rank: int) -> list[NodeRecord]:
        factor = 1000 if rank == 0 else 1
        times = [max(sizes.runtime_us, 1) * US * factor * part for part in (5, 7)]
        return [
            build_compute(sizes, 1, duration_ns=times[0], name="matmul"),
            build_collective(sizes, 2, _AR, 1),
            build_compute(sizes, 3, 2, duration_ns=times[1], name="add"),
        ]

    return CaseJob(_build_ranks(sizes, build_nodes, least=3))


def _build_uneven(sizes: Sizes) -> CaseJob:
    unit = max(sizes.comm_bytes, 1)
    return CaseJob(
        _build_ranks(
            sizes,
            lambda rank: _enclose_nodes(
                sizes, [build_collective(sizes, 2, CollectiveType.ALL_TO_ALL, 1, size=unit * (rank % 8 + 1))]
            ),
        )
    )


def _build_streams(sizes: Sizes) -> CaseJob:
    calls = [build_compute(sizes, n, *([n - 1] if n > 1 else []), is_cpu_op=True) for n in (1, 2, 3)]
    kernels = [build_compute(sizes, 10 + n, n, stream=7) for n in (1, 2, 3)]
    return _build_plain(sizes, *calls, *kernels)


def _build_clocks(sizes: Sizes) -> CaseJob:
    runtime_ns = max(sizes.runtime_us, 1) * US

    def build_nodes(rank: int) -> list[NodeRecord]:
        begin_ns = _AHEAD_NS * (rank == 0)
        records = []
        for number in range(1, 9, 2):
            start_ns = begin_ns + number * 10 * runtime_ns
            waits = [number - 1] if number > 1 else []
            records.append(build_compute(sizes, number, *waits, start_ns=start_ns))
            ar = build_collective(sizes, number + 1, _AR, number, start_ns=start_ns + runtime_ns)
            ar.duration_ns = runtime_ns
            records.append(ar)
        return [*records, build_compute(sizes, 9, 8, start_ns=begin_ns + 100 * runtime_ns)]

    return CaseJob(_build_ranks(sizes, build_nodes))


def _build_borders(sizes: Sizes) -> CaseJob:
    """Return recordings of one machine, of four collectives in a row, of which rank 0 has all but the last and the others all but the first."""
    runtime_ns = max(sizes.runtime_us, 1) * US
    apart_ns = 20 * max(runtime_ns, _AHEAD_NS)

    def build_nodes(rank: int) -> list[NodeRecord]:
        own = range(3) if rank == 0 else range(1, 4)
        records = []
        for number in own:
            waits = [number] if number > own[0] else []
            ar = build_collective(
                sizes, number + 1, _AR, *waits, start_ns=(1 + number) * apart_ns, comm_seq=number
            )
            ar.duration_ns = runtime_ns
            records.append(ar)
        return records

    return CaseJob(_build_ranks(sizes, build_nodes), metadata=[build_attribute("clock_host", "machine")])


def _build_recorded(
    sizes: Sizes, begin_ns: Callable[[int], int], late_ns: Callable[[int], int] = lambda _rank: 0
) -> CaseJob:
    """Return recordings of one machine: when each rank began, and how much later it came to its collective."""
    runtime_ns = max(sizes.runtime_us, 1) * US

    def build_nodes(rank: int) -> list[NodeRecord]:
        begin = 10 * runtime_ns + begin_ns(rank)
        started = begin + 10 * runtime_ns + late_ns(rank)
        ar = build_collective(sizes, 2, _AR, 1, start_ns=started)
        ar.duration_ns = runtime_ns
        last = build_compute(sizes, 3, 2, start_ns=started + 10 * runtime_ns)
        return [build_compute(sizes, 1, start_ns=begin), ar, last]

    return CaseJob(_build_ranks(sizes, build_nodes), metadata=[build_attribute("clock_host", "machine")])


def _build_early(sizes: Sizes) -> CaseJob:
    """Return recordings of two steps, the second of which rank 0 lacks."""
    job = _build_recorded(sizes, lambda _rank: 0)
    second_ns = 1000 * max(sizes.runtime_us, 1) * US + 100 * _AHEAD_NS
    by_rank = {}
    for rank, nodes in job.ranks.items():
        last = build_compute(sizes, 4, 3, name="step1.add", start_ns=second_ns)
        nodes[0].name = "step0.matmul"
        by_rank[rank] = [*nodes, *([last] if rank else [])]
    return CaseJob(by_rank, metadata=job.metadata)


_TABLE: Mapping[str, tuple[str, Callable[[Sizes], CaseJob]]] = {
    "hang": ("Rank 0 waits in a collective that no other rank began.", _build_hang),
    "mixed-runs": (
        "Rank 0 was recorded before the others, on one machine.",
        lambda s: _build_recorded(
            s, lambda rank: (100 * max(s.runtime_us, 1) * US + 1000 * _AHEAD_NS) * (rank > 0)
        ),
    ),
    "missing-rank": ("The file of rank 1 is not there.", _build_missing_rank),
    "dangling": (
        "A node waits for one that is not there.",
        lambda s: _build_plain(s, build_compute(s, 1), build_compute(s, 2, 1, 99)),
    ),
    "self-loop": (
        "A node waits for itself.",
        lambda s: _build_plain(s, build_compute(s, 1), build_compute(s, 2, 1, 2)),
    ),
    "cycle": (
        "Three nodes wait for each other.",
        lambda s: _build_plain(
            s, build_compute(s, 1, 3), build_compute(s, 2, 1), build_compute(s, 3, 2), build_compute(s, 4, 3)
        ),
    ),
    "duplicate-id": (
        "Two nodes have one id.",
        lambda s: _build_plain(s, build_compute(s, 1), build_compute(s, 1), build_compute(s, 2, 1)),
    ),
    "collectives-disagree": ("Rank 0 gathers where the others reduce.", _build_disagreement),
    "border-collectives": (
        "Rank 0 was recorded from the first collective to the third, the others from the second to the fourth.",
        _build_borders,
    ),
    "deadlock": ("Two ranks receive from each other before they send.", _build_deadlock),
    "group-outsider": (
        "Rank 2 takes part in a group that it is not in.",
        lambda s: _build_grouped(s, {"tp0": [rank for rank in range(max(s.npus, 3)) if rank != 2]}),
    ),
    "receive-unmatched": (
        "Rank 0 waits for a message that nobody sends.",
        lambda s: _build_one_sided(s, build_receive(s, 50, 1, 100, tag=9)),
    ),
    "self-message": (
        "Rank 0 sends to itself.",
        lambda s: CaseJob(
            _build_ranks(
                s,
                lambda rank: _enclose_nodes(
                    s, [build_send(s, 2, 0, 1), build_receive(s, 3, 0, 1)] if rank == 0 else []
                ),
            )
        ),
    ),
    "peer-missing": (
        "A send does not say where to.",
        lambda s: _build_one_sided(
            s,
            build_node(
                50, NodeType.COMM_SEND, 100, is_cpu_op=False, comm_size=max(s.tensor_bytes, 1), comm_tag=9
            ),
        ),
    ),
    "peer-outside": (
        "Rank 0 sends to a rank beyond the last.",
        lambda s: _build_one_sided(s, build_send(s, 50, max(s.npus, 2), 100)),
    ),
    "foreign-message": (
        "A send of rank 0 names rank 1 as its source.",
        lambda s: CaseJob(
            _build_ranks(
                s,
                lambda rank: _enclose_nodes(
                    s,
                    [build_send(s, 2, 2, 1, comm_src=1)]
                    if rank == 0
                    else [build_receive(s, 2, 1, 1)]
                    if rank == 2
                    else [],
                ),
                least=3,
            )
        ),
    ),
    "type-unknown": (
        "A node has a type that Chakra does not define.",
        lambda s: _build_plain(s, *_enclose_nodes(s, [replace(build_node(2, NodeType.COMP, 1), type=99)])),
    ),
    "comm-untyped": (
        "A collective does not say of which type it is.",
        lambda s: _build_plain(
            s,
            *_enclose_nodes(
                s, [build_node(2, NodeType.COMM_COLL, 1, is_cpu_op=False, comm_size=max(s.comm_bytes, 1))]
            ),
        ),
    ),
    "size-missing": (
        "A collective does not say how large it is.",
        lambda s: _build_plain(
            s, *_enclose_nodes(s, [build_node(2, NodeType.COMM_COLL, 1, is_cpu_op=False, comm_type=int(_AR))])
        ),
    ),
    "size-negative": (
        "A collective has a negative size.",
        lambda s: _build_plain(
            s, *_enclose_nodes(s, [build_collective(s, 2, _AR, 1, size=-max(s.comm_bytes, 1))])
        ),
    ),
    "comm-on-cpu": (
        "A collective is marked as work of the processor.",
        lambda s: _build_plain(s, *_enclose_nodes(s, [build_collective(s, 2, _AR, 1, is_cpu_op=True)])),
    ),
    "comm-call": (
        "A call of a collective, on the processor, has the type of a collective.",
        lambda s: _build_plain(s, *_enclose_nodes(s, [build_node(2, NodeType.COMM_COLL, 1, is_cpu_op=True)])),
    ),
    "ends-early": ("The recording of rank 0 stops after the first of two steps.", _build_early),
    "times-contradict": (
        "A collective has ended on all ranks but rank 0 when that begins it, by one clock.",
        lambda s: _build_recorded(
            s, lambda _rank: 0, lambda rank: (2 * max(s.runtime_us, 1) * US + 2 * _AHEAD_NS) * (rank == 0)
        ),
    ),
    "unlinked": (
        "An operator has no event in the device trace.",
        lambda s: CaseJob(
            _build_ranks(s, lambda _rank: [build_compute(s, 1), build_compute(s, 2, 1, unlinked=True)]),
            metadata=[build_attribute("link_host_operations", 2), build_attribute("link_linked", 1)],
        ),
    ),
    "duration-missing": (
        "A compute node has no duration.",
        lambda s: _build_plain(s, build_compute(s, 1), build_node(2, NodeType.COMP, 1, is_cpu_op=False)),
    ),
    "duration-units": ("Durations of rank 0 are a thousand times those of the others.", _build_units),
    "size-zero": (
        "A collective moves nothing.",
        lambda s: _build_plain(s, *_enclose_nodes(s, [build_collective(s, 2, _AR, 1, size=0)])),
    ),
    "uneven-all-to-all": ("Ranks bring different sizes to an all-to-all.", _build_uneven),
    "send-unmatched": (
        "Rank 0 sends a message that nobody receives.",
        lambda s: _build_one_sided(s, build_send(s, 50, 1, 100, tag=9)),
    ),
    "group-unlisted": ("Nodes name a comm group that no file lists.", lambda s: _build_grouped(s, None)),
    "stream-order": ("Kernels of one stream wait for their calls alone.", _build_streams),
    "comm-detached": (
        "A collective waits for nothing, and nothing waits for it.",
        lambda s: _build_plain(s, build_compute(s, 1), build_collective(s, 2, _AR), build_compute(s, 3, 1)),
    ),
    "clock-skew": ("The clock of rank 0 is a millisecond ahead.", _build_clocks),
    "comm-trailing": (
        "No computation waits for communication.",
        lambda s: _build_plain(
            s, build_compute(s, 1), build_compute(s, 2, 1), build_collective(s, 3, _AR, 2)
        ),
    ),
    "duration-estimated": (
        "A compute node has operations and bytes, and no duration.",
        lambda s: _build_plain(
            s,
            build_node(
                1, NodeType.COMP, is_cpu_op=False, num_ops=1_000_000, tensor_size=max(s.tensor_bytes, 1)
            ),
        ),
    ),
    "forward": (
        "A node waits for one that stands later in its file.",
        lambda s: _build_plain(s, build_compute(s, 1, 2), build_compute(s, 2)),
    ),
}
"""What each shows, and its job, by code of the check."""

FAULTS: tuple[Case, ...] = tuple(
    Case(f"fault_{code}", "fault", shows, make) for code, (shows, make) in _TABLE.items()
)
