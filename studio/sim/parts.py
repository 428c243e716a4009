"""ASTRA-sim's configuration as tables, and their interpretation.

Sections 3 to 12 of the reference's behaviour give every key its meaning and default: a GB is 2^30 bytes
in the bandwidths of the network and 10^9 bytes everywhere else; the endpoint delay is scaled only where
it is written; a missing number of active chunks is 1. A missing number of splits, with which the
reference stops without a message, is taken to be 1 and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from studio.errors import ConfigError
from studio.notebook import format_record
from studio.sim.algorithms import ALGORITHM_NAMES, ALGORITHMS_ALLOWED
from studio.sim.config import Algorithm, Congestion, RemoteMemory, Roofline, SharedBus, SystemConfig
from studio.sim.extensions import Extensions
from studio.sim.fields import Fields, find_nearest, show_value
from studio.sim.kinds import CollectiveKind
from studio.sim.network import build_network_table, read_costs, read_network, simplify_number
from studio.sim.settings import (
    ALGORITHM_SETTINGS,
    BY_KEY,
    File,
    Setting,
    list_file_settings,
    list_held_settings,
)
from studio.sim.values import describe_allowed_number
from studio.trace import CommGroup, Finding, Trace
from studio.units import format_counted

Table = Mapping[str, object]
Mode = Literal["compatible", "extended"]

CUSTOM: Mapping[str, CollectiveKind] = {
    f"{setting.key}-custom": setting.attribute  # type: ignore[misc]  # the attribute names a collective
    for setting in ALGORITHM_SETTINGS
    if not setting.is_extended
}
"""Keys of algorithms given as traces."""
PER_NODE_CUSTOM = "per-node-custom-implementation"
EXTENDED = "extended"
"""The key of `system.json` that holds the settings of the extended mode; the reference does not read it."""
SYSTEM_KEYS = (*(setting.key for setting in list_file_settings("system")), *CUSTOM, PER_NODE_CUSTOM, EXTENDED)

_NOT_READ = (
    "the reference does not read it; chunks are started in order of arrival, dimensions in rising order"
)
_NO_TIME = "it changes no times"
_UNUSED = "the reference accepts it and does not use it"
SYSTEM_IGNORED: Table = MappingProxyType(
    {
        "boost-mode": "the reference does not read it",
        "intra-dimension-scheduling": _NOT_READ,
        "inter-dimension-scheduling": _NOT_READ,
        "trace-enabled": _NO_TIME,
        "track-local-mem": _NO_TIME,
        "local-mem-trace-filename": _NO_TIME,
    }
)
OPTION_IGNORED: Table = MappingProxyType(
    {
        "comm-scale": _UNUSED,
        "compute-scale": _UNUSED,
        "logging-folder": _NO_TIME,
        "logging-configuration": _NO_TIME,
    }
)
PATH_OPTIONS = (
    "workload-configuration",
    "system-configuration",
    "network-configuration",
    "comm-group-configuration",
    "remote-memory-configuration",
)


@dataclass(frozen=True, slots=True)
class Parts:
    """A configuration as ASTRA-sim's tables: one per file, and the command line.

    Attributes:
        network: `network.yml`.
        system: `system.json`.
        memory: `remote_memory.json`; None where there is none.
        groups: `comm_group.json`; None where there is none.
        options: Command-line options, without the leading dashes.
        congestion: Which of the reference's two programs.
        names: What messages call each table; and, by key, where a single value comes from.
    """

    network: Table
    system: Table
    memory: Table | None = None
    groups: Table | None = None
    options: Table = field(default_factory=dict)
    congestion: Congestion = "unaware"
    names: Mapping[str, str] = field(default_factory=dict)

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class CustomAlgorithms:
    """Algorithms given as traces: those of all collectives of a kind, and those of single nodes by id."""

    kinds: Mapping[CollectiveKind, Trace] = field(default_factory=dict)
    nodes: Mapping[int, Trace] = field(default_factory=dict)

    __repr__ = format_record


NO_CUSTOM = CustomAlgorithms()


@dataclass(frozen=True, slots=True)
class Imported:
    """A configuration, and findings about unknown keys and keys without effect."""

    config: SystemConfig
    findings: tuple[Finding, ...] = ()

    __repr__ = format_record


def interpret(parts: Parts, custom: CustomAlgorithms = NO_CUSTOM) -> Imported:
    """Interpret ASTRA-sim's tables as a configuration.

    Args:
        parts: The tables.
        custom: The traces of the algorithms that the tables only name.

    Raises:
        ConfigError: A value is not allowed; names the file, the key, the value and the values allowed.
    """
    findings: list[Finding] = []

    def build_fields(
        part: File, name: str, further: Sequence[str] = (), ignored: Table = MappingProxyType({})
    ) -> Fields:
        table = Fields(
            parts.names.get(part, name),
            get_table(parts, part),
            texts_are_numbers=part in ("network", "options"),
            named=parts.names,
        )
        known = (*(setting.key for setting in list_file_settings(part)), *further)
        findings.extend(table.findings(known, {key: str(why) for key, why in ignored.items()}))
        return table

    network = build_fields("network", "network.yml")
    system = build_fields("system", "system.json", (*CUSTOM, PER_NODE_CUSTOM, EXTENDED), SYSTEM_IGNORED)
    memory = build_fields("memory", "remote_memory.json")
    options = build_fields("options", "command line", PATH_OPTIONS, OPTION_IGNORED)
    topology, links = read_network(network, is_extended=is_extended(parts))
    extended = _read_extensions(parts, system, findings)
    read = {"system": system, "options": options, "memory": memory, "extended": extended}
    bus = system.read(BY_KEY["model-shared-bus"])
    config = SystemConfig(
        topology=topology,
        congestion=parts.congestion,
        algorithms=_read_algorithms(read, len(topology.dims), findings),
        roofline=_read_roofline(read),
        remote_memory=_read_remote_memory(read, topology.npus, findings)
        if parts.memory is not None
        else None,
        shared_bus=SharedBus(**_read_values(read, "SharedBus")) if bus else None,
        custom=custom.kinds,
        custom_nodes=custom.nodes,
        groups=_read_groups(parts, topology.npus, findings),
        links=links,
        costs=read_costs(network),
        extensions=_build_extensions(read, topology.npus) if is_extended(parts) else None,
        **_read_values(read, "SystemConfig"),
    )
    return Imported(config, tuple(_report_missing_splits(system, findings)))


def is_extended(parts: Parts) -> bool:
    """Whether a system is to be simulated in the extended mode."""
    return EXTENDED in parts.system


def _read_values(read: Mapping[str, Fields], name: str) -> dict[str, Any]:
    """Read the attributes of a configuration class from the files."""
    return {
        setting.attribute: read[setting.file].read(setting)
        for setting in list_held_settings(name)
        if setting.file in read
    }


def _read_extensions(parts: Parts, system: Fields, findings: list[Finding]) -> Fields:
    """Return the settings of the extended mode; empty in the compatible mode."""
    table = system.table.get(EXTENDED, {})
    if not isinstance(table, Mapping):
        raise system.error(EXTENDED, table, 'a table of settings, such as {"communication-slots": 2}')
    named = {
        key.removeprefix(f"{EXTENDED}."): place
        for key, place in parts.names.items()
        if key.startswith(f"{EXTENDED}.")
    }
    settings = Fields(
        f"{system.name}: {EXTENDED}", {str(key): value for key, value in table.items()}, named=named
    )
    findings.extend(settings.findings([setting.key for setting in list_file_settings("extended")], {}))
    return settings


def _build_extensions(read: Mapping[str, Fields], npus: int) -> Extensions:
    table = read["extended"]
    values: dict[str, Any] = {
        setting.attribute: _read_speeds(table, setting, npus)
        if setting.type == "speeds"
        else table.read(setting)
        for setting in list_held_settings("Extensions")
    }
    return Extensions(**values)


def _read_speeds(table: Fields, setting: Setting, npus: int) -> Mapping[int, float] | None:
    key = setting.key
    if key not in table:
        return None
    speeds = table.table[key]
    if not isinstance(speeds, Mapping):
        raise table.error(key, speeds, 'a table from NPU to speed, such as {"3": 0.9}')
    by_npu = {}
    for npu, speed in speeds.items():
        if not str(npu).isdecimal() or int(npu) >= npus:
            raise ConfigError(
                f"{table.name}: {key} names NPU {show_value(npu)}; allowed: whole numbers from 0 to {npus - 1}",
                key=key,
            )
        by_npu[int(npu)] = table.number_in(f"{key}[{npu}]", speed, above=setting.above, most=setting.limit)
    return by_npu


def _report_missing_splits(system: Fields, findings: list[Finding]) -> list[Finding]:
    """Return findings with one more where the number of splits is missing."""
    key = "preferred-dataset-splits"
    if key in system:
        return findings
    message = f"{system.name}: {key} is missing; 1 was taken. The reference stops there."
    return [*findings, Finding("warning", "splits-missing", message, "Write it down.", file=system.name)]


def _read_algorithms(
    read: Mapping[str, Fields], dims: int, findings: list[Finding]
) -> dict[CollectiveKind, tuple[Algorithm, ...]]:
    algorithms: dict[CollectiveKind, tuple[Algorithm, ...]] = {}
    for setting in ALGORITHM_SETTINGS:
        key, kind, system = setting.key, setting.attribute, read[setting.file]
        if key not in system:
            continue
        listed = system.items(key)
        if len(listed) > dims:
            raise system.error(
                key,
                listed,
                f"up to {format_counted(dims, 'entry', 'entries')}, one per dimension of the network",
                "Remove entries from the end, or add dimensions to the network.",
            )
        entries = tuple(
            _parse_algorithm(system, f"{key}[{index}]", value) for index, value in enumerate(listed)
        )
        algorithms[kind] = entries  # type: ignore[index]  # the attribute names a collective
        single = next((index for index, algorithm in enumerate(entries) if algorithm.single), None)
        partial = f"{system.name}: {key} has {format_counted(len(listed), 'entry', 'entries')} for {dims} dimensions"
        if single is not None and single + 1 < len(listed):
            message = f"{system.name}: {key} holds {listed[single]}, which stands for all dimensions; entries after it have no effect."
            findings.append(Finding("info", "algorithms-unused", message, file=system.name))
        elif single is None and len(listed) < dims:
            message = f"{partial}: the collective stays within the first {len(listed)}."
            hint = "Give one algorithm per dimension for the whole collective."
            findings.append(Finding("warning", "algorithms-short", message, hint, file=system.name))
    return algorithms


def _parse_algorithm(system: Fields, key: str, value: object) -> Algorithm:
    try:
        if isinstance(value, str):
            return Algorithm.parse(value)
    except ConfigError:
        pass
    near = find_nearest(value.rstrip("0123456789"), ALGORITHM_NAMES) if isinstance(value, str) else ""
    raise system.error(key, value, ALGORITHMS_ALLOWED, f"The nearest is {near!r}." if near else "")


def _read_roofline(read: Mapping[str, Fields]) -> Roofline | None:
    system, memory = read["system"], BY_KEY["local-mem-bw"]
    if not system.read(BY_KEY["roofline-enabled"]):
        return None
    if not system.read(memory):
        limits = describe_allowed_number(None, 0, memory.limit)
        allowed = f"{limits}, in {memory.unit}, where roofline-enabled is 1"
        raise system.error(memory.key, system.table.get(memory.key, 0), allowed)
    return Roofline(**_read_values(read, "Roofline"))


def _read_remote_memory(
    read: Mapping[str, Fields], npus: int, findings: list[Finding]
) -> RemoteMemory | None:
    memory, nodes, of_node = read["memory"], BY_KEY["num-nodes"], BY_KEY["num-npus-per-node"]
    sharing = memory.read(BY_KEY["memory-type"])
    if sharing is None:
        return None
    if sharing == "per_node" and of_node.key not in memory:
        raise memory.build_missing_error(of_node.key, of_node.allowed_words())
    remote = RemoteMemory(**_read_values(read, "RemoteMemory"))
    if sharing == "per_node" and nodes.key in memory:
        count = memory.read(nodes)
        if count * remote.npus_per_node != npus:
            message = f"{memory.name}: {nodes.key} is {count} and {of_node.key} {remote.npus_per_node}, but the network has {npus} NPUs."
            hint = f"Only {of_node.key} counts: NPU r uses the memory of node r // {of_node.key}."
            findings.append(Finding("warning", "memory-nodes", message, hint, file=memory.name))
    return remote


def _read_groups(parts: Parts, npus: int, findings: list[Finding]) -> tuple[CommGroup, ...] | None:
    if parts.groups is None:
        return None
    name = parts.names.get("groups", "comm_group.json")
    table = Fields(name, parts.groups)
    groups = []
    for key in parts.groups:
        ranks = parts.groups[key]
        if key in ("", "0"):
            hint = "Nodes that name no group, or group 0, mean all ranks; number groups from 1."
            raise ConfigError(f"{name}: a group is named {key!r}; allowed: any other name", hint=hint)
        if not key.isdecimal():
            message = f"{name}: group {key!r} is no whole number; the reference knows no such names."
            findings.append(Finding("info", "group-name", message, file=name))
        if not isinstance(ranks, list | tuple) or not ranks:
            raise table.error(key, ranks, "a list of ranks, such as [0, 1, 2, 3]")
        whole = [table.whole_in(f"{key}[{index}]", rank, 0, npus - 1) for index, rank in enumerate(ranks)]
        repeated = next((rank for index, rank in enumerate(whole) if rank in whole[:index]), None)
        if repeated is not None:
            raise table.error(key, ranks, "every rank once", f"Rank {repeated} is there more than once.")
        groups.append(CommGroup(key, tuple(whole)))
    return tuple(groups)


def get_table(parts: Parts, file: File) -> Table:
    """Return the table of a file; empty where there is none."""
    if file == "run":
        return {"congestion": parts.congestion}
    if file == "extended":
        nested = parts.system.get(EXTENDED)
        return nested if isinstance(nested, Mapping) else {}
    table: Table | None = getattr(parts, file)
    return table or {}


# ---------------------------------------------------------------------------------------------------
# Writing


def build_parts(config: SystemConfig) -> Parts:
    """Return a configuration as ASTRA-sim writes it, without its algorithms given as traces.

    Reading it again gives an equal configuration, but for one thing: in the compatible mode one rate in fourteen
    has no GB/s of 2^30 bytes that gives exactly it; then the nearest is written, off by one part in 10^16.
    """
    return Parts(
        network=build_network_table(config),
        system=_build_system_table(config),
        memory=_build_memory_table(config.remote_memory, config.topology.npus),
        groups=None if config.groups is None else {group.name: list(group.ranks) for group in config.groups},
        options=_write_values(config, "options"),
        congestion=config.congestion,
    )


def _build_system_table(config: SystemConfig) -> dict[str, object]:
    system = _write_values(config, "system") | _build_algorithm_table(config, "system")
    if config.roofline:
        system |= {"roofline-enabled": 1, **_write_values(config.roofline, "system")}
    if config.shared_bus:
        system |= {"model-shared-bus": 1, **_write_values(config.shared_bus, "system")}
    if config.extensions is not None:
        system[EXTENDED] = _write_values(config.extensions, "extended") | _build_algorithm_table(
            config, "extended"
        )
    return system


def _build_memory_table(memory: RemoteMemory | None, npus: int) -> dict[str, object] | None:
    if memory is None:
        return None
    return {**_write_values(memory, "memory"), "num-nodes": -(-npus // memory.npus_per_node)}


def _write_values(owner: object, file: File) -> dict[str, object]:
    """Return the settings of a configuration object as in the files."""
    held = [setting for setting in list_held_settings(type(owner).__name__) if setting.file == file]
    values = {
        setting.key: _convert_file_value(setting, getattr(owner, setting.attribute)) for setting in held
    }
    if file == "system":
        # Flags in the reference's files are 1 or missing.
        values = {key: 1 if value is True else value for key, value in values.items() if value is not False}
    return {key: value for key, value in values.items() if value is not None}


def _convert_file_value(setting: Setting, value: Any) -> object:
    if setting.choices:
        return setting.name_of(value)
    if setting.type == "speeds":
        return None if value is None else {str(npu): simplify_number(speed) for npu, speed in value.items()}
    return value if value is None or setting.type == "flag" else simplify_number(value)


def _build_algorithm_table(config: SystemConfig, file: File) -> dict[str, object]:
    given: dict[str, object] = {
        kind: [algorithm.name for algorithm in listed] for kind, listed in config.algorithms.items()
    }
    return {
        setting.key: given[setting.attribute]
        for setting in ALGORITHM_SETTINGS
        if setting.file == file and setting.attribute in given
    }
