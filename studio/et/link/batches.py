"""Messages that one kernel sends and receives together: each becomes a device operation of its own, beside the others.

`batch_isend_irecv` and NCCL's groups of calls start one kernel for several messages. What the kernel waits for each of its messages
waits for, and what waits for the kernel waits for all of them; among themselves they wait for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from studio.et.link.attribute import DeviceOperations
from studio.et.link.depend import Plan
from studio.et.link.facts import Communication, Facts
from studio.trace import Int64


def spread_batches(
    launched: DeviceOperations, communication: Communication, plan: Plan
) -> tuple[DeviceOperations, Communication, Plan]:
    """Give each message of a batch a device operation of its own, with the time and stream of the batch's kernel."""
    batches = communication.batches
    if not batches:
        return launched, communication, plan
    copies = np.ones(len(launched), np.int64)
    copies[list(batches)] = [len(messages) for messages in batches.values()]
    place = _compute_starts(copies)
    first_device = len(plan.order) - len(plan.idles) - len(launched)
    rows = np.ones(len(plan.order), np.int64)
    rows[first_device : first_device + len(launched)] = copies
    spread_operations = replace(
        launched,
        event=np.repeat(launched.event, copies),
        launch=np.repeat(launched.launch, copies),
        operator=np.repeat(launched.operator, copies),
        own_ns=np.repeat(launched.own_ns, copies),
        earlier=np.repeat(launched.earlier, copies),
    )
    moved = replace(communication, devices=_spread_facts(communication.devices, batches, place), batches={})
    return spread_operations, moved, _spread_plan(plan, rows, place)


def _spread_facts(
    facts: Mapping[int, Facts], batches: Mapping[int, tuple[Facts, ...]], place: Int64
) -> dict[int, Facts]:
    """Return the facts by the new places of device operations."""
    return {
        int(place[old]) + index: each
        for old, batch in facts.items()
        for index, each in enumerate(batches.get(old, (batch,)))
    }


def _spread_plan(plan: Plan, copies: Int64, place: Int64) -> Plan:
    """Return a plan in which each row stands as often as `copies` says; copies of a row do not wait for each other."""
    first = _compute_starts(copies)
    of_source, of_target = copies[plan.source], copies[plan.target]
    times = of_source * of_target
    edge = np.repeat(np.arange(len(times)), times)
    turn = np.arange(len(edge)) - np.repeat(_compute_starts(times), times)
    source = first[plan.source[edge]] + turn // of_target[edge]
    target = first[plan.target[edge]] + turn % of_target[edge]
    sort = np.lexsort((source, target))
    in_order = np.argsort(plan.order)
    begins = np.empty(len(copies), np.int64)
    begins[in_order] = _compute_starts(copies[in_order])
    return replace(
        plan,
        idles=replace(plan.idles, place=place[plan.idles.place]),
        source=source[sort],
        target=target[sort],
        kinds=plan.kinds[edge][sort],
        order=np.repeat(begins - first, copies) + np.arange(int(copies.sum())),
    )


def _compute_starts(counts: Int64) -> Int64:
    """Return where each of several runs of such lengths begins."""
    return np.cumsum(counts) - counts
