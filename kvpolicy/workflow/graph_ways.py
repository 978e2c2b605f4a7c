"""Which ways out of a node are taken together and which exclude each other, and how likely each is.

Two edges out of one node are taken together if their ways meet again at an AND join, on different edges, or if both
enter one nested workflow; else a run takes one of them. Worked out for a node when it is first asked for. Read by
`position` (the way not taken is gone) and by `chance`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.workflow.graph_edge import GraphEdge
from kvpolicy.workflow.joins_ahead import JoinsAhead

TAKEN_BEFORE = 4.0  # what is stated of an edge weighs as much as so many visits seen
_MOST_COMPARED = 100  # sets of joins that one is compared with: ways out of a node of more may count as exclusive


class Ways:
    """The alternatives of each node. By node: out_of, edge numbers; waits_for_all, whether it is an AND join."""

    __slots__ = ("_alternatives", "_edges", "_joins", "_out_of", "_targets", "_waits_for_all")

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
        self._joins: JoinsAhead | None = None
        self._alternatives: dict[int, list[list[int]]] = {}

    def together(self, one: int, other: int) -> bool:
        """Whether two edges out of one node are taken together."""
        edges = self._edges
        if edges[one].group is not None and edges[one].group == edges[other].group:
            return True
        joins = self._ahead()
        return joins.meet(joins.reached(one), joins.reached(other))

    def alternatives(self, index: int) -> list[list[int]]:
        """The edges out of a node, calls apart: one list for each choice a run has, its edges taken together."""
        found = self._alternatives.get(index)
        if found is None:
            found = self._alternatives[index] = self._apart(
                [e for e in self._out_of[index] if not self._edges[e].calls]
            )
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

    def _ahead(self) -> JoinsAhead:
        if self._joins is None:
            self._joins = JoinsAhead(self._edges, self._targets, self._out_of, self._waits_for_all)
        return self._joins

    def _apart(self, edges: Sequence[int]) -> list[list[int]]:
        """Edges out of a node: those taken together, each as one, and in the order of their first ones."""
        joins = self._ahead()
        alike: dict[int, list[int]] = {}  # by what they reach: as far as that goes they exclude each other
        for e in edges:
            alike.setdefault(joins.reached(e), []).append(e)
        meeting: list[list[int]] = []
        for reached in alike:
            same = []
            left = _MOST_COMPARED
            for each in meeting:
                if any(joins.meet(reached, other) for other in each[:left]):
                    same.append(each)
                left -= min(left, len(each))
            kept = [each for each in meeting if not any(each is other for other in same)] if same else meeting
            meeting = [*kept, [reached, *(other for each in same for other in each)]]
        apart = []
        for each in meeting:
            met = [alike[reached] for reached in each]
            apart += [[e] for e in met[0]] if len(met) == 1 else [[e for ways in met for e in ways]]
        return sorted(sorted(each) for each in self._grouped(apart))

    def _grouped(self, apart: list[list[int]]) -> list[list[int]]:
        """With what bears one group put together."""
        found: list[list[int]] = []
        holder: dict[str, list[int]] = {}  # who holds the edges of a group
        for ways in apart:
            each = list(ways)
            groups = {group for e in each if (group := self._edges[e].group) is not None}
            for other in {id(holder[group]): holder[group] for group in groups if group in holder}.values():
                each += other
                groups |= {group for e in other if (group := self._edges[e].group) is not None}
                other.clear()
            holder.update(dict.fromkeys(groups, each))
            found.append(each)
        return [each for each in found if each]
