"""Lower tiers: the pool, which moves runs, and the naive pool, which moves blocks, end up with the same everywhere."""

from __future__ import annotations

import random

import pytest

from kvpolicy.pool import Lease, Mark, Pool
from tests.pool.naive import NaiveLease, NaiveMark
from tests.pool.naive_tiers import TIERS, NaiveTieredPool
from tests.pool.structure import check_structure

STRENGTHS = [-1, 10, 20, 35, 50, 90, 200, 235, None]


def names(path: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [path[:end] for end in range(1, len(path) + 1)]


def agree(pool: Pool, naive: NaiveTieredPool, marks: list[tuple[Mark, NaiveMark]]) -> None:
    check_structure(pool)
    for name in naive.blocks:
        view = pool.block(names(name), len(name) - 1)
        assert view is not None
        assert (view.tier, view.rank, view.held) == (TIERS[naive.levels[name]], naive.rank(name), naive.held(name))
        if len(name) > 1:
            assert naive.levels[name[:-1]] <= naive.levels[name]
    assert sum(tier.cached for tier in pool.tiers) == len(naive.blocks)
    assert pool.eviction_order() == naive.order()
    for mark, other in marks:
        assert mark.length == len(other.path)


def live(seed: int, steps: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.randint(1, 8), draw.randint(1, 8), draw.randint(1, 8)][: draw.choice([2, 3, 3])]
    pool = Pool(sizes[0], cpu_blocks=sizes[1], disk_blocks=sizes[2] if len(sizes) > 2 else 0)
    naive = NaiveTieredPool(*sizes)
    leases: list[tuple[Lease, NaiveLease]] = []
    marks: list[tuple[Mark, NaiveMark]] = []
    now = 0.0
    wide = draw.choice([1, 1, 2])
    for _ in range(steps):
        now += draw.choice([0, 0, 1])
        path = tuple(draw.randint(0, wide) for _ in range(draw.choice([2, 4, 6, 9])))
        step = draw.randint(0, 11)
        if step <= 3:
            lease, other = pool.acquire(names(path), now), naive.acquire(path, now)
            assert lease.hits == other.hits
            assert lease.hits_by_tier == tuple(naive.found_at)
            leases.append((lease, other))
            assert (lease.length, lease.evicted) == (len(other.path), other.evicted)
        elif step <= 6 and leases:
            lease, other = leases.pop(draw.randrange(len(leases)))
            pool.release(lease, now)
            naive.release(other, now)
        elif step == 7 and leases:
            lease, other = draw.choice(leases)
            longer = other.path + path[:3]
            pool.extend(lease, names(longer)[len(other.path) :], now)
            naive.extend(other, path[:3], now)
            assert (lease.length, lease.evicted) == (len(other.path), other.evicted)
        elif step == 8:
            count = draw.randint(0, 4)
            assert pool.evict(count, now) == naive.evict(count, now)
        elif step == 9 and marks:
            index = draw.randrange(len(marks))
            mark, claim = marks[index]
            if draw.random() < 0.5:
                pool.unmark(mark, now)
                naive.unmark(claim, now)
            else:
                strength = draw.choice(STRENGTHS)
                pool.weigh(mark, strength, now)
                naive.weigh(claim, strength, now)
        else:
            length, strength = draw.randint(1, 9), draw.choice(STRENGTHS)
            mark, claim = pool.mark(names(path), length, strength, "", now), naive.mark(path, length, strength, now)
            if draw.random() < 0.3:
                mark.admit = False
                naive.refuse(claim)
            marks.append((mark, claim))
        agree(pool, naive, marks)


@pytest.mark.parametrize("seed", range(80))
def test_long_histories(seed: int) -> None:
    live(seed, 100)
