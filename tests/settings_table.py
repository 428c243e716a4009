"""The table of settings in docs/simulator.md: `python -m tests.settings_table` writes it."""

from __future__ import annotations

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


def table() -> str:
    """Return the table as Markdown."""
    rows = ["| key | where | values | default | what it does |", "| --- | --- | --- | --- | --- |"]
    rows += [_line(_cells(setting)) for setting in SETTINGS]
    return "\n".join(rows)


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(setting: Setting) -> tuple[str, ...]:
    only = " (extended mode)" if setting.is_extended and setting.file != "extended" else ""
    return f"`{setting.key}`{only}", _FILES[setting.file], _values(setting), _default(setting), setting.hint


def _values(setting: Setting) -> str:
    words = {
        "algorithms": "an algorithm per dimension",
        "speeds": "NPU: speed, above 0",
        "links": "a list of links",
        "table": "a table of parameters",
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
    """Return the document with the table as it should be."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(current(), encoding="utf-8")
