from __future__ import annotations

from pathlib import Path

import numpy as np

import studio
from studio.analysis.collectives.roles import infer_group_roles
from studio.analysis.collectives.traffic import sum_traffic
from studio.samples import sample_path
from tests.handmade import collective, node, trace_of
from tests.recordings import link_recording, read_recording

NAN = np.nan


def same(found, expected) -> bool:
    return bool(np.array_equal(found, np.array(expected, float), equal_nan=True))


def test_messages_and_all_to_alls_are_added_up_by_pair() -> None:
    """An all-to-all without parts gives each member an equal share; what a rank keeps counts nowhere."""
    ranks = [
        [collective(1, "ALL_TO_ALL", 30, group="ep"), collective(2, "ALL_REDUCE", 7, 1)],
        [collective(1, "ALL_TO_ALL", 60, group="ep"), collective(2, "ALL_REDUCE", 7, 1)],
        [collective(1, "ALL_TO_ALL", 0, group="ep"), collective(2, "ALL_REDUCE", 7, 1)],
        [
            node(1, "COMM_SEND", comm_src=3, comm_dst=0, comm_tag=5, comm_size=100),
            collective(2, "ALL_REDUCE", 7, 1),
        ],
    ]
    ranks[0].append(node(3, "COMM_RECV", comm_src=3, comm_dst=0, comm_tag=5, comm_size=100))
    trace = trace_of(ranks, {"ep": [0, 1, 2]})
    found = sum_traffic(trace)
    assert same(found.bytes, [[NAN, 10, 10, NAN], [20, NAN, 20, NAN], [0, 0, NAN, NAN], [100, NAN, NAN, NAN]])
    assert (found.message_bytes, found.split_bytes, found.shared_bytes, found.elsewhere_bytes) == (
        100,
        0,
        60,
        28,
    )
    assert dict(found.groups) == {"ep": 60, None: 100}
    assert same(sum_traffic(trace, only="ep").bytes[3], [NAN] * 4)
    alone = sum_traffic(trace, unnamed=True)
    assert (alone.message_bytes, alone.shared_bytes, alone.bytes[3, 0]) == (100, 0, 100)
    # Of 30 and 60 bytes a third stays; with it everything the nodes are given is told.
    assert (found.kept_bytes, alone.kept_bytes) == (30, 0)


def test_the_parts_that_a_real_job_recorded_are_taken(shared: Path) -> None:
    """dlrm_4r: PyTorch recorded the parts of half of the exchanges; rows add up to what each rank gives, but for its own."""
    trace = link_recording(shared / "traces" / "torch" / "dlrm_4r")
    found = sum_traffic(trace)
    assert found.split_bytes > 0
    given = np.array([20480, 28672, 36864, 45056])
    assert (np.nansum(found.bytes, axis=1) < given).all()
    assert found.split_bytes + found.shared_bytes == int(np.nansum(found.bytes))
    assert found.elsewhere_bytes == 4 * 418896
    assert found.split_bytes + found.shared_bytes + found.kept_bytes == given.sum()


def test_roles_follow_the_distance_of_ranks() -> None:
    """Where groups do as much as each other, neighbours are tensor parallel."""
    ranks = [
        [
            collective(1, "ALL_REDUCE", 8, group=f"t{n // 2}"),
            collective(2, "ALL_REDUCE", 8, 1, group=f"d{n % 2}"),
        ]
        for n in range(4)
    ]
    roles = infer_group_roles(trace_of(ranks, {"t0": [0, 1], "t1": [2, 3], "d0": [0, 2], "d1": [1, 3]}))
    assert [(roles[name].kind, roles[name].stride) for name in ("t0", "d1")] == [("tensor", 1), ("data", 2)]


def test_neighbours_that_share_gradients_alone_are_data_parallel(shared: Path) -> None:
    """This generator numbers replicas first: groups of neighbours reduce gradients, the others activations of each layer."""
    roles = infer_group_roles(read_recording(shared / "traces" / "stg" / "llama_32r_dp4tp4pp2"))
    assert (roles["1"].kind, roles["1"].stride) == ("data", 1)
    assert (roles["9"].kind, roles["9"].stride) == ("tensor", 4)
    assert "have 5 collectives, those of ranks 4 apart 41" in roles["1"].rule
    assert "have 41 collectives, those of neighbours 5" in roles["9"].rule
    assert (roles["17"].kind, roles["17"].inferred) == ("single", False)


def test_roles_follow_what_groups_do() -> None:
    """Pipeline groups exchange messages, expert groups exchange tokens; a group of everybody is just that."""
    found = {
        name: role.kind
        for name, role in infer_group_roles(studio.read(sample_path("transformer_8r"))).items()
    }
    assert {name.rstrip("0123456789"): kind for name, kind in found.items()} == {
        "tp": "tensor", "dp": "data", "pp": "pipeline", "world": "all ranks",
    }  # fmt: skip
    assert infer_group_roles(studio.read(sample_path("imbalance_8r")))["ep0"].kind == "expert"
