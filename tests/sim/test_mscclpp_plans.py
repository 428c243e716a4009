"""Execution plans of MSCCL++: right and wrong ones, as jobs, and beside the built-in algorithms."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.errors import TraceFormatError
from studio.et.msccl import parse
from studio.et.msccl_play import play
from studio.trace import NodeType
from tests.mscclpp_plans import (
    mixed_all_reduce,
    op,
    packet_all_reduce,
    pipelined_all_reduce,
    port_all_gather,
    put_all_gather,
    reading_all_reduce,
    shared_all_gather,
    summed_packets,
    switch_all_reduce,
)

MAKERS = (put_all_gather, reading_all_reduce, packet_all_reduce, switch_all_reduce)


def flaws(content: dict) -> dict[str, list[str]]:
    return play(parse(json.dumps(content).encode(), "x.json"), 1024).flaws


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_right_plans_are_found_right(make, gpus: int):
    assert flaws(make(gpus)) == {}


@pytest.mark.parametrize("make", MAKERS)
def test_every_operation_that_is_left_out_or_aims_elsewhere_is_told(make):
    """But for the signals, without which a plan may be right by luck: those leave a wait for ever."""
    content = make(3)
    seen = 0
    for gpu, rank in enumerate(content["gpus"]):
        for block, told in enumerate(rank["threadblocks"]):
            for at, each in enumerate(told["ops"]):
                if each["name"] in ("nop", "wait", "rlxwait", "barrier"):
                    continue
                less = copy.deepcopy(content)
                less["gpus"][gpu]["threadblocks"][block]["ops"][at] = {"name": "nop"}
                assert flaws(less), each
                seen += 1
                if each.get("dst_buff"):
                    moved = copy.deepcopy(content)
                    target = moved["gpus"][gpu]["threadblocks"][block]["ops"][at]["dst_buff"][0]
                    target["index"] = (target["index"] + 1) % 3
                    assert flaws(moved), each
    assert seen >= 6


def test_groups_of_thread_blocks_share_what_an_operation_is_of():
    """Each block of a pair moves its half; without one of them that half is missing."""
    content = shared_all_gather()
    played = play(parse(json.dumps(content).encode(), "x"), 512)
    # A chunk each way, twice as large as packets, by two blocks.
    assert (played.flaws, played.messages, played.most_bytes) == ({}, 4, 2 * 2 * 512)
    content["gpus"][1]["threadblocks"][3]["ops"] = []
    assert flaws(content)["wrong-result"] == ["GPU 0, chunk 3 of the output: nobody wrote it"]


def test_the_plans_of_mscclpps_own_tests_are_right_by_one_block_and_by_pairs():
    """Sums that are read, got first, put, and sent as packets; a pair of blocks moves as many bytes as one."""
    # GPU 0: two signals, what asks for two chunks, two chunks that it writes, and two that GPU 1 reads; packets are twice as large.
    for make, messages, sent in ((mixed_all_reduce, 13, 4 * 1024 + 4 * 8), (summed_packets, 4, 4 * 1024)):
        one, pair = (play(parse(json.dumps(make(shared=many)).encode(), "x"), 1024) for many in (False, True))
        assert (one.flaws, one.messages) == ({}, messages)
        assert (pair.flaws, pair.messages) == ({}, 2 * messages)
        assert one.most_bytes == sent
    content = mixed_all_reduce(shared=True)
    # The half of the second block of GPU 0 is neither read nor put.
    content["gpus"][0]["threadblocks"][1]["ops"] = content["gpus"][0]["threadblocks"][1]["ops"][:6]
    assert flaws(content)
    content = summed_packets(shared=False)
    content["gpus"][1]["threadblocks"][1]["ops"][0]["dst_buff"].pop()
    assert "GPU 0" in flaws(content)["stuck"][0]


def test_two_channels_between_the_same_gpus_are_told_apart():
    content = port_all_gather()
    assert flaws(content) == {}
    # The other block's signal does not stand for this one's.
    del content["gpus"][0]["threadblocks"][1]["ops"][5]
    assert [flaw[:14] for flaw in flaws(content)["stuck"]] == ["GPU 1, block 1"]


def test_a_switch_that_adds_loads_ports_as_messages_between_its_gpus_do():
    """Of eight parts each GPU's own goes in and comes out added, those of the others once each: 9 parts each way."""
    part = 7168
    played = play(parse(json.dumps(switch_all_reduce(8)).encode(), "x"), part)
    signals, asks = 2 * 7 * 8, 7 * 8
    assert (played.flaws, played.most_bytes) == ({}, 9 * part + signals + asks)
    assert list(played.notes) == ["switch-as-messages"]


