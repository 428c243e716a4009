"""Runs are kept with their job: whole, exact, and gone when it goes."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from studio.analysis.job.accounting import TimedRun, build_ledger
from studio.errors import ConfigError, StudioError, TraceError
from studio.sim import simulate
from studio.sim.astra import from_parts
from studio.sim.config import Dimension, Topology
from studio.sim.parts import NO_CUSTOM, CustomAlgorithms, Parts, build_parts, interpret
from studio.sim.presets import preset
from studio.sim.result import SimResult, compute_ledger
from studio.sim.setting_edits import with_settings
from studio.sim.traffic import DimensionTraffic, LinkTraffic
from studio.store.run_infos import LAYOUT
from studio.store.runs import Run, compute_config_digest
from studio.store.workspace import Workspace
from studio.trace import compute_trace_digest
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 2,
    "all-reduce-implementation": ["ring"],
}
PARTS = Parts(NETWORK, SYSTEM)


def job():
    """Four ranks; the first computes longer, all of them reduce."""

    def nodes(micros):
        return [node(1, "COMP", micros=micros), collective(2, "ALL_REDUCE", 1 << 20, 1)]

    return trace_of([nodes(100), nodes(10), nodes(10), nodes(10)])


def run_of(trace, parts=PARTS, name="fast ring", custom=NO_CUSTOM) -> Run:
    return Run(name, simulate(trace, interpret(parts, custom).config, native=compiled()), parts, 0.25)


@pytest.fixture(scope="module")
def made():
    trace = job()
    return trace, run_of(trace)


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path / "ws")


@pytest.fixture
def stored(workspace, made):
    trace, run = made
    job_id = workspace.save(trace, "job")
    return workspace, job_id, workspace.save_run(job_id, run)


def assert_equal(one: SimResult, other: SimResult) -> None:
    for spec in dataclasses.fields(one):
        assert_alike(getattr(one, spec.name), getattr(other, spec.name), spec.name)


def assert_alike(mine, theirs, name):
    if isinstance(mine, np.ndarray):
        assert (mine.dtype, mine.tolist()) == (theirs.dtype, theirs.tolist()), name
    elif isinstance(mine, LinkTraffic | DimensionTraffic):
        assert_equal(mine, theirs)
    elif isinstance(mine, tuple):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            assert_alike(a, b, name)
    else:
        assert mine == theirs, name


# ---------------------------------------------------------------------------------------------------
# What is kept


def test_a_run_comes_back_as_it_was(stored, made):
    workspace, job_id, run_id = stored
    trace, run = made
    loaded = workspace.load_run(job_id, run_id)
    assert_equal(run.result, loaded.result)
    assert loaded.result.trace == trace
    assert (loaded.name, loaded.spent_s, loaded.parts) == (run.name, run.spent_s, run.parts)


def test_a_run_with_a_cost_model_comes_back_with_every_cost(workspace):
    """What each collective's time went to is worked out anew from what was stored."""
    parts = with_settings(preset("hgx-h100-4").under("full"), ["roofline-enabled=0", "costs.algorithm=ring"])
    trace = job()
    run = run_of(trace, parts)
    job_id = workspace.save(trace, "job")
    loaded = workspace.load_run(job_id, workspace.save_run(job_id, run))
    assert_equal(run.result, loaded.result)
    assert loaded.result.config.costs.algorithm == "ring"
    before, after = run.result.communication(), loaded.result.communication()
    assert after.latency_ns.tolist() == before.latency_ns.tolist()
    assert after.flows.total_ns.tolist() == before.flows.total_ns.tolist()
    assert len(loaded.result.links) == 0


def test_the_use_of_ranks_from_their_times_is_what_the_simulation_says(made):
    trace, run = made
    use = build_ledger(TimedRun(trace, run.result.node_times(), run.result.finish_ns + 7, origin_ns=-7))
    assert use.numbers == [0, 1, 2, 3]
    found, expected = use.totals(), compute_ledger(run.result).totals()
    for name, column in expected.columns().items():
        later = 7 if name in ("stall_ns", "idle_ns") else 0
        assert np.array_equal(found.columns()[name], column + later), name


def test_the_list_says_what_was_simulated_on_what_and_what_came_out(stored, made):
    workspace, job_id, run_id = stored
    trace, run = made
    [info] = workspace.runs(job_id)
    assert info == workspace.run_info(job_id, run_id)
    assert (info.id, info.job, info.name) == (run_id, job_id, "fast ring")
    assert info.tables == PARTS
    assert (info.mode, info.congestion, info.npus, info.simulated) == ("compatible", "unaware", 4, 4)
    assert info.makespan_ns == run.result.makespan_ns
    assert info.summary.means["compute_ns"] == (100_000 + 3 * 10_000) / 4
    assert info.summary.exposed_ns == compute_ledger(run.result).totals().exposed_ns.mean()
    assert info.summary.events == 16
    assert info.trace_hash == compute_trace_digest(trace)
    folder = workspace.root / "jobs" / job_id / "runs" / run_id
    files = sum(path.stat().st_size for path in folder.iterdir() if path.name != "run.json")
    assert info.stored_bytes == files
    assert files < workspace.info(job_id).runs_bytes <= files + 4096


