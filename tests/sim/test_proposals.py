"""Systems and algorithms that are proposed for a job."""

import numpy as np
import pytest

from studio.sim.costs import CostModel, GroupShape, Ports
from studio.sim.systems import SYSTEMS
from studio.sim.systems.proposals import propose
from studio.sim.systems.uses import uses_of
from tests.handmade import collective, recorded_on, trace_of

KIB, MIB = 1 << 10, 1 << 20


def job(ranks, groups=None):
    nodes = [collective(1, "ALL_REDUCE", KIB), collective(2, "ALL_REDUCE", 1 << 30, 1)]
    if groups:
        nodes.append(collective(3, "ALL_TO_ALL", MIB, 2, group="7"))
    return trace_of([nodes] * ranks, groups)


def test_uses_are_the_sizes_by_kind_and_group():
    uses = uses_of(job(16, {"7": range(16)}))
    assert uses.ranks == 16
    assert {key: sizes.tolist() for key, sizes in uses.sizes.items()} == {
        ("all_reduce", ""): [KIB, 1 << 30],
        ("all_to_all", "7"): [MIB],
    }


@pytest.mark.parametrize(
    ("device", "family"),
    [
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H200", "hgx-h200"),
        ("NVIDIA H100 80GB HBM3", "hgx-h100"),
        ("NVIDIA A100-SXM4-80GB", "hgx-a100"),
        ("Tesla V100-SXM3-32GB", "dgx-2"),
        ("Tesla V100-SXM2-16GB", "dgx-v100"),
        ("NVIDIA GB200", "gb200-nvl72"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_the_machine_a_job_was_recorded_on_comes_first(device, family):
    first = propose(recorded_on(job(8), device))[0]
    assert (first.system, first.npus) == (family, 8)
    assert first.why.startswith(f"The job was recorded on {device}.")


@pytest.mark.parametrize("ranks", [1, 7, 8, 64, 2000])
def test_what_is_proposed_fits_and_says_why(ranks):
    found = propose(job(ranks))
    assert len({one.system for one in found}) == len(found) == 6
    for one in found:
        assert SYSTEMS[one.system].fits(ranks)
        assert one.why.endswith(".")
        assert one.measured_error
        assert all(choice.why.endswith(".") for choice in one.algorithms)


def test_groups_that_cross_nodes_are_counted():
    trace = job(16, {"7": range(8), "8": range(8, 16)})
    why = propose(recorded_on(trace, "H100"))[0].why
    assert "16 ranks are 2 nodes of 8; 1 of 2 groups crosses nodes." in why


def test_the_algorithm_of_a_system_with_costs_is_the_one_its_library_takes():
    first = propose(recorded_on(job(16), "H100"))[0]
    model = CostModel.from_table(SYSTEMS["hgx-h100"].costs)
    charge = model.charge(
        "all_reduce", np.array([1024.0, 2.0**30]), GroupShape(16, 8, 2), Ports(450, 0, 50, 0, 8)
    )
    taken = [charge.choices[index] for index in charge.choice.tolist()]
    assert taken[0] != taken[1]
    assert [(one.algorithm, one.least_bytes, one.most_bytes) for one in first.algorithms] == [
        (taken[0], KIB, KIB),
        (taken[1], 1 << 30, 1 << 30),
    ]
    assert {choice.dimension for choice in first.algorithms} == {None}


def algorithms_by_dimension(proposal):
    """Return the algorithm of each collective in each dimension, which must not depend on the size."""
    found = {(choice.kind, choice.dimension): choice.algorithm for choice in proposal.algorithms}
    assert len(found) == len(proposal.algorithms)
    return found


def test_on_links_each_dimension_has_an_algorithm_that_suits_it():
    """A ring sends to neighbours; behind a switch halving and doubling takes fewer steps, but wants a power of two."""
    [even] = propose(job(64, {"7": range(64)}), [SYSTEMS["trainium2"]])
    assert algorithms_by_dimension(even) == {
        ("all_reduce", 0): "ring", ("all_reduce", 1): "ring", ("all_reduce", 2): "halvingDoubling",
        ("all_to_all", 0): "ring", ("all_to_all", 1): "ring", ("all_to_all", 2): "direct",
    }  # fmt: skip
    [odd] = propose(job(48), [SYSTEMS["trainium2"]])
    assert algorithms_by_dimension(odd) == {("all_reduce", place): "ring" for place in range(3)}
