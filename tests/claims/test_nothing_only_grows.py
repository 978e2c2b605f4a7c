"""Owners that vanish leave nothing behind once their claims are a day old: every table is counted."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Chain, Holder
from kvpolicy.pool.mark import Mark
from kvpolicy.request import Owner
from kvpolicy.workflow.life import Life
from tests.laws.world import World, spans

POLICY = (
    "policy p\nsystem { priority: 90 for: session }\nturn { priority: 60 ttl: 30s }\n"
    "on tool_call until tool_result { turn { retention: hold until step_end at most 2min } }\n"
    "limit turn per session { hold: at most 10% of gpu }\nlimit any per session { gpu: at most 50% }\n"
)
COUNTED = (Claim, Line, Chain, Holder, Mark, Life)
SESSIONS = 2000


def _objects() -> Counter[str]:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, COUNTED))


def test_sessions_that_vanish_leave_nothing() -> None:
    before = _objects()
    world = World(POLICY, blocks=300)
    for number in range(SESSIONS):
        owner = Owner(session=f"s{number}", branch=f"b{number}" if number % 5 == 0 else None)
        words = [f"head{number % 50}", f"turn{number}"]
        name, _ = world.request(owner, words, spans(("system", 1), ("turn", 1)), key=f"key{number}")
        if number % 3 == 0:
            world.finish(name, tool_calls=[("grep", f"c{number}")])  # and its result never comes
        elif number % 3 == 1:
            world.finish(name)
        else:
            world.steering.cancel(name, world.now)
        if number % 7 == 0:
            world.event("branch_scored", session=f"early{number}", branch="x", score=0.5)
        world.prompts.clear()
        world.at(world.now + 0.25)
    steering = world.steering
    assert len(steering.state.owners()) == SESSIONS
    assert (steering.stats()["known"], steering.stats()["owners"] > 0) == (SESSIONS, True)
    world.at(world.now + 25 * 3600)
    world.at(world.now + 3600)
    assert not steering.ledger.holders
    assert not steering.state.owners()
    assert not steering.running and not steering._keys
    stats = steering.stats()
    assert {n: stats[n] for n in ("owners", "claims", "known", "timers", "requests_remembered")} == {
        "owners": 0,
        "claims": 0,
        "known": 0,
        "timers": 0,
        "requests_remembered": 0,
    }
    assert len(steering.ledger.timers) == 0
    quotas = steering.ledger.quotas
    assert quotas is not None and not quotas._members and not quotas._groups and not quotas._dirty
    assert not steering.ledger.budget._groups and not steering.ledger.budget._charged_to
    assert steering.counters["failures"] == 0
    left = _objects() - before
    assert max(left.values(), default=0) <= 65, left  # queues are compacted when they are mostly stale


def test_requests_whose_planning_breaks_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("kvpolicy.steering.replanning.plan", broken)
    world = World(POLICY)
    for number in range(50):
        world.ask(Owner(session=f"s{number}"), ["a"], spans(("system", 1)))
    assert world.steering.counters["failures"] == 50
    assert not world.steering.ledger.holders
