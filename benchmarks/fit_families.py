"""Fit the costs of the built-in systems to measured tables, and write them with their errors into the system files.

    python -m benchmarks.fit_families shared/measured/measured.csv

A system without tables keeps what its data sheet says. What was fitted before is forgotten.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studio.calibration.families import FamilyFit, build_calibration, fit_family, select_family_tables
from studio.calibration.tables import MeasuredTable, read_csv
from studio.sim.astra import read_yaml
from studio.sim.systems import FOLDER, SYSTEMS, build_system, write_system

SAME_MACHINES = {"dgx-superpod-a100": "hgx-a100"}
"""Systems of the same GPUs and nodes as another, whose tables they share."""
_LIBRARY = "studio.sim.costs: constants of the communication library's own cost model, and what measured machines have in common"


def main(path: Path) -> None:
    """Fit every family that has tables, write the files and print the errors."""
    tables = read_csv(path)
    for name in SYSTEMS:
        if SYSTEMS[name].costs is not None:
            _refit(name, tables)


def _refit(name: str, tables: list[MeasuredTable]) -> None:
    file = FOLDER / f"{name}.yml"
    table = read_yaml(file)
    given = dict(table["costs"])  # type: ignore[call-overload]  # a table, as it was read
    library = {key: given[key] for key in ("library", "transport", "peers", "per-host") if key in given}
    table["costs"] = library
    table.pop("calibration", None)
    plain = build_system(table, f"preset {name}")
    measured = select_family_tables(SYSTEMS[SAME_MACHINES.get(name, name)], tables)
    found = fit_family(plain, measured) if measured else None
    sources = dict(table["sources"])  # type: ignore[call-overload]  # the same
    sources["costs"] = _LIBRARY if found is None else _fitted_words(found)
    table["sources"] = sources
    if found is not None:
        table["costs"] = _costs(found)
        table["calibration"] = build_calibration(found)
    file.write_text(write_system(table), encoding="utf-8")
    print(f"{name:20}{_words(table)}", flush=True)


def _costs(found: FamilyFit) -> dict[str, object]:
    usual = {"choice": "library", "algorithm": "auto", "protocol": "auto", "nics": 0}
    return {key: value for key, value in found.costs.to_table().items() if usual.get(key) != value}


def _fitted_words(found: FamilyFit) -> str:
    machines = sorted({table.machine for table in found.tables})
    return (
        f"fitted to the {len(found.tables)} measured tables under calibration, of the machines {', '.join(machines)}; "
        f"what they say nothing about as {_LIBRARY}"
    )


def _words(table: dict[str, object]) -> str:
    from studio.sim.systems import describe_measured_errors

    return describe_measured_errors(build_system(table, "written"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
