"""How full the tiers are, and when that has crossed a step at which plans are read again.

Source: the pool's own tiers. A policy reads the exact share; it is asked again when the share passes a multiple of 5 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor

from kvpolicy.pool import Pool

STEPS = 20  # of 5 %


class Pressure:
    """tiers: those whose pressure anybody reads; a tier that the pool lacks is full."""

    __slots__ = ("_at", "_pool", "_tiers")

    def __init__(self, pool: Pool, tiers: Iterable[str]) -> None:
        self._pool = pool
        self._tiers = tuple(sorted(tiers))
        self._at = self._place()

    def of(self, tier: str) -> float:
        """The share of a tier's blocks that hold something, held by a request or not; 0 to 1."""
        for each in self._pool.tiers:
            if each.name == tier:
                return (each.capacity - each.spare) / each.capacity
        return 1.0

    def crossed(self) -> bool:
        """Whether it stands elsewhere among the steps than when this was asked last. On a step is a place of its own,
        so that `pressure(gpu) > 80%` is noticed with the first block beyond."""
        at = self._place()
        if at == self._at:
            return False
        self._at = at
        return True

    def _place(self) -> tuple[int, ...]:
        shares = [round(self.of(tier) * STEPS, 9) for tier in self._tiers]
        return tuple(floor(share) + ceil(share) for share in shares)
