"""What collectives cost: closed forms by algorithm and protocol, physics, and the table that people edit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.errors import ConfigError
from studio.sim.costs import CostModel, GroupShape, Ports
from studio.sim.costs.curves import NEAR, OWN, Curve
from studio.sim.costs.library import LIBRARIES, estimate_ways
from studio.sim.costs.model import KINDS, Range
from studio.sim.costs.shapes import Wiring, compute_buffer_bytes, compute_comm_sizes
from studio.sim.costs.ways import list_ways

NODE = Ports(inside=400.0, inside_ns=100.0, per_node=8)
CLUSTER = Ports(inside=400.0, inside_ns=100.0, between=50.0, between_ns=1000.0, per_node=8)
ONE_NODE, FOUR_NODES = GroupShape(8, 8, 1), GroupShape(32, 8, 4)
MIB = 2.0**20

PLAIN = {
    "launch all_reduce": 5000.0,
    "launch all_gather": 4000.0,
    "launch all_to_all": 3000.0,
    "base LL128": 2000.0,
    "base Simple": 6000.0,
    "base NVLS": 9000.0,
    "base direct Simple": 4000.0,
    "base between": 2500.0,
    "hop LL inside": 600.0,
    "hop LL128 inside": 900.0,
    "hop Simple inside": 2000.0,
    "hop direct inside": 100.0,
    "hop direct between": 300.0,
    "hop LL between": 3000.0,
    "hop LL128 between": 5000.0,
    "hop Simple between": 9000.0,
    "hop tree LL128 between": 7000.0,
    "hop tree Simple between": 12000.0,
    "efficiency LL128 inside": 0.7,
    "efficiency Simple inside": 0.8,
    "efficiency NVLS inside": 0.6,
    "efficiency direct inside": 0.75,
    "efficiency LL128 between": 0.8,
    "efficiency Simple between": 0.9,
    "efficiency NVLS between": 0.9,
    "efficiency direct between": 0.85,
    **{
        f"ramp {rate} {place}": 1e-12
        for rate in ("LL", "LL128", "Simple", "NVLS", "direct")
        for place in ("inside", "between")
    },
    **{f"copy {kind}": 1e-12 for kind in ("all_reduce", "all_gather", "all_to_all")},
    "host interval": 1e-3,
}


def forced(algorithm: str, protocol: str = "auto") -> CostModel:
    return CostModel("nccl-hopper", values=PLAIN, algorithm=algorithm, protocol=protocol)


def together(launch: float, waits: float, moving: float, overlap: float) -> float:
    return float(launch + (waits**overlap + moving**overlap) ** (1 / overlap))


def total(model: CostModel, kind: str, size: float, shape: GroupShape, ports: Ports) -> float:
    return float(model.charge(kind, np.array([size]), shape, ports).total_ns[0])


S = 64 * MIB


@pytest.mark.parametrize(
    ("kind", "algorithm", "protocol", "shape", "expected"),
    [
        # Ring: 14 hops of 2 µs, twice 7/8 of the buffer at 320 bytes/ns; the network adds 0.1 µs a hop.
        ("all_reduce", "ring", "Simple", ONE_NODE, (5000 + 14 * 100, 6000 + 14 * 2000, S * 1.75 / 320, 2.0)),
        ("all_reduce", "ring", "LL128", ONE_NODE, (5000 + 14 * 100, 2000 + 14 * 900, S * 1.75 / 280, 1.5)),
        # comm_size of an all-gather is one rank's part: 7 more come in.
        ("all_gather", "ring", "Simple", ONE_NODE, (4000 + 7 * 100, 6000 + 7 * 2000, S * 7 / 320, 2.0)),
        # Between nodes: 2.5 µs once, 6 of the 62 hops cross; twice 31/32 inside, an eighth of it on each NIC.
        (
            "all_reduce",
            "ring",
            "Simple",
            FOUR_NODES,
            (
                5000 + 56 * 100 + 6 * 1000,
                8500 + 56 * 2000 + 6 * 9000,
                max(S * 2 * 31 / 32 / 320, S * 2 * 31 / 32 / 8 / 45),
                2.0,
            ),
        ),
        # Tree on four nodes: up and down 7 GPUs and 2 levels; twice the buffer on the busiest port.
        (
            "all_reduce",
            "tree",
            "LL128",
            FOUR_NODES,
            (5000 + 14 * 100 + 4 * 1000, 4500 + 14 * 900 + 4 * 7000, max(S * 2 / 280, S * 2 / 8 / 40), 1.5),
        ),
        # NVLS: the buffer once.
        ("all_reduce", "NVLS", "auto", ONE_NODE, (5000 + 100, 9000, S / 240, 1.5)),
        # NVLS-tree on four nodes.
        (
            "all_reduce",
            "NVLS-tree",
            "auto",
            FOUR_NODES,
            (5000 + 100 + 4 * 1000, 11500 + 4 * 12000, max(S / 240, S * 2 / 8 / 45), 1.5),
        ),
        # Direct: a message to each peer.
        ("all_to_all", "auto", "Simple", ONE_NODE, (3000 + 100, 4000 + 7 * 100, S * 7 / 8 / 300, 2.0)),
        (
            "all_to_all",
            "auto",
            "Simple",
            FOUR_NODES,
            (3000 + 1000, 6500 + 7 * 100 + 24 * 300, S * 24 / 32 / 42.5, 2.0),
        ),
    ],
)
def test_closed_forms(
    kind: str, algorithm: str, protocol: str, shape: GroupShape, expected: tuple[float, float, float, float]
) -> None:
    ports = NODE if shape.nodes == 1 else CLUSTER
    found = total(forced(algorithm, protocol), kind, S, shape, ports)
    assert found == pytest.approx(together(*expected), rel=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "protocol", "fillings", "bytes_between", "rate"),
    [
        # Each of 2 levels up and down fills a pipe, two of which are what two nodes take.
        ("tree", "LL128", 2.0, 2 / 8, 40),
        # Chunks follow each other through the levels of Simple.
        ("tree", "Simple", 2**0.5, 2 / 8, 45),
        # 6 of the steps of a ring cross, each with a sixth of the bytes.
        ("ring", "Simple", 6**0.5, 2 * 31 / 32 / 8, 45),
        # LL goes by the host's memory: 39 bytes per ns of a node of 8, of which half is reached.
        ("ring", "LL", 6**0.5, 2 * 31 / 32 / 8, 39 / 8 / 2),
    ],
)
def test_between_nodes_pipes_fill_at_every_step_and_ll_goes_by_the_host(
    algorithm: str, protocol: str, fillings: float, bytes_between: float, rate: float
) -> None:
    given = {**PLAIN, "settle LL": 1e-9, "efficiency LL between": 0.5, f"ramp {protocol} between": 3.0}
    size, port = 2.0**34, 39 / 8 if protocol == "LL" else 50
    model = CostModel("nccl-hopper", values=given, algorithm=algorithm, protocol=protocol)
    without = replace(model, values={**given, f"ramp {protocol} between": 1e-12})
    ports = replace(CLUSTER, inside=40_000.0)
    moving = size * bytes_between / rate
    assert total(without, "all_reduce", size, FOUR_NODES, ports) == pytest.approx(moving, rel=1e-2)
    filling = 3.0 * fillings * (size * bytes_between / port * 1000) ** 0.5
    more = total(model, "all_reduce", size, FOUR_NODES, ports) - total(
        without, "all_reduce", size, FOUR_NODES, ports
    )
    assert more == pytest.approx(filling, rel=1e-2)


def test_sizes_are_counted_as_the_benchmarks_do_in_one_place() -> None:
    sizes = np.array([1024.0])
    for kind, factor in (
        ("all_gather", 8),
        ("gather", 8),
        ("all_reduce", 1),
        ("reduce_scatter", 1),
        ("all_to_all", 1),
    ):
        assert compute_buffer_bytes(kind, sizes, 8)[0] == 1024 * factor
        assert compute_comm_sizes(kind, compute_buffer_bytes(kind, sizes, 8), 8)[0] == 1024


shapes = st.sampled_from(
    [
        GroupShape(2, 2, 1),
        ONE_NODE,
        GroupShape(4, 1, 4),
        GroupShape(16, 8, 2),
        FOUR_NODES,
        GroupShape(6, 4, 2),
    ]
)


@given(
    st.sampled_from(sorted(LIBRARIES)),
    st.sampled_from(KINDS),
    shapes,
    st.sampled_from(["auto", "ring", "tree", "direct", "NVLS", "NVLS-tree"]),
    st.sampled_from([0, 4, 1]),
)
def test_bytes_never_pass_a_port_faster_than_it_can(
    library: str, kind: str, shape: GroupShape, algorithm: str, nics: int
) -> None:
    sizes = 2.0 ** np.arange(3, 35)
    curves = tuple(Curve(kind, shape, (8.0, 2.0**34), (0.01, 0.01)) for _ in range(1))
    for model in (
        CostModel(library, algorithm=algorithm, wiring=Wiring(nics)),
        CostModel(library, wiring=Wiring(nics), curves=curves),
    ):
        charge = model.charge(kind, sizes, shape, CLUSTER)
        least = np.maximum(charge.inside_bytes / CLUSTER.inside, charge.between_bytes / CLUSTER.between)
        assert np.all(charge.total_ns - charge.fixed_ns >= least * (1 - 1e-9))
        assert np.all(charge.fixed_ns > 0)
        assert np.all(np.isfinite(charge.total_ns))


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all", "send_recv", "broadcast"])
def test_more_bytes_take_longer(kind: str) -> None:
    """Where the library changes its mind, times may step down, by no more than measured ones do."""
    shape = GroupShape(2, 2, 1) if kind == "send_recv" else ONE_NODE
    times = CostModel("nccl-hopper").charge(kind, 2.0 ** np.arange(3, 35), shape, NODE).total_ns
    assert np.all(times[1:] > 0.75 * times[:-1])
    assert times[-1] > 50 * times[0]


def test_a_ring_puts_its_bytes_on_the_ports() -> None:
    charge = forced("ring").charge("all_reduce", np.array([S]), FOUR_NODES, CLUSTER)
    assert charge.inside_bytes[0] == pytest.approx(2 * 31 / 32 * S)
    assert charge.between_bytes[0] == pytest.approx(2 * 31 / 32 * S / 8)


def test_nics_are_shared_by_the_gpus_in_use() -> None:
    """Four NICs for eight GPUs: two GPUs of a node have one each, eight have half of one each."""
    model = replace(forced("ring", "Simple"), wiring=Wiring(4))
    few = total(model, "all_reduce", 1024 * MIB, GroupShape(4, 2, 2), CLUSTER)
    per_gpu = replace(model, wiring=Wiring())
    assert total(per_gpu, "all_reduce", 1024 * MIB, GroupShape(4, 2, 2), CLUSTER) > 1.8 * few
    assert total(per_gpu, "all_reduce", MIB, FOUR_NODES, CLUSTER) == total(
        model, "all_reduce", MIB, FOUR_NODES, CLUSTER
    )


def test_twice_the_bandwidth_between_nodes_halves_what_it_bounds() -> None:
    once, twice = replace(CLUSTER, between=12.5), replace(CLUSTER, between=25.0)
    model = forced("ring", "Simple")
    slow, fast = (total(model, "all_reduce", 4096 * MIB, FOUR_NODES, ports) for ports in (once, twice))
    moving = [4096 * MIB * 2 * 31 / 32 / 8 / rate for rate in (0.9 * 12.5, 0.9 * 25)]
    assert slow - fast == pytest.approx(moving[0] - moving[1], rel=0.01)


def test_nccl_changes_its_mind_where_measured_curves_jump() -> None:
    """All-gathers on four A100 jump from 22.5 µs at 1 MiB to 53 µs at 2 MiB, on eight they do not."""
    ports = Ports(300.0, 0.0, per_node=8)
    for ranks, jumps in ((4, 2 * MIB), (8, 16 * MIB)):
        sizes = 2.0 ** np.arange(10, 30)
        charge = CostModel("nccl-ampere").charge(
            "all_gather", sizes / ranks, GroupShape(ranks, ranks, 1), ports
        )
        names = np.array(charge.choices)[charge.choice]
        assert sizes[names == "ring Simple"][0] == jumps


@pytest.mark.parametrize(
    ("protocol", "waits"),
    [
        # Of 31 steps 28 lie inside nodes and take no less than the host takes to post a message: 1 µs, 3 µs for Simple.
        ("LL", 6_600 + 28 * 1_000 + 3 * 2_700),
        ("LL128", 14_000 + 28 * 1_900 + 3 * 4_000),
        ("Simple", 8_400 + 28 * 3_400 + 3 * 14_000),
    ],
)
def test_a_library_counts_with_what_the_host_takes_for_each_step_of_a_ring(
    protocol: str, waits: float
) -> None:
    """NCCL's own sum (src/graph/tuning.cc); large sizes wait longer in all-reduces only."""
    small, large = 2.0**10, 2.0**30
    for kind, rounds, factor in (
        ("all_gather", 1, 1.0),
        ("all_reduce", 2, 1.4 if protocol == "Simple" else 1.0),
    ):
        found = estimate_ways(
            LIBRARIES["nccl-hopper"], kind, np.array([small, large]), FOUR_NODES, 450.0, 50.0
        )
        moving = large * rounds * 31 / 32 / {"LL": 20.4, "LL128": 370.8 * 0.92, "Simple": 370.8}[protocol]
        base = {"LL": 6_600, "LL128": 14_000, "Simple": 8_400}[protocol]
        expected = factor * (base + rounds * (waits - base)) + moving
        assert found[f"ring {protocol}"][1] == pytest.approx(expected, rel=1e-9)


