"""Lines of logs as programs printed them, without what launchers and terminals put around."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TIME = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
# What launchers write before each line. Times differ from line to line, so they tell no processes apart.
_PREFIXES = (
    # mpirun --tag-output, also with a time between: [1,0]<stdout>:
    (re.compile(r"\[\d+,\d+\](?:\[[^\]]*\])?<std(?:out|err|diag)>:\s?"), True),
    (re.compile(rf"{_TIME}[: ]\s?"), False),
    # srun -l: the number of the task.
    (re.compile(r"\s{0,4}\d{1,7}:(?:\s|$)"), True),
    # pdsh, kubectl logs --prefix, docker compose: the name of the host.
    (re.compile(r"\[[\w./-]+\]\s(?=\s*[#\d])"), True),
    (re.compile(r"[A-Za-z][\w.-]*\s*[:|]\s(?=\s*(?:#|\d+\s+\d+\s+\w))"), True),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log.

    Attributes:
        number: Its place in the file, counted from 1.
        process: What its launcher says of who printed it; "" where it says nothing.
        text: What was printed.
    """

    number: int
    process: str
    text: str


def iterate_printed_lines(text: str) -> Iterator[Line]:
    r"""Yield the lines of a log, each without the prefix of its launcher.

    Example:
        >>> [(line.process, line.text) for line in iterate_printed_lines("0: # a\n[1,0]<stdout>:#  b\nplain")]
        [('0:', '# a'), ('[1,0]<stdout>:', '#  b'), ('', 'plain')]
    """
    for number, raw in enumerate(text.split("\n"), start=1):
        process, rest = "", _COLOUR.sub("", raw).rstrip()
        for pattern, tells in _PREFIXES:
            prefix = pattern.match(rest)
            if prefix:
                process += prefix[0].strip() if tells else ""
                rest = rest[prefix.end() :]
        yield Line(number, process, rest)


def decode(data: bytes) -> str:
    """Return the text of a file, whatever a shell encoded it in."""
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if data.startswith(mark):
            return data.decode(encoding, errors="replace").replace("\r", "")
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
