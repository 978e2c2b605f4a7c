"""Several workflows side by side, by tenant and name: which graph a run follows that says what it is called.

Kept by `runs`; filled by whoever is told graphs (a policy's `workflow` blocks, the service's resources). A tenant's own
name comes before one that holds for all.
"""

from __future__ import annotations

from kvpolicy.faults import InputFault
from kvpolicy.workflow.followed import Followed
from kvpolicy.workflow.graph import Graph

MOST_OF_A_TENANT = 256
MOST = 10_000
# Nodes and edges of all graphs of one tenant, and of all tenants: 400 bytes each, and half as much for the document.
MARKS_OF_A_TENANT = 100_000
MOST_MARKS = 500_000
_LETTERS = 64  # of names that count for a node


class NamedGraphs:
    """Graphs by (tenant, name); tenant None: for all tenants."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[str | None, str], Followed] = {}
        self._marks: dict[str | None, int] = {}  # of each tenant's graphs

    def __len__(self) -> int:
        return len(self._graphs)

    def put(self, tenant: str | None, name: str, graph: Graph) -> bool:
        """A graph, from now on, for the runs that begin under this name; where it is the same as before, earlier runs
        count. Returns whether the name was new. Raises InputFault where the tenant has as many as it may, or as large
        ones: what was under the name stays then."""
        before = self._graphs.get((tenant, name))
        if before is None:
            if sum(t == tenant for t, _ in self._graphs) >= MOST_OF_A_TENANT:
                raise InputFault(f"there are {MOST_OF_A_TENANT} workflows of one tenant at most; delete one")
            if len(self._graphs) >= MOST:
                raise InputFault(f"there are {MOST} workflows of all tenants at most")
        marks = marks_of(graph) - (0 if before is None else marks_of(before.graph))
        if tenant is not None and marks > 0:  # those for all are the operator's own
            self._check(tenant, marks)
        self._marks[tenant] = self._marks.get(tenant, 0) + marks
        self._graphs[tenant, name] = Followed(graph) if before is None else before.told_again(graph)
        return before is None

    def drop(self, tenant: str | None, name: str) -> bool:
        """Forget one; runs that follow it keep it. Returns whether it was there."""
        dropped = self._graphs.pop((tenant, name), None)
        if dropped is None:
            return False
        left = self._marks[tenant] - marks_of(dropped.graph)
        if left:
            self._marks[tenant] = left
        else:
            del self._marks[tenant]
        return True

    def _check(self, tenant: str, marks: int) -> None:
        """Raises InputFault where so many more nodes and edges of a tenant are too many."""
        own = self._marks.get(tenant, 0) + marks
        if own > MARKS_OF_A_TENANT:
            said = f"nodes and edges: {own} in all workflows of this tenant with this one"
            raise InputFault(f"{said}; {MARKS_OF_A_TENANT} are allowed, delete one")
        if sum(each for owner, each in self._marks.items() if owner is not None) + marks > MOST_MARKS:
            raise InputFault(f"nodes and edges: more than {MOST_MARKS} in the workflows of all tenants")

    def find(self, tenant: str | None, name: object) -> Followed | None:
        """The workflow of a name as a run of this tenant means it."""
        if not self._graphs or not isinstance(name, str):
            return None
        return self._graphs.get((tenant, name)) or self._graphs.get((None, name))

    def names(self, tenant: str | None) -> tuple[str, ...]:
        """The names that runs of a tenant may use."""
        return tuple(sorted({name for owner, name in self._graphs if owner in (tenant, None)}))


def marks_of(graph: Graph) -> int:
    """How much of the bound a graph takes: its nodes and edges, and long names as more of them."""
    letters = sum(map(len, graph.names)) + sum(len(edge.times) for edge in graph.edges if edge.times is not None)
    return len(graph.names) + len(graph.edges) + letters // _LETTERS
