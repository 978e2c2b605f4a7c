"""vLLM's free-block queue with another order: by rank, then by last release, a prompt's tail first.

It stands in for `FreeKVCacheBlockQueue` in a `BlockPool` from the first directive on, and takes over the blocks that
the stock queue has, in its order. The pool calls it; `trunk` gives blocks to runs and runs their ranks. Blocks of one
release and one run are one segment: a list of ids, so that re-ranking a span costs segments and not blocks.

Nothing is kept on vLLM's blocks. `_state` says per block id what it is: a Segment (free, in it), FRONT (free, in
front), a Run (held, claimed) or None (held, unclaimed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Any

from kvpolicy.adapters.vllm.segment import DEFAULT, Entry, Segment, pieces
from kvpolicy.pool.run import Run

LONGEST = 4096  # ids of one segment: it bounds what carving one up costs
_TAKEN_OVER = 512  # of those made of the stock queue
_SLACK = 64

Block = Any  # vllm.v1.core.kv_cache_utils.KVCacheBlock
Lost = Callable[[Run, list[int]], None]
_Front = type("_Front", (), {"__slots__": ()})
FRONT = _Front()


class RankedQueue:
    """The whole interface of the stock queue. blocks: all blocks of the pool, by id. free: those that are free, in
    order. lost: told, after a pop, which blocks of which run went, in the order of the queue.

    num_free_blocks counts every free block, whatever its rank. INVARIANT: nothing ever waits for a protected block.
    """

    def __init__(self, blocks: Sequence[Block], free: Sequence[Block], lost: Lost | None = None) -> None:
        self.num_free_blocks = 0
        self.lost = lost
        self.rescues: Callable[[list[int], BaseException], Any] | None = None
        self._blocks = blocks
        self._state: list[Any] = [None] * len(blocks)
        self._front: list[int] = []  # its end is the front of the queue
        self._heap: list[Entry] = []
        self._live = 0  # segments
        self._releases = 0
        self._tickets = 0
        self._stock: Any = None
        ids = [block.block_id for block in free]
        lead = next((n for n, block in enumerate(free) if block.block_hash is not None), len(ids))
        self._prepend(ids[:lead])
        for at in range(lead, len(ids), _TAKEN_OVER):
            self._stand(ids[at : at + _TAKEN_OVER], None, 0, at)
        self.num_free_blocks = len(ids)

    # --- what the block pool calls ----------------------------------------------------------------------------------

    def popleft(self) -> Block:
        """The first block to leave. Raises ValueError where there is none, as the stock queue does."""
        if not self.num_free_blocks:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[Block]:
        """The first `n`, which have to be there."""
        if n == 0:
            return []
        assert self.num_free_blocks >= n
        gone: list[tuple[Run, list[int]]] = []
        try:
            ids = self._pop(n, gone)
        except Exception as fault:
            return self._rescue(fault).popleft_n(n)  # type: ignore[no-any-return]
        self.num_free_blocks -= n
        if gone and self.lost is not None:
            for run, taken in gone:
                self.lost(run, taken)
        blocks = self._blocks
        return [blocks[i] for i in ids]

    def remove(self, block: Block) -> None:
        """Takes a block out of the middle. Raises RuntimeError for one that is not in the queue."""
        if self._stock is not None:
            self._stock.remove(block)
            return
        segment = self._state[block.block_id]
        if type(segment) is not Segment and segment is not FRONT:
            raise RuntimeError(f"remove() called on an invalid block: {block}")
        try:
            self._remove(block.block_id, segment)
        except Exception as fault:
            self._rescue(fault).remove(block)
            return
        self.num_free_blocks -= 1

    def append(self, block: Block) -> None:
        """One block, as the last of its rank."""
        self.append_n([block])

    def append_n(self, blocks: Sequence[Block]) -> None:
        """Released blocks, first to leave first: each stands behind those of its rank that are there."""
        if not blocks:
            return
        ids = [block.block_id for block in blocks]
        try:
            self._append(ids)
        except Exception as fault:
            self._rescue(fault, ids).append_n(blocks)
            return
        self.num_free_blocks += len(ids)

    def prepend_n(self, blocks: Sequence[Block]) -> None:
        """Blocks to reuse before all others, the first of them first."""
        if not blocks:
            return
        ids = [block.block_id for block in blocks]
        try:
            self._prepend(ids)
        except Exception as fault:
            self._rescue(fault, ids).prepend_n(blocks)
            return
        self.num_free_blocks += len(ids)

    def get_all_free_blocks(self) -> list[Block]:
        """Every free block, in the order in which they leave."""
        return list(self.iter_blocks_after(None))

    def iter_blocks_after(self, cursor: Block | None) -> Iterator[Block]:
        """Free blocks in the order in which they leave, those behind `cursor` alone where it is given. As in the stock
        queue nothing stands behind a block that is not in the queue."""
        if self._stock is not None:
            yield from self._stock.iter_blocks_after(cursor)
            return
        blocks = self._blocks
        for i in self._ids_after(None if cursor is None else cursor.block_id):
            yield blocks[i]

    # --- what the claims side calls ---------------------------------------------------------------------------------

    def assign(self, ids: Iterable[int], run: Run | None) -> None:
        """These blocks belong to `run` from now on (None: to nobody). Free ones keep their place by release."""
        state = self._state
        free: dict[Segment, set[int]] = {}
        for i in ids:
            now = state[i]
            if type(now) is Segment:
                free.setdefault(now, set()).add(i)
            elif now is not FRONT:
                state[i] = run
        for segment, members in free.items():
            self._carve(segment, members, run)

    def run_of(self, block_id: int) -> Run | None:
        """The run that a block belongs to."""
        now = self._state[block_id]
        if type(now) is Segment:
            return now.run
        return None if now is FRONT else now

    def put(self, run: Run) -> None:
        """The run has another rank: its segments stand there. Costs segments, never blocks."""
        rank = run.rank
        for segment in segments_of(run):
            if segment.entry is not None and segment.entry[0] != rank:
                self._enter(segment, rank)

    def drop(self, run: Run) -> None:
        """Nothing: a run stands here by its blocks alone. (Part of the face of `pool.order.Order`.)"""

    @property
    def segments(self) -> int:
        """Segments in the queue: what its costs are counted in."""
        return self._live

    def release_everything(self) -> None:
        """All blocks belong to nobody: the order is that of the last releases alone."""
        for segment in [entry[4] for entry in self._heap if entry[4].entry is entry]:
            run, segment.run = segment.run, None
            if run is not None:
                run.standing = None
                self._enter(segment, DEFAULT)
        self._state = [s if type(s) is Segment or s is FRONT else None for s in self._state]

    # --- inside -----------------------------------------------------------------------------------------------------

    def _pop(self, n: int, gone: list[tuple[Run, list[int]]]) -> list[int]:
        state, front = self._state, self._front
        ids: list[int] = []
        if front:
            ids = front[: -n - 1 : -1]
            del front[-n:]
            for i in ids:
                state[i] = None
        while len(ids) < n:
            segment = self._first()
            taken = segment.take(n - len(ids), state)
            if segment.start == len(segment.ids):
                self._drop(segment)
            if segment.run is not None:
                gone.append((segment.run, taken))
            ids += taken
        return ids

    def _remove(self, i: int, segment: Any) -> None:
        state = self._state
        if segment is FRONT:
            self._front.remove(i)
            state[i] = None
            return
        ids = segment.ids
        state[i] = segment.run
        if ids[-1] != i:
            segment.holes += 1
            return
        ids.pop()  # a prompt is touched from its head on, and its head is the end of the segment
        if segment.holes:
            while len(ids) > segment.start and state[ids[-1]] is not segment:
                ids.pop()
                segment.holes -= 1
        if len(ids) == segment.start:
            self._drop(segment)

    def _append(self, ids: list[int]) -> None:
        state = self._state
        self._releases = release = self._releases + 1
        place = 0
        # Runs have no equality of their own, so neighbours are compared by identity.
        for run, group in groupby([state[i] for i in ids]):
            size = len(tuple(group))
            for at in range(place, place + size, LONGEST):
                self._stand(ids[at : min(at + LONGEST, place + size)], run, release, at)
            place += size

    def _prepend(self, ids: list[int]) -> None:
        state = self._state
        for i in ids:
            state[i] = FRONT
        self._front += ids[::-1]

    def _stand(self, ids: list[int], run: Run | None, release: int, place: int) -> None:
        """A new segment at the end of its rank."""
        segment = Segment(ids, run, release, place)
        state = self._state
        for i in ids:
            state[i] = segment
        self._live += 1
        if run is None:
            self._enter(segment, DEFAULT)
        else:
            standing: Any = run.standing
            if standing is None:
                run.standing = [segment]  # type: ignore[assignment]
            else:
                standing.append(segment)
            self._enter(segment, run.rank)

    def _enter(self, segment: Segment, rank: int) -> None:
        self._tickets += 1
        segment.entry = entry = (rank, segment.release, segment.place, self._tickets, segment)
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > _SLACK + 2 * self._live:
            self._heap = [e for e in heap if e[4].entry is e]
            heapify(self._heap)

    def _first(self) -> Segment:
        heap = self._heap
        while True:
            entry = heap[0]
            segment = entry[4]
            if segment.entry is entry:
                return segment
            heappop(heap)

    def _drop(self, segment: Segment) -> None:
        segment.entry = None
        self._live -= 1
        run = segment.run
        if run is not None:
            standing: Any = run.standing
            standing.remove(segment)
            if not standing:
                run.standing = None

    def _carve(self, segment: Segment, members: set[int], run: Run | None) -> None:
        old = segment.run
        if old is run:
            return
        parts = pieces(segment, members, self._state)
        self._drop(segment)
        for ids, inside, place in parts:
            self._stand(ids, run if inside else old, segment.release, place)

    def _ids_after(self, cursor: int | None) -> Iterator[int]:
        state = self._state
        entries = [e for e in self._heap if e[4].entry is e]
        if cursor is None:
            yield from self._front[::-1]
        elif state[cursor] is FRONT:
            yield from self._front[: self._front.index(cursor)][::-1]
        elif type(state[cursor]) is Segment:
            at = state[cursor]
            entries = [e for e in entries if e[:4] > at.entry[:4]]
            yield from at.after(cursor, state)
        else:
            return
        heapify(entries)
        while entries:
            yield from heappop(entries)[4].live(state)

    def _rescue(self, fault: BaseException, arriving: Sequence[int] | None = None) -> Any:
        """INVARIANT: no exception of ours reaches a step. Every free block goes on in a stock queue, in an order that
        is right as far as it can still be told; `arriving` are not in it yet."""
        if self._stock is None:
            if self.rescues is None:
                raise fault
            self._stock = self.rescues(self._members(arriving), fault)
        return self._stock

    def members(self) -> list[int]:
        """Ids of all free blocks in order."""
        return self._members(())

    def _members(self, arriving: Sequence[int] | None) -> list[int]:
        """Ids of all free blocks, in order as far as it can be told. While blocks arrive, vLLM's counts of references
        already call more of them free than are in the queue; at other times they are what is surest."""
        if arriving is None:
            inside = [b.block_id for b in self._blocks if b.ref_cnt == 0 and not b.is_null]
        else:
            out = set(arriving)
            inside = [i for i, s in enumerate(self._state) if (type(s) is Segment or s is FRONT) and i not in out]
        try:
            order = {i: n for n, i in enumerate(self._ids_after(None))}
        except Exception:
            order = {}
        return sorted(inside, key=lambda i: order.get(i, -1))


def segments_of(run: Run) -> list[Segment]:
    """Those of a run."""
    standing: Any = run.standing
    return [] if standing is None else list(standing)
