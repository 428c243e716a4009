"""Hold a run against measures that were kept in a small file: what got worse by more than is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from studio.analysis.job.measures import EDITION as MEASURES
from studio.analysis.job.measures import Measures, measure
from studio.analysis.job.step_spans import step_spans
from studio.commands.base.options import suggest
from studio.commands.base.terminal import align_columns, escape_controls
from studio.comparing import Compared
from studio.decoding import build_decoder
from studio.doctor import run_checks
from studio.doctor.stored import EDITION as CHECKS
from studio.errors import ConfigError
from studio.files import read_file
from studio.store.durable_files import write_atomically
from studio.units import format_counted, format_ns

_FORM: Final = 1
Unit = Literal["%", "points", "ratio", "findings"]
State = Literal["worse", "allowed", "same", "better", "missing", "not compared"]


@dataclass(frozen=True, slots=True)
class Limit:
    """A measure that a run is held against.

    Attributes:
        unit: What its difference counts in: percent of the baseline, points of percent, as it is, or findings.
        allowed: By how much it may be worse where nothing else is said.
        title: What it is called.
    """

    unit: Unit
    allowed: float
    title: str


LIMITS: Final[Mapping[str, Limit]] = {
    "step": Limit("%", 5, "step time"),
    "finish": Limit("%", 5, "finish"),
    "exposed": Limit("points", 2, "exposed communication"),
    "idle": Limit("points", 2, "idle"),
    "imbalance": Limit("ratio", 0.05, "imbalance"),
    "errors": Limit("findings", 0, "errors of the Doctor"),
    "warnings": Limit("findings", 0, "warnings of the Doctor"),
}
"""Every measure, in the order of tables."""
_QUANTITY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<unit>%|points?|)")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The figures of a run that a baseline file keeps.

    Attributes:
        name: The run; untrusted text.
        source: "recorded", or the model that was simulated.
        ranks, nodes: Of the job.
        measures: By the keys of `LIMITS`; times in nanoseconds, shares as parts of the finish. What a run lacks is left out.
        edition: Of the measures.
        checks: Edition of the Doctor's checks; findings of different ones are not compared.
        chakra_studio_baseline: Tells such files from others; their form.
    """

    name: str
    source: str
    ranks: int
    nodes: int
    measures: Mapping[str, float] = field(default_factory=dict)
    edition: int = MEASURES
    checks: int = CHECKS
    chakra_studio_baseline: int = 0


