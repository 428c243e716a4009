"""The settings of a system as a flat table with units, and differences between systems."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from studio.sim.models import get_model
from studio.sim.network import UNIT
from studio.sim.parts import EXTENDED, OPTION_IGNORED, PATH_OPTIONS, SYSTEM_IGNORED, Parts
from studio.sim.settings import BY_KEY, MAX_NUMBER, NETWORK_UNIT
from studio.units import format_bytes, format_count, format_counted, format_ns

_WITHOUT_EFFECT = {*SYSTEM_IGNORED, *OPTION_IGNORED, *PATH_OPTIONS}
_LONGEST = 60
_BASE = {"GB/s": 10**9, "GiB/s": 2**30}
"""Bytes per second of the units in which rates are given."""
_NAMES = {"ns": "ns", "ns/B": "ns_per_byte", "TFLOP/s": "tflop_per_s", "bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class SettingValue:
    """The value of one setting.

    Attributes:
        value: As plain data, whole; several values are those of dimensions.
        unit: What numbers in it count: "ns", "ns/B", "TFLOP/s", "GB/s", "GiB/s", "bytes", "things"; "" for no unit.
        words: What it is called where that is not its value.
    """

    value: object
    unit: str = ""
    words: str = ""

    @property
    def base(self) -> object:
        """The value with rates in bytes per nanosecond, for comparison and JSON."""
        factor = _BASE.get(self.unit)
        if factor is None:
            return self.value
        scaled = [item * factor / 10**9 if _is_number(item) else item for item in _as_list(self.value)]
        return scaled if isinstance(self.value, list | tuple) else scaled[0]

    @property
    def text(self) -> str:
        """The value with its unit, short enough for a table."""
        text = self.words or self._write()
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

    @property
    def exact(self) -> str:
        """The exact value with its unit; rates also in bytes per nanosecond."""
        if self.words:
            return json.dumps(self.value) if self.unit == "" else f"{self.value} {self.unit}"
        digits = " × ".join(map(_format_full_number, _as_list(self.value)))
        if self.unit in _BASE:
            return f"{digits} {self.unit} = {' × '.join(map(_format_full_number, _as_list(self.base)))} bytes per ns"
        return f"{digits} {self.unit}".rstrip() if self.unit != "things" else digits

    def _write(self) -> str:
        values = _as_list(self.value)
        numbers = [item for item in values if _is_number(item)]
        if len(numbers) == len(values) and self.unit in _FORMATS:
            return " × ".join(map(_FORMATS[self.unit], numbers))
        if isinstance(self.value, Mapping):
            return ", ".join(f"{key}: {_describe_item(item)}" for key, item in self.value.items())
        digits = " × ".join(map(_format_short_number, values))
        return f"{digits} {self.unit}" if self.unit and numbers else digits


def _describe_item(item: object) -> str:
    """Return a value within a setting; of a table how many values it has, which are there when the exact value is asked for."""
    return format_counted(len(item), "value") if isinstance(item, Mapping) else str(item)


def _format_whole(number: float) -> str:
    return format_count(int(number))


_FORMATS: dict[str, Callable[[float], str]] = {
    "ns": format_ns,
    "bytes": format_bytes,
    "things": _format_whole,
}


def describe_differences(tables: Parts, base: Parts) -> list[str]:
    """Describe the settings that differ from those of another system.

    Example:
        >>> one, other = Parts({"bandwidth": [50]}, {"L": 1}), Parts({"bandwidth": [100]}, {"L": 1, "boost-mode": 1})
        >>> describe_differences(other, one), describe_differences(one, one)
        (['bandwidth 100 GiB/s'], [])
    """
    own, others = collect_settings(tables), collect_settings(base)
    texts = []
    for key in dict.fromkeys((*own, *others)):
        pair = own.get(key), others.get(key)
        if differ(pair):
            texts.append(f"{key} {describe_values(pair)[0][0] or 'not set'}")
    return texts


def differ(values: Sequence[SettingValue | None]) -> bool:
    """Whether a setting differs between systems, by exact values; `None` means not set."""
    bases = [None if value is None else [value.base] for value in values]
    return any(base != bases[0] for base in bases[1:])


def describe_values(values: Sequence[SettingValue | None]) -> list[tuple[str, str]]:
    """Format a setting of several systems, rounded and exact; values that would look equal are shown exactly."""
    texts = [("", "") if value is None else (value.text, value.exact) for value in values]
    if differ(values) and len({text for text, _ in texts}) < 2:
        return [(exact, exact) for _, exact in texts]
    return texts


def collect_settings(tables: Parts) -> dict[str, SettingValue]:
    """Return every setting of a system, keys without effect left out.

    Example:
        >>> found = collect_settings(Parts({"topology": ["Ring", "Switch"], "latency": [500, 2000]}, {"boost-mode": 1}))
        >>> {key: one.text for key, one in found.items()}
        {'topology': 'Ring × Switch', 'latency': '500 ns × 2.00 µs', 'model': 'astra-sim', 'mode': 'compatible', 'congestion': 'unaware'}
    """
    nested = tables.system.get(EXTENDED)
    parts: list[Mapping[str, object]] = [tables.network, tables.system, tables.memory or {}, tables.options]
    values = {key: value for part in parts for key, value in part.items() if key != EXTENDED}
    values["model"] = get_model(tables)
    values["mode"] = "extended" if EXTENDED in tables.system else "compatible"
    values["congestion"] = tables.congestion
    if isinstance(nested, Mapping):
        values |= nested
    rate = rate_of(tables)
    settings = {
        key: SettingValue(value, _get_unit(key, rate))
        for key, value in values.items()
        if key not in _WITHOUT_EFFECT
    }
    if tables.groups:
        settings["comm groups"] = SettingValue(dict(tables.groups), words=f"{len(tables.groups)} given")
    return settings


def rate_of(tables: Parts) -> str:
    """Return what bandwidths of the network of a system are counted in."""
    return "GB/s" if tables.network.get(UNIT) == "GB/s" else NETWORK_UNIT


def convert_settings(settings: Mapping[str, SettingValue]) -> dict[str, object]:
    """Return settings as plain data, numbers with the unit in the name.

    Example:
        >>> convert_settings({"bandwidth": SettingValue([50], "GB/s"), "L": SettingValue(3, "ns"), "nodes": SettingValue(7, "things")})
        {'bandwidth_bytes_per_ns': [50.0], 'L_ns': 3, 'nodes': 7}
    """
    return {format_plain_name(key, value): value.base for key, value in settings.items()}


def format_plain_name(key: str, setting: SettingValue) -> str:
    """Return a setting's name in plain data, with the unit."""
    unit = "bytes_per_ns" if setting.unit in _BASE else _NAMES.get(setting.unit, "")
    name = key.replace(" ", "_")
    return f"{name}_{unit}" if unit and not name.endswith(unit) else name


def get_unit(key: str, rate: str) -> str:
    """Return the unit of the numbers of a setting, "" where there is none.

    Args:
        key: The setting; an index in brackets does not count.
        rate: What bandwidths of the network are counted in.

    Example:
        >>> get_unit("bandwidth[0]", "GB/s"), get_unit("latency", "GB/s"), get_unit("topology", "GB/s")
        ('GB/s', 'ns', '')
    """
    return _get_unit(key.partition("[")[0], rate)


def _get_unit(key: str, rate: str) -> str:
    row = BY_KEY.get(key)
    return "" if row is None else rate if row.unit == NETWORK_UNIT else row.unit


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format_short_number(value: object) -> str:
    if isinstance(value, float) or (_is_number(value) and abs(value) > MAX_NUMBER):
        return f"{value:.6g}"
    return str(value)


def _format_full_number(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
