"""ASTRA-sim's configuration as it writes it, in tables, and what the tables mean.

Sections 3 to 12 of the reference's behaviour give every key its meaning and default: a GB is 2^30 bytes
in the bandwidths of the network and 10^9 bytes everywhere else; the endpoint delay is scaled only where
it is written; a missing number of active chunks is 1. A missing number of splits, with which the
reference stops without a message, is taken to be 1 and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, get_args

from studio.errors import ConfigError
from studio.sim.config import (
    MAX_NPUS,
    MAX_NS,
    Algorithm,
    CollectiveKind,
    CollectiveOptimization,
    Congestion,
    MemorySharing,
    RemoteMemory,
    Roofline,
    Scheduling,
    SharedBus,
    SystemConfig,
)
from studio.sim.extensions import (
    MOST_SLOTS,
    ChunkOrder,
    CollectiveOrder,
    Collectives,
    CommunicationTimes,
    ComputeSlots,
    DimensionOrder,
    Extensions,
    GroupSizes,
    HostSlots,
    RankStarts,
    TieOrder,
)
from studio.sim.fields import Fields, nearest, shown
from studio.sim.network import (
    EXTENDED_NETWORK_KEYS,
    LISTED_KEYS,
    NETWORK_KEYS,
    network_of,
    network_table,
    plain,
)
from studio.trace import CommGroup, Finding, Trace

Table = Mapping[str, object]

SCHEDULING: Mapping[str, Scheduling] = {"LIFO": "lifo", "FIFO": "fifo", "EXPLICIT": "explicit"}
OPTIMIZATIONS: Mapping[str, CollectiveOptimization] = {
    "baseline": "baseline",
    "localBWAware": "local_bw_aware",
}
MEMORY_TYPES: Mapping[str, MemorySharing | None] = {
    "NO_MEMORY_EXPANSION": None,
    "PER_NPU_MEMORY_EXPANSION": "per_npu",
    "PER_NODE_MEMORY_EXPANSION": "per_node",
    "MEMORY_POOL": "pool",
}
IMPLEMENTATIONS: Mapping[str, CollectiveKind] = {
    "all-reduce-implementation": "all_reduce",
    "all-gather-implementation": "all_gather",
    "reduce-scatter-implementation": "reduce_scatter",
    "all-to-all-implementation": "all_to_all",
}
CUSTOM: Mapping[str, CollectiveKind] = {f"{key}-custom": kind for key, kind in IMPLEMENTATIONS.items()}
PER_NODE_CUSTOM = "per-node-custom-implementation"
ALGORITHM_NAMES = (
    "ring",
    "direct",
    "halvingDoubling",
    "doubleBinaryTree",
    "oneRing",
    "oneDirect",
    "oneHalvingDoubling",
)

EXTENDED = "extended"
"""The key of `system.json` that holds the settings of the extended mode; the reference does not read it."""
EXTENDED_IMPLEMENTATIONS: Mapping[str, CollectiveKind] = {
    "broadcast-implementation": "broadcast",
    "reduce-implementation": "reduce",
    "gather-implementation": "gather",
    "scatter-implementation": "scatter",
    "reduce-scatter-block-implementation": "reduce_scatter_block",
    "barrier-implementation": "barrier",
}
EXTENDED_CHOICES: Mapping[str, tuple[str, ...]] = {
    "collectives": get_args(Collectives),
    "tie-order": get_args(TieOrder),
    "group-sizes": get_args(GroupSizes),
    "dimension-order": get_args(DimensionOrder),
    "chunk-order": get_args(ChunkOrder),
    "host-slots": get_args(HostSlots),
    "compute-slots": get_args(ComputeSlots),
    "collective-order": get_args(CollectiveOrder),
    "communication-times": get_args(CommunicationTimes),
    "rank-starts": get_args(RankStarts),
}
EXTENDED_KEYS = (*EXTENDED_CHOICES, "communication-slots", "compute-speeds", *EXTENDED_IMPLEMENTATIONS)

SYSTEM_KEYS = (
    "scheduling-policy",
    "endpoint-delay",
    "active-chunks-per-dimension",
    "preferred-dataset-splits",
    "collective-optimization",
    "local-mem-bw",
    *IMPLEMENTATIONS,
    *CUSTOM,
    PER_NODE_CUSTOM,
    "roofline-enabled",
    "peak-perf",
    "replay-only",
    "model-shared-bus",
    "L",
    "o",
    "g",
    "G",
    "local-reduction-delay",
    EXTENDED,
)
MEMORY_KEYS = ("memory-type", "remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node")
OPTION_KEYS = ("num-queues-per-dim", "injection-scale", "rendezvous-protocol")

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
    """A configuration as ASTRA-sim writes it: one table per file, and the command line.

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


