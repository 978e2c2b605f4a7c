"""A segment of the ranked queue: free blocks of one release that belong to one run, first to leave first.

`queue` makes them of what is released and takes from their front; a touch takes from their end, or leaves a hole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from kvpolicy.claims.strength import DEFAULT
from kvpolicy.pool.run import Run

__all__ = ["DEFAULT", "Entry", "Segment", "pieces"]

# rank, release number, place within the release, ticket (so that segments are never compared), segment
Entry = tuple[int, int, int, int, "Segment"]
_COMPACT = 1024


class Segment:
    """ids: block ids; those before `start` have left, and `holes` of the rest were taken out of the middle: an id is a
    hole when its state is another than this segment. The last id never is one. release, place: number of the release
    and the first id's place in it. entry: where it stands in the heap, None when it is gone."""

    __slots__ = ("entry", "holes", "ids", "place", "release", "run", "start")

    def __init__(self, ids: list[int], run: Run | None, release: int, place: int) -> None:
        self.ids = ids
        self.run = run
        self.release = release
        self.place = place
        self.start = 0
        self.holes = 0
        self.entry: Entry | None = None

    def take(self, count: int, state: list[Any]) -> list[int]:
        """Up to `count` ids from the front. They belong to nobody from now on."""
        ids, start = self.ids, self.start
        if not self.holes:
            taken = ids[start : start + count]
            self.start = start = start + len(taken)
        else:
            taken = []
            while len(taken) < count and start < len(ids):
                i = ids[start]
                start += 1
                if state[i] is self:
                    taken.append(i)
                else:
                    self.holes -= 1
            self.start = start
        for i in taken:
            state[i] = None
        if start > _COMPACT and 2 * start > len(ids):
            del ids[:start]
            self.place += start
            self.start = 0
        return taken

    def live(self, state: list[Any]) -> Iterator[int]:
        """Its ids in order."""
        for i in self.ids[self.start :]:
            if state[i] is self:
                yield i

    def after(self, block_id: int, state: list[Any]) -> Iterator[int]:
        """Those behind one of its own."""
        passed = False
        for i in self.ids[self.start :]:
            if passed and state[i] is self:
                yield i
            passed = passed or i == block_id


def pieces(segment: Segment, members: set[int], state: list[Any]) -> list[tuple[list[int], bool, int]]:
    """A segment cut up where its ids turn from `members` to others: ids, whether they are members, place."""
    out = []
    place = segment.place + segment.start
    for inside, group in groupby(segment.ids[segment.start :], key=members.__contains__):
        ids = list(group)
        live = [i for i in ids if state[i] is segment]
        if live:
            out.append((live, inside, place))
        place += len(ids)
    return out
