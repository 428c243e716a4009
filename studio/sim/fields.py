"""Read the keys of a configuration file; errors name file, key, value and allowed values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from studio.errors import ConfigError
from studio.sim.settings import Setting
from studio.sim.values import describe_allowed_number, describe_allowed_whole, is_finite
from studio.trace import Finding

T = TypeVar("T")
_SHOWN = 80


def find_nearest(text: str, known: Iterable[str]) -> str:
    """Return the known name nearest to `text`, ignoring case; empty if none is near.

    Example:
        >>> find_nearest("switch", ["Ring", "Switch"]), find_nearest("prefered-dataset-split", ["preferred-dataset-splits"])
        ('Switch', 'preferred-dataset-splits')
        >>> find_nearest("mesh", ["Ring", "Switch"])
        ''
    """
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(text.lower(), lowered, n=1)
    return lowered[near[0]] if near else ""


def show_value(value: object) -> str:
    """Format a value for messages, shortened if long."""
    try:
        text = "null" if value is None else repr(value)
    except RecursionError:
        return "a value nested too deeply"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


class Fields:
    """A table of a configuration file, whose keys are read one by one.

    Args:
        name: The file, or whatever messages call the table.
        table: Its keys and values.
        texts_are_numbers: Whether "5" stands for 5, as in YAML and on a command line; not so in JSON.
        named: Where single keys come from, if not from `name`.
    """

    def __init__(
        self,
        name: str,
        table: Mapping[str, object],
        *,
        texts_are_numbers: bool = False,
        named: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.table = table
        self._texts_are_numbers = texts_are_numbers
        self._named = named or {}

    def __contains__(self, key: str) -> bool:
        return key in self.table

    def place(self, key: str) -> str:
        """Return where a key comes from, as messages call it."""
        return self._named.get(key.partition("[")[0], self.name)

    def error(self, key: str, value: object, allowed: str, hint: str = "") -> ConfigError:
        """Return the error for a value that is not allowed."""
        message = f"{self.place(key)}: {key} is {show_value(value)}; allowed: {allowed}"
        return ConfigError(message, hint=hint, key=key, allowed=allowed)

    def build_missing_error(self, key: str, allowed: str, hint: str = "") -> ConfigError:
        """Return the error for a missing key; suggests a misspelt one."""
        meant = find_nearest(key, self.table)
        if meant and meant != key:
            hint = f"It has {meant!r}; was {key!r} meant?"
        message = f"{self.name}: {key} is missing; allowed: {allowed}"
        return ConfigError(message, hint=hint, key=key, allowed=allowed)

    def findings(self, known: Iterable[str], ignored: Mapping[str, str]) -> list[Finding]:
        """Return findings about keys that were not read: unknown ones, and `ignored` ones with the reason."""
        names, findings = [*known, *ignored], []
        for key in map(str, self.table):
            place = self._named.get(key, self.name)
            if key in ignored:
                message = f"{place}: {key} has no effect: {ignored[key]}."
                findings.append(Finding("info", "key-without-effect", message, file=self.name))
            elif key not in names:
                near = find_nearest(key, names)
                hint = f"The nearest known key is {near!r}." if near else f"Known keys: {', '.join(names)}."
                message = f"{place}: {key} is no key of this file and was left out."
                findings.append(Finding("warning", "key-unknown", message, hint, file=self.name))
        return findings

    def read(self, setting: Setting) -> Any:
        """Return the value of a setting as the configuration has it, its default where the key is not there.

        Raises:
            ConfigError: The value is not allowed, or the key has to be there.
        """
        if setting.key not in self.table:
            if setting.required:
                raise self.build_missing_error(setting.key, setting.allowed_words())
            return setting.default
        return self.read_in(setting, setting.key, self.table[setting.key])

    def read_in(self, setting: Setting, key: str, value: object, unit: str = "", hint: str = "") -> Any:
        """Return `value`, found at `key`, as a value of a setting; `unit` stands for the setting's own."""
        if setting.type == "whole":
            return self.whole_in(key, value, int(setting.least or 0), int(setting.most or 0), hint)
        if setting.type == "flag":
            return self.flag_in(key, value)
        if setting.type == "choice":
            return self.choice_in(key, value, setting.values)
        allowed = setting.allowed_words(unit)
        number = self.number_in(
            key, value, allowed, least=setting.least, above=setting.above, most=setting.limit
        )
        return int(number) if setting.type == "truncated" else number

    def number_in(
        self,
        key: str,
        value: object,
        allowed: str = "",
        *,
        least: float | None = None,
        above: float | None = None,
        most: float | None = None,
    ) -> float:
        """Return `value`, found at `key`, as a number."""
        allowed = allowed or describe_allowed_number(least, above, most)
        number = self._as_number(value)
        if number is None or not is_finite(number):
            hint = "A placeholder was left in the file: put a number there." if _is_placeholder(value) else ""
            raise self.error(key, value, allowed, hint)
        too_low = (least is not None and number < least) or (above is not None and number <= above)
        if too_low or (most is not None and number > most):
            raise self.error(key, value, allowed)
        return number

    def whole_in(self, key: str, value: object, least: int, most: int, hint: str = "") -> int:
        """Return `value`, found at `key`, as a whole number."""
        number = self._as_number(value)
        if number is None or number != number // 1 or not least <= number <= most:
            raise self.error(key, value, describe_allowed_whole(least, most), hint)
        return int(number)

    def flag_in(self, key: str, written: object) -> bool:
        """Return `written`, the value of `key`, as a boolean; 1 and 0 count too."""
        value = written
        known: dict[object, bool] = {True: True, False: False}
        if self._texts_are_numbers:
            known |= {"true": True, "false": False, "1": True, "0": False}
            value = value.lower() if isinstance(value, str) else value
        if not isinstance(value, str | bool | int | float) or value not in known:
            raise self.error(key, written, "true, false, 1, 0")
        return known[value]

    def choice_in(self, key: str, value: object, allowed: Mapping[str, T]) -> T:
        """Look up the choice `value`, given at `key`."""
        if isinstance(value, str) and value in allowed:
            return allowed[value]
        near = find_nearest(value, allowed) if isinstance(value, str) else ""
        hint = f"The nearest is {near!r}." if near else ""
        raise self.error(key, value, ", ".join(allowed), hint)

    def text(self, key: str) -> str:
        """Return the text at `key`, or the only item of a list."""
        value = self.table[key]
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, str) or not value:
            raise self.error(key, self.table[key], "one text")
        return value

    def items(self, key: str) -> list[object]:
        """Return the non-empty list at `key`."""
        if key not in self.table:
            raise self.build_missing_error(key, "a list with one entry per dimension")
        value = self.table[key]
        if not isinstance(value, list | tuple):
            raise self.error(
                key, value, "a list with one entry per dimension", f"For one dimension write [ {value} ]."
            )
        if not value:
            raise self.error(key, value, "a list with one entry per dimension")
        return list(value)

    def _as_number(self, value: object) -> float | None:
        """Convert to a number; None if it is not one. Integers stay exact."""
        if isinstance(value, str) and self._texts_are_numbers:
            try:
                return float(value) if not value.lstrip("+-").isdecimal() else int(value)
            except ValueError:
                return None
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_placeholder(value: object) -> bool:
    return value is None or (
        isinstance(value, str) and value.strip().lower() in {"tbd", "todo", "?", "n/a", "xxx", ""}
    )
