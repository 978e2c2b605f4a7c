"""Strongly connected parts of a graph: the nodes that reach each other. Used for rules and for workflows.

Tarjan, "Depth-first search and linear graph algorithms" (1972), on a list instead of the call stack.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def circles(after: Mapping[Node, Iterable[Node]]) -> list[list[Node]]:
    """The parts in which every node reaches itself: of two nodes and more, or of one with an edge to itself."""
    number: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    found: list[list[Node]] = []
    for root in after:
        if root in number:
            continue
        work = [(root, iter(after[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            step = next(following, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part = _unwind(stack, on_stack, node)
                    if len(part) > 1 or node in after[node]:
                        found.append(part)
            elif step not in number:
                number[step] = low[step] = len(number)
                stack.append(step)
                on_stack.add(step)
                work.append((step, iter(after.get(step, ()))))
            elif step in on_stack:
                low[node] = min(low[node], number[step])
    return found


def _unwind(stack: list[Node], on_stack: set[Node], root: Node) -> list[Node]:
    part: list[Node] = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        part.append(node)
        if node == root:
            return part[::-1]


def round_trip(start: Node, within: set[Node], after: Mapping[Node, Iterable[Node]]) -> list[Node]:
    """A shortest way from a node back to itself, inside one part; the node itself stands first only."""
    came: dict[Node, Node] = {}
    waiting = [start]
    for node in waiting:
        for step in after.get(node, ()):
            if step == start:
                way = [node]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return way[::-1]
            if step in within and step not in came:
                came[step] = node
                waiting.append(step)
    return [start]
