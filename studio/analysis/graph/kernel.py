"""Loops over the nodes and dependencies of a graph, one after another: in arrays a step for each layer would take minutes.

They are written in the part of Python that numba compiles, see `studio.native`. Interpreted they take lists, compiled arrays.
All lists but what is given are full of zeros, unless a function says otherwise.
"""

from __future__ import annotations


def push(heap, size, value):
    """Add a value to a heap of so many, whose lowest is the first; nothing lies at place 0."""
    place = size + 1
    while place > 1 and heap[place // 2] > value:
        heap[place] = heap[place // 2]
        place //= 2
    heap[place] = value


def pop(heap, size):
    """Take the lowest value out of a heap of so many, and return it."""
    lowest = heap[1]
    last = heap[size]
    place = 1
    child = 2
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            child = size
        else:
            heap[place] = heap[child]
            place = child
            child = 2 * place
    heap[place] = last
    return lowest


def list_children(of, waited, first, children, left):
    """List who waits for each node: for node `n` the children from `first[n]` to `first[n + 1]`; and for how many it waits itself."""
    for entry in range(len(of)):
        first[waited[entry] + 2] += 1
    for place in range(2, len(first)):
        first[place] += first[place - 1]
    for entry in range(len(of)):
        place = first[waited[entry] + 1]
        children[place] = of[entry]
        first[waited[entry] + 1] = place + 1
        left[of[entry]] += 1


def release(row, first, children, left, free, size):
    """Add those that waited for a node last to the free ones, of which there are so many; returns how many there are then."""
    for place in range(first[row], first[row + 1]):
        child = children[place]
        left[child] -= 1
        if left[child] == 0:
            free[size] = child
            size += 1
    return size


def find_issue_order(of, waited, place, at, first, children, left, ready, order):
    """Find the order in which nodes are issued that take no time; returns how many are, which those on and behind cycles are not.

    Given are the dependencies, `of[n]` on `waited[n]`, the place of each node by id, and which node is `at` each place.
    `order` gets nodes. Known on the way are who waits for each node and for how many it waits (see `list_children`), and
    the places of those that are `ready`, a heap.
    """
    list_children(of, waited, first, children, left)
    size = 0
    for row in range(len(place)):
        if left[row] == 0:
            push(ready, size, place[row])
            size += 1
    done = 0
    while size > 0:
        row = at[pop(ready, size)]
        size -= 1
        order[done] = row
        done += 1
        for entry in range(first[row], first[row + 1]):
            child = children[entry]
            left[child] -= 1
            if left[child] == 0:
                push(ready, size, place[child])
                size += 1
    return done


def find_last_before(of, waited, order, place, lane, low, width, first, parents, count, seen, previous):
    """Find the last operation of its own lane that comes before each, through however many nodes, -1 where there is none.

    Given are the dependencies, `of[n]` on `waited[n]`, the nodes in an `order` in which each comes after what it waits for,
    the `place` of each among the operations, -1 where it is none, and the `lane` of each operation. Only those of `width`
    lanes are looked at, from `low` on.

    Known on the way are the `parents` of each node and their `count` (see `list_children`), and the last operation that was
    `seen` of each lane when a node has ended, which is full of -1 before.
    """
    list_children(waited, of, first, parents, count)
    for step in range(len(order)):
        row = order[step]
        own = row * width
        for entry in range(first[row], first[row + 1]):
            other = parents[entry] * width
            for column in range(width):
                seen[own + column] = max(seen[own + column], seen[other + column])
        if place[row] >= 0:
            column = lane[place[row]] - low
            if 0 <= column < width:
                previous[place[row]] = seen[own + column]
                seen[own + column] = max(seen[own + column], place[row])


def find_certain_order(of, waited, turn, rows, first, children, left, behind, free, sure, unsure, order):
    """Find the order in which nodes that take turns begin, as far as it is certain; returns how many of it are.

    Given are the dependencies, `of[n]` on `waited[n]`, and the nodes that take turns, by id: `rows`, and the place there of
    each node, -1 where it takes no turn. `order` gets their rows.

    Known on the way are who waits for each node (see `list_children`), for how many it waits (`left`), whether one of them
    takes no turn (`behind`), so that nobody knows when it is ready, the nodes that are `free`, and of those that take
    turns two heaps of places: `sure` are ready when the one before has ended, `unsure` at some time.
    """
    list_children(of, waited, first, children, left)
    for entry in range(len(of)):
        if turn[waited[entry]] < 0:
            behind[of[entry]] = 1
    size = 0
    for row in range(len(turn)):
        if left[row] == 0:
            free[size] = row
            size += 1
    known = 0
    doubted = 0
    done = 0
    while True:
        # Nodes that take no turn are passed over, up to those that do.
        while size > 0:
            size -= 1
            row = free[size]
            if turn[row] < 0:
                size = release(row, first, children, left, free, size)
            elif behind[row]:
                push(unsure, doubted, turn[row])
                doubted += 1
            else:
                push(sure, known, turn[row])
                known += 1
        # At the very beginning only nodes without dependencies are ready.
        if known > 0 and (done == 0 or doubted == 0 or sure[1] < unsure[1]):
            row = rows[pop(sure, known)]
            known -= 1
        elif known == 0 and doubted == 1:
            row = rows[unsure[1]]
            doubted = 0
        else:
            return done
        order[done] = row
        done += 1
        size = release(row, first, children, left, free, size)


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
    count = 0
    for row in range(len(missing)):
        if missing[row] == 0:
            order[count] = row
            count += 1
    done = 0
    while done < count:
        row = order[done]
        done += 1
        count = release(row, first, following, missing, order, count)
    return count


def find_own_pieces(begin, end, lane, wanted, floats, follows, stack, reached, of, since, until, waited):
    """Find when calls ran themselves, between the calls that they made; returns how many such pieces there are.

    Intervals come by lane, then begin, longer ones first. Within a lane the latest begun of those under way runs, and the pieces of
    those that are `wanted` are told: `of` which interval each is, `since` when, `until` when, and whether what ended it `follows` a
    wait. Intervals that overlap without covering each other count as side by side; of these what `floats` does not hold up its lane.

    Known on the way are the intervals under way, and up to where each of them has been told (`reached`).
    """
    size = 0
    count = 0
    for place in range(len(begin) + 1):
        changes = place == len(begin) or (place > 0 and lane[place] != lane[place - 1])
        # What is over, or overlaps what begins, has run for the last time; what floats ends nothing that it overlaps.
        while size > 0 and (
            changes
            or end[stack[size - 1]] <= begin[place]
            or (not floats[place] and end[stack[size - 1]] < end[place])
        ):
            size -= 1
            call = stack[size]
            if wanted[call] and reached[size] < end[call]:
                of[count] = call
                since[count] = reached[size]
                until[count] = end[call]
                count += 1
        if place < len(begin) and (size == 0 or end[stack[size - 1]] >= end[place]):
            if size > 0:
                call = stack[size - 1]
                if wanted[call] and reached[size - 1] < begin[place]:
                    of[count] = call
                    since[count] = reached[size - 1]
                    until[count] = begin[place]
                    waited[count] = follows[place]
                    count += 1
                reached[size - 1] = max(reached[size - 1], end[place])
            stack[size] = place
            reached[size] = begin[place]
            size += 1
    return count
