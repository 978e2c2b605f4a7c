"""The pool as requests see it: they acquire, grow, and let go. The engine's side of the pool.

Two requests that compute the same blocks at once end up on one copy: the one already resident is used and the
private one is returned (as SGLang's radix cache does, and unlike vLLM, which keeps both).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.faults import InputFault
from kvpolicy.pool.eviction import Eviction
from kvpolicy.pool.lease import Lease
from kvpolicy.pool.mark import Listener
from kvpolicy.pool.movement import Admit, Movement, Transfer
from kvpolicy.pool.payload import write
from kvpolicy.pool.release import rejoin, tell, unhold
from kvpolicy.pool.run import BlockHash, Run, root
from kvpolicy.pool.tier import Tier, stack
from kvpolicy.pool.tree import as_list, attach, extendable, locate
from kvpolicy.pool.walk import touch

MOST_BLOCKS = 1 << 53  # beyond, numbers in JSON are no longer exact


class Requests:
    """What running requests hold, and what they leave behind. The arguments are those of `Pool`."""

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
        for what, given in (("blocks", blocks), ("block_size", block_size)):
            if isinstance(given, bool) or not isinstance(given, int):
                raise InputFault(f"{what}: a whole number is needed, not {given!r}")
        if blocks < 1:
            raise InputFault(f"a pool needs at least one block, not {blocks}")
        if cpu_blocks < 0 or disk_blocks < 0:
            raise InputFault("a tier cannot have fewer than 0 blocks")
        if max(blocks, cpu_blocks, disk_blocks) > MOST_BLOCKS:
            raise InputFault(f"a tier cannot have more than {MOST_BLOCKS} blocks")
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

    def match(self, hashes: Sequence[BlockHash]) -> int:
        """Leading resident blocks. Touches nothing: probes renew nothing."""
        return locate(self._root, as_list(hashes))[1]

    def acquire(self, hashes: Sequence[BlockHash], now: float) -> Lease:
        """A request begins: its hits are held, the rest is stored as far as room can be made.

        INVARIANT: never wait. Protected blocks make room like any other once nothing weaker is left.
        """
        hashes = as_list(hashes)
        lease = Lease(self._root, len(hashes), now)
        below = self._enter(lease, hashes, now)
        lease.hits = hits = lease.length - len(lease.stored)
        lease.hits_by_tier = (hits - sum(below), *below)
        return lease

    def extend(self, lease: Lease, hashes: Sequence[BlockHash], now: float) -> None:
        """More full blocks of a running request. Its private blocks become the first of them, as a block being
        filled does; where such a block is resident already, the private copy is returned."""
        hashes = as_list(hashes)
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
        end = lease.run
        freed = unhold(end, number, now)
        if not freed:
            return
        for run in freed:
            run.tier.held -= len(run.hashes)
        if len(freed) > 1:
            rejoin(freed, now)
        if not end.below:
            end.tier.order.put(end)
        if self.listener is not None:
            tell(self.listener, end, number, now)

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
        below, short = [0] * (len(self.tiers) - 1), 0
        if self._movement is not None:
            self._movement.now = now
            below, short = self._lift(lease, cold)
            lease.ready_at = max(lease.ready_at, self._movement.ready_at(lease.run))
            at -= short
        lease.length += at
        if lease.private and at:
            self._return_private(lease, min(at, len(lease.private)))
        missing = len(hashes) - at
        if missing and not short:
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
                continue
            assert run.parent is not None
            lease.run = run.parent
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
        if extendable(end, size, now):
            end.hashes += hashes
            end.ids += ids
        else:
            lease.run = attach(end, hashes, ids, now)

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
