"""Play an algorithm of MSCCL: who sends what to whom after what, and whether the result is what the collective promises.

Every chunk is followed by what it holds: one bit for each chunk that some GPU brought along. A sum has the bits of its
parts; a part that is added twice is told. Thread blocks run side by side, each one step after the other; a step that names
another block's step waits for it; a receive waits for the send with its number on the channel between the two GPUs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from studio.errors import TraceFormatError
from studio.units import format_counted

SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rcs", "rrs", "rrc", "rrcs")
ADDS = ("rrs", "rrc", "rrcs", "re")
_STORES = ("r", "rcs", "rrc", "rrcs")
_MOST_MOVED = 5_000_000
MOST_BYTES = (1 << 64) - 1
"""What a file says of an algorithm that is meant for every size."""
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks next to each other in a buffer: `i`nput, `o`utput or `s`cratch."""

    buffer: str
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a thread block.

    Attributes:
        what: `s`end, `r`eceive, receive and … (`rcs`, `rrs`, `rrc`, `rrcs`), `cpy`, `re`duce or `nop`.
        source, target: Chunks of its own GPU that it reads and writes.
        depends: Thread block and step that it waits for, None where it waits for none.
    """

    what: str
    source: Chunks
    target: Chunks
    depends: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: its peers (-1 for none), the channel, and its steps."""

    number: int
    send: int
    receive: int
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: chunks of each buffer, its thread blocks, and copies that are made first, what its semaphores begin with."""

    number: int
    sizes: Mapping[str, int]
    blocks: tuple[Block, ...]
    copies: tuple[tuple[Chunks, Chunks], ...] = ()
    semaphores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm of a collective.

    Attributes:
        name: What its file calls it.
        collective: Such as `all_reduce`; "" where its result cannot be checked.
        file_collective: What the file calls the collective.
        inplace: Whether input and output are one buffer.
        protocol: What it is to run with.
        gpus: By number.
        loop_chunks: Chunks that the whole buffer is cut into, 0 where the file does not say.
        player: Makes what carries its steps out; None for those of MSCCL.
        least_bytes, most_bytes: Sizes of the whole buffer that it is meant for.
    """

    name: str
    collective: str
    file_collective: str
    inplace: bool
    protocol: str
    gpus: tuple[Gpu, ...]
    loop_chunks: int = 0
    player: Callable[[Algorithm, int, Callable[[int, bool], int]], Player] | None = None
    least_bytes: int = 0
    most_bytes: int = MOST_BYTES

    @property
    def chunks(self) -> int:
        """Chunks of the whole buffer: of the larger one of input and output."""
        largest = max(max(gpu.sizes["i"], gpu.sizes["o"]) for gpu in self.gpus)
        return max(largest, self.loop_chunks, 1)


@dataclass(slots=True)
class Played:
    """An algorithm carried out step by step: its nodes and flaws.

    Attributes:
        nodes: Of each GPU, as `build_graph` takes them.
        flaws: What is wrong, by the code of the finding.
        longest: Messages one after the other, at most.
        notes: What a user should know of how it was followed, by the code of the finding.
    """

    nodes: list[list[dict[str, Any]]]
    flaws: dict[str, list[str]] = field(default_factory=dict)
    longest: int = 0
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """How many messages are sent."""
        return sum(node["type"] == "COMM_SEND_NODE" for nodes in self.nodes for node in nodes)

    @property
    def most_bytes(self) -> int:
        """Bytes that the GPU which sends most sends."""
        sent: list[int] = [
            sum(node["attrs"]["comm_size"] for node in nodes if node["type"] == "COMM_SEND_NODE")
            for nodes in self.nodes
        ]
        return max(sent)


