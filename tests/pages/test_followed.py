"""Why a callback was called: by the list of tasks alone, or for something that a user did as well."""

from __future__ import annotations

import pytest
from dash._callback_context import context_value
from dash._utils import AttributeDict

from studio.pages.base.followed import is_called_by_tasks


@pytest.mark.parametrize(
    ("reasons", "by_tasks"),
    [
        (["home-tasks-changed.data"], True),
        (["activity-known.data", "home-tasks-changed.data"], True),
        (["home-tasks-changed.data", "home-refresh.data"], False),
        (["home-refresh.data"], False),
        ([], False),
    ],
)
def test_what_a_user_did_counts_beside_a_change_of_tasks(reasons: list[str], by_tasks: bool) -> None:
    """Dash makes one call of both, and names that of the tasks first."""
    token = context_value.set(AttributeDict(triggered_inputs=[{"prop_id": reason} for reason in reasons]))
    try:
        assert is_called_by_tasks() is by_tasks
    finally:
        context_value.reset(token)
