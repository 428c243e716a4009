"""How many examples property tests try: most while one test is worked on, fewer in `make test`, many in `make nightly`."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
"""Which of Hypothesis' profiles is in force: `dev`, `ci` or `nightly`; see tests/conftest.py."""
DEFAULT_EXAMPLES = 50


_FACTORS = {"ci": 0.3, "dev": 1.0, "nightly": 40.0}


def examples(count: int) -> int:
    """Return how many examples a test tries of which `make nightly` tries forty times `count`."""
    return max(1, round(_FACTORS[PROFILE] * count))
