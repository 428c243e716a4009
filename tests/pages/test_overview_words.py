"""What Overview says of where a job comes from."""

from __future__ import annotations

from types import SimpleNamespace

from studio.pages.overview.words import build_doubt_lines, build_source
from studio.sim.doubt import Doubt
from tests.pages.test_simulate_runs import texts


def test_many_paths_are_the_first_and_a_count_with_all_of_them_behind() -> None:
    assert texts(build_source("")) == ""
    assert texts(build_source("/data/run.tar")) == "imported from /data/run.tar"
    paths = [f"/data/dlrm, 4 ranks/kineto_{at}.json" for at in range(8)]
    told = texts(build_source("\n".join(paths)))
    assert told == " ".join(["imported from kineto_0.json, kineto_1.json and 6 more", *paths])
    many = texts(build_source("\n".join(f"/data/{at}" for at in range(1200))))
    assert many.startswith("imported from 0, 1 and 1,198 more /data/0 /data/1 ")
    assert many.endswith(" /data/499 and 700 more")


def test_why_a_run_is_doubtful_is_said_on_its_overview() -> None:
    info = SimpleNamespace(job="j", id="r", doubts=(Doubt("a", "32 collectives are extrapolated.", False),))
    assert texts(build_doubt_lines(info)) == (
        "doubtful  32 collectives are extrapolated. Simulate: what to do about it"
    )
    assert build_doubt_lines(SimpleNamespace(doubts=())) is build_doubt_lines(None) is None
