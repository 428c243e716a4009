"""Parse ASTRA-sim's text workloads: the kind of parallelism, its numbers, and the layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from studio.et.records import LARGEST_NS
from studio.trace import Finding
from studio.units import format_counted

_LARGEST_BYTES = 2**63 - 1
_MOST_CHECKPOINTS = 100_000


@dataclass(frozen=True, slots=True)
class Phase:
    """A layer's work in one phase; `collective` is "" where it does not communicate."""

    compute_ns: int
    collective: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: its work in each phase, and the kind of parallelism where each layer has its own."""

    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """A file, parsed; `numbers` are those of the first line by the word before them, "" where there is none."""

    kind: str
    numbers: Mapping[str, tuple[int, ...]]
    layers: Sequence[Layer]
    findings: tuple[Finding, ...]

    def number(self, *keys: str) -> int | None:
        """Return the first number under the first of these words that has one."""
        return next((self.numbers[key][0] for key in keys if self.numbers.get(key)), None)


def parse_workload(text: str, name: str) -> Workload:
    """Parse a file that begins as a workload does; lines that are no layers are findings."""
    lines = [(number, words) for number, line in enumerate(text.split("\n"), 1) if (words := line.split())]
    kind, *header = lines[0][1]
    count = int(lines[1][1][0])
    rows = lines[2:]
    layers, bad = [], []
    for number, row in rows[:count]:
        layer = _parse_layer(row, customized=kind == "HYBRID_CUSTOMIZED")
        if layer is None:
            bad.append(number)
        else:
            layers.append(layer)
    findings = []
    if bad:
        message = (
            f"{name}: lines that are not layers were left out: {len(bad):,}, the first being line {bad[0]}. "
            "Expected: name, -1, then three times compute time, collective and bytes, then the time of the update."
        )
        findings.append(Finding("error", "damaged-layer", message, "Correct these lines.", file=name))
    if len(rows) < count:
        message = (
            f"{name}: {len(rows):,} of {count:,} layers; the file is cut off after line {lines[-1][0]:,}."
        )
        findings.append(Finding("error", "damaged-file", message, "Copy the file again.", file=name))
    elif len(rows) > count:
        message = f"{name}: {format_counted(len(rows) - count, 'line')} after the {format_counted(count, 'layer')}, left out."
        hint = "Correct the number of layers in line 2."
        findings.append(Finding("warning", "extra-lines", message, hint, file=name))
    return Workload(kind, _parse_numbers(header), layers, tuple(findings))


def _parse_numbers(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the first line by the word before them.

    Example:
        >>> _parse_numbers("model_parallel_NPU_group: 8 checkpoints: 2 0 4 pp_comm 64".split())
        {'model_parallel_npu_group': (8,), 'checkpoints': (2, 0, 4), 'pp_comm': (64,)}
    """
    numbers: dict[str, list[int]] = {}
    key = ""
    for word in words:
        number = _parse_whole(word, _LARGEST_BYTES)
        if number is None:
            key = word.rstrip(":").lower()
        elif len(numbers.setdefault(key, [])) < _MOST_CHECKPOINTS:
            numbers[key].append(number)
    return {key: tuple(values) for key, values in numbers.items()}


def _parse_layer(row: Sequence[str], *, customized: bool) -> Layer | None:
    """Parse a line as a layer, None where it is none."""
    if len(row) < 12:
        return None
    phases = []
    for column in (2, 5, 8):
        compute_us, collective, size_bytes = (
            _parse_microseconds(row[column]),
            row[column + 1].upper(),
            _parse_whole(row[column + 2], _LARGEST_BYTES),
        )
        if compute_us is None or size_bytes is None or not re.fullmatch(r"[A-Z_]+", collective):
            return None
        phases.append(Phase(compute_us, "" if collective == "NONE" else collective, size_bytes))
    kind = row[12].upper() if customized and len(row) > 12 else ""
    return Layer(row[0], phases[0], phases[1], phases[2], kind)


def _parse_whole(word: str, largest: int) -> int | None:
    """Return a whole number from 0, also one written as 16777216.0 or 1e6."""
    if word.isascii() and word.isdecimal() and len(word) < 20:
        number = int(word)
    else:
        value = _parse_float(word)
        if value is None:
            return None
        number = int(value)
    return number if 0 <= number <= largest else None


def _parse_microseconds(word: str) -> int | None:
    """Return microseconds as ns."""
    if word.isascii() and word.isdecimal() and len(word) < 20:
        duration_ns = int(word) * 1000
    else:
        value = _parse_float(word)
        if value is None:
            return None
        duration_ns = round(value * 1000)
    return duration_ns if 0 <= duration_ns <= LARGEST_NS else None


def _parse_float(word: str) -> float | None:
    if not re.fullmatch(r"[0-9]{1,19}(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?", word):
        return None
    value = float(word)
    return value if value <= _LARGEST_BYTES else None