def test_loops_take_as_many_rounds_as_there_are_units_in_a_chunk():
    content = pipelined_all_reduce(1024)
    algorithm = parse(json.dumps(content).encode(), "x")
    once, thrice = play(algorithm, 1024), play(algorithm, 2500)
    # Each GPU in each round: two signals; what asks for a part, the part, and the sum that is written to the other.
    assert (once.flaws, once.messages) == ({}, 2 * 5)
    assert (thrice.flaws, thrice.messages) == ({}, 3 * 2 * 5)
    # A chunk of 2,500 bytes is 3 rounds of 834; the switch makes each message half as large again.
    assert thrice.most_bytes == 3 * (2 * 8 + 8 + 2 * (834 * 3 // 2))
    assert play(algorithm, 100 * 1024).notes["rounds-joined"].startswith("its loops take 100 rounds")
    # A round begins while the one before is under way: its blocks wait for semaphores, not for each other.
    assert thrice.longest < 3 * once.longest


def test_a_semaphore_that_nobody_releases_is_told_by_round():
    content = pipelined_all_reduce(1024)
    [loop] = content["gpus"][0]["threadblocks"][1]["ops"]
    assert loop["ops"].pop()["name"] == "sem_release"
    told = play(parse(json.dumps(content).encode(), "x"), 2048).flaws["stuck"]
    assert told == [
        "GPU 0, block 2, step 0.0 in round 0 (sem_acquire) waits for ever: for semaphore 1, which nobody releases before"
    ]
    # One that is free to begin with is nothing to wait for.
    content["gpus"][0]["semaphores"][1]["init_value"] = 2
    assert "stuck" not in play(parse(json.dumps(content).encode(), "x"), 2048).flaws


def test_who_waits_and_for_what_is_told():
    content = put_all_gather(2)
    content["gpus"][1]["threadblocks"][0]["ops"][2] = {"name": "nop"}
    assert flaws(content)["stuck"] == [
        "GPU 0, block 0, step 3 (wait) waits for ever: for a signal of GPU 1 on channel 0 that does not come before"
    ]
    content = reading_all_reduce(2)
    content["gpus"][0]["threadblocks"][1]["ops"][0] = {"name": "nop"}
    assert any("at barrier 0 with 1 of 2 thread blocks" in flaw for flaw in flaws(content)["stuck"])
    content = packet_all_reduce(2)
    content["gpus"][0]["threadblocks"][0]["ops"][0] = {"name": "nop"}
    assert any("for packets that nobody puts before" in flaw for flaw in flaws(content)["stuck"])


def test_messages_are_puts_signals_and_what_reads_ask_for(tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(put_all_gather(4)))
    trace = studio.read(file)
    sends = sum(int((trace.graph_of(rank).type == NodeType.COMM_SEND).sum()) for rank in range(4))
    # A put and a signal from each to each.
    assert sends == 2 * 4 * 3
    assert not [one for one in studio.examine(trace) if one.level == "error"]
    assert max(studio.simulate(trace, studio.presets["hgx-h100-4"].config).finish_ns) > 0
    packets = play(parse(json.dumps(packet_all_reduce(2)).encode(), "x"), 1024)
    assert (packets.messages, packets.most_bytes, packets.longest) == (2, 2048, 1)
    reads = play(parse(json.dumps(reading_all_reduce(2)).encode(), "x"), 1024)
    # From each: two signals, what asks for a chunk, the chunk that is asked for, and the sum.
    assert (reads.messages, reads.most_bytes) == (10, 3 * 8 + 2 * 1024)


def test_a_plan_is_timed_beside_the_built_in_algorithms(tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(reading_all_reduce(8)))
    result = CliRunner().invoke(main, ["algorithm", str(file), "8MiB", "--preset", "hgx-h100", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    times = {row["name"]: row["finish_ns"] for row in told["others"]}
    # It sends as much as the direct algorithm and asks first, so it takes longer than that and less than the ring.
    assert times["direct"] < told["finish_ns"] < times["ring"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (op("gstore"), "allowed operations: nop, flush"),
        (op("glres", [("o", 0)], [("o", 0)]), "without switch_channel_id"),
        (op("sem_acquire") | {"semaphore_ids": [0]}, "number 0 of a list of 0"),
        (op("pipeline"), "iter_context is none"),
        ({"name": "pipeline", "iter_context": {"unit_size": 0, "num_chunks": 1}}, "1 chunk by 0 bytes"),
        (
            {
                "name": "pipeline",
                "iter_context": {"unit_size": 8, "num_chunks": 1},
                "ops": [{"name": "pipeline"}],
            },
            r"operation 0\.0 \(pipeline\): allowed operations",
        ),
        ({"name": "put", "o_cids": []}, "the form of MSCCL\\+\\+ before 0.7"),
        ({"name": "put", "tbg_info": {}}, "no execution plan .*tb_id"),
        ({"name": "put", "tbg_info": {"tb_id": 2, "tbg_size": 2}}, "thread block 2 of a group of 2"),
        ({"name": "put", "tbg": {}}, "a group of thread blocks in an older form"),
        (op("put", [("o", 0)], [(9, 0)]), "number 9 of a list of 1"),
        (op("put", [("o", 0)], [("z", 0)]), "buffer 'z'"),
        (op("signal", channels=[3]), "number 3 of a list of 1"),
        ({"name": "barrier", "num_threadblocks": 4}, "4 thread blocks at a barrier of 1"),
        (op("put", [("o", -1)], [(0, 0)]), "chunks -1"),
        ({"name": 5}, "no execution plan"),
    ],
)
def test_what_is_not_known_is_told_with_its_place(change: dict, words: str):
    content = put_all_gather(2)
    content["gpus"][0]["threadblocks"][0]["ops"][0] = change
    with pytest.raises(TraceFormatError, match=words):
        parse(json.dumps(content).encode(), "x.json")


@pytest.mark.parametrize("peer", [[1], {}, None, "1"])
def test_a_channel_to_what_is_no_gpu_is_told_with_its_place(peer: object):
    content = put_all_gather(2)
    content["gpus"][0]["channels"][0]["connected_to"] = [peer]
    with pytest.raises(TraceFormatError, match="a channel to gpu"):
        parse(json.dumps(content).encode(), "x.json")
