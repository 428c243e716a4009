from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.commands.base.given_job import is_soon_read, read_job
from studio.commands.base.simulation_request import SimulationRequest
from studio.commands.base.time_limit import TimeLimit
from studio.errors import TraceError
from studio.et import write
from studio.sim.astra import read_yaml
from studio.sim.presets import PRESETS
from studio.sim.systems import FOLDER, write_system
from studio.store.workspace import Workspace
from tests.handmade import collective, node, trace_of

NETWORK = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 4,
    "endpoint-delay": 10,
    "local-mem-bw": 1600,
    "all-reduce-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
}
MIB = 1 << 20
# The example of the reference's rules: reduce-scatter, 4 ranks, 1 MiB, 4 splits takes 22,240 ns.
REDUCE_SCATTER = 22_240


def job(groups=None, **first):
    """Four ranks: 100 µs of compute on rank 0, 10 µs on the others, then a reduce-scatter."""

    def nodes(micros):
        return [node(0, "COMP", micros=micros, name="fwd, x=1\nend"), collective(1, "REDUCE_SCATTER", MIB, 0)]

    return trace_of([nodes(100), nodes(10), nodes(10), nodes(10)], groups)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A job's traces and a system's files."""
    write(job(), tmp_path / "job", "job")
    (tmp_path / "n.yml").write_text(NETWORK, encoding="utf-8")
    (tmp_path / "s.json").write_text(json.dumps(SYSTEM), encoding="utf-8")
    return tmp_path


def invoke(*words, code=0):
    result = CliRunner().invoke(main, ["simulate", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def on(folder, *words, code=0):
    return invoke(*words, "--system", folder / "s.json", "--network", folder / "n.yml", code=code)


def told(folder, *words):
    return json.loads(on(folder, *words, "--json"))


def test_a_folder_is_simulated_and_told_in_a_table(folder):
    """Ranks 1 to 3 wait 90 µs for rank 0: communication that no compute covers."""
    text = on(folder, folder / "job")
    assert "4 NPUs: Ring 4 (50 GiB/s, 500 ns), model astra-sim unaware\n" in text
    assert f"finish  122 µs  ({100_000 + REDUCE_SCATTER:,} ns)" in text
    assert re.search(r"compute +10\.0 µs +32\.5 µs +100 µs +26\.6 %", text)
    assert re.search(r"exposed communication +22\.2 µs", text)
    assert "last to finish   rank 0 122 µs" in text


def test_json_has_everything_in_nanoseconds(folder):
    report = told(folder, folder / "job")
    assert report["finish_ns"] == 100_000 + REDUCE_SCATTER
    assert report["events"] == 16
    late, waiting = report["ranks"][0], report["ranks"][2]
    assert late["compute_ns"] == 100_000
    assert late["exposed_communication_ns"] == late["communication_ns"] == REDUCE_SCATTER
    assert waiting["compute_ns"] == 10_000
    assert waiting["exposed_communication_ns"] > 90_000
    assert waiting["reference"]["gpu"] == 10_000
    assert report["config"]["system"]["preferred-dataset-splits"] == 4


@pytest.mark.parametrize("form", ["prefix", "files", "job"])
def test_a_workload_may_be_a_prefix_files_or_a_job_of_the_workspace(folder, form):
    words = {
        "prefix": lambda: [folder / "job" / "job"],
        "files": lambda: sorted((folder / "job").glob("*.et")),
        "job": lambda: [Workspace(folder / "ws").save(job(), "mine"), "--workspace", folder / "ws"],
    }[form]()
    assert told(folder, *words)["finish_ns"] == 100_000 + REDUCE_SCATTER


def test_comm_groups_beside_the_traces_count_and_a_file_replaces_them(folder):
    """A prefix finds <prefix>.json; --comm-groups is another list."""
    nodes = [collective(1, "REDUCE_SCATTER", MIB, group="7")]
    write(trace_of([nodes] * 4, {"7": [0, 1, 2, 3]}), folder / "grouped", "g")
    assert told(folder, folder / "grouped" / "g")["finish_ns"] == REDUCE_SCATTER
    (folder / "groups.json").write_text('{"7": [0, 1]}', encoding="utf-8")
    text = on(folder, folder / "grouped" / "g", "--comm-groups", folder / "groups.json", code=1)
    assert "Nodes of ranks 2–3 name group 7, whose members are ranks 0–1." in text


def test_settings_and_options_have_the_last_word(folder):
    """One split instead of four; no endpoint delay key, so 10 ns whatever the scale."""
    plain = told(folder, folder / "job")
    more = told(
        folder,
        folder / "job",
        "--set",
        "preferred-dataset-splits=1",
        "--injection-scale",
        "2",
        "--num-queues-per-dim=2",
    )
    assert more["config"]["system"]["preferred-dataset-splits"] == 1
    assert more["config"]["options"] == {
        "num-queues-per-dim": 2,
        "injection-scale": 2,
        "rendezvous-protocol": False,
    }
    assert more["finish_ns"] != plain["finish_ns"]


def test_links_are_told_where_messages_wait_for_each_other(folder):
    """Each of four streams sends three messages of 64 KiB clockwise, and nothing back."""
    report = told(folder, folder / "job", "--congestion", "aware")
    assert [link["link"] for link in report["links"]][:5] == ["0 → 1", "1 → 2", "2 → 3", "3 → 0", "0 → 3"]
    assert [link["bytes"] for link in report["links"]] == [12 * 65_536] * 4 + [0] * 4
    assert "busiest links" in on(folder, folder / "job", "--congestion", "aware")


def test_events_are_lines_that_timeline_tools_read(folder):
    """In order, issue before callback, a name on one line."""
    text = on(folder, folder / "job", "--events", folder / "events.csv")
    assert ", every rank simulated, for the order of events across ranks\n" in text
    lines = (folder / "events.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 16
    assert lines[0] == "issue,sys->id=0,tick=0,node->id=0,node->name=fwd, x=1 end,node->type=4"
    assert lines[-1].startswith("callback,sys->id=")
    assert {
        line.split("tick=")[1].split(",")[0] for line in lines if line.startswith("callback,sys->id=0")
    } == {
        "100000",
        str(100_000 + REDUCE_SCATTER),
    }
    assert not list(folder.glob(".events*"))


def test_a_preset_is_a_system_and_files_beside_it_take_the_place_of_its_own(folder):
    nodes = [collective(1, "ALL_REDUCE", MIB)]
    write(trace_of([nodes] * 8), folder / "eight", "e")
    preset = json.loads(invoke(folder / "eight", "--preset", "tpu-v3-8", "--json"))
    assert preset["config"]["network"]["bandwidth"] == [80]
    mixed = json.loads(
        invoke(folder / "eight", "--preset", "tpu-v3-8", "--system", folder / "s.json", "--json")
    )
    assert mixed["config"]["network"]["bandwidth"] == [80]
    assert mixed["config"]["system"]["local-mem-bw"] == 1600


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["job", "--set", "bandwidth[0]=tbd"], "--set: bandwidth[0] is 'tbd'; allowed: a number above 0"),
        (["job", "--set", "splits=2"], "--set 'splits': there is no such key"),
        (
            ["job", "--set", "npus_count=8"],
            "The trace has ranks 0–3, the system 8 NPUs: ranks 4–7 are missing.",
        ),
        (["job", "--time-limit", "0.000001"], "stopped after the time limit of 1e-06 s"),
        (["nothing-here"], "no file or folder, no files"),
        (["job", "--preset", "h100"], "preset is 'h100'; allowed: dgx-2"),
        (["job", "--num-queues-per-dim", "0"], "num-queues-per-dim is '0'; allowed"),
    ],
)
def test_what_cannot_be_done_is_said_and_exits_1(folder, words, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert message in on(folder, *words, "--workspace", folder / "none", code=1)


def test_a_time_limit_stops_reading_and_says_how_far_it_came(folder):
    seen: list[tuple[str, int, int]] = []
    request = SimulationRequest((str(folder / "job"),), preset="tpu-v3-8", time_limit_s=60.0)
    limit = TimeLimit(time.monotonic(), request.time_limit_s)

    def tell(phase: str, done: int, total: int) -> None:
        seen.append((phase, done, total))
        # As if what comes before this had taken an hour.
        limit.started -= 3600

    watched = limit.watch(tell)
    with pytest.raises(TraceError, match=r"time limit of 60 s; reading its files had come to [0-9]+ %"):
        read_job(request, watched)
    assert len(seen) == 1


def test_a_system_is_needed(folder):
    text = invoke(folder / "job", "--system", folder / "s.json", code=1)
    assert "No system to simulate on: --network is missing" in text
    assert "--preset" in text
    assert "--replay" in text


def test_files_that_may_be_a_recording_are_read_before_a_system_is_asked_for(tmp_path):
    """What was recorded tells its device; only many graphs in large files do not have to be read for that."""
    request = SimulationRequest((str(tmp_path),))
    for number in range(5):
        with (tmp_path / f"job.{number}.et").open("wb") as file:
            file.truncate(60 << 20)
    assert not is_soon_read(request)
    (tmp_path / "job.0.et").rename(tmp_path / "kineto_0.json")
    assert is_soon_read(request)


def test_ranks_that_disagree_are_named_before_the_run(folder):
    trace = trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 3 + [[collective(4, "ALL_REDUCE", 2 * MIB)]])
    write(trace, folder / "odd", "odd")
    text = on(folder, folder / "odd", code=1)
    assert (
        "collective 0 of the group of all ranks: rank 3 has ALL_REDUCE of 2.00 MiB (node 4) where rank 0"
        in text
    )


def test_unknown_keys_are_told_with_the_outcome(folder):
    (folder / "s.json").write_text(json.dumps({**SYSTEM, "endpoint-dely": 3}), encoding="utf-8")
    assert "endpoint-dely is no key of this file" in on(folder, folder / "job")
    assert told(folder, folder / "job")["findings"][0]["code"] == "key-unknown"


def test_what_no_port_can_carry_is_told_before_the_answer_and_cured(folder):
    """Two active chunks share each port for free in the unaware network; one chunk alone does not."""
    write(trace_of([[collective(1, "ALL_REDUCE", 1 << 30)]] * 8), folder / "eight", "e")
    words = (folder / "eight", "--preset", "hgx-h100-8", "--model", "astra-sim")
    report = json.loads(invoke(*words, "--json"))
    [share] = [dimension["offered_load"] for dimension in report["dimensions"]]
    assert share > 1.5
    assert [(one["level"], one["code"]) for one in report["findings"]] == [
        ("warning", "beyond-capacity"),
        ("warning", "collective-beyond-ports"),
    ]
    assert {(one["impossible"], one["cure"]) for one in report["doubts"]} == {(True, "--model full")}
    text = invoke(*words)
    assert text.startswith(
        f"IMPOSSIBLE: More was sent than the ports can carry (dimension 0 {100 * share:.0f} %)"
    )
    assert text.count("More was sent") == 1
    full = json.loads(invoke(*words[:3], "--json"))
    assert full["doubts"] == full["findings"] == []
    again = json.loads(invoke(*words, "--set", "preferred-dataset-splits=1", "--json"))
    assert again["doubts"] == []
    cured = json.loads(invoke(*words, "--cure", "--json"))
    assert (cured["model"], cured["doubts"]) == ("full", [])
    assert cured["cured"]["finish_ns"] == report["finish_ns"] < cured["finish_ns"] == full["finish_ns"]
    assert re.match(r"with --model full: [0-9.]+ ms instead of [0-9.]+ ms\n", invoke(*words, "--cure"))


def test_warnings_are_told_with_a_refusal(folder):
    """The mistyped key is why the algorithm is missing."""
    table = {**SYSTEM, "all-gather-implementatoin": ["ring"]}
    (folder / "s.json").write_text(json.dumps(table), encoding="utf-8")
    write(trace_of([[collective(1, "ALL_GATHER", MIB)]] * 4), folder / "gather", "g")
    text = on(folder, folder / "gather", code=1)
    assert "ALL_GATHER is used, and all-gather-implementation is not set" in text
    assert re.search(
        r"^Warning: .*all-gather-implementatoin is no key .*'all-gather-implementation'", text, re.MULTILINE
    )


def test_a_preset_has_as_many_npus_as_the_job_has_ranks_or_as_are_asked_for(folder):
    """A name with a size asks for it as --npus does; what does not fit the job is answered with what does."""
    write(trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 12), folder / "twelve", "t")
    job = folder / "twelve"
    sized = json.loads(invoke(job, "--preset", "hgx-h100", "--json"))["config"]["network"]
    assert (sized["npus_count"], sized["bandwidth"]) == ([6, 2], [450, 50])
    faster = ("--preset", "hgx-h100", "--set", "bandwidth=[900, 100]", "--json")
    assert json.loads(invoke(job, *faster))["config"]["network"]["bandwidth"] == [900, 100]
    for words in (("hgx-h100-16",), ("hgx-h100", "--npus", "16")):
        text = invoke(job, "--preset", *words, code=1)
        assert "the system 16 NPUs (8 × 2): ranks 12–15 are missing" in text
        assert "Without a size, --preset hgx-h100 has as many NPUs as the job has ranks." in text
    text = invoke(job, "--preset", "torus-8x8", code=1)
    assert re.search(r"Presets of this size: dgx-2, .*hgx-h100, .*trainium2\.", text)
    assert "--npus is 8, and the preset hgx-h100-16 has 16" in invoke(
        job, "--preset", "hgx-h100-16", "--npus", "8", code=1
    )


def test_a_text_workload_gets_the_npus_of_the_preset(folder):
    text = "DATA\n1\nlayer -1 10 NONE 0 10 NONE 0 10 ALLREDUCE 4194304 80\n"
    (folder / "data.txt").write_text(text, encoding="utf-8")
    for words in (("hgx-h100", "--npus", "16"), ("hgx-h100-16",)):
        told = json.loads(invoke(folder / "data.txt", "--preset", *words, "--json"))
        assert (told["npus"], told["config"]["network"]["npus_count"]) == (16, [8, 2])
        assert len(told["ranks"]) == 16
    assert "Give --npus NUMBER" in invoke(folder / "data.txt", "--preset", "hgx-h100", code=1)


def test_a_system_file_is_a_preset_and_may_be_given_as_the_system(folder):
    file = folder / "mine.yml"
    file.write_text(write_system({**read_yaml(FOLDER / "hgx-a100.yml"), "name": "mine"}), encoding="utf-8")
    job = folder / "job"
    for option in ("--preset", "--system"):
        told = json.loads(invoke(job, option, file, "--json"))
        assert told["config"]["network"]["bandwidth"] == [300]
    assert "allowed: one of both" in invoke(job, "--preset", "hgx-h100", "--system", file, code=1)
    file.write_text("name: mine\n", encoding="utf-8")
    assert f"{file}: title is missing; allowed: a text" in invoke(job, "--preset", file, code=1)


def test_ranks_that_finish_alike_are_told_together(folder):
    trace = trace_of([[node(0, "COMP", micros=micros)] for micros in (20, 20, 20, 10)])
    write(trace, folder / "alike", "a")
    text = on(folder, folder / "alike")
    assert "last to finish   ranks 0–2 20.0 µs, rank 3 10.0 µs\n" in text
    assert "first to finish  rank 3 10.0 µs (50.0 % earlier)" in text


def test_a_collective_is_named_with_its_group(folder):
    nodes = [collective(1, "REDUCE_SCATTER", MIB, group="7")]
    write(trace_of([nodes] * 4, {"7": [0, 1, 2, 3]}), folder / "grouped", "g")
    assert "REDUCE_SCATTER, collective 0 of group 7 " in on(folder, folder / "grouped")


def test_single_links_have_no_table_by_dimension(folder):
    """Where a message is counted by dimension and where it really goes are two things there."""
    name, npus = next(
        (name, one.config.topology.npus) for name, one in PRESETS.items() if one.config.links is not None
    )
    write(trace_of([[collective(1, "ALL_REDUCE", MIB)]] * npus), folder / "linked", "l")
    text = invoke(folder / "linked", "--preset", name)
    assert "busiest links" in text
    assert "dimensions  " not in text


def test_presets_are_listed_with_their_sources_and_measured_errors():
    text = CliRunner().invoke(main, ["presets"]).output
    for word in ("sizes ", "rates ", "source ", "error "):
        assert text.count(f"                  {word}") == len(PRESETS)
    listed = json.loads(CliRunner().invoke(main, ["presets", "--json"]).output)
    assert [one["name"] for one in listed] == list(PRESETS)
    assert all(one["measured_error"] for one in listed)


def test_all_about_one_preset():
    [one] = json.loads(CliRunner().invoke(main, ["presets", "hgx-h100", "--npus", "64", "--json"]).output)
    assert (one["npus"], one["network"]["npus_count"], one["node"], one["nics"]) == (64, [8, 8], 8, 8)
    assert one["gpu"]["tera_flops"]["bf16"] == 989.4
    assert one["sources"]["network.bandwidth[1]"].startswith("a port of 400 Gb/s")
    assert one["astra_sim"]["network"]["bandwidth"] == [400, 50]
    text = CliRunner().invoke(main, ["presets", "hgx-h100"]).output
    assert "network.bandwidth[1]: a port of 400 Gb/s" in text
    assert "library: nccl-hopper" in text
    refused = CliRunner().invoke(main, ["presets", "tpu-v3-8", "--npus", "9"])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--npus is 9 for the system tpu-v3-8; allowed: 8 NPUs" in refused.stderr


# ---------------------------------------------------------------------------------------------------
# Collectives and modes


def test_collectives_are_told_with_nccls_bandwidths(folder):
    """1 MiB in 22,240 ns after the last has come are 47 GB/s; three quarters of that on the bus of four."""
    text = on(folder, folder / "job")
    assert re.search(
        r"REDUCE_SCATTER, collective 0 +1\.00 MiB +22\.2 µs +90\.0 µs +47\.1 GB/s +35\.4 GB/s", text
    )
    [one] = told(folder, folder / "job")["collectives"]
    assert (one["type"], one["group"], one["members"], one["last_rank"], one["last_node"]) == (
        "REDUCE_SCATTER",
        "",
        4,
        0,
        1,
    )
    assert (one["start_ns"], one["arrived_ns"], one["end_ns"]) == (10_000, 100_000, 100_000 + REDUCE_SCATTER)
    assert one["bus_bytes_per_ns"] == pytest.approx(MIB / REDUCE_SCATTER * 3 / 4)


def test_the_size_of_an_all_gather_is_what_a_rank_puts_in_beside_the_whole_array(folder):
    """1 MiB of each of eight ranks: 8 MiB, which bandwidths are of."""
    write(trace_of([[collective(1, "ALL_GATHER", MIB)]] * 8), folder / "gather", "g")
    text = invoke(folder / "gather", "--preset", "hgx-h100")
    assert re.search(r"slowest collectives +size +whole array +took", text)
    assert re.search(r"ALL_GATHER, collective 0 +1\.00 MiB +8\.00 MiB ", text)
    assert "whole array: of an all-gather or gather what all members put in together; algbw" in text
    assert "whole array" not in on(folder, folder / "job")


def test_the_mode_is_what_the_files_say_unless_an_option_does(folder):
    assert told(folder, folder / "job")["mode"] == "compatible"
    assert told(folder, folder / "job", "--mode", "extended")["mode"] == "extended"
    assert "model extended unaware\n" in on(folder, folder / "job", "--mode", "extended")
    assert told(folder, folder / "job", "--set", "extended.tie-order=reference")["mode"] == "extended"
    text = on(folder, folder / "job", "--mode", "compatible", "--set", "extended.tie-order=reference", code=1)
    assert "extended is there; allowed in the compatible mode" in text


def test_a_job_that_cannot_run_is_told_line_by_line(folder):
    """Several findings stand on lines of their own, not behind escaped line ends."""
    nodes = [collective(1, "REDUCE_SCATTER", MIB, group="tp"), node(2, "METADATA")]
    write(trace_of([nodes] * 4, {"tp": [0, 1, 2, 3]}), folder / "refused", "r")
    text = on(folder, folder / "refused", code=1)
    assert re.search(r"^Error: .*\nAlso: ", text, re.MULTILINE)


# ---------------------------------------------------------------------------------------------------
# Runs that are kept


def listed(folder, *words, code=0):
    result = CliRunner().invoke(main, ["runs", *map(str, words), "--workspace", str(folder / "ws")])
    assert result.exit_code == code, result.output
    return result.output


def test_a_simulation_is_kept_with_its_job(folder):
    """The traces are imported once; a second run, and one of the job by its id, are added to it."""
    keep = ("--workspace", folder / "ws", "--out")
    first = told(folder, folder / "job", *keep, "plain ring")
    second = told(folder, folder / "job" / "job", *keep, "halved", "--set", "bandwidth=[25]")
    third = told(folder, first["job"], *keep, "by id")
    workspace = Workspace(folder / "ws")
    [job_info] = workspace.jobs()
    assert {first["job"], second["job"], third["job"]} == {job_info.id}
    kept = {run.id: run for run in workspace.runs(job_info.id)}
    assert {run_id: run.name for run_id, run in kept.items()} == {
        first["run"]: "plain ring",
        second["run"]: "halved",
        third["run"]: "by id",
    }
    loaded = workspace.load_run(job_info.id, second["run"])
    assert loaded.result.makespan_ns == second["finish_ns"] > first["finish_ns"]
    assert kept[first["run"]].config_hash == kept[third["run"]].config_hash != kept[second["run"]].config_hash
    assert kept[first["run"]].makespan_ns == first["finish_ns"]


def test_the_table_says_where_it_was_kept_and_runs_lists_it(folder):
    assert listed(folder).startswith("No runs yet.")
    text = on(folder, folder / "job", "--workspace", folder / "ws", "--out", "my run")
    run_id, job_id = re.search(r"kept as run (\S+) of job (\S+)", text).groups()
    for words in ((), (job_id,)):
        columns = r"Ring 4 +astra-sim unaware +\d{4}-\d\d-\d\d \d\d:\d\d"
        assert re.search(rf"{run_id} +122 µs .* {columns} .* my run", listed(folder, *words))
    [info] = json.loads(listed(folder, "--json"))
    assert (info["id"], info["job"], info["name"]) == (run_id, job_id, "my run")
    assert info["tables"]["system"]["preferred-dataset-splits"] == 4
    assert "There is no job 'other'" in listed(folder, "other", code=1)
    other = Workspace(folder / "ws").save(job({"9": [0, 1]}), "empty")
    assert "no runs" in listed(folder, other)


def test_nothing_is_kept_of_a_job_that_does_not_run(folder):
    on(folder, folder / "job", "--workspace", folder / "ws", "--out", "x", "--set", "npus_count=[8]", code=1)
    assert [info.runs for info in Workspace(folder / "ws").jobs()] == [0]


def test_runs_of_a_job_that_is_not_there_name_the_nearest(tmp_path):
    """By id or name; where nothing is near, what there is, and where nothing is there, how to get it."""

    def runs(*words, code=0):
        result = CliRunner().invoke(main, ["runs", *map(str, words), "--workspace", str(tmp_path / "ws")])
        assert result.exit_code == code, result.output
        return result.output

    assert "Hint: It has no jobs yet" in runs("nojob", code=1)
    store = Workspace(tmp_path / "ws")
    first = store.save(job(), "llama on monday")
    second = store.save(job({"tp": (0, 1)}), "mixtral")
    assert f"Hint: The jobs there are: {second}, {first}." in runs("nojob", code=1)
    assert "The nearest are" in runs("llama", code=1)
    assert f"{first}, llama on monday." in runs("llama", code=1)
    assert "mixtral" in runs("mixtrall", code=1)
    assert runs("mixtral") == runs(second)
    store.save(job({"pp": (2, 3)}), "mixtral")
    assert "is the name of 2 jobs" in runs("mixtral", code=1)
    assert runs(second).startswith(f"mixtral ({second})")


def test_a_mistyped_extended_table_is_recognised(folder):
    said = on(folder, folder / "job", "--set", "extendd.communication-slots=2", code=1)
    assert "The nearest known key is 'extended.communication-slots'" in said


@pytest.mark.parametrize("given", [(), ("--system", "s.json", "--network", "n.yml")], ids=["none", "named"])
def test_a_replay_tells_of_no_network_because_it_uses_none(given, tmp_path, monkeypatch):
    """Neither the stand-in nor a system that is named carries a message; kept runs say so as well."""

    def timed(end):
        first, second = node(0, "COMP", micros=10, name="fwd"), collective(1, "ALL_REDUCE", MIB, 0)
        first.start_time_micros, second.start_time_micros, second.duration_micros = 100, 110, end - 110
        return [first, second]

    monkeypatch.chdir(tmp_path)
    Path("n.yml").write_text(NETWORK.replace("Ring", "Switch"), encoding="utf-8")
    Path("s.json").write_text(json.dumps(SYSTEM), encoding="utf-8")
    write(trace_of([timed(150)] * 4), tmp_path / "job", "job")
    text = invoke(tmp_path / "job", "--replay", *given, "--workspace", tmp_path / "ws", "--out", "again")
    assert text.startswith(f"{tmp_path / 'job'}: 4 ranks, no network: recorded durations\n")
    assert "Switch" not in text
    assert "GiB/s" not in text
    assert "dimensions" not in text
    kept = listed(tmp_path)
    assert "no network: recorded durations" in kept
    assert "Switch" not in kept


def test_a_replay_of_one_rank_alone_tells_neither_skew_nor_transfer(tmp_path):
    """When the other member came is not known, so that the recorded time of the collective is not told apart."""

    def replayed(ranks):
        made = collective(1, "ALL_REDUCE", MIB, group="5")
        made.start_time_micros, made.duration_micros = 100, 50
        write(trace_of([[made]] * ranks, {"5": [0, 1]}), tmp_path / str(ranks), "job")
        text = invoke(tmp_path / str(ranks), "--replay")
        [line] = [line for line in text.splitlines() if "ALL_REDUCE, collective 0" in line]
        return text, re.split(r"  +", line.strip())

    assert replayed(2)[1][3] == "0 ns"
    text, cells = replayed(1)
    assert cells[3] == "–"
    assert "    communication" in text
    assert "transfer" not in text


# ---------------------------------------------------------------------------------------------------
# Models


@pytest.fixture
def eight(tmp_path) -> Path:
    write(trace_of([[collective(1, "ALL_REDUCE", 1 << 30)]] * 8), tmp_path / "eight", "e")
    return tmp_path / "eight"


@pytest.mark.parametrize(
    ("words", "model", "mode", "congestion"),
    [
        ((), "full", "extended", "aware"),
        (("--model", "full"), "full", "extended", "aware"),
        (("--model", "astra-sim"), "astra-sim", "compatible", "unaware"),
        (("--model", "astra-sim", "--congestion", "aware"), "astra-sim", "compatible", "aware"),
        (("--mode", "compatible"), "astra-sim", "compatible", "unaware"),
        (("--mode", "extended"), "extended", "extended", "unaware"),
        (("--congestion", "aware"), "astra-sim", "compatible", "aware"),
        (("--set", "congestion=aware"), "astra-sim", "compatible", "aware"),
        (("--set", "bandwidth=[200]"), "full", "extended", "aware"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else given,
)
def test_a_preset_is_of_the_full_model_unless_an_option_says_otherwise(eight, words, model, mode, congestion):
    """Mode and congestion that are given mean what they meant before there were models."""
    report = json.loads(invoke(eight, "--preset", "hgx-h100-8", *words, "--json"))
    assert (report["model"], report["mode"], report["config"]["congestion"]) == (model, mode, congestion)
    name = model if model == "full" else f"{model} {congestion}"
    assert f", model {name}\n" in invoke(eight, "--preset", "hgx-h100-8", *words)


def test_the_files_of_astra_sim_are_of_its_model_unless_an_option_says_otherwise(folder):
    assert told(folder, folder / "job")["model"] == "astra-sim"
    assert told(folder, folder / "job", "--model", "full")["model"] == "full"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "astra-sim", "--mode", "extended"), "--mode is 'extended' beside --model astra-sim; allowed there: compatible"),
        (("--model", "full", "--mode", "compatible"), "--mode is 'compatible' beside --model full; allowed there: extended"),
        (("--model", "full", "--congestion", "unaware"), "--congestion is 'unaware' beside --model full"),
        (("--model", "astra-sim", "--set", "extended.tie-order=reference"), "--set makes it the model extended"),
        (("--model", "astra-sim", "--compute-times", "roofline"), "--compute-times is given beside ASTRA-sim's model"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)  # fmt: skip
def test_options_that_contradict_each_other_are_refused_with_the_way_out(eight, words, message):
    text = invoke(eight, "--preset", "hgx-h100-8", *words, code=1)
    assert message in text
    assert "Hint: " in text


def test_compute_keeps_its_times_and_can_be_computed_for_the_gpu(eight, tmp_path):
    """10 µs were recorded; 10^6 operations on 10^6 bytes take 298 ns on it."""
    nodes = [node(0, "COMP", micros=10, num_ops=10**6, tensor_size=10**6)]
    write(trace_of([nodes] * 8), tmp_path / "timed", "t")
    words = (tmp_path / "timed", "--preset", "hgx-h100-8")
    kept, anew = (
        json.loads(invoke(*words, *more, "--json")) for more in ((), ("--compute-times", "roofline"))
    )
    assert (kept["finish_ns"], anew["finish_ns"]) == (10_000, 298)
    assert (kept["compute"]["recorded"], anew["compute"]["roofline"]) == (8, 8)
    assert "compute: recorded on all nodes\n" in invoke(*words)


def test_runs_of_several_models_are_listed_with_them_and_compared_without_a_rank(eight, tmp_path):
    keep = ("--preset", "hgx-h100-8", "--workspace", tmp_path / "ws", "--out")
    first = json.loads(invoke(eight, *keep, "one", "--json"))
    second = json.loads(invoke(eight, *keep, "two", "--model", "astra-sim", "--json"))
    assert re.search(r"Switch 8 +full +.* one", listed(tmp_path))
    assert {run["model"] for run in json.loads(listed(tmp_path, "--json"))} == {"full", "astra-sim unaware"}
    sides = [f"{run['job']}/{run['run']}" for run in (first, second)]

    def compare(*words, code=0):
        result = CliRunner().invoke(main, ["compare", *sides, *words, "--workspace", str(tmp_path / "ws")])
        assert result.exit_code == code, result.output
        return result.output

    text = compare()
    assert "not ranked" in text
    assert "different models (full; astra-sim unaware)" in text
    [pair] = json.loads(compare("--json"))["comparisons"]
    assert pair["difference_percent"] is None
    assert "one model" in pair["unranked"]
    assert "--fail-if-slower ranks runs of one model" in compare("--fail-if-slower", "2", code=1)