def play(
    algorithm: Algorithm, chunk_bytes: int, delay_ns: Callable[[int, bool], int] = lambda _bytes, _adds: 0
) -> Played:
    """Play an algorithm with chunks of a size; never raises for what is wrong with it, but tells it.

    Args:
        algorithm: It.
        chunk_bytes: Bytes of a chunk.
        delay_ns: How long a GPU is busy with a message of so many bytes that came in, and whether it adds it; a node of
            compute follows the receive where that takes any time.

    Raises:
        TraceFormatError: It moves more chunks than can be followed.
    """
    player = (algorithm.player or Player)(algorithm, chunk_bytes, delay_ns)
    player.run()
    player.check_result()
    return player.played


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message under way: what its chunks hold, its tag, and how many messages came before it at least."""

    values: tuple[int, ...]
    tag: int
    depth: int


@dataclass(slots=True)
class Course:
    """How far a thread block came.

    Attributes:
        at: The next step.
        after: Nodes that its next node waits for.
        done: Of each step carried out, the nodes that stand for its end.
        depth: Messages one after the other so far.
    """

    gpu: int
    block: Block
    at: int = 0
    after: frozenset[int] = frozenset()
    done: list[tuple[frozenset[int], int]] = field(default_factory=list)
    depth: int = 0


class Player:
    """One algorithm being played."""

    def __init__(self, algorithm: Algorithm, chunk_bytes: int, delay_ns: Callable[[int, bool], int]) -> None:
        self.algorithm, self.chunk_bytes, self.delay_ns = algorithm, chunk_bytes, delay_ns
        self.gpus = len(algorithm.gpus)
        self.played = Played([[] for _ in algorithm.gpus])
        self.inplace = algorithm.inplace or (
            algorithm.collective == "all_reduce" and not any(gpu.sizes["o"] for gpu in algorithm.gpus)
        )
        self.inputs = max((gpu.sizes["i"] for gpu in algorithm.gpus), default=0)
        self.outputs = max((gpu.sizes["o"] for gpu in algorithm.gpus), default=0)
        self.part = self._compute_part()
        self.held: dict[tuple[int, str, int], int] = {}
        self.moved = 0
        self.under_way: dict[tuple[int, int, int], deque[_Sent]] = {}
        self.tags: dict[tuple[int, int], int] = {}
        self.courses = {
            (gpu.number, block.number): Course(gpu.number, block)
            for gpu in algorithm.gpus
            for block in gpu.blocks
        }
        self.waiting: dict[tuple[Any, ...], list[Course]] = {}
        self._fill()

    def _compute_part(self) -> int:
        """Return how many chunks of the whole buffer belong to one GPU."""
        collective = self.algorithm.collective
        whole = self.outputs if collective == "all_gather" else self.inputs
        if collective == "all_gather" and not whole:
            whole = self.inputs
        return whole // self.gpus

    def flaw(self, code: str, message: str) -> None:
        """Note that something is wrong."""
        self.played.flaws.setdefault(code, []).append(message)

    # Chunks

    def _find_place(self, gpu: int, buffer: str, offset: int) -> tuple[int, str, int]:
        """Return where a chunk lies: in place, the one buffer is a part of the other."""
        collective = self.algorithm.collective
        if self.inplace and buffer == "o" and collective in ("all_reduce", "all_to_all"):
            return gpu, "i", offset
        if self.inplace and buffer == "i" and collective == "all_gather":
            return gpu, "o", offset + gpu * self.part
        if self.inplace and buffer == "o" and collective == "reduce_scatter":
            return gpu, "i", offset + gpu * self.part
        return gpu, buffer, offset

    def _compute_bit(self, gpu: int, chunk: int) -> int:
        return 1 << (gpu * max(self.inputs, self.part, 1) + chunk)

    def _fill(self) -> None:
        """Give every GPU its input, and make the copies that come first."""
        for gpu in self.algorithm.gpus:
            count = self.part if self.algorithm.collective == "all_gather" else gpu.sizes["i"]
            for chunk in range(count):
                self.held[self._find_place(gpu.number, "i", chunk)] = self._compute_bit(gpu.number, chunk)
            for source, target in gpu.copies:
                self._write(gpu.number, target, self._read(gpu.number, source, f"GPU {gpu.number}, <copy>"))

    def _read(self, gpu: int, chunks: Chunks, place: str) -> tuple[int, ...]:
        self._count_moved(chunks.count)
        values = tuple(
            self.held.get(self._find_place(gpu, chunks.buffer, chunks.offset + number), 0)
            for number in range(chunks.count)
        )
        if not all(values) and self.algorithm.collective:
            empty = chunks.offset + values.index(0)
            self.flaw(
                "unwritten-chunk",
                f"{place} reads chunk {empty} of buffer {chunks.buffer}, which nobody wrote before",
            )
        return values

    def _write(self, gpu: int, chunks: Chunks, values: tuple[int, ...]) -> None:
        self._count_moved(len(values))
        for number, value in enumerate(values):
            self.held[self._find_place(gpu, chunks.buffer, chunks.offset + number)] = value

    def _count_moved(self, chunks: int) -> None:
        self.moved += chunks
        if self.moved > _MOST_MOVED:
            raise TraceFormatError(
                f"{self.algorithm.name}: the algorithm moves more than {_MOST_MOVED:,} chunks.",
                hint="This looks like a wrong cnt.",
            )

    def _add_chunks(self, left: tuple[int, ...], right: tuple[int, ...], place: str) -> tuple[int, ...]:
        """Return the sums of chunks."""
        for first, second in zip(left, right, strict=True):
            if first & second:
                self.flaw(
                    "wrong-result",
                    f"{place} adds what {self._describe_givers(first & second)} gave a second time",
                )
        return tuple(first | second for first, second in zip(left, right, strict=True))

    def _describe_givers(self, value: int) -> str:
        """Return whose chunks a value holds, in words."""
        width = max(self.inputs, self.part, 1)
        mask = (1 << width) - 1
        numbers = [gpu for gpu in range(self.gpus) if value >> (gpu * width) & mask]
        shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
        return f"GPU{'s' if len(numbers) > 1 else ''} {shown}"

    # Steps

    def run(self) -> None:
        """Carry out every step that can be, and tell which cannot."""
        ready = deque(self.courses.values())
        while ready:
            ready.extend(self._advance(ready.popleft()))
        for course in self.courses.values():
            if course.at < len(course.block.steps):
                self.flaw(
                    "stuck", f"{self._describe_place(course)} waits for ever: {self._explain_wait(course)}"
                )
        for (source, target, channel), messages in self.under_way.items():
            if messages:
                self.flaw(
                    "unmatched",
                    f"{len(messages):,} of the messages from GPU {source} to GPU {target} on channel {channel} "
                    "are never received",
                )

    def _advance(self, course: Course) -> Iterator[Course]:
        """Carry out steps of a block until one has to wait; yields the blocks that may go on then."""
        while course.at < len(course.block.steps):
            step = course.block.steps[course.at]
            wait = self._wait(course, step)
            if wait is not None:
                self.waiting.setdefault(wait, []).append(course)
                return
            self._carry_out(course, step)
            course.at += 1
            yield from self.waiting.pop(("step", course.gpu, course.block.number, course.at - 1), ())
            if step.what in SENDS:
                yield from self.waiting.pop(("message", *self._get_line(course, sends=True)), ())

    def _wait(self, course: Course, step: Step) -> tuple[Any, ...] | None:
        """Return what a step has to wait for."""
        if step.depends is not None:
            block, number = step.depends
            other = self.courses.get((course.gpu, block))
            if other is None or number >= len(other.done):
                return "step", course.gpu, block, number
        if step.what in RECEIVES:
            line = self._get_line(course, sends=False)
            if not self.under_way.get(line):
                return "message", *line
        if step.what in SENDS and course.block.send < 0:
            return ("nobody",)
        return None

    def _explain_wait(self, course: Course) -> str:
        wait = self._wait(course, course.block.steps[course.at])
        if wait is None or wait[0] == "nobody":
            return "its block names no GPU to send to"
        if wait[0] == "step":
            return f"for step {wait[3]} of block {wait[2]}, which is not carried out before"
        if course.block.receive < 0:
            return "its block names no GPU to receive from"
        return f"for a message from GPU {wait[1]} on channel {wait[3]} that is not sent before"

    @staticmethod
    def _get_line(course: Course, *, sends: bool) -> tuple[int, int, int]:
        block = course.block
        return (
            (course.gpu, block.send, block.channel) if sends else (block.receive, course.gpu, block.channel)
        )

    def _format_number(self, course: Course) -> str:
        """Return the number of the step that a block is at."""
        return f"{course.at}"

    def _describe_place(self, course: Course) -> str:
        step = course.block.steps[course.at]
        return (
            f"GPU {course.gpu}, block {course.block.number}, step {self._format_number(course)} ({step.what})"
        )

    def _carry_out(self, course: Course, step: Step) -> None:
        place = self._describe_place(course)
        if step.depends is not None:
            nodes, depth = self.courses[course.gpu, step.depends[0]].done[step.depends[1]]
            course.after |= nodes
            course.depth = max(course.depth, depth)
        values: tuple[int, ...] = ()
        if step.what in RECEIVES:
            values = self._receive(course, step, place)
        if step.what in ("s", "cpy", "re"):
            values = self._read(course.gpu, step.source, place)
        if step.what in ADDS:
            own_chunks = step.target if step.what == "re" or step.source.offset < 0 else step.source
            own = self._read(course.gpu, own_chunks, place)
            values = self._add_chunks(own, values, place)
        if step.what in _STORES or step.what in ("cpy", "re"):
            self._write(course.gpu, step.target, values)
        if step.what in SENDS:
            self._send(course, values)
        course.done.append((course.after, course.depth))

    def _receive(self, course: Course, step: Step, place: str) -> tuple[int, ...]:
        source, _, _ = line = self._get_line(course, sends=False)
        message = self.under_way[line].popleft()
        wanted = step.target.count
        if len(message.values) != wanted:
            self.flaw(
                "unmatched",
                f"{place} receives {format_counted(wanted, 'chunk')} where GPU {source} sends {len(message.values):,}",
            )
        course.depth = max(course.depth, message.depth)
        self._add_message(course, "COMM_RECV_NODE", "comm_src", source, (len(message.values), message.tag))
        adds = step.what in ADDS
        busy_ns = self.delay_ns(len(message.values) * self.chunk_bytes, adds)
        if busy_ns > 0:
            self._add(course, "COMP_NODE", {"is_cpu_op": False}, f"{'add' if adds else 'take'}: ", busy_ns)
        return (message.values + (0,) * wanted)[:wanted]

    def _send(self, course: Course, values: tuple[int, ...]) -> None:
        line = self._get_line(course, sends=True)
        pair = line[:2]
        tag = self.tags.get(pair, 0)
        self.tags[pair] = tag + 1
        course.depth += 1
        self.played.longest = max(self.played.longest, course.depth)
        self._add_message(course, "COMM_SEND_NODE", "comm_dst", line[1], (len(values), tag))
        self.under_way.setdefault(line, deque()).append(_Sent(values, tag, course.depth))

    def _add_message(self, course: Course, kind: str, key: str, peer: int, message: tuple[int, int]) -> None:
        count, tag = message
        attrs = {
            "is_cpu_op": False,
            key: peer,
            "comm_size": count * self.chunk_bytes,
            "comm_tag": tag,
            "channel": course.block.channel,
            "chunks": count,
        }
        self._add(course, kind, attrs)

    def _add(
        self, course: Course, kind: str, attrs: dict[str, Any], prefix: str = "", duration_ns: int = 0
    ) -> None:
        """Add a node that waits for what the block did before, and for which its next one waits."""
        name = f"{prefix}{course.block.steps[course.at].what} block {course.block.number} step {self._format_number(course)}"
        course.after = frozenset({self._put(course.gpu, kind, attrs, name, course.after, duration_ns)})

    def _put(
        self,
        gpu: int,
        kind: str,
        attrs: dict[str, Any],
        name: str,
        after: frozenset[int],
        duration_ns: int = 0,
    ) -> int:
        """Add a node to a GPU; returns its id."""
        nodes = self.played.nodes[gpu]
        number = len(nodes) + 1
        nodes.append(
            {
                "id": number,
                "type": kind,
                "name": name,
                "data_deps": sorted(after),
                "duration_micros": duration_ns / 1000,
                "attrs": attrs,
            }
        )
        return number

    # The result

    def check_result(self) -> None:
        """Note every chunk of the output that does not hold what the collective promises."""
        for gpu, chunk, wanted in self._iterate_promised():
            value = self.held.get(self._find_place(gpu, "o", chunk), 0)
            if value == wanted:
                continue
            lacks, has = wanted & ~value, value & ~wanted
            words = [
                *(
                    ["nobody wrote it"]
                    if not value
                    else [f"it lacks what {self._describe_givers(lacks)} gave"]
                    if lacks
                    else []
                ),
                *([f"it holds other chunks, of {self._describe_givers(has)}"] if has else []),
            ]
            self.flaw("wrong-result", f"GPU {gpu}, chunk {chunk} of the output: {' and '.join(words)}")

    def _iterate_promised(self) -> Iterator[tuple[int, int, int]]:
        """Yield GPU, chunk of its output, and what it must hold."""
        everyone, part = range(self.gpus), self.part
        collective = self.algorithm.collective
        if collective == "all_reduce":
            for chunk in range(self.inputs):
                total = self._compute_sum(chunk)
                yield from ((gpu, chunk, total) for gpu in everyone)
        elif collective == "reduce_scatter":
            yield from (
                (gpu, chunk, self._compute_sum(gpu * part + chunk))
                for gpu in everyone
                for chunk in range(part)
            )
        elif collective in ("all_gather", "all_to_all"):
            for gpu in everyone:
                # Of an all-to-all each gets its own part, of an all-gather all get the same.
                first = gpu * part if collective == "all_to_all" else 0
                yield from (
                    (gpu, giver * part + chunk, self._compute_bit(giver, first + chunk))
                    for giver in everyone
                    for chunk in range(part)
                )

    def _compute_sum(self, chunk: int) -> int:
        """Return what the sum of a chunk of every GPU holds."""
        return sum(self._compute_bit(giver, chunk) for giver in range(self.gpus))