@dataclass(frozen=True, slots=True)
class CustomAlgorithms:
    """Algorithms given as traces: those of all collectives of a kind, and those of single nodes by id."""

    kinds: Mapping[CollectiveKind, Trace] = field(default_factory=dict)
    nodes: Mapping[int, Trace] = field(default_factory=dict)


NO_CUSTOM = CustomAlgorithms()


@dataclass(frozen=True, slots=True)
class Imported:
    """A configuration, and what reading it brought to light: unknown keys, keys without effect."""

    config: SystemConfig
    findings: tuple[Finding, ...] = ()


def imported(parts: Parts, custom: CustomAlgorithms = NO_CUSTOM) -> Imported:
    """Return what ASTRA-sim's tables mean.

    Args:
        parts: The tables.
        custom: The traces of the algorithms that the tables only name.

    Raises:
        ConfigError: A value is not allowed; names the file, the key, the value and the values allowed.
    """
    findings: list[Finding] = []

    def fields(part: str, name: str, table: Table, known: Sequence[str], ignored: Table) -> Fields:
        made = Fields(
            parts.names.get(part, name),
            table,
            texts_are_numbers=part in ("network", "options"),
            named=parts.names,
        )
        findings.extend(made.findings(known, {key: str(why) for key, why in ignored.items()}))
        return made

    known = (*NETWORK_KEYS, *EXTENDED_NETWORK_KEYS)
    network = fields("network", "network.yml", parts.network, known, {})
    system = fields("system", "system.json", parts.system, SYSTEM_KEYS, SYSTEM_IGNORED)
    memory = fields("memory", "remote_memory.json", parts.memory or {}, MEMORY_KEYS, {})
    options = fields("options", "command line", parts.options, OPTION_KEYS + PATH_OPTIONS, OPTION_IGNORED)
    topology, links = network_of(network, extended=EXTENDED in parts.system)
    extended = _extended(parts, system, findings)
    config = SystemConfig(
        topology=topology,
        congestion=parts.congestion,
        scheduling=system.choice("scheduling-policy", SCHEDULING),
        collective_optimization=system.choice("collective-optimization", OPTIMIZATIONS),
        algorithms={
            **_algorithms(system, IMPLEMENTATIONS, len(topology.dims), findings),
            **_algorithms(extended, EXTENDED_IMPLEMENTATIONS, len(topology.dims), findings),
        },
        splits=_splits(system, findings),
        active_chunks=system.whole("active-chunks-per-dimension", 1, 1, 1 << 30),
        queues_per_dimension=options.whole("num-queues-per-dim", 1, 1, 1 << 16),
        endpoint_delay_ns=system.number("endpoint-delay", 0, least=0) if "endpoint-delay" in system else None,
        injection_scale=options.number("injection-scale", 1.0, least=0),
        local_memory_bytes_per_ns=system.number("local-mem-bw", 0.0, least=0),
        roofline=_roofline(system),
        replay_only=system.flag("replay-only"),
        rendezvous=options.flag("rendezvous-protocol"),
        remote_memory=_remote_memory(memory, topology.npus, findings) if parts.memory is not None else None,
        shared_bus=_shared_bus(system),
        custom=custom.kinds,
        custom_nodes=custom.nodes,
        groups=_groups(parts, topology.npus, findings),
        links=links,
        extensions=_extensions(extended, topology.npus) if EXTENDED in system else None,
    )
    return Imported(config, tuple(findings))


