"""Lines whose cut would free nothing stand aside: the same outcome as looking at each of them, without their number."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.claims.budget import Budget
from kvpolicy.claims.covered import Covered
from kvpolicy.directive import PIN, Retention
from kvpolicy.request import Owner
from kvpolicy.steering.calls import Wish
from tests.laws.world import SILENT, World, chain

PINNED = Retention(PIN)
BLOCKS = 40

pins = st.tuples(
    st.just("pin"), st.integers(0, 5), st.integers(0, 4), st.integers(1, 6), st.sampled_from([40, 60, 60, 80])
)
steps = st.lists(
    st.one_of(
        pins,
        pins,
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("evict"), st.integers(1, 5)),
    ),
    min_size=3,
    max_size=25,
)


def _prompt(trunk: int, length: int, owner: int) -> list[str]:
    return [f"t{i}" for i in range(trunk)] + [f"o{owner}.{i}" for i in range(length)]


def _played(history: list[tuple[object, ...]], budget: float) -> list[object]:
    """What each line has left after every step, and how many blocks are protected."""
    world, seen = World(SILENT, BLOCKS, budget), []
    for what, *rest in history:
        if what == "pin":
            owner, trunk, length, priority = rest
            words = _prompt(trunk, length, owner)  # type: ignore[arg-type]
            world.ask(Owner(session="filler"), words)
            wish = Wish(priority=priority, retention=PINNED)  # type: ignore[arg-type]
            world.steering.claim(Owner(session=f"s{owner}"), chain(*words), 0.0, wish)
        elif what == "release":
            world.steering.release(Owner(session=f"s{rest[0]}"), 0.0)
        else:
            world.steering.evict(rest[0], 0.0)  # type: ignore[arg-type]
        lines = [line for holder in world.steering.ledger.holders.values() for line in holder.lines()]
        kept = [sum(min(n, line.length) for n, s, _ in line.pieces if s >= 200) for line in lines]
        assert world.steering.pool.protected_blocks <= int(budget * BLOCKS)
        assert world.steering.counters["failures"] == 0
        seen.append((kept, world.steering.pool.protected_blocks, world.steering.pool.eviction_order()))
    return seen


@given(steps, st.sampled_from([0.1, 0.25, 0.4]))
@settings(max_examples=150)
def test_the_same_as_looking_at_each(history: list[tuple[object, ...]], budget: float) -> None:
    aside = _played(history, budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Covered, "takes", lambda self, entry: False)
        assert aside == _played(history, budget)


@pytest.mark.parametrize("aside", [True, False])
def test_a_cut_does_not_look_at_all_who_share_a_head(aside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: a hundred owners of one head, and another request of one of them."""
    if not aside:
        monkeypatch.setattr(Covered, "takes", lambda self, entry: False)
    world, made, cut = World(SILENT, 1000, 0.1), [], Budget._cut

    def counted(self: Budget, *a: object) -> None:
        made.append(a)
        cut(self, *a)  # type: ignore[arg-type]

    for owner in range(100):
        words = _prompt(1, 5, owner)
        world.ask(Owner(session="filler"), words)
        world.steering.claim(Owner(session=f"s{owner}"), chain(*words), 0.0, Wish(priority=50, retention=PINNED))
    monkeypatch.setattr(Budget, "_cut", counted)
    words = _prompt(1, 8, 0)
    world.ask(Owner(session="filler"), words)
    world.steering.claim(Owner(session="s0"), chain(*words), 0.0, Wish(priority=60, retention=PINNED))
    assert (len(made) <= 6) == aside, len(made)


def test_who_shares_a_head_is_looked_at_a_few_times_each_when_all_are_displaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted, not timed: not once for each of the others."""
    world, looked, takes = World(SILENT, 1000, 0.01), [], Covered.takes
    words = [f"t{i}" for i in range(10)]
    world.ask(Owner(session="filler"), words)
    for owner in range(100):
        world.steering.claim(Owner(session=f"s{owner}"), chain(*words), 0.0, Wish(priority=50, retention=PINNED))
    world.ask(Owner(session="filler"), [f"x{i}" for i in range(10)])
    monkeypatch.setattr(Covered, "takes", lambda self, entry: looked.append(entry) or takes(self, entry))
    stronger = Wish(priority=60, retention=PINNED)
    world.steering.claim(Owner(session="x"), chain(*[f"x{i}" for i in range(10)]), 0.0, stronger)
    assert world.protected(words) == 0
    assert world.protected([f"x{i}" for i in range(10)]) == 10
    assert len(looked) <= 300, len(looked)
