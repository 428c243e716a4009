"""Algorithms as lists of steps: what every rank sends and receives in a phase (extended mode).

A program is what one member of a group does, step by step. The messages of a step go out and come in side
by side; the next step begins when all of them have come, and have waited at their rank as packets do: the
endpoint delay, and the time of the reduction where one is made. Of its own messages a rank awaits the arrival
too: it sends one after the other where an algorithm says so, whatever the network. That is how the literature
counts, with a message that takes alpha + bytes × beta. What comes in is taken in the order of the steps, and
waits where it is early; it may have been under way at the same time, if the network lets it.

With h the time of a message and E the endpoint delay, an algorithm of k steps one after the other takes
E + k (h + E), as the ring algorithm of the reference does.

Sources:

- Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH, IJHPCA 19(1),
  2005: binomial trees, recursive halving and doubling, ranks beyond a power of two.
- Patarasuk, Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2), 2009:
  the ring.
- Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
  Computing 35(12), 2009: trees in which the leaves of one are inner nodes of the other.
- Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications in multiport
  message-passing systems, IEEE TPDS 8(11), 1997: all-to-all in a logarithmic number of steps.
- Hensgen, Finkel, Manber, Two algorithms for barrier synchronization, International Journal of Parallel
  Programming 17(1), 1988: dissemination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

What = Literal["send", "send_wait", "receive", "reduce"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a step, seen from one rank.

    Attributes:
        what: Whether the rank sends it (and waits for its arrival), or receives it (and reduces it).
        peer: Place of the other rank in the group.
        divisor, factor: Its size is ⌊x / divisor⌋ × factor, x being the size of the chunk.
    """

    what: What
    peer: int
    divisor: int = 1
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """Messages that go at the same time; the step is done `times` times."""

    messages: tuple[Message, ...]
    times: int = 1


Program = tuple[Step, ...]


# ---------------------------------------------------------------------------------------------------
# Collectives with a root, which is place 0


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and choices that decide the steps of a collective with a root.

    Attributes:
        size: Ranks.
        divisor: Parts the data is cut into, of which messages hold some.
        spread: Whether each rank gets a part of its own (scatter) or all get the same (broadcast).
        window: Peers of the direct algorithm at a time, 0 for all.
        second: Whether it is the second of the two trees.
    """

    size: int
    divisor: int
    spread: bool
    window: int
    second: bool

    def send(self, peer: int, blocks: int = 1) -> Message:
        """Return the message to a peer, which holds the parts of so many ranks."""
        return Message("send_wait", peer, self.divisor, blocks if self.spread else 1)

    def receive(self, peer: int, blocks: int = 1) -> Message:
        """Return the message from a peer, which holds the parts of so many ranks."""
        return Message("receive", peer, self.divisor, blocks if self.spread else 1)


def build_ring_broadcast(shape: Shape, place: int) -> list[Step]:
    """A pipeline: as many pieces as ranks go from neighbour to neighbour, n - 1 + n - 1 steps of a piece."""
    size = shape.size
    send, receive = Message("send_wait", place + 1, size), Message("receive", place - 1, size)
    if size == 1:
        return []
    if place == 0:
        return [Step((send,), size)]
    if place == size - 1:
        return [Step((receive,), size)]
    return [Step((receive,)), Step((send, receive), size - 1), Step((send,))]


def build_ring_scatter(shape: Shape, place: int) -> list[Step]:
    """Blocks go from neighbour to neighbour, the one for the farthest rank first: n - 1 steps of a block."""
    beyond = shape.size - 1 - place
    send, receive = shape.send(place + 1), shape.receive(place - 1)
    if place == 0:
        return [Step((send,), beyond)] if beyond else []
    if not beyond:
        return [Step((receive,))]
    # Its own block comes last.
    return [Step((receive,)), Step((send, receive), beyond)]


def build_star(shape: Shape, place: int) -> list[Step]:
    """The root sends to all others, `window` of them at a time."""
    if place:
        return [Step((shape.receive(0),))]
    window = shape.window or max(shape.size - 1, 1)
    peers = range(1, shape.size)
    return [
        Step(tuple(shape.send(peer) for peer in peers[start : start + window]))
        for start in range(0, len(peers), window)
    ]


def build_binomial(shape: Shape, place: int) -> list[Step]:
    """Whoever has the data sends it on, the half farthest away first: ⌈log2 n⌉ steps."""
    steps = []
    bit = place & -place
    if place:
        steps.append(Step((shape.receive(place - bit, min(bit, shape.size - place)),)))
    else:
        bit = 1 << (shape.size - 1).bit_length()
    bit //= 2
    while bit:
        if place + bit < shape.size:
            steps.append(Step((shape.send(place + bit, min(bit, shape.size - place - bit)),)))
        bit //= 2
    return steps


def build_binary_tree(shape: Shape, place: int) -> list[Step]:
    """A binary tree below the root's only child; chunks use this tree and the second one in turn."""
    others = shape.size - 1
    if not others:
        return []
    label, place_of = _map_labels(others, shape.second)
    if place == 0:
        return [Step((shape.send(place_of(find_top(1, others)), others),))]
    tree = find_branch(label(place), others)
    parent = place_of(tree.parent) if tree.parent else 0
    steps = [Step((shape.receive(parent, tree.size),))]
    children = tuple(shape.send(place_of(child.label), child.size) for child in tree.children)
    return [*steps, Step(children)] if children else steps


