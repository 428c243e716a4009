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


def mixed_all_reduce(*, shared: bool) -> dict[str, Any]:
    """GPU 0 reads and sums half of the chunks, GPU 1 the other half, each in another way; by one block each or a pair.

    Typed anew from microsoft/mscclpp, test/executor-tests/execution-plans/reduce.json and reduce_tbg.json.
    """

    def wide(made: dict[str, Any], block: int) -> dict[str, Any]:
        for chunks in (*made["src_buff"], *made["dst_buff"]):
            chunks["size"] = 2
        return part(made, block)

    def part(made: dict[str, Any], block: int) -> dict[str, Any]:
        return made | ({"tbg_info": {"tb_id": block, "tbg_size": 2}} if shared else {})

    nop, meet = {"name": "nop"}, [op("signal", channels=[0]), {"name": "nop"}, op("wait", channels=[0])]

    def first(block: int) -> list[dict[str, Any]]:
        fetched = part(op("get", [(0, 1)], [("s", 1)]), block) | {"channel_ids": [block]}
        return [
            wide(op("copy", [("i", 2)], [("s", 2)]), block), nop, *meet, nop,
            part(op("rres", [("i", 0), (0, 0)], [("i", 0), (1, 0)]), block), fetched, nop,
            part(op("res", [("i", 1), ("s", 1)], [("i", 1), (1, 1)]), block), nop, *meet, nop,
        ]  # fmt: skip

    def second(block: int) -> list[dict[str, Any]]:
        return [
            wide(op("copy", [("i", 0)], [("s", 0)]), block), nop, *meet, nop,
            wide(op("rre", [("i", 2), (0, 2)], [("i", 2)]), block), nop,
            wide(op("copy", [("i", 2)], [("s", 2)]), block), nop,
            wide(op("put", [("s", 2)], [(0, 2)]), block), nop, *meet, nop,
        ]  # fmt: skip

    blocks = range(2 if shared else 1)
    made = plan(
        "allreduce", [[first(at) for at in blocks], [second(at) for at in blocks]], (4, 4, 4), remote="i"
    )
    for number, gpu in enumerate(made["gpus"]):
        gpu["channels"] = [{"channel_type": "memory", "connected_to": [1 - number] * len(blocks)}]
        for at, block in enumerate(gpu["threadblocks"]):
            # The second block of a pair has its own channel first.
            block["channels"][0]["channel_ids"] = [1, 0] if at else [0]
    access = made["gpus"][0]
    access["remote_buffers"].insert(0, access["remote_buffers"][0] | {"type": "s"})
    for block in access["threadblocks"]:
        block["remote_buffer_refs"][0]["remote_buffer_ids"] = [0, 1]
    return made


def summed_packets(*, shared: bool) -> dict[str, Any]:
    """Two GPUs that put packets, add what comes and send the sum on, GPU 1 by way of its scratch too; a block each or a pair.

    Typed anew from microsoft/mscclpp, test/executor-tests/execution-plans/reduce_pack.json and reduce_pack_tbg.json.
    """

    def blocks(made: dict[str, Any]) -> list[list[dict[str, Any]]]:
        pair = [[made | {"tbg_info": {"tb_id": at, "tbg_size": 2}}] for at in range(2)]
        return pair if shared else [[made]]

    first = blocks(op("ppkt", [("i", 1)], [(0, 1)]))
    first += blocks(op("respkt", [("i", 0), ("s", 0)], [("i", 0), (0, 0)]))
    first += blocks(op("upkt", [("s", 1)], [("i", 1)]))
    second = blocks(op("ppkt", [("i", 0)], [(0, 0)]))
    second += blocks(op("recspkt", [("i", 1), ("s", 1)], [("i", 1), ("s", 2), (0, 1)]))
    second += blocks(op("upkt", [("s", 0)], [("i", 0)]))
    return plan("allreduce", [first, second], (2, 2, 3), remote="s")


