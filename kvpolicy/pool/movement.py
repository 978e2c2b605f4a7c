"""Movement between tiers: what leaves the GPU sinks to the next tier, what is asked for comes up again.

There is one copy of each block, and a block is never above the one before it, so a prompt lies in the tiers like
sediment: its head on the GPU, then CPU, then disk. A run that has to leave its tier takes a place below if it is
admitted there and outranks what it would displace; what finds no place is lost, with all behind it.

Transfers take `transfer(blocks, source, target)` seconds (none without it). Meanwhile the blocks are `offloading` or
`loading`: they count as where they are going, and a request that hits them is ready when the last has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from math import inf

from kvpolicy.claims.strength import PROTECTED
from kvpolicy.pool.eviction import Eviction
from kvpolicy.pool.look import covering
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.payload import write
from kvpolicy.pool.run import BlockHash, Run
from kvpolicy.pool.tier import Tier
from kvpolicy.pool.tree import merge, mergeable, split

Admit = Callable[[Collection[Mark], str], bool]
Transfer = Callable[[int, str, str], float]


def admit_where_wanted(marks: Collection[Mark], tier: str) -> bool:
    """A block is stored below the GPU unless all who claim it are against."""
    return not marks or any(mark.admit for mark in marks)


class Movement(Eviction):
    """An eviction that has lower tiers. moved: blocks moved so far, by (from, to)."""

    __slots__ = ("admit", "moved", "now", "transfer")

    def __init__(self, block_size: int, admit: Admit | None, transfer: Transfer | None) -> None:
        super().__init__(block_size)
        self.admit: Admit = admit or admit_where_wanted
        self.transfer = transfer
        self.moved: dict[tuple[str, str], int] = {}
        self.now = 0.0

    # --- down -----------------------------------------------------------------------------------------------------

    def evict(self, tier: Tier, count: int, ids: list[int], lost: list[BlockHash]) -> int:
        """Up to `count` blocks leave `tier` and sink where they may. The physical ids they leave go to `ids`."""
        missing = count
        while missing > 0:
            run = tier.order.first()
            if run is None:
                break
            size = min(missing, len(run.hashes))
            if size < len(run.hashes):
                split(run, len(run.hashes) - size)
            ids += run.ids[::-1]
            lost += run.hashes[::-1]
            self._leave(run, tier.lower)
            missing -= size
        return count - missing

    def _leave(self, run: Run, below: Tier | None) -> None:
        """A whole run leaves its tier for `below`; its physical blocks are the caller's from now on. The head takes
        the places there are, the tail goes one tier further."""
        size = len(run.hashes)
        if below is None or not self._may_go(run, below):
            self._lose(run)
            return
        places = self._places(below, (run.rank, run.release), size)
        if len(places) < size:
            tail = run
            if places:
                run = split(tail, len(places))
            self._leave(tail, below.lower)
        if places:
            self.move(run, below, places, [run.tier.holds[block] for block in run.ids])

    def _may_go(self, run: Run, below: Tier) -> bool:
        """Nothing behind it stays above it, and it is wanted there."""
        return all(child.tier.level >= below.level for child in run.children.values()) and self.admit(
            covering(run), below.name
        )

    def _places(self, tier: Tier, key: tuple[int, int], count: int) -> list[int]:
        """Up to `count` physical blocks of `tier`: empty ones, then those of runs that leave no later than `key`."""
        ids = tier.take(count)
        while len(ids) < count:
            weakest = tier.order.first()
            if weakest is None or (weakest.rank, weakest.release) > key:
                break
            self.evict(tier, min(count - len(ids), len(weakest.hashes)), ids, [])
        return ids

    def move(self, run: Run, target: Tier, places: list[int], payload: list[BlockHash]) -> None:
        """The run lies in `places` of `target` from now on. The physical blocks it leaves are the caller's."""
        source, parent, size = run.tier, run.parent, len(run.hashes)
        assert parent is not None
        source.order.drop(run)
        write(target.holds, places, payload)
        for tier, change in ((source, -size), (target, size)):
            tier.cached += change
            tier.held += change if run.refs else 0
            tier.protected += change if run.rank >= PROTECTED else 0
        run.tier, run.ids = target, places
        run.below = sum(child.tier is target for child in run.children.values())
        if parent.tier is source:
            self.uncover(parent)
        elif parent.tier is target:
            parent.below += 1
            target.order.drop(parent)
        way = (source.name, target.name)
        self.moved[way] = self.moved.get(way, 0) + size
        if self.transfer is not None:
            run.ready_at = max(run.ready_at, self.now) + self.transfer(size, *way)
        self.stored(run.hashes, parent, target)  # first there, then no more here: nobody may think it gone between
        self.removed(run.hashes[::-1], source)
        if run.refs:
            return
        if run.below == 1:
            (child,) = (child for child in run.children.values() if child.tier is target)
            if mergeable(run, child, self.now):
                merge(run, child)
        if not run.below:
            target.order.put(run)

    def _lose(self, run: Run) -> None:
        """The run and everything behind it is gone. Physical blocks of `run` itself are the caller's."""
        doomed = [run]
        for other in doomed:
            doomed += other.children.values()
        for other in reversed(doomed):
            tier, size = other.tier, len(other.hashes)
            tier.cached -= size
            if other.rank >= PROTECTED:
                tier.protected -= size
            if other is not run:
                tier.prepend(other.ids)
            self.removed(other.hashes[::-1], tier)
            self.remove(other)

    def sink(self, mark: Mark, tier: Tier) -> int:
        """Moves down to `tier` what of the mark's prefix nobody holds and no claim wants higher. Blocks moved."""
        run, done, moved = mark.run, None, 0
        while run is not None and run.parent is not None:
            reach = [run]
            for other in reach:
                reach += (child for child in other.children.values() if child is not done)
            if any(r.refs or any(m.ceiling < tier.level for m in r.marks or ()) for r in reach):
                break
            parent = run.parent
            for other in reversed(reach):
                if other.tier.level < tier.level and other.parent is not None:
                    took, gone = self._sink_one(other, tier)
                    moved += took
                    if not gone:
                        return moved
            done, run = run, parent
        return moved

    def _sink_one(self, run: Run, tier: Tier) -> tuple[int, bool]:
        """As much of the run as finds a place, from its tail. Whether all of it did."""
        size = len(run.hashes)
        places = self._places(tier, (run.rank, run.release), size)
        if not places:
            return 0, False
        if len(places) < size:
            split(run, size - len(places))
        source, ids = run.tier, run.ids
        self.move(run, tier, places, [source.holds[block] for block in ids])
        source.prepend(ids)
        return len(places), len(places) == size

    # --- up -------------------------------------------------------------------------------------------------------

    def lift(self, run: Run, target: Tier, take: Callable[[int], list[int]]) -> int:
        """A run comes up to `target` onto the blocks that `take` finds, head first. Blocks moved; where they are fewer
        than the run has, it is split and `run` is what stays.

        It leaves its places first, so that what sinks to make room may have them: an exchange loses nothing.
        """
        source, size = run.tier, len(run.hashes)
        payload = [source.holds[block] for block in run.ids]
        source.prepend(run.ids)
        places = take(size)
        got = len(places)
        if got < size:
            rising = split(run, got) if got else None
            run.ids = source.take(size - got)
            write(source.holds, run.ids, payload[got:])
            if rising is None:
                return 0
            run = rising
        self.move(run, target, places, payload[:got])
        return got

    def ready_at(self, run: Run) -> float:
        """When the last transfer of the prefix that ends with `run` ends, whoever asked for it."""
        latest = -inf
        while self.transfer is not None and run.parent is not None:
            latest = max(latest, run.ready_at)
            run = run.parent
        return latest

    def raise_prefix(self, run: Run, target: Tier, number: int) -> int:
        """What of the prefix that ends with `run` lies below `target` comes up there, head first, as far as no higher
        rank has to leave for it. It takes its place in the order as if let go just now, as number `number`."""
        path: list[Run] = []
        while run.parent is not None:
            path.append(run)
            run = run.parent
        for other in path:  # held meanwhile, so that it does not make room for itself
            other.tier.order.drop(other)
            if not other.refs:
                other.tier.held += len(other.hashes)
            other.refs += 1
        moved = 0
        for other in reversed(path):
            if other.tier.level <= target.level:
                continue
            size = len(other.hashes)
            got = self.lift(other, target, partial(self._places, target, (other.rank, number)))
            moved += got
            if got < size:
                if got and other.parent is not None:
                    other.parent.release = number
                    path.append(other.parent)
                break
            other.release = number
        for other in path:
            other.refs -= 1
            if not other.refs:
                other.tier.held -= len(other.hashes)
                if not other.below:
                    other.tier.order.put(other)
        return moved