_baseline = build_decoder(Baseline)


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of a run beside that of its baseline.

    Attributes:
        key: A key of `LIMITS`.
        before, now: Its values; None where a side has none.
        difference: Now less before, in the limit's unit; None where it cannot be told.
        allowed: By how much it may be worse.
        state: What that means.
    """

    key: str
    before: float | None
    now: float | None
    difference: float | None
    allowed: float
    state: State


@dataclass(frozen=True, slots=True)
class Judged:
    """A run held against a baseline.

    Attributes:
        run: The run, as it would be kept.
        against: The baseline; None where there was none to compare with.
        rows: A row per measure that either has.
        path: Where the baseline is.
        written: Where the run was kept as a baseline; None where it was not.
    """

    run: Baseline
    against: Baseline | None
    rows: tuple[Row, ...]
    path: Path | None
    written: Path | None = None

    @property
    def worse(self) -> list[Row]:
        """The measures that got worse by more than is allowed, or are there no more."""
        return [row for row in self.rows if row.state in ("worse", "missing")]


def parse_allowed(given: Sequence[str]) -> dict[str, float]:
    """Parse `step=5%,exposed=2points`; what is not said keeps its default.

    Raises:
        ConfigError: A measure or a unit is unknown.

    Example:
        >>> parse_allowed(["step=1.5%", "exposed=3points,errors=1"])
        {'step': 1.5, 'exposed': 3.0, 'errors': 1.0}
    """
    allowed: dict[str, float] = {}
    for item in (item.strip() for word in given for item in word.split(",")):
        key, equals, text = item.partition("=")
        key = key.strip()
        limit = LIMITS.get(key)
        if limit is None or not equals:
            raise ConfigError(
                f"--allow {item[:80]!r}: unknown measure; allowed: {', '.join(LIMITS)}",
                hint=f"{suggest(key, LIMITS)}Write it as --allow step=5%,exposed=2points.",
            )
        match = _QUANTITY.fullmatch(text.strip())
        units = {"%": ("%",), "points": ("points", "point"), "ratio": ("",), "findings": ("",)}[limit.unit]
        if not match or match["unit"] not in units:
            such = {"%": "5%", "points": "2points", "ratio": "0.05", "findings": "1"}[limit.unit]
            raise ConfigError(
                f"--allow {item[:80]!r}: allowed: {key}={such}, a number of 0 or more with this unit"
            )
        allowed[key] = float(match["number"])
    return allowed


def measure_baseline(side: Compared) -> Baseline:
    """Measure a run and have the Doctor look at its job."""
    run = side.side
    measures = measure(run.ledger(), step_spans(run.trace, run.times))
    levels = run_checks(run.trace)
    known: dict[str, float | None] = {
        "step": measures.step_ns,
        **_collect_shares(measures),
        "errors": levels.count("error"),
        "warnings": levels.count("warning"),
    }
    return Baseline(
        side.name,
        run.model or "recorded",
        len(run.trace.ranks),
        run.trace.node_count,
        {key: known[key] for key in LIMITS if known.get(key) is not None},  # type: ignore[misc]
        chakra_studio_baseline=_FORM,
    )


def _collect_shares(measures: Measures) -> dict[str, float | None]:
    return {
        "finish": measures.finish_ns,
        "exposed": measures.exposed,
        "idle": measures.idle,
        "imbalance": measures.imbalance,
    }


def read_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        ConfigError: It is none, or of a newer studio.
        OSError: It cannot be read.
    """
    hint = "Make one with --write-baseline FILE.json."
    try:
        known = _baseline(read_file(path))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a baseline: {error}", hint=hint) from error
    if known.chakra_studio_baseline != _FORM:
        raise ConfigError(
            f"{path}: chakra_studio_baseline is {known.chakra_studio_baseline}; allowed: {_FORM}", hint=hint
        )
    odd = [key for key, value in known.measures.items() if key not in LIMITS or not 0 <= value < float("inf")]
    if odd:
        raise ConfigError(
            f"{path}: measures: {odd[0][:80]!r} is unknown, or below 0; allowed: {', '.join(LIMITS)}",
            hint=hint,
        )
    return known


def write_baseline(path: Path, run: Baseline) -> None:
    """Keep a run as a baseline; nothing half written is left where that fails."""
    text = msgspec.json.format(msgspec.json.encode(run), indent=2).decode()
    with write_atomically(path, "--write-baseline") as stream:
        stream.write(f"{text}\n")


def hold(run: Baseline, against: Baseline, allowed: Mapping[str, float], path: Path) -> Judged:
    """Hold a run against a baseline.

    Raises:
        ConfigError: They are not of the same kind: other ranks, or one was recorded and the other simulated.
    """
    for what, now, before in (("ranks", run.ranks, against.ranks), ("times", run.source, against.source)):
        if now != before:
            raise ConfigError(
                f"{path}: {what} of the baseline: {before}; of {run.name}: {now}. Such runs are not compared",
                hint="Write a baseline of a run of the same kind with --write-baseline.",
            )
    if against.edition != run.edition:
        raise ConfigError(
            f"{path}: its measures are of edition {against.edition}, those of this studio of {run.edition}",
            hint="Write the baseline again with --write-baseline.",
        )
    rows = tuple(
        _compare_measure(key, run, against, allowed)
        for key in LIMITS
        if key in run.measures or key in against.measures
    )
    return Judged(run, against, rows, path)


