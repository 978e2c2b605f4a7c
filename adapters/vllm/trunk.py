"""What claims stand on in vLLM: a radix tree over the ids of cached blocks, and the ranks it gives the queue.

Fulfils `claims.ranks.Ranks`. A prompt is the path of the blocks that a look-up of its hashes returns, by their ids in
the group that decides hits; blocks of other groups ride on the run of the one they end in. `keeper` enters and
releases requests; the queue tells what went. Splitting, merging and counting are the embedded pool's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from kvpolicy.adapters.vllm.queue import RankedQueue
from kvpolicy.claims.claim import NAMELESS_AGE_S
from kvpolicy.claims.strength import DEFAULT, PROTECTED
from kvpolicy.pool.eviction import Eviction
from kvpolicy.pool.lease import Lease
from kvpolicy.pool.mark import Listener, Mark
from kvpolicy.pool.marks import Marks
from kvpolicy.pool.order import Order
from kvpolicy.pool.ranks import use
from kvpolicy.pool.run import BlockHash, Run, root
from kvpolicy.pool.tier import Tier
from kvpolicy.pool.tree import LONGEST, at_length, attach, common, locate, merge, mergeable, split

UNSAID = "a use before the first directive"
Find = Callable[[Sequence[Hashable]], tuple[list[int], list[tuple[int, ...]]]]


class _Standing(Order):
    """Where a run stands is the queue's affair."""

    __slots__ = ("_queue",)

    def __init__(self, queue: RankedQueue) -> None:
        super().__init__()
        self._queue = queue

    def put(self, run: Run) -> None:
        self._queue.put(run)

    def drop(self, run: Run) -> None:
        self._queue.drop(run)


