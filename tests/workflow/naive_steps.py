"""Distances by brute force: the equations of the language, iterated from `never` downwards until nothing changes.

For histories in which every AND join is reached for the first time: the question of what may count from an earlier
round does not arise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class World:
    """Nodes, edges as (source, target), joins, and what has happened so far."""

    nodes: list[str]
    edges: list[tuple[str, str]]
    joins: set[str]
    bounds: dict[tuple[str, str], int]  # loop edges and how often each may be taken
    running: set[str] = field(default_factory=set)
    arrived: set[tuple[str, str]] = field(default_factory=set)
    taken: dict[tuple[str, str], int] = field(default_factory=dict)

    def steps(self) -> dict[str, float]:
        value = {node: 0.0 if node in self.running else math.inf for node in self.nodes}
        while True:
            following = {node: 0.0 if node in self.running else self._next(node, value) for node in self.nodes}
            if following == value:
                return value
            value = following

    def _next(self, node: str, value: dict[str, float]) -> float:
        into = [e for e in self.edges if e[1] == node and self.taken.get(e, 0) < self.bounds.get(e, 10**9)]
        loops = [e for e in into if e in self.bounds]
        forward = [e for e in into if e not in self.bounds]
        by_loop = min((1.0 if e in self.arrived else value[e[0]] + 1 for e in loops), default=math.inf)
        if node not in self.joins:
            direct = min((1.0 if e in self.arrived else value[e[0]] + 1 for e in forward), default=math.inf)
            return min(direct, by_loop)
        if not forward:
            return by_loop
        missing = [e for e in forward if e not in self.arrived]
        return min(by_loop, max((value[e[0]] for e in missing), default=0.0) + 1)
