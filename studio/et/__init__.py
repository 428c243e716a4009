"""Read trace files into a Trace and write them: the only code that knows a file format.

Which format a file has, and what reads it, is the table `FORMATS` in `known.py`; readers are a module per format, loaded when a file may
be of it, those of other packages by `plugins.py`. `kineto_events.py` names the fields of Kineto (`Args`), `kineto_categories.py` says
what events are, `kineto_head.py` whose recording it is, and `kineto.py` makes columns of them, of long files by what `event_kernel.py`
finds; merged traces (ET+) are read by `etplus.py` and `etplus_nodes.py`, of long files by `node_kernel.py`. `job_files.py` sorts files
into jobs, of which `each_job.py` reads several, `job_builder.py` puts ranks together, `link/` joins host and device, `merged/` has master traces, `seen.py` the first picture
of a job while its ranks are read. A Chakra file as JSON is `record_json.py` (a record) and `jsonize.py` (streams and documents); lines of
events are `events.py`, timelines of viewers read back `exported.py`; algorithms are read by `msccl.py` and `mscclpp.py`, and carried out
and checked by the modules `…_play.py`. `source.py` opens files, `archive.py` unpacks archives, with `tar.py` and `packed.py`,
`damaged_json.py` recovers what damaged JSON holds, and `foreign.py` says what files are that cannot be read.
"""

from studio.et.format import JobSize, NpusNeededError
from studio.et.job import link, read, read_job
from studio.et.job_builder import RanksNeededError
from studio.et.job_files import JobFiles, discover
from studio.et.known import FORMATS
from studio.et.link.dep_kinds import DepKind
from studio.et.link.options import LinkOptions
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
