"""Which ways out of a node are taken together and which exclude each other, and how likely each is.

Two edges out of one node are taken together if their ways meet again at an AND join, on different edges, or if both
enter one nested workflow; else a run takes one of them. Worked out for a node when it is first asked for. Read by
`position` (the way not taken is gone) and by `chance`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.workflow.graph_edge import GraphEdge

TAKEN_BEFORE = 4.0  # what is stated of an edge weighs as much as so many visits seen


class Ways:
    """The alternatives of each node. By node: out_of, edge numbers; waits_for_all, whether it is an AND join."""

    __slots__ = ("_ahead", "_alternatives", "_edges", "_out_of", "_targets", "_waits_for_all")

    def __init__(
        self,
        edges: Sequence[GraphEdge],
        targets: Sequence[int],
        out_of: Sequence[Sequence[int]],
        waits_for_all: Sequence[bool],
    ) -> None:
        self._edges = edges
        self._targets = targets
        self._out_of = out_of
        self._waits_for_all = waits_for_all
        self._ahead: dict[int, dict[int, set[int]]] = {}
        self._alternatives: dict[int, list[list[int]]] = {}

    def together(self, one: int, other: int) -> bool:
        """Whether two edges out of one node are taken together."""
        edges = self._edges
        if edges[one].group is not None and edges[one].group == edges[other].group:
            return True
        mine, theirs = self._joins_ahead(one), self._joins_ahead(other)
        return any(mine[j] - theirs[j] and theirs[j] - mine[j] for j in mine.keys() & theirs.keys())

    def alternatives(self, index: int) -> list[list[int]]:
        """The edges out of a node, calls apart: one list for each choice a run has, its edges taken together."""
        found = self._alternatives.get(index)
        if found is None:
            found = []
            for e in self._out_of[index]:
                if self._edges[e].calls:
                    continue
                same = [each for each in found if any(self.together(e, other) for other in each)]
                found = [each for each in found if each not in same]
                found.append(sorted([e, *(other for each in same for other in each)]))
            found.sort()
            self._alternatives[index] = found
        return found

    def chances(self, index: int, gone: set[int], taken: Sequence[int]) -> list[tuple[float, list[int]]]:
        """The choices a run has behind a node, with their probabilities. gone: edges that may not be taken any more;
        what they had goes to the others in proportion. taken: how often each edge was, in earlier runs.

        An edge has the probability stated for it; those without share what is left. Each counts as `TAKEN_BEFORE`
        visits beside those seen.
        """
        choices = [[e for e in each if e not in gone] for each in self.alternatives(index)]
        stated = [
            next((p for e in each if (p := self._edges[e].probability) is not None), None)
            for each in self.alternatives(index)
        ]
        left = max(0.0, 1.0 - sum(p for p in stated if p is not None))
        open_ones = sum(p is None for p in stated)
        seen = [max((taken[e] for e in each), default=0) if taken else 0 for each in self.alternatives(index)]
        visits = sum(seen)
        whole = max(1.0, sum(p for p in stated if p is not None))
        weights = []
        for p, each in zip(stated, seen, strict=True):
            prior = left / open_ones if p is None else p / whole
            weights.append((TAKEN_BEFORE * prior + each) / (TAKEN_BEFORE + visits))
        kept = [(weight, edges) for weight, edges in zip(weights, choices, strict=True) if edges]
        closed = sum(weight for weight, edges in zip(weights, choices, strict=True) if not edges)
        total = sum(weight for weight, _ in kept)
        return [(weight * (1.0 + closed / total) if total else 1.0 / len(kept), edges) for weight, edges in kept]

    def _joins_ahead(self, start: int) -> dict[int, set[int]]:
        """AND joins behind edge `start` without taking a loop after it: by which of their edges they are reached."""
        joins = self._ahead.get(start)
        if joins is not None:
            return joins
        joins = {}
        first = self._targets[start]
        if self._waits_for_all[first] and not self._edges[start].is_loop:
            joins[first] = {start}
        seen, stack = {first}, [first]
        while stack:
            for e in self._out_of[stack.pop()]:
                if self._edges[e].is_loop:
                    continue
                target = self._targets[e]
                if self._waits_for_all[target]:
                    joins.setdefault(target, set()).add(e)
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        self._ahead[start] = joins
        return joins
