"""What Overview says of where a job comes from."""

from __future__ import annotations

from types import SimpleNamespace

from studio.pages.overview.words import doubt_lines, imported_from
from studio.sim.doubt import Doubt
from tests.pages.test_simulate_runs import texts


def test_many_paths_are_the_first_and_a_count_with_all_of_them_behind() -> None:
    assert texts(imported_from("")) == ""
    assert texts(imported_from("/data/run.tar")) == "imported from /data/run.tar"
    paths = [f"/data/dlrm, 4 ranks/kineto_{at}.json" for at in range(8)]
    told = texts(imported_from("\n".join(paths)))
    assert told == " ".join(["imported from kineto_0.json, kineto_1.json and 6 more", *paths])
    many = texts(imported_from("\n".join(f"/data/{at}" for at in range(1200))))
    assert many.startswith("imported from 0, 1 and 1,198 more /data/0 /data/1 ")
    assert many.endswith(" /data/499 and 700 more")


def test_why_a_run_is_doubtful_is_said_on_its_overview() -> None:
    info = SimpleNamespace(job="j", id="r", doubts=(Doubt("a", "32 collectives are extrapolated.", False),))
    assert texts(doubt_lines(info)) == (
        "doubtful  32 collectives are extrapolated. Simulate: what to do about it"
    )
    assert doubt_lines(SimpleNamespace(doubts=())) is doubt_lines(None) is None