def _map_labels(others: int, second: bool) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """Return what turns a place into a label of the tree, and back.

    In the second tree labels change between odd and even, so leaves become inner nodes: mirrored where
    their number is even, else moved on by one.
    """
    if not second:
        return (lambda place: place), (lambda label: label)
    if others % 2 == 0:
        return (lambda place: others + 1 - place), (lambda label: others + 1 - label)
    return (lambda place: place % others + 1), (lambda label: (label - 2) % others + 1)


@dataclass(frozen=True, slots=True)
class Child:
    """A child in a tree: its label, and the nodes of its branch."""

    label: int
    size: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A node's place in a tree: its parent (0: the root), the nodes from here on, and its children."""

    parent: int
    size: int
    children: tuple[Child, ...]


def find_top(low: int, high: int) -> int:
    """Return the label at the top of a tree numbered from `low` to `high` from left to right.

    The left half is full, so where `low` is odd, the leaves are the odd labels.

    Example:
        >>> [find_top(1, high) for high in (1, 2, 3, 6, 7, 8)]
        [1, 2, 2, 4, 4, 8]
    """
    return low - 1 + (1 << ((high - low + 1).bit_length() - 1))


def find_branch(label: int, count: int) -> Branch:
    """Return the place of a node in the tree of labels 1 to `count`.

    Example:
        >>> find_branch(4, 6)
        Branch(parent=0, size=6, children=(Child(label=2, size=3), Child(label=6, size=2)))
    """
    low, high, parent = 1, count, 0
    while (place := find_top(low, high)) != label:
        parent = place
        low, high = (low, place - 1) if label < place else (place + 1, high)
    ends = [(low, label - 1), (label + 1, high)]
    children = tuple(Child(find_top(first, last), last - first + 1) for first, last in ends if first <= last)
    return Branch(parent, high - low + 1, children)


def build_tree_all_reduce(size: int, place: int, *, second: bool) -> Program:
    """An all-reduce up a tree and down again, with the waits of the reference's tree.

    Places of the first tree are labels less one, the last one is the root; of the second, labels, and the
    first one is the root.
    """
    others = size - 1
    shift = 0 if second else 1
    root = 0 if second else others
    if not others:
        return ()
    if place == root:
        child = find_top(1, others) - shift
        return Step((Message("reduce", child),)), Step((Message("send", child),))
    tree = find_branch(place + shift, others)
    parent = tree.parent - shift if tree.parent else root
    if not tree.children:
        return (Step((Message("send", parent), Message("receive", parent))),)
    children = [child.label - shift for child in tree.children]
    return (
        Step(tuple(Message("reduce", child) for child in children)),
        Step((Message("send", parent), Message("reduce", parent))),
        Step(tuple(Message("send", child) for child in children)),
    )


# ---------------------------------------------------------------------------------------------------
# Halving and doubling on any number of ranks, and others of logarithmic depth


