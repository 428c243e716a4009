"""Read traces of requests: when each arrived, how many tokens its prompt has, and how many were generated.

Forms: a CSV file with a header, as the Azure LLM inference traces (`TIMESTAMP`, `ContextTokens`, `GeneratedTokens`; Patel et al.,
"Splitwise", ISCA 2024) and BurstGPT (`Timestamp`, `Request tokens`, `Response tokens`; Wang et al., 2024) are, or with plain names.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

from studio.errors import ConfigError
from studio.files import open_file

COLUMNS = {
    "arrival": ("arrival_s", "arrival", "timestamp", "time"),
    "prompt": ("prompt_tokens", "contexttokens", "request tokens", "input_tokens", "prompt"),
    "output": ("output_tokens", "generatedtokens", "response tokens", "completion_tokens", "output"),
}
"""Names of columns by what they are, in small letters; the first that a file has counts."""
MOST_REQUESTS = 1_000_000
_SHOWN = 80
_LATEST_S = 10**11


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        arrival_ns: When it came, counted from the first one.
        prompt: Tokens of its prompt.
        output: Tokens to generate.
    """

    arrival_ns: int
    prompt: int
    output: int

    @property
    def tokens(self) -> int:
        """Tokens that the KV cache holds of it at most: all but the last one generated."""
        return self.prompt + self.output - 1


def read_requests(path: Path) -> tuple[Request, ...]:
    """Return the requests of a CSV file, in its order.

    Raises:
        ConfigError: It lacks a column, or a line holds no number, a negative one, or an earlier time than the one before.
    """
    with io.TextIOWrapper(open_file(path), "utf-8-sig", errors="replace", newline="") as file:
        return parse_requests(file, path.name)


def parse_requests(lines: Iterable[str], name: str) -> tuple[Request, ...]:
    """Return the requests of the lines of a CSV file.

    Args:
        lines: Its lines, the header first.
        name: Its name, for messages.

    Raises:
        ConfigError: As of `read_requests`.

    Example:
        >>> parse_requests(["arrival_s,prompt_tokens,output_tokens", "10.5,100,20", "11,50,5"], "a.csv")[1]
        Request(arrival_ns=500000000, prompt=50, output=5)
    """
    rows = csv.reader(lines)
    try:
        header = next(rows, [])
        places = _find_columns(header, name)
        requests = tuple(_iterate_requests(rows, places, name))
    except csv.Error as error:
        raise ConfigError(
            f"{name}, line {rows.line_num}: not CSV: {error}.",
            hint="Correct that line, or write the file as CSV again.",
        ) from error
    if not requests:
        raise ConfigError(
            f"{name} holds no requests, but its header alone.",
            hint="Add a line below the header for each request.",
        )
    first = requests[0].arrival_ns
    return tuple(replace(request, arrival_ns=request.arrival_ns - first) for request in requests)


def _find_columns(header: list[str], name: str) -> dict[str, int]:
    """Return the place of each column.

    Raises:
        ConfigError: One is missing.
    """
    known = {title.strip().lower(): place for place, title in reversed(list(enumerate(header)))}
    places = {}
    for column, titles in COLUMNS.items():
        title = next((title for title in titles if title in known), None)
        if title is None:
            existing = ", ".join(header)[:_SHOWN] or "none"
            raise ConfigError(
                f"{name} has no column of {_MEANING[column]}; there are: {existing}; allowed: {', '.join(titles)}.",
                hint="The first line names the columns, such as TIMESTAMP,ContextTokens,GeneratedTokens.",
                key=column,
            )
        places[column] = known[title]
    return places


_MEANING = {"arrival": "arrival times", "prompt": "tokens of prompts", "output": "tokens generated"}


def _iterate_requests(rows: Iterator[list[str]], places: dict[str, int], name: str) -> Iterator[Request]:
    before = -1
    for number, row in enumerate(rows, 2):
        if not any(row):
            continue
        if number > MOST_REQUESTS + 1:
            raise ConfigError(f"{name} has more than {MOST_REQUESTS:,} requests, which are the most allowed.")
        where = f"{name}, line {number}"
        if len(row) <= max(places.values()):
            raise ConfigError(f"{where}: {len(row)} columns; allowed: as many as the header has.")
        arrival = _parse_nanoseconds(row[places["arrival"]], where)
        if arrival < before:
            raise ConfigError(
                f"{where}: arrival {row[places['arrival']][:_SHOWN]} is before that of the request above.",
                hint="Sort the lines by arrival.",
            )
        before = arrival
        prompt, output = (
            _parse_tokens(row[places[column]], column, where) for column in ("prompt", "output")
        )
        yield Request(arrival, prompt, output)


def _parse_nanoseconds(text: str, where: str) -> int:
    """Return a time, in nanoseconds: a number of seconds, or a date and time of day, counted from 1970."""
    try:
        seconds = Decimal(text.strip())
    except InvalidOperation:
        try:
            when = datetime.fromisoformat(text.strip())
            since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
            seconds = Decimal(since // timedelta(microseconds=1)) / 1_000_000
        except ValueError:
            seconds = Decimal("nan")
    if not seconds.is_finite() or not 0 <= seconds < _LATEST_S:
        raise ConfigError(
            f"{where}: arrival is {text[:_SHOWN]!r}; allowed: seconds of at least 0, or a time such as "
            "2023-11-16 18:17:03.9799600."
        )
    return round(seconds * 1_000_000_000)


def _parse_tokens(text: str, column: str, where: str) -> int:
    value = text.strip()
    if not value.isdecimal() or not 1 <= len(value) <= 9 or int(value) < 1:
        raise ConfigError(
            f"{where}: {_MEANING[column]} is {text[:_SHOWN]!r}; allowed: a whole number of at least 1."
        )
    return int(value)


def scale_arrivals(requests: tuple[Request, ...], factor: float) -> tuple[Request, ...]:
    """Return the same requests coming so many times as fast."""
    return tuple(replace(each, arrival_ns=round(each.arrival_ns / factor)) for each in requests)