def _extended(parts: Parts, system: Fields, findings: list[Finding]) -> Fields:
    """Return the settings of the extended mode, none where the mode is compatible."""
    table = system.table.get(EXTENDED, {})
    if not isinstance(table, Mapping):
        raise system.error(EXTENDED, table, 'a table of settings, such as {"communication-slots": 2}')
    named = {
        key.removeprefix(f"{EXTENDED}."): place
        for key, place in parts.names.items()
        if key.startswith(f"{EXTENDED}.")
    }
    made = Fields(
        f"{system.name}: {EXTENDED}", {str(key): value for key, value in table.items()}, named=named
    )
    findings.extend(made.findings(EXTENDED_KEYS, {}))
    return made


def _extensions(table: Fields, npus: int) -> Extensions:
    given: dict[str, str] = {
        key.replace("-", "_"): table.choice(key, {name: name for name in allowed})
        for key, allowed in EXTENDED_CHOICES.items()
        if key in table
    }
    return Extensions(
        communication_slots=table.whole("communication-slots", 1, 1, MOST_SLOTS),
        compute_speeds=_compute_speeds(table, npus),
        **given,  # type: ignore[arg-type]  # each is one of the names its Literal lists
    )


def _compute_speeds(table: Fields, npus: int) -> Mapping[int, float] | None:
    key = "compute-speeds"
    if key not in table:
        return None
    speeds = table.table[key]
    if not isinstance(speeds, Mapping):
        raise table.error(key, speeds, 'a table from NPU to speed, such as {"3": 0.9}')
    found = {}
    for npu, speed in speeds.items():
        if not str(npu).isdecimal() or int(npu) >= npus:
            raise ConfigError(
                f"{table.name}: {key} names NPU {shown(npu)}; allowed: whole numbers from 0 to {npus - 1}",
                key=key,
            )
        found[int(npu)] = table.number_in(f"{key}[{npu}]", speed, "a number above 0", above=0)
    return found


def _splits(system: Fields, findings: list[Finding]) -> int:
    if "preferred-dataset-splits" in system:
        return system.whole("preferred-dataset-splits", 1, 1, 1 << 20)
    message = f"{system.name}: preferred-dataset-splits is missing; 1 was taken. The reference stops there."
    findings.append(Finding("warning", "splits-missing", message, "Write it down.", file=system.name))
    return 1


def _algorithms(
    system: Fields, keys: Mapping[str, CollectiveKind], dims: int, findings: list[Finding]
) -> dict[CollectiveKind, tuple[Algorithm, ...]]:
    found: dict[CollectiveKind, tuple[Algorithm, ...]] = {}
    for key, kind in keys.items():
        if key not in system:
            continue
        listed = system.items(key)
        if len(listed) > dims:
            raise system.error(
                key,
                listed,
                f"up to {dims} entries, one per dimension of the network",
                "Remove entries from the end, or add dimensions to the network.",
            )
        found[kind] = tuple(_algorithm(system, f"{key}[{at}]", value) for at, value in enumerate(listed))
        single = next((at for at, one in enumerate(found[kind]) if one.single), None)
        partial = f"{system.name}: {key} has {len(listed)} entries for {dims} dimensions"
        if single is not None and single + 1 < len(listed):
            message = f"{system.name}: {key} holds {listed[single]}, which stands for all dimensions; entries after it have no effect."
            findings.append(Finding("info", "algorithms-unused", message, file=system.name))
        elif single is None and len(listed) < dims:
            message = f"{partial}: the collective stays within the first {len(listed)}."
            hint = "Give one algorithm per dimension for the whole collective."
            findings.append(Finding("warning", "algorithms-short", message, hint, file=system.name))
    return found


def _algorithm(system: Fields, key: str, value: object) -> Algorithm:
    try:
        if isinstance(value, str):
            return Algorithm.named(value)
    except ConfigError:
        pass
    allowed = f"{', '.join(ALGORITHM_NAMES)}, and direct and oneDirect with a window from 1, such as direct4"
    near = nearest(value.rstrip("0123456789"), ALGORITHM_NAMES) if isinstance(value, str) else ""
    raise system.error(key, value, allowed, f"The nearest is {near!r}." if near else "")


