"""Who is at work in a run, for adapters of frameworks: whatever threads begin at once, one alone is no branch."""

from __future__ import annotations

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import kvpolicy
from kvpolicy.adapters.frameworks.at_work import at_work


class Slow(str):
    """A name that other threads go on beside, whenever it is looked up."""

    __slots__ = ()

    def __hash__(self) -> int:
        time.sleep(0.002)
        return super().__hash__()


def test_one_that_begins_beside_another_of_its_name() -> None:
    team, other = at_work(kvpolicy.run()), at_work(kvpolicy.run())
    assert [team.begins("a", key) for key in (1, 2, 1)] == [(0, False), (1, True), (0, True)]
    assert team.begins("b", 3) == (0, False) and other.begins("a", 1) == (0, False)
    team.ends(1, 2, 2, 9)
    assert team.begins("a", 4) == (2, False)  # its number is its own
    assert team.begins("b", 4) == (1, True) and team.begins("a", 5) == (3, False)  # 4 goes on under another name
    team.ends(3, 4, 5)
    assert team.keys == {}


def test_threads_that_begin_at_once() -> None:
    run, together = kvpolicy.run(), Barrier(8)

    def begin(key: int) -> tuple[int, bool]:
        together.wait(30)
        return at_work(run).begins(Slow("a"), key)

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(begin, range(8)))
    assert sorted(told) == [(0, False), *((number, True) for number in range(1, 8))]


def test_a_run_that_is_gone_is_forgotten() -> None:
    run = kvpolicy.run()
    at_work(run).begins("a", 1)
    gone = weakref.ref(at_work(run))
    assert gone() is not None
    del run
    gc.collect()
    assert gone() is None
