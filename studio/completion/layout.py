"""What a user says of the layout of a job's ranks: on the command line, or in a file.

A file, YAML or JSON, says what `tp=4,dp=8` cannot: distances of neighbours in place of the order, and members of comm groups of
which a trace tells the size only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from studio.completion.mesh import NAMES, Mesh, parse_layout
from studio.errors import ConfigError
from studio.files import read_start, suggest_remedy
from studio.trace import CommGroup, Trace
from studio.units import format_counted

ENDINGS = (".yml", ".yaml", ".json")
_KEYS = ("dimensions", "groups")
_AXIS_KEYS = ("name", "size", "stride")
MOST_BYTES = 1 << 22
_LARGEST = (1 << 20) - 1
_EXAMPLE = (
    'Such as {"dimensions": [{"name": "tp", "size": 4}, {"name": "dp", "size": 2}], "groups": {"7": "dp"}}.'
)


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout as it was given.

    Attributes:
        sizes: Name and size of each dimension, the one that changes fastest first.
        members: Ranks of comm groups by name, where the trace does not list them.
        axes: The dimension along which groups lie, by name, likewise.
    """

    sizes: tuple[tuple[str, int], ...]
    members: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)


def read_layout(given: str | Path | Layout) -> Layout:
    """Return the layout that an option gives: `tp=4,dp=2`, or the path of a file.

    Raises:
        ConfigError: It is none; names file, key, value and what is allowed.

    Example:
        >>> read_layout("tp=4,dp=2").sizes
        (('tp', 4), ('dp', 2))
    """
    if isinstance(given, Layout):
        return given
    path = Path(given)
    if path.suffix.lower() in ENDINGS:
        return _read(path)
    return Layout(parse_layout(str(given)))


def with_members(trace: Trace, layout: Layout) -> Trace:
    """Return a job with the comm groups whose members a layout lists.

    Raises:
        ConfigError: The trace lists other members, or the layout has no such rank.
    """
    world = Mesh.of(layout.sizes).world
    listed = {group.name: group for group in trace.groups if not group.inferred}
    added = []
    for name, members in layout.members.items():
        group = listed.get(name)
        if group is not None and set(group.ranks) != set(members):
            raise ConfigError(
                f"layout: group {name} has the ranks {_format_members(members)}; the job's list has {_format_members(group.ranks)}",
                hint="Leave the group out of the layout.",
            )
        if max(members) >= world:
            raise ConfigError(
                f"layout: group {name} has a rank {max(members):,}; the layout has {format_counted(world, 'rank')}",
                hint="Give a layout of more ranks, or leave the rank out of the group.",
            )
        if group is None:
            added.append(CommGroup(name, members))
    kept = [group for group in trace.groups if group.name not in layout.members or not group.inferred]
    return replace(trace, groups=(*kept, *added)) if added else trace


def _format_members(members: tuple[int, ...]) -> str:
    return ", ".join(map(str, members[:8])) + (", …" if len(members) > 8 else "")


