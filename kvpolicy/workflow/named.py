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


class NamedGraphs:
    """Graphs by (tenant, name); tenant None: for all tenants."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[str | None, str], Followed] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    def put(self, tenant: str | None, name: str, graph: Graph) -> bool:
        """A graph, from now on, for the runs that begin under this name; where it is the same as before, earlier runs
        count. Returns whether the name was new. Raises InputFault where the tenant has as many as it may."""
        before = self._graphs.get((tenant, name))
        if before is None:
            if sum(t == tenant for t, _ in self._graphs) >= MOST_OF_A_TENANT:
                raise InputFault(f"there are {MOST_OF_A_TENANT} workflows of one tenant at most; delete one")
            if len(self._graphs) >= MOST:
                raise InputFault(f"there are {MOST} workflows of all tenants at most")
        self._graphs[tenant, name] = Followed(graph) if before is None else before.told_again(graph)
        return before is None

    def drop(self, tenant: str | None, name: str) -> bool:
        """Forget one; runs that follow it keep it. Returns whether it was there."""
        return self._graphs.pop((tenant, name), None) is not None

    def find(self, tenant: str | None, name: object) -> Followed | None:
        """The workflow of a name as a run of this tenant means it."""
        if not self._graphs or not isinstance(name, str):
            return None
        return self._graphs.get((tenant, name)) or self._graphs.get((None, name))

    def names(self, tenant: str | None) -> tuple[str, ...]:
        """The names that runs of a tenant may use."""
        return tuple(sorted({name for owner, name in self._graphs if owner in (tenant, None)}))
