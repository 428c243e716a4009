"""Loops over intervals in the order of time, for a stack of which there is no way without a loop.

They are written in the part of Python that numba compiles, see `studio.native`. Interpreted they take lists, compiled arrays.
"""

from __future__ import annotations


def find_parents(begin, end, lane, stack, parent, depth):
    """Find the innermost interval of a lane that covers each, and how many do, by lane, then begin, longer ones first.

    Intervals that overlap without covering each other count as side by side.
    """
    size = 0
    for place in range(len(begin)):
        if place > 0 and lane[place] != lane[place - 1]:
            size = 0
        while size > 0 and (end[stack[size - 1]] < end[place] or end[stack[size - 1]] <= begin[place]):
            size -= 1
        parent[place] = stack[size - 1] if size > 0 else -1
        depth[place] = size
        stack[size] = place
        size += 1


def find_before(first, begin, end, before):
    """Find when what came before each callee of a call, and before the call's end, had ended, at the earliest when the call began.

    The callees of call `n` are those from `first[n]` to `first[n + 1]`. There is a place more for each call than it has callees.
    """
    place = 0
    for call in range(len(begin)):
        latest = begin[call]
        for callee in range(first[call], first[call + 1]):
            before[place] = latest
            place += 1
            latest = max(latest, end[callee])
        before[place] = latest
        place += 1


def find_innermost(begin, end, mark, times, wanted, stack, innermost):
    """Find the innermost interval around each time, by begin, the outer ones first; times rise.

    Of those around a time the innermost whose mark is the wanted one counts, where there is one and that is no -1.
    """
    size = 0
    reached = 0
    for place in range(len(times)):
        time = times[place]
        while reached < len(begin) and begin[reached] <= time:
            while size > 0 and end[stack[size - 1]] < begin[reached]:
                size -= 1
            stack[size] = reached
            size += 1
            reached += 1
        while size > 0 and end[stack[size - 1]] < time:
            size -= 1
        inner = -1
        level = size - 1
        while level >= 0:
            row = stack[level]
            if end[row] >= time:
                if inner < 0:
                    inner = row
                if wanted[place] < 0:
                    level = 0
                elif mark[row] == wanted[place]:
                    inner = row
                    level = 0
            level -= 1
        innermost[place] = inner


def cut_out(begin, end, first, last, slots, wait_begin, wait_end, wait_until, start, took, is_after, waited):
    """Cut waits out of spans: those from `first` to `last` that begin and end in a span.

    What is left of a span is put down from `slots[span]` on: what comes before each wait, and after the last, with a 1 in
    `is_after` where it comes after one. Places that are left over get a length of -1.
    """
    for span in range(len(begin)):
        place = slots[span]
        reached = begin[span]
        after = 0
        total = 0
        for wait in range(first[span], last[span]):
            if wait_begin[wait] >= begin[span] and wait_end[wait] <= end[span]:
                start[place] = reached
                took[place] = wait_begin[wait] - reached
                is_after[place] = after
                place += 1
                reached = max(reached, wait_until[wait])
                after = 1
                total += wait_until[wait] - wait_begin[wait]
        start[place] = reached
        took[place] = end[span] - reached
        is_after[place] = after
        waited[span] = total
        for rest in range(place + 1, slots[span + 1]):
            start[rest] = end[span]
            took[rest] = -1
            is_after[rest] = 0


def put_attributes(
    first, rows, values, same, listed, lengths, reached, offsets, free, key, kind, value, length
):
    """Put the attributes of all nodes one after another, and where those of each node begin; only ever run compiled.

    The attributes added n-th are those from `first[n]` to `first[n + 1]`, by node: `same[2 * n]` and the number behind it are their
    key and kind, and `listed[n]` is where their lengths begin, -1 where they are no lists. `reached` is `first` and `offsets` is 0 at
    the beginning. As many nodes as `free` has places are gone through at a time, so that what is written stays at hand.
    """
    nodes = len(offsets) - 1
    begin = 0
    # No range: of a step that could be 0 it raises, and code that raises needs Python and cannot be kept.
    while begin < nodes:
        end = min(begin + len(free), nodes)
        for added in range(len(reached)):
            at = reached[added]
            while at < first[added + 1] and rows[at] < end:
                offsets[rows[at] + 1] += 1
                at += 1
        for node in range(begin, end):
            free[node - begin] = offsets[node]
            offsets[node + 1] += offsets[node]
        for added in range(len(reached)):
            at = reached[added]
            while at < first[added + 1] and rows[at] < end:
                place = free[rows[at] - begin]
                free[rows[at] - begin] = place + 1
                key[place] = same[2 * added]
                kind[place] = same[2 * added + 1]
                value[place] = values[at]
                length[place] = lengths[listed[added] + at - first[added]] if listed[added] >= 0 else 0
                at += 1
            reached[added] = at
        begin = end