def _compare_measure(key: str, run: Baseline, against: Baseline, given: Mapping[str, float]) -> Row:
    limit = LIMITS[key]
    before, now, allowed = against.measures.get(key), run.measures.get(key), given.get(key, limit.allowed)
    if limit.unit == "findings" and run.checks != against.checks:
        return Row(key, before, now, None, allowed, "not compared")
    if before is None or now is None:
        return Row(key, before, now, None, allowed, "missing" if now is None else "not compared")
    difference = now - before
    if limit.unit == "%":
        difference = 100 * difference / before if before else 0.0 if not difference else float("inf")
    elif limit.unit == "points":
        difference *= 100
    # What is exactly as much as is allowed is allowed, however it was rounded.
    over = difference - allowed
    state: State = "better" if difference < 0 else "allowed" if difference else "same"
    if over > 1e-9 * max(1.0, allowed):
        state = "worse"
    return Row(key, before, now, difference, allowed, state)


def build_baseline_report(judged: Judged) -> dict[str, Any]:
    """Return a run beside its baseline as plain data."""
    return {
        "name": judged.run.name,
        "source": judged.run.source,
        "ranks": judged.run.ranks,
        "baseline": None if judged.path is None else str(judged.path),
        "worse": [row.key for row in judged.worse],
        "measures": [
            {
                "measure": row.key,
                "unit": LIMITS[row.key].unit,
                "baseline": row.before,
                "now": row.now,
                "difference": None if row.difference in (None, float("inf")) else row.difference,
                "allowed": row.allowed,
                "state": row.state,
            }
            for row in judged.rows
        ]
        or [{"measure": key, "now": value} for key, value in judged.run.measures.items()],
        "written": None if judged.written is None else str(judged.written),
    }


def format_baseline(judged: Judged) -> str:
    """Format a run beside its baseline for a terminal."""
    return "\n".join(escape_controls(line) for line in _format_lines(judged))


def _format_lines(judged: Judged) -> Iterator[str]:
    run = judged.run
    yield f"{run.name} ({run.source}), {format_counted(run.ranks, 'rank')}"
    if judged.against is not None:
        head = ("measure", "baseline", "now", "difference", "allowed", "")
        cells = [head, *(_format_cells(row) for row in judged.rows)]
        yield from (f"  {line}" for line in align_columns(cells, (24, 12, 12, 14, 14, 12)))
        worse = judged.worse
        words = [
            f"{LIMITS[row.key].title} {'is not there any more' if row.difference is None else _format_difference(row)}"
            for row in worse
        ]
        yield (
            f"Worse than {judged.path}: {'; '.join(words)}."
            if worse
            else f"Nothing is worse than {judged.path} allows."
        )
    else:
        yield from (
            f"  {LIMITS[key].title:24}{_format_value(key, value):>12}" for key, value in run.measures.items()
        )
    if judged.written is not None:
        yield f"written: {judged.written}"


def _format_cells(row: Row) -> tuple[str, ...]:
    limit = LIMITS[row.key]
    unit = {"%": " %", "points": " points", "ratio": "", "findings": ""}[limit.unit]
    return (
        limit.title,
        _format_value(row.key, row.before),
        _format_value(row.key, row.now),
        "–" if row.difference is None else _format_difference(row),
        f"+{row.allowed:g}{unit}",
        row.state if row.state != "missing" else "gone",
    )


def _format_difference(row: Row) -> str:
    assert row.difference is not None, "only what has one is written"
    unit = LIMITS[row.key].unit
    if unit == "findings":
        return f"{row.difference:+.0f}"
    return f"{row.difference:+.2f}{'' if unit == 'ratio' else f' {unit}'}"


def _format_value(key: str, value: float | None) -> str:
    if value is None:
        return "–"
    unit = LIMITS[key].unit
    if unit == "%":
        return format_ns(value)
    if unit == "points":
        return f"{100 * value:.2f} %"
    return f"{value:.3f}" if unit == "ratio" else f"{value:.0f}"
