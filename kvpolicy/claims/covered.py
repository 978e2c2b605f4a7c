"""Protected lines whose cut would free nothing: others, which stand, protect all that they do.

A head that many owners share costs the budget once, and each of them keeps it. To look at every one of them whenever
something has to be cut would take as long as there are owners; so they stand aside, by the place where their piece
ends, until what covers them or they themselves change. Used by `budget` alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from kvpolicy.claims.line import Line
from kvpolicy.claims.ranks import Mark, Ranks
from kvpolicy.claims.strength import PROTECTED

Entry = tuple[int, int, int, Line]  # of the budget's order: priority, later first, unique, line


@dataclass(slots=True)
class _Aside:
    """Entries at one place. order: a heap of them, strongest on top; those that have left are skipped."""

    marks: dict[Entry, Mark] = field(default_factory=dict)
    order: list[tuple[int, int, int, Entry]] = field(default_factory=list)

    def add(self, entry: Entry, mark: Mark) -> None:
        self.marks[entry] = mark
        heappush(self.order, (-entry[0], -entry[1], -entry[2], entry))

    def strongest(self) -> Entry:
        """There is one."""
        while self.order[0][3] not in self.marks:
            heappop(self.order)
        return self.order[0][3]


class Covered:
    """Entries that stand aside, by place and by line."""

    __slots__ = ("_at", "_places", "_ranks")

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._at: dict[Hashable, _Aside] = {}
        self._places: dict[Line, dict[Entry, Hashable]] = {}  # eviction may bring several of a line's to one place

    def takes(self, entry: Entry) -> bool:
        """Whether this is one of them; then it stands aside from now on."""
        priority, _, _, line = entry
        mark = next((mark for mark in line.marks if mark.strength == PROTECTED + priority), None)
        if mark is None:
            return False
        place, count = self._ranks.protectors(mark)
        aside = self._at.get(place)
        # INVARIANT: of those that protect a block, one at least stands in the order.
        if count - (0 if aside is None else len(aside.marks)) < 2:
            return False
        if aside is None:
            aside = self._at[place] = _Aside()
        aside.add(entry, mark)
        self._places.setdefault(line, {})[entry] = place
        return True

    def way(self, line: Line) -> list[Hashable]:
        """Places where cutting the line may change what covers others."""
        if not self._at or not line.marks:
            return []
        return [place for place in self._ranks.way(line.marks[0]) if place in self._at]

    def look(self, order: list[Entry], places: Iterable[Hashable] | None = None) -> None:
        """What covers entries at these places (None: anywhere) may have changed: where nobody in the order covers them
        any more, the strongest of them stands in it again and covers the others, which it would be the last to leave.
        O(places)."""
        for place in list(self._at) if places is None else places:
            while (aside := self._at.get(place)) is not None:
                entry = aside.strongest()
                now, count = self._ranks.protectors(aside.marks[entry])
                if now is place and count > len(aside.marks):
                    break
                self._return(entry, place, order)

    def leave(self, line: Line, order: list[Entry]) -> None:
        """The line is protected otherwise than before, or no more: it stands in the order again."""
        for entry, place in list(self._places.get(line, {}).items()):
            self._return(entry, place, order)

    def _return(self, entry: Entry, place: Hashable, order: list[Entry]) -> None:
        heappush(order, entry)
        aside, places = self._at[place], self._places[entry[3]]
        del aside.marks[entry], places[entry]
        if not aside.marks:
            del self._at[place]
        if not places:
            del self._places[entry[3]]
