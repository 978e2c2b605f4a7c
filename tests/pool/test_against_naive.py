"""The pool and the naive pool live through the same long histories and must agree on everything after every step."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from kvpolicy.pool import Lease, Mark, Pool
from tests.pool.naive import NaiveLease, NaiveMark, NaivePool
from tests.pool.structure import check_structure

PROMPTS = st.lists(st.integers(0, 1), max_size=9).map(tuple)
NUMBERS = [-1, 0, 10, 20, 34, 35, 36, 50, 90, 200, 235, 300, None]
STRENGTHS = st.sampled_from(NUMBERS)
LATER = st.sampled_from([0, 0, 1])  # most things happen at one instant


def names(path: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The block hashes of a prompt: each names its whole prefix."""
    return [path[:end] for end in range(1, len(path) + 1)]


class Ears:
    """What the pool told."""

    def __init__(self) -> None:
        self.emptied_marks: list[Mark] = []
        self.released_marks: list[Mark] = []

    def released(self, mark: Mark, now: float) -> None:
        self.released_marks.append(mark)

    def emptied(self, mark: Mark, now: float) -> None:
        self.emptied_marks.append(mark)


class PoolLife(RuleBasedStateMachine):
    leases = Bundle("leases")
    marks = Bundle("marks")

    @initialize(capacity=st.integers(1, 12))
    def begin(self, capacity: int) -> None:
        self.now = 0.0
        self.ears = Ears()
        self.pool = Pool(capacity, listener=self.ears)
        self.naive = NaivePool(capacity)
        self.all_marks: list[tuple[Mark, NaiveMark]] = []

    def at(self, later: int) -> float:
        self.now += later
        return self.now

    @rule(target=leases, path=PROMPTS, later=LATER)
    def acquire(self, path: tuple[int, ...], later: int) -> tuple[Lease, NaiveLease]:
        now = self.at(later)
        assert self.pool.match(names(path)) == self.naive.match(path)
        lease, naive = self.pool.acquire(names(path), now), self.naive.acquire(path, now)
        assert lease.hits == naive.hits
        assert lease.stored == names(naive.path)[naive.hits :]
        self.same_lease(lease, naive)
        return lease, naive

    @rule(pair=leases, more=PROMPTS, later=LATER)
    def extend(self, pair: tuple[Lease, NaiveLease], more: tuple[int, ...], later: int) -> None:
        lease, naive = pair
        now = self.at(later)
        path = naive.path + more
        self.pool.extend(lease, names(path)[len(naive.path) :], now)
        self.naive.extend(naive, more, now)
        self.same_lease(lease, naive)

    @rule(pair=leases, count=st.integers(0, 3), later=LATER)
    def private(self, pair: tuple[Lease, NaiveLease], count: int, later: int) -> None:
        lease, naive = pair
        now = self.at(later)
        assert self.pool.private(lease, count, now) == self.naive.private(naive, count, now)
        self.same_lease(lease, naive)

    @rule(pair=consumes(leases), later=LATER)
    def release(self, pair: tuple[Lease, NaiveLease], later: int) -> None:
        lease, naive = pair
        now = self.at(later)
        held = {id(mark) for mark, other in self.all_marks if other.path and self.naive.held(other.path)}
        self.ears.released_marks = []
        self.pool.release(lease, now)
        self.naive.release(naive, now)
        self.pool.release(lease, now)  # idempotent
        free = {id(mark) for mark, other in self.all_marks if other.path and not self.naive.held(other.path)}
        told = [id(mark) for mark in self.ears.released_marks]
        assert len(told) == len(set(told))
        assert set(told) == {id(mark) for mark, _ in self.all_marks if mark.notify} & held & free

    @rule(pair=leases, target=marks, length=st.integers(0, 10), strength=STRENGTHS, later=LATER, notify=st.booleans())
    def mark_lease(self, pair: tuple[Lease, NaiveLease], length: int, strength: int | None, later: int, notify: bool):
        lease, naive = pair
        now = self.at(later)
        mark = self.pool.mark(lease, length, strength, "claim", now)
        return self.marked(mark, self.naive.mark(naive.path, length, strength, now), notify)

    @rule(pair=marks, target=marks, length=st.integers(0, 10), strength=STRENGTHS, later=LATER)
    def mark_mark(self, pair: tuple[Mark, NaiveMark], length: int, strength: int | None, later: int):
        at, naive = pair
        now = self.at(later)
        mark = self.pool.mark(at, length, strength, "claim", now)
        return self.marked(mark, self.naive.mark(naive.path, length, strength, now), False)

    @rule(path=PROMPTS, target=marks, length=st.integers(0, 10), strength=STRENGTHS, later=LATER, notify=st.booleans())
    def mark_prompt(self, path: tuple[int, ...], length: int, strength: int | None, later: int, notify: bool):
        now = self.at(later)
        mark = self.pool.mark(names(path), length, strength, "claim", now)
        return self.marked(mark, self.naive.mark(path, length, strength, now), notify)

    def marked(self, mark: Mark, naive: NaiveMark, notify: bool):
        assert mark.length == len(naive.path)
        if not mark.length:
            return multiple()
        mark.notify = notify
        self.all_marks.append((mark, naive))
        return mark, naive

    @rule(pair=marks, strength=STRENGTHS, later=LATER)
    def weigh(self, pair: tuple[Mark, NaiveMark], strength: int | None, later: int) -> None:
        now = self.at(later)
        self.pool.weigh(pair[0], strength, now)
        self.naive.weigh(pair[1], strength, now)

    @rule(strengths=st.lists(STRENGTHS, max_size=5), skip=st.integers(0, 5), later=LATER)
    def weigh_all(self, strengths: list[int | None], skip: int, later: int) -> None:
        now = self.at(later)
        pairs = list(zip(self.all_marks[skip:], strengths, strict=False))
        self.pool.weigh_all([(pair[0], strength) for pair, strength in pairs], now)
        self.naive.weigh_all([(pair[1], strength) for pair, strength in pairs], now)

    @rule(pair=consumes(marks), later=LATER)
    def unmark(self, pair: tuple[Mark, NaiveMark], later: int) -> None:
        now = self.at(later)
        self.pool.unmark(pair[0], now)
        self.naive.unmark(pair[1], now)
        self.pool.unmark(pair[0], now)  # idempotent

    @rule(count=st.integers(0, 4), later=LATER)
    def evict(self, count: int, later: int) -> None:
        now = self.at(later)
        assert self.pool.eviction_order(count) == self.naive.order()[:count]
        assert self.pool.evict(count, now) == self.naive.evict(count, now)

    def same_lease(self, lease: Lease, naive: NaiveLease) -> None:
        assert lease.length == len(naive.path)
        assert lease.short == (len(naive.path) < naive.asked)
        assert lease.evicted == naive.evicted
        assert len(lease.private) == naive.private

    @invariant()
    def agree(self) -> None:
        pool, naive = self.pool, self.naive
        for name in naive.blocks:
            view = pool.block(names(name), len(name) - 1)
            assert view is not None
            assert view.rank == naive.rank(name)
            assert view.held == naive.held(name)
            if len(name) > 1:  # INVARIANT: prefix. Rank never increases along a prompt.
                assert view.rank <= naive.rank(name[:-1])
        assert pool.eviction_order() == naive.order()
        assert pool.used == len(naive.blocks) + sum(lease.private for lease in naive.leases)
        assert pool.protected_blocks == sum(naive.rank(name) >= 200 for name in naive.blocks)
        for mark, other in self.all_marks:
            assert mark.length == len(other.path)
            unheld = other.path and not naive.held(other.path)
            assert pool.last_release(mark) == (naive.blocks[other.path].released_at if unheld else None)
            held = [end for end in range(1, len(other.path) + 1) if naive.held(other.path[:end])]
            assert pool.held_prefix(mark) == max(held, default=0)
            safe = [end for end in range(1, len(other.path) + 1) if naive.rank(other.path[:end]) >= 200]
            assert pool.protected_prefix(mark) == max(safe, default=0)
        gone = [id(mark) for mark, other in self.all_marks if other in naive.emptied]
        assert sorted(gone) == sorted(id(mark) for mark in self.ears.emptied_marks)
        check_structure(pool)


