"""Settings that are given and change nothing, because costs time what they would shape."""

from __future__ import annotations

from collections.abc import Iterable

from studio.errors import ConfigError
from studio.sim.config import SystemConfig
from studio.sim.setting_edits import find_setting
from studio.trace import Finding

WITHOUT_EFFECT = "settings-without-effect"
"""Code of the warning."""


def find_idle_settings(given: Iterable[str], config: SystemConfig) -> Finding | None:
    """Return a warning that names the given settings that change nothing on a system whose costs time collectives; None for none.

    Args:
        given: Keys as `--set` takes them.
        config: The system with them.

    Example:
        >>> import studio
        >>> found = find_idle_settings(["bandwidth[0]", "preferred-dataset-splits"], studio.presets["hgx-h100-8"].config)
        >>> found.message
        "preferred-dataset-splits changes nothing: the system's costs time collectives and messages whole, not step by step."
    """
    if not config.flows:
        return None
    idle = [key for key in dict.fromkeys(given) if _is_of_steps(key)]
    if not idle:
        return None
    verb = "changes" if len(idle) == 1 else "change"
    return Finding(
        "warning",
        WITHOUT_EFFECT,
        f"{', '.join(idle)} {verb} nothing: the system's costs time collectives and messages whole, not step by step.",
        "costs.algorithm=NAME chooses the algorithm that is charged; with --model astra-sim steps are simulated.",
    )


def _is_of_steps(key: str) -> bool:
    try:
        return find_setting(key.partition("[")[0])[0].of_steps
    except ConfigError:
        return False  # Of the costs, or of a sweep alone.
