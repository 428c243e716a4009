"""Chakra Studio: read, look at, compare and simulate Chakra execution traces.

>>> import studio
>>> trace = studio.read("path/to/traces")  # doctest: +SKIP
"""

from __future__ import annotations

from studio.errors import ConfigError, StudioError, TraceError, TraceFormatError

# Not from typing: the first milliseconds of a command, in which Ctrl+C cannot be caught yet, are these imports.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from studio.analysis.job.export import to_networkx, to_pandas
    from studio.doctor import examine, repair
    from studio.et.job import link, read
    from studio.et.link.options import LinkOptions
    from studio.et.write import write
    from studio.sim import simulate
    from studio.sim.astra import read_config, write_config
    from studio.sim.config import SystemConfig
    from studio.sim.presets import preset
    from studio.store.workspace import Workspace
    from studio.trace import Trace

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "LinkOptions",
    "StudioError",
    "SystemConfig",
    "Trace",
    "TraceError",
    "TraceFormatError",
    "Workspace",
    "examine",
    "link",
    "preset",
    "read",
    "read_config",
    "repair",
    "simulate",
    "to_networkx",
    "to_pandas",
    "write",
    "write_config",
]

_WHERE = {
    "examine": "studio.doctor",
    "LinkOptions": "studio.et",
    "link": "studio.et",
    "preset": "studio.sim.presets",
    "read": "studio.et",
    "read_config": "studio.sim.astra",
    "repair": "studio.doctor",
    "simulate": "studio.sim",
    "SystemConfig": "studio.sim.config",
    "to_networkx": "studio.analysis.job.export",
    "to_pandas": "studio.analysis.job.export",
    "Trace": "studio.trace",
    "Workspace": "studio.store.workspace",
    "write": "studio.et",
    "write_config": "studio.sim.astra",
}


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that importing the package costs next to nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module 'studio' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
