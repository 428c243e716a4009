"""Small jobs with known content: for each kind of node, collective and algorithm, and for each fault that the Doctor knows.

`micro` are those of the existing generator, `collectives`, `algorithms` and `faults` one for each entry of the studio's tables;
`parts` are what they are made of, `write` puts them into a folder.
"""

from __future__ import annotations

from studio.generation.cases.parts import Case, CaseJob, Sizes
from studio.generation.cases.write import select_cases, write_cases

__all__ = ["Case", "CaseJob", "Sizes", "select_cases", "write_cases"]
