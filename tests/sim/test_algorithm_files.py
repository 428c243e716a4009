"""Algorithms of MSCCL: right and wrong ones, as jobs, in the simulator, and beside the built-in ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.errors import TraceFormatError
from studio.et import msccl_play
from studio.et.build import build_graph
from studio.et.msccl import parse
from studio.et.msccl_play import Algorithm, play
from studio.trace import NodeType, Rank, Trace, list_node_attributes
from tests.msccl_files import (
    algorithm,
    all_pairs_all_gather,
    block,
    direct_all_to_all,
    direct_reduce_scatter,
    ring_all_reduce,
    step,
)
from tests.mscclpp_plans import put_all_gather

MAKERS = (ring_all_reduce, all_pairs_all_gather, direct_reduce_scatter, direct_all_to_all)


def flaws(content: bytes) -> dict[str, list[str]]:
    return play(parse(content, "x.xml"), 1).flaws


def parsed(content: bytes) -> Algorithm:
    return parse(content, "x.xml")


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_right_algorithms_are_found_right(make, gpus: int):
    assert flaws(make(gpus)) == {}


@pytest.mark.parametrize("make", MAKERS)
def test_every_step_that_is_left_out_or_aims_elsewhere_is_told(make):
    """No mutant of a right algorithm passes."""
    content = make(3).decode()
    steps = list(re.finditer(r'<step s="\d+" type="(\w+)"[^>]*/>', content))
    assert len(steps) > 5
    for found in steps:
        start, end = found.span()
        nothing = content[:start] + re.sub(r'type="\w+"', 'type="nop"', found[0]) + content[end:]
        assert flaws(nothing.encode()), found[0]
        offset = re.search(r'dstoff="(\d+)"' if found[1] != "s" else r'srcoff="(\d+)"', found[0])
        other = found[0].replace(offset[0], offset[0].replace(offset[1], str((int(offset[1]) + 1) % 3)))
        if found[1] in ("r", "cpy", "s", "rrcs"):
            moved = content[:start] + other + content[end:]
            assert flaws(moved.encode()), other


def test_flaws_say_gpu_block_step_and_chunk():
    ring = ring_all_reduce(3).decode()
    late = ring.replace('<step s="2" type="rrcs"', '<step s="2" type="rcs"', 1)
    assert flaws(late.encode())["wrong-result"][0] == "GPU 0, chunk 1 of the output: it lacks what GPU 0 gave"
    twice = [
        block(0, 1, 1, [step(0, "s", ("i", 0), ("i", 0)), step(1, "rrc", ("i", 0), ("i", 0)), step(2, "re", ("i", 0), ("i", 0))]),
        block(0, 0, 0, [step(0, "s", ("i", 0), ("i", 0)), step(1, "rrc", ("i", 0), ("i", 0))]),
    ]  # fmt: skip
    told = flaws(algorithm("allreduce", twice, (1, 0, 0), inplace=1))
    assert told["wrong-result"] == ["GPU 0, block 0, step 2 (re) adds what GPUs 0, 1 gave a second time"]


def test_steps_that_wait_for_ever_and_messages_nobody_takes_are_told():
    stuck = algorithm("allreduce", [block(0, 1, 1, [step(0, "r", ("i", 0), ("i", 0))])] * 2, (1, 0, 0))
    assert flaws(stuck)["stuck"][0] == (
        "GPU 0, block 0, step 0 (r) waits for ever: for a message from GPU 1 on channel 0 that is not sent before"
    )
    circle = block(0, -1, -1, [step(0, "nop", ("i", -1), ("o", -1), depends=(1, 0))]) + block(
        1, -1, -1, [step(0, "nop", ("i", -1), ("o", -1), depends=(0, 0))]
    )
    assert "for step 0 of block 1, which is not carried out before" in flaws(algorithm("custom", [circle], (1, 1, 0)))["stuck"][0]  # fmt: skip
    lost = [block(0, 1, -1, [step(0, "s", ("i", 0), ("o", 0))]), ""]
    assert "1 of the messages from GPU 0 to GPU 1 on channel 0 are never received" in flaws(algorithm("custom", lost, (1, 1, 0)))["unmatched"]  # fmt: skip


def test_an_algorithm_opened_as_a_file_is_a_job_that_the_doctor_and_the_simulator_take(tmp_path: Path):
    file = tmp_path / "ring.xml"
    file.write_bytes(ring_all_reduce(4))
    trace = studio.read(file)
    assert [len(trace.graph_of(rank)) for rank in range(4)] == [12] * 4
    assert not [one for one in studio.examine(trace) if one.level != "info"]
    assert max(studio.simulate(trace, studio.presets["hgx-h100-4"].config).finish_ns) > 0
    wrong = ring_all_reduce(4).replace(b'type="rrcs"', b'type="rcs"')
    file.write_bytes(wrong)
    [finding] = [one for one in studio.read(file).findings if one.level == "error"]
    assert (finding.code, "chunk" in finding.message) == ("wrong-result", True)


def run(*arguments: str) -> tuple[int, dict]:
    result = CliRunner().invoke(main, ["algorithm", *arguments, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.output)


def test_the_ring_from_a_file_takes_as_long_as_the_built_in_ring(tmp_path: Path):
    """But for the endpoint delay that the built-in one waits before its first message."""
    file = tmp_path / "ring.xml"
    file.write_bytes(ring_all_reduce(8))
    code, told = run(str(file), "8MiB", "--preset", "hgx-h100")
    ring = next(row for row in told["others"] if row["name"] == "ring")
    assert code == 0
    assert 0 <= ring["finish_ns"] - told["finish_ns"] <= 10
    assert (told["messages"], told["longest"], told["most_bytes_sent"]) == (112, 14, 14 << 20)


def test_a_size_that_an_algorithm_is_not_meant_for_is_said(tmp_path: Path):
    file = tmp_path / "ring.xml"
    file.write_bytes(
        ring_all_reduce(8).replace(b" inplace=", b' minBytes="65537" maxBytes="524287" inplace=')
    )
    assert run(str(file), "256KiB", "--preset", "hgx-h100")[1]["notes"] == {}
    code, told = run(str(file), "1MiB", "--preset", "hgx-h100")
    assert code == 0
    assert told["notes"]["size-outside"].startswith(
        "it is meant for buffers of 64.0 KiB to 512 KiB, and this one has 1.00 MiB"
    )
    plan = put_all_gather(8) | {"min_message_size": 1 << 20}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    # Of an all-gather the size is that of one rank's part.
    assert run(str(file), "128KiB", "--preset", "hgx-h100")[1]["notes"] == {}
    notes = run(str(file), "127KiB", "--preset", "hgx-h100")[1]["notes"]
    assert notes["size-outside"].startswith("it is meant for buffers from 1.00 MiB on")


def test_a_wrong_algorithm_exits_with_1_and_one_that_never_ends_is_refused(tmp_path: Path):
    file = tmp_path / "ring.xml"
    file.write_bytes(ring_all_reduce(4).replace(b'type="rrcs"', b'type="rcs"'))
    code, told = run(str(file), "1MiB", "--preset", "hgx-h100")
    assert code == 1
    assert told["flaws"]["wrong-result"]
    file.write_bytes(ring_all_reduce(4).replace(b'type="rrcs"', b'type="nop"', 1))
    result = CliRunner().invoke(main, ["algorithm", str(file), "1MiB", "--preset", "hgx-h100"])
    assert result.exit_code == 1
    assert "waits for ever" in result.output


def test_a_preset_without_its_costs_keeps_a_latency(tmp_path: Path):
    """Costs hold the latency of the full model; without it a KiB by direct took 30 ns, where a hop takes more than that.

    Each of both rounds of a direct all-reduce passes a switch over two hops of 936.25 ns; a setting is the last word.
    """
    file = tmp_path / "ring.xml"
    file.write_bytes(ring_all_reduce(8))
    words = (str(file), "1KiB", "--preset", "hgx-h100")
    told = run(*words)[1]
    assert told["latency_ns"] == [936.25]
    [direct] = [one["finish_ns"] for one in told["others"] if one["name"] == "direct"]
    assert 4 * 936.25 < direct < 4 * 936.25 + 100
    assert told["finish_ns"] > 14 * 2 * 936.25
    assert run(*words, "--set", "latency=[0]")[1]["latency_ns"] == [0]
    said = CliRunner().invoke(main, ["algorithm", *words]).output
    assert "latency 936 ns a hop; messages are stored and forwarded whole" in said


def test_what_is_written_simulates_a_job_by_the_algorithm(tmp_path: Path):
    file, target = tmp_path / "ring.xml", tmp_path / "made"
    file.write_bytes(ring_all_reduce(4))
    _, told = run(str(file), "4MiB", "--preset", "hgx-h100", "-o", str(target))
    assert sorted(path.name for path in target.iterdir())[:1] == ["custom_all_reduce.0.et"]
    assert len(told["files"]) == 6
    job = {
        "id": 1,
        "type": "COMM_COLL_NODE",
        "attrs": {"comm_type": 0, "comm_size": 4 << 20, "is_cpu_op": False},
    }
    graph, slots = build_graph([job])
    studio.write(Trace((graph,), tuple(Rank(n, 0, slots) for n in range(4))), tmp_path / "job", "job")
    paths = ["--system", str(target / "system.json"), "--network", str(target / "network.yml")]
    result = CliRunner().invoke(main, ["simulate", str(tmp_path / "job"), *paths, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["finish_ns"] == told["finish_ns"]
    again = CliRunner().invoke(
        main, ["algorithm", str(file), "4MiB", "--preset", "hgx-h100", "-o", str(target)]
    )
    assert "not empty" in again.output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<algo", "damaged XML"),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><algo ngpus="1"/>', "document type"),
        (b"<algo ngpus='1'/>", "0 <gpu>"),
        (b"<algo ngpus='2'><gpu id='0'/></algo>", "<gpu id=1> is not there"),
        (b"<algo><gpu id='x'/></algo>", "id is 'x'"),
        (b"<algo><gpu id='0'><tb id='0' send='5'/></gpu></algo>", "send is '5'; allowed: -1 to 0"),
        (b"<algo><gpu id='0'><tb id='0'><step s='0' type='put'/></tb></gpu></algo>", "type is 'put'"),
        (b"<algo><gpu id='0'><tb id='0'><step s='7' type='nop'/></tb></gpu></algo>", "s is 7; allowed: 0"),
        (
            b"<algo><gpu id='0'><tb id='0'><step s='0' type='cpy' srcbuf='z'/></tb></gpu></algo>",
            "srcbuf is 'z'",
        ),
        (b"<algo><gpu id='0'><tb id='0'><op step='0'/></tb></gpu></algo>", "<op> in place of <step>"),
        (b"\xff<algo/>", "not UTF-8"),
    ],
)
def test_what_is_no_algorithm_is_told_with_its_place(content: bytes, words: str):
    with pytest.raises(TraceFormatError, match=re.escape(words)):
        parsed(content)


def test_chunks_without_end_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(msccl_play, "_MOST_MOVED", 1000)
    steps = [step(number, "cpy", ("i", 0), ("o", 0), 100) for number in range(40)]
    with pytest.raises(TraceFormatError, match="moves more than"):
        play(parsed(algorithm("custom", [block(0, -1, -1, steps)], (1, 1, 0))), 1)


def test_an_algorithm_for_another_collective_or_number_of_gpus_is_refused(tmp_path: Path):
    file = tmp_path / "x.xml"
    file.write_bytes(algorithm("broadcast", [block(0, -1, -1, [])], (1, 1, 0)))
    result = CliRunner().invoke(main, ["algorithm", str(file), "1MiB", "--preset", "hgx-h100"])
    assert "collective is 'broadcast'" in result.output


def test_a_public_algorithm_has_the_messages_that_the_reference_makes_of_it(shared):
    """ASTRA-sim's traces of the same algorithm, for 1 MiB: 14 sends and receives on each rank, in this order."""
    folder = shared / "traces" / "public" / "astra-sim" / "custom_ring_allreduce_8npus_1MB"
    theirs = studio.read(sorted(folder.glob("*.et")))
    ours = parsed((folder / "custom_allreduce.xml").read_bytes())
    played = play(ours, (1 << 20) // ours.chunks)
    assert played.flaws == {}
    for rank in range(8):
        graph = theirs.graph_of(rank)
        slots = theirs.known_rank(rank).slots
        wanted = []
        for row in range(len(graph)):
            told = {attr.name: attr.value for attr in list_node_attributes(graph, row, slots)}
            if graph.type[row] in (NodeType.COMM_SEND, NodeType.COMM_RECV):
                peer = told.get("comm_dst" if graph.type[row] == NodeType.COMM_SEND else "comm_src")
                wanted.append((NodeType(graph.type[row]).name + "_NODE", peer, told["comm_size"]))
        made = [
            (
                node["type"],
                node["attrs"].get("comm_dst", node["attrs"].get("comm_src")),
                node["attrs"]["comm_size"],
            )
            for node in played.nodes[rank]
        ]
        assert made == wanted
