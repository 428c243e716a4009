"""Name runs by the settings in which they differ, and put their model into words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count

from studio.pages.simulate.edits import format_setting
from studio.sim.models import get_model, label_system_model
from studio.sim.parts import Parts
from studio.sim.setting_values import describe_differences
from studio.sim.settings import BY_KEY
from studio.store.run_infos import RunInfo

_NAMED = 2
"""Settings that a name may mention beyond the network."""
_IN_NAME = ("topology ", "npus_count ", "bandwidth ", "model ", "mode ", "congestion ", "bandwidth-unit ")
"""What the first part of a name says already, so that no difference has to."""
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def describe_model(tables: Parts) -> str:
    """Return the model of a simulation in words; times of different models are not comparable.

    Example:
        >>> describe_model(Parts({}, {})), describe_model(Parts({}, {"extended": {}}, congestion="aware"))
        ('astra-sim unaware', 'full')
    """
    return label_system_model(tables)


def name_run(tables: Parts, taken: Collection[str] = (), runs: Sequence[RunInfo] = ()) -> str:
    """Return a default name for a run: what tells it from the job's other runs first, then its network.

    Args:
        tables: The system.
        taken: Names that are in use.
        runs: The job's runs, newest first.

    Example:
        >>> tables = Parts({"topology": ["Switch", "Ring"], "npus_count": [8, 4], "bandwidth": [400, 50 / 3]}, {})
        >>> name_run(tables), name_run(tables, ["400/16.67 GiB/s · Switch 8 × Ring 4"])
        ('400/16.67 GiB/s · Switch 8 × Ring 4', '400/16.67 GiB/s · Switch 8 × Ring 4 · 2nd run')
    """
    name = describe_network(tables)
    if name in taken:
        name = " · ".join([*_list_differing_settings(name, tables, runs), name])
    if name not in taken:
        return name
    return next(
        again for number in count(2) if (again := f"{name} · {_format_ordinal(number)} run") not in taken
    )


def describe_network(tables: Parts) -> str:
    """Return bandwidth, kind and size of each dimension, and whether messages wait for each other where that is a choice."""
    columns = [tables.network.get(key) for key in ("topology", "npus_count", "bandwidth")]
    kinds, sizes, rates = (list(column) if isinstance(column, list | tuple) else [] for column in columns)
    dims = " × ".join(f"{kind} {size}" for kind, size in zip(kinds, sizes, strict=False))
    unit = format_setting(tables, BY_KEY["bandwidth-unit"])
    aware = ", aware" if tables.congestion == "aware" and get_model(tables) != "full" else ""
    return f"{'/'.join(format_number(rate) for rate in rates)} {unit}{aware} · {dims}"


def _list_differing_settings(name: str, tables: Parts, runs: Sequence[RunInfo]) -> list[str]:
    """Return the settings that differ from the newest run on the same network, the first few."""
    like = next((run for run in runs if describe_network(run.tables) == name), None)
    if like is None:
        return []
    new = [
        difference
        for difference in describe_differences(tables, like.tables)
        if not difference.startswith(_IN_NAME)
    ]
    if label_system_model(like.tables) != label_system_model(tables):
        new.insert(0, label_system_model(tables))
    more = [f"{len(new) - _NAMED} more"] if len(new) > _NAMED else []
    return [*new[:_NAMED], *more]


def format_number(value: object) -> str:
    """Return a number with four significant digits at most; anything else as it is.

    Example:
        >>> format_number(108.1081081), format_number("300.0"), format_number(10**99), format_number("tbd"), format_number(12345)
        ('108.1', '300', '1e+99', 'tbd', '12345')
    """
    try:
        number = float(str(value))
    except ValueError:
        return str(value)
    whole = number.is_integer() and abs(number) < 1e15
    return str(int(number)) if whole else f"{number:.4g}"


def _format_ordinal(number: int) -> str:
    """Return a number as in a list of repetitions.

    Example:
        >>> [_format_ordinal(number) for number in (2, 3, 4, 11, 22)]
        ['2nd', '3rd', '4th', '11th', '22nd']
    """
    teen = 10 < number % 100 < 20
    return f"{number}{'th' if teen else _ENDINGS.get(number % 10, 'th')}"
