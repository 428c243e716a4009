"""Explain begins with the collective that moves most in the job that is open."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from studio.pages.explain import form
from studio.trace import Trace
from tests.handmade import collective, node, trace_of


def begin(monkeypatch: pytest.MonkeyPatch, trace: Trace, system: str) -> tuple[str, str, str, str]:
    session = SimpleNamespace(trace=lambda _job: trace, keep_of_job=lambda _what, _job, make: make())
    monkeypatch.setattr(form, "get_session", lambda: session)
    return form.choose_first_collective({"job": "job"}, system)


GROUPS = {"tp0": [0, 1], "tp1": [2, 3]}


def both(*sizes: int) -> Trace:
    """Return a job of four ranks: all-reduces of all, and all-gathers of pairs, of these sizes."""
    of_all, of_pairs = sizes
    return trace_of(
        [
            [
                collective(1, "ALL_REDUCE", of_all),
                collective(2, "ALL_GATHER", of_pairs, 1, group=f"tp{rank // 2}"),
                collective(3, "ALL_GATHER", of_pairs, 2, group=f"tp{rank // 2}"),
            ]
            for rank in range(4)
        ],
        GROUPS,
    )


@pytest.mark.parametrize(
    ("trace", "system", "first"),
    [
        (both(3 << 20, 1 << 10), "hgx-h100", ("all_reduce", "3 MiB", "4", "")),
        (both(3 << 20, 1 << 10), form.RUN, ("all_reduce", "3 MiB", "", "")),
        (both(8, 1001), "hgx-h100", ("all_gather", "1001 B", "4", "0-1")),
        # A job that does not communicate, and a system that does not come in the job's size.
        (trace_of([[node(1, "COMP", micros=1)]] * 4), "hgx-h100", ("all_reduce", "64 MiB", "8", "")),
        (both(3 << 20, 1 << 10), "torus-8x8", ("all_reduce", "64 MiB", "8", "")),
    ],
)
def test_what_moves_most_is_explained_first(
    monkeypatch, trace: Trace, system: str, first: tuple[str, ...]
) -> None:
    assert begin(monkeypatch, trace, system) == first


def test_without_a_job_a_common_collective_is_explained() -> None:
    assert form.choose_first_collective({}, "hgx-h100") == ("all_reduce", "64 MiB", "8", "")
