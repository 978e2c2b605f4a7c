"""A workflow that runs follow: its graph, and which ways earlier runs took through it.

Kept by `named` for workflows that have names, by `runs` for those that are described; every run holds the one it
follows, so that what a graph was named by one tenant, and what runs did in it, is nobody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvpolicy.workflow.edge_history import EdgeHistory
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.shares import Shares

MOST_MARKS = 300_000  # nodes and edges of all graphs that were described: 110 MiB
LEAST = 20  # marks that a graph counts for at least, so that there are 15,000 graphs at most


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
    time. Each tenant's are apart; where there is no room, who holds most gives up what it described longest ago."""

    def __init__(self) -> None:
        self._tenants: dict[str | None, dict[object, Followed]] = {}
        self._shares: Shares[Followed] = Shares()

    def take(self, tenant: str | None, graph: Graph) -> Followed:
        """The workflow of a graph that is described now."""
        shape = graph.shape()
        before = self._tenants.get(tenant, {}).get(shape)
        followed = Followed(graph) if before is None else before.told_again(graph)
        if followed is before:
            self._shares.hear(tenant, followed)
            return followed
        if before is not None:
            self._drop(tenant, before)
        self._tenants.setdefault(tenant, {})[shape] = followed
        self._shares.add(tenant, followed, max(LEAST, len(graph.names) + len(graph.edges)))
        while self._shares.marks > MOST_MARKS:
            first = self._shares.first()
            if first is None or (first[1] is followed and len(self._shares) == 1):
                break
            self._drop(*first)
        return followed

    def _drop(self, tenant: str | None, followed: Followed) -> None:
        self._shares.drop(tenant, followed)
        known = self._tenants[tenant]
        del known[followed.graph.shape()]
        if not known:
            del self._tenants[tenant]
