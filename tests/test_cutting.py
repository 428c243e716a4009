"""Parts of jobs: the Doctor finds no error in them, they are simulated to their end, and what was cut is counted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.analysis.collectives.matching import list_edges
from studio.analysis.job.windows import step_numbers
from studio.cutting import Choice, Cut, cut
from studio.doctor.checks import run_checks
from studio.errors import ConfigError, TraceError
from studio.et import read, write
from studio.sim.parts import NO_CUSTOM, Parts, interpret
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.trace import Trace
from tests.handmade import collective, node, trace_of
from tests.test_cli import refused, run


def sound(part: Cut, folder: Path) -> Trace:
    """The part as its files are read again, without errors, and simulated to its end."""
    write(part.trace, folder, "part")
    again = read(folder)
    assert [rank.number for rank in again.ranks] == list(range(len(part.ranks)))
    assert again.node_count == part.trace.node_count
    assert not [f.message for f in run_checks(again).diagnoses if f.level == "error"]
    system = (
        studio.preset("hgx-h100", npus=max(len(again.ranks), 2))
        .config.with_extensions()
        .with_recorded_times()
    )
    result = studio.simulate(again, system, native=False, fold=True)
    assert all(finish >= 0 for finish in result.finish_ns.tolist())
    for file in folder.iterdir():
        file.unlink()
    return again


def random_choice(trace: Trace, chance: random.Random) -> Choice:
    """Something to cut out of a job."""
    numbers = [rank.number for rank in trace.ranks]
    starts = np.concatenate([graph.start_ns[graph.start_ns >= 0] for graph in trace.graphs])
    kinds = ["ranks", "around", *(["window"] * (len(starts) > 0)), *(["steps"] * bool(step_numbers(trace)))]
    kind = chance.choice(kinds)
    some = frozenset(chance.sample(numbers, chance.randint(1, len(numbers))))
    if kind == "ranks":
        return Choice(ranks=some)
    if kind == "steps":
        return Choice(steps=frozenset({chance.choice(step_numbers(trace))}))
    if kind == "window":
        last = int(starts.max() - starts.min())
        low = chance.randint(0, last // 2)
        return Choice(from_ns=low, to_ns=low + last // 3, ranks=chance.choice([None, some]))
    rank = chance.choice(trace.ranks)
    ref = str(chance.choice(trace.graph_of(rank).id.tolist()))
    return Choice(around=(rank.number, ref), depth=chance.randint(0, 9))


@pytest.mark.parametrize(
    "name", ["stg/llama_8r_dp2tp2pp2", "stg/llama_8r_dp8_fsdp", "torch/pp_2r", "torch/dp2tp2_mlp_4r", "public/astra-sim/custom_ring_allreduce_8npus_1MB"]
)  # fmt: skip
def test_parts_of_shared_jobs_are_sound(shared: Path, tmp_path: Path, name: str):
    trace = read(sorted((shared / "traces" / name).glob("*.et*")) or shared / "traces" / name)
    chance = random.Random(name)
    cuts = 0
    for _ in range(4):
        choice = random_choice(trace, chance)
        try:
            part = cut(trace, choice)
        except TraceError as error:
            assert "Nothing is left" in error.message  # noqa: PT017 - the choice is random
            continue
        cuts += 1
        assert 0 < part.trace.node_count <= trace.node_count
        sound(part, tmp_path)
    assert cuts


def test_ranks_keep_one_order_where_only_what_goes_had_seen_to_it(shared: Path, tmp_path: Path):
    # The receive from the stage before is left of one rank alone; the others could begin another all-gather first.
    trace = read(shared / "traces" / "stg" / "llama_16r_tp4pp4_recompute")
    part = cut(trace, Choice(around=(10, "750"), depth=4))
    assert part.ordered > 0
    sound(part, tmp_path)


def test_dependencies_lead_over_what_goes_and_communication_stays_whole(tmp_path: Path):
    ranks = [
        [
            node(1, "COMP", micros=5),
            node(2, "COMP", 1, micros=5, name="step 1/a"),
            collective(3, "ALL_REDUCE", 64, 2, group="all"),
            node(4, "COMM_SEND", 3, comm_dst=(rank + 1) % 3, comm_size=8, comm_tag=rank),
            node(5, "COMM_RECV", 3, comm_src=(rank - 1) % 3, comm_size=8, comm_tag=(rank - 1) % 3),
            node(6, "COMP", 4, 5, 99, micros=5, name="step 2/b"),
        ]
        for rank in range(3)
    ]
    trace = trace_of(ranks, {"all": [2, 1, 0], "other": [1]})
    part = cut(trace, Choice(ranks=frozenset({0, 2})))
    assert part.ranks == (0, 2)
    # Rank 0 sends to 1, and 2 to 0: of the four halves two are left, of ranks 1 and 0.
    assert (part.messages, part.collectives, part.dangling) == (2, 0, 2)
    assert (part.shrunk, part.shrunk_collectives) == (1, 1)
    assert {group.name: group.ranks for group in part.trace.groups} == {"all": (1, 0)}
    graph = part.trace.graph_of(0)
    assert graph.id.tolist() == [1, 2, 3, 5, 6]
    waits = {(int(graph.id[a]), int(graph.id[b])) for a, b in zip(*list_edges(graph.data), strict=True)}
    # 6 waited for 4, which is gone and waited for 3.
    assert waits == {(2, 1), (3, 2), (5, 3), (6, 5), (6, 3)}
    sound(part, tmp_path)

    middle = cut(trace, Choice(nodes=((0, "1"), (0, "6"))))
    assert middle.trace.graph_of(0).id.tolist() == [1, 6]
    assert (middle.bridged, middle.satisfied, middle.emptied) == (1, 0, (1, 2))
    joined = cut(trace, Choice(around=(1, "3"), depth=0))
    assert joined.ranks == (0, 1, 2)
    assert (joined.joined, joined.trace.node_count) == (2, 3)
    assert (joined.shrunk, joined.shrunk_collectives) == (0, 0)
    # Nodes that name no step are of the latest that they wait for, the first ones of the first.
    first = cut(trace, Choice(steps=frozenset({1})))
    assert first.trace.graph_of(0).id.tolist() == [1, 2, 3, 4, 5]
    assert cut(trace, Choice(steps=frozenset({2}))).trace.graph_of(1).id.tolist() == [6]


def test_what_is_not_there_is_refused():
    trace = trace_of([[node(1, "COMP"), collective(2, "ALL_REDUCE", 8, 1)], [collective(1, "ALL_REDUCE", 8)]])
    with pytest.raises(ConfigError, match="nothing says what"):
        cut(trace, Choice())
    with pytest.raises(ConfigError, match="no ranks 2, 7; allowed: ranks 0–1"):
        cut(trace, Choice(ranks=frozenset({0, 2, 7})))
    with pytest.raises(ConfigError, match="no marked steps"):
        cut(trace, Choice(steps=frozenset({1})))
    with pytest.raises(ConfigError, match="no node of the job has a start"):
        cut(trace, Choice(from_ns=1))
    with pytest.raises(TraceError, match="no node '9'"):
        cut(trace, Choice(nodes=((0, "9"),)))
    with pytest.raises(ConfigError, match="node 1 is of rank 1"):
        cut(trace, Choice(nodes=((1, "1"),), ranks=frozenset({0})))


def test_the_command_says_what_became_of_the_job(tmp_path: Path):
    job = studio.sample_path("transformer_8r")
    told = json.loads(
        run(
            "cut", job, "-o", tmp_path / "out", "--ranks", "2-3,6", "--from", "5ms", "--to", "20ms", "--json"
        ).stdout
    )
    assert [row["was"] for row in told["ranks"]] == [2, 3, 6]
    assert told["nodes"] == read(tmp_path / "out").node_count < told["nodes_before"]
    assert told["groups"] < told["groups_before"]
    assert (
        "ranks are numbered anew; they were 4, 5"
        in run("cut", job, "-o", tmp_path / "b", "--ranks", "4-5").stdout
    )
    assert run("cut", job, "-o", tmp_path / "c", "--ranks", "4-5", "--quiet").stdout == ""
    assert (
        "comm groups shrunk to the ranks that are left: what was waited for ranks outside in"
        in run("cut", job, "-o", tmp_path / "s", "--ranks", "0-4").stdout
    )
    assert "no such" not in refused("cut", job, "-o", tmp_path / "d", "--around", "0", code=2)
    assert "such as 0-3,8" in refused("cut", job, "-o", tmp_path / "d", "--ranks", "0-9999999999", code=2)
    assert "one node" in refused("cut", job, "-o", tmp_path / "d", "--around", "0:1,0:2", code=2)
    assert "read from this folder" in refused("cut", tmp_path / "b", "-o", tmp_path / "b", "--ranks", "0")
    assert not (tmp_path / "d").exists()


def test_windows_of_a_run_are_cut_with_its_times_or_those_of_the_trace(tmp_path: Path):
    """They tile the job; times are counted from the beginning of the run, and are its own where that is asked for."""

    def nodes(micros: int) -> list:
        return [
            node(1, "COMP", micros=micros),
            collective(2, "ALL_REDUCE", 1 << 20, 1),
            node(3, "COMP", 2, micros=7),
        ]

    trace = trace_of([nodes(100), nodes(10)])
    network = {"topology": ["FullyConnected"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "all-reduce-implementation": ["ring"],
    }
    parts = Parts(network, system, congestion="aware")
    config = interpret(parts, NO_CUSTOM).config
    result = studio.simulate(trace, config, native=False)
    workspace = Workspace(tmp_path / "w")
    job = workspace.save(trace, "small job")
    workspace.save_run(job, Run("fast", result, parts, 0.25))
    first, last = (
        cut(trace, choice, result.node_times()) for choice in (Choice(to_ns=50_000), Choice(from_ns=50_000))
    )
    # By then rank 1 waits in the all-reduce, which is whole in neither half.
    assert [first.trace.node_count, first.collectives, last.trace.node_count] == [2, 1, 2]
    whole = cut(trace, Choice(from_ns=0), result.node_times())
    assert studio.simulate(whole.trace, config, native=False).makespan_ns == result.makespan_ns

    words = ("-o", tmp_path / "out", "--from", "0us", "--workspace", tmp_path / "w")
    assert "times are of the run fast, durations of the trace" in run("cut", "small job/fast", *words).stdout
    assert read(tmp_path / "out").graph_of(1).start_ns.tolist() == [-1, -1, -1]
    told = json.loads(run("cut", "fast", *words, "--durations", "run", "--json").stdout)
    assert (told["run"], told["durations"], told["nodes"]) == ("fast", "run", 6)
    again = read(tmp_path / "out")
    start, end = result.node_times().of_nodes(trace)
    assert [again.graph_of(r).start_ns.tolist() for r in (0, 1)] == start.reshape(2, 3).tolist()
    assert [again.graph_of(r).duration_ns.tolist() for r in (0, 1)] == (end - start).reshape(2, 3).tolist()
    assert "is no run" in refused("cut", "small job/recorded", *words, "--durations", "run")
    assert "beginning of the run" in refused("cut", "fast", *words[:2], *words[4:], "--from", "1s")
