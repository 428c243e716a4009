"""The Trace Doctor: find the problems of a job, explain their consequences, and offer repairs.

Checks and repairs are the tables in `checks.py` and `repairs.py`, carried out by the modules `repair_*.py`; `EDITION` in `stored.py` rises
with them. `hangs.py` says which rank keeps a job waiting, by dumps of the flight recorder. Halves of messages that are left over are
found by `studio/analysis/collectives/unmatched.py`, by times by `studio/analysis/collectives/lone.py`.
"""

from studio.doctor.changes import Change
from studio.doctor.checks import CHECKS, Check, Examination, examine, run_checks
from studio.doctor.diagnosis import Diagnosis, NodeAt
from studio.doctor.repairs import REPAIRS, Repaired, repair, repair_all

__all__ = [
    "CHECKS",
    "REPAIRS",
    "Change",
    "Check",
    "Diagnosis",
    "Examination",
    "NodeAt",
    "Repaired",
    "examine",
    "repair",
    "repair_all",
    "run_checks",
]
