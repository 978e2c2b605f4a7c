"""A workflow as a graph: agents, tools and barriers, the edges between them, and the loops.

Made from a `workflow` block, a JSON document or a networkx graph (`graph_read`); read by `distance` (steps to the next
use), by `graph_check` (loops, nodes that cannot be reached) and by the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvpolicy.faults import Diagnostic, Place

AND, OR = "and", "or"
AGENT, TOOL, BARRIER = "agent", "tool", "barrier"


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """`source -> target`. times: how many instances of the target follow (a number, or a name told at run time).

    at_most: how often the edge may be taken in a run, None without bound. is_loop: declared as the closing edge of a
    loop, so an AND join does not wait for it. probability: of being taken, where known.
    """

    source: str
    target: str
    times: str | None = None
    at_most: int | None = None
    is_loop: bool = False
    probability: float | None = None


class Graph:
    """Nodes by name with their roles, edges, and the joins that wait for all their predecessors.

    Nodes are numbered in the order declared, edges in the order given; `into` and `out_of` list edge numbers
    by node number, `sources`, `targets` and `is_loop` are by edge number. By node number:
    `forward`, edges into it but for loops; `waits_for_all`, whether it is an AND join; `times`, how many instances.
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
    ) -> None:
        self.name = name
        self.place = place if place is not None else Place(name, 1, 1)
        self.nodes = dict(nodes)
        merged: dict[tuple[str, str], GraphEdge] = {}
        for edge in edges:
            merged[edge.source, edge.target] = _merge(merged.get((edge.source, edge.target)), edge)
        self.edges = tuple(merged.values())
        self.joins = {n: AND for n, role in self.nodes.items() if role == BARRIER}
        self.joins.update(joins or {})
        self.problems = problems
        self.names = tuple(self.nodes)
        self.number = {node: index for index, node in enumerate(self.names)}
        self.sources = [self.number[edge.source] for edge in self.edges]
        self.targets = [self.number[edge.target] for edge in self.edges]
        self.into: list[list[int]] = [[] for _ in self.names]
        self.out_of: list[list[int]] = [[] for _ in self.names]
        for index in range(len(self.edges)):
            self.out_of[self.sources[index]].append(index)
            self.into[self.targets[index]].append(index)
        self.forward = [[e for e in edges if not self.edges[e].is_loop] for edges in self.into]
        self.is_loop = [edge.is_loop for edge in self.edges]
        self.waits_for_all = [self.joins.get(node) == AND for node in self.names]
        self.times = [next((self.edges[e].times for e in edges if self.edges[e].times), None) for edges in self.into]
        self.counts = frozenset(e.times for e in self.edges if e.times is not None and not e.times.isdigit())
        self.entries = self._entries()

    @classmethod
    def build(cls, source: object, name: str = "workflow") -> Graph:
        """The graph of a `language.syntax.Workflow`, a JSON document, a networkx graph, or a Graph as it is.

        Raises InputFault where `source` is none of these.
        """
        from kvpolicy.workflow.graph_read import read_graph  # it imports this module

        return read_graph(source, name)

    def check(self) -> tuple[Diagnostic, ...]:
        """Everything wrong with the graph; errors and notices, see `graph_check`."""
        from kvpolicy.workflow.graph_check import check

        return check(self)

    def loops(self) -> tuple[tuple[str, ...], ...]:
        """One tuple of node names for every closing edge, in running order from the node it leads back to."""
        from kvpolicy.workflow.graph_check import loops

        return loops(self)

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


def _merge(known: GraphEdge | None, edge: GraphEdge) -> GraphEdge:
    """An edge given twice is one edge with all that was said of it (a `loop` line declares its edge too)."""
    if known is None:
        return edge
    return GraphEdge(
        edge.source,
        edge.target,
        edge.times if edge.times is not None else known.times,
        edge.at_most if edge.at_most is not None else known.at_most,
        edge.is_loop or known.is_loop,
        edge.probability if edge.probability is not None else known.probability,
    )
