"""Protected lines whose cut would free nothing: others, which stand, protect all that they do.

A head that many owners share costs the budget once, and each of them keeps it. To look at every one of them whenever
something has to be cut would take as long as there are owners; so they stand aside, by the place where their piece
ends, until what covers them or they themselves change. Used by `budget` alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappush

from kvpolicy.claims.line import Line
from kvpolicy.claims.ranks import Mark, Ranks
from kvpolicy.claims.strength import PROTECTED

Entry = tuple[int, int, int, Line]  # of the budget's order: priority, later first, unique, line


class Covered:
    """Entries that stand aside, by place and by line."""

    __slots__ = ("_at", "_places", "_ranks")

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._at: dict[Hashable, dict[Entry, Mark]] = {}
        self._places: dict[Line, dict[Entry, Hashable]] = {}  # eviction may bring several of a line's to one place

    def takes(self, entry: Entry) -> bool:
        """Whether this is one of them; then it stands aside from now on."""
        priority, _, _, line = entry
        mark = next((mark for mark in line.marks if mark.strength == PROTECTED + priority), None)
        if mark is None:
            return False
        place, count = self._ranks.protectors(mark)
        aside = self._at.get(place, {})
        # INVARIANT: of those that protect a block, one at least stands in the order.
        if count - len(aside) < 2:
            return False
        self._at.setdefault(place, {})[entry] = mark
        self._places.setdefault(line, {})[entry] = place
        return True

    def look(self, order: list[Entry]) -> None:
        """What covered some of them has changed: those stand in the order again. O(places)."""
        for place in list(self._at):
            aside = self._at[place]
            now, count = self._ranks.protectors(next(iter(aside.values())))
            if now is not place or count <= len(aside):
                for entry in list(aside):
                    self._return(entry, place, order)

    def leave(self, line: Line, order: list[Entry]) -> None:
        """The line is protected otherwise than before, or no more: it stands in the order again."""
        for entry, place in list(self._places.get(line, {}).items()):
            self._return(entry, place, order)

    def give_back(self, order: list[Entry]) -> None:
        """All of them stand in the order again."""
        for line in list(self._places):
            self.leave(line, order)

    def _return(self, entry: Entry, place: Hashable, order: list[Entry]) -> None:
        heappush(order, entry)
        aside, places = self._at[place], self._places[entry[3]]
        del aside[entry], places[entry]
        if not aside:
            del self._at[place]
        if not places:
            del self._places[entry[3]]
