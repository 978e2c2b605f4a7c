"""A clock that leaps over years costs no more than one that goes on, and what should have lapsed has lapsed."""

from __future__ import annotations

import pytest

from kvpolicy.claims import ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.timers import Timers
from kvpolicy.request import Owner
from tests.laws.world import World, spans

YEARS = 1e11  # seconds
# While a request runs, the plan is read again every second for the sake of this guard.
LOOKING = (
    "turn when not (10s > p95(tool.duration) else 5s) or reuse_probability(within 30s) else 0% > 50% { ttl: 1h }\n"
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which a line was looked at."""
    seen: list[float] = []
    pop = Timers.pop

    def counted(timers: Timers[Line], now: float) -> tuple[float, Line] | None:
        due = pop(timers, now)
        if due is not None:
            seen.append(due[0])
        return due

    monkeypatch.setattr(Timers, "pop", counted)
    return seen


def test_a_claim_on_what_another_request_holds(looks: list[float]) -> None:
    world = World("policy p\nturn { priority: 60 ttl: 2s }\n", blocks=20)
    first, _ = world.request(Owner(session="a"), ["x", "y"], spans(("turn", 2)))
    world.finish(first)
    second, _ = world.request(Owner(session="b"), ["x", "y"], spans(("turn", 2)))
    world.at(YEARS)
    assert len(looks) <= 3 * ledger.MOST_LOOKS
    world.finish(second)
    world.at(YEARS + 2 * 24 * 3600)
    assert not world.steering.ledger.holders


def test_a_plan_that_is_read_again_and_again(looks: list[float]) -> None:
    world = World("policy p\n" + LOOKING, blocks=20)
    world.request(Owner(session="a"), ["x", "y"], spans(("turn", 2)))
    world.at(YEARS)
    assert len(looks) <= 3 * ledger.MOST_LOOKS


def test_what_should_have_lapsed_on_the_way_has(looks: list[float]) -> None:
    """The rank falls by one every second; after more steps than are taken singly it is what it should be."""
    text = "policy p\nturn { priority: 100 - idle() / 2s }\n"
    world = World(text, blocks=20)
    name, _ = world.request(Owner(session="a"), ["x"], spans(("turn", 1)))
    world.finish(name)
    world.at(world.now + 500.0)
    assert len(looks) >= 100
    assert world.ranks(["x"]) == [0]


def test_few_looks_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few looks are granted, the last one is at the time that is asked for."""
    monkeypatch.setattr(ledger, "MOST_LOOKS", 1)
    world = World("policy p\nturn { priority: 100 - idle() / 2s }\n", blocks=20)
    name, _ = world.request(Owner(session="a"), ["x"], spans(("turn", 1)))
    world.finish(name)
    world.at(world.now + 20.0)
    assert world.ranks(["x"]) == [90]
