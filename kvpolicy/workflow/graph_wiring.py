"""Nodes and edges of a workflow by number: what leads where, what waits for what, where a run begins.

`graph.Graph` is one of these. Readers (`graph_read`, `graph_block`, `graph_nested`) make it and `graph_check` looks at
it; none of them knows `graph`, which offers them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvpolicy.faults import Diagnostic, Place
from kvpolicy.workflow.graph_edge import AND, BARRIER, GraphEdge
from kvpolicy.workflow.graph_ways import Ways

NESTED = "/"  # `research/searcher`: node `searcher` of the nested workflow `research`


class Wiring:
    """Nodes by name with their roles, edges, and the joins that wait for all their predecessors.

    Nodes are numbered in the order declared, edges in the order given; `into` and `out_of` list edge numbers
    by node number, `sources`, `targets` and `is_loop` are by edge number. By node number:
    `forward`, edges into it but for loops; `waits_for_all`, whether it is an AND join; `times`, how many instances.
    `places`: of nodes that stand in a text.
    `problems` are the faults found while reading (duplicates, unknown nodes); `graph_check.check` adds the rest.
    """

    def __init__(
        self,
        nodes: Mapping[str, str],
        edges: Iterable[GraphEdge],
        joins: Mapping[str, str] | None = None,
        *,
        name: str = "workflow",
        problems: tuple[Diagnostic, ...] = (),
        place: Place | None = None,
        places: Mapping[str, Place] | None = None,
    ) -> None:
        self.name = name
        self.places = places or {}
        self.place = place if place is not None else Place(name, 1, 1)
        self.nodes = dict(nodes)
        merged: dict[tuple[str, str], GraphEdge] = {}
        for edge in edges:
            known = merged.get((edge.source, edge.target))
            merged[edge.source, edge.target] = edge if known is None else known.with_all_of(edge)
        self.edges = tuple(merged.values())
        self.joins = {n: AND for n, role in self.nodes.items() if role == BARRIER}
        self.joins.update(joins or {})
        self.problems = problems
        self.names = tuple(self.nodes)
        self.number = {node: index for index, node in enumerate(self.names)}
        self.aliases = _aliases(self.number)
        self.sources = [self.number[edge.source] for edge in self.edges]
        self.targets = [self.number[edge.target] for edge in self.edges]
        self.into: list[list[int]] = [[] for _ in self.names]
        self.out_of: list[list[int]] = [[] for _ in self.names]
        for index in range(len(self.edges)):
            self.out_of[self.sources[index]].append(index)
            self.into[self.targets[index]].append(index)
        self.forward = [[e for e in edges if not (self.edges[e].is_loop or self.edges[e].calls)] for edges in self.into]
        self.loops_into = [[e for e in edges if self.edges[e].is_loop] for edges in self.into]
        self.is_loop = [edge.is_loop for edge in self.edges]
        self.waits_for_all = [self.joins.get(node) == AND for node in self.names]
        self.has_calls = any(edge.calls for edge in self.edges)
        self.and_joins = [index for index, waits in enumerate(self.waits_for_all) if waits]
        self.ways = Ways(self.edges, self.targets, self.out_of, self.waits_for_all)
        self.times = [next((self.edges[e].times for e in edges if self.edges[e].times), None) for edges in self.into]
        self.counts = frozenset(e.times for e in self.edges if e.times is not None and not e.times.isdigit())
        self.entries = self._entries()

    def find(self, node: str) -> int | None:
        """The number of a node; one of a nested workflow may be called by its own name, where only one bears it."""
        index = self.number.get(node)
        return self.aliases.get(node) if index is None else index

    def shape(self) -> tuple[object, ...]:
        """What makes two graphs the same, whatever they are called."""
        return tuple(self.nodes.items()), self.edges, tuple(sorted(self.joins.items()))

    def _entries(self) -> tuple[int, ...]:
        """Where a run begins: nodes that no edge but a loop leads to; without any, the first node declared."""
        first = []
        for index, edges in enumerate(self.into):
            waits = [e for e in edges if not self.edges[e].is_loop and self.edges[e].source != self.names[index]]
            if not waits and (self.out_of[index] or not self.edges):
                first.append(index)
        if not first and self.names:
            first = [0]
        return tuple(first)


def _aliases(number: Mapping[str, int]) -> dict[str, int]:
    """Last parts of names of nested workflows' nodes, as far as nobody else bears them."""
    found: dict[str, int | None] = {}
    for name, index in number.items():
        last = name.rpartition(NESTED)[2]
        if last != name and last not in number:
            found[last] = None if last in found else index
    return {name: index for name, index in found.items() if index is not None}
