"""Read an execution plan of MSCCL++ (JSON): what every thread block puts, gets, signals, waits for and adds.

GPUs write into and read from each other's buffers. A put is a message, a signal one of a few bytes, a get one of a few bytes
that asks and one that answers; a wait is over once the signal and what was put before it have come. A thread block goes on
while what it puts is under way; a signal waits for what was put to the same GPU. What one operation reads comes side by side.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from studio.decoding import decoder
from studio.errors import TraceFormatError
from studio.et.msccl_play import Algorithm, Block, Chunks, Course, Gpu, Player, Step
from studio.et.records import clean

SIGNAL_BYTES = 8
"""What a signal writes, and what asks for a get."""
_PACKETS = 2
"""Packets carry a flag beside as many bytes of data."""
_SUMS = ("re", "res", "rre", "rres", "repkt", "respkt")
_PUTS = ("put", "pws", "pwsf", "ppkt", "res", "rres", "respkt", "rppkt")
_SIGNALS = ("signal", "rlxsignal", "pws", "pwsf")
_WAITS = ("wait", "rlxwait")
_POLLS = ("upkt", "repkt", "respkt", "rppkt")
_KNOWN = ("nop", "flush", "barrier", "copy", "cpkt", "get", "upkt", *_SUMS, *_PUTS, *_SIGNALS, *_WAITS)
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


class _Group(msgspec.Struct, gc=False):
    """A group of thread blocks that share the chunks of an operation: which of them this one is."""

    tb_id: int
    tbg_size: int


class _Operation(msgspec.Struct, gc=False):
    name: str
    src_buff: list[_Buffer] = []
    dst_buff: list[_Buffer] = []
    channel_ids: list[int] = []
    put_channel_ids: list[int] = []
    channel_type: str = ""
    barrier_id: int = 0
    num_threadblocks: int = 1
    tbg: dict[str, Any] | None = None
    tbg_info: _Group | None = None
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


class _Channels(msgspec.Struct, gc=False):
    channel_type: str = ""
    type: str = ""
    connected_to: list[Any] = []


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


class _Plan(msgspec.Struct):
    gpus: list[_Gpu]
    name: str = ""
    collective: str = ""
    colletive: str = ""
    protocol: str = ""
    inplace: bool = False


_plan = decoder(_Plan)


def sniff(head: bytes) -> bool:
    """Whether `head` starts an execution plan."""
    return head.lstrip()[:1] == b"{" and all(key in head for key in (b'"gpus"', b'"threadblocks"'))


@dataclass(frozen=True, slots=True)
class Lane:
    """A channel from one GPU to another, in one of both directions."""

    source: int
    target: int
    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class PlanStep(Step):
    """An operation of a plan.

    Attributes:
        sources, targets: Chunks that it reads and writes, each with the GPU they lie on.
        lanes: Channels that it signals on or waits for, towards the GPU that takes the signal.
        barrier: Number of the barrier and of the thread blocks that meet there.
    """

    sources: tuple[tuple[int, Chunks], ...]
    targets: tuple[tuple[int, Chunks], ...]
    lanes: tuple[Lane, ...]
    barrier: tuple[int, int]


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
        steps = sum(len(block.ops) for gpu in plan.gpus for block in gpu.threadblocks)
        if steps > _MOST_STEPS:
            raise self.fail("gpus", f"{steps:,} operations; allowed: up to {_MOST_STEPS:,}")
        self.shares = self.slices()
        told = plan.collective or plan.colletive
        return Algorithm(
            name=clean(plan.name) or "algorithm",
            collective=_COLLECTIVES.get(re.sub(r"[^a-z]", "", told.lower()), ""),
            told=clean(told),
            inplace=plan.inplace,
            protocol=clean(plan.protocol),
            gpus=tuple(self.gpu(self.by_number[number]) for number in range(count)),
            player=_PlanPlayer,
        )

    def slices(self) -> int:
        """Return into how many parts every chunk is to be cut, so that each block of a group has whole ones."""
        groups = {
            (told.tbg_info.tb_id, told.tbg_info.tbg_size)
            for gpu in self.plan.gpus
            for block in gpu.threadblocks
            for told in block.ops
            if told.tbg_info is not None
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
            Block(block.id, -1, -1, 0, tuple(self.step(gpu, block, at) for at in range(len(block.ops))))
            for block in sorted(gpu.threadblocks, key=lambda block: block.id)
        )
        return Gpu(gpu.id, sizes, tuple(blocks))

    def step(self, gpu: _Gpu, block: _Block, at: int) -> PlanStep:
        """Return an operation."""
        told = block.ops[at]
        place = f"gpu {gpu.id}, threadblock {block.id}, operation {at} ({told.name[:20]})"
        if told.i_cids is not None or told.o_cids is not None or told.ctype is not None:
            raise self.fail(
                place, "the form of MSCCL++ before 0.7 (i_cids, o_cids); allowed: src_buff and dst_buff"
            )
        if told.tbg is not None:
            raise self.fail(place, "a group of thread blocks in an older form; allowed: tbg_info")
        if told.name not in _KNOWN:
            raise self.fail(place, f"allowed operations: {', '.join(dict.fromkeys(_KNOWN))}")
        if not 1 <= told.num_threadblocks <= len(gpu.threadblocks):
            raise self.fail(
                place, f"{told.num_threadblocks} thread blocks at a barrier of {len(gpu.threadblocks)}"
            )
        none = Chunks("i", -1, 0)
        return PlanStep(
            told.name,
            none,
            none,
            None,
            tuple(self.chunks(gpu, block, told, each, place) for each in told.src_buff),
            tuple(self.chunks(gpu, block, told, each, place) for each in told.dst_buff),
            tuple(self.lanes(gpu, block, told, place)),
            (told.barrier_id, told.num_threadblocks),
        )

    def chunks(
        self, gpu: _Gpu, block: _Block, told: _Operation, buffer: _Buffer, place: str
    ) -> tuple[int, Chunks]:
        """Return chunks with the GPU they lie on."""
        owner, kind = gpu.id, buffer.type
        if buffer.buffer_id is not None:
            references = [
                number
                for each in block.remote_buffer_refs
                if each.access_channel_type == told.channel_type
                for number in each.remote_buffer_ids
            ]
            remote = self.item(
                self.item(references, buffer.buffer_id, place), None, place, gpu.remote_buffers
            )
            owner, kind = remote.rank, remote.type
        size = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}.get(kind)
        if size is None or owner not in self.by_number:
            raise self.fail(
                place, f"buffer {kind!r} of gpu {owner}; allowed: i, o and s of a gpu of the plan"
            )
        if buffer.size < 0 or buffer.index < 0 or buffer.index + buffer.size > _MOST_CHUNKS:
            raise self.fail(
                place, f"chunks {buffer.index} and {buffer.size} on; allowed: below {_MOST_CHUNKS:,}"
            )
        first, count = buffer.index * self.shares, buffer.size * self.shares
        if told.tbg_info is not None:
            count //= told.tbg_info.tbg_size
            first += told.tbg_info.tb_id * count
        return owner, Chunks(kind, first, count)

    def item(self, items: Any, number: Any, place: str, of: Any = None) -> Any:
        """Return an item of a list by its number; with `of`, the item of that list that `items` is the number of."""
        chosen, at = (items, number) if of is None else (of, items)
        if not isinstance(at, int) or not 0 <= at < len(chosen):
            raise self.fail(place, f"number {at} of a list of {len(chosen)}")
        return chosen[at]

    def lanes(self, gpu: _Gpu, block: _Block, told: _Operation, place: str) -> Iterator[Lane]:
        """Yield the channels of an operation that signals or waits."""
        if told.name not in (*_SIGNALS, *_WAITS):
            return
        if told.channel_type == "switch":
            raise self.fail(place, "a channel through a switch that adds (NVLS); not known here")
        own = [
            number
            for each in block.channels
            if each.channel_type == told.channel_type
            for number in each.channel_ids
        ]
        peers = [
            peer
            for each in gpu.channels
            if (each.channel_type or each.type) == told.channel_type
            for peer in each.connected_to
        ]
        for number in told.channel_ids:
            at = self.item(own, number, place)
            peer = self.item(peers, at, place)
            if peer not in self.by_number:
                raise self.fail(place, f"a channel to gpu {peer!r}; allowed: a gpu of the plan")
            # The n-th channel of one GPU to another belongs to the n-th of that one back.
            turn = peers[:at].count(peer)
            source, target = (peer, gpu.id) if told.name in _WAITS else (gpu.id, peer)
            yield Lane(source, target, told.channel_type, turn)


class _PlanPlayer(Player):
    """One plan being carried out."""

    def __init__(self, *given: Any) -> None:
        self.signals: dict[Lane, deque[frozenset[int]]] = {}
        self.come: dict[tuple[int, str, int], int] = {}
        """By chunk: the node of its GPU with which another one's write came."""
        self.sent: dict[tuple[int, int], set[int]] = {}
        """By source and target: receives that the next signal stands for."""
        self.posted: dict[tuple[int, int], set[int]] = {}
        """By source and target: sends that the next signal waits for."""
        self.meeting: dict[tuple[int, int], dict[int, Course]] = {}
        self.passed: set[tuple[int, int, int]] = set()
        self.depths: dict[tuple[int, int], int] = {}
        """By GPU and node: messages one after the other until it ends."""
        super().__init__(*given)

    def _reason(self, course: Course) -> str:
        step = course.block.steps[course.at]
        assert isinstance(step, PlanStep)
        if step.what in _WAITS:
            missing = next(lane for lane in step.lanes if not self.signals.get(lane))
            return (
                f"for a signal of GPU {missing.source} on channel {missing.number} that does not come before"
            )
        if step.what == "barrier":
            here = len(self.meeting.get((course.gpu, step.barrier[0]), {}))
            return f"at barrier {step.barrier[0]} with {here:,} of {step.barrier[1]:,} thread blocks"
        return "for packets that nobody puts before"

    def _wait(self, course: Course, step: Step) -> tuple[Any, ...] | None:
        assert isinstance(step, PlanStep)
        if step.what in _WAITS:
            missing = next((lane for lane in step.lanes if not self.signals.get(lane)), None)
            return None if missing is None else ("signal", missing)
        if step.what == "barrier" and (course.gpu, step.barrier[0], course.block.number) not in self.passed:
            here = self.meeting.setdefault((course.gpu, step.barrier[0]), {})
            here[course.block.number] = course
            return None if len(here) >= step.barrier[1] else ("barrier", course.gpu, step.barrier[0])
        if step.what in _POLLS:
            for owner, chunks in step.sources:
                for number in range(chunks.count):
                    key = self._key(owner, chunks.buffer, chunks.offset + number)
                    if key not in self.held:
                        return "chunk", key
        return None

    def _advance(self, course: Course) -> Iterator[Course]:
        while course.at < len(course.block.steps):
            step = course.block.steps[course.at]
            wait = self._wait(course, step)
            if wait is not None:
                self.waiting.setdefault(wait, []).append(course)
                return
            assert isinstance(step, PlanStep)
            woken = self._do(course, step)
            course.at += 1
            for key in woken:
                yield from self.waiting.pop(key, ())

    def _do(self, course: Course, step: PlanStep) -> list[tuple[Any, ...]]:
        """Carry out an operation; returns what may be waited for and is there now."""
        if step.what == "barrier":
            return self._meet(course, step)
        if step.what in _WAITS:
            for lane in step.lanes:
                course.after |= self.signals[lane].popleft()
            return []
        if step.what == "flush":
            ours = [sends for (source, _), sends in self.posted.items() if source == course.gpu]
            course.after |= frozenset().union(*ours)
        woken: list[tuple[Any, ...]] = []
        if step.what not in ("nop", "flush", *_SIGNALS) or step.what in _PUTS:
            woken += self._move(course, step)
        if step.what in _SIGNALS:
            for lane in step.lanes:
                woken.append(self._signal(course, lane))
        return woken

    def _meet(self, course: Course, step: PlanStep) -> list[tuple[Any, ...]]:
        """Let the thread blocks of a barrier go on once all are there."""
        number = step.barrier[0]
        mark = (course.gpu, number, course.block.number)
        if mark in self.passed:
            self.passed.discard(mark)
            return []
        here = self.meeting.pop((course.gpu, number))
        after = frozenset().union(*(each.after for each in here.values()))
        for block, each in here.items():
            each.after = after
            if each is not course:
                self.passed.add((course.gpu, number, block))
        return [("barrier", course.gpu, number)]

    def _move(self, course: Course, step: PlanStep) -> list[tuple[Any, ...]]:
        """Carry out an operation that moves or adds chunks."""
        place = self._place(course)
        width = _PACKETS if step.what in ("ppkt", "respkt", "rppkt") else 1
        read = step.sources if step.what in _SUMS else step.sources[:1]
        before, ends = course.after, frozenset[int]()
        fetched = []
        for owner, chunks in read:
            course.after = before
            fetched.append(self._fetch(course, owner, chunks, place))
            ends |= course.after
        course.after = ends or before
        values = fetched[0] if fetched else None
        for got in fetched[1:]:
            assert values is not None
            values = self._sum_of(course, values, got, place)
        woken: list[tuple[Any, ...]] = []
        for owner, chunks in step.targets:
            given = ((values or ()) + (0,) * chunks.count)[: chunks.count]
            if values is not None and len(values) != chunks.count:
                self.flaw(
                    "unmatched", f"{place} writes {chunks.count:,} chunks of {len(values):,} that it reads"
                )
            keys = [self._key(owner, chunks.buffer, chunks.offset + number) for number in range(chunks.count)]
            if owner != course.gpu:
                here = course.after
                node = self._message(course, course.gpu, owner, len(given) * width * self.chunk_bytes)
                self.posted.setdefault((course.gpu, owner), set()).update(course.after)
                course.after = here
                self.sent.setdefault((course.gpu, owner), set()).add(node)
                self.come.update(dict.fromkeys(keys, node))
            else:
                for key in keys:
                    self.come.pop(key, None)
            self._write(owner, chunks, given)
            woken += [("chunk", key) for key in keys]
        return woken

    def _sum_of(
        self, course: Course, one: tuple[int, ...], other: tuple[int, ...], place: str
    ) -> tuple[int, ...]:
        """Return the sums of chunks, of which there must be as many on both sides."""
        if len(one) != len(other):
            self.flaw("unmatched", f"{place} adds {len(other):,} chunks to {len(one):,}")
            other = (other + (0,) * len(one))[: len(one)]
        busy_ns = self.delay_ns(len(other) * self.chunk_bytes, True)
        if busy_ns > 0:
            self._add(course, "COMP_NODE", {"is_cpu_op": False}, "add: ", busy_ns)
        return self._added(one, other, place)

    def _fetch(self, course: Course, owner: int, chunks: Chunks, place: str) -> tuple[int, ...]:
        """Return what chunks hold, asking another GPU for its own."""
        values = self._read(owner, chunks, place)
        if owner != course.gpu:
            asked = self._message(course, course.gpu, owner, SIGNAL_BYTES)
            answer = Course(owner, course.block, course.at, frozenset({asked}))
            got = self._message(answer, owner, course.gpu, chunks.count * self.chunk_bytes)
            course.after = frozenset({got})
            return values
        for number in range(chunks.count):
            known = self.come.get(self._key(owner, chunks.buffer, chunks.offset + number))
            if known is not None:
                course.after |= {known}
        return values

    def _signal(self, course: Course, lane: Lane) -> tuple[Any, ...]:
        """Send a signal, which stands for everything that was put to its target before."""
        here = course.after
        course.after = here | frozenset(self.posted.pop((lane.source, lane.target), ()))
        node = self._message(course, lane.source, lane.target, SIGNAL_BYTES)
        course.after = here
        nodes = frozenset(self.sent.pop((lane.source, lane.target), set()) | {node})
        self.signals.setdefault(lane, deque()).append(nodes)
        return "signal", lane

    def _message(self, course: Course, source: int, target: int, size: int) -> int:
        """Send a message after what the block did before; returns the node that receives it."""
        tag = self.tags.get((source, target), 0)
        self.tags[source, target] = tag + 1
        name = f"{course.block.steps[course.at].what} block {course.block.number} step {course.at}"
        shared: Mapping[str, Any] = {"is_cpu_op": False, "comm_size": size, "comm_tag": tag}
        sent = self._put(source, "COMM_SEND_NODE", {**shared, "comm_dst": target}, name, course.after)
        if source == course.gpu:
            course.after = frozenset({sent})
        # What another GPU writes comes without a block of this one waiting for it.
        come = self._put(target, "COMM_RECV_NODE", {**shared, "comm_src": source}, name, frozenset())
        self.depths[source, sent] = self.depths[target, come] = self.depths[source, sent] + 1
        self.played.longest = max(self.played.longest, self.depths[source, sent])
        return come

    def _put(
        self,
        gpu: int,
        kind: str,
        attrs: dict[str, Any],
        name: str,
        after: frozenset[int],
        duration_ns: int = 0,
    ) -> int:
        number = super()._put(gpu, kind, attrs, name, after, duration_ns)
        self.depths[gpu, number] = max((self.depths[gpu, before] for before in after), default=0)
        return number
