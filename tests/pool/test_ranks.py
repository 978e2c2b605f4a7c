"""What claims do to ranks, case by case: the sentences of the contract that random histories rarely meet squarely."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.pool import Mark, Pool
from tests.pool.structure import check_structure

PROMPT = ["a", "b", "c", "d"]


def ranks(pool: Pool, prompt: list[str] = PROMPT) -> list[int | None]:
    views = [pool.block(prompt, index) for index in range(len(prompt))]
    return [None if view is None else view.rank for view in views]


def served(pool: Pool, prompt: list[str], now: float) -> None:
    pool.release(pool.acquire(prompt, now), now)


def test_claim_covers_the_prompt_from_its_first_block() -> None:
    pool = Pool(8)
    served(pool, PROMPT, 0.0)
    pool.mark(PROMPT, 3, 80, "turn", 1.0)
    assert ranks(pool) == [80, 80, 80, 35]


def test_strongest_claim_counts_and_a_weak_one_alone_sinks() -> None:
    pool = Pool(8)
    served(pool, PROMPT, 0.0)
    low = pool.mark(PROMPT, 4, 10, "one", 1.0)
    assert ranks(pool) == [10, 10, 10, 10]
    other = pool.mark(PROMPT, 2, 35, "another", 1.0)
    assert ranks(pool) == [35, 35, 10, 10]
    pool.weigh(low, 90, 2.0)
    pool.weigh(other, 10, 2.0)
    assert ranks(pool) == [90, 90, 90, 90]


def test_lapsing_never_raises() -> None:
    pool = Pool(8)
    served(pool, PROMPT, 0.0)
    mark = pool.mark(PROMPT, 4, 10, "low", 1.0)
    pool.unmark(mark, 2.0)
    assert ranks(pool) == [10, 10, 10, 10]
    served(pool, PROMPT[:2], 3.0)  # a use forgets it, for the blocks used
    assert ranks(pool) == [35, 35, 10, 10]


def test_high_claim_lapses_to_the_default() -> None:
    pool = Pool(8)
    served(pool, PROMPT, 0.0)
    pool.unmark(pool.mark(PROMPT, 4, 235, "held", 1.0), 2.0)
    assert ranks(pool) == [35, 35, 35, 35]


def test_unclaimed_blocks_follow_the_block_before_them_at_every_instant() -> None:
    pool = Pool(8)
    served(pool, PROMPT, 0.0)
    mark = pool.mark(PROMPT, 2, 20, "low", 1.0)
    assert ranks(pool) == [20, 20, 20, 20]
    pool.weigh(mark, 50, 2.0)
    assert ranks(pool) == [50, 50, 35, 35]


def test_one_instant_is_one_step_in_any_order() -> None:
    """A claim replaced by a weaker one at one time: what it lapses to is not what it was between the two calls."""
    for first in ("unmark", "mark"):
        pool = Pool(8)
        served(pool, PROMPT, 0.0)
        old = pool.mark(PROMPT, 4, 10, "old", 1.0)
        if first == "unmark":
            pool.unmark(old, 2.0)
        new = pool.mark(PROMPT, 4, 80, "new", 2.0)
        if first == "mark":
            pool.unmark(old, 2.0)
        pool.unmark(new, 2.0)
        assert ranks(pool) == [10, 10, 10, 10]


def test_use_and_lapse_at_one_instant() -> None:
    """Whichever call comes first, a block that a request used in that instant is a used block."""
    for use_first in (True, False):
        pool = Pool(8)
        served(pool, PROMPT, 0.0)
        mark = pool.mark(PROMPT, 4, 10, "low", 1.0)
        if use_first:
            served(pool, PROMPT, 2.0)
        pool.unmark(mark, 2.0)
        if not use_first:
            served(pool, PROMPT, 2.0)
        assert ranks(pool) == [35, 35, 35, 35]


def test_never_wait() -> None:
    """Everything is protected: the next request is served all the same, and loses only what it must."""
    pool = Pool(4)
    served(pool, PROMPT, 0.0)
    mark = pool.mark(PROMPT, 4, 300, "pinned", 0.0)
    assert pool.protected_blocks == pool.available == 4
    lease = pool.acquire(["x", "y", "z"], 1.0)
    assert not lease.short
    assert lease.evicted == ["d", "c", "b"]
    assert mark.length == pool.protected_blocks == 1


def test_what_running_requests_hold_is_not_taken() -> None:
    pool = Pool(4)
    running = pool.acquire(["a", "b", "c"], 0.0)
    lease = pool.acquire(["x", "y", "z"], 1.0)
    assert lease.short
    assert (lease.length, lease.stored, lease.evicted) == (1, ["x"], [])
    pool.extend(lease, ["w"], 2.0)  # nothing behind a gap
    assert (lease.length, lease.asked) == (1, 4)
    pool.release(running, 3.0)
    with pytest.raises(InputFault):
        pool.extend(running, ["e"], 4.0)


def test_rank_orders_before_time_and_the_tail_leaves_first() -> None:
    pool = Pool(8)
    for now, name in enumerate("pqr"):
        served(pool, [name, name * 2], float(now))
    pool.mark(["p", "pp"], 1, 90, "kept", 5.0)
    pool.mark(["r", "rr"], 2, -1, "dropped", 5.0)
    assert pool.eviction_order() == ["rr", "r", "pp", "qq", "q", "p"]


def test_mark_moves_up_and_is_told_when_it_is_empty() -> None:
    class Ears:
        def __init__(self) -> None:
            self.heard: list[tuple[str, object, float]] = []

        def emptied(self, mark: Mark, now: float) -> None:
            assert mark.length == 0
            self.heard.append(("emptied", mark.claim, now))

        def released(self, mark: Mark, now: float) -> None:
            self.heard.append(("released", mark.claim, now))

    ears = Ears()
    pool = Pool(4, listener=ears)
    lease = pool.acquire(PROMPT, 0.0)
    mark, silent = pool.mark(lease, 3, 50, "m", 0.0), pool.mark(lease, 1, None, "anchor", 0.0)
    mark.notify = True
    assert pool.last_release(mark) is None
    pool.release(lease, 2.0)
    assert pool.last_release(mark) == 2.0
    assert ears.heard == [("released", "m", 2.0)]
    assert [pool.evict(1, 3.0), mark.length] == [["d"], 3]
    assert [pool.evict(2, 3.0), mark.length, silent.length] == [["c", "b"], 1, 1]
    pool.evict(1, 4.0)
    assert sorted(ears.heard[1:], key=str) == [("emptied", "anchor", 4.0), ("emptied", "m", 4.0)]
    check_structure(pool)


def test_a_release_looks_at_no_mark_that_does_not_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: a head that a thousand claims end at."""
    heard: list[object] = []
    ears = SimpleNamespace(released=lambda mark, now: heard.append(mark.claim), emptied=lambda mark, now: None)
    pool = Pool(4, listener=ears)
    lease = pool.acquire(PROMPT, 0.0)
    marks = [pool.mark(lease, 1 + number % 2, 50, number, 0.0) for number in range(1000)]
    for number in (700, 300, 500):
        marks[number].notify = True
    pool.evict(4, 0.0)  # held: nothing leaves
    looked, notify = [], Mark.notify
    monkeypatch.setattr(Mark, "notify", property(lambda mark: looked.append(mark) or notify.fget(mark)))
    pool.release(lease, 1.0)
    assert heard == [300, 500, 700]  # in the order in which they came
    assert len(looked) <= 3


