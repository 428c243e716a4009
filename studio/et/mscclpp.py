"""Read an execution plan of MSCCL++ (JSON): what every thread block puts, gets, signals, waits for and adds.

`mscclpp_play.py` carries it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et.msccl_play import MOST_BYTES, Algorithm, Block, Chunks, Gpu
from studio.et.mscclpp_play import (
    LOOP,
    PUTS,
    SEMAPHORES,
    SIGNALS,
    SUMS,
    SWITCH,
    WAITS,
    Lane,
    Loop,
    PlanStep,
    build_player,
)
from studio.et.records import clean
from studio.units import format_counted

_MOVES = ("nop", "flush", "barrier", "copy", "cpkt", "get", "upkt")
_IN_LOOPS = tuple(dict.fromkeys((*_MOVES, *SUMS, *PUTS, *SIGNALS, *WAITS, SWITCH, *SEMAPHORES)))
_KNOWN = (*_IN_LOOPS, LOOP)
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_MOST_SHARES = 64
_MOST_GPUS, _MOST_CHUNKS, _MOST_STEPS = 1 << 14, 1 << 20, 1_000_000
_CORRECT = "Correct the file, or make it again with the tool that wrote it."


class _Buffer(msgspec.Struct, gc=False):
    index: int = 0
    size: int = 1
    type: str = ""
    buffer_id: int | None = None
    switch_channel_id: int | None = None


class _Group(msgspec.Struct, gc=False):
    """A group of thread blocks that share the chunks of an operation: which of them this one is."""

    tb_id: int
    tbg_size: int


class _Rounds(msgspec.Struct, gc=False):
    """How a loop cuts what its operations are of: into units of bytes, up to a number of chunks."""

    unit_size: int
    num_chunks: int


class _Operation(msgspec.Struct, gc=False):
    name: str
    src_buff: list[_Buffer] = []
    dst_buff: list[_Buffer] = []
    channel_ids: list[int] = []
    channel_type: str = ""
    barrier_id: int = 0
    num_threadblocks: int = 1
    tbg: dict[str, Any] | None = None
    tbg_info: _Group | None = None
    semaphore_ids: list[int] = []
    iter_context: _Rounds | None = None
    ops: list[_Operation] = []
    i_cids: list[Any] | None = None
    o_cids: list[Any] | None = None
    ctype: str | None = None


class _BlockChannels(msgspec.Struct, gc=False):
    channel_type: str = ""
    channel_ids: list[int] = []


class _References(msgspec.Struct, gc=False):
    access_channel_type: str = ""
    remote_buffer_ids: list[int] = []


class _Block(msgspec.Struct, gc=False):
    id: int
    ops: list[_Operation] = []
    channels: list[_BlockChannels] = []
    remote_buffer_refs: list[_References] = []


class _RankGroup(msgspec.Struct, gc=False):
    ranks: list[int] = []


class _Channels(msgspec.Struct, gc=False):
    channel_type: str = ""
    type: str = ""
    connected_to: list[Any] = []
    buffer_type: str = ""
    rank_groups: list[_RankGroup] = []


class _Semaphore(msgspec.Struct, gc=False):
    init_value: int = 0


class _Remote(msgspec.Struct, gc=False):
    rank: int
    type: str


class _Gpu(msgspec.Struct, gc=False):
    id: int
    threadblocks: list[_Block]
    input_chunks: int = 0
    output_chunks: int = 0
    scratch_chunks: int = 0
    channels: list[_Channels] = []
    remote_buffers: list[_Remote] = []
    semaphores: list[_Semaphore] = []


class _Plan(msgspec.Struct):
    gpus: list[_Gpu]
    name: str = ""
    collective: str = ""
    colletive: str = ""
    protocol: str = ""
    inplace: bool = False
    min_message_size: int = 0
    max_message_size: int = MOST_BYTES


_plan = build_decoder(_Plan)


def sniff(head: bytes) -> bool:
    """Whether `head` starts an execution plan."""
    return head.lstrip()[:1] == b"{" and all(key in head for key in (b'"gpus"', b'"threadblocks"'))


def parse(data: bytes, name: str) -> Algorithm:
    """Return the algorithm that an execution plan describes.

    Raises:
        TraceFormatError: It is no plan, or has operations that are not known here.
    """
    try:
        plan = _plan(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(f"{name}: no execution plan of MSCCL++: {error}.", hint=_CORRECT) from error
    return _Parser(plan, name).algorithm()


class _Parser:
    """One plan being parsed."""

    def __init__(self, plan: _Plan, name: str) -> None:
        self.plan, self.name = plan, name
        self.by_number = {gpu.id: gpu for gpu in plan.gpus}
        self.shares = 1
        """Parts of a chunk: groups of thread blocks cut what an operation is of into as many slices as they are."""

    def fail(self, place: str, message: str) -> TraceFormatError:
        """Return the error about one place."""
        return TraceFormatError(f"{self.name}: {place}: {message}.", hint=_CORRECT)

    def algorithm(self) -> Algorithm:
        """Return the algorithm."""
        plan, count = self.plan, len(self.plan.gpus)
        if not 1 <= count <= _MOST_GPUS or sorted(self.by_number) != list(range(count)):
            raise self.fail(
                "gpus", f"{count:,} with the ids {sorted(self.by_number)[:8]}; allowed: 0 and on, each once"
            )
        steps = sum(1 for _ in self.operations())
        if steps > _MOST_STEPS:
            raise self.fail("gpus", f"{steps:,} operations; allowed: up to {_MOST_STEPS:,}")
        self.shares = self.slices()
        collective = plan.collective or plan.colletive
        return Algorithm(
            name=clean(plan.name) or "algorithm",
            collective=_COLLECTIVES.get(re.sub(r"[^a-z]", "", collective.lower()), ""),
            file_collective=clean(collective),
            inplace=plan.inplace,
            protocol=clean(plan.protocol),
            gpus=tuple(self.gpu(self.by_number[number]) for number in range(count)),
            player=build_player,
            least_bytes=plan.min_message_size,
            most_bytes=plan.max_message_size,
        )

    def operations(self) -> Iterator[_Operation]:
        """Yield all operations, those of a loop after it."""
        for gpu in self.plan.gpus:
            for block in gpu.threadblocks:
                for operation in block.ops:
                    yield operation
                    yield from operation.ops

    def slices(self) -> int:
        """Return into how many parts every chunk is to be cut, so that each block of a group has whole ones."""
        groups = {
            (operation.tbg_info.tb_id, operation.tbg_info.tbg_size)
            for operation in self.operations()
            if operation.tbg_info is not None
        }
        for number, size in groups:
            if not 1 <= size <= _MOST_SHARES or not 0 <= number < size:
                raise self.fail(
                    "tbg_info",
                    f"thread block {number} of a group of {size}; allowed: groups of up to {_MOST_SHARES}",
                )
        shares = math.lcm(*(size for _, size in groups))
        if shares > _MOST_SHARES:
            raise self.fail(
                "tbg_info",
                f"groups whose sizes have {shares:,} as common multiple; allowed: up to {_MOST_SHARES}",
            )
        return shares

    def gpu(self, gpu: _Gpu) -> Gpu:
        """Return a GPU."""
        sizes = {
            kind: count * self.shares
            for kind, count in (("i", gpu.input_chunks), ("o", gpu.output_chunks), ("s", gpu.scratch_chunks))
        }
        if not all(0 <= size <= _MOST_CHUNKS for size in sizes.values()):
            raise self.fail(
                f"gpu {gpu.id}", f"chunks of its buffers are {sizes}; allowed: up to {_MOST_CHUNKS:,}"
            )
        numbers = [block.id for block in gpu.threadblocks]
        if len(set(numbers)) < len(numbers):
            raise self.fail(f"gpu {gpu.id}", "two thread blocks have one id")
        blocks = (
            Block(
                block.id,
                -1,
                -1,
                0,
                tuple(self.step(gpu, block, operation, f"{at}") for at, operation in enumerate(block.ops)),
            )
            for block in sorted(gpu.threadblocks, key=lambda block: block.id)
        )
        if any(not 0 <= each.init_value <= _MOST_STEPS for each in gpu.semaphores):
            raise self.fail(
                f"gpu {gpu.id}, semaphores", f"an init_value that is not between 0 and {_MOST_STEPS:,}"
            )
        free = tuple(each.init_value for each in gpu.semaphores)
        return Gpu(gpu.id, sizes, tuple(blocks), semaphores=free)

    def step(self, gpu: _Gpu, block: _Block, operation: _Operation, at: str) -> PlanStep:
        """Return an operation; `at` is its number, of one in a loop behind that of the loop."""
        place = f"gpu {gpu.id}, threadblock {block.id}, operation {at} ({operation.name[:20]})"
        if operation.i_cids is not None or operation.o_cids is not None or operation.ctype is not None:
            raise TraceFormatError(
                f"{self.name}: {place}: the form of MSCCL++ before 0.7 (i_cids, o_cids); allowed: src_buff and dst_buff.",
                hint="Make the plan again with the tools of MSCCL++ 0.7 or later.",
            )
        if operation.tbg is not None:
            raise self.fail(place, "a group of thread blocks in an older form; allowed: tbg_info")
        known = _IN_LOOPS if "." in at else _KNOWN
        if operation.name not in known:
            raise self.fail(place, f"allowed operations: {', '.join(known)}")
        if not 1 <= operation.num_threadblocks <= len(gpu.threadblocks):
            raise self.fail(
                place, f"{operation.num_threadblocks} thread blocks at a barrier of {len(gpu.threadblocks)}"
            )
        none = Chunks("i", -1, 0)
        return PlanStep(
            operation.name,
            none,
            none,
            None,
            at,
            tuple(
                each
                for buffer in operation.src_buff
                for each in self.chunks(gpu, block, operation, buffer, place)
            ),
            tuple(
                each
                for buffer in operation.dst_buff
                for each in self.chunks(gpu, block, operation, buffer, place)
            ),
            tuple(self.lanes(gpu, block, operation, place)),
            (operation.barrier_id, operation.num_threadblocks),
            self.semaphores(gpu, operation, place),
            self.loop(gpu, block, operation, at, place),
        )

    def semaphores(self, gpu: _Gpu, operation: _Operation, place: str) -> tuple[int, ...]:
        """Return the semaphores that an operation raises or lowers."""
        if operation.name not in SEMAPHORES:
            return ()
        for number in operation.semaphore_ids:
            self.item(gpu.semaphores, number, place)
        return tuple(operation.semaphore_ids)

    def loop(self, gpu: _Gpu, block: _Block, operation: _Operation, at: str, place: str) -> Loop | None:
        """Return what a loop repeats, None of any other operation."""
        if operation.name != LOOP:
            return None
        rounds = operation.iter_context
        if rounds is None or rounds.unit_size < 1 or not 1 <= rounds.num_chunks <= _MOST_CHUNKS:
            shown = (
                "none"
                if rounds is None
                else f"{format_counted(rounds.num_chunks, 'chunk')} by {format_counted(rounds.unit_size, 'byte')}"
            )
            raise self.fail(place, f"iter_context is {shown}; allowed: 1 chunk and 1 byte, or more")
        inner = (self.step(gpu, block, each, f"{at}.{number}") for number, each in enumerate(operation.ops))
        return Loop(rounds.unit_size, rounds.num_chunks * self.shares, tuple(inner))

    def find_switched(
        self, gpu: _Gpu, block: _Block, operation: _Operation, number: int, place: str
    ) -> tuple[str, list[int]]:
        """Return the buffer and the GPUs that a switch channel joins."""
        own = [
            each
            for operation in block.channels
            if operation.channel_type == "switch"
            for each in operation.channel_ids
        ]
        joined = [
            (channel.buffer_type, group.ranks)
            for channel in gpu.channels
            if channel.channel_type == "switch"
            for group in channel.rank_groups
        ]
        kind, ranks = self.item(self.item(own, number, place), None, place, joined)
        if operation.name != SWITCH or len(operation.src_buff) != 1 or len(operation.dst_buff) != 1:
            raise self.fail(place, f"a switch channel; allowed: one source and one target of {SWITCH}")
        if gpu.id not in ranks or len(set(ranks)) < len(ranks):
            raise self.fail(
                place,
                f"a switch channel of the gpus {ranks[:8]}; allowed: gpu {gpu.id} and others, each once",
            )
        return kind, ranks

    def chunks(
        self, gpu: _Gpu, block: _Block, operation: _Operation, buffer: _Buffer, place: str
    ) -> list[tuple[int, Chunks]]:
        """Return chunks with the GPU they lie on: those behind a switch lie on each GPU that it joins."""
        owners, kind = [gpu.id], buffer.type
        if buffer.switch_channel_id is not None:
            kind, owners = self.find_switched(gpu, block, operation, buffer.switch_channel_id, place)
        elif operation.name == SWITCH:
            raise self.fail(place, "a buffer without switch_channel_id; allowed: those of a switch channel")
        elif buffer.buffer_id is not None:
            references = [
                number
                for each in block.remote_buffer_refs
                if each.access_channel_type == operation.channel_type
                for number in each.remote_buffer_ids
            ]
            remote = self.item(
                self.item(references, buffer.buffer_id, place), None, place, gpu.remote_buffers
            )
            owners, kind = [remote.rank], remote.type
        size = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}.get(kind)
        if size is None or not all(owner in self.by_number for owner in owners):
            raise self.fail(
                place,
                f"buffer {kind!r} of gpu {owners[0] if len(owners) == 1 else owners[:8]}; allowed: i, o and s of a gpu of the plan",
            )
        if buffer.size < 0 or buffer.index < 0 or buffer.index + buffer.size > _MOST_CHUNKS:
            raise self.fail(
                place, f"chunks {buffer.index} and {buffer.size} on; allowed: below {_MOST_CHUNKS:,}"
            )
        first, count = buffer.index * self.shares, buffer.size * self.shares
        if operation.tbg_info is not None:
            count //= operation.tbg_info.tbg_size
            first += operation.tbg_info.tb_id * count
        return [(owner, Chunks(kind, first, count)) for owner in owners]

    def item(self, items: Any, number: Any, place: str, of: Any = None) -> Any:
        """Return an item of a list by its number; with `of`, the item of that list that `items` is the number of."""
        chosen, at = (items, number) if of is None else (of, items)
        if not isinstance(at, int) or not 0 <= at < len(chosen):
            raise self.fail(place, f"number {at} of a list of {len(chosen)}")
        return chosen[at]

    def lanes(self, gpu: _Gpu, block: _Block, operation: _Operation, place: str) -> Iterator[Lane]:
        """Yield the channels of an operation that signals or waits."""
        if operation.name not in (*SIGNALS, *WAITS):
            return
        if operation.channel_type == "switch":
            raise self.fail(place, "a signal through a switch; allowed: memory and port channels")
        own = [
            number
            for each in block.channels
            if each.channel_type == operation.channel_type
            for number in each.channel_ids
        ]
        peers = [
            peer
            for each in gpu.channels
            if (each.channel_type or each.type) == operation.channel_type
            for peer in each.connected_to
        ]
        for number in operation.channel_ids:
            at = self.item(own, number, place)
            peer = self.item(peers, at, place)
            if not isinstance(peer, int) or peer not in self.by_number:
                raise self.fail(place, f"a channel to gpu {peer!r}; allowed: a gpu of the plan")
            # The n-th channel of one GPU to another belongs to the n-th of that one back.
            turn = peers[:at].count(peer)
            source, target = (peer, gpu.id) if operation.name in WAITS else (gpu.id, peer)
            yield Lane(source, target, operation.channel_type, turn)
