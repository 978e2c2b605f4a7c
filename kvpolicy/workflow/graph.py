"""A workflow as a graph: agents, tools and barriers, the edges between them, and the loops.

Made from a `workflow` block, a JSON document or a networkx graph (`graph_read`) and checked by `graph_check`; both work
on its `graph_wiring` alone. Read by `distance` (steps to the next use), by `draw` and by the command line.
"""

from __future__ import annotations

from typing import Self

from kvpolicy.faults import ERROR, Diagnostic, InputFault
from kvpolicy.workflow.graph_check import check, loops
from kvpolicy.workflow.graph_edge import AGENT, AND, BARRIER, OR, TOOL, GraphEdge
from kvpolicy.workflow.graph_read import read_graph
from kvpolicy.workflow.graph_wiring import NESTED, Wiring

__all__ = ["AGENT", "AND", "BARRIER", "NESTED", "OR", "TOOL", "Graph", "GraphEdge"]


class Graph(Wiring):
    """A workflow that runs can follow; what is known of its nodes and edges is said at `Wiring`."""

    @classmethod
    def build(cls, source: object, name: str = "workflow") -> Self:
        """The graph of a `language.syntax.Workflow`, a JSON document, a networkx graph, or a Graph as it is.

        Raises InputFault where `source` is none of these.
        """
        return read_graph(source, name, cls)

    @classmethod
    def sound(cls, source: object, name: str = "workflow") -> Self:
        """As `build`, of a graph that a caller brings: raises InputFault for one with errors too, such as a loop
        without an exit, naming its nodes."""
        graph = cls.build(source, name)
        wrong = [each for each in graph.check() if each.severity == ERROR]
        if wrong:
            raise InputFault("; ".join(f"{each.message} ({each.fix})" if each.fix else each.message for each in wrong))
        return graph

    def check(self) -> tuple[Diagnostic, ...]:
        """Everything wrong with the graph; errors and notices, see `graph_check`."""
        return check(self)

    def loops(self) -> tuple[tuple[str, ...], ...]:
        """One tuple of node names for every closing edge, in running order from the node it leads back to."""
        return loops(self)
