"""Packets of streams (SEMANTICS.md, section 6): what they wait for, and what they send and receive when they are free.

Packets wait the endpoint delay, then, where they reduce, the time of two reads and a write (a second action, even where
it takes no time), then let the algorithm send one message and post one receive.
"""

from __future__ import annotations

from studio.sim.kernel.records import Phase, Real, Stream


def get_peer(m, s, index):
    """Return the rank at a place of the stream's current dimension or group."""
    stride = m[s + Stream.STRIDE]
    if stride > 0:
        return m[s + Stream.BASE] + index * stride
    return m[m[s + Stream.BASE] + index]


def name_message(m, s, a, b, far):
    """Return what names a message from place `a` to place `b` of a stream's dimension or group, `far` apart.

    Where one rank stands for many: the classes of both (in a group with the number that each has for the group),
    the kind of neighbourhood, and how far they are apart.
    """
    codes = m[s + Stream.CODES]
    if codes == 0:
        return (get_peer(m, s, a) << 20) | get_peer(m, s, b)
    if m[s + Stream.STRIDE] > 0:
        a = get_peer(m, s, a)
        b = get_peer(m, s, b)
    return (m[m[s + Stream.PHASE] + Phase.NAME] << 60) | (far << 40) | (m[codes + a] << 20) | m[codes + b]


def compute_reduction(f, size):
    """Return the time of reducing a message: two reads and a write of local memory, each truncated."""
    if f[Real.LOCAL_MEMORY] == 0:
        return 0
    return 3 * int(size / f[Real.LOCAL_MEMORY] * 1e9)
