"""Read the manifest of a suite: jobs, systems, and what each case has to attain; every mistake named with its line."""

from __future__ import annotations

import glob
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from studio.commands.base.options import suggest
from studio.errors import ConfigError
from studio.files import read_file
from studio.sim.models import MODELS
from studio.units import parse_ns

_CASES_AT_MOST: Final = 10_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_SHARE: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*%")
Keys = tuple[str | int, ...]
"""The keys that lead to a value."""


@dataclass(frozen=True, slots=True)
class SuiteJob:
    """A job of a suite.

    Attributes:
        name: Its key.
        paths: Its folder or files, the prefix of its files, or the id of a job in the workspace.
        npus, passes: What a text workload leaves open.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    name: str
    paths: tuple[str, ...]
    npus: int | None = None
    passes: int | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SuiteSystem:
    """A system of a suite, as options of `simulate`.

    Attributes:
        name: Its key.
        preset: A preset or a system file.
        files: ASTRA-sim's files, by the names of their options: system, network, comm_groups, remote_memory.
        npus: Of the preset; None for as many as the job has ranks.
        model: Whose answers; None for the default.
        gpu: What recorded devices are recomputed for; None keeps them.
        settings: KEY=VALUE each.
        replay: Whether recorded times count, of communication too.
    """

    name: str
    preset: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    npus: int | None = None
    model: str | None = None
    gpu: str | None = None
    settings: tuple[str, ...] = ()
    replay: bool = False


@dataclass(frozen=True, slots=True)
class SuiteLimit:
    """What cases have to attain.

    Attributes:
        job, system: Which cases; None for all.
        most: The most of each measure: `finish` and `step` in nanoseconds, `exposed` and `idle` as shares, `imbalance`.
        least_speed: The least speed relative to the reference; None for any.
        line: Where it stands.
    """

    job: str | None
    system: str | None
    most: Mapping[str, float]
    least_speed: float | None = None
    line: int = 0

    def is_for(self, job: str, system: str) -> bool:
        """Return whether a case has to attain it."""
        return self.job in (None, job) and self.system in (None, system)


@dataclass(frozen=True, slots=True)
class Suite:
    """A manifest.

    Attributes:
        name: What the suite is called.
        reference: The system that others are relative to.
        jobs, systems: In the order of the file.
        limits: What cases have to attain.
    """

    name: str
    reference: str
    jobs: tuple[SuiteJob, ...]
    systems: tuple[SuiteSystem, ...]
    limits: tuple[SuiteLimit, ...] = ()

    @property
    def cases(self) -> list[tuple[SuiteJob, SuiteSystem]]:
        """Every job on every system, a job's one after the other."""
        return [(job, system) for job in self.jobs for system in self.systems]


_TOP = ("name", "reference", "jobs", "systems", "limits")
_JOB = ("path", "npus", "passes", "ranks")
_FILES = ("system", "network", "comm-groups", "remote-memory")
_SYSTEM = ("preset", *_FILES, "npus", "model", "gpu", "set", "replay")
_TIMES, _SHARES = ("finish", "step"), ("exposed", "idle")
_LIMIT = ("job", "system", *_TIMES, *_SHARES, "imbalance", "speed")


def read_suite(path: Path) -> Suite:
    """Read a manifest.

    Raises:
        ConfigError: It is no TOML, or a key or a value is not allowed; names the line.
        OSError: It cannot be read.
    """
    try:
        text = read_file(path).decode("utf-8")
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a suite: {error}", hint="docs/fleet.md describes suites.") from error
    return _Reader(path, _Lines(text)).suite(given)