def _roofline(system: Fields) -> Roofline | None:
    if not system.flag("roofline-enabled"):
        return None
    if not system.number("local-mem-bw", 0.0, least=0):
        allowed = "a number above 0, in GB/s, where roofline-enabled is 1"
        raise system.error("local-mem-bw", system.table.get("local-mem-bw", 0), allowed)
    return Roofline(system.number("peak-perf", None, above=0))


def _shared_bus(system: Fields) -> SharedBus | None:
    if not system.flag("model-shared-bus"):
        return None
    return SharedBus(
        latency_ns=_truncated(system, "L", 0),
        overhead_ns=_truncated(system, "o", 0),
        gap_ns=_truncated(system, "g", 0),
        gap_per_byte_ns=system.number("G", 0.0, least=0),
        reduction_delay_ns=_truncated(system, "local-reduction-delay", 1),
    )


def _truncated(table: Fields, key: str, default: int) -> int:
    number = table.number(key, default, least=0)
    if number > MAX_NS:
        raise table.error(key, number, f"a number from 0 to {MAX_NS}")
    return int(number)


def _remote_memory(memory: Fields, npus: int, findings: list[Finding]) -> RemoteMemory | None:
    sharing = memory.choice("memory-type", MEMORY_TYPES)
    if sharing is None:
        return None
    if sharing == "per_node" and "num-npus-per-node" not in memory:
        raise memory.missing("num-npus-per-node", f"a whole number from 1 to {MAX_NPUS}")
    per_node = memory.whole("num-npus-per-node", 1, 1, MAX_NPUS)
    if sharing == "per_node" and "num-nodes" in memory:
        nodes = memory.whole("num-nodes", None, 1, MAX_NPUS)
        if nodes * per_node != npus:
            message = f"{memory.name}: num-nodes is {nodes} and num-npus-per-node {per_node}, but the network has {npus} NPUs."
            hint = "Only num-npus-per-node counts: NPU r uses the memory of node r // num-npus-per-node."
            findings.append(Finding("warning", "memory-nodes", message, hint, file=memory.name))
    return RemoteMemory(
        sharing=sharing,
        latency_ns=memory.whole("remote-mem-latency", None, 0, MAX_NS),
        bytes_per_ns=memory.number("remote-mem-bw", None, above=0),
        npus_per_node=per_node,
    )


def _groups(parts: Parts, npus: int, findings: list[Finding]) -> tuple[CommGroup, ...] | None:
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
        whole = [table.whole_in(f"{key}[{at}]", rank, 0, npus - 1) for at, rank in enumerate(ranks)]
        repeated = next((rank for at, rank in enumerate(whole) if rank in whole[:at]), None)
        if repeated is not None:
            raise table.error(key, ranks, "every rank once", f"Rank {repeated} is there more than once.")
        groups.append(CommGroup(key, tuple(whole)))
    return tuple(groups)


# ---------------------------------------------------------------------------------------------------
# And back


def parts_of(config: SystemConfig) -> Parts:
    """Return a configuration as ASTRA-sim writes it, without its algorithms given as traces.

    Reading it again gives an equal configuration, but for one thing: in the compatible mode one rate in fourteen
    has no GB/s of 2^30 bytes that gives exactly it; then the nearest is written, off by one part in 10^16.
    """
    return Parts(
        network=network_table(config),
        system=_system_of(config),
        memory=_memory_of(config.remote_memory, config.topology.npus),
        groups=None if config.groups is None else {group.name: list(group.ranks) for group in config.groups},
        options={
            "num-queues-per-dim": config.queues_per_dimension,
            "injection-scale": plain(config.injection_scale),
            "rendezvous-protocol": config.rendezvous,
        },
        congestion=config.congestion,
    )


