"""Free blocks in the order in which they leave: by rank, then by last release, a prompt's tail first.

The data structure behind `queue` and `touch` (vLLM's side) and `trunk` (the claims' side: which run a block belongs
to, and a run's rank). It knows block ids alone. What stands in it are segments, so that re-ranking a span costs
segments and never blocks. One class, as one table holds it together: `state` says per block id what it is,

    a Segment: free, in it        FRONT: free, in front of all ranks        a Run: held, claimed        None: held

Hot: `make bench-vllm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kvpolicy.adapters.vllm.segment import Rank, Segment, pieces, segments_of
from kvpolicy.claims.strength import DEFAULT, DROPPED, PROTECTED
from kvpolicy.pool.run import Run

LONGEST = 4096  # ids of one segment: it bounds what taking from its front and carving it up cost
_RANKS = PROTECTED + 101 - DROPPED
_SHIFT = -DROPPED


class _Front:
    __slots__ = ()


FRONT = _Front()


class Ranked:
    """count: blocks of the pool; their ids are below it. gone: blocks that left while they belonged to a run, with it,
    until the claims side takes them up."""

    def __init__(self, count: int) -> None:
        self.state: list[Any] = [None] * count
        self.gone: list[tuple[Run, list[int]]] = []
        self._front: list[int] = []  # its end is the first to leave
        self._ranks: list[Rank | None] = [None] * _RANKS
        self._occupied = 0  # bits of ranks that may have segments
        self._releases = 0

    # --- blocks leave and come --------------------------------------------------------------------------------------

    def pop(self, n: int) -> list[int]:  # noqa: PLR0912 - one loop, as a call a segment costs as much as its blocks
        """The first `n` to leave, 1 or more; there have to be as many."""
        state, front = self.state, self._front
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
                if missing < len(queued):
                    taken = queued[:missing]
                    del queued[:missing]
                    segment.place += missing
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
                            segment.part()
                ids += taken
                missing -= len(taken)
                if run is not None:
                    self.gone.append((run, taken))
        self._occupied = occupied
        for i in ids:
            state[i] = None
        return ids

    def take(self, i: int) -> bool:
        """A block is held again. False where it was not free."""
        state = self.state
        segment = state[i]
        if type(segment) is Segment:
            queued = segment.queued
            if queued[-1] == i:  # a prompt is touched from its head on, and its head is the end of a segment
                queued.pop()
                if not queued:
                    segment.dissolve()
            else:
                self._cut(segment, queued.index(i))
            state[i] = segment.run
            return True
        if segment is FRONT:
            self._front.remove(i)
            state[i] = None
            return True
        return False

    def append(self, ids: list[int], longest: int = LONGEST) -> None:
        """Released blocks, first to leave first: each stands behind those of its rank that are there. longest: of a
        segment of blocks that belong to nobody."""
        state, ranks = self.state, self._ranks
        self._releases = release = self._releases + 1
        at, total, occupied = 0, len(ids), 0
        while at < total:
            run = state[ids[at]]
            if run is None:
                most = min(total, at + longest)
                end = at + 1
                while end < most and state[ids[end]] is None:
                    end += 1
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
                    segment.join()
            segment.entry = entry = (release, at, 0, segment)
            rank.line.append(entry)
            occupied |= rank.bit
            for i in part:
                state[i] = segment
            at = end
        self._occupied |= occupied

    def prepend(self, ids: list[int]) -> None:
        """Blocks that leave before all others, the first of them first."""
        state = self.state
        for i in ids:
            state[i] = FRONT
        self._front += ids[::-1]

    # --- what the claims side says ----------------------------------------------------------------------------------

    def assign(self, ids: Iterable[int], run: Run | None) -> None:
        """These blocks belong to `run` from now on (None: to nobody). Free ones keep their place by release."""
        state = self.state
        free: dict[Segment, set[int]] = {}
        for i in ids:
            now = state[i]
            if type(now) is Segment:
                free.setdefault(now, set()).add(i)
            elif now is not FRONT:
                state[i] = run
        for segment, members in free.items():
            self._carve(segment, members, run)

    def put(self, run: Run) -> None:
        """The run has another rank: its segments stand there. Costs segments, never blocks."""
        rank = self._rank(run.rank + _SHIFT)
        for segment in segments_of(run):
            if segment.rank is not rank:
                segment.rank.leave(segment)
                rank.enter(segment)
                self._occupied |= rank.bit

    # --- looking ----------------------------------------------------------------------------------------------------

    def run_of(self, i: int) -> Run | None:
        """The run that a block belongs to."""
        now = self.state[i]
        if type(now) is Segment:
            return now.run
        return None if now is FRONT else now

    def free(self, i: int) -> bool:
        """Whether it stands here."""
        now = self.state[i]
        return type(now) is Segment or now is FRONT

    def after(self, cursor: int | None) -> Iterator[int]:
        """Free blocks in order; those behind `cursor` alone where that is given, none where it is not free itself."""
        state = self.state
        at = None if cursor is None else state[cursor]
        start = 0
        if cursor is None:
            yield from self._front[::-1]
        elif at is FRONT:
            yield from self._front[: self._front.index(cursor)][::-1]
        elif type(at) is Segment:
            start = at.rank.bit.bit_length() - 1
            yield from at.queued[at.queued.index(cursor) + 1 :]
        else:
            return
        waiting = type(at) is Segment
        for rank in self._ranks[start:]:
            if rank is None:
                continue
            for segment in rank.all():
                if not waiting:
                    yield from segment.queued
                elif segment is at:
                    waiting = False

    # --- inside -----------------------------------------------------------------------------------------------------

    def _rank(self, number: int) -> Rank:
        rank = self._ranks[number]
        if rank is None:
            rank = self._ranks[number] = Rank(1 << number)
        return rank

    def _cut(self, segment: Segment, at: int) -> None:
        """Its id at `at` leaves, which is not the last: what is in front of it and what is behind stand apart, and the
        shorter of them is the one that costs."""
        queued, place = segment.queued, segment.place
        if 2 * at < len(queued):
            ids = queued[:at]
            del queued[: at + 1]
            segment.place += at + 1
            segment.rank.leave(segment)
            segment.rank.enter(segment)
        else:
            ids = queued[at + 1 :]
            del queued[at:]
            place += at + 1
        if ids:
            self._stand(ids, segment.run, segment.release, place)

    def _stand(self, ids: list[int], run: Run | None, release: int, place: int) -> None:
        """Free blocks stand where their release puts them."""
        rank = self._rank((DEFAULT if run is None else run.rank) + _SHIFT)
        segment = Segment(ids, run, release, place, rank)
        rank.enter(segment)
        self._occupied |= rank.bit
        for i in ids:
            self.state[i] = segment
        segment.join()

    def _carve(self, segment: Segment, members: set[int], run: Run | None) -> None:
        """Those of a segment become another run's; order by release stays as it was."""
        old = segment.run
        if old is run:
            return
        parts = pieces(segment, members)
        segment.dissolve()
        for ids, inside, place in parts:
            self._stand(ids, run if inside else old, segment.release, place)
