"""Which AND joins lie ahead of the edges of a graph, and by which of their edges they are reached.

Sets of edges are bits of whole numbers, worked out for all nodes in one pass, each strongly connected part after those
that it leads to: a graph of thousands of edges takes milliseconds. Asked by `graph_ways`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.policy.connected import parts
from kvpolicy.workflow.graph_edge import GraphEdge


class JoinsAhead:
    """What a run can come to without taking a loop: a call of a sub-agent is no way on, and no join waits for it. By
    edge: targets; by node: out_of, waits_for_all."""

    __slots__ = ("_above", "_behind", "_bits", "_full", "_targets")

    def __init__(
        self,
        edges: Sequence[GraphEdge],
        targets: Sequence[int],
        out_of: Sequence[Sequence[int]],
        waits_for_all: Sequence[bool],
    ) -> None:
        into: dict[int, list[int]] = {}
        for e, edge in enumerate(edges):
            if waits_for_all[targets[e]] and not (edge.is_loop or edge.calls):
                into.setdefault(targets[e], []).append(e)
        self._targets = targets
        self._bits: dict[int, int] = {}  # by edge into a join
        self._full = self._above = 0  # all these bits; one bit above those of each join, always 0 in a set
        place = 0
        for entering in into.values():
            if len(entering) > 1:  # ways cannot meet where only one leads
                self._bits.update((e, 1 << place + number) for number, e in enumerate(entering))
                self._full |= (1 << len(entering)) - 1 << place
                place += len(entering)
                self._above |= 1 << place
                place += 1
        self._behind: dict[int, int] = {}
        if not self._bits:
            return
        ahead = {
            index: [e for e in ways if not (edges[e].is_loop or edges[e].calls)] for index, ways in enumerate(out_of)
        }
        for part in parts({index: [targets[e] for e in ways] for index, ways in ahead.items()}):
            reached = 0
            for index in part:
                for e in ahead[index]:
                    reached |= self._bits.get(e, 0) | self._behind.get(targets[e], 0)
            self._behind.update(dict.fromkeys(part, reached))

    def reached(self, edge: int) -> int:
        """The edges into AND joins that this edge is or leads to, as bits; only to be compared."""
        return self._bits.get(edge, 0) | self._behind.get(self._targets[edge], 0)

    def meet(self, one: int, other: int) -> bool:
        """Whether ways that reach these edges meet at an AND join, each of them on an edge that the other does not
        reach."""
        mine, theirs = one & ~other, other & ~one
        if not mine or not theirs:
            return False
        # A join's bits and all of them added carry into the bit above where one is set: joins of both, all at once.
        return bool((mine + self._full) & (theirs + self._full) & self._above)
