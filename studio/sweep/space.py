"""The settings that a sweep varies, and the points they span.

A setting is written KEY=VALUES as for `--set`, VALUES a list whose items are separated by commas: single values, lists in
brackets that are one value ([450,50]), and ranges: `a..b` in steps of 1, `a..b:step`, `a..b*factor` (logarithmic). Points
are numbered in the order of the grid; the last setting changes fastest.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from studio.errors import ConfigError
from studio.notebook import format_record
from studio.sim.fields import find_nearest
from studio.sim.models import MODELS
from studio.sim.network import COSTS
from studio.sim.parts import EXTENDED
from studio.sim.setting_edits import find_setting
from studio.sim.settings import SETTINGS
from studio.units import format_count

PRESET, NPUS, MODEL, REPLICAS = "preset", "npus", "model", "dp"
SPECIAL = {
    PRESET: "a system by name, or a system file",
    NPUS: "NPUs of the preset",
    MODEL: f"whose answers count: {', '.join(MODELS)}",
    REPLICAS: "data-parallel replicas the job is scaled to, as `scale` does",
}
"""Keys of a sweep that are no settings of a system's files."""
MOST_POINTS = 1_000_000
_RANGE = re.compile(r"(?P<first>[^.:*]+(?:\.\d+)?)\.\.(?P<last>[^:*]+)(?:(?P<how>[:*])(?P<step>.+))?")
_HOW = "a..b, a..b:step or a..b*factor, such as 100..800:100 or 1..64*2"


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting that is varied.

    Attributes:
        key: Its key, as `--set` takes it, or one of `SPECIAL`.
        values: Its values, as `--set` takes them.
    """

    key: str
    values: tuple[str, ...]

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The values as numbers; None where any is none."""
        try:
            return tuple(float(value) for value in self.values)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Space:
    """Every combination of the values of some settings.

    Attributes:
        axes: The settings.

    Example:
        >>> space = parse_space(["bandwidth[1]=25,50", "preferred-dataset-splits=1..4*2"])
        >>> space.size, space.point(4)
        (6, {'bandwidth[1]': '50', 'preferred-dataset-splits': '2'})
    """

    axes: tuple[Axis, ...]

    __repr__ = format_record

    @property
    def size(self) -> int:
        """How many points there are; it may be beyond what `len` returns."""
        return math.prod(len(axis.values) for axis in self.axes)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are set."""
        return tuple(axis.key for axis in self.axes)

    @property
    def varied(self) -> tuple[str, ...]:
        """The keys with several values; all where none has."""
        return tuple(axis.key for axis in self.axes if len(axis.values) > 1) or self.keys

    def point(self, index: int) -> dict[str, str]:
        """Return the values at a point of the grid, by key."""
        values: dict[str, str] = {}
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis.values))
            values[axis.key] = axis.values[place]
        return {key: values[key] for key in self.keys}

    def index(self, places: Sequence[int]) -> int:
        """Return the number of the point at these places of the axes."""
        number = 0
        for axis, place in zip(self.axes, places, strict=True):
            number = number * len(axis.values) + place
        return number

    def sample(self, count: int, seed: int) -> list[int]:
        """Return so many different points of the grid, drawn with a seed, in the order of their numbers."""
        if count >= self.size:
            return list(range(self.size))
        # Drawn one by one: the grid may be larger than any range that can be sampled.
        drawn, dice = set[int](), random.Random(seed)  # noqa: S311 (no secret)
        while len(drawn) < count:
            drawn.add(dice.randrange(self.size))
        return sorted(drawn)


def parse_space(settings: Sequence[str]) -> Space:
    """Return the space that KEY=VALUES span.

    Raises:
        ConfigError: A setting is malformed, unknown (names the nearest), given twice, or has no values.
    """
    axes: dict[str, Axis] = {}
    for text in settings:
        key, sign, values = text.partition("=")
        key = key.strip()
        if not sign or not key:
            raise ConfigError(
                f"--set {text!r} is no setting; allowed: KEY=VALUES",
                hint=f"For example bandwidth[1]=25,50,100, or a range: {_HOW}.",
            )
        _refuse_unknown(key)
        if key in axes:
            raise ConfigError(
                f"--set {key!r} is given twice; allowed: once, with all values",
                hint=f"Write {key}=a,b,c.",
            )
        axes[key] = Axis(key, _parse_values(key, values))
    return Space(tuple(axes.values()))


def refuse_many(count: int) -> None:
    """Raise a ConfigError for more points than a sweep may have."""
    if count > MOST_POINTS:
        raise ConfigError(
            f"the settings span {format_count(count)} points; allowed: up to {format_count(MOST_POINTS)}",
            hint="Take fewer values or longer steps, or draw some of them (--random N).",
        )


def _refuse_unknown(key: str) -> None:
    name = key.partition("[")[0].strip()
    if name in SPECIAL or name.partition(".")[0] == COSTS:
        return
    try:
        find_setting(name)
    except ConfigError as error:
        known = [*SPECIAL, *(setting.path for setting in SETTINGS)]
        near = find_nearest(name.removeprefix(f"{EXTENDED}."), known)
        raise ConfigError(
            error.message, hint=f"The nearest known key is {near!r}." if near else error.hint
        ) from None


def _parse_values(key: str, text: str) -> tuple[str, ...]:
    values: list[str] = []
    items = _split(text)
    if "" in items and any(items):
        raise ConfigError(
            f"--set {key}={text}: a value is empty; allowed: one between any two commas",
            hint="Take the comma out that has no value.",
        )
    for item in filter(None, items):
        values += _expand_range(key, item) if ".." in item and not item.startswith("[") else [item]
    distinct = tuple(dict.fromkeys(values))
    if not distinct:
        raise ConfigError(
            f"--set {key}={text}: there are no values; allowed: one or more",
            hint=f"Values are separated by commas; a range is {_HOW}.",
        )
    return distinct


def _split(text: str) -> list[str]:
    """Return the items between commas that stand in no brackets."""
    items, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            items.append(text[begin:place])
            begin = place + 1
    return [item.strip() for item in (*items, text[begin:])]


def _expand_range(key: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    try:
        first, last, step = (
            Decimal(match[name] or "1") if match else Decimal("nan") for name in ("first", "last", "step")
        )
    except InvalidOperation:
        match = None
    if match is None or not all(value.is_finite() for value in (first, last, step)):
        # Paths of system files may hold two dots.
        if key == PRESET:
            return [text]
        raise ConfigError(f"--set {key}: {text!r} is no range; allowed: {_HOW}")
    multiplies = match["how"] == "*"
    if step <= 0 or (multiplies and (step <= 1 or first <= 0)):
        allowed = "a factor above 1, from a first value above 0" if multiplies else "a step above 0"
        raise ConfigError(f"--set {key}: the range {text!r} never ends; allowed: {allowed}")
    if last < first:
        raise ConfigError(
            f"--set {key}: the range {text!r} is empty; allowed: a last value of {match['first'].strip()} and above",
            hint="Ranges go upwards.",
        )
    count = math.log(last / first) / math.log(step) if multiplies else (last - first) / step
    refuse_many(int(count) + 1)
    values, value = [], first
    while value <= last:
        values.append(_format_plain(value))
        value = value * step if multiplies else value + step
    return values


def _format_plain(value: Decimal) -> str:
    """Return a number as it would be typed, with at most twelve digits."""
    number = float(value)
    return str(int(value)) if value == value.to_integral_value() and abs(number) < 1e15 else f"{number:.12g}"
