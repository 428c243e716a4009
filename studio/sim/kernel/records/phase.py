"""A phase of streams (SEMANTICS 5.3)."""

from __future__ import annotations

TYPE = 0  # see `Collective`
ALGORITHM = 1  # see `Algorithm`
WINDOW = 2  # window of the direct algorithm; 0 for none
N = 3  # members of the dimension; 0 for the comm group's
STRIDE = 4  # their distance in rank numbers; 0 in comm groups
DIM = 5  # dimension whose queues it takes
ROLE = 6  # which of them
TREE = 7  # counter of trees; -1 without
LOCAL = 8  # whether its endpoint delay is that of comm groups
MESSAGE_DIM = 9  # dimension in which all its messages go; -1 where that differs
TABLE = 10  # nodes of a collective given as a trace, or programs
LAST = 11  # whether no other follows
SCALE = 12  # what becomes of the size
NAME = 13  # name of its kind of neighbourhood in folded runs
WORDS = 16  # words of a record
# Roles
NORMAL = 0
UP = 1
DOWN = 2
# The size stays, is divided by the members, or multiplied by them
KEEP = 0
SHRINK = 1
GROW_BY = 2
