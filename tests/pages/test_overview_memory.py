"""Memory on the Overview."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studio.analysis.job.memory import BEFORE, HOST_MEMORY, Holder, MemoryUse
from studio.pages.overview.memory import build_peaks
from tests.pages.test_simulate_runs import texts

NONE_YET = np.zeros(0, np.int64)
HOLDERS = (Holder(BEFORE, 2 << 30, 0), Holder("aten::mm", 1 << 30, 4))
NOTED = MemoryUse(0, 0, NONE_YET, NONE_YET, 2 << 30, 3 << 30, 7_000_000, 4 << 30, HOLDERS, True)


def test_the_ranks_that_hold_most_come_first_and_what_does_not_fit_is_told() -> None:
    uses = [replace(NOTED, rank=rank, peak_bytes=NOTED.peak_bytes + rank) for rank in range(10)]
    host = replace(NOTED, device=HOST_MEMORY, reserved_bytes=-1)
    said = texts(build_peaks([host, *uses], {"job": "a"}, "Does not fit: so."))
    assert "Does not fit: so." in said
    assert "processor" not in said
    assert said.index(
        "9 device\N{NO-BREAK SPACE}0 3.00 GiB 7.00 ms 4.00 GiB before the recording 2.00 GiB; aten::mm 1.00 GiB"
    ) < said.index("8 device\N{NO-BREAK SPACE}0")
    assert "2 more hold at most 3.00 GiB each." in said


def test_an_estimate_says_that_it_is_one() -> None:
    """Without devices the processors' memory is listed; nothing tells what was reserved."""
    said = texts(
        build_peaks([replace(NOTED, device=HOST_MEMORY, reserved_bytes=-1, noted=False)], {"job": "a"}, "")
    )
    assert "about 3.00 GiB" in said
    assert "processor" in said
    assert "Reserved" not in said


def test_what_a_generated_job_holds_from_the_beginning_is_not_called_recorded() -> None:
    said = texts(build_peaks([replace(NOTED, counted=True, noted=False)], {"job": "a"}, ""))
    assert "there from the beginning 2.00 GiB" in said
    assert "recording" not in said
