"""Read trace files into a Trace and write them: the only code that knows a file format."""

from studio.et.format import JobSize, NpusNeededError
from studio.et.job import link, read, read_job
from studio.et.job_builder import RanksNeededError
from studio.et.job_files import JobFiles, discover
from studio.et.known import FORMATS
from studio.et.link.options import DepKind, LinkOptions
from studio.et.reading_meter import Progress
from studio.et.write import write

__all__ = [
    "FORMATS",
    "DepKind",
    "JobFiles",
    "JobSize",
    "LinkOptions",
    "NpusNeededError",
    "Progress",
    "RanksNeededError",
    "discover",
    "link",
    "read",
    "read_job",
    "write",
]
