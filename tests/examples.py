"""How many examples property tests try: many in `make nightly`, fewer on one test, in `make test` and in `make pythons`."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
"""Which of Hypothesis' profiles is in force: `dev`, `ci`, `few` or `nightly`; see tests/conftest.py."""
DEFAULT_EXAMPLES = 50


_FACTORS = {"few": 0.1, "ci": 0.6, "dev": 1.0, "nightly": 40.0}


def examples(count: int) -> int:
    """Return how many examples a test tries of which `make nightly` tries forty times `count`."""
    return max(1, round(_FACTORS[PROFILE] * count))
