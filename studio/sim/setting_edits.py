"""Change single settings of a system's tables: as `--set` writes them, or as a form has them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from studio.errors import ConfigError
from studio.sim.fields import Fields, find_nearest
from studio.sim.network import COSTS, EXTENDED_NETWORK_KEYS, WITHIN_NODE, simplify_number
from studio.sim.parts import EXTENDED, Mode, Parts, Table, get_table, is_extended
from studio.sim.settings import SETTINGS, Setting, list_file_settings

_SETTING = re.compile(r"(?P<key>[^=\[\]]+)(\[(?P<at>\d+)\])?=(?P<value>.*)", re.DOTALL)


def with_value(parts: Parts, setting: Setting, value: object) -> Parts:
    """Return `parts` with another value of a setting, as its file has it; None takes the key out."""
    table = {**get_table(parts, setting.file), setting.key: value}
    if value is None:
        del table[setting.key]
    if setting.file == "run":
        return replace(parts, congestion="aware" if value == "aware" else "unaware")
    if setting.file == "extended":
        return replace(parts, system={**parts.system, EXTENDED: table})
    return replace(parts, **{setting.file: table})  # type: ignore[arg-type]  # the file is one of the tables


def with_settings(parts: Parts, settings: Sequence[str]) -> Parts:
    """Return `parts` with single values changed.

    Args:
        parts: The configuration.
        settings: Each KEY=VALUE, or KEY[0]=VALUE for one entry of a list. The key is one of ASTRA-sim's
            files or options; lists are written [a, b] or a,b. KEY= takes the key out. costs.KEY=VALUE sets a
            parameter of the cost model, costs.KEY.NAME=VALUE an entry of one that is a table.

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


def _with_setting(parts: Parts, given: str, index: str | None, text: str) -> Parts:
    if given.partition(".")[0] == COSTS and "." in given:
        return _with_cost(parts, given.split(".")[1:], index, text)
    setting, npu = find_setting(given)
    value = _parse_literal(text) if npu else _parse_setting(text, setting)
    if setting.file == "run":
        Fields("--set", {given: text}).choice_in(given, text, setting.values)
    before = get_table(parts, setting.file).get(setting.key)
    if index is not None:
        value = _replace_item(setting.key, before, int(index), value, per_dimension=setting.per_dimension)
    elif npu:
        value = {**(before if isinstance(before, Mapping) else {}), npu: value}
    elif not text:
        value = None
    return replace(with_value(parts, setting, value), names={**parts.names, setting.path: "--set"})


def _with_cost(parts: Parts, path: Sequence[str], index: str | None, text: str) -> Parts:
    """Return `parts` with another value of a parameter of the cost model; `path` leads to it through its tables."""
    table = parts.network.get(COSTS)
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"--set {'.'.join((COSTS, *path))}: the system has no cost model; allowed: parameters of a model that is there",
            hint="Take a preset: chakra-studio presets lists those that have one.",
        )
    network = {**parts.network, COSTS: _with_entry(table, path, index, text)}
    if list(path) == ["nics"] and index is None:
        network |= _with_nics(parts.network, table.get("nics"), _parse_json_or_text(text))
    return replace(parts, network=network, names={**parts.names, COSTS: "--set"})


def _with_nics(network: Table, before: object, count: object) -> Table:
    """Return the bandwidth between the nodes of a network that has another number of NICs a node: each NIC keeps its rate."""
    sizes, rates = network.get("npus_count"), network.get("bandwidth")
    if not (isinstance(sizes, list | tuple) and isinstance(rates, list | tuple) and len(sizes) == len(rates)):
        return {}
    had, has = before or sizes[0], count or sizes[0]
    if not (isinstance(had, int) and isinstance(has, int) and had > 0 and has > 0):
        return {}
    return {
        "bandwidth": [
            rates[0],
            *(rate * has / had if isinstance(rate, int | float) else rate for rate in rates[1:]),
        ]
    }


def _with_entry(table: Table, path: Sequence[str], index: str | None, text: str) -> Table:
    key, rest = path[0], path[1:]
    before = table.get(key)
    if rest:
        value: object = _with_entry(before if isinstance(before, Mapping) else {}, rest, index, text)
    elif not text:
        return {name: entry for name, entry in table.items() if name != key}
    else:
        value = _parse_json_or_text(text)
        value = value if index is None else _replace_item(key, before, int(index), value)
    return {**table, key: value}