def _system_of(config: SystemConfig) -> dict[str, object]:
    scheduling = {value: name for name, value in SCHEDULING.items()}
    optimizations = {value: name for name, value in OPTIMIZATIONS.items()}
    system: dict[str, object] = {
        "scheduling-policy": scheduling[config.scheduling],
        "active-chunks-per-dimension": config.active_chunks,
        "preferred-dataset-splits": config.splits,
        "collective-optimization": optimizations[config.collective_optimization],
        "local-mem-bw": plain(config.local_memory_bytes_per_ns),
    }
    if config.endpoint_delay_ns is not None:
        system["endpoint-delay"] = plain(config.endpoint_delay_ns)
    for key, kind in IMPLEMENTATIONS.items():
        if kind in config.algorithms:
            system[key] = [algorithm.name for algorithm in config.algorithms[kind]]
    if config.roofline:
        system |= {"roofline-enabled": 1, "peak-perf": plain(config.roofline.peak_tera_ops_per_s)}
    if config.replay_only:
        system["replay-only"] = 1
    bus = config.shared_bus
    if bus:
        system |= {"model-shared-bus": 1, "L": bus.latency_ns, "o": bus.overhead_ns, "g": bus.gap_ns}
        system |= {"G": plain(bus.gap_per_byte_ns), "local-reduction-delay": bus.reduction_delay_ns}
    if config.extensions is not None:
        system[EXTENDED] = _extended_of(config, config.extensions)
    return system


def _extended_of(config: SystemConfig, extensions: Extensions) -> dict[str, object]:
    table: dict[str, object] = {key: getattr(extensions, key.replace("-", "_")) for key in EXTENDED_CHOICES}
    table["communication-slots"] = extensions.communication_slots
    if extensions.compute_speeds is not None:
        table["compute-speeds"] = {str(npu): plain(at) for npu, at in extensions.compute_speeds.items()}
    for key, kind in EXTENDED_IMPLEMENTATIONS.items():
        if kind in config.algorithms:
            table[key] = [algorithm.name for algorithm in config.algorithms[kind]]
    return table


