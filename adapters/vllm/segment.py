"""Segments: free blocks of one release that belong to one run, first to leave first; and the ranks that they stand in.

`ranked` makes them of what is released and takes from their front; a touch takes from their end, or cuts one in two.
`Rank` holds the segments of one rank in order of release. A run has its segments in `Run.standing`: most often one,
which stands there itself, else a list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import count, groupby
from typing import Any

from kvpolicy.pool.run import Run

# release number, place within the release, ticket (so that segments are never compared; 0 where it was released here,
# and a void entry of the same place may still stand in the line), segment
Entry = tuple[int, int, int, "Segment"]
_SLACK = 64
_tickets = count(1)


class Segment:
    """queued: block ids. release, place: number of the release, and the first id's place in it. entry: its standing in
    `rank`, None when it is gone."""

    __slots__ = ("entry", "place", "queued", "rank", "release", "run")

    def __init__(self, queued: list[int], run: Run | None, release: int, place: int, rank: Rank) -> None:
        self.queued = queued
        self.run = run
        self.release = release
        self.place = place
        self.rank = rank
        self.entry: Entry | None = None

    def join(self) -> None:
        """Its run, where it has one, has one segment more."""
        run: Any = self.run
        if run is None:
            return
        if run.standing is None:
            run.standing = self
        elif type(run.standing) is list:
            run.standing.append(self)
        else:
            run.standing = [run.standing, self]

    def part(self) -> None:
        """Its run, where it has one, has one segment less."""
        run: Any = self.run
        if run is None:
            return
        if run.standing is self:
            run.standing = None
        elif type(run.standing) is list:
            run.standing.remove(self)
            if not run.standing:
                run.standing = None

    def dissolve(self) -> None:
        """Nothing is left of it."""
        if self.entry is not None:
            self.rank.leave(self)
        self.part()


class Rank:
    """The segments of one rank. line: in the order in which they came, which is that of their releases; late: those
    that came to this rank later than others that were released after them, as a heap. An entry whose segment has
    another one, or none, is void; `void` counts those in the line, at least."""

    __slots__ = ("bit", "late", "late_room", "line", "room", "void")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.line: deque[Entry] = deque()
        self.late: list[Entry] = []
        self.void = 0
        self.room = self.late_room = _SLACK  # entries until they are looked through

    def first(self) -> Segment | None:
        """The segment that leaves next."""
        line, late = self.line, self.late
        while line and line[0][3].entry is not line[0]:
            line.popleft()
            self.void -= 1
        while late and late[0][3].entry is not late[0]:
            heappop(late)
        if late and (not line or late[0] < line[0]):
            return late[0][3]
        return line[0][3] if line else None

    def enter(self, segment: Segment) -> None:
        """A segment comes here from another rank; it stands where its release puts it."""
        segment.rank = self
        line, late = self.line, self.late
        entry = (segment.release, segment.place, next(_tickets), segment)
        segment.entry = entry
        if not line or line[-1] < entry:
            line.append(entry)
            return
        heappush(late, entry)
        if len(late) > self.late_room:
            self.late = [each for each in late if each[3].entry is each]
            heapify(self.late)
            self.late_room = _SLACK + 2 * len(self.late)

    def leave(self, segment: Segment) -> None:
        """It stands here no more."""
        segment.entry = None
        self.void += 1
        if self.void > self.room:
            self.sweep()

    def sweep(self) -> None:
        """Forget void entries, so that memory follows what stands here."""
        kept = [entry for entry in self.line if entry[3].entry is entry]
        self.line.clear()  # and not another one: whoever takes from it may be at it
        self.line.extend(kept)
        self.void = 0
        self.room = _SLACK + len(self.line)

    def all(self) -> Iterator[Segment]:
        """Its segments in order."""
        late = sorted(entry for entry in self.late if entry[3].entry is entry)
        line = (entry for entry in self.line if entry[3].entry is entry)
        return (entry[3] for entry in (merge(line, late) if late else line))


def segments_of(run: Run) -> list[Segment]:
    """Those of a run."""
    standing: Any = run.standing
    if standing is None:
        return []
    return list(standing) if type(standing) is list else [standing]


def pieces(segment: Segment, members: set[int]) -> list[tuple[list[int], bool, int]]:
    """A segment cut up where its ids turn from `members` to others: ids, whether they are members, place."""
    out = []
    place = segment.place
    for inside, group in groupby(segment.queued, key=members.__contains__):
        ids = list(group)
        out.append((ids, inside, place))
        place += len(ids)
    return out