def test_a_message_begins_with_its_share_of_the_channels() -> None:
    """Of 32 channels, a message among 8 GPUs begins with 4, which carry 25 bytes per ns each, and gets more above 16 MiB a channel."""
    model, ports = (
        CostModel("nccl-hopper", values={**PLAIN, "launch send_recv": 1e-3}),
        replace(NODE, inside=450.0),
    )
    took = [total(model, "send_recv", size * MIB, ONE_NODE, ports) for size in (32, 64, 128, 256, 512)]
    carried = [32 / 100, 64 / 100, 128 / 200, 256 / 400, 512 / 450]
    assert took == pytest.approx([MIB * time / 0.75 for time in carried], rel=1e-2)
    pair = total(model, "send_recv", 64 * MIB, GroupShape(2, 2, 1), ports)
    assert pair == pytest.approx(64 * MIB / 400 / 0.75, rel=1e-2)


def test_nvls_serves_large_all_reduces_of_whole_nodes() -> None:
    charge = CostModel("nccl-hopper").charge("all_reduce", np.array([1024.0, 1024 * MIB]), ONE_NODE, NODE)
    assert [charge.choices[taken] for taken in charge.choice] == ["ring LL", "NVLS"]
    assert "NVLS" not in CostModel("nccl-ampere").charge("all_reduce", np.array([S]), ONE_NODE, NODE).choices