class Trunk(Marks):
    """capacity: prompt blocks that the pool holds at most. find: the ids that a look-up of block hashes returns now,
    head first, with those of other groups. listener: the ledger."""

    def __init__(self, queue: RankedQueue, capacity: int, find: Find) -> None:
        self.queue = queue
        self.listener: Listener | None = None
        self.now = 0.0
        self.leases: dict[Lease, None] = {}
        self._find = find
        self._capacity = capacity
        self._tier = Tier("gpu", 0, capacity)
        self._tier.order = _Standing(queue)
        self._root = root(self._tier)
        self._eviction = Eviction(1)
        self._releases = 0
        self._unsaid: deque[tuple[float, Mark]] = deque()

    # --- claims.ranks.Ranks -----------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Prompt blocks."""
        return self._capacity

    @property
    def protected_blocks(self) -> int:
        """Distinct protected prompt blocks."""
        return self._tier.protected

    @property
    def movements(self) -> int:
        """Blocks moved between tiers: none, as vLLM's connectors copy and never move."""
        return 0

    def on_first_tier(self, mark: Any, length: int) -> int:
        """All of it is."""
        return min(length, int(mark.length))

    def _reach(self, hashes: Sequence[Hashable], length: int, now: float) -> tuple[Run | None, int]:
        run, cached = self._resident(list(hashes[:length]), now)
        return run, min(length, cached)

    # --- requests ---------------------------------------------------------------------------------------------------

    def lease(self, now: float) -> Lease:
        """For a request that has been given blocks."""
        lease = Lease(self._root, 0, now)
        self.leases[lease] = None
        return lease

    def enter(self, lease: Lease, keys: list[int], sides: list[tuple[int, ...]], now: float, hits: int = 0) -> None:
        """The request holds these blocks behind those it had. hits: how many of its first blocks were cached before
        it came; such a block that nobody claims was left by a use of which we do not know."""
        self.now = now
        begun = lease.length
        run, at = self._touch(lease.run, keys, now)
        known = begun + at
        if at < len(keys):
            run = self._store(run, keys[at:], sides[at:], now)
        lease.run = run
        lease.length = begun + len(keys)
        lease.asked = lease.length
        if known < min(hits, lease.length):
            end = at_length(run, min(hits, lease.length))
            if end.end > hits:
                end = self._split(end, hits - end.start)
            self._unsay(end, now)

    def release(self, lease: Lease, now: float) -> None:
        """The request lets go of its blocks; vLLM puts them into the queue next. Idempotent."""
        if lease.released:
            return
        lease.released = True
        self.leases.pop(lease, None)
        self.now = now
        self._releases = number = self._releases + 1
        freed: list[Run] = []
        end = run = lease.run
        while run.parent is not None:
            run.refs -= 1
            if not run.refs:
                run.release, run.released_at = number, now
                freed.append(run)
            run = run.parent
        if not freed:
            return
        head = freed.pop()
        while freed:
            run = freed.pop()
            if mergeable(head, run, now):
                self.queue.assign(_blocks(head), run)
                merge(head, run)
            head = run
        if self.listener is not None:
            told = []
            run = end
            while run.parent is not None and run.release == number and not run.refs:
                told += run.told()
                run = run.parent
            for mark in told:
                self.listener.released(mark, now)

    # --- what went --------------------------------------------------------------------------------------------------

    def take_up(self) -> None:
        """What the queue has given away since: called before anything else is asked or changed here."""
        gone = self.queue.gone
        if gone:
            self.queue.gone = []
            for run, taken in gone:
                self._lost(run, taken)

    def _lost(self, run: Run, taken: list[int]) -> None:
        if run.parent is None:
            return
        keys, count = run.hashes, len(taken)
        if count <= len(keys) and not run.children and keys[: -count - 1 : -1] == taken:
            self._cut(run, len(keys) - count)
            return
        mine = set(taken)
        at = next((n for n, key in enumerate(keys) if key in mine), None)
        if at is not None:  # else they are of a group that another block of theirs stands for
            self._cut(run, at)

    def uncached(self, block_ids: Iterable[int], now: float) -> None:
        """These are in no look-up any more, though they may be held, or stand in the queue."""
        self.now = now
        for block_id in block_ids:
            run = self.queue.run_of(block_id)
            if run is not None:
                self._lost(run, [block_id])

    def forget(self) -> None:
        """The prefix cache was reset: nothing is cached any more."""
        for child in list(self._root.children.values()):
            self._cut(child, 0)

    def lapse(self, now: float) -> None:
        """What was said of blocks that others had left ends."""
        while self._unsaid and self._unsaid[0][0] <= now:
            self.unmark(self._unsaid.popleft()[1], now)

    def tell_emptied(self) -> None:
        """Tell the ledger of claims whose whole prefix is gone."""
        emptied, self._eviction.emptied = self._eviction.emptied, []
        if self.listener is not None:
            for mark in emptied:
                self.listener.emptied(mark, self.now)

    # --- looking ----------------------------------------------------------------------------------------------------

    def rank_of(self, block_id: int) -> int:
        """A block's rank, as the queue has it."""
        run = self.queue.run_of(block_id)
        return DEFAULT if run is None else run.rank

    @property
    def runs(self) -> int:
        """Runs in the tree."""
        count, pending = -1, [self._root]
        while pending:
            run = pending.pop()
            count += 1
            pending += run.children.values()
        return count

    # --- inside -----------------------------------------------------------------------------------------------------

    def _touch(self, run: Run, keys: list[int], now: float) -> tuple[Run, int]:
        at, total = 0, len(keys)
        while at < total:
            child = run.children.get(keys[at])
            if child is None:
                break
            size = len(child.hashes)
            if keys[at : at + size] != child.hashes:
                size = common(child, list(keys), at)
                if size < len(child.hashes):
                    child = self._split(child, size)
            child.refs += 1
            use(child, now)
            at += size
            run = child
        return run, at

    def _store(self, run: Run, keys: Sequence[BlockHash], sides: list[tuple[int, ...]], now: float) -> Run:
        """Blocks behind `run`: in place where only this request stands there, else as runs of their own."""
        ids: Any = sides  # empty where one group alone decides, else one entry a block
        if (
            run.refs == 1
            and run.parent is not None
            and not run.children
            and not run.marks
            and run.own == DEFAULT
            and run.began(now) == DEFAULT
            and len(run.hashes) + len(keys) <= LONGEST
        ):
            run.hashes += keys
            run.ids += ids
            self.queue.assign(_flat(keys, ids), run)
            return run
        return self._attach(run, keys, sides, now)

    def _attach(self, run: Run, keys: Sequence[BlockHash], sides: Any, now: float) -> Run:
        for at in range(0, len(keys), LONGEST):
            some, beside = list(keys[at : at + LONGEST]), list(sides[at : at + LONGEST])
            run = attach(run, some, beside, now)
            self.queue.assign(_flat(some, beside), run)
        return run

    def _resident(self, hashes: list[Hashable], now: float) -> tuple[Run | None, int]:
        """The path of cached blocks with these hashes; it is no use of them."""
        keys, sides = self._find(hashes)
        run, at = locate(self._root, list(keys))
        if at == len(keys):
            return run, at
        if at < run.end:
            run = self._split(run, at - run.start)
        self._releases += 1
        end = each = self._attach(run, keys[at:], sides[at:], now)
        while each is not run:
            each.refs, each.release, each.released_at = 0, self._releases, now
            assert each.parent is not None
            each = each.parent
        self._unsay(end, now)
        return end, len(keys)

    def _unsay(self, run: Run, now: float) -> None:
        """INVARIANT: nobody sinks another. Blocks that were cached before the first directive were used by somebody who
        said nothing, so they stand at the default as long as such a claim lives."""
        mark = Mark(UNSAID, DEFAULT, run)
        self._put(mark, run, now)
        self._unsaid.append((now + NAMELESS_AGE_S, mark))

    def _split(self, run: Run, at: int) -> Run:
        head = split(run, at)
        self.queue.assign(_blocks(head), head)
        return head

    def _cut(self, run: Run, at: int) -> None:
        """Block `at` of a run is gone: what stands behind it can be hit no more. INVARIANT: eviction changes no rank
        of what is left; claims that ended behind end here from now on."""
        behind: list[Run] = []
        pending = list(run.children.values())
        while pending:
            each = pending.pop()
            behind.append(each)
            pending += each.children.values()
        for each in reversed(behind):  # the deepest first
            self._remove(each)
        if at == 0:
            self._remove(run)
            return
        gone = run.hashes[at:]
        self._unprotect(run, len(gone))
        self._orphan(_flat(gone, run.ids[at:]))
        del run.hashes[at:]
        del run.ids[at:]
        self._shorten_leases(run, run)

    def _remove(self, run: Run) -> None:
        parent = run.parent
        assert parent is not None
        self._unprotect(run, len(run.hashes))
        ids = _blocks(run)
        self._eviction.remove(run)
        self._orphan(ids)
        self._shorten_leases(run, parent)

    def _unprotect(self, run: Run, count: int) -> None:
        if run.rank >= PROTECTED:
            self._tier.protected -= count

    def _orphan(self, ids: list[int]) -> None:
        self.queue.assign(ids, None)

    def _shorten_leases(self, gone: Run, left: Run) -> None:
        """A request that computed the same blocks at the same time as another holds copies of its own while a look-up
        returns the other's: they may go while it runs."""
        if not gone.refs:
            return
        for lease in self.leases:
            if lease.run is gone:
                lease.run = left
                lease.length = lease.asked = left.end


def _blocks(run: Run) -> list[int]:
    return _flat(run.hashes, run.ids)


def _flat(keys: Sequence[Any], sides: Sequence[Any]) -> list[int]:
    """Ids of a stretch of prompt in all groups."""
    ids = list(keys)
    for beside in sides:
        ids += beside
    return ids
