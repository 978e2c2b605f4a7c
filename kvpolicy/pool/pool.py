"""The embedded engine's block pool: what is resident, who holds it, and what leaves next.

Requests come from `steering`, the simulator or an adapter as block hashes, prefix-chained: a hash stands for all
tokens up to its block. Marks come from `claims`. The order of eviction is the engine's own (vLLM v1: blocks without
a hash first, then by release, a prompt's tail first) wherever ranks are equal, and it is the engine's own throughout
when nobody sets a mark.

The face is put together of three parts: `requests` (acquire, extend, private, release), `marking` (mark, weigh,
unmark) and, here, what an operator asks. Time is an argument; all changes with one `now` are one instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvpolicy.pool import look
from kvpolicy.pool.events import AllBlocksCleared, Event
from kvpolicy.pool.eviction import Eviction
from kvpolicy.pool.lease import BlockView, Lease
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.marking import Marking
from kvpolicy.pool.run import BlockHash
from kvpolicy.pool.tally import Tally
from kvpolicy.pool.tree import as_list


class Pool(Marking):
    """`blocks` physical blocks on the GPU, `cpu_blocks` and `disk_blocks` below it. Raises InputFault for sizes that
    cannot be.

    admit(marks covering the blocks, tier): whether they may be stored in that lower tier; without it, unless all marks
    say no. transfer(blocks, source, target): seconds that a movement takes; without it none. events: whether `events`
    is kept.
    """

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

    def prefetch(self, mark: Mark, now: float, tier: str = "gpu") -> int:
        """Brings the mark's prefix up to `tier`, head first, where free blocks or blocks of no higher rank make room.
        It is no use: nothing is renewed. Blocks moved; 0 where there is no such tier."""
        self._at(now)
        target = next((t for t in self.tiers if t.name == tier), None)
        mark.ceiling = 0 if target is None else target.level
        if self._movement is None or target is None or mark.run is None or mark.run.tier.level <= target.level:
            return 0
        self.releases += 1
        moved = self._movement.raise_prefix(mark.run, target, self.releases)
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

    def tally(self, tier: str, room: int) -> Tally:
        """A count of distinct blocks of `tier` under some prefixes together, up to `room`; valid until a change."""
        return Tally(next((t for t in self.tiers if t.name == tier), None), room)

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

    def block(self, hashes: Sequence[BlockHash], index: int) -> BlockView | None:
        """What is known of block `index` of a prompt; None where it is not resident. Renews nothing."""
        return look.block(self._root, as_list(hashes), index, self.now)

    def stretches(self, hashes: Sequence[BlockHash], count: int) -> Iterator[tuple[int, BlockView]]:
        """What is known of the first `count` blocks of a prompt, run by run: where each run ends, and its first block.
        Renews nothing."""
        return look.stretches(self._root, as_list(hashes), count, self.now)

    def survey(self, hashes: Sequence[BlockHash], count: int) -> tuple[int, int, int]:
        """Of the first `count` blocks of a prompt: the leading ones resident, those of them that requests hold, those
        of them on the GPU. Renews nothing."""
        return look.survey(self._root, as_list(hashes), count)

    def eviction_order(self, count: int | None = None) -> list[BlockHash]:
        """The next `count` cached blocks to leave (None: all), were nothing to change until then."""
        return [block_hash for block_hash, _ in look.order(self.gpu, count)]

    def residents(self, most: int) -> Iterator[tuple[BlockHash, BlockView]]:
        """Up to `most` resident blocks of all tiers with what is known of them, each prompt head first."""
        return look.residents(self._root, most, self.now)

    def free_queue(self) -> list[int]:
        """Physical ids in the order in which they would be reused."""
        return self.gpu.empty_ids() + [block for _, block in look.order(self.gpu, None)]

    def block_ids(self, lease: Lease) -> list[int]:
        """The physical blocks of a request, head first, private ones last."""
        return look.ids(lease.run) + lease.private

    def count_from(self, strength: int) -> int:
        """GPU blocks whose strength is at least that. O(runs)."""
        return look.count_from(self._root, self.gpu, strength)

    @property
    def runs(self) -> int:
        """Runs in the tree: what ranking costs are counted in."""
        return look.count(self._root)
