"""Lower tiers, case by case: sinking, coming up, ladders, refusals, transfers, and what the engine tells of it."""

from __future__ import annotations

import random

import pytest

from kvpolicy.pool import Pool
from kvpolicy.pool.events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.pool.structure import check_structure

PROMPT = ["a", "b", "c", "d"]


def served(pool: Pool, prompt: list[str], now: float) -> None:
    pool.release(pool.acquire(prompt, now), now)


def tiers(pool: Pool, prompt: list[str]) -> list[str | None]:
    views = [pool.block(prompt, index) for index in range(len(prompt))]
    return [None if view is None else view.tier for view in views]


def test_tail_sinks_first_and_the_head_stays_above() -> None:
    pool = Pool(4, cpu_blocks=2, disk_blocks=1)
    served(pool, PROMPT, 0.0)
    assert pool.evict(1, 1.0) == ["d"]
    assert tiers(pool, PROMPT) == ["gpu", "gpu", "gpu", "cpu"]
    pool.evict(2, 2.0)
    assert tiers(pool, PROMPT) == ["gpu", "cpu", "cpu", "disk"]
    pool.evict(1, 3.0)
    assert tiers(pool, PROMPT) == ["cpu", "cpu", "disk", None]
    check_structure(pool)


def test_hits_are_counted_where_they_were_found_and_come_up() -> None:
    pool = Pool(4, cpu_blocks=2, disk_blocks=1)
    served(pool, PROMPT, 0.0)
    pool.evict(3, 1.0)
    lease = pool.acquire(PROMPT, 2.0)
    assert (lease.hits, lease.hits_by_tier, lease.stored) == (4, (1, 2, 1), [])
    assert tiers(pool, PROMPT) == ["gpu"] * 4
    assert pool.moved == {("gpu", "cpu"): 2, ("gpu", "disk"): 1, ("cpu", "gpu"): 2, ("disk", "gpu"): 1}


def test_an_exchange_loses_nothing() -> None:
    """GPU and CPU are full of two prompts; each use brings one up and sends the other down."""
    pool = Pool(4, cpu_blocks=4)
    for now in range(6):
        lease = pool.acquire(list("abcd" if now % 2 else "wxyz"), float(now))
        pool.release(lease, float(now))
        assert lease.hits == (4 if now > 1 else 0)


def test_what_a_request_needs_all_at_once_does_not_fit() -> None:
    """More below than the GPU has room for: the head comes up, the rest stays where it is."""
    pool = Pool(3, cpu_blocks=4)
    served(pool, ["a", "b", "c"], 0.0)
    pool.evict(3, 1.0)
    running = pool.acquire(["x"], 2.0)
    lease = pool.acquire(["a", "b", "c", "d"], 3.0)
    assert (lease.length, lease.hits, lease.hits_by_tier, lease.stored) == (2, 2, (0, 2), [])
    assert lease.short
    assert tiers(pool, ["a", "b", "c", "d"]) == ["gpu", "gpu", "cpu", None]
    pool.release(lease, 4.0)
    pool.release(running, 4.0)
    check_structure(pool)


def test_weak_blocks_do_not_displace_stronger_ones_below() -> None:
    pool = Pool(1, cpu_blocks=1)
    served(pool, ["kept"], 0.0)
    mark = pool.mark(["kept"], 1, 90, "claim", 0.0)
    served(pool, ["plain"], 1.0)
    assert tiers(pool, ["kept"]) == ["cpu"]
    served(pool, ["next"], 2.0)
    assert [tiers(pool, ["kept"]), tiers(pool, ["plain"])] == [["cpu"], [None]]
    pool.unmark(mark, 3.0)
    served(pool, ["last"], 4.0)
    assert [tiers(pool, ["kept"]), tiers(pool, ["next"])] == [[None], ["cpu"]]


def test_refused_blocks_are_lost_unless_another_claim_wants_them() -> None:
    pool = Pool(4, cpu_blocks=4)
    served(pool, PROMPT, 0.0)
    mark = pool.mark(PROMPT, 4, 20, "secret", 0.0)
    mark.admit = False
    pool.mark(PROMPT, 2, 20, "shared", 0.0)
    pool.evict(4, 1.0)
    assert tiers(pool, PROMPT) == ["cpu", "cpu", None, None]
    asked = []
    own = Pool(2, cpu_blocks=2, admit=lambda marks, tier: bool(asked.append((len(marks), tier))))
    served(own, ["a", "b"], 0.0)
    own.evict(2, 1.0)
    assert asked == [(0, "cpu")]
    assert own.used == own.tiers[1].cached == 0


def test_ladder_steps_down_what_no_claim_wants_higher() -> None:
    pool = Pool(8, cpu_blocks=8, disk_blocks=8)
    served(pool, PROMPT, 0.0)
    served(pool, [*PROMPT[:2], "x"], 0.0)
    mine = pool.mark(PROMPT, 4, 50, "mine", 1.0)
    other = pool.mark([*PROMPT[:2], "x"], 3, 50, "other", 1.0)
    assert pool.demote(mine, "cpu", 2.0) == 2
    assert tiers(pool, PROMPT) == ["gpu", "gpu", "cpu", "cpu"]
    assert pool.demote(other, "cpu", 3.0) == 3
    assert pool.demote(mine, "disk", 4.0) == 2
    assert tiers(pool, PROMPT) == ["cpu", "cpu", "disk", "disk"]
    assert mine.length == 4
    check_structure(pool)


