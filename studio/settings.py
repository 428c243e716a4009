"""The settings of a system as one flat list, and those in which systems differ."""

from __future__ import annotations

from collections.abc import Mapping

from studio.runs import Tables
from studio.sim.parts import EXTENDED, OPTION_IGNORED, PATH_OPTIONS, SYSTEM_IGNORED

_WITHOUT_EFFECT = {*SYSTEM_IGNORED, *OPTION_IGNORED, *PATH_OPTIONS}
_LONGEST = 60


def differences(tables: Tables, base: Tables) -> list[str]:
    """Return the settings of a system that are not those of another.

    Example:
        >>> one, other = Tables({"bandwidth": [50]}, {"L": 1}), Tables({"bandwidth": [100]}, {"L": 1, "boost-mode": 1})
        >>> differences(other, one), differences(one, one)
        (['bandwidth 100'], [])
    """
    mine, others = settings_of(tables), settings_of(base)
    keys = dict.fromkeys((*mine, *others))
    return [f"{key} {mine.get(key, 'not set')}" for key in keys if mine.get(key) != others.get(key)]


def settings_of(tables: Tables) -> dict[str, str]:
    """Return every setting of a system in words, keys without effect left out.

    Example:
        >>> settings_of(Tables({"topology": ["Ring", "Switch"]}, {"boost-mode": 1}))
        {'topology': 'Ring × Switch', 'mode': 'compatible', 'congestion': 'unaware'}
    """
    nested = tables.system.get(EXTENDED)
    parts: list[Mapping[str, object]] = [tables.network, tables.system, tables.memory or {}, tables.options]
    found = {key: _short(value) for part in parts for key, value in part.items() if key != EXTENDED}
    found["mode"] = "extended" if EXTENDED in tables.system else "compatible"
    found["congestion"] = tables.congestion
    if isinstance(nested, Mapping):
        found |= {key: _short(value) for key, value in nested.items()}
    if tables.groups:
        found["comm groups"] = f"{len(tables.groups)} given"
    return {key: value for key, value in found.items() if key not in _WITHOUT_EFFECT}


def _short(value: object) -> str:
    text = " × ".join(str(one) for one in value) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
