"""Read and write ASTRA-sim's configuration files.

`system.json`, `network.yml`, `comm_group.json`, `remote_memory.json` and the options of the command line.
What the keys mean is in `studio.sim.parts`; this module knows the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any

import yaml

from studio.errors import ConfigError, StudioError
from studio.et import read as read_trace
from studio.et import write as write_trace
from studio.files import open_file, suggest_remedy
from studio.notebook import format_record
from studio.sim.config import Congestion, SystemConfig
from studio.sim.fields import Fields, show_value
from studio.sim.network import UNIT
from studio.sim.parts import (
    CUSTOM,
    EXTENDED,
    NO_CUSTOM,
    OPTION_IGNORED,
    PATH_OPTIONS,
    PER_NODE_CUSTOM,
    CustomAlgorithms,
    Imported,
    Parts,
    Table,
    build_parts,
    get_table,
    interpret,
    is_extended,
)
from studio.sim.settings import BY_KEY, DIMENSION_SETTINGS, list_file_settings
from studio.trace import Trace

__all__ = [
    "Files",
    "Imported",
    "Parts",
    "build_parts",
    "collect_system_fields",
    "from_parts",
    "interpret",
    "load",
    "load_given",
    "parse_options",
    "read",
    "read_config",
    "read_yaml",
    "save",
    "write_config",
]

MOST_COMPILED_LEVELS = 2_048
"""Levels that a YAML text may be nested for the compiled parser: its stack has room for them."""

_CONGESTION = "congestion"

_LARGEST_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one configuration, and the command line that goes with them.

    Attributes:
        system: `system.json`.
        network: `network.yml`.
        comm_groups: `comm_group.json`, None where there is none.
        remote_memory: `remote_memory.json`, None where there is none.
        options: Options of the command line, such as `--num-queues-per-dim=2`.
        congestion: Which of the reference's two programs is meant; None is what the system file says.
    """

    system: Path
    network: Path
    comm_groups: Path | None = None
    remote_memory: Path | None = None
    options: tuple[str, ...] = ()
    congestion: Congestion | None = None

    __repr__ = format_record


def from_parts(
    network: Table,
    system: Table,
    memory: Table | None = None,
    cli: Table | None = None,
    *,
    groups: Table | None = None,
    congestion: Congestion = "unaware",
) -> SystemConfig:
    """Interpret ASTRA-sim's tables without findings.

    Args:
        network: What `network.yml` holds.
        system: What `system.json` holds.
        memory: What `remote_memory.json` holds.
        cli: Command-line options without leading dashes.
        groups: Comm groups; None keeps the trace's.
        congestion: Which network model.

    Raises:
        ConfigError: A value is not allowed.

    Example:
        >>> network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
        >>> system = {"scheduling-policy": "LIFO", "collective-optimization": "baseline", "preferred-dataset-splits": 4}
        >>> from_parts(network, system).splits
        4
    """
    return interpret(Parts(network, system, memory, groups, cli or {}, congestion)).config


def read(files: Files) -> Imported:
    """Read a configuration.

    Returns:
        The configuration, and findings: keys nobody knows, keys without effect.

    Raises:
        ConfigError: A file cannot be read, or a value is not allowed.
    """
    parts = load(files)
    return interpret(parts, read_custom_algorithms(parts.system, files.system))


