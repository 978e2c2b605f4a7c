"""The CPU tier's order, in vLLM's real manager of that tier: `CPUOffloadingManager`, found through its factory.

No bytes are moved: the copies of a connector's worker need a GPU, and which chunk goes is decided without them.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.kv_offload.base import ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

from kvpolicy.adapters.vllm.offload import MOST_OWNERS, RankedCachePolicy

SIZE = 16


def manager_of(policy: str, chunks: int = 12) -> CPUOffloadingManager:
    path = "kvpolicy.adapters.vllm.offload" if policy == "RankedCachePolicy" else None
    return CPUOffloadingManager(chunks, cache_policy=policy, cache_policy_module_path=path)


def keys_of(seed: int, count: int, start: int = 0) -> list[Any]:
    return [make_offload_key(f"{seed}:{n}".encode(), 0) for n in range(start, count)]


class Tier:
    def __init__(self, policy: str, chunks: int = 12) -> None:
        self.manager = manager_of(policy, chunks)
        self.evicted: list[Any] = []
        self.count = 0

    def use(self, keys: list[Any], told: dict[str, Any] | None = None) -> int:
        """A request with these blocks: what is there is loaded, the rest is stored. Blocks found."""
        self.count += 1
        params = None if told is None else {"kvpolicy": told}
        context = ReqContext(f"r{self.count}", kv_transfer_params=params)
        for n, key in enumerate(keys):
            context.set_offload_key_position(key, (n + 1) * SIZE)
        manager = self.manager
        manager.on_new_request(context)
        found = 0
        for key in keys:
            if manager._policy.get(key) is None:
                break
            found += 1
        if found:
            manager.prepare_load(keys[:found], context)
            manager.complete_load(keys[:found], context)
        stored = manager.prepare_store(keys, context)
        if stored is not None:
            self.evicted += stored.evicted_keys
            manager.complete_store(stored.keys_to_store, context)
        manager.on_request_finished(context)
        return found


def told(blocks: int, owner: str = "s", **wish: Any) -> dict[str, Any]:
    return {"owner": owner, "spans": [{"kind": "system", "start": 0, "end": blocks * SIZE, **wish}]}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16))
def test_without_directives_it_is_vllms_own_policy(seed: int) -> None:
    pick = random.Random(seed)
    tiers = Tier("lru"), Tier("RankedCachePolicy")
    for _ in range(40):
        prompt, count = pick.randrange(6), pick.randrange(1, 8)
        found = [tier.use(keys_of(prompt, count)) for tier in tiers]
        assert found[0] == found[1]
        assert tiers[0].evicted == tiers[1].evicted


@pytest.mark.parametrize(("priority", "found"), [(90, 4), (None, 0), (10, 0)])
def test_a_rank_decides_what_leaves_the_tier(priority: int | None, found: int) -> None:
    tier = Tier("RankedCachePolicy")
    wish = {} if priority is None else {"priority": priority}
    tier.use(keys_of(0, 4), told(4, **wish))
    for seed in range(1, 9):
        tier.use(keys_of(seed, 4))
    assert tier.use(keys_of(0, 4)) == found


def test_all_ranked_still_makes_room() -> None:
    tier = Tier("RankedCachePolicy")
    for seed in range(9):
        tier.use(keys_of(seed, 6), told(6, owner=f"s{seed}", priority=100, retention="pin"))
    assert len(tier.evicted) == 9 * 6 - 12


def test_a_lifetime_lapses(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(RankedCachePolicy, "clock", staticmethod(lambda: now))
    for after, found in ((59.0, 4), (61.0, 0)):
        now = 0.0
        tier = Tier("RankedCachePolicy")
        tier.use(keys_of(0, 4), told(4, priority=90, ttl=60))
        now = after
        for seed in range(1, 9):
            tier.use(keys_of(seed, 4))
        assert tier.use(keys_of(0, 4)) == found


def test_a_drop_sinks_what_nobody_else_uses() -> None:
    tier = Tier("RankedCachePolicy")
    tier.use(keys_of(0, 4), told(4, owner="a", priority=35))
    tier.use(keys_of(1, 4), told(4, owner="b", retention="drop"))
    tier.use(keys_of(2, 8))
    assert set(tier.evicted) == set(keys_of(1, 4))


def test_what_is_kept_is_bounded_by_the_chunks_that_are_stored() -> None:
    tier = Tier("RankedCachePolicy")
    policy = tier.manager._policy
    for seed in range(400):
        tier.use(keys_of(seed, 20), told(20, owner=f"s{seed}", priority=90, ttl=60))  # more than the tier holds
        tier.use(keys_of(seed + 10**6, 3), told(3, owner=f"s{seed}", priority=90, ttl=60) if seed % 2 else None)
        assert policy._claims.keys() <= policy.chunks.keys() and not policy._coming
    for owner in range(200):
        tier.use(keys_of(0, 4), told(4, owner=f"o{owner}", priority=50 + owner % 40, ttl=60))
    assert max(map(len, policy._claims.values())) == MOST_OWNERS
    assert len(policy._due) <= 12 * MOST_OWNERS * 2 + 64
    assert policy.failures == 0


def test_the_weakest_of_too_many_owners_gives_way() -> None:
    tier = Tier("RankedCachePolicy")
    for owner in range(3 * MOST_OWNERS):
        tier.use(keys_of(0, 4), told(4, owner=f"o{owner}", priority=90 if owner == 0 else 40))
    for seed in range(1, 9):
        tier.use(keys_of(seed, 4))
    assert tier.use(keys_of(0, 4)) == 4


def test_a_fault_of_ours_leaves_vllms_own_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(RankedCachePolicy, "_claim", broken)
    tiers = Tier("lru"), Tier("RankedCachePolicy")
    for seed in range(9):
        for tier in tiers:
            tier.use(keys_of(seed % 4, 5), told(5, priority=90))
    assert tiers[0].evicted == tiers[1].evicted
    assert tiers[1].manager._policy.failures > 0