def find_setting(given: str) -> tuple[Setting, str]:
    """Return the setting that `--set` names, and the NPU it is for: `extended.compute-speeds.3` is that of NPU 3.

    Raises:
        ConfigError: There is none of this name.
    """
    # L, o, g and G of the shared bus differ by case alone.
    exact = {setting.path: setting for setting in SETTINGS}
    if given in exact:
        return exact[given], ""
    path, _, npu = _loosen_key(given).partition(".")
    if path == EXTENDED and npu:
        name, _, npu = npu.partition(".")
        path = f"{EXTENDED}.{name}"
    setting = {_loosen_key(name): setting for name, setting in exact.items()}.get(path)
    if setting and (not npu or setting.type == "speeds"):
        return setting, npu
    prefix = f"{EXTENDED}." if path.startswith(f"{EXTENDED}.") else ""
    known = [setting.key for setting in list_file_settings("extended")] if prefix else list(exact)
    near = find_nearest(path.removeprefix(prefix) if prefix else given, known)
    others = f"Known: {', '.join(known)}." if prefix else "Keys are those of ASTRA-sim's files."
    hint = f"The nearest known key is '{prefix}{near}'." if near else others
    raise ConfigError(f"--set {given!r}: there is no such key", hint=hint)


def with_mode(parts: Parts, mode: Mode, *, strip: bool = False) -> Parts:
    """Return `parts` in this mode; the extended mode gets its defaults if it has no settings.

    Args:
        parts: The configuration.
        mode: The mode.
        strip: Whether the compatible mode takes out what only the extended one has, rather than refuses it.

    Raises:
        ConfigError: The compatible mode is asked for, and the system has settings of the extended mode.
    """
    if mode == "extended":
        return parts if is_extended(parts) else replace(parts, system={**parts.system, EXTENDED: {}})
    if is_extended(parts) and not strip:
        raise ConfigError(
            f"{parts.names.get('system', 'system.json')}: {EXTENDED} is there; allowed in the compatible mode: "
            "no settings of the extended mode",
            hint="Leave the mode out, or take the key out.",
        )
    if not strip:
        return parts
    return replace(
        parts,
        system={key: value for key, value in parts.system.items() if key != EXTENDED},
        network={key: value for key, value in parts.network.items() if key not in EXTENDED_NETWORK_KEYS},
    )


def _describe_entries(key: str, count: int, per_dimension: bool) -> str:
    """Say which entries of a list there are."""
    if not count:
        return f"{key} is no list"
    owner, entry = ("the system", "dimension") if per_dimension else (key, "entry")
    if count == 1:
        return f"{owner} has one {entry}; allowed: {key}[0]"
    entries = "dimensions" if per_dimension else "entries"
    return f"{owner} has {count} {entries}; allowed: {key}[0] to {key}[{count - 1}]"


def _replace_item(
    key: str, before: object, index: int, value: object, *, per_dimension: bool = False
) -> list[object]:
    items = list(before) if isinstance(before, list | tuple) else []
    if index >= len(items):
        raise ConfigError(
            f"--set {key}[{index}]: {_describe_entries(key, len(items), per_dimension)}",
            hint=WITHIN_NODE if per_dimension and items else "",
        )
    items[index] = value[0] if isinstance(value, list) and len(value) == 1 else value
    return items


def _parse_setting(text: str, setting: Setting) -> object:
    """Parse a `--set` value; an invalid one stays text and is rejected by key later."""
    if setting.type in ("links", "table"):
        return _parse_json_or_text(text)
    if setting.type == "speeds":
        given = _parse_json_or_text(text)
        return given if isinstance(given, Mapping) else read_speeds(text)
    if setting.per_dimension or setting.type == "algorithms":
        inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        return [_parse_literal(item.strip()) for item in inner.split(",")] if inner.strip() else []
    return _parse_literal(text)


def read_speeds(text: str) -> object:
    """Return the table in a text such as `3: 0.9, 7: 1.1`; the text itself where it is none, which is refused by key later.

    Example:
        >>> read_speeds("3: 0.9, 7: 2"), read_speeds("fast")
        ({'3': 0.9, '7': 2}, 'fast')
    """
    pairs = [part.partition(":") for part in text.replace(";", ",").split(",") if part.strip()]
    if not all(colon for _, colon, _ in pairs):
        return text
    return {npu.strip(): read_number(speed.strip()) for npu, _, speed in pairs}


def read_number(text: str) -> object:
    """Return the number in a text, a whole one without a fraction; the text itself where it is none, or not finite."""
    try:
        number = float(text)
    except ValueError:
        return text
    return simplify_number(number) if math.isfinite(number) else text


def _parse_json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parse_literal(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return text.strip("'\"")
    return value if isinstance(value, str | int | float | bool) else text


def _loosen_key(key: str) -> str:
    return key.lower().replace("_", "-")
