"""What is written for the reference simulator is what it reads, and says what was left out."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.commands.base.for_astra_sim import adapt_for_astra_sim
from studio.sim import simulate
from studio.sim.check import check
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.trace import NodeType, read_int_column
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled


def compatible(npus: int) -> SystemConfig:
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    dims = (Dimension("switch", npus, 25.0, 500.0),)
    return SystemConfig(Topology(dims), algorithms=dict.fromkeys(kinds, (Algorithm("ring"),)))


def test_what_the_reference_stops_at_goes_and_is_counted():
    """Node 4 waited for the barrier, which waited for the METADATA node; it now waits for node 1."""
    nodes = [
        node(1, "COMP", micros=2),
        node(2, "METADATA", 1),
        collective(3, "BARRIER", 0, 2, group="tp"),
        node(4, "COMP", 3, micros=1),
        collective(5, "ALL_GATHER", 0, 1, group="0"),
        collective(6, "ALL_REDUCE", 64, 1, group="tp", is_cpu_op=True),
        collective(7, "ALL_REDUCE", 64, 6, group="7"),
    ]
    trace = trace_of([nodes, nodes], {"0": [0, 1], "tp": [0, 1], "7": [1, 0]})
    made = adapt_for_astra_sim(trace)
    [graph] = made.graphs
    assert graph.id.tolist() == [1, 4, 6, 7]
    assert graph.data.of(1).tolist() == [0]
    assert {(group.name, group.ranks) for group in made.groups} == {("8", (0, 1)), ("7", (1, 0))}
    assert [set(rank.slots) - {"0"} for rank in made.ranks] == [{"8", "7"}] * 2
    rows, values = read_int_column(graph, "is_cpu_op")
    assert not values[graph.type[rows] == NodeType.COMM_COLL].any()
    text = " ".join(finding.message for finding in made.findings)
    for part in (
        "2 METADATA nodes left out",
        "2 BARRIER collectives left out",
        "2 all-gathers of 0 bytes left out",
        "2 communication nodes no longer marked",
        "'tp' is 8",
        "the comm group of all ranks is not listed",
    ):
        assert part in text
    assert not [finding for finding in check(made, compatible(2)) if finding.level == "error"]


def test_a_trace_the_reference_takes_stays_as_it_is():
    trace = trace_of([[node(1, "COMP"), collective(2, "ALL_REDUCE", 64, 1, group="3")]] * 2, {"3": [0, 1]})
    made = adapt_for_astra_sim(trace)
    assert made == trace
    assert made.findings == trace.findings


def test_uneven_all_to_alls_are_told():
    ranks = [[collective(1, "ALL_TO_ALL", size)] for size in (64, 128)]
    [finding] = adapt_for_astra_sim(trace_of(ranks)).findings
    assert "different sizes" in finding.message


@pytest.mark.parametrize("run", ["torch/ddp_mlp_4r", "torch/fsdp_gpt_2r", "torch/pp_2r", "torch_synthetic_device/ddp_mlp_4r"])  # fmt: skip
def test_linked_jobs_written_for_the_reference_run_in_its_mode(shared, tmp_path, run):
    """The compatible mode refuses what the reference does."""
    out = tmp_path / "out"
    done = CliRunner().invoke(
        main, ["link", str(shared / "traces" / run), "-o", str(out), "--for", "astra-sim", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert any("METADATA nodes left out" in one["message"] for one in json.loads(done.stdout)["findings"])
    trace = studio.read(out)
    config = compatible(len(trace.ranks))
    assert not [finding for finding in check(trace, config) if finding.level == "error"]
    assert (simulate(trace, config, native=compiled()).finish_ns > 0).all()
    assert not any("0" in json.loads(path.read_text()) for path in out.glob("*.json"))
