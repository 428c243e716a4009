"""Number the processes of a job on one machine by their devices, where nothing else tells their ranks."""

from __future__ import annotations

from collections.abc import Sequence

from studio.et.findings import build_order_finding
from studio.et.recording import DeviceTrace
from studio.et.rocprof import LIBRARY_KERNEL, list_devices
from studio.trace import NSIGHT, ROCPROF, Finding
from studio.units import format_counted

_NAMED = {
    ROCPROF: "rocprofv3 --output-file out_rank%rank%",
    NSIGHT: "nsys profile -o report_rank%q{RANK}",
}
"""How each recorder is told to name files after ranks."""


def find_ranks_by_device(traces: Sequence[DeviceTrace]) -> list[int] | None:
    """Return the rank of each recording of rocprof or Nsight in the order of devices; None where that tells nothing.

    They have to be of one machine, each on devices of its own, which all of its recordings number alike, and to communicate
    at one time: programs that ran by themselves are no job.
    """
    devices = [list_devices(trace) for trace in traces]
    used = [device for each in devices for device in each]
    are_apart = all(devices) and len(set(used)) == len(used)
    # In a container that sees some of the devices, numbers mean others.
    machines = {(trace.head.host, trace.head.devices) for trace in traces}
    if len(traces) < 2 or not are_apart or len(machines) > 1 or not traces[0].head.host:
        return None
    if not all(map(_communicates, traces)) or not _are_together(traces):
        return None
    order = sorted(range(len(traces)), key=lambda index: min(devices[index]))
    return [order.index(index) for index in range(len(traces))]


def build_machine_finding(traces: Sequence[DeviceTrace]) -> Finding:
    """Return the finding about recordings of one machine."""
    what = f"{format_counted(len(traces), 'process', 'processes')} of machine {traces[0].head.host} do not tell their ranks"
    named = _NAMED[traces[0].head.recorder]
    hint = f"Name the files after ranks ({named}), or give --rank FILE=NUMBER."
    return build_order_finding(what, hint)


def _communicates(trace: DeviceTrace) -> bool:
    """Whether a process ran kernels of the communication library; Perfetto's form of a recording names no machine."""
    return trace.head.recorder in _NAMED and any(map(LIBRARY_KERNEL.search, trace.names))


def _are_together(traces: Sequence[DeviceTrace]) -> bool:
    """Whether there was a time at which all of them were recorded."""
    starts = [int(trace.start_ns.min()) for trace in traces]
    ends = [int((trace.start_ns + trace.duration_ns).max()) for trace in traces]
    return max(starts) < min(ends)