def test_an_extended_aware_run_with_memory_groups_and_options_comes_back(workspace):
    """Every table is used, and a setting of every table counts in the configuration that comes back."""
    parts = Parts(
        {"topology": ["Switch"], "npus_count": [4], "bandwidth": [37.3], "latency": [0.7]},
        {**SYSTEM, "extended": {"tie-order": "reference", "compute-speeds": {"3": 0.9}}},
        {"memory-type": "MEMORY_POOL", "remote-mem-latency": 7, "remote-mem-bw": 3},
        {"7": [0, 1, 2, 3]},
        {"num-queues-per-dim": 2},
        "aware",
        names={"network": "my.yml"},
    )
    config = interpret(parts).config
    result = replace(
        simulate(job(), interpret(replace(PARTS, congestion="aware")).config, native=compiled()),
        config=config,
    )
    job_id = workspace.save(job(), "job")
    run_id = workspace.save_run(job_id, Run("all", result, parts))
    loaded = workspace.load_run(job_id, run_id)
    assert loaded.result.config == config
    assert loaded.parts == parts
    assert_equal(loaded.result, result)
    assert workspace.run_info(job_id, run_id).mode == "extended"


def test_rates_that_no_table_can_say_come_back_exactly(workspace):
    """One rate in fourteen has no number of GB/s that is read as exactly it; the configuration is the same all the same."""
    rates = [math.sqrt(at) for at in range(2, 400)]
    odd = next(
        config
        for config in (
            replace(interpret(PARTS).config, topology=Topology((Dimension("ring", 4, rate, 500),)))
            for rate in rates
        )
        if interpret(build_parts(config)).config != config
    )
    result = simulate(job(), odd, native=compiled())
    job_id = workspace.save(job(), "job")
    run_id = workspace.save_run(job_id, Run("odd", result, build_parts(odd)))
    assert workspace.load_run(job_id, run_id).result.config == odd


def test_algorithms_given_as_traces_are_kept_too(workspace):
    def side(own, other):
        return [node(1, "COMM_SEND", comm_dst=other, comm_size=64, comm_tag=own),
                node(2, "COMM_RECV", comm_src=other, comm_size=64, comm_tag=other)]  # fmt: skip

    custom = trace_of([side(0, 1), side(1, 0), side(2, 3), side(3, 2)])
    system = {**SYSTEM, "preferred-dataset-splits": 1}
    parts = replace(PARTS, system=system)
    run = run_of(job(), parts, custom=CustomAlgorithms({"all_reduce": custom}, {12: custom}))
    job_id = workspace.save(job(), "job")
    loaded = workspace.load_run(job_id, workspace.save_run(job_id, run))
    assert loaded.result.config == run.result.config
    assert loaded.parts == parts


def test_tables_are_stored_under_the_names_they_always_had():
    """Runs, drafts and simulations of earlier versions are read, and earlier versions read these."""
    stored = msgspec.json.decode(msgspec.json.encode(PARTS))
    assert list(stored) == ["network", "system", "memory", "groups", "options", "congestion", "names"]
    assert msgspec.json.decode(msgspec.json.encode(stored), type=Parts) == PARTS


def test_tables_of_another_system_are_refused_and_nothing_is_left_behind(workspace, made):
    trace, run = made
    job_id = workspace.save(trace, "job")
    other = replace(PARTS, network={**NETWORK, "latency": [501]})
    with pytest.raises(ConfigError, match="do not describe the system"):
        workspace.save_run(job_id, replace(run, parts=other))
    assert workspace.runs(job_id) == []
    assert list((workspace.root / "tmp").iterdir()) == []


def test_equal_configurations_have_equal_hashes_and_others_have_others():
    config = interpret(PARTS).config
    assert compute_config_digest(config) == compute_config_digest(interpret(build_parts(config)).config)
    others = [
        replace(config, splits=3),
        replace(config, custom_nodes={1: job()}),
        from_parts({**NETWORK, "latency": [501]}, SYSTEM),
        from_parts(NETWORK, {**SYSTEM, "extended": {}}),
    ]
    assert len({compute_config_digest(one) for one in [config, *others]}) == 5


# ---------------------------------------------------------------------------------------------------
# Runs come and go


def test_runs_are_listed_newest_first_and_renamed(stored, made):
    workspace, job_id, first = stored
    second = workspace.save_run(job_id, replace(made[1], name="second"))
    assert [run.id for run in workspace.runs(job_id)] == [second, first]
    assert workspace.rename_run(job_id, first, "  other\n name ").name == "other name"
    assert [run.name for run in workspace.runs(job_id)] == ["second", "other name"]
    assert workspace.load_run(job_id, first).name == "other name"
    with pytest.raises(StudioError, match="A run needs a name"):
        workspace.rename_run(job_id, first, " ")
    assert workspace.info(job_id).runs == 2


