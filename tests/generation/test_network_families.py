"""Networks of other families: parameters and operations as published, graphs as the closed forms."""

import json
from collections import Counter

import pytest
from click.testing import CliRunner

import studio
from studio.cli import load_command
from studio.doctor import examine
from studio.errors import ConfigError
from studio.generation.families.counts import (
    Replicas,
    count_step_flop,
    count_step_memory,
    count_step_volumes,
    split_tables,
)
from studio.generation.families.job import build_asked_network, make_network_job
from studio.generation.families.presets import find_network
from studio.sim import simulate
from tests.generated_sums import totals


@pytest.mark.parametrize(
    ("name", "parameters", "products"),
    [
        ("vit-b16", 86_567_656, 17.56),
        ("vit-l16", 304_326_632, 61.55),
        ("vit-h14", 632_045_800, 167.29),
        ("resnet50", 25_557_032, 4.09),
        ("resnet101", 44_549_160, 7.80),
        ("resnet152", 60_192_808, 11.51),
    ],
)
def test_parameters_and_operations_are_those_of_torchvision(name, parameters, products):
    """Its documentation gives both: weights, and 10^9 multiplications of an image."""
    network = find_network(name)
    assert network.parameters == parameters
    counted = sum(part.flop for part in network.parts if part.kind != "other")
    assert counted / 2e9 == pytest.approx(products, abs=0.006)


def test_the_recommendation_model_has_the_tables_of_mlperf():
    network = find_network("dlrm-dcnv2")
    assert network.tables.parameters == 204_184_588 * 128
    joined = 27 * 128
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    crosses = 3 * (2 * joined * 512 + joined)
    top = joined * 1_024 + 1_024 + 1_024**2 + 1_024 + 1_024 * 512 + 512 + 512 * 256 + 256 + 256 + 1
    assert network.dense == bottom + crosses + top


@pytest.mark.parametrize("name", ["vit-b16", "resnet50", "dlrm-dcnv2"])
@pytest.mark.parametrize("ranks", [1, 8])
def test_graphs_add_up_to_the_closed_forms(name, ranks):
    network, replicas = find_network(name), Replicas(ranks, 64 * ranks, steps=1)
    trace = make_network_job(network, replicas)
    flop, volumes = totals(trace)
    assert flop == count_step_flop(network, replicas)
    expected = Counter()
    for (group, kind), (count, size) in count_step_volumes(network, replicas).items():
        expected[group, kind, "count"], expected[group, kind, "bytes"] = count, size
    assert volumes == expected
    found = [item for item in examine(trace) if item.level != "info" or item.code == "deadlock"]
    assert not [item.message for item in found if item.code != "uneven-all-to-all"]
    assert max(simulate(trace, studio.preset("hgx-h100", npus=ranks).config).finish_ns) > 0


@pytest.mark.parametrize("ranks", [1, 8, 26, 64])
def test_every_column_of_every_table_is_on_one_rank(ranks):
    network = find_network("dlrm-dcnv2")
    held = split_tables(network.tables, ranks)
    columns = Counter()
    for mine in held:
        for table, width in mine:
            columns[table] += width
    assert all(mine for mine in held)
    assert dict(columns) == dict.fromkeys(range(26), 128)
    assert (
        count_step_memory(network, Replicas(ranks, 64 * ranks))["tables"] * ranks
        >= 4 * network.tables.parameters
    )


@pytest.mark.parametrize(
    ("name", "ranks", "given", "said"),
    [
        ("resnet51", 8, {}, "allowed of resnet: resnet50"),
        ("resnet50", 8, {"batch": 12}, "--batch is 12"),
        ("resnet50", 8, {"tp": 2}, "'tp'"),
    ],
)
def test_what_is_not_of_a_network_is_refused(name, ranks, given, said):
    with pytest.raises(ConfigError, match=said):
        build_asked_network(name, ranks, given, "resnet")


def test_the_command_writes_and_tells(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(load_command("generate"), arguments)

    done = run(
        "dlrm",
        "--model",
        "dlrm-dcnv2",
        "--ranks",
        "4",
        "--batch",
        "64",
        "-o",
        str(tmp_path / "job"),
        "--json",
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert {row["type"] for row in told["collectives"]} == {"ALL_REDUCE", "ALL_TO_ALL"}
    assert len(studio.read(tmp_path / "job").ranks) == 4
    assert "25,557,032 parameters" in run("resnet", "--model", "resnet50", "--ranks", "8").output
    for wrong in (["--ranks", "8"], ["--model", "vit-b16", "--ranks", "8", "--tp", "2"]):
        assert run("vit", *wrong).exit_code == 2


def test_the_library_takes_their_names():
    trace = studio.generate("resnet50", ranks=4, batch=64, gpu="a100", steps=2)
    assert len(trace.ranks) == 4
    assert trace.graphs[0].duration_ns.sum() > 0
