"""Kinds of dimensions, and on which links messages wait for each other."""

from __future__ import annotations

FULLY_CONNECTED = 0
SWITCH = 1
RING = 2
TRAFFIC_WORDS = 2  # words for what a rank sends into a dimension: bytes, messages
# What `Head.AWARE` says
UNAWARE = 0  # messages wait for nothing
ONE_DIMENSION = 1  # links of the only dimension
PRODUCT = 2  # links of several dimensions
SINGLE_LINKS = 3  # single links
