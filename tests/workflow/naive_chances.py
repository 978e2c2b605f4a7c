"""How likely a node runs again, worked out the long way: every count of every bounded loop, swept until nothing moves.

Shares with the product the graph, the marks on it, and what a run may choose behind a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position

SWEEPS, ENOUGH = 100_000, 1e-14


class Swept:
    """The chances of one node from all others."""

    def __init__(self, position: Position, node: int, taken: Sequence[int] = ()) -> None:
        self.position, self.graph, self.node, self.taken = position, position.graph, node, taken
        edges = enumerate(self.graph.edges)
        self.loops = {e: edge.at_most - position.taken[e] for e, edge in edges if edge.at_most is not None}
        self.after: dict[tuple[int, ...], list[float]] = {}
        for left in product(*(range(max(0, most) + 1) for most in self.loops.values())):
            self.after[left] = [0.0] * len(self.graph.names)
            self.sweep(left)

    def sweep(self, left: tuple[int, ...]) -> None:
        values = self.after[left]
        gone = self.position.used_up | {e for e, now in zip(self.loops, left, strict=True) if not now}
        chosen = [self.graph.ways.chances(index, gone, self.taken) for index in range(len(values))]
        for _ in range(SWEEPS):
            most = 0.0
            for index, choices in enumerate(chosen):
                value = sum(chance * max(self.by(e, left) for e in edges) for chance, edges in choices)
                most, values[index] = max(most, value - values[index]), value
            if most < ENOUGH:
                return

    def by(self, e: int, left: tuple[int, ...]) -> float:
        """From the start of the node that an edge leads to."""
        if e in self.loops and self.graph.targets[e] != self.node:
            left = tuple(now - (other == e) for other, now in zip(self.loops, left, strict=True))
        return self.started(self.graph.targets[e], left)

    def started(self, index: int, left: tuple[int, ...]) -> float:
        return 1.0 if index == self.node else max(self.after[left][index], self.calls(index, left))

    def calls(self, index: int, left: tuple[int, ...]) -> float:
        edges = [(self.graph.edges[e], self.graph.targets[e]) for e in self.graph.out_of[index]]
        of = [(edge.probability, self.started(target, left)) for edge, target in edges if edge.calls]
        return max(((1.0 if chance is None else chance) * value for chance, value in of), default=0.0)

    def now(self) -> float:
        """From where the run stands."""
        start, best = tuple(max(0, most) for most in self.loops.values()), 0.0
        for index in range(len(self.graph.names)):
            if index in self.position.entry and not self.position.running[index]:
                best = max(best, self.started(index, start))
            elif self.position.running[index]:
                best = max(best, self.after[start][index], self.calls(index, start))
            held = [e for e in self.graph.out_of[index] if self.position.tokens[e] and e not in self.position.used_up]
            if held:
                best = max(best, self.lying(index, held, start))
        return min(best, 1.0)

    def lying(self, index: int, held: list[int], start: tuple[int, ...]) -> float:
        choices = self.graph.ways.chances(index, self.position.used_up, self.taken)
        if any(not set(edges) & set(held) for _, edges in choices):
            return max(self.by(e, start) for e in held)
        return sum(chance * max(self.by(e, start) for e in edges) for chance, edges in choices)


def joins_ahead(graph: Graph, start: int) -> dict[int, set[int]]:
    """AND joins behind edge `start` without taking a loop after it, or a call: by which of their edges they are
    reached."""
    first = graph.targets[start]
    joins = {first: {start}} if start in graph.forward[first] and graph.waits_for_all[first] else {}
    seen, stack = {first}, [first]
    while stack:
        for e in graph.out_of[stack.pop()]:
            target = graph.targets[e]
            if e not in graph.forward[target]:
                continue
            if graph.waits_for_all[target]:
                joins.setdefault(target, set()).add(e)
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return joins
