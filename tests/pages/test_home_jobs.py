"""What Home says of a job in the list of recent ones."""

from __future__ import annotations

from studio.pages.home.words import describe_hypothetical
from studio.session import Session
from studio.store.workspace import Workspace
from studio.views.trends import list_points
from tests.small_jobs import some


def test_a_job_made_for_advice_is_said_to_be_hypothetical_and_left_out_of_trends(tmp_path):
    store = Workspace(tmp_path)
    mine = store.save(some(), "gpt")
    changed = store.save(some(), "gpt (no host gaps)", hypothetical="no host gaps")
    [shown] = describe_hypothetical(store.info(changed))
    assert (shown.children, shown.title) == (" · hypothetical, made for advice", "no host gaps")
    assert describe_hypothetical(store.info(mine)) == []
    assert [point.job for point in list_points(Session(store))] == [mine]
