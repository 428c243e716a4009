"""Faults of a generated job, on request: ranks that compute slowly, and durations that differ from rank to rank.

Slow links are a matter of the simulated system, and experts with more tokens than others one of the layout (`--expert-skew`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from studio.completion.measured import Measured
from studio.completion.spread import Spread, spread_durations
from studio.errors import ConfigError
from studio.trace import Trace

LARGEST_FACTOR = 1_000.0


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong in a job.

    Attributes:
        slow: How many times as long as others a rank computes, by rank.
        jitter: Standard deviation of the logarithm of each compute node's duration, 0 to 1.
        seed: What is drawn at random.
    """

    slow: Mapping[int, float] = field(default_factory=dict)
    jitter: float = 0.0
    seed: int = 1

    def __bool__(self) -> bool:
        return bool(self.slow) or self.jitter > 0

    @property
    def words(self) -> str:
        """The fault as a clause for a job's description, such as `, rank 3 takes 1.5 times as long`; empty for none."""
        slow = "".join(f", rank {rank} takes {factor:g} times as long" for rank, factor in self.slow.items())
        return slow + (f", durations spread by {self.jitter:g} with seed {self.seed}" if self.jitter else "")


NO_FAULTS = Faults()


def parse_slow_ranks(text: str) -> dict[int, float]:
    """Return factors by rank from what a user says.

    Raises:
        ConfigError: It is no list of ranks and factors.

    Example:
        >>> parse_slow_ranks("3:1.5, 7:2")
        {3: 1.5, 7: 2.0}
    """
    factors = {}
    for part in text.split(","):
        rank, _, factor = part.partition(":")
        try:
            factors[int(rank)] = float(factor)
        except ValueError:
            raise ConfigError(
                f"--slow-rank is {text[:80]!r}; allowed: ranks and factors such as 3:1.5,7:2.",
                key="slow_rank",
            ) from None
    for slow, value in factors.items():
        if not 1 / LARGEST_FACTOR <= value <= LARGEST_FACTOR:
            raise ConfigError(
                f"--slow-rank gives rank {slow} the factor {value:g}; allowed: {1 / LARGEST_FACTOR:g} to {LARGEST_FACTOR:g}.",
                key="slow_rank",
            )
    return factors


def build_faults(slow_rank: str | None, jitter: float, seed: int, ranks: int) -> Faults:
    """Return the faults that a user asks for.

    Raises:
        ConfigError: A rank is none of the job's, or a number is out of its range.
    """
    slow = parse_slow_ranks(slow_rank) if slow_rank else {}
    wrong = next((rank for rank in slow if not 0 <= rank < ranks), None)
    if wrong is not None:
        raise ConfigError(
            f"--slow-rank names rank {wrong}; allowed: 0 to {ranks - 1:,}.",
            hint=f"The nearest: {min(max(wrong, 0), ranks - 1)}.",
            key="slow_rank",
        )
    # It refuses what is no spread.
    Spread(jitter=jitter, seed=seed)
    return Faults(slow, jitter, seed)


def add_faults(trace: Trace, faults: Faults) -> Trace:
    """Return a job with faults; ranks that have some get graphs of their own.

    Raises:
        ConfigError: Compute nodes have no durations.
    """
    if not faults:
        return trace
    spared = frozenset() if faults.jitter else frozenset(range(len(trace.ranks))) - set(faults.slow)
    spread = Spread(jitter=faults.jitter, seed=faults.seed)
    return spread_durations(trace, spread, frozenset(spared), Measured(dict(faults.slow)))
