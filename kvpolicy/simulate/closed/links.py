"""How long blocks travel between tiers: one link for each pair of tiers and direction, full duplex, one after another.

Given to the pool as its `transfer`. A block counts as where it is going from the moment it starts, and a request that
hits it is ready when it has arrived.
"""

from __future__ import annotations

from kvpolicy.pool import Pool
from kvpolicy.simulate.closed.models import EngineModel

_LEVEL = {"gpu": 0, "cpu": 1, "disk": 2}


class Links:
    """free_at: when each way is free, by (from, to). moved: bytes sent. silent: what comes up is being computed anew
    and so does not travel."""

    def __init__(self, model: EngineModel, block_size: int) -> None:
        self.model = model
        self.block_bytes = block_size * model.token_bytes
        self.free_at: dict[tuple[str, str], float] = {}
        self.moved = 0
        self.silent = False
        self.pool: Pool | None = None

    def __call__(self, blocks: int, source: str, target: str) -> float:
        """Seconds from now until `blocks` blocks have arrived: behind what is on that way already."""
        if self.silent and _LEVEL[target] < _LEVEL[source]:
            return 0.0
        now = 0.0 if self.pool is None else self.pool.now
        end = self.arrival(blocks, source, target, now)
        self.free_at[source, target] = end
        self.moved += blocks * self.block_bytes
        return end - now

    def arrival(self, blocks: int, source: str, target: str, now: float) -> float:
        """When `blocks` blocks would have arrived that start now."""
        speed = self.model.disk if "disk" in (source, target) else self.model.link
        return max(now, self.free_at.get((source, target), 0.0)) + blocks * self.block_bytes / speed

    def pays(self, blocks: int, block_size: int, now: float) -> bool:
        """Whether `blocks` blocks below the GPU are there sooner by reloading than by computing them again. INVARIANT:
        the dearer way is never taken."""
        return self.arrival(blocks, "cpu", "gpu", now) - now <= self.model.prefill_s(blocks * block_size)
