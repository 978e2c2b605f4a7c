"""Counting the distinct blocks of one tier that some prefixes cover together: what a quota on a tier is measured in."""

from __future__ import annotations

from kvpolicy.pool.mark import Mark
from kvpolicy.pool.run import Run
from kvpolicy.pool.tier import Tier
from kvpolicy.pool.tree import at_length


class Tally:
    """room: blocks of `tier` that may still be counted. Valid until the pool changes."""

    def __init__(self, tier: Tier | None, room: int) -> None:
        self.room = room
        self._tier = tier
        self._counted: dict[Run, int] = {}  # of each run, its leading blocks that are counted

    def add(self, mark: Mark, length: int) -> int:
        """Count the leading `length` blocks of a mark's prefix, head first, as far as there is room for those on the
        tier that nobody has counted before. Returns how many leading blocks are counted. O(runs not counted yet)."""
        run = mark.run
        if run is None or length <= 0:
            return 0
        length = min(length, run.end)
        run = at_length(run, length)
        path: list[Run] = []
        counted = self._counted
        while run.parent is not None and counted.get(run, 0) < len(run.hashes):
            path.append(run)  # whoever counted all of a run has counted all before it
            run = run.parent
        for each in reversed(path):
            wanted = min(length, each.end) - each.start
            known = counted.get(each, 0)
            if wanted <= known:
                continue
            if each.tier is self._tier:
                new = min(wanted - known, self.room)
                self.room -= new
                counted[each] = known + new
                if known + new < wanted:
                    return each.start + known + new
            else:
                counted[each] = wanted
        return length
