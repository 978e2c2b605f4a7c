"""A workflow that runs follow: its graph, and which ways earlier runs took through it.

Kept by `named` for workflows that have names, by `runs` for those that are described; every run holds the one it
follows, so that what a graph was named by one tenant, and what runs did in it, is nobody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvpolicy.workflow.edge_history import EdgeHistory
from kvpolicy.workflow.graph import Graph

_MOST_OF_A_TENANT = 256  # the longest undescribed leave first, of graphs as of tenants
_MOST_TENANTS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """history: of the runs that followed this graph, or another one of its shape in its place."""

    graph: Graph
    history: EdgeHistory = field(default_factory=EdgeHistory)

    def counts(self, attributes: Mapping[str, object]) -> dict[str, int]:
        """Counts of fan-outs that an event tells, by the name after `*`."""
        names = self.graph.counts
        if not names:
            return {}
        return {
            name: value
            for name, value in attributes.items()
            if name in names and isinstance(value, int) and not isinstance(value, bool) and value >= 0
        }

    def told_again(self, graph: Graph) -> Followed:
        """What is followed once `graph` is told in place of this one: earlier runs count where it is the same."""
        if graph.shape() != self.graph.shape():
            return Followed(graph)
        return self if graph.name == self.graph.name else Followed(graph, self.history)


class Described:
    """Graphs that were described without a name, by shape: whoever passes a graph with every run makes it anew each
    time. Each tenant's are apart, and push out none but its own."""

    def __init__(self) -> None:
        self._tenants: dict[str | None, dict[object, Followed]] = {}

    def take(self, tenant: str | None, graph: Graph) -> Followed:
        """The workflow of a graph that is described now."""
        known = self._tenants[tenant] = self._tenants.pop(tenant, {})
        shape = graph.shape()
        before = known.pop(shape, None)
        known[shape] = followed = Followed(graph) if before is None else before.told_again(graph)
        if len(known) > _MOST_OF_A_TENANT:
            del known[next(iter(known))]
        if len(self._tenants) > _MOST_TENANTS:
            del self._tenants[next(iter(self._tenants))]
        return followed
