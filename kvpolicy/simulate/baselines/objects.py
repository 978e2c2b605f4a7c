"""Plain rules of a cache, block by block, that know nothing of spans or engines: context for a policy's figures.

Each brings in every block of a request, head to tail, and evicts at once when the cache is full, so an early block of a
request may push out a later one. A hit is a block of the leading run found resident. `lru` is not here: it is the pool
itself, in the engine's own order (`replay`).
Read by `runs`; the source of the orders is named at each class.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from kvpolicy.simulate.trace import BlockId


class Baseline(Protocol):
    """A cache of `capacity` blocks."""

    evictions: int

    def use(self, hashes: Sequence[BlockId]) -> int:
        """One request's blocks, head to tail; its hits."""
        ...


class LruObject:
    """Least recently used, a request touched head to tail: what a general cache simulator does. Its oldest block is
    the head of the oldest request, which an engine never evicts before the tail."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[BlockId, None] = OrderedDict()
        self.evictions = 0

    def use(self, hashes: Sequence[BlockId]) -> int:
        """One request's blocks, head to tail; its hits."""
        blocks, capacity = self._blocks, self._capacity
        touch, leave = blocks.move_to_end, blocks.popitem
        hits, leading = 0, True
        for block in hashes:
            if block in blocks:
                hits += leading
                touch(block)
            else:
                leading = False
                if len(blocks) >= capacity:
                    leave(False)
                    self.evictions += 1
                blocks[block] = None
        return hits


class Fifo:
    """First in, first out: a hit changes nothing."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[BlockId, None] = OrderedDict()
        self.evictions = 0

    def use(self, hashes: Sequence[BlockId]) -> int:
        """One request's blocks, head to tail; its hits."""
        blocks, capacity = self._blocks, self._capacity
        hits, leading = 0, True
        for block in hashes:
            if block in blocks:
                hits += leading
            else:
                leading = False
                if len(blocks) >= capacity:
                    blocks.popitem(False)
                    self.evictions += 1
                blocks[block] = None
        return hits


class Lfu:
    """Least frequently used since it came in, the least recently used of those first.

    One queue per count of uses, so every step is O(1): K. Shah, A. Mitra, D. Matani, An O(1) algorithm for
    implementing the LFU cache eviction scheme, 2010.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._count: dict[BlockId, int] = {}
        self._queues: dict[int, OrderedDict[BlockId, None]] = {}
        self._least = 1
        self.evictions = 0

    def use(self, hashes: Sequence[BlockId]) -> int:
        """One request's blocks, head to tail; its hits."""
        hits, leading = 0, True
        for block in hashes:
            if block in self._count:
                hits += leading
                self._touch(block)
            else:
                leading = False
                self._bring_in(block)
        return hits

    def _touch(self, block: BlockId) -> None:
        uses = self._count[block]
        queue = self._queues[uses]
        del queue[block]
        if not queue:
            del self._queues[uses]
            if self._least == uses:
                self._least = uses + 1
        self._count[block] = uses + 1
        self._queues.setdefault(uses + 1, OrderedDict())[block] = None

    def _bring_in(self, block: BlockId) -> None:
        if len(self._count) >= self._capacity:
            queue = self._queues[self._least]
            victim, _ = queue.popitem(False)
            if not queue:
                del self._queues[self._least]
            del self._count[victim]
            self.evictions += 1
        self._count[block] = 1
        self._queues.setdefault(1, OrderedDict())[block] = None
        self._least = 1
