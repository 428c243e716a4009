"""What the page Sweep concludes."""

from __future__ import annotations

from dataclasses import replace

from studio.pages.sweep.results import build_conclusion
from studio.sweep.running import Row
from studio.sweep.space import parse_space
from tests.pages.test_simulate_runs import texts

SPACE = parse_space(["bandwidth[1]=25,50,100"])
ROWS = [Row(0, 912_000, cost=1e6), Row(1, 909_000, cost=1.05e6), Row(2, 921_000, cost=1.1e6)]


def test_the_quickest_the_nearly_as_quick_and_cheaper_and_what_does_not_help_are_named() -> None:
    assert texts(build_conclusion(SPACE, ROWS, "j")) == (
        "Quickest:  bandwidth[1]=50: 909 µs for 1.05 M .  Within 1 % of it, 4.8 % cheaper:  "
        "bandwidth[1]=25: 912 µs for 1.00 M .  More bandwidth[1] is not quicker: with 100 it takes 921 µs, all else equal.  "
        "Libraries choose the way of a collective by estimates of their own;  Explain  compares the ways."
    )
    even = [replace(row, cost=None, finish_ns=900_000 - row.index * 10_000) for row in ROWS]
    assert texts(build_conclusion(SPACE, even, "j")) == "Quickest:  bandwidth[1]=100: 880 µs ."
    assert build_conclusion(SPACE, [replace(row, finish_ns=900_000) for row in ROWS], "j") is None


def test_settings_of_one_value_are_said_once_and_not_with_each_point() -> None:
    space = parse_space(["bandwidth[1]=25,50,100", "remote-mem-bw=64"])
    assert texts(build_conclusion(space, ROWS[2:] + ROWS[:2], "j")).startswith(
        "Quickest:  bandwidth[1]=50: 909 µs"
    )
    assert space.varied == ("bandwidth[1]",)
    assert parse_space(["remote-mem-bw=64"]).varied == ("remote-mem-bw",), "of a single point all are"
