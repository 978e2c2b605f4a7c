"""One tier of memory: its physical blocks, which of them are free, what each holds, and its order of eviction.

Physical ids run from 1 (0 is the null block, as in vLLM). A fresh tier hands them out in order. A freed block
without a hash goes to the front and is reused first; a block emptied in its place by an explicit eviction keeps
that place, behind every other free block and before every cached one.
"""

from __future__ import annotations

from itertools import pairwise

from kvpolicy.pool.order import Order
from kvpolicy.pool.run import BlockHash


class Tier:
    """`capacity` physical blocks of one medium.

    level: 0 for the GPU, rising downwards. lower: the tier below. medium: its name in events.
    held: blocks that running requests hold by hash. private: blocks held without a hash. protected: blocks whose rank
    is protected. cached: blocks with a hash, held or not.
    """

    __slots__ = (
        "cached",
        "capacity",
        "free",
        "held",
        "holds",
        "level",
        "lower",
        "medium",
        "name",
        "order",
        "private",
        "protected",
        "vacated",
    )

    def __init__(self, name: str, level: int, capacity: int) -> None:
        self.name = name
        self.level = level
        self.capacity = capacity
        self.medium = name.upper()
        self.lower: Tier | None = None
        self.free: list[int] = []  # freed, the end is the front of the queue; behind them come those never used
        self.vacated: list[int] = []  # emptied in place, first to be reused first
        self.holds: list[BlockHash] = [None]  # as long as the ids ever used: memory follows use, not capacity
        self.order = Order()
        self.cached = 0
        self.held = 0
        self.private = 0
        self.protected = 0

    def take(self, count: int) -> list[int]:
        """Up to `count` free blocks in queue order. O(count) amortised."""
        free = self.free
        if count <= 0:
            return []
        if len(free) >= count:
            ids = free[: -count - 1 : -1]
            del free[-count:]
            return ids
        ids = free[::-1]
        free.clear()
        first = len(self.holds)
        fresh = min(count - len(ids), self.capacity + 1 - first)
        if fresh > 0:
            ids += range(first, first + fresh)
            self.holds += [None] * fresh
        if self.vacated and len(ids) < count:
            self.free = free = self.vacated[::-1]
            self.vacated = []
            ids += self.take(count - len(ids))
        return ids

    def prepend(self, ids: list[int]) -> None:
        """Blocks without a hash come back: the last one given is the first to be reused."""
        self.free.extend(ids)

    def empty_ids(self) -> list[int]:
        """Every free block, in the order in which they are reused."""
        return [*self.free[::-1], *range(len(self.holds), self.capacity + 1), *self.vacated]

    @property
    def spare(self) -> int:
        """Blocks that hold nothing."""
        return len(self.free) + self.capacity + 1 - len(self.holds) + len(self.vacated)


def stack(**capacities: int) -> tuple[Tier, ...]:
    """Tiers from the top down, those without blocks left out (but never the first)."""
    tiers: list[Tier] = []
    for name, capacity in capacities.items():
        if capacity or not tiers:
            tiers.append(Tier(name, len(tiers), capacity))
    for upper, lower in pairwise(tiers):
        upper.lower = lower
    return tuple(tiers)
