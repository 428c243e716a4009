"""The layout of the kernel's array: named positions and the meaning of their numbers.

A module for each kind of record: `m[stream + Stream.TAG]`. They are modules, not classes, because numba takes numbers
of modules for constants.
"""

from __future__ import annotations

from studio.sim.kernel.records import action as Action
from studio.sim.kernel.records import algorithm as Algorithm
from studio.sim.kernel.records import announcement as Announcement
from studio.sim.kernel.records import bus as Bus
from studio.sim.kernel.records import callback as Callback
from studio.sim.kernel.records import channel as Channel
from studio.sim.kernel.records import collective as Collective
from studio.sim.kernel.records import custom as Custom
from studio.sim.kernel.records import dimension as Dimension
from studio.sim.kernel.records import error as Error
from studio.sim.kernel.records import extended as Extended
from studio.sim.kernel.records import flow as Flow
from studio.sim.kernel.records import graph as Graph
from studio.sim.kernel.records import group as Group
from studio.sim.kernel.records import head as Head
from studio.sim.kernel.records import job as Job
from studio.sim.kernel.records import key as Key
from studio.sim.kernel.records import kind as Kind
from studio.sim.kernel.records import label as Label
from studio.sim.kernel.records import link as Link
from studio.sim.kernel.records import lists as Lists
from studio.sim.kernel.records import log as Log
from studio.sim.kernel.records import meeting as Meeting
from studio.sim.kernel.records import member as Member
from studio.sim.kernel.records import message as Message
from studio.sim.kernel.records import network as Network
from studio.sim.kernel.records import node as Node
from studio.sim.kernel.records import op as Op
from studio.sim.kernel.records import order as Order
from studio.sim.kernel.records import outcome as Outcome
from studio.sim.kernel.records import phase as Phase
from studio.sim.kernel.records import phase_list as PhaseList
from studio.sim.kernel.records import policy as Policy
from studio.sim.kernel.records import pool as Pool
from studio.sim.kernel.records import port as Port
from studio.sim.kernel.records import queue as Queue
from studio.sim.kernel.records import rank as Rank
from studio.sim.kernel.records import real as Real
from studio.sim.kernel.records import request as Request
from studio.sim.kernel.records import ring as Ring
from studio.sim.kernel.records import slot as Slot
from studio.sim.kernel.records import stream as Stream
from studio.sim.kernel.records import tick as Tick
from studio.sim.kernel.records import tree_role as TreeRole
from studio.sim.kernel.records import turn as Turn
from studio.sim.kernel.records import use as Use
from studio.sim.kernel.records import waiter as Waiter
from studio.sim.kernel.records import waiting as Waiting
from studio.sim.kernel.records import wheel as Wheel

__all__ = [
    "Action",
    "Algorithm",
    "Announcement",
    "Bus",
    "Callback",
    "Channel",
    "Collective",
    "Custom",
    "Dimension",
    "Error",
    "Extended",
    "Flow",
    "Graph",
    "Group",
    "Head",
    "Job",
    "Key",
    "Kind",
    "Label",
    "Link",
    "Lists",
    "Log",
    "Meeting",
    "Member",
    "Message",
    "Network",
    "Node",
    "Op",
    "Order",
    "Outcome",
    "Phase",
    "PhaseList",
    "Policy",
    "Pool",
    "Port",
    "Queue",
    "Rank",
    "Real",
    "Request",
    "Ring",
    "Slot",
    "Stream",
    "Tick",
    "TreeRole",
    "Turn",
    "Use",
    "Waiter",
    "Waiting",
    "Wheel",
]
