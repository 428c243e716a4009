"""Carry out an execution plan of MSCCL++: which messages its operations are, and what its chunks hold.

GPUs write into and read from each other's buffers. A put is a message, a signal one of a few bytes, a get one of a few bytes
that asks and one that answers; a wait is over once the signal and what was put before it have come. A thread block goes on
while what it puts is under way; a signal waits for what was put to the same GPU. What one operation reads comes side by side.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from studio.errors import TraceFormatError
from studio.et.msccl_play import Algorithm, Chunks, Course, Player, Step
from studio.units import format_counted

SIGNAL_BYTES = 8
"""What a signal writes, and what asks for a get."""
_PACKETS = 2
"""Packets carry a flag beside as many bytes of data."""
SUMS = ("re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt")
PUTS = ("put", "pws", "pwsf", "ppkt", "res", "rres", "respkt", "recspkt", "rppkt")
SIGNALS = ("signal", "rlxsignal", "pws", "pwsf")
WAITS = ("wait", "rlxwait")
_POLLS = ("upkt", "repkt", "respkt", "recpkt", "recspkt", "rppkt")
_WIDE = ("ppkt", "respkt", "recspkt", "rppkt")
SWITCH, LOOP = "glres", "pipeline"
"""What a switch adds and hands to all of a group (NVLS), and a loop."""
SEMAPHORES = _ACQUIRE, _RELEASE = "sem_acquire", "sem_release"
_MOST_ROUNDS = 64
_MOST_STEPS = 1_000_000


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
        at: Its number in the plan.
        sources, targets: Chunks that it reads and writes, each with the GPU they lie on.
        lanes: Channels that it signals on or waits for, towards the GPU that takes the signal.
        barrier: Number of the barrier and of the thread blocks that meet there.
        semaphores: Those of its GPU that it raises or lowers.
        loop: What it repeats; None of any other operation.
    """

    at: str
    sources: tuple[tuple[int, Chunks], ...]
    targets: tuple[tuple[int, Chunks], ...]
    lanes: tuple[Lane, ...]
    barrier: tuple[int, int]
    semaphores: tuple[int, ...] = ()
    loop: Loop | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """Operations that are repeated, each time with the next bytes of their chunks.

    Attributes:
        unit_bytes: How many bytes of each chunk, or of what follows it, a round takes.
        chunks: How many chunks all rounds take.
        steps: The operations.
    """

    unit_bytes: int
    chunks: int
    steps: tuple[PlanStep, ...]


