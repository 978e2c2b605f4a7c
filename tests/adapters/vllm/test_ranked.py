"""The order of free blocks against a plain sorted list, over random operations; and what an operation costs.

It knows neither vLLM nor claims, so it is tested without them.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.adapters.vllm.ranked import Ranked
from kvpolicy.adapters.vllm.segment import Rank, Segment
from kvpolicy.claims.strength import DEFAULT, DROPPED, PROTECTED
from kvpolicy.pool.run import Run
from kvpolicy.pool.tier import Tier

COUNT = 24
RANKS = (DROPPED, 0, 34, DEFAULT, 36, 90, PROTECTED, PROTECTED + 100)


class Pair:
    """The same blocks in both. place: of a free block, (release, place in it), or None where it was prepended."""

    def __init__(self) -> None:
        self.ours = Ranked(COUNT)
        self.runs = [Run([-1], [], 0, None, Tier("gpu", 0, COUNT)) for _ in range(4)]
        self.owner: dict[int, Run] = {}
        self.place: dict[int, tuple[int, int]] = {}
        self.front: list[int] = []
        self.releases = 0
        self.gone: list[tuple[Run, int]] = []

    @property
    def held(self) -> list[int]:
        return [i for i in range(COUNT) if i not in self.place and i not in self.front]

    @property
    def order(self) -> list[int]:
        return self.front + sorted(self.place, key=lambda i: (self.rank(i), self.place[i]))

    def rank(self, i: int) -> int:
        run = self.owner.get(i)
        return DEFAULT if run is None else run.rank

    def pop(self, n: int) -> None:
        ids = self.order[:n]
        assert self.ours.pop(len(ids)) == ids
        for i in ids:
            if i in self.front:
                self.front.remove(i)
            else:
                del self.place[i]
                if i in self.owner:
                    self.gone.append((self.owner.pop(i), i))

    def take(self, i: int) -> None:
        free = i in self.place or i in self.front
        assert self.ours.take(i) == free
        self.place.pop(i, None)
        if i in self.front:
            self.front.remove(i)

    def append(self, ids: list[int], longest: int) -> None:
        self.releases += 1
        self.ours.append(list(ids), longest)
        self.place.update((i, (self.releases, at)) for at, i in enumerate(ids))

    def prepend(self, ids: list[int]) -> None:
        self.ours.prepend(list(ids))
        for i in ids:
            self.owner.pop(i, None)
        self.front = ids + self.front

    def assign(self, ids: list[int], run: Run | None) -> None:
        self.ours.assign(ids, run)
        if run is not None:
            run.hashes = list(ids) or [-1]  # a whole run that is let go at once has a way of its own
        for i in ids:
            if i not in self.front:
                self.owner.pop(i, None)
                if run is not None:
                    self.owner[i] = run

    def put(self, run: Run, rank: int) -> None:
        run.rank = rank
        self.ours.put(run)

    def check(self, pick: random.Random) -> None:
        order = self.order
        assert list(self.ours.after(None)) == order
        i = pick.randrange(COUNT)
        assert list(self.ours.after(i)) == (order[order.index(i) + 1 :] if i in order else [])
        assert [self.ours.free(i) for i in range(COUNT)] == [i in order for i in range(COUNT)]
        assert [self.ours.run_of(i) for i in range(COUNT)] == [self.owner.get(i) for i in range(COUNT)]
        assert [(run, i) for run, ids in self.ours.gone for i in ids] == self.gone
        standing = [segment.queued for run in self.runs for segment in _segments(run)]
        assert all(standing), "nothing is left of a segment, and it stands there still"
        assert sum(map(len, standing)) == sum(1 for i in self.place if i in self.owner)


def _segments(run: Run) -> list[Any]:
    standing: Any = run.standing
    return standing if isinstance(standing, list) else [] if standing is None else [standing]


NAMES = ("pop", "take", "append", "append", "prepend", "assign", "assign", "put", "whole")


@settings(max_examples=250, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 2**20)), max_size=50))
def test_it_is_a_sorted_list(operations: list[tuple[str, int]]) -> None:
    pair = Pair()
    for name, seed in operations:
        pick = random.Random(seed)
        held, run = pair.held, pick.choice(pair.runs)
        some = pick.sample(held, pick.randrange(len(held) + 1))
        if name == "pop" and pair.order:
            pair.pop(pick.randrange(1, COUNT))
        elif name == "take":
            for i in pick.sample(range(COUNT), 3):
                pair.take(i)
        elif name == "append":
            pair.append(some, pick.choice([1, 3, 100]))
        elif name == "prepend":
            pair.prepend(some[:3])
        elif name == "assign":
            pair.assign(pick.sample(range(COUNT), pick.randrange(8)), pick.choice([run, None]))
        elif name == "put":
            pair.put(run, pick.choice(RANKS))
        elif some:  # a request's blocks, claimed as one run and let go tail first
            pair.assign(some, run)
            pair.append(some[::-1], 100)
        pair.check(pick)


class Watched(Segment):
    """Counts how often its standing is asked for."""

    asked = 0
    __slots__ = ("_entry",)

    @property
    def entry(self) -> Any:  # type: ignore[override]
        Watched.asked += 1
        return self._entry

    @entry.setter
    def entry(self, entry: Any) -> None:
        self._entry = entry


def test_coming_late_to_a_rank_costs_the_same_however_many_came_late_before() -> None:
    rank = Rank(1)
    rank.enter(Segment([0], None, 10_000, 0, rank))
    asked = []
    for number in range(2000):
        before = Watched.asked
        rank.enter(Watched([number], None, number, 0, rank))
        asked.append(Watched.asked - before)
    assert sum(asked) < 4 * len(asked)
    assert [segment.release for segment in rank.all()] == [*range(2000), 10_000]
