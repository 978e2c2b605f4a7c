"""Sets of rules as whole numbers: bit i stands for rule i, so that one `and` compares a rule with all others at once.

A policy of 20,000 rules has 200 million pairs, and as bits they are 3 million machine words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def members(bits: int) -> Iterator[int]:
    """The numbers in a set, least first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def first(bits: int) -> int:
    """The least number of a set that is not empty."""
    return (bits & -bits).bit_length() - 1


def bits_of(numbers: Iterable[int], size: int) -> int:
    """The set of some numbers below `size`; made at once, where one by one would copy it each time."""
    row = bytearray(size // 8 + 1)
    for number in numbers:
        row[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(row, "little")


def circles_of(nodes: int, after: Callable[[int], int], before: Callable[[int], int]) -> list[int]:
    """The parts of a graph in which every node reaches itself, where no node leads to itself directly.

    after, before: the edges out of a node and into it, as sets. Each is asked at most twice a node. Sharir, "A strong
    connectivity algorithm" (1981): the order in which nodes are left behind, then the graph backwards.
    """
    left: list[int] = []
    unseen = nodes
    while unseen:
        start = first(unseen)
        unseen ^= 1 << start
        path = [(start, after(start))]
        while path:
            node, ways = path[-1]
            ways &= unseen
            if not ways:
                left.append(node)
                path.pop()
                continue
            step = first(ways)
            path[-1] = (node, ways ^ 1 << step)
            unseen ^= 1 << step
            path.append((step, after(step)))
    found: list[int] = []
    unseen = nodes
    for root in reversed(left):
        if not unseen >> root & 1:
            continue
        part, waiting = 0, 1 << root
        unseen ^= waiting
        while waiting:
            node = first(waiting)
            waiting ^= 1 << node
            part |= 1 << node
            fresh = before(node) & unseen
            unseen ^= fresh
            waiting |= fresh
        if part & (part - 1):
            found.append(part)
    return found
