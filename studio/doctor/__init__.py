"""The Trace Doctor: find what is wrong with a job, what follows from it, and what can be repaired."""

from studio.doctor.checks import CHECKS, Check, Examination, examination, examine
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
    "examination",
    "examine",
    "repair",
    "repair_all",
]
