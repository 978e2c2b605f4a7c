"""A mark: what one claim asks for, set where its prefix ends. The claims side owns it, the pool moves it."""

from __future__ import annotations

from typing import Protocol

from kvpolicy.pool.run import Run


class Mark:
    """strength: of `claims.strength`, None for a mark that weighs nothing. claim: whatever the claims side put there.

    notify: whether the listener hears of releases of its last block. admit: whether its blocks may be stored below the
    GPU. ceiling: the level of the highest tier it wants now, 0 for the GPU. The claims side may change all of these.
    """

    __slots__ = ("admit", "ceiling", "claim", "notify", "run", "strength")

    def __init__(self, claim: object, strength: int | None, run: Run | None) -> None:
        self.claim = claim
        self.strength = strength
        self.run = run
        self.notify = False
        self.admit = True
        self.ceiling = 0

    @property
    def length(self) -> int:
        """Blocks of its prefix that are still resident, 0 once the mark is gone."""
        run = self.run
        return 0 if run is None else run.start + len(run.hashes)

    def __repr__(self) -> str:
        return f"Mark({self.claim!r}, strength={self.strength}, length={self.length})"


class Listener(Protocol):
    """What the claims side hears from the pool, after the pool is consistent again."""

    def released(self, mark: Mark, now: float) -> None:
        """The last block of a mark with `notify` set is held by nobody any more."""

    def emptied(self, mark: Mark, now: float) -> None:
        """The last block of a mark's prefix is gone; the mark is void."""
