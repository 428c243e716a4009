"""Read databases with bytes changed and ends cut off, always the same ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import studio
from studio.errors import StudioError


def read_damaged(whole: bytes, file: Path) -> set[str]:
    """Return what becomes of reading 60 damaged copies: "trace", or the name of an error for the user.

    Args:
        whole: The database.
        file: Where the copies are written.
    """
    rng, outcomes = Random(3), set()
    for number in range(60):
        raw = bytearray(whole[: rng.randrange(200, len(whole))] if number % 3 == 0 else whole)
        for _ in range(rng.randrange(1, 12)):
            raw[rng.randrange(100, len(raw))] = rng.randrange(256)
        file.write_bytes(raw)
        try:
            studio.read(file)
            outcomes.add("trace")
        except StudioError as error:
            outcomes.add(type(error).__name__)
    return outcomes
