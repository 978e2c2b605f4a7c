"""The pool as claims see it: marks are set, weighed and taken away, and the blocks under them change rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvpolicy.claims.strength import PROTECTED
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.marks import Marks
from kvpolicy.pool.ranks import recount_all
from kvpolicy.pool.requests import Requests
from kvpolicy.pool.run import BlockHash, Run
from kvpolicy.pool.tree import as_list, locate, split


class Marking(Marks, Requests):
    """Fulfils `claims.ranks.Ranks`, with what `Marks` has."""

    def _reach(self, hashes: Sequence[BlockHash], length: int, now: float) -> tuple[Run | None, int]:
        run, resident = locate(self._root, as_list(hashes))
        return run, min(length, resident)

    def _split(self, run: Run, at: int) -> Run:
        return split(run, at)

    def weigh_all(self, changes: Iterable[tuple[Mark, int | None]], now: float) -> None:
        """Many of them at once: each run on the way is looked at once, in whatever order they come."""
        self.now = now
        shifts = []
        for mark, strength in changes:
            old, mark.strength = mark.strength, strength
            if mark.run is not None and old != strength:
                shifts.append((mark.run, old, strength))
        recount_all(shifts, now)

    def on_first_tier(self, mark: Mark, length: int) -> int:
        """How many of the leading `length` blocks of the mark's prefix are on the GPU: the leading ones, as tiers never
        rise along a prompt."""
        run = mark.run
        while run is not None and run.tier is not self.gpu:
            run = run.parent
        return 0 if run is None else min(length, run.end)

    @property
    def movements(self) -> int:
        """Blocks moved between tiers so far, in whatever direction."""
        return sum(self._movement.moved.values()) if self._movement is not None else 0

    def held_prefix(self, mark: Mark) -> int:
        """Blocks of its prefix that running requests hold."""
        run = mark.run
        while run is not None and not run.refs:
            run = run.parent
        return 0 if run is None else run.end

    def protected_prefix(self, mark: Mark) -> int:
        """Blocks of its prefix that are protected, by whomever."""
        run = mark.run
        while run is not None and run.rank < PROTECTED:
            run = run.parent
        return 0 if run is None else run.end

    @property
    def protected_blocks(self) -> int:
        """Distinct protected blocks on the GPU."""
        return self.gpu.protected
