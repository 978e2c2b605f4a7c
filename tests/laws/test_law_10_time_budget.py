"""Law 10, the time: a plan that takes longer than it may is given up; the request is served as without a policy."""

from __future__ import annotations

from itertools import count

from kvpolicy.request import Owner
from kvpolicy.steering.pace import Pace
from tests.laws.world import World, spans

POLICY = (
    "policy p\nsystem { priority: 90 }\nturn { priority: 60 }\n"
    "on tool_call until tool_result { turn { priority: 80 } }\n"
)
S = Owner(session="s")


class Clock:
    """A timer whose every reading takes `step` seconds."""

    def __init__(self) -> None:
        self.step = 0.0
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def _world() -> tuple[World, Clock]:
    world, clock = World(POLICY), Clock()
    world.steering.pace = Pace(0.02, clock)
    return world, clock


def test_a_plan_that_takes_too_long_is_given_up_and_counted() -> None:
    world, clock = _world()
    clock.step = 0.03
    _, outcome = world.request(S, "abcd", spans(("system", 2), ("turn", 2)))
    assert outcome.failed and len(outcome.stored) == 4
    assert outcome.hints[0].status == "ignored"
    assert world.ranks("abcd") == [35] * 4
    assert world.steering.counters["overdue"] == 1
    assert world.steering.counters["failures"] == 0
    assert not world.steering.ledger.holders


def test_in_time_nothing_is_given_up() -> None:
    world, _ = _world()
    assert world.ask(S, "abcd", spans(("system", 2), ("turn", 2)), finished=True).failed is False
    assert world.ranks("abcd") == [90, 90, 60, 60]


def test_a_plan_read_again_too_slowly_leaves_what_was_said() -> None:
    world, clock = _world()
    name, _ = world.request(S, "abcd", spans(("system", 2), ("turn", 2)))
    clock.step = 0.03
    world.finish(name, tool_calls=["grep"])
    assert world.ranks("abcd") == [90, 90, 60, 60]
    assert world.steering.counters["overdue"] == 1
    clock.step = 0.0
    world.event("tool_call", session="s", tool="find")
    assert world.ranks("abcd") == [90, 90, 80, 80]


def test_without_a_bound_no_clock_is_read() -> None:
    readings = count()
    pace = Pace(None, lambda: float(next(readings)))
    world = World(POLICY)
    world.steering.pace = pace
    world.ask(S, "abcd", spans(("system", 2), ("turn", 2)), finished=True)
    assert next(readings) == 0