def _joined(made: dict[str, Any], buffer: str, *, channels: int) -> dict[str, Any]:
    """A plan whose GPUs are joined by a switch as well, with channels to every other GPU."""
    ranks = list(range(len(made["gpus"])))
    for number, gpu in enumerate(made["gpus"]):
        peers = [rank for rank in ranks if rank != number]
        gpu["channels"] = [
            {"channel_type": "memory", "connected_to": peers * channels},
            {
                "channel_type": "switch",
                "buffer_type": buffer,
                "rank_groups": [{"size": len(ranks), "ranks": ranks}],
            },
        ]
        for block in gpu["threadblocks"]:
            block["channels"] = [
                {"channel_type": "memory", "channel_ids": list(range(len(peers) * channels))},
                {"channel_type": "switch", "channel_ids": [0]},
            ]
    return made


def _switch(index: int) -> dict[str, Any]:
    """A switch adds a chunk of all GPUs and writes the sum to all."""
    place = {"switch_channel_id": 0, "index": index, "size": 1}
    return {
        "name": "glres",
        "src_buff": [place],
        "dst_buff": [place],
        "channel_type": "switch",
        "reduce_op": "sum",
    }


def switch_all_reduce(gpus: int, unit_bytes: int = 0) -> dict[str, Any]:
    """Everybody has the switch add its chunk, once all are there and before any goes on; with a unit in a loop.

    Of the form of microsoft/mscclpp, test/executor-tests/execution-plans/reduce_nvls.json and reduce_nvls_pipeline.json.
    """
    nop, every = {"name": "nop"}, list(range(gpus - 1))
    meet = [
        op("", channels=every) | {"name": "rlxsignal"}, nop, op("", channels=every) | {"name": "rlxwait"}, nop,
    ]  # fmt: skip
    made = []
    for rank in range(gpus):
        add = _switch(rank)
        if unit_bytes:
            add = {
                "name": "pipeline",
                "iter_context": {"unit_size": unit_bytes, "num_chunks": 1},
                "ops": [add],
            }
        made.append([[nop, *meet, add, nop, *meet]])
    return _joined(plan("allreduce", made, (gpus, gpus, 0), remote="i"), "i", channels=1)


def pipelined_all_reduce(unit_bytes: int) -> dict[str, Any]:
    """Two GPUs, three thread blocks in loops that hand chunks on by semaphores: into scratch, added by the switch, out.

    Of the form of microsoft/mscclpp, python/mscclpp/language/tests/single_node/allreduce_pipeline.py.
    """

    def loop(*ops: dict[str, Any]) -> list[dict[str, Any]]:
        rounds = {"unit_size": unit_bytes, "num_chunks": 1}
        return [{"name": "pipeline", "iter_context": rounds, "ops": list(ops)}]

    def semaphore(name: str, number: int) -> dict[str, Any]:
        return {"name": f"sem_{name}", "semaphore_ids": [number]}

    nop, made = {"name": "nop"}, []
    for rank in range(2):
        taken = [op("copy", [("i", chunk)], [("s", chunk)]) for chunk in range(2)]
        given = [op("copy", [("s", chunk)], [("o", chunk)]) for chunk in range(2)]
        first = loop(
            *taken, nop, op("signal", channels=[0]), op("wait", channels=[0]), semaphore("release", 0)
        )
        second = loop(
            semaphore("acquire", 0),
            nop,
            _switch(rank),
            nop,
            op("signal", channels=[1]),
            semaphore("release", 1),
        )
        third = loop(semaphore("acquire", 1), op("wait", channels=[1]), nop, *given)
        made.append([first, second, third])
    joined = _joined(plan("allreduce", made, (2, 2, 2), remote="s", inplace=False), "s", channels=2)
    for gpu in joined["gpus"]:
        gpu["semaphores"] = [{"init_value": 0}, {"init_value": 0}]
    return joined