PoolLife.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestPoolLife = PoolLife.TestCase


@pytest.mark.parametrize("seed", range(60))
def test_long_histories(seed: int) -> None:
    """The same life without a search for short ones: hypothesis prefers histories in which little piles up."""
    live(seed, steps=120)


def live(seed: int, steps: int) -> None:
    """One history of that many steps, all drawn from `seed`."""
    draw = random.Random(seed)
    life = PoolLife()
    life.begin(draw.randint(1, 14))
    leases: list[tuple[Lease, NaiveLease]] = []
    marks: list[tuple[Mark, NaiveMark]] = []
    wide = draw.choice([1, 1, 2])

    def prompt() -> tuple[int, ...]:
        return tuple(draw.randint(0, wide) for _ in range(draw.choice([2, 4, 6, 9])))

    for _ in range(steps):
        later = draw.choice([0, 0, 1])
        step = draw.randint(0, 13)
        if step <= 2:
            leases.append(life.acquire(prompt(), later))
        elif step <= 4 and leases:
            life.release(leases.pop(draw.randrange(len(leases))), later)
        elif step == 5 and leases:
            life.extend(draw.choice(leases), prompt()[:3], later)
        elif step == 6 and leases:
            life.private(draw.choice(leases), draw.randint(0, 3), later)
        elif step == 7:
            life.evict(draw.randint(0, 4), later)
        elif step == 8:
            life.weigh_all([draw.choice(NUMBERS) for _ in range(4)], draw.randint(0, 6), later)
        elif step == 9 and marks:
            life.unmark(marks.pop(draw.randrange(len(marks))), later)
        elif step == 10 and marks:
            life.weigh(draw.choice(marks), draw.choice(NUMBERS), later)
        else:
            made = claim(life, draw, leases, marks, prompt())
            if isinstance(made, tuple):
                marks.append(made)
        life.agree()


def claim(
    life: PoolLife,
    draw: random.Random,
    leases: list[tuple[Lease, NaiveLease]],
    marks: list[tuple[Mark, NaiveMark]],
    path: tuple[int, ...],
):
    """A mark on a lease, on another mark or on a prompt."""
    length, strength, notify = draw.randint(0, 10), draw.choice(NUMBERS), draw.random() < 0.5
    later, kind = draw.choice([0, 0, 1]), draw.randint(0, 2)
    if kind == 0 and leases:
        return life.mark_lease(draw.choice(leases), length, strength, later, notify)
    if kind == 1 and marks:
        return life.mark_mark(draw.choice(marks), length, strength, later)
    return life.mark_prompt(path, length, strength, later, notify)
