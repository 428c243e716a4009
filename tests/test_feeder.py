"""The feeder: every node once, after all it waits for, lowest id first, from windows of a file; and a simulator made with it."""

from __future__ import annotations

import gzip
import heapq
import importlib.util
import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import studio
from studio.doctor.repairs import repair
from studio.errors import TraceError, TraceFormatError
from studio.et import read, write
from studio.et.merged import records
from studio.feeder import Feeder, stream
from studio.feeder.ids import IdSet
from studio.trace import Trace, list_node_attributes
from tests.conftest import ROOT
from tests.et.chakra_bytes import attr, file_of, num, sized, varint
from tests.handmade import node, trace_of


def example() -> ModuleType:
    """The simulator of the documentation."""
    spec = importlib.util.spec_from_file_location(
        "feeder_simulator", ROOT / "examples" / "feeder_simulator.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def simulated(trace: Trace) -> int:
    """When a job of one rank ends in the studio's simulator, with one slot for each processor."""
    config = studio.preset("hgx-h100", npus=2).config.with_extensions().with_recorded_times()
    one = replace(config.extensions, host_slots="one", compute_slots="one")
    return studio.simulate(trace, replace(config, extensions=one), native=False).makespan_ns


def some_nodes(count: int, seed: int, *, forward: bool = False) -> list[bytes]:
    """Records of nodes that wait for some of the others, in rising or, with `forward`, in any order."""
    chance = random.Random(seed)
    made = []
    for number in range(1, count + 1):
        deps = {
            chance.randint(max(1, number - 40), number - 1) for _ in range(chance.randint(0, 3)) if number > 1
        }
        fields = num(1, number) + sized(2, f"n{number}") + num(3, 4)
        fields += sized(4, b"".join(map(varint, sorted(deps)[:1]))) + sized(
            5, b"".join(map(varint, sorted(deps)[1:]))
        )
        made.append(fields + num(7, chance.randint(0, 9)) + attr("is_cpu_op", num(27, chance.randint(0, 1))))
    if forward:
        chance.shuffle(made)
    return made


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in pieces of a few nodes."""
    monkeypatch.setattr(records, "CHUNK_BYTES", 150)
    monkeypatch.setattr(stream, "CHUNK_BYTES", 300)


def fed(path: Path, *, window: int, chance: random.Random) -> tuple[list[int], int]:
    """The order in which nodes are issued, several under way at a time; and the most nodes held."""
    order, under_way, done, most = [], [], set(), 0
    with Feeder(path, window=window) as feeder:
        while feeder.has_nodes_to_issue():
            while len(under_way) < 4 and (one := feeder.next_issuable()) is not None:
                assert {*one.ctrl_deps, *one.data_deps} <= done
                assert feeder.lookup(one.id).name == f"n{one.id}"
                if chance.random() < 0.1:
                    feeder.push_back(one.id)
                    continue
                order.append(one.id)
                under_way.append(one.id)
            most = max(most, len(feeder._records) + len(feeder._issued))
            finished = under_way.pop(chance.randrange(len(under_way)))
            freed = feeder.complete(finished)
            assert freed == sorted(freed)
            done.add(finished)
        assert feeder.next_issuable() is None
    return order, most


def drain(path: Path) -> list[int]:
    """Issue every node, one at a time."""
    order = []
    with Feeder(path) as feeder:
        while feeder.has_nodes_to_issue():
            order.append(feeder.next_issuable().id)
            feeder.complete(order[-1])
    return order


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("window", [1, 50, 100_000])
def test_every_node_is_issued_once_after_all_it_waits_for(
    tmp_path: Path, small_chunks: None, window: int, forward: bool
):
    raw = file_of(*some_nodes(600, window, forward=forward))
    path = tmp_path / "t.0.et"
    path.write_bytes(gzip.compress(raw) if forward else raw)
    order, most = fed(path, window=window, chance=random.Random(window))
    assert sorted(order) == list(range(1, 601))
    if not forward and window < 600:
        # What a piece of the file holds beyond the window: thirty nodes at most.
        assert most <= window + 30


def test_of_several_nodes_the_lowest_id_is_next(tmp_path: Path):
    path = tmp_path / "t.0.et"
    path.write_bytes(file_of(*some_nodes(300, 1, forward=True)))
    graph = read(path).graphs[0]
    waits = {int(graph.id[row]): {int(graph.id[d]) for deps in (graph.ctrl, graph.data) for d in deps.of(row)} for row in range(300)}  # fmt: skip
    expected, done = [], set[int]()
    ready = [number for number, deps in waits.items() if not deps]
    heapq.heapify(ready)
    while ready:
        number = heapq.heappop(ready)
        expected.append(number)
        done.add(number)
        for other, deps in waits.items():
            if number in deps and deps <= done:
                heapq.heappush(ready, other)
    assert drain(path) == expected


def test_the_documented_simulator_ends_when_ours_does(tmp_path: Path, shared: Path):
    simulate = example().simulate
    code = (ROOT / "examples" / "feeder_simulator.py").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in (ROOT / "docs" / "feeder.md").read_text(encoding="utf-8")
    ranks = [
        node(n, "COMP", *range(max(1, n - n % 3), n), micros=n % 7, is_cpu_op=n % 2 == 0)
        for n in range(1, 200)
    ]
    jobs = [
        trace_of([ranks]),
        read(shared / "traces" / "torch" / "mnist_obs"),
        read(shared / "traces" / "torch_synthetic_device" / "mnist_1r"),
        read(shared / "traces" / "golden" / "generator" / "two_comp_nodes_independent.0.et"),
    ]
    for index, job in enumerate(jobs):
        whole = repair(job, "dangling").trace
        [file, *_] = write(whole, tmp_path, f"job{index}")
        assert simulate(str(file)) == simulated(whole) > 0


def test_nodes_tell_what_their_file_does(shared: Path, tmp_path: Path):
    path = shared / "traces" / "golden" / "generator" / "one_metadata_node_all_types.0.et"
    graph = read(path).graphs[0]
    told = Feeder(path).next_issuable()
    assert told.attrs == {a.name: a.value for a in list_node_attributes(graph, 0)}
    raw = file_of(
        num(1, 3) + sized(2, b"bad \xff") + num(3, 5) + num(6, 7) + num(7, 2)
        + attr("duration_ns", num(9, 2345)) + attr("start_ns", num(9, 9)) + attr("none")
    )  # fmt: skip
    (tmp_path / "t.et").write_bytes(raw)
    with Feeder(tmp_path / "t.et") as feeder:
        one = feeder.next_issuable()
        assert (one.id, one.name, one.type) == (3, "bad \N{REPLACEMENT CHARACTER}", 5)
        # An attribute refines a time where it agrees with the field.
        assert (one.duration_ns, one.start_ns, one.attrs["none"]) == (2345, 7000, None)
        assert feeder.metadata.version == "0.0.4"


def test_what_can_never_be_issued_is_named(tmp_path: Path):
    deps = {1: [], 2: [1, 77], 3: [2], 4: [5], 5: [4, 1], 6: [6]}
    raw = file_of(
        *(num(1, n) + sized(2, f"n{n}") + sized(5, b"".join(map(varint, d))) for n, d in deps.items())
    )
    path = tmp_path / "t.et"
    path.write_bytes(raw)
    feeder = Feeder(path)
    assert feeder.never_ready() == []
    assert feeder.has_nodes_to_issue()
    feeder.complete(feeder.next_issuable().id)
    assert feeder.next_issuable() is None
    with pytest.raises(TraceError) as error:
        feeder.has_nodes_to_issue()
    assert error.value.message == (
        "t.et: 5 nodes can never be issued: node 2 (n2) waits for 77, which the file does not have; "
        "nodes wait for each other: 4 → 5 → 4."
    )
    assert [(one.id, one.waits_for, one.missing) for one in feeder.never_ready()] == [
        (2, (77,), (77,)), (3, (2,), ()), (4, (5,), ()), (5, (4,), ()), (6, (6,), ())
    ]  # fmt: skip


def test_misuse_and_damage_are_told_with_their_place(tmp_path: Path, small_chunks: None):
    path = tmp_path / "t.et"
    raw = file_of(*some_nodes(40, 3))
    path.write_bytes(raw)
    feeder = Feeder(path, window=1)
    assert feeder.has_nodes_to_issue()
    one = feeder.next_issuable()
    with pytest.raises(TraceError, match="node 99 is not under way"):
        feeder.complete(99)
    feeder.complete(one.id)
    for verb in (feeder.complete, feeder.push_back):
        with pytest.raises(TraceError, match=f"node {one.id} is not under way"):
            verb(one.id)
    with pytest.raises(TraceError, match=f"node {one.id} is not held: it is complete"):
        feeder.lookup(one.id)
    with pytest.raises(TraceError, match="no node of that id"):
        feeder.lookup(10_000)
    feeder.close()
    with pytest.raises(TraceError, match="window is 0"):
        Feeder(path, window=0)
    with pytest.raises(TraceError, match="no such file"):
        Feeder(tmp_path / "none.et")
    with pytest.raises(TraceError, match="folder"):
        Feeder(tmp_path)

    def drained(content: bytes) -> str:
        path.write_bytes(content)
        with pytest.raises(TraceFormatError) as error:
            drain(path)
        return error.value.message

    assert f"the file ends inside a record at byte {len(raw) - len(some_nodes(40, 3)[-1]) - 1:,}" in drained(
        raw[:-2]
    )
    assert "claims 1,099,511,627,776 bytes" in drained(raw + varint(2**40) + b"x" * 2000)
    assert "impossible number" in drained(raw + b"\x02\x00\x00")
    assert "the gzip stream is damaged after" in drained(gzip.compress(raw)[:-20])
    assert "not a Chakra execution trace" in drained(b"remember the milk")
    assert "not a Chakra execution trace" in drained(b"")
    assert "two nodes have the id 7" in drained(file_of(num(1, 7), num(1, 7)))
    # The first is complete before the second is read.
    assert "two nodes have the id 1" in drained(file_of(*some_nodes(40, 3), num(1, 1)))


def test_a_set_of_ids_is_that_of_python(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("studio.feeder.ids._SETTLED_AT", 50)
    chance = random.Random(5)
    wanted = {*chance.sample(range(2000), 1500), *(2**64 - chance.randint(1, 300) for _ in range(200))}
    ids = IdSet()
    for number in chance.sample(sorted(wanted), len(wanted)):
        ids.add(number)
    asked = [*range(2100), *range(2**64 - 310, 2**64)]
    assert ids.contain(np.array(asked, np.uint64)).tolist() == [number in wanted for number in asked]
    assert all((number in ids) == (number in wanted) for number in asked)
    assert len(ids) == len(wanted)
