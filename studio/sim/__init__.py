"""The analytical simulator: how long a job takes on a system.

A setting, its limit and its default are one row of `settings.py`; the product of all dimensions is checked by `Topology` in `config.py`.
`parts.py` reads and writes the tables of a system, `setting_edits.py` changes single settings of them. `plan.py` says what the kernel is
given, `kernel/` how it behaves, a module per section of the reference's rules. A collective algorithm is a row of `algorithms.py` and its
steps in `programs.py`; those of files are timed by `algorithm_files.py`. `costs/` says what a collective costs on a machine;
`flow_plans.py` what there is to time, `charges.py` what is charged, `node_links.py` which links lie between pairs in a node. `systems/`
has the presets, `infragraph.py` networks from InfraGraph and `infragraph_writer.py` networks for it, `explaining.py` what a collective's
time is made of, `known.py` what simulations of one trace have in common. `recorded_order.py` orders a replay by recorded times where
dependencies do not tell the order: by what nodes waited for (`recorded_waits.py`), in a graph of its own (`ordered_graph.py`). `check.py`
says before a run what would keep it from ending: of ranks and system itself, of graphs by `graph_checks.py`, of collectives by
`collective_checks.py`, of what ranks disagree in by `agreement.py`; `crossings.py` finds messages that are timed in one dimension of
several. `folding.py` finds the ranks that one stands for, by the facts in `fold_job.py`.

`simulate` plays a trace on a described system. Under the model `astra-sim` its clock and its order of events are those
of ASTRA-sim's analytical simulator, so its answers are the same to the nanosecond; `studio.sim.models` says what the
full model does beyond it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from studio.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from studio.sim.config import SystemConfig
    from studio.sim.models import Model
    from studio.sim.presets import Preset
    from studio.sim.result import SimResult
    from studio.trace import Trace

__all__ = ["simulate"]


def simulate(  # noqa: PLR0913 (one call with many options)
    trace: Trace,
    config: SystemConfig | Preset,
    *,
    model: Model | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
    native: bool | None = None,
    notice: Callable[[str], None] | None = None,
    fold: bool = True,
) -> SimResult:
    """Simulate a job on a system; `studio.doubts_of` says why an answer is not to be believed as it stands.

    Args:
        trace: One graph per rank, one rank per NPU.
        config: The system it runs on, or the preset of it.
        model: `full`, or `astra-sim` for the answers of the reference; None is that of the system
            (`SystemConfig.model`), which is `full` for presets. See `studio.sim.models`.
        progress: Told now and then the nodes completed so far, and the nodes in all.
        cancel: Asked now and then whether to stop.
        native: Whether to run compiled; interpreted is a hundred times slower and starts at once. None: compiled
            where that gives the answer sooner.
        notice: Told what is waited for, where the compiler has to run first, and what is assumed: a remote memory, where the job
            loads or stores, the system has none and the model is `full`, as the command does (`SimResult.config` has it).
        fold: Whether one rank may stand for all that are equivalent to it, where that gives the same answer;
            see `studio.sim.folding`. The order of events across ranks is known only without.

    Raises:
        TraceError: The trace cannot be simulated, or some ranks wait for ever.
        ConfigError: The configuration does not fit the trace, or is none.
        Cancelled: `cancel` said so.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
        SimResult(finish ..., 8 ranks, 4,976 events)
    """
    from studio.sim.config import SystemConfig
    from studio.sim.play import play
    from studio.sim.presets import Preset

    if isinstance(config, Preset):
        config = config.config
    if not isinstance(config, SystemConfig):
        raise ConfigError(
            f"the system is {str(config)[:80]!r}; allowed: a SystemConfig or a preset",
            hint='studio.preset("hgx-h100", npus=8) is one.',
        )
    if model is not None:
        from studio.sim.models import MODELS, apply_model

        if model not in MODELS:
            raise ConfigError(f"model is {model!r:.80}; allowed: {', '.join(MODELS)}", key="model")
        config = apply_model(config, model)
    if config.model == "full" and config.remote_memory is None:
        from studio.sim.remote_memory import FINDING, build_assumed_memory, needs_memory

        if needs_memory(trace):
            config = replace(config, remote_memory=build_assumed_memory())
            if notice is not None:
                notice(FINDING.message)
    return play(trace, config, progress=progress, cancel=cancel, native=native, notice=notice, fold=fold)[0]
