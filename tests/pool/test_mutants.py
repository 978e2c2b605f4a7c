"""The comparison with the naive pool can fail: each mechanism is broken on purpose, and some history must show it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvpolicy.pool import eviction, marking, movement, order, ranks, release, requests, walk
from kvpolicy.pool.eviction import Eviction
from kvpolicy.pool.order import Order
from kvpolicy.pool.run import Run
from tests.pool.test_against_naive import live
from tests.pool.test_tiers_against_naive import live as live_in_tiers

Patch = pytest.MonkeyPatch


def use_forgets_nothing(patch: Patch) -> None:
    """A use leaves the rank that a lapsed claim left behind."""
    patch.setattr(walk, "use", lambda run, now: None)


def every_call_is_an_instant(patch: Patch) -> None:
    """What a claim leaves behind is the rank of a moment ago, not of before the instant."""
    patch.setattr(Run, "began", lambda self, now: self.rank)


def lapsing_falls_to_the_default(patch: Patch) -> None:
    """A low claim that ends raises its blocks."""

    def claim(run: Run, strength: int | None, now: float) -> None:
        if strength is None:
            run.own = 35
        run.claimed = strength

    patch.setattr(ranks, "_claim", claim)


def nothing_is_capped(patch: Patch) -> None:
    """An unclaimed block does not follow the block before it down."""

    def set_rank(run: Run, rank: int, now: float) -> None:
        if run.before_at != now:
            run.before, run.before_at = run.rank, now
        if (run.rank >= 200) != (rank >= 200):
            run.tier.protected += len(run.hashes) if rank >= 200 else -len(run.hashes)
        run.rank = rank
        if run.standing is not None:
            run.tier.order.put(run)

    patch.setattr(ranks, "set_rank", set_rank)


def order_ignores_rank(patch: Patch) -> None:
    """Plain LRU, whatever the claims."""
    put = Order.put

    def blind(self: Order, run: Run) -> None:
        rank, run.rank = run.rank, 0
        put(self, run)
        run.rank = rank

    patch.setattr(order.Order, "put", blind)


def marks_go_with_their_block(patch: Patch) -> None:
    """Eviction drops a claim instead of shortening it."""

    def forget(self: Eviction, run: Run, parent: Run) -> None:
        for mark in run.marks or ():
            mark.run = None

    patch.setattr(eviction.Eviction, "_lift_marks", forget)


def runs_merge_over_marks(patch: Patch) -> None:
    """A mark between two runs is not seen when they are merged."""
    patch.setattr(
        release,
        "mergeable",
        lambda head, run, now: len(head.children) == 1 and head.rank == run.rank and not head.refs and not run.refs,
    )


def first_holder_frees(patch: Patch) -> None:
    """A block is free when the first of two requests lets go."""
    let_go = requests.Requests.release

    def early(self: requests.Requests, lease: requests.Lease, now: float) -> None:
        run = lease.run
        while run.parent is not None:
            if run.refs > 1 and run.standing is None and not run.below:
                run.tier.order.put(run)
            run = run.parent
        let_go(self, lease, now)

    patch.setattr(requests.Requests, "release", early)


def batch_stops_at_the_first_run(patch: Patch) -> None:
    """Many changes at once do not reach the blocks before them."""

    def shallow(changes: list[tuple[Run, int | None, int | None]], now: float) -> None:
        for run, old, new in changes:
            ranks._replace(run, old, new)
            ranks._claim(run, max(run.counts or (), default=None), now)
            ranks._settle([run], now)

    patch.setattr(marking, "recount_all", shallow)


def tail_stays(patch: Patch) -> None:
    """The head of a run leaves before its tail."""
    evict = Eviction.evict

    def headfirst(self: Eviction, tier: object, count: int, ids: list[int], lost: list[object]) -> int:
        got = evict(self, tier, count, ids, lost)  # type: ignore[arg-type]
        lost.reverse()
        return got

    patch.setattr(eviction.Eviction, "evict", headfirst)


def sinks_whatever_is_below(patch: Patch) -> None:
    """What sinks displaces stronger blocks below."""
    places = movement.Movement._places
    patch.setattr(movement.Movement, "_places", lambda self, tier, key, count: places(self, tier, (999, 0), count))


def refusals_are_not_heard(patch: Patch) -> None:
    """Blocks sink although all who claim them are against."""
    patch.setattr(movement, "admit_where_wanted", lambda marks, tier: True)


def overflow_is_lost(patch: Patch) -> None:
    """What finds no place one tier down is not offered to the next."""
    leave = movement.Movement._leave
    patch.setattr(
        movement.Movement,
        "_leave",
        lambda self, run, below: leave(self, run, None if below is not run.tier.lower else below),
    )


ONE_TIER = [
    use_forgets_nothing,
    every_call_is_an_instant,
    lapsing_falls_to_the_default,
    nothing_is_capped,
    order_ignores_rank,
    marks_go_with_their_block,
    runs_merge_over_marks,
    first_holder_frees,
    batch_stops_at_the_first_run,
    tail_stays,
]
TIERS = [sinks_whatever_is_below, refusals_are_not_heard, overflow_is_lost]


@pytest.mark.parametrize("mutant", ONE_TIER)
def test_one_tier(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert dies(lambda seed: live(seed, 100))


@pytest.mark.parametrize("mutant", TIERS)
def test_tiers(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert dies(lambda seed: live_in_tiers(seed, 100))


def dies(life: Callable[[int], None]) -> bool:
    """Whether one of some histories shows the fault, by what is asserted first: a break that no longer fits what it
    breaks, and raises, notices nothing."""
    for seed in range(100):
        try:
            life(seed)
        except AssertionError:
            return True
    return False


def test_unbroken() -> None:
    assert not dies(lambda seed: live(seed, 20))
