"""What a step of inference works on: sequences, their new tokens, and the tokens that the KV cache already holds of them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from studio.errors import ConfigError

_LONGEST = 1 << 24
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_LOGNORMAL = re.compile(r"lognormal:(\d+):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Equal sequences of a step.

    Attributes:
        sequences: How many.
        new: Tokens of each that the step reads.
        context: Tokens of each that the cache holds before.
        logits: Tokens of each whose logits are computed: 1 where the next token follows, 0 within a prompt.
    """

    sequences: int
    new: int
    context: int
    logits: int = 1

    @property
    def tokens(self) -> int:
        """New tokens of all."""
        return self.sequences * self.new

    @property
    def pairs(self) -> int:
        """How many pairs of a new token and a token that it attends to there are: those before it, and itself."""
        return self.sequences * (self.new * self.context + self.new * (self.new + 1) // 2)

    @property
    def cached(self) -> int:
        """Tokens in the cache after the step, all of which it reads."""
        return self.sequences * (self.context + self.new)


Batch = tuple[Piece, ...]
"""The sequences of a step, of one replica and micro-batch."""


@dataclass(frozen=True, slots=True)
class Part:
    """Sequences of a step of one kind, in totals.

    Attributes:
        tokens: New tokens.
        pairs: Pairs of a new token and one that it attends to.
        cached: Tokens in the cache after the step, all of which it reads.
    """

    tokens: int = 0
    pairs: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What a step computes, in totals: all that its time depends on.

    Attributes:
        tokens: New tokens.
        logits: Tokens whose logits are computed.
        pairs: Pairs of a new token and one that it attends to.
        cached: Tokens whose keys and values are read, those of the step among them.
        decoding: The part of sequences of which all new tokens make a next one.
        reading: The part of prompts. Attention of most models does not ask which part a token is of.
    """

    tokens: int
    logits: int
    pairs: int
    cached: int
    decoding: Part = Part()
    reading: Part = Part()


def sum_load(batch: Batch) -> Load:
    """Return the totals of a batch.

    Example:
        >>> sum_load((Piece(1, 4, 0), Piece(2, 1, 99))).decoding
        Part(tokens=2, pairs=200, cached=200)
    """
    decoding = _sum_pieces(piece for piece in batch if piece.logits == piece.new)
    reading = _sum_pieces(piece for piece in batch if piece.logits != piece.new)
    return sum_load_of_parts(decoding, reading, sum(piece.sequences * piece.logits for piece in batch))


def sum_load_of_parts(decoding: Part, reading: Part, logits: int) -> Load:
    """Return the totals of both parts of a step.

    Example:
        >>> sum_load_of_parts(Part(2, 200, 200), Part(4, 10, 4), 3)  # doctest: +ELLIPSIS
        Load(tokens=6, logits=3, pairs=210, cached=204, decoding=Part(...), reading=Part(...))
    """
    return Load(
        decoding.tokens + reading.tokens,
        logits,
        decoding.pairs + reading.pairs,
        decoding.cached + reading.cached,
        decoding,
        reading,
    )


def _sum_pieces(pieces: Iterable[Piece]) -> Part:
    every = tuple(pieces)
    return Part(
        sum(piece.tokens for piece in every),
        sum(piece.pairs for piece in every),
        sum(piece.cached for piece in every),
    )


def count_tokens(batch: Batch) -> int:
    """Return the new tokens of a batch."""
    return sum(piece.tokens for piece in batch)


def advance_batch(batch: Batch, steps: int) -> Batch:
    """Return the batch after some steps: what was new is in the cache, and as much is new again."""
    return tuple(replace(piece, context=piece.context + steps * piece.new) for piece in batch)


def merge_pieces(pieces: Iterable[Piece]) -> Batch:
    """Return a batch in which equal sequences are one piece."""
    counts: Counter[Piece] = Counter()
    for piece in pieces:
        counts[replace(piece, sequences=1)] += piece.sequences
    return tuple(replace(piece, sequences=count) for piece, count in counts.items())


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of sequences, fixed or drawn.

    Attributes:
        text: What a user wrote.
        least, most: Bounds of uniform lengths; equal where the length is fixed.
        median, sigma: Of lognormal ones; `median` is 0 where they are not.
    """

    text: str
    least: int
    most: int
    median: int = 0
    sigma: float = 0.0

    def draw(self, count: int, seed: int) -> list[int]:
        """Return so many lengths, the same ones for the same seed."""
        if self.least == self.most:
            return [self.least] * count
        source = random.Random(f"{self.text} {seed}")  # noqa: S311 (lengths, no secret)
        if not self.median:
            return [source.randint(self.least, self.most) for _ in range(count)]
        drawn = (self.median * source.lognormvariate(0.0, self.sigma) for _ in range(count))
        return [min(max(round(value), self.least), self.most) for value in drawn]


def parse_lengths(text: str, option: str, most: int) -> Lengths:
    """Return the lengths that `4096`, `1024..8192` (uniform) or `lognormal:2048:0.8` (median and sigma) mean.

    Args:
        text: What a user wrote.
        option: The option, for messages.
        most: The longest that is allowed; lognormal lengths are cut there.

    Raises:
        ConfigError: It is none of these, or a length is above `most`.

    Example:
        >>> parse_lengths("1024..2048", "--context", 8192).draw(3, seed=0)
        [1399, 1331, 1187]
    """
    wanted = text.strip()
    bounds, lognormal = _RANGE.fullmatch(wanted), _LOGNORMAL.fullmatch(wanted)
    if lognormal and int(lognormal[1]) > 0:
        lengths = Lengths(wanted, 1, most, int(lognormal[1]), float(lognormal[2]))
        highest = lengths.median
    elif bounds and int(bounds[1]) <= int(bounds[2]):
        lengths = Lengths(wanted, int(bounds[1]), int(bounds[2]))
        highest = lengths.most
    elif wanted.isdecimal():
        lengths = Lengths(wanted, int(wanted), int(wanted))
        highest = lengths.most
    else:
        raise ConfigError(
            f"{option} is {text[:80]!r}; allowed: a number of tokens, a range such as 1024..8192, or "
            "lognormal:MEDIAN:SIGMA such as lognormal:2048:0.8.",
            key=option.lstrip("-"),
        )
    if highest > min(most, _LONGEST):
        raise ConfigError(
            f"{option} is {highest:,} tokens; the longest here: {min(most, _LONGEST):,}.",
            hint=f"The nearest: {option} {min(most, _LONGEST)}.",
            key=option.lstrip("-"),
        )
    return lengths
