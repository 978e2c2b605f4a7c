"""The embedded engine's block pool: what is resident, who holds it, and what leaves next.

Requests come from `steering`, the simulator or an adapter as block hashes, prefix-chained: a hash stands for all
tokens up to its block. Marks come from `claims`. The order of eviction is the engine's own (vLLM v1: blocks without
a hash first, then by release, a prompt's tail first) wherever ranks are equal, and it is the engine's own throughout
when nobody sets a mark.

Two requests that compute the same blocks at once end up on one copy: the one already resident is used and the
private one is returned (as SGLang's radix cache does, and unlike vLLM, which keeps both).

Time is an argument of everything; all changes with one `now` are one instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kvpolicy.claims.strength import DEFAULT, PROTECTED
from kvpolicy.faults import InputFault
from kvpolicy.pool import look
from kvpolicy.pool.events import AllBlocksCleared, Event
from kvpolicy.pool.eviction import Eviction
from kvpolicy.pool.lease import BlockView, Lease
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.movement import Admit, Movement, Transfer
from kvpolicy.pool.payload import write
from kvpolicy.pool.ranks import recount, recount_all
from kvpolicy.pool.run import BlockHash, Run, root
from kvpolicy.pool.tier import Tier, stack
from kvpolicy.pool.tree import LONGEST, at_length, attach, locate, merge, mergeable, split
from kvpolicy.pool.walk import touch


class Listener(Protocol):
    """What the claims side hears from the pool, after the pool is consistent again."""

    def released(self, mark: Mark, now: float) -> None:
        """The last block of a mark with `notify` set is held by nobody any more."""

    def emptied(self, mark: Mark, now: float) -> None:
        """The last block of a mark's prefix is gone; the mark is void."""