def _memory_of(memory: RemoteMemory | None, npus: int) -> dict[str, object] | None:
    if memory is None:
        return None
    types = {sharing: name for name, sharing in MEMORY_TYPES.items()}
    return {
        "memory-type": types[memory.sharing],
        "remote-mem-latency": memory.latency_ns,
        "remote-mem-bw": plain(memory.bytes_per_ns),
        "num-nodes": -(-npus // memory.npus_per_node),
        "num-npus-per-node": memory.npus_per_node,
    }


# ---------------------------------------------------------------------------------------------------
# Changing single values

_SETTING = re.compile(r"(?P<key>[^=\[\]]+)(\[(?P<at>\d+)\])?=(?P<value>.*)", re.DOTALL)
_SECTIONS: tuple[tuple[str, Sequence[str]], ...] = (
    ("network", (*NETWORK_KEYS, *EXTENDED_NETWORK_KEYS)),
    ("system", tuple(key for key in SYSTEM_KEYS if key not in (*CUSTOM, PER_NODE_CUSTOM, EXTENDED))),
    ("memory", MEMORY_KEYS),
    ("options", OPTION_KEYS),
)
CONGESTION: Mapping[str, Congestion] = {"aware": "aware", "unaware": "unaware"}


def with_settings(parts: Parts, settings: Sequence[str]) -> Parts:
    """Return `parts` with single values changed.

    Args:
        parts: The configuration.
        settings: Each KEY=VALUE, or KEY[0]=VALUE for one entry of a list. The key is one of ASTRA-sim's
            files or options; lists are written [a, b] or a,b. KEY= takes the key out.

    Raises:
        ConfigError: A setting is malformed, or no file has such a key; names the nearest.
    """
    for text in settings:
        match = _SETTING.fullmatch(text)
        if not match:
            raise ConfigError(
                f"--set {text!r} is no setting; allowed: KEY=VALUE or KEY[0]=VALUE",
                hint="For example preferred-dataset-splits=8, or bandwidth[1]=50.",
            )
        parts = _with_setting(parts, match["key"].strip(), match["at"], match["value"].strip())
    return parts


def _with_setting(parts: Parts, given: str, at: str | None, text: str) -> Parts:
    if _loose(given).startswith(f"{EXTENDED}."):
        return _with_extended(parts, given[len(EXTENDED) + 1 :], at, text)
    known = {_loose(key): (section, key) for section, keys in _SECTIONS for key in keys}
    known |= {key: ("options", key) for key in ("congestion",)}
    # L, o, g and G of the shared bus differ by case alone.
    exact = {key: (section, key) for section, keys in _SECTIONS for key in keys}
    section, key = exact.get(given) or known.get(_loose(given)) or ("", "")
    if not key:
        near = nearest(
            given, [*(name for _, name in known.values()), *(f"{EXTENDED}.{one}" for one in EXTENDED_KEYS)]
        )
        hint = f"The nearest known key is {near!r}." if near else "Keys are those of ASTRA-sim's files."
        raise ConfigError(f"--set {given!r}: there is no such key", hint=hint)
    value = _setting_value(text, listed=key in LISTED_KEYS or key in IMPLEMENTATIONS)
    if key == "links":
        value = _setting_links(text)
    names = {**parts.names, key: "--set"}
    if key == "congestion":
        return replace(parts, congestion=Fields("--set", {key: text}).choice(key, CONGESTION), names=names)
    table = dict(_SECTION_OF[section](parts) or {})
    if at is not None:
        table[key] = _with_item(key, table.get(key), int(at), value)
    elif text:
        table[key] = value
    else:
        table.pop(key, None)
    return replace(parts, names=names, **{section: table})  # type: ignore[arg-type]  # the section is one of the tables


def _with_extended(parts: Parts, given: str, at: str | None, text: str) -> Parts:
    """Change a setting of the extended mode, which it brings about; `compute-speeds.3` is that of NPU 3."""
    name, _, npu = given.partition(".")
    key = _loose(name)
    if key not in EXTENDED_KEYS or (npu and key != "compute-speeds"):
        near = nearest(key, EXTENDED_KEYS)
        hint = (
            f"The nearest known key is '{EXTENDED}.{near}'."
            if near
            else f"Known: {', '.join(EXTENDED_KEYS)}."
        )
        raise ConfigError(f"--set '{EXTENDED}.{given}': there is no such key", hint=hint)
    before = parts.system.get(EXTENDED)
    table = dict(before) if isinstance(before, Mapping) else {}
    value = _setting_value(text, listed=key in EXTENDED_IMPLEMENTATIONS)
    if at is not None:
        table[key] = _with_item(key, table.get(key), int(at), value)
    elif npu:
        speeds = table.get(key)
        table[key] = {**(speeds if isinstance(speeds, Mapping) else {}), npu: value}
    elif text:
        table[key] = value
    else:
        table.pop(key, None)
    return replace(
        parts,
        names={**parts.names, f"{EXTENDED}.{key}": "--set"},
        system={**parts.system, EXTENDED: table},
    )


def with_mode(parts: Parts, mode: Literal["compatible", "extended"]) -> Parts:
    """Return `parts` in the mode asked for; without settings of its own the extended mode has its defaults.

    Raises:
        ConfigError: The compatible mode is asked for, and the system has settings of the extended mode.
    """
    if mode == "extended":
        return parts if EXTENDED in parts.system else replace(parts, system={**parts.system, EXTENDED: {}})
    if EXTENDED in parts.system:
        raise ConfigError(
            f"{parts.names.get('system', 'system.json')}: {EXTENDED} is there; allowed in the compatible mode: "
            "no settings of the extended mode",
            hint="Leave the mode out, or take the key out.",
        )
    return parts


_SECTION_OF: Mapping[str, Callable[[Parts], Table | None]] = {
    "network": lambda parts: parts.network,
    "system": lambda parts: parts.system,
    "memory": lambda parts: parts.memory,
    "options": lambda parts: parts.options,
}


def _with_item(key: str, before: object, at: int, value: object) -> list[object]:
    items = list(before) if isinstance(before, list | tuple) else []
    if at >= len(items):
        raise ConfigError(
            f"--set {key}[{at}]: {key} has {len(items)} entries; allowed: {key}[0] to {key}[{len(items) - 1}]"
            if items
            else f"--set {key}[{at}]: {key} is no list"
        )
    items[at] = value[0] if isinstance(value, list) and len(value) == 1 else value
    return items


def _setting_value(text: str, *, listed: bool) -> object:
    if listed:
        inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        return [_literal(item.strip()) for item in inner.split(",")] if inner.strip() else []
    return _literal(text)


def _setting_links(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _literal(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return text.strip("'\"")
    return value if isinstance(value, str | int | float | bool) else text


def _loose(key: str) -> str:
    return key.lower().replace("_", "-")
