"""vLLM's free-block queue with another order: by rank, then by last release, a prompt's tail first.

It stands in for `FreeKVCacheBlockQueue` in a `BlockPool` from the first directive on, and takes over the blocks that
the stock queue has, in its order. The pool calls it; `trunk` gives blocks to runs and runs their ranks. Blocks of one
release and one run are one segment: a list of ids, so that re-ranking a span costs segments and not blocks.

Nothing is kept on vLLM's blocks. `_state` says per block id what it is: a Segment (free, in it), FRONT (free, in
front), a Run (held, claimed) or None (held, unclaimed). Alone in its file with the hot loops: `make bench-vllm`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kvpolicy.adapters.vllm.segment import Rank, Segment, pieces
from kvpolicy.claims.strength import DEFAULT, DROPPED, PROTECTED
from kvpolicy.pool.run import Run

LONGEST = 4096  # ids of one segment: it bounds what taking from its front and carving it up cost
_TAKEN_OVER = 512  # of those made of the stock queue
_RANKS = PROTECTED + 101 - DROPPED
_SHIFT = -DROPPED

Block = Any  # vllm.v1.core.kv_cache_utils.KVCacheBlock


class _Front:
    __slots__ = ()


FRONT = _Front()


class RankedQueue:
    """The whole interface of the stock queue. blocks: all blocks of the pool, by id. free: those that are free, in
    order. gone: blocks that left while they belonged to a run, with it, until the claims side takes them up.

    num_free_blocks counts every free block, whatever its rank. INVARIANT: nothing ever waits for a protected block.
    """

    def __init__(self, blocks: Sequence[Block], free: Sequence[Block]) -> None:
        self.num_free_blocks = 0
        self.gone: list[tuple[Run, list[int]]] = []
        self.rescues: Callable[[list[int], BaseException], Any] | None = None
        self._blocks = blocks
        self._state: list[Any] = [None] * len(blocks)
        self._front: list[int] = []  # its end is the front of the queue
        self._ranks: list[Rank | None] = [None] * _RANKS
        self._occupied = 0  # bits of ranks that may have segments
        self._releases = 0
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
        try:
            ids = self._pop(n)
        except Exception as fault:
            return self._rescue(fault).popleft_n(n)  # type: ignore[no-any-return]
        self.num_free_blocks -= n
        blocks = self._blocks
        return [blocks[i] for i in ids]

    def remove(self, block: Block) -> None:
        """Takes a block out of the middle. Raises RuntimeError for one that is not in the queue."""
        state = self._state
        i = block.block_id
        segment = state[i]
        if type(segment) is Segment:
            try:
                queued = segment.queued
                last = queued.pop()
                if last == i:  # a prompt is touched from its head on, and its head is the end of the segment
                    state[i] = segment.run
                    if not queued:
                        self._drop(segment)
                    self.num_free_blocks -= 1
                    return
                queued.append(last)
            except Exception as fault:
                self._rescue(fault).remove(block)
                return
        self._remove_slowly(block, i, segment)

    def touching(self, stock: Callable[[Sequence[Block]], None]) -> Callable[[Sequence[Block]], None]:
        """What `BlockPool.touch` does, for all blocks in one loop: a call a block costs more than all else here. stock:
        the pool's own, for null blocks, as versions differ in what they count for these, and after a rescue."""
        state = self._state

        def touch(blocks: Sequence[Block]) -> None:
            gone = 0
            block: Block = None
            rest = iter(blocks)
            try:
                for block in rest:
                    if block.ref_cnt or block.is_null:
                        if block.is_null:
                            stock([block])
                        else:
                            block.ref_cnt += 1
                        continue
                    i = block.block_id
                    segment = state[i]
                    if type(segment) is Segment:
                        queued = segment.queued
                        last = queued.pop()
                        if last == i:
                            run: Any = segment.run
                            state[i] = run
                            gone += 1
                            block.ref_cnt = 1
                            if not queued:
                                segment.entry = None
                                rank = segment.rank
                                rank.void += 1
                                if rank.void > rank.room:
                                    rank.sweep()
                                if run is not None and run.standing is segment:
                                    run.standing = None
                                elif run is not None:
                                    _part(run, segment)
                            continue
                        queued.append(last)
                    self.remove(block)
                    block.ref_cnt += 1
                    if self._stock is not None:
                        stock(list(rest))
                        return
            except Exception as fault:
                self._rescue(fault)  # by counts of references: a block counted already is not among the free ones
                stock([*(() if block.ref_cnt else (block,)), *rest])
                return
            self.num_free_blocks -= gone

        return touch

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
        rank = self._rank(run.rank + _SHIFT)
        for segment in segments_of(run):
            if segment.rank is not rank:
                segment.rank.leave(segment)
                rank.enter(segment)
                self._occupied |= rank.bit

    def drop(self, run: Run) -> None:
        """Nothing: a run stands here by its blocks alone. (Part of the face of `pool.order.Order`.)"""

    @property
    def segments(self) -> int:
        """Segments in the queue: what its costs are counted in."""
        return sum(1 for rank in self._ranks if rank is not None for _ in rank.all())

    def members(self) -> list[int]:
        """Ids of all free blocks in order."""
        return self._members(())

    # --- inside -----------------------------------------------------------------------------------------------------

    def _pop(self, n: int) -> list[int]:  # noqa: PLR0912 - one loop, as a call a segment costs as much as its blocks
        state, front = self._state, self._front
        ids: list[int] = []
        if front:
            ids = front[: -n - 1 : -1]
            del front[-n:]
        missing = n - len(ids)
        occupied = self._occupied
        while missing > 0:
            low = occupied & -occupied
            rank = self._rank(low.bit_length() - 1)
            line = rank.line
            while missing > 0:
                segment = rank.first() if rank.late else line[0][3] if line else None
                if segment is None:
                    occupied ^= low
                    break
                if line and segment is line[0][3] and segment.entry is not line[0]:
                    line.popleft()
                    rank.void -= 1
                    continue
                queued = segment.queued
                run: Any = segment.run
                if segment.holes or missing < len(queued):
                    taken = self._take_some(segment, missing)
                    if not queued:
                        self._drop(segment)
                else:
                    taken = queued
                    if line and segment.entry is line[0]:
                        line.popleft()
                        segment.entry = None
                    else:
                        rank.leave(segment)
                    if run is not None:
                        if run.standing is segment:
                            run.standing = None
                        else:
                            _part(run, segment)
                ids += taken
                missing -= len(taken)
                if run is not None:
                    self.gone.append((run, taken))
        self._occupied = occupied
        for i in ids:
            state[i] = None
        return ids

    def _rank(self, number: int) -> Rank:
        rank = self._ranks[number]
        if rank is None:
            rank = self._ranks[number] = Rank(1 << number)
        return rank

    def _take_some(self, segment: Segment, count: int) -> list[int]:
        queued = segment.queued
        if segment.holes:
            return self._take_live(segment, count)
        taken = queued[:count]
        del queued[:count]
        segment.place += len(taken)
        return taken

    def _take_live(self, segment: Segment, count: int) -> list[int]:
        state, queued = self._state, segment.queued
        taken: list[int] = []
        end = 0
        for i in queued:
            if len(taken) == count:
                break
            end += 1
            if state[i] is segment:
                taken.append(i)
        segment.holes -= end - len(taken)
        segment.place += end
        del queued[:end]
        return taken

    def _remove_slowly(self, block: Block, i: int, segment: Any) -> None:
        if self._stock is not None:
            self._stock.remove(block)
            return
        if type(segment) is not Segment and segment is not FRONT:
            raise RuntimeError(f"remove() called on an invalid block: {block}")
        try:
            self._take_out(i, segment)
        except Exception as fault:
            self._rescue(fault).remove(block)
            return
        self.num_free_blocks -= 1

    def _take_out(self, i: int, segment: Any) -> None:
        state = self._state
        if segment is FRONT:
            self._front.remove(i)
            state[i] = None
            return
        queued = segment.queued
        state[i] = segment.run
        segment.holes += 1
        while queued and state[queued[-1]] is not segment:
            del queued[-1]
            segment.holes -= 1
        if segment.holes == len(queued):
            self._drop(segment)

    def _append(self, ids: list[int]) -> None:
        state, ranks = self._state, self._ranks
        self._releases = release = self._releases + 1
        at, total, occupied = 0, len(ids), 0
        while at < total:
            run = state[ids[at]]
            if run is None:
                end = at + 1
                while end < total and state[ids[end]] is None:
                    end += 1
                end = min(end, at + LONGEST)
                rank = ranks[DEFAULT + _SHIFT] or self._rank(DEFAULT + _SHIFT)
                part = ids if end == total and not at else ids[at:end]
                segment = Segment(part, None, release, at, rank)
            else:
                # Its blocks leave tail first, and most often all of them are released at once.
                end = at + len(run.hashes)
                part = ids[at:end]
                if part != run.hashes[::-1]:
                    end = at + 1
                    while end < total and state[ids[end]] is run and end - at < LONGEST:
                        end += 1
                    part = ids[at:end]
                rank = ranks[run.rank + _SHIFT] or self._rank(run.rank + _SHIFT)
                segment = Segment(part, run, release, at, rank)
                if run.standing is None:
                    run.standing = segment
                else:
                    _join(run, segment)
            segment.entry = entry = (release, at, 0, segment)
            rank.line.append(entry)
            occupied |= rank.bit
            for i in part:
                state[i] = segment
            at = end
        self._occupied |= occupied

    def _prepend(self, ids: list[int]) -> None:
        state = self._state
        for i in ids:
            state[i] = FRONT
        self._front += ids[::-1]

    def _stand(self, ids: list[int], run: Any, release: int, place: int) -> None:
        """A new segment at the end of its rank: none there was released later."""
        rank = self._rank(DEFAULT + _SHIFT if run is None else run.rank + _SHIFT)
        segment = Segment(ids, run, release, place, rank)
        segment.entry = entry = (release, place, 0, segment)
        rank.line.append(entry)
        self._occupied |= rank.bit
        state = self._state
        for i in ids:
            state[i] = segment
        if run is not None:
            _join(run, segment)

    def _drop(self, segment: Segment) -> None:
        if segment.entry is not None:
            segment.rank.leave(segment)
        if segment.run is not None:
            _part(segment.run, segment)

    def _carve(self, segment: Segment, members: set[int], run: Run | None) -> None:
        """Those of a segment become another run's; order by release stays as it was."""
        old: Any = segment.run
        if old is run:
            return
        parts = pieces(segment, members, self._state)
        self._drop(segment)
        for ids, inside, place in parts:
            owner: Any = run if inside else old
            rank = self._rank(DEFAULT + _SHIFT if owner is None else owner.rank + _SHIFT)
            part = Segment(ids, owner, segment.release, place, rank)
            rank.enter(part)
            self._occupied |= rank.bit
            for i in ids:
                self._state[i] = part
            if owner is not None:
                _join(owner, part)

    def _ids_after(self, cursor: int | None) -> Iterator[int]:
        state = self._state
        at = None if cursor is None else state[cursor]
        start = 0
        if cursor is None:
            yield from self._front[::-1]
        elif at is FRONT:
            yield from self._front[: self._front.index(cursor)][::-1]
        elif type(at) is Segment:
            start = at.rank.bit.bit_length() - 1
            yield from at.after(cursor, state)
        else:
            return
        waiting = type(at) is Segment
        for rank in self._ranks[start:]:
            if rank is None:
                continue
            for segment in rank.all():
                if not waiting:
                    yield from segment.live(state)
                elif segment is at:
                    waiting = False

    def _rescue(self, fault: BaseException, arriving: Sequence[int] | None = None) -> Any:
        """INVARIANT: no exception of ours reaches a step. Every free block goes on in a stock queue, in an order that
        is right as far as it can still be told; `arriving` are not in it yet."""
        if self._stock is None:
            if self.rescues is None:
                raise fault
            self._stock = self.rescues(self._members(arriving), fault)
        return self._stock

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


def _join(run: Any, segment: Segment) -> None:
    """The run has one more segment; most have one."""
    standing = run.standing
    if standing is None:
        run.standing = segment
    elif type(standing) is list:
        standing.append(segment)
    else:
        run.standing = [standing, segment]


def _part(run: Any, segment: Segment) -> None:
    """The run has one segment less."""
    standing = run.standing
    if standing is segment:
        run.standing = None
    elif type(standing) is list:
        standing.remove(segment)
        if not standing:
            run.standing = None


def segments_of(run: Run) -> list[Segment]:
    """Those of a run."""
    standing: Any = run.standing
    if standing is None:
        return []
    return list(standing) if type(standing) is list else [standing]
