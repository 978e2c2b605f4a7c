"""Ladders, prefetches and transfers in long random histories: nothing is lost that nobody displaced, and events,
payloads and counters tell one story."""

from __future__ import annotations

import random

import pytest

from kvpolicy.pool import Lease, Mark, Pool
from kvpolicy.pool.events import BlockRemoved, BlockStored
from tests.pool.structure import check_structure

NAMES = ("gpu", "cpu", "disk")


class Told:
    """Where each block is, by events alone."""

    def __init__(self) -> None:
        self.blocks: dict[str, set[object]] = {"GPU": set(), "CPU": set(), "DISK": set()}

    def drain(self, pool: Pool) -> None:
        assert pool.events is not None
        for event in pool.events:
            if isinstance(event, BlockStored):
                assert not self.blocks[event.medium] & set(event.hashes)
                self.blocks[event.medium] |= set(event.hashes)
            elif isinstance(event, BlockRemoved):
                assert self.blocks[event.medium] >= set(event.hashes)
                self.blocks[event.medium] -= set(event.hashes)
        pool.events.clear()


def truth(pool: Pool) -> dict[str, set[object]]:
    found: dict[str, set[object]] = {"GPU": set(), "CPU": set(), "DISK": set()}
    pending = [pool._root]
    while pending:
        run = pending.pop()
        found[run.tier.medium] |= set(run.hashes)
        pending += run.children.values()
    return found


def resident(pool: Pool) -> int:
    return sum(tier.cached for tier in pool.tiers)


def live(seed: int, steps: int) -> None:
    draw = random.Random(seed)
    pool = Pool(
        draw.randint(1, 10),
        cpu_blocks=draw.randint(0, 10),
        disk_blocks=draw.randint(0, 10),
        transfer=draw.choice([None, lambda blocks, source, target: blocks * 0.7]),
        events=True,
    )
    told, leases, marks = Told(), list[Lease](), list[Mark]()
    now = 0.0
    for _ in range(steps):
        now += draw.choice([0, 0, 1])
        path = [draw.randint(0, 1) for _ in range(draw.choice([2, 4, 7]))]
        prompt = [tuple(path[:end]) for end in range(1, len(path) + 1)]
        step = draw.randint(0, 11)
        if step <= 3:
            leases.append(pool.acquire(prompt, now))
            assert all(run_is_on_gpu(pool, lease) for lease in leases)
        elif step <= 6 and leases:
            pool.release(leases.pop(draw.randrange(len(leases))), now)
        elif step == 7:
            marks.append(pool.mark(prompt, draw.randint(1, 7), draw.choice([10, 35, 80, 235]), "", now))
        elif step == 8 and marks:
            pool.unmark(marks.pop(draw.randrange(len(marks))), now)
        elif step == 9 and marks:
            mark, tier = draw.choice(marks), draw.choice(NAMES)
            before = mark.length
            pool.demote(mark, tier, now)
            assert mark.length == before or any(t.capacity == t.cached for t in pool.tiers)
        elif step == 10 and marks:
            mark = draw.choice(marks)
            before, order = mark.length, pool.last_release(mark)
            pool.prefetch(mark, now)
            assert (mark.length, pool.last_release(mark)) == (before, order)
        else:
            pool.evict(draw.randint(0, 3), now)
        check_structure(pool)
        told.drain(pool)
        assert told.blocks == truth(pool)
    for lease in leases:
        pool.release(lease, now)
    assert pool.clear(now)
    assert resident(pool) == 0
    told.drain(pool)
    assert not any(told.blocks.values())


def run_is_on_gpu(pool: Pool, lease: Lease) -> bool:
    run = lease.run
    return all(other.tier is pool.gpu for other in [run])


@pytest.mark.parametrize("seed", range(60))
def test_long_histories(seed: int) -> None:
    live(seed, 100)