def read_config(
    system: Path | str,
    network: Path | str,
    *,
    comm_groups: Path | str | None = None,
    remote_memory: Path | str | None = None,
    options: Sequence[str] = (),
    congestion: Congestion | None = None,
) -> Imported:
    """Read ASTRA-sim's own files.

    Args:
        system: `system.json`.
        network: `network.yml`.
        comm_groups: `comm_group.json`; None keeps the trace's groups.
        remote_memory: `remote_memory.json`; None where there is none.
        options: Options of its command line, such as `--num-queues-per-dim=2`.
        congestion: Which of its two programs is meant; None is what the table `extended` of `system.json` says, else
            the unaware one.

    Returns:
        `config`, and `findings`: keys nobody knows, keys without effect.

    Raises:
        ConfigError: A file cannot be read, or a value is not allowed; names file, key, value and what is allowed.

    Example:
        >>> import studio, tempfile
        >>> config = studio.presets["hgx-h100-8"].config
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = studio.write_config(config, folder)
        ...     studio.read_config(files.system, files.network).config == config
        True
    """
    groups, memory = (None if path is None else Path(path) for path in (comm_groups, remote_memory))
    return read(Files(Path(system), Path(network), groups, memory, tuple(options), congestion))


def load(files: Files) -> Parts:
    """Read the files as tables, without asking yet what their values mean."""
    given = load_given(files.system, files.network, files.comm_groups, files.remote_memory)
    parts = Parts(**given, options=parse_options(files.options))
    return replace(parts, congestion=files.congestion or parts.congestion)


def load_given(
    system: Path | None, network: Path | None, comm_groups: Path | None, remote_memory: Path | None
) -> dict[str, Any]:
    """Return the fields of `Parts` that the given files set, always including `names`."""
    given: dict[str, Any] = {}
    names = {}
    if system:
        given |= collect_system_fields(_read_json(system))
        names["system"] = str(system)
    if network:
        given["network"] = read_yaml(network)
        names["network"] = str(network)
    if comm_groups:
        # The reference takes any path with this word for "no groups".
        given["groups"] = {} if "empty" in str(comm_groups) else _read_json(comm_groups)
        names["groups"] = str(comm_groups)
    if remote_memory:
        given["memory"] = _read_json(remote_memory)
        names["memory"] = str(remote_memory)
    return {**given, "names": names}


def collect_system_fields(table: dict[str, Any]) -> dict[str, Any]:
    """Return `system` and, where its table `extended` says it, `congestion`.

    The reference has a program for each network and no key. Beyond it the files have to say which is meant.
    """
    extended = table.get(EXTENDED)
    if not isinstance(extended, dict) or extended.get(_CONGESTION) not in BY_KEY[_CONGESTION].values:
        return {"system": table}
    rest = {key: value for key, value in extended.items() if key != _CONGESTION}
    return {"system": {**table, EXTENDED: rest}, _CONGESTION: extended[_CONGESTION]}


def parse_options(words: Sequence[str]) -> dict[str, str]:
    """Parse command line options into a dictionary; the last of repeated options counts.

    Raises:
        ConfigError: A word is no option, or an option has no value.

    Example:
        >>> parse_options(["--num-queues-per-dim=2", "--injection-scale", "0.5", "--rendezvous-protocol"])
        {'num-queues-per-dim': '2', 'injection-scale': '0.5', 'rendezvous-protocol': 'true'}
    """
    settings = {setting.key: setting for setting in list_file_settings("options")}
    known = ", ".join(f"--{key}" for key in (*settings, *OPTION_IGNORED, *PATH_OPTIONS))
    values: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, given, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise ConfigError(f"command line: {show_value(word)} is no option; allowed: {known}")
        if not given and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        elif not given and name in settings and settings[name].type == "flag":
            value = "true"
        elif not given:
            raise ConfigError(f"command line: --{name} has no value", hint=f"Write --{name}=VALUE.")
        values[name] = value
    return values


def write_config(config: SystemConfig, folder: Path | str) -> Files:
    """Write a configuration as ASTRA-sim's files and return them; `read` of them gives an equal configuration.

    Files of the same names are replaced. Algorithms given as traces are written beside the others.

    Example:
        >>> import studio, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = studio.write_config(studio.presets["hgx-h100-8"].config, folder)
        ...     files.system.name, files.network.name
        ('system.json', 'network.yml')
    """
    return save(build_parts(config), folder, CustomAlgorithms(config.custom, config.custom_nodes))


