"""Pages say first that part of a job's files is lost: what they show rests on the rest."""

from __future__ import annotations

import json
from dataclasses import replace

from studio.pages.base.rank_words import build_lost_line
from studio.trace import Finding
from tests.handmade import node, trace_of


def test_a_job_of_damaged_files_says_so_and_leads_to_the_findings():
    whole = trace_of([[node(1, "COMP", micros=5)]] * 2)
    assert build_lost_line(whole, "job-1") is None
    lost = Finding("error", "damaged-file", "a.1.et: the file ends inside a record", rank=1)
    said = json.dumps(
        build_lost_line(replace(whole, findings=(lost,)), "job-1").to_plotly_json(),
        default=lambda one: one.to_plotly_json(),
    )
    assert "Part of the files of rank 1 is lost." in said
    assert "/findings?job=job-1" in said
    assert build_lost_line(replace(whole, findings=(replace(lost, level="warning"),)), "job-1") is None
    # Of files that could not be linked all is there.
    assert build_lost_line(replace(whole, findings=(replace(lost, code="nothing-linked"),)), "job-1") is None