def test_ladder_waits_for_the_request_and_for_a_tier() -> None:
    pool = Pool(8, cpu_blocks=8)
    lease = pool.acquire(PROMPT, 0.0)
    mark = pool.mark(lease, 4, 50, "claim", 0.0)
    assert pool.demote(mark, "cpu", 1.0) == 0
    pool.release(lease, 2.0)
    assert pool.demote(mark, "remote", 3.0) == 0
    assert pool.demote(mark, "cpu", 3.0) == 4
    alone = Pool(8)
    served(alone, PROMPT, 0.0)
    assert alone.demote(alone.mark(PROMPT, 4, 50, "claim", 1.0), "cpu", 1.0) == 0


def test_prefetch_brings_up_what_outranks_and_renews_nothing() -> None:
    pool = Pool(4, cpu_blocks=8)
    served(pool, PROMPT, 0.0)
    mark = pool.mark(PROMPT, 4, 50, "next step", 0.0)
    pool.evict(4, 1.0)
    served(pool, ["w", "x"], 2.0)
    served(pool, ["y", "z"], 3.0)
    strong = pool.mark(["y", "z"], 2, 90, "stronger", 3.0)
    assert pool.prefetch(mark, 4.0) == 2
    assert tiers(pool, PROMPT) == ["gpu", "gpu", "cpu", "cpu"]
    assert tiers(pool, ["y", "z"]) == ["gpu", "gpu"]
    assert pool.last_release(mark) == 0.0
    pool.unmark(strong, 5.0)
    assert pool.prefetch(mark, 5.0) == 2
    assert tiers(pool, PROMPT) == ["gpu"] * 4
    check_structure(pool)
    assert pool.acquire(PROMPT, 6.0).hits_by_tier == (4, 0)


def test_transfers_take_their_time() -> None:
    pool = Pool(4, cpu_blocks=4, transfer=lambda blocks, source, target: blocks * 0.5)
    served(pool, PROMPT, 0.0)

    def state() -> str:
        view = pool.block(PROMPT, 3)
        assert view is not None
        return view.state

    assert state() == "resident"
    pool.evict(2, 1.0)
    assert state() == "offloading"
    lease = pool.acquire(PROMPT, 1.5)  # arrives below at 2.0, and then takes a second up again
    assert lease.ready_at == 3.0
    assert state() == "loading"
    pool.settle(3.0)
    assert state() == "resident"
    pool.release(lease, 3.0)
    assert pool.acquire(PROMPT, 4.0).ready_at == 4.0


def test_a_request_that_shares_a_transfer_is_ready_when_it_is() -> None:
    pool = Pool(4, cpu_blocks=4, transfer=lambda blocks, source, target: 1.0)
    served(pool, PROMPT, 0.0)
    pool.evict(4, 0.0)
    first = pool.acquire(PROMPT, 5.0)
    second = pool.acquire(PROMPT, 5.5)
    assert (first.ready_at, second.ready_at, second.hits_by_tier) == (6.0, 6.0, (4, 0))


def test_events_tell_where_blocks_are() -> None:
    pool = Pool(2, cpu_blocks=1, events=True)
    events = pool.events
    assert events is not None
    served(pool, ["a", "b"], 0.0)
    assert events == [BlockStored(("a", "b"), None, 16)]
    events.clear()
    served(pool, ["a", "b", "c"], 1.0)  # longer than the pool
    assert events == []
    pool.evict(2, 2.0)
    assert events == [
        BlockRemoved(("b",), "GPU"),
        BlockStored(("a",), None, 16, "CPU"),
        BlockRemoved(("a",), "GPU"),
    ]
    events.clear()
    assert pool.clear(3.0)
    assert events == [BlockRemoved(("a",), "CPU"), AllBlocksCleared()]
    told: set[tuple[object, str]] = set()
    for step in range(30):
        prompt = [f"{step % 5}{at}" for at in range(1 + step % 3)]
        served(pool, prompt, 4.0 + step)
    for event in events[2:]:
        if isinstance(event, BlockStored):
            assert not told & {(block_hash, event.medium) for block_hash in event.hashes}
            told |= {(block_hash, event.medium) for block_hash in event.hashes}
        elif isinstance(event, BlockRemoved):
            told -= {(block_hash, event.medium) for block_hash in event.hashes}
    assert len([True for _, medium in told if medium == "GPU"]) == pool.used
    assert len([True for _, medium in told if medium == "CPU"]) == pool.tiers[1].cached


def test_clear_spares_what_runs() -> None:
    pool = Pool(4, cpu_blocks=4, events=True)
    lease = pool.acquire(["a", "b"], 0.0)
    served(pool, ["a", "b", "c"], 1.0)
    assert not pool.clear(2.0)
    assert tiers(pool, ["a", "b", "c"]) == ["gpu", "gpu", None]
    pool.release(lease, 3.0)
    assert pool.clear(3.0)
    assert pool.used == 0
    assert sorted(pool.free_queue()) == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(20))
def test_tiers_together_are_one_lru(seed: int) -> None:
    """One copy of each block and no claims: what is found is what one tier of the whole size would have found."""
    draw = random.Random(seed)
    sizes = [draw.randint(8, 12), draw.randint(1, 9), draw.randint(1, 9)]
    three, one = Pool(sizes[0], cpu_blocks=sizes[1], disk_blocks=sizes[2]), Pool(sum(sizes))
    for now in range(200):
        path = [draw.randint(0, 2) for _ in range(draw.randint(1, 8))]
        prompt = [tuple(path[:end]) for end in range(1, len(path) + 1)]
        leases = [pool.acquire(prompt, float(now)) for pool in (three, one)]
        assert leases[0].hits == leases[1].hits
        three.release(leases[0], float(now))
        one.release(leases[1], float(now))
