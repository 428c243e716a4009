"""Everything that is wrong with a configuration at once, each with the key it is wrong at.

`studio.sim.parts.imported` stops at the first value that is not allowed, as a command should. A form shows all of
them: here the value refused is replaced by one that is allowed, and the tables are read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from studio.errors import ConfigError
from studio.sim.config import SystemConfig
from studio.sim.network import EXTENDED_NETWORK_KEYS
from studio.sim.parts import MEMORY_KEYS, OPTION_KEYS, Parts, Table, imported
from studio.trace import Finding

_AT_MOST = 60
_ITEM = re.compile(r"(?P<key>[^\[]+)\[(?P<at>[^\]]+)\]")
_LISTED: Mapping[str, object] = {
    "topology": "Ring",
    "npus_count": 2,
    "bandwidth": 1,
    "latency": 0,
    "efficiency": 1,
    "message-overhead": 0,
}
_NEEDED: Mapping[str, object] = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 1,
    "peak-perf": 1,
    "local-mem-bw": 1,
    "memory-type": "NO_MEMORY_EXPANSION",
    "remote-mem-latency": 0,
    "remote-mem-bw": 1,
    "num-npus-per-node": 1,
}
_PLACES = (("congestion is", "congestion"), ("topology has", "npus_count"), ("local_memory", "local-mem-bw"))
"""Where refusals belong that concern the whole configuration, by how they begin."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What became of a configuration's tables.

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


def examined(parts: Parts) -> Examined:
    """Read the tables of a configuration to their end, whatever is refused on the way.

    Example:
        >>> network = {"topology": ["Ring"], "npus_count": [1], "bandwidth": ["tbd"], "latency": [500]}
        >>> system = {"scheduling-policy": "LIFO", "collective-optimization": "best", "preferred-dataset-splits": 4}
        >>> list(examined(Parts(network, system)).problems)
        ['bandwidth[0]', 'npus_count[0]', 'collective-optimization']
    """
    problems: dict[str, ConfigError] = {}
    for _ in range(_AT_MOST):
        try:
            found = imported(parts)
        except ConfigError as error:
            key = error.key or next((key for start, key in _PLACES if error.message.startswith(start)), "")
            known = key in problems
            problems.setdefault(key, error)
            if not key or known:
                return Examined(None, (), problems)
            parts = _mended(parts, key)
        else:
            return Examined(found.config, found.findings, problems)
    return Examined(None, (), problems)


def _mended(parts: Parts, key: str) -> Parts:
    """Return the tables with an allowed value at `key`."""
    if key == "congestion":
        return replace(parts, congestion="unaware")
    match = _ITEM.fullmatch(key)
    name = match["key"] if match else key
    if name in _LISTED:
        return replace(parts, network=_mended_network(parts.network, name, match["at"] if match else None))
    for section, keys in (
        ("network", EXTENDED_NETWORK_KEYS),
        ("options", OPTION_KEYS),
        ("memory", MEMORY_KEYS),
    ):
        if name in keys:
            table = dict(getattr(parts, section) or {})
            return replace(parts, **{section: _set_or_drop(table, name)})  # type: ignore[arg-type]  # one of the tables
    if parts.groups is not None and name in parts.groups and name not in parts.system:
        return replace(parts, groups={key: ranks for key, ranks in parts.groups.items() if key != name})
    system = dict(parts.system)
    nested = system.get("extended")
    if isinstance(nested, Mapping) and name in nested:
        system["extended"] = {key: value for key, value in nested.items() if key != name}
        return replace(parts, system=system)
    return replace(parts, system=_mended_system(system, name, match["at"] if match else None))


def _mended_network(network: Table, name: str, at: str | None) -> Table:
    kinds = network.get("topology")
    count = len(kinds) if isinstance(kinds, list | tuple) and kinds else 1
    values = network.get(name)
    if at is None or not isinstance(values, list | tuple):
        return {**network, name: [_LISTED[name]] * (1 if name == "topology" else count)}
    return {
        **network,
        name: [_LISTED[name] if index == int(at) else value for index, value in enumerate(values)],
    }


def _mended_system(system: dict[str, object], name: str, at: str | None) -> Table:
    values = system.get(name)
    if at is not None and isinstance(values, list | tuple):
        return {
            **system,
            name: ["ring" if index == int(at) else value for index, value in enumerate(values)],
        }
    return _set_or_drop(system, name)


def _set_or_drop(table: dict[str, object], name: str) -> dict[str, object]:
    if name in _NEEDED:
        return {**table, name: _NEEDED[name]}
    table.pop(name, None)
    return table
