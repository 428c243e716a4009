"""The critical path through all ranks of a recording or a run, and how much later each node could have ended.

Modules:
    gates: What each node of a rank waited for last: dependencies, and what ran before it in its lane.
    critical: The path: from the latest finish back through gates, the last arrivals at collectives, and sends.
    courses: When nodes ran and what they waited for, as the path and slack read it.
    segments: What the path consists of, with causes.
    slack: How much later each node could have ended without the run finishing later.
    whole: The path as pages show it, with why a node is on it.
    words: The path summed up by cause, in words.
"""
