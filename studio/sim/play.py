"""Plan a simulation, run it, and read its result; planned again rank by rank where ranks turn out not to fold."""

from __future__ import annotations

from studio.analysis.job.renumbered import share_graphs
from studio.errors import StudioError
from studio.sim.borders import find_recording_borders
from studio.sim.config import SystemConfig
from studio.sim.engine import Cancel, Notice, Progress, execute, explain_stop
from studio.sim.known import Known
from studio.sim.matched import replays_communication
from studio.sim.plan import Plan, make_plan
from studio.sim.recorded_order import find_orders, order_by_times
from studio.sim.result import SimResult, read_result
from studio.sim.retargeting import recompute_job
from studio.trace import Trace


def play(  # noqa: PLR0913 (what `studio.sim.simulate` takes)
    trace: Trace,
    config: SystemConfig,
    *,
    known: Known | None = None,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    native: bool | None = None,
    notice: Notice | None = None,
    fold: bool = True,
    recorded: Trace | None = None,
) -> tuple[SimResult, Plan]:
    """Return what `studio.sim.simulate` does, with the plan that was run.

    Args:
        trace: The job.
        config: The system, under the model that counts.
        known: What earlier simulations of the trace have in common with this one.
        progress: Told now and then the nodes completed so far, and the nodes in all.
        cancel: Asked now and then whether to stop.
        native: Whether to run compiled; None where that is sooner done.
        notice: Told what is waited for, where the compiler has to run first.
        fold: Whether one rank may stand for all that are equivalent to it.
        recorded: The job as it was recorded, where durations of `trace` were changed; a replay may have to take its order from that.

    Raises:
        TraceError: The trace cannot be simulated, or some ranks wait for ever.
        ConfigError: The configuration does not fit the trace.
        Cancelled: `cancel` said so.
    """
    settled = _settle_borders(trace, config, known)
    if replays_communication(config) and not config.replay_only:
        settled = _order_replay(settled, recorded, known)
    played, _ = recompute_job(settled, config)
    # What is known of the recorded job does not hold of one that was changed, as one recomputed for another GPU.
    known = known if played is trace else None
    # An algorithm of a single node is given by the node's id.
    shared = played if config.custom_nodes else share_graphs(played)
    try:
        plan = make_plan(shared, config, folded=fold, known=known)
    except StudioError:
        if shared is played:
            raise
        # What is wrong is said of the rank's own node.
        plan, shared = make_plan(played, config, folded=fold), played
    reason = plan.unfolded
    if plan.folding is not None:
        execute(plan, progress=progress, cancel=cancel, native=native, notice=notice)
        reason = explain_stop(plan)
        if reason:
            plan = make_plan(shared, config, known=known)
    if plan.folding is None:
        execute(plan, progress=progress, cancel=cancel, native=native, notice=notice)
    return read_result(trace, config, plan, reason), plan


def _order_replay(trace: Trace, recorded: Trace | None, known: Known | None) -> Trace:
    """Return the job in the order of its recorded times, where its dependencies do not hold what a replay needs."""
    if recorded is None or known is None:
        return order_by_times(trace, recorded)
    # Of all changes of a job the recording is the same one.
    return order_by_times(trace, recorded, known.once("recorded orders", None, lambda: find_orders(recorded)))


def _settle_borders(trace: Trace, config: SystemConfig, known: Known | None) -> Trace:
    """Return the job in which collectives at the borders of a recording take the time they were recorded with; ASTRA-sim knows none."""
    if config.extensions is None:
        return trace
    borders = (
        find_recording_borders(trace, config)
        if known is None
        else known.once(
            "borders", (config.groups, config.replay_only), lambda: find_recording_borders(trace, config)
        )
    )
    return trace if borders is None else borders.without_waiting(trace)