def _read(path: Path) -> Layout:
    try:
        content = read_start(path, MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(
                f"{path}: {path.stat().st_size:,} bytes; allowed for a layout: {MOST_BYTES:,}",
                hint="Is this the right file?",
            )
        return parse_layout_file(path, content.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint=suggest_remedy(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: neither YAML nor JSON: {' '.join(str(error).split())}", hint=_EXAMPLE
        ) from error


def parse_layout_file(path: Path | str, text: str) -> Layout:
    """Return the layout of a file.

    Args:
        path: The file, as errors name it.
        text: What is in it.

    Raises:
        ConfigError: It is none; names file, key, value and what is allowed.
    """
    table = _parse_table(path, text)
    _refuse_unknown(path, "", table, _KEYS)
    listed = table.get("dimensions")
    if not isinstance(listed, list) or not listed:
        raise ConfigError(
            f"{path}: dimensions is {_shorten_value(listed)}; allowed: a list of dimensions", hint=_EXAMPLE
        )
    axes = [_parse_axis(path, place, item) for place, item in enumerate(listed)]
    names = [name for name, _, _ in axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(f"{path}: dimension {twice} is there {names.count(twice)} times; allowed: once")
    sizes = _order_dimensions(path, axes)
    groups = table.get("groups") or {}
    if not isinstance(groups, dict):
        raise ConfigError(
            f"{path}: groups is {_shorten_value(groups)}; allowed: names with ranks", hint=_EXAMPLE
        )
    members: dict[str, tuple[int, ...]] = {}
    along: dict[str, str] = {}
    for name, value in groups.items():
        if isinstance(value, str) and value in names:
            along[str(name)] = value
        elif isinstance(value, list) and value and all(_is_whole(rank, 0, _LARGEST) for rank in value):
            if len(set(value)) < len(value):
                raise ConfigError(f"{path}: groups.{name} has a rank twice; allowed: each once")
            members[str(name)] = tuple(value)
        else:
            raise ConfigError(
                f"{path}: groups.{name} is {_shorten_value(value)}; allowed: a list of ranks, or one of {', '.join(names)}",
                hint=_EXAMPLE,
            )
    return Layout(sizes, members, along)


def _parse_table(path: Path | str, text: str) -> dict[str, Any]:
    try:
        # JSON is YAML. The loader is a safe one.
        table = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(
            f"{path}: neither YAML nor JSON: {' '.join(str(error).split())}", hint=_EXAMPLE
        ) from error
    if not isinstance(table, dict):
        raise ConfigError(
            f"{path}: {_shorten_value(table)} is no table; allowed: keys and values", hint=_EXAMPLE
        )
    return table


def _parse_axis(path: Path | str, place: int, item: object) -> tuple[str, int, int | None]:
    """Return name, size and stride of a dimension of a file."""
    where = f"dimensions[{place}]"
    if not isinstance(item, dict):
        raise ConfigError(
            f"{path}: {where} is {_shorten_value(item)}; allowed: name, size, stride", hint=_EXAMPLE
        )
    _refuse_unknown(path, f"{where}.", item, _AXIS_KEYS)
    name, size, stride = item.get("name"), item.get("size"), item.get("stride")
    if not isinstance(name, str) or name not in NAMES:
        known = ", ".join(f"{short} ({meaning})" for short, meaning in NAMES.items())
        raise ConfigError(f"{path}: {where}.name is {_shorten_value(name)}; allowed: {known}")
    if not _is_whole(size, 1, _LARGEST + 1):
        raise ConfigError(
            f"{path}: {where}.size is {_shorten_value(size)}; allowed: a whole number from 1 to {_LARGEST + 1:,}"
        )
    if stride is not None and not _is_whole(stride, 1, _LARGEST + 1):
        raise ConfigError(
            f"{path}: {where}.stride is {_shorten_value(stride)}; allowed: a whole number from 1 to {_LARGEST + 1:,}"
        )
    return name, int(str(size)), stride


def _order_dimensions(
    path: Path | str, axes: list[tuple[str, int, int | None]]
) -> tuple[tuple[str, int], ...]:
    """Return names and sizes, the dimension that changes fastest first: as listed, or by stride.

    Raises:
        ConfigError: Some have strides and others none, or strides leave gaps or overlap.
    """
    strides = [stride for _, _, stride in axes]
    if all(stride is None for stride in strides):
        return tuple((name, size) for name, size, _ in axes)
    lacking = next((name for name, _, stride in axes if stride is None), None)
    if lacking:
        raise ConfigError(
            f"{path}: dimension {lacking} has no stride; allowed: all dimensions have one, or none"
        )
    expected = 1
    ordered = sorted(axes, key=lambda axis: (axis[2] or 0, axis[1]))
    for name, size, stride in ordered:
        if stride != expected:
            raise ConfigError(
                f"{path}: dimension {name} has the stride {stride:,}; allowed after the dimensions before it: {expected:,}",
                hint="A stride is the product of the sizes of all dimensions that change faster.",
            )
        expected *= size
    return tuple((name, size) for name, size, _ in ordered)


def _refuse_unknown(path: Path | str, where: str, table: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    other = next((key for key in table if key not in known), None)
    if other is not None:
        raise ConfigError(
            f"{path}: {where}{_shorten_value(other)} is not known; allowed: {', '.join(known)}", hint=_EXAMPLE
        )


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _shorten_value(value: object) -> str:
    if value is None:
        return "not there"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
