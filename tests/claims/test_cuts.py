"""What the budget does to make room, counted: a line that gives a part of its tail is settled once for it."""

from __future__ import annotations

import pytest

from kvpolicy.claims.budget import Budget
from kvpolicy.claims.line import Line
from kvpolicy.directive import PIN, Retention
from kvpolicy.request import Owner
from kvpolicy.steering.calls import Wish
from tests.laws.world import SILENT, World, chain

PINNED = Retention(PIN)


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, float]]:
    """Every cut as it is made: whose, and what is left."""
    made: list[tuple[str | None, float]] = []
    cut = Budget._cut

    def counted(self: Budget, line: Line, granted: float, now: float) -> None:
        made.append((line.holder.owner.session, granted))
        cut(self, line, granted, now)

    monkeypatch.setattr(Budget, "_cut", counted)
    return made


def _pin(world: World, owner: str, words: list[str], priority: int) -> None:
    world.ask(Owner(session="filler"), words)
    world.steering.claim(Owner(session=owner), chain(*words), 0.0, Wish(priority=priority, retention=PINNED))


def test_who_gives_a_part_is_cut_once(cuts: list[tuple[str | None, float]]) -> None:
    world = World(SILENT, blocks=100, budget=0.10)
    _pin(world, "weak", [f"w{i}" for i in range(8)], 50)
    _pin(world, "strong", [f"s{i}" for i in range(5)], 80)
    assert cuts == [("weak", 5.0)]
    assert world.steering.pool.protected_blocks == 10


def test_what_is_shared_with_a_stronger_one_frees_nothing_and_the_next_gives(
    cuts: list[tuple[str | None, float]],
) -> None:
    world = World(SILENT, blocks=100, budget=0.10)
    trunk = [f"t{i}" for i in range(8)]
    _pin(world, "weak", trunk, 40)
    _pin(world, "same", trunk, 60)
    cuts.clear()
    _pin(world, "strong", [f"s{i}" for i in range(5)], 80)
    assert world.steering.pool.protected_blocks == 10
    assert world.protected(trunk) == 5
    assert cuts == [("same", 5), ("same", 0), ("weak", 5), ("same", float("inf")), ("same", 5)]
