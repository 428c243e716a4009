"""Collect all errors of a configuration, by key.

`studio.sim.parts.imported` stops at the first value that is not allowed, as a command should. A form shows all of
them: here the value refused is replaced by one that is allowed, and the tables are read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from studio.errors import ConfigError
from studio.sim.config import SystemConfig
from studio.sim.parts import Parts, get_table, interpret
from studio.sim.setting_edits import with_value
from studio.sim.settings import BY_KEY, Setting
from studio.trace import Finding

_AT_MOST = 60
_ITEM = re.compile(r"(?P<key>[^\[]+)\[(?P<at>[^\]]+)\]")
_PLACES = (("congestion is", "congestion"), ("topology has", "npus_count"), ("local_memory", "local-mem-bw"))
"""Where refusals belong that concern the whole configuration, by how they begin."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A configuration's findings and errors.

    Attributes:
        config: The configuration; where values were refused, with others in their place. None where the rest
            makes none either.
        findings: What reading it brought to light.
        problems: What was refused, by key; `""` for what concerns no single key. Empty where all is well.
    """

    config: SystemConfig | None
    findings: tuple[Finding, ...]
    problems: Mapping[str, ConfigError]

    @property
    def usable(self) -> SystemConfig | None:
        """The configuration if nothing was refused."""
        return None if self.problems else self.config


def examine_parts(parts: Parts) -> Examined:
    """Read the tables of a configuration and collect every error instead of stopping at the first.

    Example:
        >>> network = {"topology": ["Ring"], "npus_count": [0], "bandwidth": ["tbd"], "latency": [500]}
        >>> system = {"scheduling-policy": "LIFO", "collective-optimization": "best", "preferred-dataset-splits": 4}
        >>> list(examine_parts(Parts(network, system)).problems)
        ['npus_count[0]', 'bandwidth[0]', 'collective-optimization']
    """
    problems: dict[str, ConfigError] = {}
    for _ in range(_AT_MOST):
        try:
            result = interpret(parts)
        except ConfigError as error:
            key = error.key or next((key for start, key in _PLACES if error.message.startswith(start)), "")
            known = key in problems
            problems.setdefault(key, error)
            if not key or known:
                return Examined(None, (), problems)
            parts = _replace_refused(parts, key)
        else:
            return Examined(result.config, result.findings, problems)
    return Examined(None, (), problems)


def _replace_refused(parts: Parts, key: str) -> Parts:
    """Replace a rejected value by an allowed one."""
    if key == "congestion":
        return replace(parts, congestion="unaware")
    match = _ITEM.fullmatch(key)
    name, index = (match["key"], match["at"]) if match else (key, None)
    setting = BY_KEY.get(name)
    if setting is None or (setting.file == "extended" and name not in get_table(parts, "extended")):
        groups = {group: ranks for group, ranks in (parts.groups or {}).items() if group != name}
        system = {key: value for key, value in parts.system.items() if key != name}
        return replace(parts, groups=None if parts.groups is None else groups, system=system)
    listed = setting.per_dimension or setting.type == "algorithms"
    if listed and (index is not None or setting.required):
        return with_value(parts, setting, _replace_entries(parts, setting, index))
    return with_value(parts, setting, setting.start)


def _replace_entries(parts: Parts, setting: Setting, place: str | None) -> list[object]:
    """Replace a rejected entry of a list, or all entries, by allowed ones."""
    kinds, values = (get_table(parts, setting.file).get(key) for key in ("topology", setting.key))
    entry = "ring" if setting.type == "algorithms" else setting.first
    if place is None or not isinstance(values, list | tuple):
        count = len(kinds) if isinstance(kinds, list | tuple) and setting.key != "topology" else 1
        return [entry] * max(count, 1)
    return [entry if index == int(place) else value for index, value in enumerate(values)]
