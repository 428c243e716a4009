"""The tables of settings and algorithms in docs/simulator.md: `python -m tests.settings_table` writes them."""

from __future__ import annotations

from studio.sim.algorithms import ALGORITHMS
from studio.sim.settings import SETTINGS, Setting
from tests.conftest import ROOT

DOCUMENT = ROOT / "docs" / "simulator.md"
BEGIN, END = "<!-- generated: python -m tests.settings_table -->", "<!-- end -->"
_FILES = {
    "network": "`network.yml`",
    "system": "`system.json`",
    "memory": "`remote_memory.json`",
    "options": "command line",
    "extended": "`extended`",
    "run": "`--congestion`",
}


def tables() -> str:
    """Return both tables as Markdown."""
    rows = ["| key | where | values | default | what it does |", "| --- | --- | --- | --- | --- |"]
    rows += [_line(_cells(setting)) for setting in SETTINGS]
    rows += ["", "| algorithm | steps | in the reference |", "| --- | --- | --- |"]
    for row in ALGORITHMS.values():
        names = ", ".join(f"`{name}`" + (f", `{name}<w>`" if row.windowed else "") for name in row.names)
        limits = [
            "powers of two only" if row.powers_of_two else "",
            "" if row.in_groups else "not in comm groups",
            "no all-to-all" if "all_to_all" in row.lacks else "",
        ]
        rows.append(_line((names, row.hint, ", ".join(filter(None, limits)) or "on any number of ranks")))
    return "\n".join(rows)


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(setting: Setting) -> tuple[str, ...]:
    only = " (extended mode)" if setting.extended and setting.file != "extended" else ""
    return f"`{setting.key}`{only}", _FILES[setting.file], _values(setting), _default(setting), setting.hint


def _values(setting: Setting) -> str:
    words = {
        "algorithms": "an algorithm per dimension",
        "speeds": "NPU: speed, above 0",
        "links": "a list of links",
    }
    if setting.choices:
        text = ", ".join(f"`{name}`" for name in setting.values)
    else:
        text = words.get(setting.type) or setting.allowed_words()
    unit = f", in {setting.unit}" if setting.unit and setting.unit not in text else ""
    return ("per dimension: " if setting.per_dimension else "") + text + unit


def _default(setting: Setting) -> str:
    if setting.required:
        return "required"
    if setting.choices:
        return f"`{setting.choices[0].name if setting.default is None else setting.name_of(setting.default)}`"
    return "0" if setting.type == "flag" else setting.placeholder or "none"


def current() -> str:
    """Return the document with the tables as they should be."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(current(), encoding="utf-8")