class Pool:
    """`blocks` physical blocks on the GPU, `cpu_blocks` and `disk_blocks` below it. Raises InputFault for sizes that
    cannot be.

    admit(marks covering the blocks, tier): whether they may be stored in that lower tier; without it, unless all marks
    say no. transfer(blocks, source, target): seconds that a movement takes; without it none. events: whether `events`
    is kept.
    """

    def __init__(
        self,
        blocks: int,
        *,
        block_size: int = 16,
        cpu_blocks: int = 0,
        disk_blocks: int = 0,
        listener: Listener | None = None,
        admit: Admit | None = None,
        transfer: Transfer | None = None,
        events: bool = False,
    ) -> None:
        if blocks < 1:
            raise InputFault(f"a pool needs at least one block, not {blocks}")
        if cpu_blocks < 0 or disk_blocks < 0:
            raise InputFault("a tier cannot have fewer than 0 blocks")
        self.block_size = block_size
        self.listener = listener
        self.tiers: tuple[Tier, ...] = stack(gpu=blocks, cpu=cpu_blocks, disk=disk_blocks)
        self.gpu = self.tiers[0]
        self.now = 0.0
        self.releases = 0
        self._root: Run = root(self.gpu)
        self._movement = Movement(block_size, admit, transfer) if len(self.tiers) > 1 else None
        self._eviction: Eviction = self._movement or Eviction(block_size)
        if events:
            self._eviction.events = []

    # --- requests -------------------------------------------------------------------------------------------------

    def match(self, hashes: Sequence[BlockHash]) -> int:
        """Leading resident blocks. Touches nothing: probes renew nothing."""
        return locate(self._root, _as_list(hashes))[1]

    def acquire(self, hashes: Sequence[BlockHash], now: float) -> Lease:
        """A request begins: its hits are held, the rest is stored as far as room can be made.

        INVARIANT: never wait. Protected blocks make room like any other once nothing weaker is left.
        """
        hashes = _as_list(hashes)
        lease = Lease(self._root, len(hashes), now)
        below = self._enter(lease, hashes, now)
        lease.hits = hits = lease.length - len(lease.stored)
        lease.hits_by_tier = (hits - sum(below), *below)
        return lease

    def extend(self, lease: Lease, hashes: Sequence[BlockHash], now: float) -> None:
        """More full blocks of a running request. Its private blocks become the first of them, as a block being
        filled does; where such a block is resident already, the private copy is returned."""
        hashes = _as_list(hashes)
        if lease.released:
            raise InputFault("a released request cannot grow")
        whole = not lease.short
        lease.asked += len(hashes)
        if whole:
            self._enter(lease, hashes, now)

    def private(self, lease: Lease, count: int, now: float | None = None) -> int:
        """`count` blocks without a hash for a running request. Returns how many there was room for."""
        self._at(self.now if now is None else now)
        ids = self._take(count, lease)
        holds = self.gpu.holds
        for block in ids:
            holds[block] = None
        lease.private += ids
        self.gpu.private += len(ids)
        self._tell_emptied()
        return len(ids)

    def release(self, lease: Lease, now: float) -> None:
        """The request is over (or cancelled): its blocks enter the order of eviction, tail first. Idempotent."""
        if lease.released:
            return
        lease.released = True
        self.now = now
        self.releases = number = self.releases + 1
        if lease.private:
            self._return_private(lease, len(lease.private))
        freed: list[Run] = []
        end = run = lease.run
        while run.parent is not None:
            run.refs -= 1
            if not run.refs:
                run.release = number
                run.released_at = now
                run.tier.held -= len(run.hashes)
                freed.append(run)
            run = run.parent
        if not freed:
            return
        head = freed.pop()
        while freed:
            run = freed.pop()
            if mergeable(head, run, now):
                merge(head, run)
            head = run
        if not end.below:
            end.tier.order.put(end)
        if self.listener is not None:
            self._tell_released(end, number, now)

    # --- claims ---------------------------------------------------------------------------------------------------

    def mark(
        self, at: Lease | Mark | Sequence[BlockHash], length: int, strength: int | None, claim: object, now: float
    ) -> Mark:
        """A claim on the first `length` blocks of the prompt of `at`, clipped to what is resident of it.

        strength None: it weighs nothing. A mark of nothing is void from the start.
        """
        self.now = now
        mark = Mark(claim, strength, None)
        if isinstance(at, Lease | Mark):
            run = at.run
        else:
            hashes = _as_list(at)
            run, resident = locate(self._root, hashes)
            length = min(length, resident)
        if run is None or length <= 0:
            return mark
        run = at_length(run, length)
        if run.parent is None:
            return mark
        if length < run.end:
            run = split(run, length - run.start)
        mark.run = run
        if run.marks is None:
            run.marks = {}
        run.marks[mark] = None
        if strength is not None:
            recount(run, None, strength, now)
        return mark

    def weigh(self, mark: Mark, strength: int | None, now: float) -> None:
        """Changes the strength of a mark. Costs runs on the way up while they change, never blocks."""
        self.now = now
        old, mark.strength = mark.strength, strength
        if mark.run is not None and old != strength:
            recount(mark.run, old, strength, now)

    def weigh_all(self, changes: Iterable[tuple[Mark, int | None]], now: float) -> None:
        """Many of them at once: each run on the way is looked at once, in whatever order they come."""
        self.now = now
        shifts = []
        for mark, strength in changes:
            old, mark.strength = mark.strength, strength
            if mark.run is not None and old != strength:
                shifts.append((mark.run, old, strength))
        recount_all(shifts, now)

    def unmark(self, mark: Mark, now: float) -> None:
        """The claim is over. Idempotent."""
        self.now = now
        run = mark.run
        if run is None:
            return
        mark.run = None
        assert run.marks is not None
        del run.marks[mark]
        if not run.marks:
            run.marks = None
        if mark.strength is not None:
            recount(run, mark.strength, None, now)

    def last_release(self, mark: Mark, length: int | None = None) -> float | None:
        """When the last block of the mark's prefix (of its first `length` blocks) was let go. Seconds; None while a
        request holds it, or when it is gone."""
        run = mark.run
        if run is not None and length is not None:
            run = at_length(run, length)
        return None if run is None or run.refs else run.released_at

    def held_prefix(self, mark: Mark) -> int:
        """Blocks of its prefix that running requests hold."""
        run = mark.run
        while run is not None and not run.refs:
            run = run.parent
        return 0 if run is None else run.end

    def protected_prefix(self, mark: Mark) -> int:
        """Blocks of its prefix that are protected, by whomever."""
        run = mark.run
        while run is not None and run.rank < PROTECTED:
            run = run.parent
        return 0 if run is None else run.end

    # --- what an operator asks --------------------------------------------------------------------------------------

    def evict(self, count: int, now: float) -> list[BlockHash]:
        """Up to `count` cached blocks leave the GPU, first lost first; with lower tiers they sink where they may. The
        emptied blocks keep their place in the queue."""
        self._at(now)
        lost: list[BlockHash] = []
        self._eviction.evict(self.gpu, count, self.gpu.vacated, lost)
        self._tell_emptied()
        return lost

    def clear(self, now: float) -> bool:
        """Forgets everything that no request holds, in all tiers. Returns whether nothing cached is left."""
        self._at(now)
        for tier in reversed(self.tiers):  # from below, so that nothing sinks into what is being cleared
            Eviction.evict(self._eviction, tier, tier.capacity, tier.vacated, [])
        self._tell_emptied()
        if self._root.children:
            return False
        if self._eviction.events is not None:
            self._eviction.events.append(AllBlocksCleared())
        return True

    def demote(self, mark: Mark, tier: str, now: float) -> int:
        """The claim wants its blocks no higher than `tier` from now on: what nobody holds and no other claim wants
        higher moves there, as far as it outranks what it displaces. Blocks moved; 0 where there is no such tier."""
        self._at(now)
        target = next((t for t in self.tiers if t.name == tier), None)
        if target is None or self._movement is None:
            return 0
        mark.ceiling = target.level
        moved = self._movement.sink(mark, target)
        self._tell_emptied()
        return moved

    def prefetch(self, mark: Mark, now: float) -> int:
        """Brings the mark's prefix up to the GPU, head first, where free blocks or blocks of no higher rank make room.
        It is no use: nothing is renewed. Blocks moved."""
        self._at(now)
        mark.ceiling = 0
        if self._movement is None or mark.run is None:
            return 0
        self.releases += 1
        moved = self._movement.raise_prefix(mark.run, self.gpu, self.releases)
        self._tell_emptied()
        return moved

    def settle(self, now: float) -> None:
        """The clock moves on: transfers that end by then have ended."""
        self._at(now)

    @property
    def events(self) -> list[Event] | None:
        """What happened since the list was last emptied; None unless the pool was made to keep it."""
        return self._eviction.events

    @property
    def moved(self) -> dict[tuple[str, str], int]:
        """Blocks moved so far, by (from, to)."""
        return dict(self._movement.moved) if self._movement is not None else {}

    @property
    def capacity(self) -> int:
        """Blocks of the GPU."""
        return self.gpu.capacity

    @property
    def used(self) -> int:
        """GPU blocks that hold something: cached or private."""
        return self.gpu.capacity - self.gpu.spare

    @property
    def available(self) -> int:
        """GPU blocks that no running request holds: what an engine may admit against. Protected ones count."""
        return self.gpu.capacity - self.gpu.held - self.gpu.private

    @property
    def protected_blocks(self) -> int:
        """Distinct protected blocks on the GPU."""
        return self.gpu.protected

    def block(self, hashes: Sequence[BlockHash], index: int) -> BlockView | None:
        """What is known of block `index` of a prompt; None where it is not resident. Renews nothing."""
        return look.block(self._root, _as_list(hashes), index, self.now)

    def eviction_order(self, count: int | None = None) -> list[BlockHash]:
        """The next `count` cached blocks to leave (None: all), were nothing to change until then."""
        return [block_hash for block_hash, _ in look.order(self.gpu, count)]

    def free_queue(self) -> list[int]:
        """Physical ids in the order in which they would be reused."""
        return self.gpu.empty_ids() + [block for _, block in look.order(self.gpu, None)]

    def block_ids(self, lease: Lease) -> list[int]:
        """The physical blocks of a request, head first, private ones last."""
        return look.ids(lease.run) + lease.private

    @property
    def runs(self) -> int:
        """Runs in the tree: what ranking costs are counted in."""
        return look.count(self._root)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _at(self, now: float) -> None:
        self.now = now
        if self._movement is not None:
            self._movement.now = now

    def _enter(self, lease: Lease, hashes: list[BlockHash], now: float) -> list[int]:
        """Walks on from the lease's end: holds what is resident, then stores the rest. Blocks found per lower tier."""
        self.now = now
        cold: list[Run] = []
        lease.run, at = touch(lease.run, hashes, 0, now, cold)
        below: list[int] = []
        fits = True
        if self._movement is not None:
            self._movement.now = now
            below, short = self._lift(lease, cold)
            at -= short
            fits = not short
        lease.length += at
        if lease.private and at:
            self._return_private(lease, min(at, len(lease.private)))
        missing = len(hashes) - at
        if missing and fits:
            ids = self._take_for(lease, missing)
            if ids:
                new = hashes[at : at + len(ids)]
                write(self.gpu.holds, ids, new)
                self._store(lease, new, ids, now)
        self._tell_emptied()
        return below

    def _lift(self, lease: Lease, cold: list[Run]) -> tuple[list[int], int]:
        """Brings the runs that a request found below the GPU up, head first. Blocks found in each lower tier, and
        blocks for which there is no room: those are let go again, and the request ends before them."""
        assert self._movement is not None
        found = [0] * (len(self.tiers) - 1)
        for index, run in enumerate(cold):
            size, level = len(run.hashes), run.tier.level
            got = self._movement.lift(run, self.gpu, lambda count: self._take(count, lease))
            found[level - 1] += got
            if got == size:
                lease.ready_at = max(lease.ready_at, run.ready_at)
                continue
            assert run.parent is not None
            lease.run = run.parent
            lease.ready_at = max(lease.ready_at, lease.run.ready_at)
            rest = cold[index:]
            for other in reversed(rest):
                self._let_go(other)
            return found, sum(len(other.hashes) for other in rest)
        return found, 0

    def _let_go(self, run: Run) -> None:
        """One holder less, and no use: the run goes back to where it stood."""
        run.refs -= 1
        if not run.refs:
            run.tier.held -= len(run.hashes)
            if not run.below:
                run.tier.order.put(run)

    def _take_for(self, lease: Lease, count: int) -> list[int]:
        """Physical blocks for `count` full blocks: those being filled first."""
        filled = lease.private[:count]
        if not filled:
            return self._take(count, lease)
        del lease.private[:count]
        self.gpu.private -= len(filled)
        return filled + self._take(count - len(filled), lease)

    def _take(self, count: int, lease: Lease) -> list[int]:
        gpu = self.gpu
        ids = gpu.take(count)
        if len(ids) < count:
            self._eviction.evict(gpu, count - len(ids), ids, lease.evicted)
        return ids

    def _store(self, lease: Lease, hashes: list[BlockHash], ids: list[int], now: float) -> None:
        """Blocks behind the lease's end: in place where only this request stands there, else as runs of their own."""
        gpu, end, size = self.gpu, lease.run, len(hashes)
        lease.stored += hashes
        lease.length += size
        gpu.cached += size
        gpu.held += size
        self._eviction.stored(hashes, end, gpu)
        if (
            end.refs == 1
            and end.parent is not None
            and not end.children
            and not end.marks
            and end.own == DEFAULT
            and end.began(now) == DEFAULT
            and len(end.hashes) + size <= LONGEST
        ):
            end.hashes += hashes
            end.ids += ids
            return
        for at in range(0, size, LONGEST):
            end = attach(end, hashes[at : at + LONGEST], ids[at : at + LONGEST], now)
        lease.run = end

    def _return_private(self, lease: Lease, count: int) -> None:
        self.gpu.prepend(lease.private[:count])
        self.gpu.private -= count
        del lease.private[:count]

    def _tell_emptied(self) -> None:
        emptied = self._eviction.emptied
        if not emptied:
            return
        self._eviction.emptied = []
        if self.listener is not None:
            for mark in emptied:
                self.listener.emptied(mark, self.now)

    def _tell_released(self, run: Run, number: int, now: float) -> None:
        assert self.listener is not None
        told = []
        while run.parent is not None and run.release == number and not run.refs:
            if run.marks:
                told += [mark for mark in run.marks if mark.notify]
            run = run.parent
        for mark in told:
            self.listener.released(mark, now)


def _as_list(hashes: Sequence[BlockHash]) -> list[BlockHash]:
    return hashes if type(hashes) is list else list(hashes)
