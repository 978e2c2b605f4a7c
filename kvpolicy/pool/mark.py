"""A mark: what one claim asks for, set where its prefix ends. The claims side owns it, the pool moves it."""

from __future__ import annotations

from itertools import count
from typing import Protocol

from kvpolicy.pool.run import Run

_turns = count()  # only which of two is the later one matters


class Mark:
    """strength: of `claims.strength`, None for a mark that weighs nothing. claim: whatever the claims side put there.

    notify: whether the listener hears of releases of its last block. admit: whether its blocks may be stored below the
    GPU. ceiling: the level of the highest tier it wants now, 0 for the GPU. The claims side may change all of these.
    turn: rises in the order in which marks came to where they stand.
    """

    __slots__ = ("admit", "ceiling", "claim", "run", "strength", "turn")

    def __init__(self, claim: object, strength: int | None, run: Run | None) -> None:
        self.claim = claim
        self.strength = strength
        self.run = run
        self.turn = next(_turns)
        self.admit = True
        self.ceiling = 0

    @property
    def length(self) -> int:
        """Blocks of its prefix that are still resident, 0 once the mark is gone."""
        run = self.run
        return 0 if run is None else run.start + len(run.hashes)

    @property
    def notify(self) -> bool:
        """Kept where it stands, so that a release looks at no mark that nobody wants to hear of; a mark that is gone
        tells nothing."""
        run = self.run
        return run is not None and run.listened is not None and self in run.listened

    @notify.setter
    def notify(self, wanted: bool) -> None:
        run = self.run
        if run is None:
            return
        if wanted:
            if run.listened is None:
                run.listened = {}
            run.listened[self] = None
        elif run.listened is not None:
            run.listened.pop(self, None)
            if not run.listened:
                run.listened = None

    def come_to(self, run: Run) -> None:
        """It stands at the end of `run` from now on, behind all that stand there."""
        self.run, self.turn = run, next(_turns)

    def __repr__(self) -> str:
        return f"Mark({self.claim!r}, strength={self.strength}, length={self.length})"


class Listener(Protocol):
    """What the claims side hears from the pool, after the pool is consistent again."""

    def released(self, mark: Mark, now: float) -> None:
        """The last block of a mark with `notify` set is held by nobody any more."""

    def emptied(self, mark: Mark, now: float) -> None:
        """The last block of a mark's prefix is gone; the mark is void."""
