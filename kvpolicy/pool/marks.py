"""Marks on runs: set, weighed, taken away, looked at, in the embedded pool and over an engine's own blocks alike.

`claims` sees a pool by these (`claims.ranks.Ranks`); how a prompt is found and how a run is cut in two is each pool's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence

from kvpolicy.pool.lease import Lease
from kvpolicy.pool.mark import Mark
from kvpolicy.pool.ranks import protectors, recount
from kvpolicy.pool.run import Run
from kvpolicy.pool.tree import at_length


class Marks(ABC):
    """The ranking face of a tree of runs. now: the time of the last change, seconds."""

    now: float

    @abstractmethod
    def _reach(self, hashes: Sequence[Hashable], length: int, now: float) -> tuple[Run | None, int]:
        """The run in which the leading `length` blocks of a prompt end, as far as they are resident, and how many."""

    @abstractmethod
    def _split(self, run: Run, at: int) -> Run:
        """Cut a run in two behind its first `at` blocks; the head is returned."""

    def mark(
        self, at: Lease | Mark | Sequence[Hashable], length: int, strength: int | None, claim: object, now: float
    ) -> Mark:
        """A claim on the first `length` blocks of the prompt of `at`, clipped to what is resident of it.

        strength None: it weighs nothing. A mark of nothing is void from the start.
        """
        self.now = now
        mark = Mark(claim, strength, None)
        run: Run | None
        if isinstance(at, Lease | Mark):
            run = at.run
        else:
            run, length = self._reach(at, length, now)
        if run is None or length <= 0:
            return mark
        run = at_length(run, length)
        if run.parent is None:
            return mark
        if length < run.end:
            run = self._split(run, length - run.start)
        self._put(mark, run, now)
        return mark

    @staticmethod
    def _put(mark: Mark, run: Run, now: float) -> None:
        """A mark stands at the end of a run from now on."""
        mark.come_to(run)
        if run.marks is None:
            run.marks = {}
        run.marks[mark] = None
        if mark.strength is not None:
            recount(run, None, mark.strength, now)

    def weigh(self, mark: Mark, strength: int | None, now: float) -> None:
        """Changes the strength of a mark. Costs runs on the way up while they change, never blocks."""
        self.now = now
        old, mark.strength = mark.strength, strength
        if mark.run is not None and old != strength:
            recount(mark.run, old, strength, now)

    def unmark(self, mark: Mark, now: float) -> None:
        """The claim is over. Idempotent."""
        self.now = now
        run = mark.run
        if run is None:
            return
        mark.notify = False
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

    def way(self, mark: Mark) -> Iterator[Run]:
        """The runs that a mark's prefix lies in, from its end."""
        run = mark.run
        while run is not None and run.parent is not None:
            yield run
            run = run.parent

    def last_release(self, mark: Mark, length: int | None = None) -> float | None:
        """When the last block of the mark's prefix (of its first `length` blocks) was let go. Seconds; None while a
        request holds it, or when it is gone."""
        run = mark.run
        if run is not None and length is not None:
            run = at_length(run, length)
        return None if run is None or run.refs else run.released_at
