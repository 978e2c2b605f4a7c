"""The pool as claims see it: marks are set, weighed and taken away, and the blocks under them change rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvpolicy.claims.strength import PROTECTED
from kvpolicy.pool.lease import Lease
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.ranks import protectors, recount, recount_all
from kvpolicy.pool.requests import Requests
from kvpolicy.pool.run import BlockHash, Run
from kvpolicy.pool.tree import as_list, at_length, locate, split


class Marking(Requests):
    """Fulfils `claims.ranks.Ranks`."""

    def mark(
        self, at: Lease | Mark | Sequence[BlockHash], length: int, strength: int | None, claim: object, now: float
    ) -> Mark:
        """A claim on the first `length` blocks of the prompt of `at`, clipped to what is resident of it.

        strength None: it weighs nothing. A mark of nothing is void from the start.
        """
        self.now = now
        mark = Mark(claim, strength, None)
        if isinstance(at, Lease | Mark):
            run = at.run
        else:
            hashes = as_list(at)
            run, resident = locate(self._root, hashes)
            length = min(length, resident)
        if run is None or length <= 0:
            return mark
        run = at_length(run, length)
        if run.parent is None:
            return mark
        if length < run.end:
            run = split(run, length - run.start)
        mark.run = run
        if run.marks is None:
            run.marks = {}
        run.marks[mark] = None
        if strength is not None:
            recount(run, None, strength, now)
        return mark

    def weigh(self, mark: Mark, strength: int | None, now: float) -> None:
        """Changes the strength of a mark. Costs runs on the way up while they change, never blocks."""
        self.now = now
        old, mark.strength = mark.strength, strength
        if mark.run is not None and old != strength:
            recount(mark.run, old, strength, now)

    def weigh_all(self, changes: Iterable[tuple[Mark, int | None]], now: float) -> None:
        """Many of them at once: each run on the way is looked at once, in whatever order they come."""
        self.now = now
        shifts = []
        for mark, strength in changes:
            old, mark.strength = mark.strength, strength
            if mark.run is not None and old != strength:
                shifts.append((mark.run, old, strength))
        recount_all(shifts, now)

    def unmark(self, mark: Mark, now: float) -> None:
        """The claim is over. Idempotent."""
        self.now = now
        run = mark.run
        if run is None:
            return
        mark.run = None
        assert run.marks is not None
        del run.marks[mark]
        if not run.marks:
            run.marks = None
        if mark.strength is not None:
            recount(run, mark.strength, None, now)

    def protectors(self, mark: Mark) -> tuple[Run | None, int]:
        """See `ranks.protectors`."""
        return protectors(mark.run)

    def last_release(self, mark: Mark, length: int | None = None) -> float | None:
        """When the last block of the mark's prefix (of its first `length` blocks) was let go. Seconds; None while a
        request holds it, or when it is gone."""
        run = mark.run
        if run is not None and length is not None:
            run = at_length(run, length)
        return None if run is None or run.refs else run.released_at

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
