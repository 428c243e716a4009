"""The Trace Doctor: find the problems of a job, explain their consequences, and offer repairs."""

from studio.doctor.checks import CHECKS, Check, Examination, examine, run_checks
from studio.doctor.diagnosis import Diagnosis, NodeAt
from studio.doctor.repairs import REPAIRS, Change, Repaired, repair, repair_all

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
