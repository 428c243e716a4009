"""The schedule of continuous batching: which tokens a step works on, and what each request sees of it.

The policy is that of vLLM (Kwon et al., "PagedAttention", SOSP 2023) with chunked prefill (Agrawal et al., "Sarathi-Serve", OSDI
2024), stated here in full:

1. A step has a budget of tokens. Running sequences come first, in the order of their admission: one token of each that decodes, and
   of one whose prompt is read in part as many of the rest as the budget leaves.
2. Then waiting requests are admitted in the order of their arrival, while there are fewer than the most sequences, budget is left,
   and the KV cache has blocks for the part of the prompt that the budget covers. The end of a prompt makes its first token.
3. Where a running sequence needs a block and none is free, the sequence admitted last gives all its blocks back and waits
   again, before all others; it reads its prompt and what it made anew (preemption by recomputation). No request is admitted in
   such a step.
4. Where tokens are drafted (Leviathan et al., ICML 2023), a sequence that decodes reads its token and as many drafted ones as the budget
   and what it has yet to make leave. Each is accepted with the same probability, drawn by a seed, up to the first that is not; the
   sequence makes one token more than were accepted, and gives back the blocks of the others. The draft model makes them before, one token
   of each sequence a pass, and reads the prompts that the step reads.
5. With pipeline stages there are as many batches as stages, each with running sequences of its own (vLLM's virtual engines, SGLang's
   micro-batches): while one is at a stage, others are at the stages before and after. They take turns at the first stage. A batch takes
   its turn once that stage is free and the tokens of its last step have come back; one that has nothing to do is passed over. Rules 1
   to 4 hold for each batch, 3 among the sequences of the batch that came later. But the earliest request at work is not sent back: in
   place of it the latest sequences of batches that are not under way are, and while there are none it waits and nobody else is given
   blocks. So every request ends; batches that only send back their own could do so to each other for ever. The waiting requests and
   the blocks are shared, and a batch admits no request beyond its even share, rounded up, of the sequences that run or wait, or of the
   most that may run. A stage begins a step once it has come and what the step before made has been sent on: a stage sends before it
   goes on, as in generated steps. What drafts has no stages: it runs on the ranks of the first one, before the step that verifies.
6. Replicas that divide experts exchange tokens in every layer, so their steps begin and end together. Each plans its own from the requests
   that came to it; the step takes as long as if all had to do the most that one has of each kind: tokens, logits, attention, cache.
   One that has nothing to do waits for the others.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from studio.generation.inference.batches import Load, Part, sum_load_of_parts
from studio.generation.inference.requests import Request

BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Course:
    """How a step goes through the stages of a pipeline, alone; times are in nanoseconds.

    Attributes:
        stages: How long each stage works on it.
        sends: How long it takes from each stage to the next.
        back: How long the tokens it made take to the first stage.
    """

    stages: tuple[float, ...]
    sends: tuple[float, ...] = ()
    back: float = 0.0


StepTime = Callable[[Load], float | Course]
"""Time of a step in nanoseconds, or its way through stages."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of the schedule.

    Attributes:
        budget: New tokens of a step at most.
        sequences: Sequences that run at once at most.
        blocks: Blocks of the KV cache, each of `BLOCK_TOKENS` tokens.
        draft: Tokens that are drafted for each sequence that decodes, at most.
        acceptance: Probability that a drafted token is accepted where those before it are.
        seed: Which are.
        stages: Pipeline stages, and batches that go through them in turn.
    """

    budget: int
    sequences: int
    blocks: int
    draft: int = 0
    acceptance: float = 0.0
    seed: int = 1
    stages: int = 1


@dataclass(slots=True)
class Served:
    """What a request saw; times are in nanoseconds since the first arrival.

    Attributes:
        request: It.
        admitted_ns: When it was first admitted.
        first_ns: When its first token was there.
        finish_ns: When its last token was.
        preemptions: How often it was sent back.
    """

    request: Request
    admitted_ns: float = -1.0
    first_ns: float = -1.0
    finish_ns: float = -1.0
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of the schedule.

    Attributes:
        start_ns, end_ns: When it ran.
        load: What it computed.
        running: Sequences that were running.
        waiting: Requests that were waiting.
        blocks: Blocks of the KV cache in use.
        drafted, rejected: Tokens that were drafted, and those of them that were not accepted.
        busy_ns: How long a stage worked on it, in the mean.
    """

    start_ns: float
    end_ns: float
    load: Load
    running: int
    waiting: int
    blocks: int
    drafted: int = 0
    rejected: int = 0
    busy_ns: float = 0.0


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request at work, equal to itself alone.

    Attributes:
        served: What it sees.
        number: Its place by arrival.
        unread: Tokens still to be read before the next one is made.
        cached: Tokens in the cache.
        made_tokens: Tokens made.
    """

    served: Served
    number: int
    unread: int
    cached: int = 0
    made_tokens: int = 0


@dataclass(slots=True)
class _Replica:
    """The state of one replica.

    Attributes:
        policy: Limits.
        waiting: Who waits, the next one first.
        come: How many of its requests have come.
        running: Who runs, by batch in the order of admission.
        blocks: Blocks in use.
        short: The earliest request at work, where it waits for blocks that batches under way hold: nobody else is given any until then.
        draw: Says which drafted tokens are accepted.
        served: What its requests saw so far.
        records: Steps that ended.
    """

    policy: Policy
    draw: random.Random
    served: list[Served]
    running: list[list[_Sequence]]
    waiting: deque[_Sequence] = field(default_factory=deque)
    come: int = 0
    blocks: int = 0
    short: _Sequence | None = None
    records: list[StepRecord] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """How many sequences run, in all batches."""
        return sum(map(len, self.running))

    def receive(self, now: float) -> None:
        """Let requests wait that have come."""
        while self.come < len(self.served) and self.served[self.come].request.arrival_ns <= now:
            served = self.served[self.come]
            self.waiting.append(_Sequence(served, self.come, served.request.prompt))
            self.come += 1

    def plan(self, now: float, batch: int, idle: Sequence[int]) -> list[tuple[_Sequence, int]]:
        """Return the sequences of a batch's next step with their new tokens, and take the blocks that they need.

        Args:
            now: When it begins.
            batch: The batch.
            idle: Batches that are not under way, of which sequences can be sent back.
        """
        planned: list[tuple[_Sequence, int]] = []
        running = self.running[batch]
        budget, count = self.policy.budget, self.runs
        for sequence in list(running):
            if not budget:
                break
            if self.runs < count and sequence not in running:
                continue
            new = min(self._count_wanted(sequence), budget)
            if self._make_room(sequence, new, batch, idle):
                planned.append((sequence, new))
                budget -= new
        # While a sequence waits for blocks (`short`), there are none to admit another one with.
        preempted = self.runs < count
        most = min(self.policy.sequences, self.runs + len(self.waiting))
        share = -(-most // self.policy.stages)
        while not preempted and self.waiting and budget:
            if len(running) >= share or self.runs >= self.policy.sequences:
                break
            sequence = self.waiting[0]
            new = min(sequence.unread, budget)
            if not self._take(sequence, new):
                break
            running.append(self.waiting.popleft())
            if sequence.served.admitted_ns < 0:
                sequence.served.admitted_ns = now
            planned.append((sequence, new))
            budget -= new
        return planned

    def _make_room(self, sequence: _Sequence, new: int, batch: int, idle: Sequence[int]) -> bool:
        """Take the blocks for new tokens of a running sequence; whether there were enough, or others could be sent back for them.

        Of those of its batch that are not planned yet the latest goes that came after it, itself where there are none. The earliest
        request at work never goes: those of idle batches do in its place, and while there are none it waits, so that every request
        ends at some time.
        """
        running = self.running[batch]
        while not self._take(sequence, new):
            behind = running[running.index(sequence) + 1 :]
            later = [each for each in behind if each.number > sequence.number]
            if not later and any(each.number < sequence.number for own in self.running for each in own):
                self._preempt(sequence)
                return False
            victims = later or [each for other in idle if other != batch for each in self.running[other]]
            if not victims:
                self.short = sequence
                return False
            self._preempt(max(victims, key=attrgetter("number")))
        return True

    def _count_wanted(self, sequence: _Sequence) -> int:
        """Return how many tokens a running sequence reads in a step: its last token when decoding, plus drafted ones."""
        if _reads(sequence):
            return sequence.unread
        left = sequence.served.request.output - sequence.made_tokens
        return min(1 + self.policy.draft, left)

    def _draw_accepted(self, drafted: int) -> int:
        """Return how many of so many drafted tokens are accepted."""
        accepted = 0
        while accepted < drafted and self.draw.random() < self.policy.acceptance:
            accepted += 1
        return accepted

    def _take(self, sequence: _Sequence, new: int) -> bool:
        """Take the blocks for new tokens; whether there were enough."""
        more = count_blocks(sequence.cached + new) - count_blocks(sequence.cached)
        if self.blocks + more > self.policy.blocks or (more and self.short not in (None, sequence)):
            return False
        self.blocks += more
        if sequence is self.short:
            self.short = None
        return True

    def _preempt(self, sequence: _Sequence) -> None:
        """Send a running sequence back to wait, before those that came later."""
        next(own for own in self.running if sequence in own).remove(sequence)
        self.blocks -= count_blocks(sequence.cached)
        sequence.unread, sequence.cached = sequence.served.request.prompt + sequence.made_tokens, 0
        sequence.served.preemptions += 1
        earlier = sum(each.number < sequence.number for each in self.waiting)
        self.waiting.insert(earlier, sequence)

    def finish(self, planned: Sequence[tuple[_Sequence, int]], now: float) -> int:
        """Note what a step made, and let go of requests that are done; returns how many drafted tokens were not accepted."""
        done, rejected = False, 0
        for sequence, new in planned:
            drafted = _count_drafted(sequence, new)
            kept = 1 + self._draw_accepted(drafted) if drafted else new
            rejected += new - kept
            self.blocks -= count_blocks(sequence.cached + new) - count_blocks(sequence.cached + kept)
            sequence.cached += kept
            if new < sequence.unread:
                sequence.unread -= new
                continue
            # The end of a prompt makes its first token.
            first = not sequence.made_tokens
            sequence.made_tokens += kept if drafted else 1
            sequence.unread = 1
            served = sequence.served
            if first:
                served.first_ns = now
            if sequence.made_tokens == served.request.output:
                served.finish_ns = now
                self.blocks -= count_blocks(sequence.cached)
                done = True
        if done:
            self.running = [
                [each for each in running if each.served.finish_ns < 0] for running in self.running
            ]
        return rejected


def _count_drafted(sequence: _Sequence, new: int) -> int:
    """Return how many of a sequence's new tokens are drafted."""
    return max(new - sequence.unread, 0)


