"""Execution plans as MSCCL++ writes them, made by hand from its public form (microsoft/mscclpp, python/mscclpp/language)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Places = Sequence[tuple[str | int, int]]
"""Chunks: a buffer of the own GPU, or the number of a remote buffer, and the index."""


def op(name: str, sources: Places = (), targets: Places = (), channels: Sequence[int] = ()) -> dict[str, Any]:
    """One operation on memory channels."""

    def buffers(places: Places) -> list[dict[str, Any]]:
        return [
            {"type" if isinstance(buffer, str) else "buffer_id": buffer, "index": index, "size": 1}
            for buffer, index in places
        ]

    made: dict[str, Any] = {"name": name, "channel_type": "memory"}
    if sources:
        made["src_buff"] = buffers(sources)
    if targets:
        made["dst_buff"] = buffers(targets)
    if channels:
        made["channel_ids"] = list(channels)
    return made


def plan(
    collective: str,
    gpus: Sequence[Sequence[Sequence[dict[str, Any]]]],
    sizes: tuple[int, int, int],
    *,
    remote: str,
    inplace: bool = True,
) -> dict[str, Any]:
    """A plan: of each GPU its thread blocks, with a channel to and a remote buffer of every other GPU."""
    made = []
    for number, blocks in enumerate(gpus):
        peers = [peer for peer in range(len(gpus)) if peer != number]
        every = list(range(len(peers)))
        threadblocks = [
            {
                "id": at,
                "ops": list(ops),
                "channels": [{"channel_type": "memory", "channel_ids": every}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": every}],
            }
            for at, ops in enumerate(blocks)
        ]
        made.append(
            {
                "id": number,
                "input_chunks": sizes[0],
                "output_chunks": sizes[1],
                "scratch_chunks": sizes[2],
                "threadblocks": threadblocks,
                "channels": [{"channel_type": "memory", "connected_to": peers}],
                "remote_buffers": [
                    {"rank": peer, "type": remote, "access_channel_types": ["memory"]} for peer in peers
                ],
                "semaphores": [],
            }
        )
    return {
        "name": collective, "collective": collective, "protocol": "Simple", "inplace": inplace, "reuse_resources": False,
        "gpus": made, "num_threads_per_block": 1024, "use_double_scratch_buffer": False, "buffer_alignment": 16,
        "min_message_size": 0, "max_message_size": 2**64 - 1,
    }  # fmt: skip


def put_all_gather(gpus: int) -> dict[str, Any]:
    """Everybody puts its part to everybody, signals and waits."""
    every = list(range(gpus - 1))
    made = []
    for rank in range(gpus):
        puts = [op("put", [("o", rank)], [(peer, rank)], [peer]) for peer in every]
        made.append([[*puts, op("nop"), op("signal", channels=every), op("wait", channels=every)]])
    return plan("allgather", made, (1, gpus, 0), remote="o")


def reading_all_reduce(gpus: int) -> dict[str, Any]:
    """Everybody reads its chunk of all others, adds, and puts the sum to all; two thread blocks that meet at barriers."""
    every = list(range(gpus - 1))
    meet = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
    made = []
    for rank in range(gpus):
        sums = op(
            "rres",
            [("i", rank), *((peer, rank) for peer in every)],
            [("i", rank), *((peer, rank) for peer in every)],
        )
        first = [op("relaxed", channels=every) | {"name": "rlxsignal"}, op("wait", channels=every), meet]
        second = [meet, sums, op("signal", channels=every), op("wait", channels=every)]
        made.append([first, second])
    return plan("allreduce", made, (gpus, 0, 0), remote="i")


def packet_all_reduce(gpus: int) -> dict[str, Any]:
    """Everybody puts its chunk as packets into the scratch of all others, who add what comes; no signals."""
    made = []
    for rank in range(gpus):
        puts = [op("ppkt", [("i", 0)], [(peer, rank)]) for peer in range(gpus - 1)]
        others = [("s", peer) for peer in range(gpus) if peer != rank]
        made.append([[*puts, op("repkt", [("i", 0), *others], [("i", 0)])]])
    return plan("allreduce", made, (1, 0, gpus), remote="s")


def shared_all_gather() -> dict[str, Any]:
    """Packets by groups of two thread blocks, GPU 1 by way of its own scratch.

    Typed anew from microsoft/mscclpp, test/executor-tests/execution-plans/transfer_pack_tbg.json.
    """

    def both(name: str, source: tuple[str, int], target: tuple[str | int, int]) -> list[list[dict[str, Any]]]:
        one = op(name, [source], [target])
        return [[one | {"tbg_info": {"tb_id": at, "tbg_size": 2}}] for at in range(2)]

    first = both("ppkt", ("o", 0), (0, 0)) + both("upkt", ("s", 1), ("o", 1))
    second = (
        both("cpkt", ("o", 1), ("s", 1)) + both("rppkt", ("s", 1), (0, 1)) + both("upkt", ("s", 0), ("o", 0))
    )
    return plan("allgather", [first, second], (1, 2, 2), remote="s")


def port_all_gather() -> dict[str, Any]:
    """Puts over port channels, two between the same GPUs, a block for each; with and without a signal and a flush in one.

    Typed anew from microsoft/mscclpp, test/executor-tests/execution-plans/multi_node_transfer.json.
    """

    def port(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "channel_ids": [0], "channel_type": "port", **more}

    def put(name: str, index: int, size: int) -> dict[str, Any]:
        chunks = {"index": index, "size": size}
        return port(name, src_buff=[{"type": "o", **chunks}], dst_buff=[{"buffer_id": 0, **chunks}])

    nop, meet = (
        {"name": "nop"},
        [{"name": "nop"}, port("signal"), {"name": "nop"}, port("wait"), {"name": "nop"}],
    )
    blocks = (
        (
            [*meet, put("put", 0, 1), nop, port("signal"), nop, port("flush"), nop, port("wait"), nop],
            [*meet, put("pws", 1, 1), nop, port("flush"), nop],
        ),
        ([*meet, put("pwsf", 2, 2), nop, port("wait"), nop], [*meet, port("wait"), nop]),
    )
    made = plan("allgather", blocks, (2, 4, 0), remote="o")
    for number, gpu in enumerate(made["gpus"]):
        gpu["channels"] = [{"channel_type": "port", "connected_to": [1 - number] * 2}]
        gpu["remote_buffers"][0]["access_channel_types"] = ["port"]
        for at, block in enumerate(gpu["threadblocks"]):
            block["channels"] = [{"channel_type": "port", "channel_ids": [at]}]
            block["remote_buffer_refs"] = [{"access_channel_type": "port", "remote_buffer_ids": [0]}]
    return made