def save(parts: Parts, folder: Path | str, custom: CustomAlgorithms = NO_CUSTOM) -> Files:
    """Write the tables of a configuration to files, and the algorithms given as traces beside them."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    system = dict(parts.system)
    if is_extended(parts) and parts.congestion == "aware":
        system[EXTENDED] = {_CONGESTION: "aware", **get_table(parts, "extended")}
    for key, kind in CUSTOM.items():
        if kind in custom.kinds:
            system[key] = _write_custom(custom.kinds[kind], target, f"custom_{kind}")
    if custom.nodes:
        prefixes = {
            node: _write_custom(trace, target, f"custom_node_{node}") for node, trace in custom.nodes.items()
        }
        (target / "custom_nodes.yml").write_text(yaml.safe_dump(prefixes), encoding="utf-8")
        system[PER_NODE_CUSTOM] = "custom_nodes.yml"
    return Files(
        system=_write_json(target / "system.json", system),
        network=_write_network(target / "network.yml", parts.network),
        comm_groups=_write_optional(target / "comm_group.json", parts.groups),
        remote_memory=_write_optional(target / "remote_memory.json", parts.memory),
        options=tuple(f"--{key}={json.dumps(value)}" for key, value in parts.options.items()),
        congestion=parts.congestion,
    )


def _write_json(path: Path, table: Table) -> Path:
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return path


def _write_optional(path: Path, table: Table | None) -> Path | None:
    if table is None:
        path.unlink(missing_ok=True)
        return None
    return _write_json(path, table)


def _write_network(path: Path, network: Table) -> Path:
    """Write the network in the form the reference's own files have: one list per line, the units beside it."""
    unit = network.get(UNIT, "GB/s (1 GB = 2^30 bytes)")
    units = {setting.key: f"  # {setting.unit}" for setting in DIMENSION_SETTINGS if setting.unit}
    units["bandwidth"] = f"  # {unit}, per link"
    lines = [f"{key}: {json.dumps(value)}{units.get(key, '')}\n" for key, value in network.items()]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _write_custom(trace: Trace, folder: Path, prefix: str) -> str:
    write_trace(trace, folder, prefix)
    return prefix


# ---------------------------------------------------------------------------------------------------
# Reading


def _read_bytes(path: Path) -> bytes:
    try:
        with open_file(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            content = stream.read(_LARGEST_FILE_BYTES + 1)
        if len(content) > _LARGEST_FILE_BYTES:
            raise ConfigError(
                f"{path}: {max(size, len(content)):,} bytes are too many for a configuration file; "
                f"allowed: up to {_LARGEST_FILE_BYTES:,}",
                hint="Is this the right file?",
            )
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint=suggest_remedy(error)) from error
    if not content.strip():
        raise _build_empty_error(path)
    return content


def _build_empty_error(path: Path) -> ConfigError:
    return ConfigError(
        f"{path}: the file is empty; allowed: keys and values",
        hint="Was it saved? `chakra-studio presets --json` prints tables to start from.",
    )


def _read_json(path: Path) -> dict[str, object]:
    def check_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
        return _check_repeats(path, pairs)

    try:
        table = json.loads(_read_bytes(path), object_pairs_hook=check_pairs)
    except (ValueError, RecursionError) as error:
        hint = "Expected one JSON object of keys and values."
        raise ConfigError(f"{path}: not a JSON file: {error}", hint=hint) from error
    return _check_table(path, table)


