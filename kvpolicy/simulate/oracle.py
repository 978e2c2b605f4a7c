"""The two bounds that know the future: MIN with bypass (`belady`), and MIN that an engine could reach.

Source: L. A. Belady, A study of replacement algorithms, IBM Systems Journal 5(2), 1966. On prefix chains the next use
of a block is never later than that of the block behind it, so evicting the farthest next use first, the deepest first
on ties, keeps every resident set a set of prefixes. Hence the blocks that wait for one coming request are one run of
its prompt, and a count per coming request is the whole state: no work per block beyond finding its next use.

Reads calls (only their hash lists), gives hits per call to the tally. Memory: the ids of the whole trace, numbered
densely in one `array('q')` (8 bytes a reference), one dictionary of unique blocks, and two numbers a call.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter

from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import BlockId, Call

NEVER = 1 << 60  # the next use of a block that is not used again


class History:
    """All hash lists of a trace, kept compactly; shared by every oracle that reads the same trace."""

    def __init__(self) -> None:
        self._number: dict[BlockId, int] = {}
        self._ids = array("q")
        self._ends = array("q", [0])
        self._tokens, self._seen = array("q"), array("q")
        self._block_size = 0
        self._uses: list[list[tuple[int, int]]] | None = None

    def append(self, call: Call) -> None:
        """One more call."""
        number, hashes = self._number, call.hashes
        for block in hashes:
            if block not in number:
                number[block] = len(number)
        self._ids.extend([number[block] for block in hashes])
        self._ends.append(len(self._ids))
        self._tokens.append(call.request.tokens)
        self._seen.append(call.seen)
        self._block_size = call.request.block_size

    @property
    def references(self) -> int:
        """Block ids kept."""
        return len(self._ids)

    def count(self, tally: Tally, hits: list[int]) -> None:
        """Add every call to the tally, with the hits that an oracle had."""
        for call, (tokens, seen, hit) in enumerate(zip(self._tokens, self._seen, hits, strict=True)):
            tally.count(self.length(call), hit, seen, tokens, self._block_size)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def length(self, call: int) -> int:
        """Blocks of a call."""
        return self._ends[call + 1] - self._ends[call]

    def next_uses(self) -> list[list[tuple[int, int]]]:
        """Per call: (the call that uses them next, how many blocks), nearest first. One reverse pass, made once."""
        if self._uses is None:
            coming: dict[int, int] = {}
            uses: list[list[tuple[int, int]]] = []
            for call in range(len(self) - 1, -1, -1):
                ids = self._ids[self._ends[call] : self._ends[call + 1]]
                waiting = Counter([coming.get(block, NEVER) for block in ids])
                uses.append(sorted(waiting.items()))
                coming.update(dict.fromkeys(ids, call))
            uses.reverse()
            self._uses = uses
        return self._uses


def belady(history: History, capacity: int) -> tuple[list[int], int]:
    """MIN with bypass: hits per call, and blocks evicted. A block with no next use is not kept; a running request
    need not be resident. The bound in the literature; no engine can reach it."""
    waiting = _Waiting(len(history))
    hits, evicted = [], 0
    for call, uses in enumerate(history.next_uses()):
        hit = waiting.take(call)
        hits.append(hit)
        for use, blocks in uses:
            if use != NEVER:
                waiting.add(use, blocks)
        evicted += waiting.shrink(capacity)
    return hits, evicted


def belady_resident(history: History, capacity: int) -> tuple[list[int], int]:
    """MIN that holds all blocks of the running request: hits per call, and blocks evicted. The reachable bound.

    A request longer than `capacity` keeps its head.
    """
    waiting = _Waiting(len(history))
    hits, evicted, dead = [], 0, 0
    for call, uses in enumerate(history.next_uses()):
        kept = min(history.length(call), capacity)
        hit = waiting.take(call)
        hits.append(hit)
        excess = waiting.total + dead + kept - capacity
        if excess > 0:
            gone = min(excess, dead)
            dead -= gone
            evicted += gone + waiting.shrink(capacity - kept - dead)
        for use, blocks in uses:
            blocks = min(blocks, kept)  # noqa: PLW2901 - the head of a request that does not fit
            kept -= blocks
            if use == NEVER:
                dead += blocks
            else:
                waiting.add(use, blocks)
    return hits, evicted


class _Waiting:
    """How many resident blocks wait for each coming call; the farthest call gives up its blocks first."""

    def __init__(self, calls: int) -> None:
        self._blocks = array("q", bytes(8 * calls))
        self._far: list[int] = []  # calls that blocks wait for, negated: a heap with the farthest on top
        self.total = 0

    def take(self, call: int) -> int:
        """The blocks that waited for `call`: they are its hits, and wait no longer."""
        blocks = self._blocks[call]
        self._blocks[call] = 0
        self.total -= blocks
        return blocks

    def add(self, call: int, blocks: int) -> None:
        """`blocks` more wait for `call`."""
        if blocks and not self._blocks[call]:
            heapq.heappush(self._far, -call)
        self._blocks[call] += blocks
        self.total += blocks

    def shrink(self, size: int) -> int:
        """Evict the farthest next use first until at most `size` blocks wait; how many left."""
        evicted = 0
        while self.total > size:
            call = -self._far[0]
            gone = min(self._blocks[call], self.total - size)
            self._blocks[call] -= gone
            self.total -= gone
            evicted += gone
            if not self._blocks[call]:
                heapq.heappop(self._far)
        return evicted