@dataclass(frozen=True, slots=True)
class _Fold:
    """A group cut down to a power of two: of the first 2 × `surplus` places, even ones leave it to the next."""

    place: int
    surplus: int
    rounds: int

    @property
    def is_out(self) -> bool:
        return self.place < 2 * self.surplus and self.place % 2 == 0

    @property
    def stands_in(self) -> bool:
        return self.place < 2 * self.surplus and self.place % 2 == 1

    @property
    def number(self) -> int:
        return self.place // 2 if self.place < 2 * self.surplus else self.place - self.surplus

    def place_of(self, number: int) -> int:
        return 2 * number + 1 if number < self.surplus else number + self.surplus

    def blocks(self, number: int, bits: int) -> int:
        """Return how many ranks those stand for whose numbers end in the same `bits` bits."""
        step = 1 << bits
        rest = number % step
        return (1 << self.rounds) // step + max(-(-(self.surplus - rest) // step), 0)


def _build_fold(size: int, place: int) -> _Fold:
    rounds = size.bit_length() - 1
    return _Fold(place, size - (1 << rounds), rounds)


def build_halving_all_reduce(size: int, place: int) -> Iterator[Step]:
    """Recursive halving, then doubling; ranks beyond the power of two give all to a neighbour, and get all back."""
    fold = _build_fold(size, place)
    if fold.is_out:
        yield Step((Message("send_wait", place + 1), Message("receive", place + 1)))
        return
    if fold.stands_in:
        yield Step((Message("reduce", place - 1),))
    for what, rounds in (("reduce", range(fold.rounds)), ("receive", reversed(range(fold.rounds)))):
        for bit in rounds:
            peer, part = fold.place_of(fold.number ^ 1 << bit), 2 << bit
            got: What = "reduce" if what == "reduce" else "receive"
            yield Step((Message("send_wait", peer, part), Message(got, peer, part)))
    if fold.stands_in:
        yield Step((Message("send_wait", place - 1),))


def build_halving_reduce_scatter(size: int, place: int) -> Iterator[Step]:
    """Recursive halving: a step passes on the blocks of all ranks on the other side, a rank keeps one in the end."""
    fold = _build_fold(size, place)
    if fold.is_out:
        yield Step((Message("send_wait", place + 1), Message("receive", place + 1, size)))
        return
    if fold.stands_in:
        yield Step((Message("reduce", place - 1),))
    for bit in range(fold.rounds):
        other = fold.number ^ 1 << bit
        sent, got = (fold.blocks(number, bit + 1) for number in (other, fold.number))
        peer = fold.place_of(other)
        yield Step((Message("send_wait", peer, size, sent), Message("reduce", peer, size, got)))
    if fold.stands_in:
        yield Step((Message("send_wait", place - 1, size),))


def build_doubling_all_gather(size: int, place: int) -> Iterator[Step]:
    """Recursive doubling: a step passes on all a rank has; ranks left out get the blocks of all others at the end."""
    fold = _build_fold(size, place)
    if fold.is_out:
        yield Step((Message("send_wait", place + 1), Message("receive", place + 1, 1, size - 1)))
        return
    if fold.stands_in:
        yield Step((Message("receive", place - 1),))
    for bit in reversed(range(fold.rounds)):
        other = fold.number ^ 1 << bit
        sent, got = (fold.blocks(number, bit + 1) for number in (fold.number, other))
        peer = fold.place_of(other)
        yield Step((Message("send_wait", peer, 1, sent), Message("receive", peer, 1, got)))
    if fold.stands_in:
        yield Step((Message("send_wait", place - 1, 1, size - 1),))


def build_bruck(size: int, place: int) -> Iterator[Step]:
    """All-to-all: step k passes on, by 2^k places, the blocks that have such a part of their way before them."""
    bit = 1
    while bit < size:
        blocks = sum(1 for distance in range(1, size) if distance & bit)
        to, source = (place + bit) % size, (place - bit) % size
        yield Step((Message("send_wait", to, size, blocks), Message("receive", source, size, blocks)))
        bit *= 2


def build_dissemination(size: int, place: int) -> Iterator[Step]:
    """A barrier by dissemination: in step k each rank notifies the one 2^k places on."""
    bit = 1
    while bit < size:
        to, source = (place + bit) % size, (place - bit) % size
        yield Step((Message("send_wait", to), Message("receive", source)))
        bit *= 2
