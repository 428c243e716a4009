"""Chakra Studio: read, look at, compare and simulate Chakra execution traces.

In a notebook a value shows itself as a table; `studio.figures` has plotly figures.

Example:
    >>> import studio
    >>> trace = studio.read(studio.sample_path("transformer_8r"))
    >>> trace
    Trace(8 ranks, 8 graphs, 2,488 nodes, 13 comm groups, 0 findings)
    >>> result = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
    >>> len(result.finish_ns)
    8
"""

from __future__ import annotations

from studio.errors import ConfigError, StudioError, TraceError, TraceFormatError

# Not from typing: the first milliseconds of a command, in which Ctrl+C cannot be caught yet, are these imports.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from studio import figures, formats
    from studio.analysis.job.export import to_arrow, to_networkx, to_pandas
    from studio.completion import complete
    from studio.doctor import examine, repair
    from studio.et.job import link, read
    from studio.et.link.options import LinkOptions
    from studio.et.write import write
    from studio.feeder import Feeder
    from studio.generation import generate, generate_inference
    from studio.layout_search import plan
    from studio.operators import list_operators
    from studio.samples import sample_path
    from studio.sim import simulate
    from studio.sim.astra import read_config, write_config
    from studio.sim.compared import compare, critical_path
    from studio.sim.config import SystemConfig
    from studio.sim.doubts import doubts_of
    from studio.sim.presets import preset, presets
    from studio.sim.retargeting import retarget
    from studio.sql.values import query
    from studio.store.workspace import Workspace
    from studio.timeline import Timeline, recorded
    from studio.trace import Rank, Trace

__version__ = "0.2.0"
__all__ = [
    "ConfigError",
    "Feeder",
    "LinkOptions",
    "Rank",
    "StudioError",
    "SystemConfig",
    "Timeline",
    "Trace",
    "TraceError",
    "TraceFormatError",
    "Workspace",
    "compare",
    "complete",
    "critical_path",
    "doubts_of",
    "examine",
    "figures",
    "formats",
    "generate",
    "generate_inference",
    "link",
    "list_operators",
    "plan",
    "preset",
    "presets",
    "query",
    "read",
    "read_config",
    "recorded",
    "repair",
    "retarget",
    "sample_path",
    "simulate",
    "to_arrow",
    "to_networkx",
    "to_pandas",
    "write",
    "write_config",
]

_WHERE = {
    "Feeder": "studio.feeder",
    "LinkOptions": "studio.et",
    "Rank": "studio.trace",
    "SystemConfig": "studio.sim.config",
    "Timeline": "studio.timeline",
    "Trace": "studio.trace",
    "Workspace": "studio.store.workspace",
    "compare": "studio.sim.compared",
    "complete": "studio.completion",
    "critical_path": "studio.sim.compared",
    "doubts_of": "studio.sim.doubts",
    "examine": "studio.doctor",
    "generate": "studio.generation",
    "generate_inference": "studio.generation",
    "link": "studio.et",
    "list_operators": "studio.operators",
    "plan": "studio.layout_search",
    "preset": "studio.sim.presets",
    "presets": "studio.sim.presets",
    "query": "studio.sql.values",
    "read": "studio.et",
    "read_config": "studio.sim.astra",
    "recorded": "studio.timeline",
    "repair": "studio.doctor",
    "retarget": "studio.sim.retargeting",
    "sample_path": "studio.samples",
    "simulate": "studio.sim",
    "to_arrow": "studio.analysis.job.export",
    "to_networkx": "studio.analysis.job.export",
    "to_pandas": "studio.analysis.job.export",
    "write": "studio.et",
    "write_config": "studio.sim.astra",
}
_MODULES = ("figures", "formats")


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that importing the package costs next to nothing."""
    if name not in _WHERE and name not in _MODULES:
        raise AttributeError(f"module 'studio' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"studio.{name}")
    value = getattr(import_module(_WHERE[name]), name)
    from types import FunctionType

    if isinstance(value, FunctionType):
        # Errors of the library speak of arguments, those of the command line of options.
        return import_module("studio.arguments").get_library_function(name, value)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