def build_player(algorithm: Algorithm, chunk_bytes: int, delay_ns: Callable[[int, bool], int]) -> Player:
    """Return what carries a plan out with chunks of a size, each cut so that every round of a loop has whole pieces.

    Raises:
        TraceFormatError: The rounds of its loops are more steps than can be followed.
    """
    loops = {
        (step.loop.unit_bytes, step.loop.chunks)
        for gpu in algorithm.gpus
        for block in gpu.blocks
        for step in block.steps
        if isinstance(step, PlanStep) and step.loop
    }
    rounds_of = {(unit, chunks): max(-(-chunks * chunk_bytes // unit), 1) for unit, chunks in loops}
    pieces, rounds = math.lcm(*rounds_of.values()), rounds_of
    if pieces > _MOST_ROUNDS:
        pieces = min(max(rounds_of.values()), _MOST_ROUNDS)
        rounds = dict.fromkeys(rounds_of, pieces)
    gpus = tuple(
        replace(
            gpu,
            sizes={kind: size * pieces for kind, size in gpu.sizes.items()},
            blocks=tuple(
                replace(block, steps=tuple(_unroll_steps(block.steps, rounds, pieces)))
                for block in gpu.blocks
            ),
        )
        for gpu in algorithm.gpus
    )
    steps = sum(len(block.steps) for gpu in gpus for block in gpu.blocks)
    if steps > _MOST_STEPS:
        raise TraceFormatError(
            f"{algorithm.name}: with the rounds of its loops {steps:,} operations; allowed: up to {_MOST_STEPS:,}.",
            hint="Ask for a smaller size.",
        )
    player = _PlanPlayer(replace(algorithm, gpus=gpus), chunk_bytes, delay_ns, pieces)
    if rounds != rounds_of:
        player.played.notes["rounds-joined"] = (
            f"its loops take {max(rounds_of.values()):,} rounds at this size; {pieces} longer ones are followed"
        )
    return player


def _unroll_steps(
    steps: Iterable[Step], rounds: Mapping[tuple[int, int], int], pieces: int
) -> Iterator[PlanStep]:
    """Yield operations of chunks in pieces, those of loops once for each round."""
    for step in steps:
        assert isinstance(step, PlanStep)
        loop = step.loop
        if loop is None:
            yield _cut_step(step, pieces, 0, None)
            continue
        count = rounds[loop.unit_bytes, loop.chunks]
        unit = loop.chunks * pieces // count
        for number in range(count):
            for inner in loop.steps:
                part = _cut_step(inner, pieces, number * unit, unit)
                yield replace(part, at=f"{part.at} in round {number}") if count > 1 else part


def _cut_step(step: PlanStep, pieces: int, first: int, most: int | None) -> PlanStep:
    """Return an operation of some pieces of its chunks: of so many, from the first on; those it has not are left out."""

    def cut(places: tuple[tuple[int, Chunks], ...]) -> Iterator[tuple[int, Chunks]]:
        for owner, chunks in places:
            whole = chunks.count * pieces
            count = whole if most is None else min(whole - first, most)
            if count > 0 or whole == 0:
                yield owner, Chunks(chunks.buffer, chunks.offset * pieces + first, count)

    return replace(step, sources=tuple(cut(step.sources)), targets=tuple(cut(step.targets)))


class _PlanPlayer(Player):
    """One plan being carried out."""

    def __init__(
        self, algorithm: Algorithm, chunk_bytes: int, delay_ns: Callable[[int, bool], int], pieces: int
    ) -> None:
        self.pieces = pieces
        """Parts that the chunks of the plan are cut into, of which `chunk_bytes` is the size."""
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
        super().__init__(algorithm, chunk_bytes, delay_ns)
        self.free = {
            (gpu.number, number): deque([frozenset[int]()] * count)
            for gpu in self.algorithm.gpus
            for number, count in enumerate(gpu.semaphores)
        }
        """By GPU and semaphore: what whoever lowers it waits for, for each time that it was raised."""

    def _compute_bytes(self, pieces: int) -> int:
        """Return how many bytes so many pieces of chunks have."""
        return -(-pieces * self.chunk_bytes // self.pieces)

    def _format_number(self, course: Course) -> str:
        step = course.block.steps[course.at]
        assert isinstance(step, PlanStep)
        return step.at

    def _explain_wait(self, course: Course) -> str:
        step = course.block.steps[course.at]
        assert isinstance(step, PlanStep)
        if step.what in WAITS:
            missing = next(lane for lane in step.lanes if not self.signals.get(lane))
            return (
                f"for a signal of GPU {missing.source} on channel {missing.number} that does not come before"
            )
        if step.what == "barrier":
            here = len(self.meeting.get((course.gpu, step.barrier[0]), {}))
            return f"at barrier {step.barrier[0]} with {here:,} of {step.barrier[1]:,} thread blocks"
        if step.what == _ACQUIRE:
            missing_id = next(each for each in step.semaphores if not self.free[course.gpu, each])
            return f"for semaphore {missing_id}, which nobody releases before"
        return "for packets that nobody puts before"

    def _wait(self, course: Course, step: Step) -> tuple[Any, ...] | None:
        assert isinstance(step, PlanStep)
        if step.what in WAITS:
            missing = next((lane for lane in step.lanes if not self.signals.get(lane)), None)
            return None if missing is None else ("signal", missing)
        if step.what == "barrier" and (course.gpu, step.barrier[0], course.block.number) not in self.passed:
            here = self.meeting.setdefault((course.gpu, step.barrier[0]), {})
            here[course.block.number] = course
            return None if len(here) >= step.barrier[1] else ("barrier", course.gpu, step.barrier[0])
        if step.what == _ACQUIRE:
            taken = next((each for each in step.semaphores if not self.free[course.gpu, each]), None)
            return None if taken is None else ("semaphore", course.gpu, taken)
        if step.what in _POLLS:
            for owner, chunks in step.sources:
                for number in range(chunks.count):
                    key = self._find_place(owner, chunks.buffer, chunks.offset + number)
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
            woken = self._carry_out_step(course, step)
            course.at += 1
            for key in woken:
                yield from self.waiting.pop(key, ())

    def _carry_out_step(self, course: Course, step: PlanStep) -> list[tuple[Any, ...]]:
        """Carry out an operation; returns what may be waited for and is there now."""
        if step.what == "barrier":
            return self._meet(course, step)
        if step.what in (*WAITS, *SEMAPHORES):
            return self._pass(course, step)
        if step.what == "flush":
            ours = [sends for (source, _), sends in self.posted.items() if source == course.gpu]
            course.after |= frozenset().union(*ours)
        woken: list[tuple[Any, ...]] = []
        if step.what not in ("nop", "flush", *SIGNALS) or step.what in PUTS:
            woken += self._move(course, step)
        if step.what in SIGNALS:
            for lane in step.lanes:
                woken.append(self._send_signal(course, lane))
        return woken

    def _pass(self, course: Course, step: PlanStep) -> list[tuple[Any, ...]]:
        """Take the signals and semaphores that an operation waits for, or release semaphores."""
        for lane in step.lanes:
            course.after |= self.signals[lane].popleft()
        for number in step.semaphores:
            free = self.free[course.gpu, number]
            if step.what == _RELEASE:
                free.append(course.after)
            else:
                course.after |= free.popleft()
        return [("semaphore", course.gpu, number) for number in step.semaphores]

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
        place = self._describe_place(course)
        width = Fraction(_PACKETS if step.what in _WIDE else 1)
        if step.what == SWITCH:
            width = self._compute_switch_width(len(step.sources))
        read = step.sources if step.what in (*SUMS, SWITCH) else step.sources[:1]
        before, ends = course.after, frozenset[int]()
        fetched = []
        for owner, chunks in read:
            course.after = before
            fetched.append(
                self._fetch(course, owner, chunks, place, width if step.what == SWITCH else Fraction(1))
            )
            ends |= course.after
        course.after = ends or before
        values = fetched[0] if fetched else None
        for got in fetched[1:]:
            assert values is not None
            adds = (
                self._add_chunks(values, got, place)
                if step.what == SWITCH
                else self._sum_of(course, values, got, place)
            )
            values = adds
        woken: list[tuple[Any, ...]] = []
        for owner, chunks in step.targets:
            given = ((values or ()) + (0,) * chunks.count)[: chunks.count]
            if values is not None and len(values) != chunks.count:
                self.flaw(
                    "unmatched",
                    f"{place} writes {format_counted(chunks.count, 'chunk')} of {len(values):,} that it reads",
                )
            keys = [
                self._find_place(owner, chunks.buffer, chunks.offset + number)
                for number in range(chunks.count)
            ]
            if owner != course.gpu:
                here = course.after
                node = self._send_message(
                    course, course.gpu, owner, int(self._compute_bytes(len(given)) * width)
                )
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

    def _compute_switch_width(self, members: int) -> Fraction:
        """Return how large the messages are that stand for what a switch adds and hands on, as a share of the chunk.

        Where every GPU of the group has the switch add its part, as all-reduces do, each one's port carries all parts but one
        less than there are GPUs each way: all that others read of it or write into it, and its own part. Messages between
        all pairs carry as much if they are of this size.
        """
        self.played.notes["switch-as-messages"] = (
            "what a switch adds and hands on is carried by messages between the GPUs that it joins, as large as load their "
            "ports as the switch would"
        )
        return Fraction(members + 1, 2 * (members - 1)) if members > 1 else Fraction(1)

    def _sum_of(
        self, course: Course, left: tuple[int, ...], right: tuple[int, ...], place: str
    ) -> tuple[int, ...]:
        """Return the sums of chunks, of which there must be as many on both sides."""
        if len(left) != len(right):
            self.flaw("unmatched", f"{place} adds {format_counted(len(right), 'chunk')} to {len(left):,}")
            right = (right + (0,) * len(left))[: len(left)]
        busy_ns = self.delay_ns(self._compute_bytes(len(right)), True)
        if busy_ns > 0:
            self._add(course, "COMP_NODE", {"is_cpu_op": False}, "add: ", busy_ns)
        return self._add_chunks(left, right, place)

    def _fetch(
        self, course: Course, owner: int, chunks: Chunks, place: str, width: Fraction
    ) -> tuple[int, ...]:
        """Return what chunks hold, asking another GPU for its own."""
        values = self._read(owner, chunks, place)
        if owner != course.gpu:
            asked = self._send_message(course, course.gpu, owner, SIGNAL_BYTES)
            answer = Course(owner, course.block, course.at, frozenset({asked}))
            got = self._send_message(
                answer, owner, course.gpu, int(self._compute_bytes(chunks.count) * width)
            )
            course.after = frozenset({got})
            return values
        for number in range(chunks.count):
            known = self.come.get(self._find_place(owner, chunks.buffer, chunks.offset + number))
            if known is not None:
                course.after |= {known}
        return values

    def _send_signal(self, course: Course, lane: Lane) -> tuple[Any, ...]:
        """Send a signal, which stands for everything that was put to its target before."""
        here = course.after
        course.after = here | frozenset(self.posted.pop((lane.source, lane.target), ()))
        node = self._send_message(course, lane.source, lane.target, SIGNAL_BYTES)
        course.after = here
        nodes = frozenset(self.sent.pop((lane.source, lane.target), set()) | {node})
        self.signals.setdefault(lane, deque()).append(nodes)
        return "signal", lane

    def _send_message(self, course: Course, source: int, target: int, size: int) -> int:
        """Send a message after what the block did before; returns the node that receives it."""
        tag = self.tags.get((source, target), 0)
        self.tags[source, target] = tag + 1
        name = f"{course.block.steps[course.at].what} block {course.block.number} step {self._format_number(course)}"
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
