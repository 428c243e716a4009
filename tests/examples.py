"""How many examples property tests try: what `make test` runs, and forty times as many in `make nightly`."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
"""Which of Hypothesis' profiles is in force: `dev`, `ci` or `nightly`; see tests/conftest.py."""
DEFAULT_EXAMPLES = 50


def examples(count: int) -> int:
    """Return how many examples a test tries for which `make test` tries `count`."""
    return 40 * count if PROFILE == "nightly" else count
