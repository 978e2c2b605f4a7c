"""The order of eviction of one tier: a lazy heap over the runs whose tail may leave now.

A run stands in it under (rank, release number); `pool.pool` and `pool.ranks` put and drop runs, the pool asks for
the first. A run that is put again leaves its earlier standing behind, to be skipped when it comes up and swept out
when such leftovers outnumber the live ones, so that memory stays proportional to runs whatever is re-ranked.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvpolicy.pool.run import Run

# (rank, release number, ticket, run): the ticket only keeps two standings from comparing their runs.
Standing = tuple[int, int, int, "Run"]

_SLACK = 64  # leftovers allowed before a sweep is worth its cost


class Order:
    """Evictable runs of one tier, first to leave first. O(log runs) to put, O(1) amortised to look at the first."""

    __slots__ = ("heap", "live", "tickets")

    def __init__(self) -> None:
        self.heap: list[Standing] = []
        self.live = 0
        self.tickets = 0

    def put(self, run: Run) -> None:
        """`run` stands at its present rank and release number; an earlier standing is void."""
        if run.standing is None:
            self.live += 1
        self.tickets += 1
        run.standing = standing = (run.rank, run.release, self.tickets, run)
        heap = self.heap
        heappush(heap, standing)
        if len(heap) > _SLACK + 2 * self.live:
            self._sweep()

    def drop(self, run: Run) -> None:
        """`run` may not leave: a request holds it, or something of its tier stands behind it, or it is gone."""
        if run.standing is not None:
            run.standing = None
            self.live -= 1

    def first(self) -> Run | None:
        """The run whose tail leaves next; it keeps its standing. None: nothing may leave."""
        heap = self.heap
        while heap:
            top = heap[0]
            run = top[3]
            if run.standing is top:
                return run
            heappop(heap)
        return None

    def standings(self) -> list[Standing]:
        """The live standings, in no order."""
        return [standing for standing in self.heap if standing[3].standing is standing]

    def _sweep(self) -> None:
        self.heap = self.standings()
        heapify(self.heap)
