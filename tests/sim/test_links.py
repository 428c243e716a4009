"""The network of the extended mode, against a second simulator, closed forms and properties."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from studio.errors import ConfigError, TraceError
from studio.sim import simulate
from studio.sim.check import check
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.extensions import Extensions, Link, LinkGraph
from studio.sim.links import link_graph
from studio.sim.topology import bound_all_reduce_ns
from tests.examples import examples
from tests.golden import case, records, trace_of_workload
from tests.kernels import compiled

KINDS = ("ring", "fully_connected", "switch")
COLLECTIVES = {"all_reduce": 0, "all_gather": 2, "reduce_scatter": 7, "all_to_all": 6}
EXTENDED = Extensions()


# ---------------------------------------------------------------------------------------------------
# The second simulator: whole messages from device to device, one after another on every link


def jobs(npus, messages):
    """A collective in which every message (source, destination, size, start in µs) is sent by itself."""
    ranks = [[{"id": 10_000, "type": "COMP_NODE"}] for _ in range(npus)]
    for at, (source, target, size, start) in enumerate(messages):
        attrs = {"comm_src": source, "comm_dst": target, "comm_size": size, "comm_tag": at}
        ranks[source] += [
            {"id": 2 * at, "type": "COMP_NODE", "duration_micros": start},
            {"id": 2 * at + 1, "type": "COMM_SEND_NODE", "data_deps": [2 * at], "attrs": attrs},
        ]
        ranks[target].append({"id": 2 * at, "type": "COMM_RECV_NODE", "attrs": attrs})
    own = trace_of_workload({"ranks": ranks}, npus)
    whole = [{"id": 0, "type": "COMM_COLL_NODE", "attrs": {"comm_type": 0, "comm_size": npus * 64}}]
    return trace_of_workload({"all_ranks": whole}, npus), own


def played(config, messages):
    trace, own = jobs(config.topology.npus, messages)
    return simulate(trace, replace(config, custom={"all_reduce": own}), native=compiled())


def expected(npus, links, route, messages):
    """Finish of every rank and, per link, bytes, messages, busy time, most waiting.

    Args:
        npus: NPUs.
        links: Bandwidth and latency by link.
        route: The links a message (source, destination) takes, each with the overhead it pays there.
        messages: Source, destination, size, start in µs.
    """
    finish = [1] * npus
    coming = []
    for at, (source, target, _, start) in enumerate(messages):
        begin = max(1000 * start, 1)
        finish[source] = max(finish[source], begin)
        coming.append((begin, at, route(source, target)))
    heapq.heapify(coming)
    free = defaultdict(int)
    carried = {link: [0, 0, 0] for link in links}
    waits = defaultdict(list)
    seen = set()
    while coming:
        now, at, way = heapq.heappop(coming)
        source, target, size, _ = messages[at]
        if not way:
            finish[source], finish[target] = max(finish[source], now), max(finish[target], now)
            continue
        (link, overhead), *rest = way
        assume((link, now) not in seen and free[link] != now)
        seen.add((link, now))
        rate, latency = links[link]
        begin = max(now, free[link])
        free[link] = begin + int(overhead + size / rate)
        waits[link].append((now, begin))
        for column, value in enumerate((size, 1, free[link] - begin)):
            carried[link][column] += value
        heapq.heappush(coming, (begin + int(latency + overhead + size / rate), at, rest))
    most = {
        link: max(sum(a <= now < b for a, b in waits[link]) for now, _ in waits[link]) if waits[link] else 0
        for link in links
    }
    return finish, {link: (*row, most[link]) for link, row in carried.items()}


def told(result):
    """The figures of the links as the second simulator gives them, parallel links added up."""
    links = result.links
    return {
        (int(links.source[at]), int(links.target[at])): tuple(
            int(column[at]) for column in (links.bytes, links.messages, links.busy_ns, links.peak_queue)
        )
        for at in range(len(links))
    }


class Product:
    """Links of a network of dimensions by (source, target), and the way of a message through it."""

    def __init__(self, topology):
        self.topology = topology
        self.npu_at = {topology.address(npu): npu for npu in range(topology.npus)}
        lines = {self.line(npu, d) for npu in range(topology.npus) for d in self.dims("switch")}
        order = sorted(lines, key=lambda line: (line[0], line[1][::-1]))
        self.switch = {line: topology.npus + at for at, line in enumerate(order)}
        self.links = {}
        for d, dim in enumerate(topology.dims):
            for npu in range(topology.npus):
                for ends in self.of(npu, d, dim):
                    self.links[ends] = (dim.bytes_per_ns * dim.efficiency, dim.latency_ns)

    def dims(self, kind):
        return [d for d, dim in enumerate(self.topology.dims) if dim.kind == kind]

    def line(self, npu, d):
        return d, tuple(x for at, x in enumerate(self.topology.address(npu)) if at != d)

    def moved(self, npu, d, x):
        address = list(self.topology.address(npu))
        address[d] = x
        return self.npu_at[tuple(address)]

    def of(self, npu, d, dim):
        """Links between an NPU and its neighbours in a dimension."""
        x = self.topology.address(npu)[d]
        if dim.kind == "switch":
            switch = self.switch[self.line(npu, d)]
            return [(npu, switch), (switch, npu)]
        near = range(dim.size) if dim.kind == "fully_connected" else ((x + 1) % dim.size, (x - 1) % dim.size)
        return [(npu, self.moved(npu, d, y)) for y in near if y != x]

    def steps(self, source, target, d, dim):
        """Devices a message passes in a dimension, without the first."""
        x, y = self.topology.address(source)[d], self.topology.address(target)[d]
        if x == y:
            return []
        if dim.kind != "ring":
            between = [self.switch[self.line(source, d)]] if dim.kind == "switch" else []
            return [*between, self.moved(source, d, y)]
        far = (y - x) % dim.size
        count, step = (far, 1) if 2 * far <= dim.size else (dim.size - far, -1)
        return [self.moved(source, d, (x + step * (at + 1)) % dim.size) for at in range(count)]

    def route(self, source, target):
        way = []
        for d, dim in enumerate(self.topology.dims):
            steps = [source, *self.steps(source, target, d, dim)]
            way += [(link, dim.message_overhead_ns * (at == 0)) for at, link in enumerate(pairwise(steps))]
            source = steps[-1]
        return way


RATES = st.sampled_from([0.37, 1.0, 3.1, 12.5])
LATENCIES = st.sampled_from([0.0, 0.6, 13.7, 211.0])
DIMENSIONS = st.builds(
    Dimension,
    st.sampled_from(KINDS),
    st.integers(2, 4),
    RATES,
    LATENCIES,
    st.sampled_from([1.0, 0.8]),
    st.sampled_from([0.0, 0.5, 77.0]),
)
TOPOLOGIES = st.lists(DIMENSIONS, min_size=1, max_size=3).map(tuple).map(Topology)


def messages_of(npus):
    pair = st.tuples(st.integers(0, npus - 1), st.integers(0, npus - 1)).filter(
        lambda ends: ends[0] != ends[1]
    )
    one = st.builds(
        lambda ends, size, start: (*ends, size, start), pair, st.integers(1, 9000), st.integers(0, 6)
    )
    return st.lists(one, min_size=1, max_size=12)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), TOPOLOGIES)
def test_messages_in_several_dimensions_wait_as_a_second_simulator_says(data, topology):
    """Every rank's finish and every link's figures, messages coming at random."""
    messages = data.draw(messages_of(topology.npus))
    product = Product(topology)
    result = played(SystemConfig(topology, "aware", extensions=EXTENDED), messages)
    finish, carried = expected(topology.npus, product.links, product.route, messages)
    assert result.finish_ns.tolist() == finish
    assert told(result) == carried


def shortest(links, npus):
    """Routing over single links, by trying all ways."""
    near = defaultdict(set)
    for source, target in links:
        near[source].add(target)

    def ways(at, to, hops):
        if at == to:
            return [()]
        return [
            (link, *rest)
            for u in sorted(near[at])
            if hops
            for link in [(at, u)]
            for rest in ways(u, to, hops - 1)
        ]

    def route(source, target):
        way, at = [], source
        for left in range(1, len(near) + 2):
            if ways(source, target, left):
                break
        else:
            return None
        while at != target:
            total = {}
            for one in ways(at, target, left):
                latency = 0.0
                for link in reversed(one):
                    latency = links[link][1] + latency
                total[one[0]] = min(latency, total.get(one[0], inf))
            equal = sorted(link for link, latency in total.items() if latency == min(total.values()))
            pick = target if left % 2 else target // len(equal)
            way.append((equal[pick % len(equal)], 0))
            at = way[-1][0][1]
            left -= 1
        return way

    return route


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(2, 5), st.integers(0, 3))
def test_messages_over_single_links_wait_as_a_second_simulator_says(data, npus, switches):
    """Any graph, links of any speed in each direction; a pair without a way is named."""
    devices = npus + switches
    pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
    chosen = data.draw(st.lists(st.sampled_from(pairs), min_size=devices, unique=True))
    links = {pair: (data.draw(RATES), data.draw(LATENCIES)) for pair in chosen}
    graph = LinkGraph(npus, switches, tuple(Link(*ends, *speed) for ends, speed in links.items()))
    messages = data.draw(messages_of(npus))
    route = shortest(links, npus)
    config = SystemConfig(
        Topology((Dimension("ring", npus, 1.0),)), "aware", links=graph, extensions=EXTENDED
    )
    lost = {(source, target) for source, target, _, _ in messages if route(source, target) is None}
    if lost:
        with pytest.raises(TraceError, match="no way over the links") as caught:
            played(config, messages)
        assert any(f"rank {a} sends a message to rank {b}, and" in caught.value.message for a, b in lost)
        return
    result = played(config, messages)
    finish, carried = expected(npus, links, route, messages)
    assert result.finish_ns.tolist() == finish
    assert told(result) == carried


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(2, 5), st.integers(0, 3))
def test_over_single_links_without_congestion_a_message_takes_its_latencies_and_the_slowest_link(
    data, npus, switches
):
    devices = npus + switches
    pairs = [(a, b) for a in range(devices) for b in range(devices) if a != b]
    links = {pair: (data.draw(RATES), data.draw(LATENCIES)) for pair in pairs if data.draw(st.booleans())}
    route = shortest(links, npus)
    assume(links and route(0, 1))
    way = [links[link] for link, _ in route(0, 1)]
    graph = LinkGraph(npus, switches, tuple(Link(*ends, *speed) for ends, speed in links.items()))
    config = SystemConfig(Topology((Dimension("ring", npus, 1.0),)), links=graph, extensions=EXTENDED)
    latency = 0.0
    for _, one in way:
        latency += one
    assert played(config, [(0, 1, 4321, 2)]).finish_ns[1] == 2000 + int(latency + 4321 / min(way)[0])


# ---------------------------------------------------------------------------------------------------
# Collectives


def collective(npus, kind, size):
    attrs = {"comm_type": COLLECTIVES[kind], "comm_size": size}
    return trace_of_workload({"all_ranks": [{"id": 0, "type": "COMM_COLL_NODE", "attrs": attrs}]}, npus)


def system(topology, algorithm="ring", **more):
    algorithms = {kind: (Algorithm(algorithm),) * len(topology.dims) for kind in COLLECTIVES}
    return SystemConfig(topology, algorithms=algorithms, extensions=EXTENDED, **more)


def sent_by(result):
    """Bytes and messages, by dimension and rank."""
    dims = result.dimensions
    return [dim.bytes.tolist() for dim in dims], [dim.messages.tolist() for dim in dims]


def test_parallel_links_share_by_source_and_destination():
    """Three links from 0 to 1 and three back: (0 + 1) mod 3 is the second of each, in the order they are listed."""
    links = tuple(Link(a, b, rate) for rate in (1.0, 2.0, 4.0) for a, b in ((0, 1), (1, 0)))
    config = SystemConfig(
        Topology((Dimension("ring", 2, 1.0),)), "aware", links=LinkGraph(2, 0, links), extensions=EXTENDED
    )
    result = played(config, [(0, 1, 1000, 0), (1, 0, 1000, 0)])
    assert result.links.bytes.tolist() == [0, 0, 1000, 1000, 0, 0]
    assert result.finish_ns.tolist() == [501, 501]


@pytest.mark.parametrize("kind", ["fully_connected", "switch"])
def test_the_longest_queue_is_not_the_sum_of_queues(kind):
    """Three messages at once, of which two wait; when they are gone, two more, of which one waits."""
    topology = Topology((Dimension(kind, 4, 10.0, 30.0),))
    messages = [(0, 1, 1000 + at, 1) for at in range(3)] + [(0, 1, 1010 + at, 5) for at in range(2)]
    config = SystemConfig(topology, "aware", extensions=EXTENDED)
    for one in (config, replace(config, links=link_graph(topology))):
        links = played(one, messages).links
        assert links.peak_queue.max() == 2
        assert links.messages.max() == 5


def leaf_spine(npus, npus_per_leaf, spines, speed):
    """A fat tree of two levels: leaf switches of equal size, each with a link to every spine. NPUs, then leaves, then spines."""
    leaves = npus // npus_per_leaf
    pairs = [(npu, npus + npu // npus_per_leaf) for npu in range(npus)]
    pairs += [(npus + leaf, npus + leaves + spine) for leaf in range(leaves) for spine in range(spines)]
    both = [way for one, other in pairs for way in ((one, other), (other, one))]
    return LinkGraph(npus, leaves + spines, tuple(Link(*way, *speed) for way in both))


def test_destinations_spread_over_the_ways_up_of_a_fat_tree():
    """Two leaves of four NPUs and four spines: each spine gets one destination of each leaf."""
    graph = leaf_spine(8, 4, 4, (10.0, 5.0))
    config = SystemConfig(
        Topology((Dimension("switch", 8, 10.0),)), "aware", links=graph, extensions=EXTENDED
    )
    messages = [(npu, (npu + 4) % 8, 1000, 0) for npu in range(8)]
    result = played(config, messages)
    up = [
        at
        for at, name in enumerate(map(result.links.name, range(len(graph.links))))
        if name.startswith("switch 0 → switch")
    ]
    assert result.links.messages[up].tolist() == [1] * 4
    assert result.links.peak_queue.max() == 0
    assert set(result.finish_ns.tolist()) == {1 + 4 * 105}


@pytest.mark.parametrize(("missing", "pair"), [((2, 3), "0 to NPU 2"), ((3, 2), "2 to NPU 0")])
def test_checking_names_two_npus_without_a_way(missing, pair):
    """A star of three NPUs around a switch, one link taken out: into or out of NPU 2."""
    ends = [(npu, 3) for npu in range(3)] + [(3, npu) for npu in range(3)]
    whole = LinkGraph(3, 1, tuple(Link(a, b, 1.0) for a, b in ends))
    cut = LinkGraph(3, 1, tuple(link for link in whole.links if (link.target, link.source) != missing))
    config = SystemConfig(Topology((Dimension("ring", 3, 1.0),)), links=whole, extensions=EXTENDED)
    trace = trace_of_workload({"all_ranks": [{"id": 0, "type": "COMP_NODE"}]}, 3)
    assert check(trace, config) == []
    [finding] = check(trace, replace(config, links=cut))
    assert finding.level == "warning"
    assert f"from NPU {pair}:" in finding.message


def test_a_ring_of_two_has_a_link_each_way():
    """Two steps of latency + half over bandwidth, and three endpoint delays."""
    topology = Topology((Dimension("ring", 2, 10.0, 30.0),))
    result = simulate(
        collective(2, "all_reduce", 2000), system(topology, congestion="aware"), native=compiled()
    )
    assert result.finish_ns.tolist() == [2 * (30 + 100) + 3 * 10] * 2
    assert [result.links.name(at) for at in range(len(result.links))] == ["0 → 1", "1 → 0"]
    assert result.links.bytes.tolist() == [2000, 2000]


@pytest.mark.parametrize("kind", COLLECTIVES)
@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_a_product_and_its_links_give_the_same_answer(kind, algorithm):
    """Ring, fully connected and switch dimensions as single links: equal finish times and equal links."""
    topology = Topology(
        (
            Dimension("switch", 2, 40.0, 7.0),
            Dimension("ring", 3, 10.0, 50.0),
            Dimension("fully_connected", 3, 5.0),
        )
    )
    trace, config = collective(18, kind, 1 << 14), system(topology, algorithm, congestion="aware", splits=3)
    ours = simulate(trace, config, native=compiled())
    theirs = simulate(trace, replace(config, links=link_graph(topology)), native=compiled())
    assert ours.finish_ns.tolist() == theirs.finish_ns.tolist()
    assert ours.links.bytes.any()
    for column in ("source", "target", "bytes", "messages", "busy_ns", "peak_queue"):
        assert getattr(ours.links, column).tolist() == getattr(theirs.links, column).tolist(), column
    assert sent_by(ours) == sent_by(theirs)


@pytest.mark.parametrize("congestion", ["aware", "unaware"])
def test_efficiency_and_overhead_enter_every_message_once(congestion):
    """Per step of a switch ring: overhead, two latencies, and size over the bandwidth that is left."""
    dim = Dimension("switch", 4, 10.0, 100.0, efficiency=0.5, message_overhead_ns=33.0)
    result = simulate(
        collective(4, "all_gather", 1000), system(Topology((dim,)), congestion=congestion), native=compiled()
    )
    wire = 200 if congestion == "unaware" else 2 * 200
    assert result.finish_ns.tolist() == [3 * (33 + 2 * 100 + wire) + 4 * 10] * 4
    assert result.dimensions[0].busy_ns.tolist() == [3 * (33 + 200.0)] * 4


@settings(max_examples=examples(60), deadline=None)
@given(
    topology=TOPOLOGIES,
    kind=st.sampled_from(list(COLLECTIVES)),
    algorithm=st.sampled_from(["ring", "direct"]),
    size=st.integers(100, 5000),
    splits=st.integers(1, 3),
)
def test_ranks_send_what_the_algorithm_says(topology, kind, algorithm, size, splits):
    """Bytes of each dimension, with and without congestion, by the formulas of the algorithms; links agree."""
    trace = collective(topology.npus, kind, size * topology.npus)
    config = system(topology, algorithm, splits=splits)
    unaware = simulate(trace, config, native=compiled())
    aware = simulate(trace, replace(config, congestion="aware"), native=compiled())
    sent = np.zeros((topology.npus, len(topology.dims)), np.int64)
    count = np.zeros_like(sent)
    chunk = size * topology.npus // splits
    streams = -(-size * topology.npus // chunk)
    if kind == "all_to_all":
        # As many chunks whatever a rank brings, so that ranks may bring different sizes.
        chunk, streams = -(-size * topology.npus // splits), splits
    order = list(enumerate(topology.dims))
    for d, dim in reversed(order) if kind == "all_gather" else order:
        n, share = dim.size, chunk if kind == "all_gather" else chunk // dim.size
        times = {"all_reduce": 2 * (n - 1)}.get(kind, n - 1)
        if kind == "all_to_all" and algorithm == "ring":
            times = n * (n - 1) // 2
        sent[:, d] += streams * times * share
        count[:, d] += streams * times
        if kind == "all_gather":
            chunk *= n
        elif kind == "reduce_scatter":
            chunk //= n
    for result in (unaware, aware):
        assert sent_by(result) == (sent.T.tolist(), count.T.tolist())
    hops = 0
    for d, dim in order:
        if dim.kind != "ring" or algorithm == "ring":
            hops += int(sent[:, d].sum()) * (2 if dim.kind == "switch" else 1)
        else:
            hops += (
                int(sent[:, d].sum())
                // (dim.size - 1)
                * sum(min(x, dim.size - x) for x in range(1, dim.size))
            )
    assert int(aware.links.bytes.sum()) == hops
    assert len(unaware.links) == 0


@settings(max_examples=examples(40), deadline=None)
@given(
    topology=TOPOLOGIES,
    kind=st.sampled_from(list(COLLECTIVES)),
    algorithm=st.sampled_from(["ring", "direct"]),
    faster=st.floats(1, 10),
    at=st.integers(0, 2),
)
def test_more_bandwidth_never_slows_a_lone_collective(topology, kind, algorithm, faster, at):
    """Without congestion; splits and queues as they are by default."""
    at %= len(topology.dims)
    dims = list(topology.dims)
    dims[at] = replace(dims[at], bytes_per_ns=dims[at].bytes_per_ns * faster)
    trace = collective(topology.npus, kind, 3000 * topology.npus)
    before = simulate(trace, system(topology, algorithm), native=compiled())
    after = simulate(trace, system(Topology(tuple(dims)), algorithm), native=compiled())
    assert after.makespan_ns <= before.makespan_ns


@settings(max_examples=examples(60), deadline=None)
@given(
    topology=TOPOLOGIES,
    algorithm=st.sampled_from(["ring", "direct"]),
    optimization=st.sampled_from(["baseline", "local_bw_aware"]),
    splits=st.integers(1, 4),
    single=st.booleans(),
)
def test_no_all_reduce_beats_the_bound_of_the_network(topology, algorithm, optimization, splits, single):
    """Where messages share the links, whatever overlaps; each message may be a nanosecond short of exact."""
    size = splits * 12**3 * 100
    config = system(
        topology,
        algorithm,
        splits=splits,
        active_chunks=splits,
        collective_optimization=optimization,
        congestion="aware",
    )
    if single:
        config = replace(config, links=link_graph(topology)) if not _tuned(topology) else config
    network = config.links or topology
    result = simulate(collective(topology.npus, "all_reduce", size), config, native=compiled())
    rounding = int(result.links.messages.max())
    assert result.makespan_ns + rounding >= bound_all_reduce_ns(network, size)


def _tuned(topology):
    return any(dim.efficiency != 1 or dim.message_overhead_ns for dim in topology.dims)


# ---------------------------------------------------------------------------------------------------
# The extended mode with nothing extended


def test_extended_with_everything_off_is_the_reference_where_messages_wait(shared):
    """Golden cases of the congestion-aware network, finish times and links."""
    taken = []
    for record in records(shared / "oracle" / "astra_sim_public.jsonl.gz"):
        expected_cycles = record["expected"].get("cycles")
        if record["mode"] != "aware" or record["expected"]["status"] != "ok" or len(expected_cycles) > 16:
            continue
        taken.append(record)
    assert len(taken) > 40
    for record in taken[::7]:
        trace, config = case(record)
        plain = simulate(trace, config, native=compiled())
        off = simulate(trace, replace(config, extensions=Extensions.off()), native=compiled())
        assert plain.finish_ns.tolist() == off.finish_ns.tolist()
        assert plain.links.bytes.tolist() == off.links.bytes.tolist()
        product_of_one = simulate(
            trace,
            replace(config, links=link_graph(config.topology), extensions=Extensions.off()),
            native=compiled(),
        )
        if config.topology.dims[0].kind != "ring":
            assert plain.finish_ns.tolist() == product_of_one.finish_ns.tolist()


@pytest.mark.parametrize(
    ("topology", "more", "message"),
    [
        (Topology((Dimension("ring", 4, 1.0), Dimension("ring", 4, 1.0))), {}, "'aware' on 2 dimensions"),
        (Topology((Dimension("ring", 2, 1.0),)), {}, "'aware' on a ring of 2 NPUs"),
        (
            Topology((Dimension("ring", 4, 1.0),)),
            {"links": LinkGraph(3, 0, (Link(0, 1, 1.0),)), "extensions": EXTENDED},
            "links join 3 NPUs; allowed: 4",
        ),
        (
            Topology((Dimension("ring", 4, 1.0, efficiency=0.5),)),
            {"links": LinkGraph(4, 0, (Link(0, 1, 1.0),)), "extensions": EXTENDED},
            "efficiency of dimension 0 is given beside links",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(topology, more, message):
    with pytest.raises(ConfigError, match=message):
        SystemConfig(topology, "aware", **more)
