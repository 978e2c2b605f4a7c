"""Strongly connected parts of a graph: the nodes that reach each other. Of rules, of steps, of ways through workflows.

Tarjan, "Depth-first search and linear graph algorithms" (SIAM J. Comput. 1, 1972), on a list instead of the call stack.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from sys import maxsize
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def parts(after: Mapping[Node, Iterable[Node]]) -> list[list[Node]]:
    """Every part, also of one node, each after all that it leads to; within one, in the order in which a walk met them.
    after: by node, those that it leads to; one that is no key leads nowhere. O(nodes and edges)."""
    found: list[list[Node]] = []
    number: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    met: list[Node] = []  # and of no closed part yet
    for root in after:
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        met.append(root)
        path = [(root, iter(after[root]))]
        while path:
            node, following = path[-1]
            target = next(following, None)
            if target is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    at = len(met) - 1
                    while met[at] != node:
                        at -= 1
                    found.append(met[at:])
                    del met[at:]
                    for member in found[-1]:
                        lowest[member] = maxsize  # it is closed: nobody is as low by it
            elif target not in number:
                number[target] = lowest[target] = len(number)
                met.append(target)
                path.append((target, iter(after.get(target, ()))))
            elif lowest[target] != maxsize:
                lowest[node] = min(lowest[node], number[target])
    return found


def circles(after: Mapping[Node, Iterable[Node]]) -> list[list[Node]]:
    """The parts in which every node reaches itself: of two nodes and more, or of one with an edge to itself."""
    return [part for part in parts(after) if len(part) > 1 or part[0] in after.get(part[0], ())]