def test_a_mark_that_moves_up_still_hears() -> None:
    heard: list[object] = []
    ears = SimpleNamespace(released=lambda mark, now: heard.append(mark.claim), emptied=lambda mark, now: None)
    pool = Pool(4, listener=ears)
    served(pool, PROMPT, 0.0)
    late, early = pool.mark(PROMPT, 1, 50, "first at the head", 0.0), pool.mark(PROMPT, 3, 50, "moved there", 0.0)
    early.notify = late.notify = True
    pool.evict(3, 1.0)
    assert (late.length, early.length) == (1, 1)
    lease = pool.acquire(PROMPT[:1], 2.0)
    pool.release(lease, 2.0)
    assert heard == ["first at the head", "moved there"]
    pool.unmark(late, 3.0)
    check_structure(pool)
    early.notify = False
    pool.release(pool.acquire(PROMPT[:1], 4.0), 4.0)
    assert len(heard) == 2
    check_structure(pool)


def test_looks_and_probes_renew_nothing() -> None:
    pool = Pool(8)
    served(pool, ["a"], 0.0)
    served(pool, ["b"], 1.0)
    pool.match(["a"])
    pool.block(["a"], 0)
    pool.eviction_order()
    pool.last_release(pool.mark(["a"], 1, None, "probe", 5.0))
    assert pool.eviction_order() == ["a", "b"]


@pytest.mark.parametrize("sizes", [{"blocks": 0}, {"blocks": -1}, {"blocks": 4, "cpu_blocks": -1}])
def test_impossible_sizes(sizes: dict[str, int]) -> None:
    with pytest.raises(InputFault):
        Pool(**sizes)
