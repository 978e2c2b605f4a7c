"""How often each edge of a workflow was taken in earlier runs, per tenant.

It belongs to a graph, see `followed`. `runs` tells it when a run ends or is let go; `chance` weighs what is stated of
edges against it.
"""

from __future__ import annotations

from collections.abc import Sequence

_MOST_TENANTS = 1024  # the longest untold-of leave first
FADES_AT = 4096  # visits of an edge; then all counts of the tenant are halved, so that what changes is learned again


class EdgeHistory:
    """Counts by edge number, for one graph."""

    def __init__(self) -> None:
        self._taken: dict[str | None, list[int]] = {}

    def taken(self, tenant: str | None) -> Sequence[int]:
        """How often each edge was taken; empty where nothing is known. It stays as it is: what is added makes another
        list, so that whoever keeps something worked out by this one sees whether it still holds."""
        return self._taken.get(tenant, ())

    def add(self, tenant: str | None, new: Sequence[int]) -> None:
        """Take how often a run has taken each edge since it was last told of."""
        if not any(new):
            return
        known = self._taken.pop(tenant, None) or [0] * len(new)
        known = [old + more for old, more in zip(known, new, strict=True)]
        if max(known) >= FADES_AT:
            known = [count // 2 for count in known]
        self._taken[tenant] = known
        if len(self._taken) > _MOST_TENANTS:
            del self._taken[next(iter(self._taken))]
