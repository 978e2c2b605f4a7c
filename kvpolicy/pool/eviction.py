"""Making room: the first runs in the order give up their tails, tail first, until there is enough.

Marks that end in lost blocks move to what is left of their prefix; what loses its last block is told to the pool.
"""

from __future__ import annotations

from kvpolicy.claims.strength import PROTECTED
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.run import BlockHash, Run
from kvpolicy.pool.tier import Tier


class Eviction:
    """Takes blocks out of the tree. `emptied`: marks whose whole prefix is gone, until the pool has told of them."""

    __slots__ = ("emptied",)

    def __init__(self) -> None:
        self.emptied: list[Mark] = []

    def evict(self, tier: Tier, count: int, ids: list[int], lost: list[BlockHash]) -> int:
        """Up to `count` blocks leave `tier`, first lost first: physical ids to `ids`, hashes to `lost`.

        O(1) per block and O(log runs) per run that goes whole. Returns how many left; fewer only when requests
        hold all the rest.
        """
        missing = count
        order = tier.order
        while missing > 0:
            run = order.first()
            if run is None:
                break
            hashes = run.hashes
            size = min(missing, len(hashes))
            if run.rank >= PROTECTED:
                tier.protected -= size
            if size < len(hashes):
                ids += run.ids[: -size - 1 : -1]
                lost += hashes[: -size - 1 : -1]
                del run.ids[-size:]
                del hashes[-size:]
            else:
                ids += run.ids[::-1]
                lost += hashes[::-1]
                self.remove(run)
            missing -= size
        tier.cached -= count - missing
        return count - missing

    def remove(self, run: Run) -> None:
        """Takes a run without children out of the tree; its blocks are accounted for by the caller."""
        parent, tier = run.parent, run.tier
        assert parent is not None
        tier.order.drop(run)
        del parent.children[run.hashes[0]]
        if parent.tier is tier:
            parent.below -= 1
        if run.marks:
            self._lift_marks(run, parent)
        run.parent = None
        if not parent.below and not parent.refs:
            parent.tier.order.put(parent)

    def _lift_marks(self, run: Run, parent: Run) -> None:
        """INVARIANT: eviction changes no rank. The strongest mark was the run's contribution and stays just that."""
        marks = run.marks
        assert marks is not None
        run.marks = None
        if parent.parent is None:
            for mark in marks:
                mark.run = None
            self.emptied += marks
            return
        counts = parent.counts
        if counts is None:
            counts = parent.counts = {}
        for mark in marks:
            mark.run = parent
            if mark.strength is not None:
                counts[mark.strength] = counts.get(mark.strength, 0) + 1
        if run.claimed is not None:
            if counts[run.claimed] == 1:
                del counts[run.claimed]
            else:
                counts[run.claimed] -= 1
        if parent.marks is None:
            parent.marks = marks
        else:
            parent.marks |= marks
