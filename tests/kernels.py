"""Which of its two forms the simulator's kernel runs in: most tests are about answers, which are those of both."""

from __future__ import annotations

from studio.sim import engine


def compiled() -> bool:
    """Whether to run compiled: once somebody has compiled, as `make` does when it sets up. Interpreted is slower by far.

    That both forms answer alike is tested in tests/sim/test_parity_sample.py and test_flows.py.
    """
    return engine.KERNEL.is_cached()