def test_the_table_gives_the_model_back() -> None:
    model = CostModel(
        "nccl-ampere",
        values={"launch all_reduce": 5000.0, "efficiency Simple inside": 0.8},
        choice="least",
        algorithm="ring",
        protocol="LL",
        wiring=Wiring(4, 7, 2),
        curves=(Curve("all_gather", ONE_NODE, (8.0, 1024.0), (1.1, 0.9)),),
        fitted=Range(("all_gather",), (8, 8), (1, 1), (8.0, 1024.0)),
    )
    assert CostModel.from_table(model.to_table()) == model


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"library": "nccl-hoper"}, "library"),
        ({"lauch": {}}, "lauch"),
        ({"launch": {"allreduce": 5}}, "launch"),
        ({"launch": 5}, "launch"),
        ({"efficiency": {"Simple inside": 1.2}}, "efficiency[Simple inside]"),
        ({"algorithm": "star"}, "algorithm"),
        ({"nics": -1}, "nics"),
        ({"curves": [{"collective": "all_reduce"}]}, "curves[0]"),
        ({"fitted": {"ranks": [1]}}, "fitted"),
    ],
)
def test_mistakes_in_a_table_name_the_key_and_what_is_allowed(table: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CostModel.from_table(table, "my-cluster.yml: costs")
    assert caught.value.key == key
    assert caught.value.allowed
    assert "my-cluster.yml" in caught.value.message


def test_curves_correct_their_own_collective_and_group() -> None:
    curve = Curve("all_reduce", ONE_NODE, (MIB, 64 * MIB), (1.2, 1.2))
    plain = CostModel("nccl-hopper")
    model = replace(plain, curves=(curve,))

    def ratio(kind: str, shape: GroupShape, ports: Ports = CLUSTER) -> tuple[float, str]:
        sizes = np.array([8 * MIB])
        with_it, without = (each.charge(kind, sizes, shape, ports) for each in (model, plain))
        # Curves correct what was measured, not the latency that a network adds: one hop of 0.1 µs by NVLS, more by others.
        assert with_it.latency_ns[0] == without.latency_ns[0] >= 100
        own = [float(each.total_ns[0] - each.latency_ns[0]) for each in (with_it, without)]
        return own[0] / own[1], with_it.correction

    assert ratio("all_reduce", ONE_NODE) == (pytest.approx(1.2), OWN)
    factor, source = ratio("all_reduce", GroupShape(4, 4, 1))
    assert source == NEAR
    assert 1.1 < factor < 1.2
    assert ratio("all_gather", ONE_NODE) == (1.0, "")

    assert ratio("all_reduce", FOUR_NODES) == (1.0, "")


@pytest.mark.parametrize(
    ("kind", "shape", "size", "steps"),
    [
        ("send_recv", GroupShape(2, 1, 2), 256 * MIB, 1),  # A message to another node: once.
        ("all_gather", FOUR_NODES, MIB, 3),  # A ring over four nodes: three crossings, one after the other.
        ("all_to_all", FOUR_NODES, 256 * MIB, 1),  # Messages to all others are under way together.
    ],
)
def test_latency_that_the_network_states_is_added_in_full(
    kind: str, shape: GroupShape, size: float, steps: int
) -> None:
    model = CostModel("nccl-hopper")
    quiet, far = (replace(CLUSTER, inside_ns=0.0, between_ns=latency) for latency in (0.0, 5e6))
    more = total(model, kind, size, shape, far) - total(model, kind, size, shape, quiet)
    assert more == pytest.approx(steps * 5e6)
    charge = model.charge(kind, np.array([size]), shape, far)
    assert float(charge.total_ns[0] - charge.fixed_ns[0]) > 0
    assert float(charge.fixed_ns[0]) >= steps * 5e6


@pytest.mark.parametrize("algorithm", ["auto", "NVLS"])
def test_nvls_needs_a_switch_inside_the_node(algorithm: str) -> None:
    """The switch adds up and sends to all; links from GPU to GPU cannot."""
    size, model = np.array([1024 * MIB]), CostModel("nccl-hopper", algorithm=algorithm)
    names = [
        model.charge("all_reduce", size, shape, replace(ports, switched=switched)).choices
        for shape, ports in ((ONE_NODE, NODE), (FOUR_NODES, CLUSTER))
        for switched in (True, False)
    ]
    assert [any(name.startswith("NVLS") for name in each) for each in names] == [True, False, True, False]
    linked = replace(model, wiring=Wiring(peers=7)).charge("all_reduce", size, ONE_NODE, NODE)
    assert not any(name.startswith("NVLS") for name in linked.choices)


def test_outside_of_what_was_fitted_answers_are_extrapolated() -> None:
    model = CostModel("nccl-hopper", fitted=Range(("all_reduce",), (4, 8), (1, 1), (1024.0, MIB)))
    sizes = np.array([512.0, 1024.0, MIB, 2 * MIB])
    assert model.charge("all_reduce", sizes, ONE_NODE, NODE).extrapolated.tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert model.charge("all_gather", sizes, ONE_NODE, NODE).extrapolated.all()
    assert model.charge("all_reduce", sizes, FOUR_NODES, CLUSTER).extrapolated.all()


def test_every_way_has_defaults() -> None:
    for library in LIBRARIES:
        model = CostModel(library)
        for kind in KINDS:
            for shape in (ONE_NODE, FOUR_NODES):
                for way in list_ways(kind, shape):
                    assert model.value(f"efficiency {way.rates} inside") <= 1


def test_short_collectives_take_what_the_host_takes_from_call_to_call() -> None:
    forced_ring = replace(forced("ring", "Simple"), values={**PLAIN, "host interval": 30_000.0})
    node = replace(NODE, inside_ns=0.0)
    own = total(forced("ring", "Simple"), "all_reduce", 1024.0, ONE_NODE, node)
    taken = total(forced_ring, "all_reduce", 1024.0, ONE_NODE, node)
    assert taken == pytest.approx((30_000.0**4 + own**4) ** 0.25, rel=1e-6)
    large = total(forced("ring", "Simple"), "all_reduce", 1024 * MIB, ONE_NODE, NODE)
    assert total(forced_ring, "all_reduce", 1024 * MIB, ONE_NODE, NODE) == pytest.approx(large, rel=1e-6)
    # One thread calls for each of its GPUs.
    eight = forced_ring.charge("all_reduce", np.array([1024.0]), ONE_NODE, node, gpus_per_thread=8)
    assert float(eight.total_ns[0]) == pytest.approx((240_000.0**4 + own**4) ** 0.25, rel=1e-6)


@pytest.mark.parametrize(("gpus", "slower"), [(2, 0.2), (8, 0.2 + 0.5 * (1 - 2 / 8))])
def test_bytes_on_pcie_share_paths(gpus: int, slower: float) -> None:
    """Of a large all-gather by a ring, beside a broadcast of two, which has one direction only."""
    shared = {"shared both ways": 0.2, "shared between switches": 0.5}
    model = replace(forced("ring", "Simple"), library="nccl-pcie", values={**PLAIN, **shared})
    none = replace(model, values={**PLAIN, **dict.fromkeys(shared, 1e-12)})
    size, shape = 2.0**36, GroupShape(gpus, gpus, 1)
    moving = size * (gpus - 1) / NODE.inside
    more = total(model, "all_gather", size, shape, NODE) - total(none, "all_gather", size, shape, NODE)
    assert more == pytest.approx(moving * slower, rel=0.01)
    two = GroupShape(2, 2, 1)
    assert total(model, "broadcast", size, two, NODE) == total(none, "broadcast", size, two, NODE)
    nvlink = replace(model, library="nccl-hopper")
    plain = replace(none, library="nccl-hopper")
    assert total(nvlink, "all_gather", size, shape, NODE) == total(plain, "all_gather", size, shape, NODE)


def test_a_transport_changes_what_happens_between_nodes_only() -> None:
    unknown = CostModel("nccl-hopper")
    verbs, plugin = unknown.over("verbs"), unknown.over("plugin")

    def small(model: CostModel, shape: GroupShape) -> float:
        return total(model, "all_reduce", 1024.0, shape, CLUSTER)

    assert small(verbs, FOUR_NODES) < small(unknown, FOUR_NODES) < small(plugin, FOUR_NODES)
    assert small(verbs, ONE_NODE) == small(plugin, ONE_NODE)
    own = CostModel(
        "nccl-hopper", values={"hop LL between": 4000.0, "launch all_reduce": 5000.0}, transport="verbs"
    )
    moved = own.over("plugin")
    ratio = plugin.value("hop LL between") / verbs.value("hop LL between")
    assert moved.values == {"hop LL between": pytest.approx(4000.0 * ratio), "launch all_reduce": 5000.0}
    assert moved.over("verbs").value("hop LL between") == pytest.approx(4000.0)
    assert CostModel.from_table(moved.to_table()) == moved
