"""What claims stand on in vLLM: prompts as paths of cached block ids, held and let go by requests, cut by evictions.

Fulfils `claims.ranks.Ranks` over `tree`. A prompt is the path of the blocks that a look-up of its hashes returns;
`claims` says what requests hold of it, `ranked` tells what went, and the ledger puts its marks on it. What vLLM has
cached and we never saw stored is entered when it is first spoken of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from kvpolicy.adapters.vllm.ranked import Ranked
from kvpolicy.adapters.vllm.tree import Sides, Tree
from kvpolicy.claims.claim import NAMELESS_AGE_S
from kvpolicy.claims.strength import DEFAULT
from kvpolicy.pool import look
from kvpolicy.pool.lease import Lease
from kvpolicy.pool.mark import Listener, Mark
from kvpolicy.pool.marks import Marks
from kvpolicy.pool.release import rejoin, tell, unhold
from kvpolicy.pool.run import Run
from kvpolicy.pool.tree import at_length, locate

UNSAID = "a use before the first directive"
Find = Callable[[Sequence[Hashable]], tuple[list[int], Sides]]


class Trunk(Marks):
    """capacity: prompt blocks that the pool holds at most. find: the ids that a look-up of block hashes returns now,
    head first, with those of other groups. listener: the ledger."""

    def __init__(self, ranked: Ranked, capacity: int, find: Find) -> None:
        self.listener: Listener | None = None
        self.now = 0.0
        self.tree = Tree(ranked, capacity)
        self._ranked = ranked
        self._find = find
        self._leases: dict[Lease, None] = {}
        self._releases = 0
        self._unsaid: deque[tuple[float, Mark]] = deque()

    # --- claims.ranks.Ranks, with what `Marks` has ------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Prompt blocks."""
        return self.tree.tier.capacity

    @property
    def protected_blocks(self) -> int:
        """Distinct protected prompt blocks."""
        return self.tree.tier.protected

    @property
    def movements(self) -> int:
        """Blocks moved between tiers: none, as vLLM's connectors copy and never move."""
        return 0

    def on_first_tier(self, mark: Any, length: int) -> int:
        """All of it is."""
        return min(length, int(mark.length))

    def _reach(self, hashes: Sequence[Hashable], length: int, now: float) -> tuple[Run | None, int]:
        run, cached = self._resident(hashes[:length], now)
        return run, min(length, cached)

    def _split(self, run: Run, at: int) -> Run:
        return self.tree.split(run, at)

    # --- requests ---------------------------------------------------------------------------------------------------

    def lease(self, now: float) -> Lease:
        """For a request that has been given blocks."""
        lease = Lease(self.tree.root, 0, now)
        self._leases[lease] = None
        return lease

    def enter(self, lease: Lease, keys: list[int], sides: Sides, now: float, hits: int = 0) -> None:
        """The request holds these blocks behind those it had. hits: how many of its first blocks were cached before
        it came; such a block that nobody claims was left by a use of which we do not know."""
        self.now = now
        begun = lease.length
        run, at = self.tree.hold(lease.run, keys, now)
        known = begun + at
        if at < len(keys):
            run = self.tree.store(run, keys[at:], sides[at:], now)
        lease.run = run
        lease.length = lease.asked = begun + len(keys)
        if known < min(hits, lease.length):
            end = at_length(run, min(hits, lease.length))
            if end.end > hits:
                end = self.tree.split(end, hits - end.start)
            self._unsay(end, now)

    def release(self, lease: Lease, now: float) -> None:
        """The request lets go of its blocks; vLLM puts them into the queue next. Idempotent."""
        if lease.released:
            return
        lease.released = True
        self._leases.pop(lease, None)
        self.now = now
        self._releases = number = self._releases + 1
        end = lease.run
        freed = unhold(end, number, now)
        if not freed:
            return
        rejoin(freed, now, self.tree.join)
        if self.listener is not None:
            tell(self.listener, end, number, now)

    # --- what went --------------------------------------------------------------------------------------------------

    def take_up(self) -> None:
        """What vLLM has given away since: called before anything else is asked or changed here."""
        gone = self._ranked.gone
        if gone:
            self._ranked.gone = []
            for run, taken in gone:
                self._lost(run, taken)

    def uncached(self, block_ids: Iterable[int], now: float) -> None:
        """These are in no look-up any more, though they may be held, or stand in the queue."""
        self.now = now
        for block_id in block_ids:
            run = self._ranked.run_of(block_id)
            if run is not None:
                self._lost(run, [block_id])

    def forget(self, now: float) -> None:
        """The prefix cache was reset: nothing is cached any more."""
        self.now = now
        for child in list(self.tree.root.children.values()):
            self._cut(child, 0)

    def lapse(self, now: float) -> None:
        """What was said of blocks that others had left ends."""
        while self._unsaid and self._unsaid[0][0] <= now:
            self.unmark(self._unsaid.popleft()[1], now)

    def tell_emptied(self) -> None:
        """Tell the ledger of claims whose whole prefix is gone."""
        emptied = self.tree.emptied()
        if self.listener is not None:
            for mark in emptied:
                self.listener.emptied(mark, self.now)

    # --- looking ----------------------------------------------------------------------------------------------------

    def rank_of(self, block_id: int) -> int:
        """A block's rank, as the queue has it."""
        run = self._ranked.run_of(block_id)
        return DEFAULT if run is None else run.rank

    @property
    def runs(self) -> int:
        """Runs in the tree."""
        return look.count(self.tree.root)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _resident(self, hashes: Sequence[Hashable], now: float) -> tuple[Run | None, int]:
        """The path of cached blocks with these hashes; it is no use of them."""
        keys, sides = self._find(hashes)
        run, at = locate(self.tree.root, list(keys))
        if at == len(keys):
            return run, at
        if at < run.end:
            run = self.tree.split(run, at - run.start)
        self._releases += 1
        end = each = self.tree.attach(run, keys[at:], sides[at:], now)
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

    def _lost(self, run: Run, taken: list[int]) -> None:
        """Blocks of a run are gone."""
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

    def _cut(self, run: Run, at: int) -> None:
        """A request that computed the same blocks at the same time as another holds copies of its own while a look-up
        returns the other's: they may go while it runs."""
        for gone, left in self.tree.cut(run, at):
            for lease in self._leases:
                if lease.run is gone:
                    lease.run = left
                    lease.length = lease.asked = left.end
