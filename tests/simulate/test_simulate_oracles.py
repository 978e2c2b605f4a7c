"""The oracles and object baselines against slow, obvious ones that look at single blocks."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.simulate.baselines.objects import Fifo, Lfu, LruObject
from kvpolicy.simulate.oracle import History, belady, belady_resident
from tests.simulate.traces_for_tests import call

OBJECTS = {"lru-object": LruObject, "fifo": Fifo, "lfu": Lfu}
# Prompts as paths of a tree: an id is its whole path, so lists are prefix-chained by construction.
PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=14)


def chained(paths: list[list[int]]) -> list[list[int]]:
    ids: dict[tuple[int, ...], int] = {}
    return [[ids.setdefault(tuple(path[: i + 1]), len(ids)) for i in range(len(path))] for path in paths]


def history_of(lists: list[list[int]]) -> History:
    history = History()
    for ids in lists:
        history.append(call(ids))
    return history


def next_use(lists: list[list[int]], after: int, block: int) -> tuple[int, int]:
    """(call, depth) of the next use of a block, the farthest of all where it has none."""
    for later in range(after + 1, len(lists)):
        if block in lists[later]:
            return later, lists[later].index(block)
    return len(lists), 0


def slow_belady(lists: list[list[int]], capacity: int) -> int:
    """MIN with bypass, one reference at a time."""
    resident: dict[int, tuple[int, int]] = {}
    hits = 0
    for now, ids in enumerate(lists):
        for block in ids:
            hits += block in resident
            resident.pop(block, None)
        for block in ids:
            use = next_use(lists, now, block)
            if use[0] < len(lists):
                resident[block] = use
        while len(resident) > capacity:
            del resident[max(resident, key=lambda block: resident[block])]
    return hits


def slow_resident(lists: list[list[int]], capacity: int) -> int:
    """MIN that makes room for the whole running request first; a block further down leaves first on ties."""
    resident: set[int] = set()
    hits = 0
    for now, ids in enumerate(lists):
        leading = list(itertools.takewhile(resident.__contains__, ids))
        hits += len(leading)
        kept = ids[:capacity]
        others = resident - set(ids)
        while len(others) + len(kept) > capacity:
            others.remove(max(others, key=lambda block: next_use(lists, now, block)))
        resident = others | set(kept)
    return hits


@settings(max_examples=150)
@given(PATHS, st.integers(1, 12))
def test_oracles_equal_the_obvious_ones(paths: list[list[int]], capacity: int) -> None:
    lists = chained(paths)
    assert sum(belady(history_of(lists), capacity)[0]) == slow_belady(lists, capacity)
    assert sum(belady_resident(history_of(lists), capacity)[0]) == slow_resident(lists, capacity)


@settings(max_examples=60)
@given(PATHS, st.integers(1, 12))
def test_no_baseline_beats_the_bound(paths: list[list[int]], capacity: int) -> None:
    lists = chained(paths)
    bound = sum(belady(history_of(lists), capacity)[0])
    assert sum(belady_resident(history_of(lists), capacity)[0]) <= bound
    for make in OBJECTS.values():
        cache = make(capacity)
        assert sum(cache.use(ids) for ids in lists) <= bound


@settings(max_examples=60)
@given(PATHS, st.integers(1, 8))
def test_object_baselines_equal_obvious_ones(paths: list[list[int]], capacity: int) -> None:
    lists = chained(paths)
    for name, make in OBJECTS.items():
        cache = make(capacity)
        assert [cache.use(ids) for ids in lists] == slow_object(name, lists, capacity), name


def slow_object(name: str, lists: list[list[int]], capacity: int) -> list[int]:
    """Victim by a sort of everything resident."""
    came: dict[int, int] = {}
    used: dict[int, int] = {}
    uses: dict[int, int] = {}
    order = {
        "fifo": lambda block: (came[block],),
        "lru-object": lambda block: (used[block],),
        "lfu": lambda block: (uses[block], used[block]),
    }[name]
    clock, answer = 0, []
    for ids in lists:
        hits, leading = 0, True
        for block in ids:
            clock += 1
            if block in came:
                hits += leading
            else:
                leading = False
                if len(came) == capacity:
                    victim = min(came, key=order)
                    del came[victim], used[victim], uses[victim]
                came[block], uses[block] = clock, 0
            used[block] = clock
            uses[block] += 1
        answer.append(hits)
    return answer