class _Once:
    """The part of a YAML loader that rejects duplicate keys."""

    path = Path()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the keys and values of a mapping."""
        construct = self.construct_object  # type: ignore[attr-defined]  # the loader's
        pairs = [(str(construct(key)), construct(value, deep=deep)) for key, value in node.value]
        return _check_repeats(self.path, pairs)


def read_yaml(path: Path) -> dict[str, object]:
    """Read a YAML file of keys and values; no key may be there twice.

    Raises:
        ConfigError: It cannot be read, or is no such file.
    """
    try:
        table = _load_yaml(path, _read_bytes(path).decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        what = " ".join(str(error).split())
        hint = "Expected lines such as 'topology: [ Ring, Switch ]'."
        raise ConfigError(f"{path}: not a YAML file: {what}", hint=hint) from error
    return _check_table(path, table)


def _load_yaml(path: Path, text: str) -> object:
    """Return what a text says, read by the compiled parser where that is safe: it takes a tenth of the time.

    It has no bound on what is nested, so texts that may be nested deeply are not for it; nor are texts with errors, of which it shows no
    line.
    """
    # Both loaders are safe ones: they make lists, texts and numbers, and no other object.
    compiled = getattr(yaml, "CSafeLoader", None)
    if compiled is not None and _bound_levels(text) <= MOST_COMPILED_LEVELS:
        with suppress(yaml.YAMLError):
            loaded: object = yaml.load(text, type("Loader", (_Once, compiled), {"path": path}))  # noqa: S506
            return loaded
    loaded = yaml.load(text, type("Loader", (_Once, yaml.SafeLoader), {"path": path}))  # noqa: S506
    return loaded


def _bound_levels(text: str) -> int:
    """Return how deeply a YAML text can be nested at most.

    Each level opens a bracket, or begins further right than the one around it, but for lists, which may begin where their key does.
    """
    longest = max(map(len, text.splitlines()), default=0)
    return min(len(text), text.count("[") + text.count("{") + 2 * longest)


def _check_repeats(path: Path, pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            f"{path}: {twice} is there {names.count(twice)} times; allowed: once",
            hint="Keep one of them.",
        )
    return table


def _check_table(path: Path, table: object) -> dict[str, object]:
    if table is None:
        raise _build_empty_error(path)
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {show_value(table)} is no table; allowed: keys and values")
    return {str(key): value for key, value in table.items()}


def read_custom_algorithms(table: Table, system: Path | None) -> CustomAlgorithms:
    """Read the traces that a system names as algorithms; without a file there are none.

    Args:
        table: What `system.json` holds.
        system: Its path: traces lie beside it.

    Raises:
        ConfigError: A trace is not there, or cannot be read.
    """
    if system is None:
        return NO_CUSTOM
    keys, folder = Fields(str(system), table), system.parent
    kinds = {
        kind: _read_custom_trace(keys, key, keys.text(key), folder)
        for key, kind in CUSTOM.items()
        if key in keys
    }
    nodes: dict[int, Trace] = {}
    if PER_NODE_CUSTOM in keys:
        path = _resolve_path(folder, keys.text(PER_NODE_CUSTOM))
        prefixes = Fields(str(path), read_yaml(path))
        for key in prefixes.table:
            if not key.isdecimal():
                raise ConfigError(f"{path}: {show_value(key)} is no node id; allowed: a whole number from 0")
            nodes[int(key)] = _read_custom_trace(prefixes, key, prefixes.text(key), path.parent)
    return CustomAlgorithms(kinds, nodes)


def _read_custom_trace(table: Fields, key: str, prefix: str, folder: Path) -> Trace:
    base = _resolve_path(folder, prefix, suffix=".0.et")
    files = [
        path
        for path in base.parent.glob(f"{escape(base.name)}.*.et")
        if path.name[len(base.name) + 1 : -3].isdecimal()
    ]
    if not files:
        raise table.error(key, prefix, f"the prefix of trace files; {base}.0.et and so on are not there")
    try:
        return replace(read_trace(sorted(files)), findings=())
    except StudioError as error:
        raise ConfigError(f"{table.name}: {key}: {error.message}", hint=error.hint) from error


def _resolve_path(folder: Path, name: str, *, suffix: str = "") -> Path:
    """Resolve a path from a file: relative to the working directory, as ASTRA-sim does, or to the file."""
    path = Path(name)
    if path.is_absolute() or path.with_name(path.name + suffix).exists():
        return path
    return folder / path
