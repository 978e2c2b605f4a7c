"""evoke's score, block by block: recency and reuse, with a floor by the role of the text, times a priority.

Source: evoke-vllm 0.1.1 (Apache-2.0, PyPI), which orders vLLM's CPU offload tier by it; here it orders the one pool of
a replay. With a = ticks since the last touch (each insertion and each touch of a block is one), n = touches after the
insertion:  r = 0.5 · 2^(−a/64) + 0.5 · (1 − 2^(−n)), then r ← floor + (1 − floor) · r with the floor of the role
(system 0.6, user 0.6, assistant 0.5, others 0). The lowest leaves, ties in the order of insertion. Roles here: system
and tools count as system, a turn as user, reasoning and output as assistant; a trace names no priority, so it is 1.

All blocks of one role and one n keep their order while they age, so only one head a class is compared; those so old
that their recency no longer changes the number tie, and go in the order of insertion.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from heapq import heappop, heappush

from kvpolicy.simulate.trace import BlockId, Call

HALF_LIFE = 64
FLOORS = {"system": 0.6, "tools": 0.6, "turn": 0.6, "scratchpad": 0.5, "output": 0.5}
_MOST = 60  # touches: more make no difference to the number


def score(floor: float, touches: int, age: float) -> float:
    """A block's score, `age` ticks after its last touch."""
    worth = 0.5 * math.pow(2.0, -age / HALF_LIFE) + 0.5 * (1.0 - math.pow(2.0, -touches))
    return floor + (1.0 - floor) * worth


_Class = tuple[float, int]  # floor, touches


class _Queue:
    """The blocks of one class: `young` by their last touch, `old` (as old as can be) by insertion."""

    __slots__ = ("least", "old", "young")

    def __init__(self, of: _Class) -> None:
        self.least = score(*of, 1e9)
        self.young: OrderedDict[BlockId, int] = OrderedDict()  # block -> tick of its last touch
        self.old: list[tuple[int, BlockId]] = []


class Evoke:
    """A cache of `capacity` blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._of: dict[BlockId, tuple[_Class, int, int]] = {}  # class, tick of insertion, of the last touch
        self._queues: dict[_Class, _Queue] = {}
        self._tick = 0
        self.evictions = 0

    def serve(self, call: Call) -> int:
        """One call's blocks, head to tail; its hits: those of the leading run."""
        hits, leading = 0, True
        floors = _floors(call)
        for block, floor in zip(call.hashes, floors, strict=True):
            self._tick += 1
            known = self._of.get(block)
            if known is None:
                leading = False
                if len(self._of) >= self._capacity:
                    self._evict()
                self._put(block, (floor, 0), self._tick)
                continue
            hits += leading
            (own, touches), inserted, _ = known
            self._queues[own, touches].young.pop(block, None)
            self._put(block, (own, min(touches + 1, _MOST)), inserted)
        return hits

    def _put(self, block: BlockId, of: _Class, inserted: int) -> None:
        queue = self._queues.get(of)
        if queue is None:
            queue = self._queues[of] = _Queue(of)
        queue.young[block] = self._tick
        self._of[block] = (of, inserted, self._tick)

    def _evict(self) -> None:
        best: tuple[float, int] | None = None
        victim: BlockId = 0
        for of, queue in self._queues.items():
            self._age(of, queue)
            if queue.old:
                found, block = (queue.least, queue.old[0][0]), queue.old[0][1]
            elif queue.young:
                block, touched = next(iter(queue.young.items()))
                found = (score(*of, self._tick - touched), self._of[block][1])
            else:
                continue
            if best is None or found < best:
                best, victim = found, block
        of, *_ = self._of.pop(victim)
        queue = self._queues[of]
        if queue.old and queue.old[0][1] == victim:
            heappop(queue.old)
        else:
            del queue.young[victim]
        self.evictions += 1

    def _age(self, of: _Class, queue: _Queue) -> None:
        young, old = queue.young, queue.old
        while young:
            block, touched = next(iter(young.items()))
            if score(*of, self._tick - touched) > queue.least:
                break
            del young[block]
            heappush(old, (self._of[block][1], block))
        while old:  # touched since, gone, or come again
            inserted, block = old[0]
            known = self._of.get(block)
            if known is not None and known[0] == of and known[1] == inserted and block not in young:
                break
            heappop(old)


def _floors(call: Call) -> list[float]:
    """The floor of each block, by the kind of the span that its first token lies in."""
    size, request = call.request.block_size, call.request
    floors = [FLOORS["turn"]] * len(call.hashes)
    for span in request.spans:
        end = request.tokens if span.end is None else span.end
        for index in range(-(-span.start // size), min(-(-end // size), len(floors))):
            floors[index] = FLOORS.get(span.kind, 0.0)
    return floors