def test_a_deleted_run_can_be_restored_and_a_day_later_is_gone(stored):
    workspace, job_id, run_id = stored
    workspace.delete_run(job_id, run_id)
    assert workspace.runs(job_id) == []
    assert workspace.info(job_id).runs_bytes == 0
    workspace.restore_run(job_id, run_id)
    assert [run.id for run in workspace.runs(job_id)] == [run_id]
    workspace.delete_run(job_id, run_id)
    [trash] = (workspace.root / "trash").iterdir()
    os.utime(trash, (1, 1))
    again = Workspace(workspace.root)
    with pytest.raises(StudioError, match="has no run"):
        again.restore_run(job_id, run_id)


def test_a_job_takes_its_runs_along(stored):
    workspace, job_id, run_id = stored
    workspace.delete(job_id)
    for use in (
        workspace.runs,
        lambda job: workspace.load_run(job, run_id),
        lambda job: workspace.delete_run(job, run_id),
    ):
        with pytest.raises(StudioError, match="There is no job"):
            use(job_id)
    workspace.restore(job_id)
    assert workspace.load_run(job_id, run_id).name == "fast ring"


def test_a_run_for_a_job_that_is_gone_leaves_nothing_behind(workspace, made):
    with pytest.raises(StudioError, match="There is no job 'gone'"):
        workspace.save_run("gone", made[1])
    assert list((workspace.root / "tmp").iterdir()) == []
    assert list((workspace.root / "jobs").iterdir()) == []


def test_a_run_that_is_not_there_is_named_with_the_nearest(stored):
    workspace, job_id, run_id = stored
    with pytest.raises(StudioError) as caught:
        workspace.load_run(job_id, run_id[:-1])
    assert run_id in caught.value.hint
    for odd in ("", "..", "../..", "a/b", "A", "x" * 200):
        for use in (workspace.run_info, workspace.delete_run, workspace.restore_run):
            with pytest.raises(StudioError, match="has no run"):
                use(job_id, odd)
    assert [job.id for job in workspace.jobs()] == [job_id]


def test_links_out_of_the_workspace_are_no_runs(stored, tmp_path):
    workspace, job_id, run_id = stored
    runs = workspace.root / "jobs" / job_id / "runs"
    (runs / run_id).rename(tmp_path / "elsewhere")
    (runs / run_id).symlink_to(tmp_path / "elsewhere")
    assert workspace.runs(job_id) == []
    with pytest.raises(StudioError, match="has no run"):
        workspace.delete_run(job_id, run_id)


# ---------------------------------------------------------------------------------------------------
# Damage


def edit(path, change):
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


DAMAGE = {
    "no events": lambda folder: (folder / "events.arrow").unlink(),
    "events cut": lambda folder: os.truncate(folder / "events.arrow", 400),
    "no result": lambda folder: (folder / "result.json").unlink(),
    "an array missing": lambda folder: edit(folder / "result.json", lambda r: r["kinds"].update(x="<i8")),
    "a field missing": lambda folder: edit(folder / "result.json", lambda r: r["fields"].pop("finish_ns")),
    "another kind of array": lambda folder: edit(
        folder / "result.json", lambda r: r["kinds"].update(event_ns="??")
    ),
    "a table that means nothing": lambda folder: edit(
        folder / "run.json", lambda r: r["tables"]["network"].clear()
    ),
    "no list": lambda folder: (folder / "run.json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_told_and_never_a_traceback(stored, damage):
    workspace, job_id, run_id = stored
    DAMAGE[damage](workspace.root / "jobs" / job_id / "runs" / run_id)
    with pytest.raises(TraceError, match=r"Run .* damaged"):
        workspace.load_run(job_id, run_id)
    assert len(workspace.runs(job_id)) == (damage != "no list")
    workspace.delete_run(job_id, run_id)


def test_every_flipped_bit_of_a_run_is_noticed(workspace, made):
    trace, _ = made
    parts = PARTS
    custom = CustomAlgorithms({}, {12: trace_of([[node(1, "COMP", micros=1)]])})
    job_id = workspace.save(trace, "job")
    run_id = workspace.save_run(
        job_id, Run("odd", replace(made[1].result, config=interpret(parts, custom).config), parts)
    )
    folder = workspace.root / "jobs" / job_id / "runs" / run_id
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(paths) == 5
    for path in paths:
        whole = path.read_bytes()
        bits = 8 * len(whole)
        for place in [*range(0, bits, bits // 40), *range(bits - 192, bits, 7)]:
            raw = bytearray(whole)
            raw[place // 8] ^= 1 << place % 8
            path.write_bytes(raw)
            with pytest.raises(TraceError, match=f"Run {run_id}: .* damaged \\({path.name}: "):
                workspace.load_run(job_id, run_id)
        path.write_bytes(whole)
    assert workspace.load_run(job_id, run_id).parts == parts


def test_a_run_of_a_newer_studio_is_told(stored):
    workspace, job_id, run_id = stored
    path = workspace.root / "jobs" / job_id / "runs" / run_id / "run.json"
    edit(path, lambda info: info.update(layout=LAYOUT + 1, summary=None))
    with pytest.raises(TraceError, match="a newer Chakra Studio has stored it"):
        workspace.load_run(job_id, run_id)
