"""Write the report of accuracy with defaults that were learnt without the machine that is judged.

    python -m benchmarks.report_accuracy shared/measured/measured.csv docs/accuracy.md

`chakra-studio validate TABLES --report FILE` writes the same report with the defaults that the studio comes with.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import report_completion, report_steps
from benchmarks.accuracy import Defaults, by_machine, learnable
from studio.calibration.accuracy import build_accuracy_report
from studio.calibration.fit import infer_library
from studio.calibration.machines import infer_transport
from studio.calibration.reading.files import read_tables


def main(source: Path, target: Path) -> None:
    """Learn the defaults without each machine, and write the report."""
    tables = read_tables([source]).tables
    learnt = Defaults(by_machine(tables, learnable)).learn()
    starts = {
        machine: learnt.without(machine).costs(infer_library(own[0].hardware), infer_transport(own) or "")
        for machine, own in by_machine(tables, lambda _: True).items()
    }
    command = f"python -m benchmarks.report_accuracy {source.name} {target.name}"
    # What follows from the first section of other programs on stays.
    known = target.read_text(encoding="utf-8") if target.exists() else ""
    begins = [known.find(part.BEGIN) for part in (report_completion, report_steps) if part.BEGIN in known]
    kept = known[min(begins) :] if begins else ""
    report = build_accuracy_report(tables, command=command, starts=starts)
    target.write_text(f"{report.rstrip()}\n\n{kept}" if kept else report, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
