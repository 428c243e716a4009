"""Files to Trace and back: the only code that knows a file format."""

from studio.et.job import FORMATS, JobFiles, Progress, RanksNeededError, discover, read, read_job
from studio.et.write import convert, write

__all__ = [
    "FORMATS",
    "JobFiles",
    "Progress",
    "RanksNeededError",
    "convert",
    "discover",
    "read",
    "read_job",
    "write",
]
