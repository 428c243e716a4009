"""What the form of Explain begins with."""

from __future__ import annotations

from typing import Any

from studio.errors import StudioError
from studio.pages.base.state import RECORDED, session
from studio.sim.systems.proposals import system_of_recording

RUN, DEFAULT_SYSTEM = "run", "hgx-h100"


def first_system(view: dict[str, Any]) -> str:
    """Return the system to begin with: of the shown run, else of the devices that the job was recorded on, else a common one."""
    if view.get("run") not in (None, "", RECORDED):
        return RUN
    try:
        found = system_of_recording(session().trace(str(view["job"]))) if view.get("job") else None
    except StudioError:
        return DEFAULT_SYSTEM  # The page needs no job.
    # Without costs there is nothing to explain.
    return found[0].name if found is not None and found[0].costs is not None else DEFAULT_SYSTEM
