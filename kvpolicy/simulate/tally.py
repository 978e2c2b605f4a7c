"""Counts of one run: what a policy hit, missed and computed again. Fed once per call, read by the report."""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.simulate.trace import Call


@dataclass(slots=True)
class Tally:
    """Blocks and tokens of one policy at one capacity.

    recomputed_tokens: uncached tokens that an earlier call had computed. moved_bytes: between tiers; a plain replay
    has one tier. failures: steps at which planning broke and the call was served as without a policy. wall_s:
    time spent in the policy and the cache, without reading the trace.
    """

    policy: str
    baseline: bool
    capacity_blocks: int
    block_refs: int = 0
    block_hits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    evictions: int = 0
    moved_bytes: int = 0
    failures: int = 0
    wall_s: float = 0.0

    def add(self, call: Call, hits: int) -> None:
        """One call with `hits` leading blocks found resident."""
        self.count(len(call.hashes), hits, call.seen, call.request.tokens, call.request.block_size)

    def count(self, blocks: int, hits: int, seen: int, tokens: int, block_size: int) -> None:
        """The same from bare numbers; seen: leading blocks that an earlier call had."""
        cached = min(hits * block_size, tokens)
        self.block_refs += blocks
        self.block_hits += hits
        self.prompt_tokens += tokens
        self.cached_tokens += cached
        self.recomputed_tokens += max(min(seen * block_size, tokens) - cached, 0)

    @property
    def hit_ratio(self) -> float:
        """Block hits over block references."""
        return self.block_hits / self.block_refs if self.block_refs else 0.0

    def as_json(self, price_ratio: float, gap_closed: float | None) -> dict[str, object]:
        """One row of `runs`. price_ratio: price of an uncached token over that of a cached one."""
        uncached = self.prompt_tokens - self.cached_tokens
        return {
            "policy": self.policy,
            "baseline": self.baseline,
            "capacity_blocks": self.capacity_blocks,
            "block_refs": self.block_refs,
            "block_hits": self.block_hits,
            "hit_ratio": round(self.hit_ratio, 6),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "uncached_tokens": uncached,
            "recomputed_tokens": self.recomputed_tokens,
            "cost": round(uncached + self.cached_tokens / price_ratio, 3),
            "evictions": self.evictions,
            "moved_bytes": self.moved_bytes,
            "gap_closed": None if gap_closed is None else round(gap_closed, 4),
            "planning_failures": self.failures,
            "wall_s": round(self.wall_s, 4),
        }
