"""Loops over the dependencies of a graph, one after another, where a step for each layer would take minutes.

They are written in the part of Python that numba compiles, see `studio.native`. Interpreted they take lists, compiled arrays.
"""

from __future__ import annotations


def find_layers(before, after, layer):
    """Find the longest chain of dependencies that ends in each row; they come in an order in which chains grow."""
    for place in range(len(before)):
        reached = layer[before[place]]
        if layer[after[place]] <= reached:
            layer[after[place]] = reached + 1


def find_order(first, following, missing, order):
    """Put rows in an order in which each follows all it waits for, those of equal right as they are found; returns how many.

    What waits for row `n` are the rows in `following` from `first[n]` to `first[n + 1]`; `missing` says for how many each waits.
    """
    found = 0
    for row in range(len(missing)):
        if missing[row] == 0:
            order[found] = row
            found += 1
    done = 0
    while done < found:
        row = order[done]
        done += 1
        for place in range(first[row], first[row + 1]):
            other = following[place]
            missing[other] -= 1
            if missing[other] == 0:
                order[found] = other
                found += 1
    return found
