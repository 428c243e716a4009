"""Tell which jobs are recordings of the same thing, by their names without dates and numbers."""

from __future__ import annotations

import re

_DATE = r"(?:19|20)[0-9]{2}[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12][0-9]|3[01])"
_TIME = r"(?:[01][0-9]|2[0-3])[-_.:h]?[0-5][0-9](?:[-_.:m]?[0-5][0-9])?(?:[.,][0-9]+)?s?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_MOMENT = re.compile(rf"(?<![0-9A-Za-z]){_DATE}(?:[-_. T]?{_TIME})?(?![0-9A-Za-z])")
_COUNTED = re.compile(
    r"(?<![A-Za-z])(run|job|build|nightly|night|day|week|iter|iteration|step|try|trial|attempt|rev|version|v|n)"
    r"[-_. #]*[0-9]+(?:\.[0-9]+)*(?![0-9A-Za-z])",
    re.IGNORECASE,
)
_LAST = re.compile(r"[-_. #(]+[0-9]+(?:\.[0-9]+)*\)?$")
_EDGES = "-_. #()"
UNNAMED = "dates and numbers alone"
"""What the series of jobs is called whose names are nothing but dates and numbers."""


def name_series(name: str) -> str:
    """Return the name of the series that a job belongs to: its own without dates, times and the number at its end.

    A number within a word stays: it tells models and sizes apart.

    Example:
        >>> [name_series(name) for name in ("llama-8b-2026-11-20T0300", "llama-8b_20261121", "gpt3 run12", "gpt3-7", "2026-11-20/moe")]
        ['llama-8b', 'llama-8b', 'gpt3', 'gpt3', 'moe']
        >>> name_series("resnet_50_4r"), name_series("2026-11-20")
        ('resnet_50_4r', 'dates and numbers alone')
    """
    parts = [_strip_number(part) for part in name.split("/")]
    return "/".join(part for part in parts if part) or UNNAMED


def _strip_number(word: str) -> str:
    word = _COUNTED.sub("", _MOMENT.sub("", word)).strip(_EDGES)
    while (shorter := _LAST.sub("", word).strip(_EDGES)) != word:
        word = shorter
    return "" if word.isdigit() else word
