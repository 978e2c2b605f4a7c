"""When an owner has to be looked at again: one deadline an owner, the earliest, in one heap.

`state` schedules the ends of bounds and graces here; later ones are found again when the earliest has passed.
"""

from __future__ import annotations

import heapq
import itertools
import math

from kvpolicy.workflow.life import Life


class Deadlines:
    """Owners by their earliest deadline, seconds. soonest: nothing is due before; inf where there is none."""

    def __init__(self) -> None:
        self.soonest = math.inf
        self._heap: list[tuple[float, int, Life]] = []
        self._ticket = itertools.count()
        self._known = 0

    def schedule(self, life: Life, at: float) -> None:
        """Look at the owner at `at`, unless it is to be looked at before that anyway."""
        if life.deadline is not None and life.deadline <= at:
            return
        if life.deadline is None:
            self._known += 1
        life.deadline = at
        heapq.heappush(self._heap, (at, next(self._ticket), life))
        self.soonest = min(self.soonest, at)
        if len(self._heap) > 2 * self._known + 64:
            kept = {id(row[2]): row for row in self._heap if row[2].deadline == row[0]}
            self._heap = list(kept.values())
            heapq.heapify(self._heap)

    def due(self, now: float) -> tuple[float, Life] | None:
        """The next deadline that has come (`at <= now`), and whose it was; None if there is none."""
        while self._heap and self._heap[0][0] <= now:
            at, _, life = heapq.heappop(self._heap)
            if life.deadline == at:  # else an earlier one took its place, or the owner is forgotten
                self.drop(life)
                return at, life
        self.soonest = self._heap[0][0] if self._heap else math.inf
        return None

    def drop(self, life: Life) -> None:
        """The owner need not be looked at."""
        if life.deadline is not None:
            self._known -= 1
            life.deadline = None
