"""What the parts of a rank's time are called, and how each is defined."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "overlapped": "overlapped",
    "compute": "compute",
    "copy": "copies",
    "waiting": "waiting",
    "bubble": "bubble",
    "queueing": "queueing",
    "latency": "latency",
    "transfer": "transfer",
    "communication": "communication",
    "host": "host",
    "stall": "stall",
    "before": "before its recording",
    "assumed": "assumed arrival, which nobody recorded",
    "after_finish": "after finish",
    "exposed": "exposed communication",
    "idle": "idle",
    "communicating": "communication, hidden or not",
    "finish": "finish",
}
"""Every part, what is made of parts, and the finish they add up to; of stall, what lies before the recording of a rank began, and of host, assumed arrivals."""

ABOUT: Mapping[str, str] = {
    "overlapped": "Compute or a copy was under way and communication too: work hides it.",
    "compute": "Compute was under way, and no communication.",
    "copy": "A copy (memcpy, memset, a load or store of remote memory) was under way, neither compute nor communication.",
    "waiting": "The earliest issued communication had begun here, and the last member of its collective had not begun yet. "
    "No work hid it. By the members' starts, on aligned clocks.",
    "bubble": "Half of a message had begun here, usually a receive, and the other half, of another pipeline stage, had not. No work hid it, and no other communication was under way. "
    "Where a recording notes a receive only from the moment its message begins, the idle time right before it. Counts as idle.",
    "queueing": "Bytes stood behind others on a port or link, no work hid it.",
    "latency": "Launch, protocol and hops of communication, no work hid it.",
    "transfer": "Communication under way that no work hid, after all had begun. Where messages on links are simulated, "
    "queueing and latency are in it: nothing tells them apart there.",
    "communication": "Communication under way that no work hid, after all had begun. A recording does not tell "
    "queueing, latency and transfer apart.",
    "host": "Nothing was on the device; the processor was busy, or the device waited to be given work.",
    "stall": "Nothing was under way at all; the device may have been given its work long before and not have begun it. "
    "Where nothing of the host was recorded, all time for which the device had no work. "
    "Of a recording also the time before the first that was recorded of a rank, of which nothing is known.",
    "after_finish": "The rank was done and the last rank was not.",
    "exposed": "Waiting, queueing, latency and transfer (of a recording: waiting and communication): communication that no "
    "work hid. What a faster network and better balance could save at most.",
    "idle": "Bubble, host and stall: neither work nor communication moved on.",
    "communicating": "Some communication was under way, hidden by work or not, bubbles included.",
    "finish": "From the beginning of the run to the end of the last rank.",
}
"""The definitions behind each "?"."""

NO_HOST = (
    "nothing of the host was recorded, so what kept the device idle is not known: record its calls too "
    "(rocprofv3 --hip-trace; of PyTorch ProfilerActivity.CPU)"
)
"""Why nothing can be said of a host."""

DID: Mapping[str, str] = {
    "overlapped": "worked while communication was under way",
    "compute": "computed",
    "copy": "copied",
    "waiting": "waited for other ranks",
    "bubble": "waited for messages",
    "queueing": "queued on the network",
    "latency": "communicated",
    "transfer": "communicated",
    "communication": "communicated",
    "host": "kept only the host busy",
    "stall": "stood idle",
    "before": "was not recorded yet",
    "assumed": "is assumed to have been on its way",
}
"""What a rank did in each part, as the end of a sentence about it."""
