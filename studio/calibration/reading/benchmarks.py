"""Outputs of nccl-tests and rccl-tests, as they were printed.

Columns come from the header, since they differ between versions: `redop` and `root` are there or not, times of 100 ms and
more are whole numbers, and a newer `#wrong` was once `error`. Each process of a launcher that labels its lines is read on
its own; lines of libraries in between are passed over.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from studio.calibration.reading.given import (
    COLLECTIVES,
    Given,
    Tables,
    infer_shape,
    match_collective,
    note_grouped_launches,
    quote_text,
)
from studio.calibration.reading.lines import Line, iterate_printed_lines
from studio.calibration.tables import MeasuredTable
from studio.errors import TraceFormatError
from studio.units import format_counted

_HEADER = re.compile(r"#?\s*size\s+count\b.*\btime\b.*\balgbw\b")
_DEVICE = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+\d+\s+"
    r"\[[^\]]*\]\s+(?P<gpu>.+?)\s*$"
)
_NAMES_TEST = re.compile(r"\b(\w+)_perf\b")
_THREADS = re.compile(r"#\s*nThread\s+\d+\s+nGpus\s+(?P<gpus>\d+)\b")
_VERSION = re.compile(r"(?:nccl-tests version .*|rccl-tests: Version .*|(?:NCCL|RCCL) version.*)")
_NEEDED = ("size", "count", "time", "algbw", "busbw")
_ROW = re.compile(r"\d+\s+\d+\s+\w")
_ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "f8e4m3": 1, "f8e5m2": 1,
    "half": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
# What (has an operation, has a root, whole buffer counted) leaves, where no line names the program.
_BY_COLUMNS = {
    (True, False, True): "all_reduce",
    (True, False, False): "reduce_scatter",
    (True, True, True): "reduce",
    (False, True, True): "broadcast",
    (False, False, True): "send_recv",
}


def is_benchmark(text: str) -> bool:
    """Whether a text holds the header of a table of nccl-tests or rccl-tests."""
    # Looking for a word of it first spares large traces the reading of their lines.
    return "algbw" in text and any(_HEADER.match(line.text) for line in iterate_printed_lines(text))


@dataclass(slots=True)
class _Section:
    """The lines of one process's table that were read so far."""

    test: str = ""
    version: str = ""
    devices: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    gpus_per_thread: int = 1
    header: Line | None = None
    columns: tuple[str, ...] = ()
    rows: list[_Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a table: the columns as far as they matter."""

    line: int
    size: int
    count: int
    dtype: str
    redop: str
    root: str
    time_us: float
    algorithm_rate: float
    bus_rate: float
    wrong: bool


def read_benchmarks(name: str, text: str, given: Given) -> Tables:
    """Read every table that a log of a benchmark holds.

    Args:
        name: The file.
        text: Its content.
        given: What the user says of tables that do not say it.

    Raises:
        TraceFormatError: A value is none, or the text does not say on what it was measured, and neither does the user.
    """
    skipped: dict[str, list[int]] = defaultdict(list)
    notes: list[str] = []
    tables: list[MeasuredTable] = []
    for section in _iterate_sections(name, text, skipped):
        if section.rows:
            table, table_notes = _build_table(name, section, given)
            tables.append(table)
            notes += table_notes
    notes = [_describe_left_out(name, why, lines) for why, lines in skipped.items()] + notes
    if not tables:
        raise TraceFormatError(
            f"{name}: the header of a table, and no row of it; expected lines of size, count, type, …, time, algbw, busbw",
            hint="The run may have ended before its first size." if not skipped else " ".join(notes),
        )
    return Tables(tuple(tables), tuple(dict.fromkeys(notes)))


def _describe_left_out(name: str, why: str, lines: Sequence[int]) -> str:
    """Say how many lines were left out for one reason, and where the first is.

    Example:
        >>> _describe_left_out("a.log", "rows that break off", [7]), _describe_left_out("a.log", "rows of size 0", [7, 9])
        ('a.log: line 7 left out: rows that break off.', 'a.log: 2 lines left out, the first is 7: rows of size 0.')
    """
    if len(lines) == 1:
        return f"{name}: line {lines[0]} left out: {why}."
    return f"{name}: {format_counted(len(lines), 'line')} left out, the first is {lines[0]}: {why}."


def _iterate_sections(name: str, text: str, skipped: dict[str, list[int]]) -> Iterator[_Section]:
    """Yield each table of a log, with what stood before it."""
    open_sections: dict[str, _Section] = {}
    done: list[tuple[int, _Section]] = []
    for line in iterate_printed_lines(text):
        section = open_sections.get(line.process)
        if section is None or (section.rows and _begins_anew(line.text)):
            # The list of devices and the line of threads stand once, even where one program prints several tables.
            kept = (
                _Section()
                if section is None
                else _Section("", section.version, section.devices, section.gpus_per_thread)
            )
            section = open_sections[line.process] = kept
            done.append((line.number, section))
        _take(name, line, section, skipped)
    for _, section in sorted(done, key=lambda item: item[0]):
        yield section


def _begins_anew(text: str) -> bool:
    """Whether a line after the rows of a table belongs to the next one."""
    if _HEADER.match(text) or text.startswith(("# nThread", "# nccl-tests version")):
        return True
    if _NAMES_TEST.search(text):
        return "concluded" not in text
    return text.strip() == "# Using devices"


def _take(name: str, line: Line, section: _Section, skipped: dict[str, list[int]]) -> None:
    """Note what a line tells."""
    text = line.text
    device = _DEVICE.match(text)
    if device:
        if int(device["rank"]) in section.devices and section.header is None and int(device["rank"]) == 0:
            section.devices = {}
        section.devices[int(device["rank"])] = (device["group"] or "0", device["host"], device["gpu"])
    elif _HEADER.match(text):
        section.header, section.columns = line, _parse_columns(f"{name}: line {line.number}", text)
    elif section.header is not None and _ROW.match(text.lstrip()):
        _take_row(name, line, section, skipped)
    elif (named := _NAMES_TEST.search(text)) and not section.rows:
        section.test = match_collective(named[1]) or section.test
    elif threads := _THREADS.match(text):
        section.gpus_per_thread = max(int(threads["gpus"]), 1)
    elif version := _VERSION.search(text):
        section.version = version[0].strip()
    if text.strip() == "# Using devices":
        section.devices = {}


def _parse_columns(place: str, text: str) -> tuple[str, ...]:
    columns = tuple(text.lstrip("# ").split())
    missing = [column for column in _NEEDED if column not in columns]
    if missing:
        raise TraceFormatError(
            f"{place}: a header without {', '.join(missing)}; allowed: one with {', '.join(_NEEDED)}",
            hint="Lines of several processes may have been mixed; take the output of one.",
        )
    return columns


def _take_row(name: str, line: Line, section: _Section, skipped: dict[str, list[int]]) -> None:
    cells = line.text.split()
    if len(cells) <= max(map(section.columns.index, _NEEDED)):
        skipped["rows that break off"].append(line.number)
        return
    at = dict(reversed(list(zip(section.columns, cells, strict=False))))
    place = f"{name}: line {line.number}"
    size, time_us = _parse_number(place, "size", at["size"]), _parse_number(place, "time", at["time"])
    if size == 0:
        skipped["rows of size 0, in which nothing is sent"].append(line.number)
        return
    if time_us <= 0:
        raise TraceFormatError(
            f"{place}: time {quote_text(at['time'])}; allowed: a number of microseconds above 0"
        )
    row = _Row(
        line.number,
        int(size),
        int(_parse_number(place, "count", at["count"])),
        at.get("type", ""),
        at.get("redop", ""),
        at.get("root", ""),
        time_us,
        _parse_number(place, "algbw", at["algbw"]),
        _parse_number(place, "busbw", at["busbw"]),
        _is_wrong(at.get("#wrong", at.get("error", "0"))),
    )
    # Times are printed with four digits and rates with two decimals; what is further off is of another row or column.
    if abs(row.algorithm_rate - size / time_us / 1e3) > 0.011 + 0.02 * row.algorithm_rate:
        skipped["rows in which algbw is not size by time"].append(line.number)
        return
    section.rows.append(row)


def _parse_number(place: str, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise TraceFormatError(f"{place}: {column} {quote_text(text)}; allowed: a number, not negative")
    return value


def _is_wrong(text: str) -> bool:
    """Whether a benchmark found wrong values; of old ones, which print the largest error, that it is large."""
    try:
        return float(text) >= 1
    except ValueError:
        return False


def _build_table(name: str, section: _Section, given: Given) -> tuple[MeasuredTable, list[str]]:
    assert section.header is not None
    place = f"{name}: line {section.header.number}"
    notes = []
    collective = section.test or _infer_by_columns(section.rows) or _infer_by_name(name) or given.collective
    if not collective:
        raise TraceFormatError(
            f"{place}: the text does not say which collective was measured; allowed: {', '.join(COLLECTIVES)}",
            hint="Give --collective, such as --collective all_gather.",
        )
    ranks = infer_ranks(
        collective,
        [row.algorithm_rate for row in section.rows],
        [row.bus_rate for row in section.rows],
    )
    if section.devices:
        (per_node, nodes), device_notes = _infer_device_shape(place, section)
        notes += device_notes
    else:
        per_node, nodes = infer_shape(place, given, ranks)
    wrong = [row.line for row in section.rows if row.wrong]
    if wrong:
        notes.append(
            f"{name}: {format_counted(len(wrong), 'row has', 'rows have')} wrong results, the first in line {wrong[0]}; their times count."
        )
    gpu = next((gpu for _, _, gpu in section.devices.values()), "")
    table = MeasuredTable(
        table_id=f"{_build_stem(name)}_n{nodes}_g{per_node}_{collective}",
        source=f"{name}, line {section.header.number}",
        hardware=gpu,
        gpus_per_node=per_node,
        nodes=nodes,
        interconnect="",
        nominal_gbytes_per_s=float("nan"),
        library_version=section.version,
        collective=collective,
        dtype=section.rows[0].dtype,
        size_bytes=np.array([float(row.size) for row in section.rows]),
        time_us=np.array([row.time_us for row in section.rows]),
        machine=gpu,
        gpus_per_thread=section.gpus_per_thread,
    )
    return table, notes + note_grouped_launches(place, [table])


def _infer_device_shape(place: str, section: _Section) -> tuple[tuple[int, int], list[str]]:
    """Return GPUs per node and nodes from the list of devices."""
    notes = []
    groups = Counter(group for group, _, _ in section.devices.values())
    group = next(iter(groups))
    if len(groups) > 1:
        notes.append(
            f"{place}: {len(groups)} groups ran at the same time, so each shared ports with the others."
        )
    members = {rank: host for rank, (of, host, _) in section.devices.items() if of == group}
    gpus = sorted({gpu for _, _, gpu in section.devices.values()})
    if len(gpus) > 1:
        notes.append(f"{place}: the ranks have different GPUs: {', '.join(gpus)}; the first counts.")
    if len(groups) == 1 and sorted(members) != list(range(len(members))):
        raise TraceFormatError(
            f"{place}: the list of devices has {len(members)} ranks of {max(members) + 1}; allowed: all of them",
            hint="Lines of several processes may have been mixed; remove the list, and give --gpus-per-node and --nodes.",
        )
    hosts = Counter(members.values())
    if len(set(hosts.values())) > 1:
        counts = ", ".join(f"{count} on {host}" for host, count in list(hosts.items())[:8])
        raise TraceFormatError(
            f"{place}: the nodes have different numbers of GPUs: {counts}; allowed: as many on each"
        )
    return (next(iter(hosts.values())), len(hosts)), notes


def infer_ranks(collective: str, algorithm_rate: Sequence[float], bus_rate: Sequence[float]) -> int | None:
    """Return the number of ranks that follows from bus bandwidth over algorithm bandwidth; None where none does.

    Example:
        >>> infer_ranks("all_reduce", [200.0], [375.0]), infer_ranks("broadcast", [10.0], [10.0])
        (16, None)
    """
    doubled = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}.get(collective)
    rates = [(float(bus), float(own)) for own, bus in zip(algorithm_rate, bus_rate, strict=True) if own > 0]
    if doubled is None or not rates:
        return None
    bus, own = max(rates, key=lambda pair: pair[1])
    # The factor is doubled × (n - 1) / n, printed with two decimals; nearby numbers of ranks may read the same.
    low, high = (bus - 0.005) / (own + 0.005) / doubled, (bus + 0.005) / max(own - 0.005, 1e-9) / doubled
    if not 0 < high < 1 + 1e-9 or low >= 1:
        return None
    least, most = 1 / (1 - low), (1 / (1 - high) if high < 1 else float("inf"))
    nearest = round((least + most) / 2) if most < float("inf") else 0
    return nearest if nearest > 1 and most - least < 1 and least - 0.5 < nearest < most + 0.5 else None


def _infer_by_columns(rows: Sequence[_Row]) -> str:
    """Return the collective that operation, root and count tell; "" where they fit several."""
    row = rows[-1]
    element = _ELEMENT_BYTES.get(row.dtype, 0)
    if not element:
        return ""
    reduces = row.redop not in ("", "none")
    rooted = row.root not in ("", "-1")
    return _BY_COLUMNS.get((reduces, rooted, row.count * element == row.size), "")


def _infer_by_name(name: str) -> str:
    """Return the collective that a file's name holds, as of a log that was cut; "" where it holds none or several."""
    letters = "".join(letter for letter in name.lower() if letter.isalpha())
    spelled = {kind.replace("_", ""): kind for kind in COLLECTIVES}
    held = set()
    for spelling in sorted(spelled, key=len, reverse=True):
        if spelling in letters:
            held.add(spelled[spelling])
            letters = letters.replace(spelling, " ")
    return held.pop() if len(held) == 1 else ""


def _build_stem(name: str) -> str:
    last = name.rsplit("/", 1)[-1]
    return re.sub(r"[^\w.-]+", "_", last.rsplit(".", 1)[0] if "." in last else last) or "table"