class _Lines:
    """Where keys stand in a TOML file, which the standard library's reader does not tell."""

    def __init__(self, text: str) -> None:
        self._known: dict[Keys, int] = {}
        table: Keys = ()
        counts: dict[Keys, int] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.strip()
            if words.startswith("["):
                several = words.startswith("[[")
                table = self._parse_path(words)
                if several:
                    counts[table] = counts.get(table, -1) + 1
                    table = (*table, counts[table])
                self._known.setdefault(table, number)
                for end in range(1, len(table)):
                    self._known.setdefault(table[:end], number)
            elif "=" in words and not words.startswith("#"):
                key = (*table, *self._parse_path(words.partition("=")[0]))
                for end in range(len(table) + 1, len(key) + 1):
                    self._known.setdefault(key[:end], number)

    @staticmethod
    def _parse_path(words: str) -> Keys:
        """Return the parts of a dotted key, or of the head of a table."""
        head = words.split("#", maxsplit=1)[0].strip().strip("[]").strip()
        try:
            value: Any = tomllib.loads(f"{head} = 0")
        except (tomllib.TOMLDecodeError, RecursionError):
            return ()
        path: list[str | int] = []
        while isinstance(value, dict):
            [(key, value)] = value.items()
            path.append(key)
        return tuple(path)

    def of(self, path: Keys) -> int:
        """Return the line of a key, or of the innermost table around it that is known."""
        while path and path not in self._known:
            path = path[:-1]
        return self._known.get(path, 1)


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path
    lines: _Lines

    def suite(self, given: Mapping[str, Any]) -> Suite:
        self._check_keys(given, (), _TOP)
        jobs = tuple(self._read_job(name, table) for name, table in self._read_tables(given, "jobs"))
        systems = tuple(self._read_system(name, table) for name, table in self._read_tables(given, "systems"))
        if len(jobs) * len(systems) > _CASES_AT_MOST:
            raise self._build_error(
                (), f"{len(jobs)} jobs on {len(systems)} systems; allowed: {_CASES_AT_MOST:,} cases"
            )
        names = [system.name for system in systems]
        reference = self._read_text(given, (), "reference") or names[0]
        self._check_choice(reference, names, ("reference",))
        limits = given.get("limits", [])
        if not isinstance(limits, list) or not all(isinstance(limit, dict) for limit in limits):
            raise self._build_error(("limits",), "limits; allowed: tables that begin with [[limits]]")
        read = tuple(self._read_limit(place, limit, jobs, names) for place, limit in enumerate(limits))
        name = self._read_text(given, (), "name") or self.path.stem
        return Suite(name, reference, jobs, systems, read)

    def _read_job(self, name: str, table: Mapping[str, Any]) -> SuiteJob:
        at: Keys = ("jobs", name)
        self._check_keys(table, at, _JOB)
        paths = table.get("path")
        words = [paths] if isinstance(paths, str) else paths
        if (
            not isinstance(words, list)
            or not words
            or not all(isinstance(word, str) and word for word in words)
        ):
            raise self._build_error((*at, "path"), f"jobs.{name}.path; allowed: a path, or a list of paths")
        ranks = table.get("ranks", {})
        if not isinstance(ranks, dict) or not all(_is_whole(number, 0) for number in ranks.values()):
            raise self._build_error(
                (*at, "ranks"), f"jobs.{name}.ranks; allowed: file names with a number each"
            )
        whole = {key: self._read_whole(table, at, key) for key in ("npus", "passes")}
        return SuiteJob(
            name, tuple(self._resolve_path(word) for word in words), whole["npus"], whole["passes"], ranks
        )

    def _resolve_path(self, word: str) -> str:
        """Return a path from the folder of the suite; what does not lie there stays, for jobs of the workspace."""
        path = self.path.parent / word
        return str(path) if path.exists() or list(path.parent.glob(f"{glob.escape(path.name)}.*")) else word

    def _read_system(self, name: str, table: Mapping[str, Any]) -> SuiteSystem:
        at: Keys = ("systems", name)
        self._check_keys(table, at, _SYSTEM)
        preset, files = self._read_text(table, at, "preset"), {}
        if preset and preset.lower().endswith((".yml", ".yaml")):
            preset = str(self.path.parent / preset)
        for key in _FILES:
            if word := self._read_text(table, at, key):
                files[key.replace("-", "_")] = self.path.parent / word
                if not (self.path.parent / word).is_file():
                    raise self._build_error((*at, key), f"{key} {word!r}: there is no such file")
        model = self._read_text(table, at, "model")
        if model is not None:
            self._check_choice(model, MODELS, (*at, "model"))
        replay = table.get("replay", False)
        if not isinstance(replay, bool):
            raise self._build_error((*at, "replay"), f"replay is {replay!r}; allowed: true or false")
        npus, gpu = self._read_whole(table, at, "npus"), self._read_text(table, at, "gpu")
        return SuiteSystem(name, preset, files, npus, model, gpu, self._read_settings(table, at), replay)

    def _read_settings(self, table: Mapping[str, Any], at: Keys) -> tuple[str, ...]:
        settings = table.get("set", {})
        if not isinstance(settings, dict):
            raise self._build_error((*at, "set"), "set; allowed: a table, such as { latency = 500 }")
        texts = []
        for key, value in settings.items():
            items = value if isinstance(value, list) else [value]
            if not all(isinstance(item, str | int | float) for item in items):
                raise self._build_error(
                    (*at, "set", key), f"{key}; allowed: a number, a text, or a list of them"
                )
            words = [str(item).lower() if isinstance(item, bool) else str(item) for item in items]
            texts.append(f"{key}={'[' + ','.join(words) + ']' if isinstance(value, list) else words[0]}")
        return tuple(texts)

    def _read_limit(
        self, place: int, table: Mapping[str, Any], jobs: Sequence[SuiteJob], systems: Sequence[str]
    ) -> SuiteLimit:
        at: Keys = ("limits", place)
        self._check_keys(table, at, _LIMIT)
        job, system = self._read_text(table, at, "job"), self._read_text(table, at, "system")
        if job is not None:
            self._check_choice(job, [suite_job.name for suite_job in jobs], (*at, "job"))
        if system is not None:
            self._check_choice(system, systems, (*at, "system"))
        most: dict[str, float] = {}
        for key in (*_TIMES, *_SHARES):
            word = self._read_text(table, at, key)
            if word is not None:
                most[key] = self._parse_quantity(word, (*at, key), is_time=key in _TIMES)
        for key in ("imbalance", "speed"):
            value = table.get(key)
            if value is not None and (not _is_number(value) or value <= 0):
                raise self._build_error((*at, key), f"{key} is {value!r}; allowed: a number above 0")
        if "imbalance" in table:
            most["imbalance"] = float(table["imbalance"])
        speed = float(table["speed"]) if "speed" in table else None
        if not most and speed is None:
            raise self._build_error(at, f"the limit says nothing; allowed: {', '.join(_LIMIT[2:])}")
        return SuiteLimit(job, system, most, speed, self.lines.of(at))

    def _parse_quantity(self, word: str, at: Keys, *, is_time: bool) -> float:
        if is_time:
            try:
                return float(parse_ns(word))
            except ConfigError as error:
                raise self._build_error(at, f"{at[-1]} {error.message}") from error
        match = _SHARE.fullmatch(word.strip())
        if not match:
            raise self._build_error(
                at, f'{at[-1]} is {word!r}; allowed: a share of the finish, such as "20 %"'
            )
        return float(match[1]) / 100

    # -----------------------------------------------------------------------------------------------

    def _read_tables(self, given: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
        tables = given.get(key)
        if (
            not isinstance(tables, dict)
            or not tables
            or not all(isinstance(table, dict) for table in tables.values())
        ):
            raise self._build_error(
                (key,), f"there are no {key}; allowed: one table or more, such as [{key}.name]"
            )
        for name in tables:
            if not _NAME.fullmatch(name):
                allowed = "up to 80 letters, digits, dots, hyphens and underscores"
                raise self._build_error((key, name), f"the name {name[:80]!r}; allowed: {allowed}")
        return list(tables.items())

    def _check_keys(self, table: Mapping[str, Any], at: Keys, allowed: Sequence[str]) -> None:
        for key in table:
            if key not in allowed:
                hint = suggest(key, allowed)
                raise self._build_error(
                    (*at, key), f"unknown key {key[:80]!r}; allowed: {', '.join(allowed)}", hint
                )

    def _read_text(self, table: Mapping[str, Any], at: Keys, key: str) -> str | None:
        value = table.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self._build_error((*at, key), f"{key} is {value!r}; allowed: a text in quotes")
        return value

    def _read_whole(self, table: Mapping[str, Any], at: Keys, key: str) -> int | None:
        value = table.get(key)
        if value is not None and not _is_whole(value, 1):
            raise self._build_error((*at, key), f"{key} is {value!r}; allowed: a whole number of 1 or more")
        return value

    def _check_choice(self, word: str, allowed: Sequence[str], at: Keys) -> None:
        if word not in allowed:
            listed = ", ".join(allowed[:12]) + (", …" if len(allowed) > 12 else "")
            raise self._build_error(
                at, f"{at[-1]} is {word[:80]!r}; allowed: {listed}", suggest(word, allowed)
            )

    def _build_error(self, at: Keys, message: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{self.path}, line {self.lines.of(at)}: {message}", hint=hint)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value < float("inf")
