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
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from studio.generation.inference.batches import Load
from studio.generation.inference.requests import Request

BLOCK_TOKENS = 16

StepTime = Callable[[Load], float]
"""Time of a step in nanoseconds."""


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
    """

    budget: int
    sequences: int
    blocks: int
    draft: int = 0
    acceptance: float = 0.0
    seed: int = 1


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
    """

    start_ns: float
    end_ns: float
    load: Load
    running: int
    waiting: int
    blocks: int
    drafted: int = 0
    rejected: int = 0


@dataclass(slots=True)
class _Sequence:
    """A request at work: tokens still to be read before the next one is made, tokens in the cache, and tokens made."""

    served: Served
    unread: int
    cached: int = 0
    made: int = 0


@dataclass(slots=True)
class _Replica:
    """The state of one replica.

    Attributes:
        policy: Limits.
        waiting: Who waits, the next one first.
        running: Who runs, in the order of admission.
        blocks: Blocks in use.
        draw: Says which drafted tokens are accepted.
    """

    policy: Policy
    draw: random.Random
    waiting: deque[_Sequence] = field(default_factory=deque)
    running: list[_Sequence] = field(default_factory=list)
    blocks: int = 0

    def plan(self, now: float) -> list[tuple[_Sequence, int]]:
        """Return the sequences of the next step with their new tokens, and take the blocks that they need."""
        planned: list[tuple[_Sequence, int]] = []
        budget, preempted, place = self.policy.budget, False, 0
        while place < len(self.running) and budget:
            sequence = self.running[place]
            new = min(self._wanted(sequence), budget)
            while not self._take(sequence, new) and len(self.running) > place:
                preempted = True
                if self._preempt() is sequence:
                    break
            else:
                planned.append((sequence, new))
                budget -= new
            place += 1
        while not preempted and self.waiting and budget and len(self.running) < self.policy.sequences:
            sequence = self.waiting[0]
            new = min(sequence.unread, budget)
            if not self._take(sequence, new):
                break
            self.running.append(self.waiting.popleft())
            if sequence.served.admitted_ns < 0:
                sequence.served.admitted_ns = now
            planned.append((sequence, new))
            budget -= new
        return planned

    def _wanted(self, sequence: _Sequence) -> int:
        """Return how many tokens a running sequence reads in a step: its last token when decoding, plus drafted ones."""
        if sequence.unread > 1 or not sequence.made:
            return sequence.unread
        left = sequence.served.request.output - sequence.made
        return min(1 + self.policy.draft, left)

    def _accepted(self, drafted: int) -> int:
        """Return how many of so many drafted tokens are accepted."""
        accepted = 0
        while accepted < drafted and self.draw.random() < self.policy.acceptance:
            accepted += 1
        return accepted

    def _take(self, sequence: _Sequence, new: int) -> bool:
        """Take the blocks for new tokens; whether there were enough."""
        more = blocks_of(sequence.cached + new) - blocks_of(sequence.cached)
        if self.blocks + more > self.policy.blocks:
            return False
        self.blocks += more
        return True

    def _preempt(self) -> _Sequence:
        """Send the sequence admitted last back to wait."""
        last = self.running.pop()
        self.blocks -= blocks_of(last.cached)
        last.unread, last.cached = last.served.request.prompt + last.made, 0
        last.served.preemptions += 1
        self.waiting.appendleft(last)
        return last

    def finish(self, planned: Sequence[tuple[_Sequence, int]], now: float) -> int:
        """Note what a step made, and let go of requests that are done; returns how many drafted tokens were not accepted."""
        done, rejected = False, 0
        for sequence, new in planned:
            drafted = _drafted(sequence, new)
            kept = 1 + self._accepted(drafted) if drafted else new
            rejected += new - kept
            self.blocks -= blocks_of(sequence.cached + new) - blocks_of(sequence.cached + kept)
            sequence.cached += kept
            if new < sequence.unread:
                sequence.unread -= new
                continue
            # The end of a prompt makes its first token.
            first = not sequence.made
            sequence.made += kept if drafted else 1
            sequence.unread = 1
            served = sequence.served
            if first:
                served.first_ns = now
            if sequence.made == served.request.output:
                served.finish_ns = now
                self.blocks -= blocks_of(sequence.cached)
                done = True
        if done:
            self.running = [each for each in self.running if each.served.finish_ns < 0]
        return rejected


def _drafted(sequence: _Sequence, new: int) -> int:
    """Return how many of a sequence's new tokens are drafted."""
    return max(new - sequence.unread, 0)


def blocks_of(tokens: int) -> int:
    """Return the blocks that so many tokens need."""
    return -(-tokens // BLOCK_TOKENS)


def _load(planned: Sequence[tuple[_Sequence, int]]) -> Load:
    tokens = logits = pairs = cached = 0
    for sequence, new in planned:
        tokens += new
        logits += 1 + _drafted(sequence, new) if new >= sequence.unread else 0
        pairs += new * sequence.cached + new * (new + 1) // 2
        cached += sequence.cached + new
    return Load(tokens, logits, pairs, cached)


def _drafting(planned: Sequence[tuple[_Sequence, int]]) -> Iterator[Load]:
    """Yield what the passes of a draft model work on before a step: what the step reads of prompts, then a token of each sequence a pass."""
    reading = [(sequence, new) for sequence, new in planned if sequence.unread > 1 or not sequence.made]
    if reading:
        yield _load(reading)
    for number in range(1, 1 + max((_drafted(*each) for each in planned), default=0)):
        drafting = [
            sequence.cached + number for sequence, new in planned if _drafted(sequence, new) >= number
        ]
        yield Load(len(drafting), len(drafting), sum(drafting), sum(drafting))


def serve(
    requests: Sequence[Request], policy: Policy, step_time: StepTime, draft_time: StepTime | None = None
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
    served = [Served(request) for request in requests]
    records: list[StepRecord] = []
    draw = random.Random(policy.seed)  # noqa: S311 (no secret)
    replica, now, come = _Replica(policy, draw), 0.0, 0
    while True:
        while come < len(served) and served[come].request.arrival_ns <= now:
            replica.waiting.append(_Sequence(served[come], served[come].request.prompt))
            come += 1
        planned = replica.plan(now)
        if not planned:
            if come == len(served):
                return served, records
            now = float(served[come].request.arrival_ns)
            continue
        load = _load(planned)
        end = now + step_time(load) + (sum(map(draft_time, _drafting(planned))) if draft_time else 0.0)
        held = len(replica.running), len(replica.waiting), replica.blocks
        drafted = sum(_drafted(sequence, new) for sequence, new in planned)
        records.append(StepRecord(now, end, load, *held, drafted, replica.finish(planned, end)))
        now = end
