"""Making room: the first runs in the order give up their tails, tail first, until there is enough.

Marks that end in lost blocks move to what is left of their prefix; what loses its last block is told to the pool.
"""

from __future__ import annotations

from kvpolicy.claims.strength import PROTECTED
from kvpolicy.pool.events import BlockRemoved, BlockStored, Event
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.run import BlockHash, Run
from kvpolicy.pool.tier import Tier


class Eviction:
    """Takes blocks out of the tree. emptied: marks whose whole prefix is gone, until the pool has told of them.

    events: what happened, for whoever drains it; None while nobody wants to know.
    """

    __slots__ = ("block_size", "emptied", "events")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.emptied: list[Mark] = []
        self.events: list[Event] | None = None

    def evict(self, tier: Tier, count: int, ids: list[int], lost: list[BlockHash]) -> int:
        """Up to `count` blocks leave `tier`, first lost first: physical ids to `ids`, hashes to `lost`.

        O(1) per block and O(log runs) per run that goes whole. Returns how many left; fewer only when requests
        hold all the rest.
        """
        missing = count
        order = tier.order
        before = len(lost)
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
        self.removed(lost[before:], tier)
        return count - missing

    def remove(self, run: Run) -> None:
        """Takes a run without children out of the tree; its blocks are accounted for by the caller."""
        parent, tier = run.parent, run.tier
        assert parent is not None
        tier.order.drop(run)
        del parent.children[run.hashes[0]]
        if run.marks:
            self._lift_marks(run, parent)
        run.parent = None
        if parent.tier is tier:
            self.uncover(parent)

    def uncover(self, parent: Run) -> None:
        """One run less of its own tier stands behind `parent`; with the last one gone it may leave itself."""
        parent.below -= 1
        if not parent.below and not parent.refs:
            parent.tier.order.put(parent)

    def removed(self, hashes: list[BlockHash], tier: Tier) -> None:
        """Tells that `hashes` left `tier`."""
        if self.events is not None and hashes:
            self.events.append(BlockRemoved(tuple(hashes), tier.medium))

    def stored(self, hashes: list[BlockHash], parent: Run, tier: Tier) -> None:
        """Tells that `hashes`, which follow `parent`, came to `tier`."""
        if self.events is not None and hashes:
            before = parent.hashes[-1] if parent.hashes else None
            self.events.append(BlockStored(tuple(hashes), before, self.block_size, tier.medium))

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
            mark.come_to(parent)
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
        if parent.listened is None:
            parent.listened = run.listened
        elif run.listened is not None:
            parent.listened |= run.listened
        run.listened = None