def count_blocks(tokens: int) -> int:
    """Return the blocks that so many tokens need."""
    return -(-tokens // BLOCK_TOKENS)


def _sum_load(planned: Sequence[tuple[_Sequence, int]]) -> Load:
    logits, parts = 0, {True: [0, 0, 0], False: [0, 0, 0]}
    for sequence, new in planned:
        logits += 1 + _count_drafted(sequence, new) if new >= sequence.unread else 0
        totals = parts[_reads(sequence)]
        totals[0] += new
        totals[1] += new * sequence.cached + new * (new + 1) // 2
        totals[2] += sequence.cached + new
    return sum_load_of_parts(Part(*parts[False]), Part(*parts[True]), logits)


def _reads(sequence: _Sequence) -> bool:
    """Whether a sequence reads a prompt, rather than the token that it made last."""
    return sequence.unread > 1 or not sequence.made_tokens


def _iterate_drafting(planned: Sequence[tuple[_Sequence, int]]) -> Iterator[Load]:
    """Yield what the passes of a draft model work on before a step: what the step reads of prompts, then a token of each sequence a pass."""
    reading = [(sequence, new) for sequence, new in planned if _reads(sequence)]
    if reading:
        yield _sum_load(reading)
    for number in range(1, 1 + max((_count_drafted(*each) for each in planned), default=0)):
        drafting = [
            sequence.cached + number for sequence, new in planned if _count_drafted(sequence, new) >= number
        ]
        yield sum_load_of_parts(Part(len(drafting), sum(drafting), sum(drafting)), Part(), len(drafting))


def serve(
    requests: Sequence[Request],
    policy: Policy,
    step_time: StepTime,
    draft_time: Callable[[Load], float] | None = None,
) -> tuple[list[Served], list[StepRecord]]:
    """Return what each request saw, and the steps of the schedule, on one replica.

    Args:
        requests: They, by arrival; each fits into the KV cache by itself.
        policy: Limits.
        step_time: Time of a step.
        draft_time: Time of a pass of what drafts tokens; None takes none.

    Example:
        >>> served, steps = serve([Request(0, 8, 3)], Policy(budget=4, sequences=2, blocks=1), lambda load: 100.0)
        >>> served[0].first_ns, served[0].finish_ns, [step.load.tokens for step in steps]
        (200.0, 400.0, [4, 4, 1, 1])
    """
    [outcome] = serve_together([requests], [policy], step_time, draft_time)
    return outcome


_Planned = list[tuple[_Sequence, int]]


def serve_together(
    parts: Sequence[Sequence[Request]],
    policies: Sequence[Policy],
    step_time: StepTime,
    draft_time: Callable[[Load], float] | None = None,
) -> list[tuple[list[Served], list[StepRecord]]]:
    """Return the same of replicas whose steps begin and end together.

    Args:
        parts: The requests of each replica.
        policies: Limits of each; stages are the same of all.
        step_time: Time of a step.
        draft_time: Time of a pass of what drafts tokens; None takes none.
    """
    stages = policies[0].stages
    replicas = [
        _Replica(
            policy,
            random.Random(policy.seed),  # noqa: S311 (no secret)
            [Served(request) for request in requests],
            [[] for _ in range(stages)],
        )
        for requests, policy in zip(parts, policies, strict=True)
    ]
    free, ready, turn, now = [0.0] * stages, [0.0] * stages, 0, 0.0
    pending: deque[tuple[float, list[tuple[_Replica, _Planned, StepRecord]]]] = deque()
    while True:
        # Steps leave the pipeline in the order in which they entered it.
        while pending and pending[0][0] <= now:
            for replica, planned, record in pending.popleft()[1]:
                replica.records.append(replace(record, rejected=replica.finish(planned, record.end_ns)))
        for replica in replicas:
            replica.receive(now)
        batch, plans = _find_next_step(
            replicas, [(turn + number) % stages for number in range(stages)], ready, now
        )
        if plans is None:
            coming = [
                float(replica.served[replica.come].request.arrival_ns)
                for replica in replicas
                if replica.come < len(replica.served)
            ]
            after = [at for at in (*coming, *ready, *(end for end, _ in pending)) if at > now]
            if not after:
                return [(replica.served, replica.records) for replica in replicas]
            now = min(after)
            continue
        loads = [_sum_load(planned) for planned in plans if planned]
        drafting = (
            [sum(map(draft_time, _iterate_drafting(planned))) for planned in plans] if draft_time else [0.0]
        )
        course = _build_course(step_time(_compute_largest_load(loads)), max(drafting))
        end = _pass_through(course, free, now)
        steps = []
        for replica, planned in zip(replicas, plans, strict=True):
            if planned:
                held = replica.runs, len(replica.waiting), replica.blocks
                drafted = sum(_count_drafted(sequence, new) for sequence, new in planned)
                busy = sum(course.stages) / stages
                steps.append(
                    (replica, planned, StepRecord(now, end, _sum_load(planned), *held, drafted, 0, busy))
                )
        pending.append((end, steps))
        ready[batch], turn, now = end + course.back, batch + 1, free[0]


def _find_next_step(
    replicas: Sequence[_Replica], turns: Sequence[int], ready: Sequence[float], now: float
) -> tuple[int, list[_Planned] | None]:
    """Return the first batch in its turn that has something to do, and what on each replica; None where none has."""
    idle = [batch for batch in turns if ready[batch] <= now]
    for batch in idle:
        plans = [replica.plan(now, batch, idle) for replica in replicas]
        if any(plans):
            return batch, plans
    return 0, None


def _build_course(time: float | Course, drafting: float) -> Course:
    """Return the course of a step behind the passes of what drafts for it."""
    if isinstance(time, Course):
        return replace(time, stages=(time.stages[0] + drafting, *time.stages[1:]))
    return Course((time + drafting,))


def _pass_through(course: Course, free: list[float], now: float) -> float:
    """Return when a step leaves the last stage that enters the first one now, and note until when it keeps each stage."""
    at = now
    for stage, (takes, leaves) in enumerate(zip(course.stages, (*course.sends, course.back), strict=True)):
        end = max(at, free[stage]) + takes
        free[stage] = at = end + leaves
    return end


def _compute_largest_load(loads: Sequence[Load]) -> Load:
    """Return the most that one of several steps has of each kind of work."""
    tokens, logits, pairs, cached = (
        max(getattr(load, name) for load in loads) for name in ("tokens", "logits", "pairs", "cached")
    )
    decoding, reading = (
        _compute_largest_part(parts)
        for parts in zip(*((load.decoding, load.reading) for load in loads), strict=True)
    )
    return Load(tokens, logits, pairs, cached, decoding, reading)


def _compute_largest_part(parts: Sequence[Part]) -> Part:
    return Part(*(max(getattr(part, name) for part in parts) for name in Part.__slots__))
