"""Findings as they are stored with a job, so that it is examined once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from studio.decoding import build_decoder
from studio.doctor.checks import CHECKS, Examination
from studio.doctor.diagnosis import LEVELS, Diagnosis
from studio.trace import Level

EDITION: Final = 15
"""Raised when a check finds more or less, or offers other repairs, than before; what an older one has found counts for nothing."""


@dataclass(frozen=True, slots=True)
class _Levels:
    """What is read to count findings.

    Attributes:
        edition: `EDITION` of the checks that were made.
        codes: The checks that were made.
        levels: How many findings there are of each level.
    """

    edition: int
    codes: tuple[str, ...]
    levels: dict[Level, int]


@dataclass(frozen=True, slots=True)
class _Stored:
    diagnoses: tuple[Diagnosis, ...]
    passed: tuple[str, ...]


_levels = build_decoder(_Levels)
_stored = build_decoder(_Stored)
_CODES = tuple(check.code for check in CHECKS)


def to_store(examination: Examination) -> dict[str, Any]:
    """Return an examination as it is stored."""
    return {
        "edition": EDITION,
        "codes": _CODES,
        "levels": {level: examination.count(level) for level in LEVELS},
        "diagnoses": examination.diagnoses,
        "passed": [check.code for check in examination.passed],
    }


def read_stored_levels(raw: bytes | None) -> Mapping[Level, int] | None:
    """Return how many findings of each level are stored; None where none are, or those of other checks."""
    try:
        known = _levels(raw) if raw is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return known.levels if known and (known.edition, known.codes) == (EDITION, _CODES) else None


def read_stored_examination(raw: bytes | None) -> Examination | None:
    """Return the stored examination of a job; None where there is none, or an older set of checks made it."""
    if raw is None or read_stored_levels(raw) is None:
        return None
    try:
        known = _stored(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    passed = set(known.passed)
    return Examination(known.diagnoses, tuple(check for check in CHECKS if check.code in passed))
