"""Jobs with one thing wrong each: the smallest in which the check can find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from studio.trace import Attribute, Rank, Trace, ValueKind
from tests.handmade import at, collective, node, trace_of


def started(trace: Trace, *starts_ns: list[int]) -> Trace:
    """The trace with start times, one list per graph."""
    graphs = [
        replace(graph, start_ns=np.array(times, np.int64))
        for graph, times in zip(trace.graphs, starts_ns, strict=True)
    ]
    return replace(trace, graphs=tuple(graphs))


def with_metadata(trace: Trace, **values: int) -> Trace:
    """The trace with whole numbers in the metadata of every rank."""
    made = tuple(Attribute(name, ValueKind.INT64, value) for name, value in values.items())
    return replace(trace, ranks=tuple(replace(rank, metadata=made) for rank in trace.ranks))


def on_one_machine(trace: Trace, **values: int) -> Trace:
    """The trace as linking notes it down for ranks that share the clock of a machine."""
    host = Attribute("clock_host", ValueKind.STRING, "box")
    made = with_metadata(trace, clock_offset_ns=0, **values)
    return replace(trace, ranks=tuple(replace(rank, metadata=(*rank.metadata, host)) for rank in made.ranks))


def reductions(*ranks: list[tuple[int, int]]) -> Trace:
    """Ranks that reduce together: the start and length of each collective, in µs; those that start below 0 have no time.

    A start of 0 would be none in a file, so they begin 1 µs later.
    """
    return trace_of(
        [
            [
                at(start + 1, micros, one) if start >= 0 else one
                for number, (start, micros) in enumerate(times, start=1)
                for one in [collective(number, "ALL_REDUCE", 64, *([number - 1] if number > 1 else []))]
            ]
            for times in ranks
        ]
    )


def comp(number: int, *deps: int, **more: object):
    """A compute node of 5 µs."""
    return node(number, "COMP", *deps, micros=5, **more)


def healthy() -> Trace:
    """Two ranks that compute, reduce together, and compute again."""
    return trace_of([[comp(1), collective(2, "ALL_REDUCE", 64, 1), comp(3, 2)]] * 2)


def with_type(number: int) -> Trace:
    """Two nodes of a rank, of which the second has a type by its number."""
    trace = trace_of([[comp(1), comp(2, 1)]])
    graph = replace(trace.graphs[0], type=np.array([4, number], trace.graphs[0].type.dtype))
    return replace(trace, graphs=(graph,))


def kernels(*waits: tuple[int, ...]) -> Trace:
    """Three kernels of one stream behind their launches, one after another, and what they wait for besides."""
    nodes = [comp(n, *([n - 1] if n > 1 else []), is_cpu_op=True) for n in (1, 2, 3)]
    nodes += [
        comp(n, n - 10, *more, is_cpu_op=False, stream=7) for n, more in zip((11, 12, 13), waits, strict=True)
    ]
    return started(trace_of([nodes]), [0, 10, 20, 30, 60, 90])


def skewed() -> Trace:
    """Two ranks that end the same four all-reduces, the second by a clock that is 1 ms ahead."""
    ranks = [
        [collective(n, "ALL_REDUCE", 64, *([n - 1] if n > 1 else []), rank_mark=rank) for n in (1, 2, 3, 4)]
        for rank in (0, 1)
    ]
    starts = [1_000, 20_000, 40_000, 60_000]
    return started(trace_of(ranks), starts, [one + 1_000_000 for one in starts])


def _only_cpu(**values: object) -> Trace:
    comm = [collective(2, "ALL_REDUCE", 64, 1, is_cpu_op=True)]
    return trace_of([[comp(1), *comm, comp(3, 2)]])


def _send(number: int, target: int, *deps: int, tag: int = 0):
    return node(number, "COMM_SEND", *deps, comm_dst=target, comm_size=64, comm_tag=tag)


def _receive(number: int, source: int, *deps: int, tag: int = 0):
    return node(number, "COMM_RECV", *deps, comm_src=source, comm_size=64, comm_tag=tag)


BROKEN: dict[str, Callable[[], Trace]] = {
    "mixed-runs": lambda: on_one_machine(reductions([(0, 10), (20, 10)], [(9000, 10), (9020, 10)])),
    "ends-early": lambda: on_one_machine(
        reductions([(0, 10), (90_000, 10)], [(0, 10), (90_000, 10)], [(0, 10), (-1, 0)])
    ),
    "times-contradict": lambda: on_one_machine(reductions([(0, 10), (20, 10)], [(0, 10), (3000, 10)])),
    "missing-rank": lambda: trace_of({0: [comp(1)], 2: [comp(1)]}),
    "dangling": lambda: trace_of([[comp(1), comp(2, 1, 99)]]),
    "self-loop": lambda: trace_of([[comp(1), comp(2, 1, 2)]]),
    "hang": lambda: trace_of(
        [
            [
                collective(n, "ALL_REDUCE", 64, comm_seq=n, flight_state="completed" if n < 3 else "started")
                for n in count
            ]
            for count in ((1, 2, 3), (1, 2))
        ]
    ),
    "cycle": lambda: trace_of([[comp(1, 3), comp(2, 1), comp(3, 2), comp(4, 3)]]),
    "duplicate-id": lambda: trace_of([[comp(1), node(1, "COMP", micros=6), comp(2, 1)]]),
    "collectives-disagree": lambda: trace_of(
        [
            [collective(1, "ALL_REDUCE", 64, group="tp0"), collective(2, "ALL_REDUCE", 32, 1, group="tp0")],
            [collective(1, "ALL_REDUCE", 64, group="tp0"), collective(2, "ALL_GATHER", 32, 1, group="tp0")],
        ],
        {"tp0": [0, 1]},
    ),
    "border-collectives": lambda: on_one_machine(
        trace_of(
            [
                [at(1 + 20_000 * n, 5_000, collective(n + 1, "ALL_REDUCE", 64, comm_seq=n)) for n in own]
                for own in (range(3), range(1, 4))
            ]
        )
    ),
    "deadlock": lambda: trace_of([[_receive(1, 1), _send(2, 1, 1)], [_receive(1, 0), _send(2, 0, 1)]]),
    "group-outsider": lambda: trace_of([[collective(1, "ALL_REDUCE", 64, group="tp0")]] * 3, {"tp0": [0, 1]}),
    "receive-unmatched": lambda: trace_of([[comp(1), _receive(2, 1, 1), comp(3, 2)], [comp(1)]]),
    "self-message": lambda: trace_of([[_send(1, 0), _receive(2, 0, 1), comp(3, 2)]]),
    "peer-missing": lambda: trace_of(
        [
            [comp(1), node(2, "COMM_SEND", 1, comm_size=64, comm_tag=0), comp(3, 2)],
            [comp(1), _receive(2, 0, 1), comp(3, 2)],
        ]
    ),
    "peer-outside": lambda: trace_of([[comp(1), _send(2, 7, 1), comp(3, 2)], [comp(1), _receive(2, 0, 1)]]),
    "type-unknown": lambda: with_type(99),
    "foreign-message": lambda: trace_of(
        [[node(1, "COMM_SEND", comm_src=1, comm_dst=2, comm_size=8, comm_tag=0)], [comp(1)], [_receive(1, 0)]]
    ),
    "comm-untyped": lambda: trace_of([[comp(1), node(2, "COMM_COLL", 1, comm_size=64), comp(3, 2)]]),
    "size-missing": lambda: trace_of([[comp(1), node(2, "COMM_COLL", 1, comm_type=0), comp(3, 2)]]),
    "size-negative": lambda: trace_of([[comp(1), collective(2, "ALL_REDUCE", -4, 1), comp(3, 2)]]),
    "comm-on-cpu": _only_cpu,
    "comm-call": lambda: trace_of([[comp(1), node(2, "COMM_COLL", 1, is_cpu_op=True), comp(3, 2)]]),
    "unlinked": lambda: with_metadata(
        trace_of([[comp(1), comp(2, 1, unlinked=True)]]), link_host_operations=2, link_linked=1
    ),
    "duration-missing": lambda: trace_of([[comp(1), node(2, "COMP", 1)]]),
    "duration-units": lambda: trace_of(
        [
            [
                node(1, "COMP", micros=5 * factor),
                collective(2, "ALL_REDUCE", 64, 1),
                node(3, "COMP", 2, micros=7 * factor),
            ]
            for factor in (1, 1000)
        ]
    ),
    "size-zero": lambda: trace_of([[comp(1), collective(2, "ALL_REDUCE", 0, 1), comp(3, 2)]]),
    "uneven-all-to-all": lambda: trace_of(
        [[comp(1), collective(2, "ALL_TO_ALL", size, 1), comp(3, 2)] for size in (20, 28, 36, 44)]
    ),
    "send-unmatched": lambda: trace_of([[comp(1), _send(2, 1, 1), comp(3, 2)], [comp(1)]]),
    "group-unlisted": lambda: trace_of(
        [[comp(1), collective(2, "ALL_REDUCE", 64, 1, group="tp0"), comp(3, 2)]] * 2
    ),
    "stream-order": lambda: kernels((), (), (12,)),
    "comm-detached": lambda: trace_of([[comp(1), collective(2, "ALL_REDUCE", 64), comp(3, 1)]]),
    "clock-skew": skewed,
    "comm-trailing": lambda: trace_of([[comp(1), comp(2, 1), collective(3, "ALL_REDUCE", 64, 2)]]),
    "duration-estimated": lambda: trace_of([[node(1, "COMP", num_ops=10, tensor_size=8)]]),
    "forward": lambda: trace_of([[comp(1, 2), comp(2)]]),
}
"""By code of the check."""


def shared(number: int = 8) -> Trace:
    """A job of equal ranks that share one graph, each of whose nodes waits for itself."""
    trace = BROKEN["self-loop"]()
    return replace(trace, ranks=tuple(Rank(at, 0, trace.ranks[0].slots) for at in range(number)))
