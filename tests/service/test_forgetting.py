"""No table of the gateway only grows: what is silent for a day is gone, and plans that are held are bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvpolicy.service import held as module
from kvpolicy.service.beside import sweep
from kvpolicy.service.exchange import DONE
from kvpolicy.service.meaning.offsets import Places
from kvpolicy.service.tenants import Tenant
from tests.service.test_caps import TOKENS, exchange, made, sent

DAY = 24 * 3600.0


def served(decisions: Any, session: str) -> None:
    asked = exchange(Tenant("t"), {"prompt": TOKENS, "kvp": {"session": session}}, name=f"p-{session}")
    sent(decisions, asked)
    asked.upstream = "http://engine"
    decisions.leave(asked, DONE)


def swept(decisions: Any, now: float, **more: int) -> int:
    return asyncio.run(sweep(decisions.sessions, decisions.state, decisions.holding, now, **more))


def test_what_is_silent_for_a_day_is_forgotten() -> None:
    decisions = made()
    for number in range(5):
        served(decisions, f"s{number}")
    assert (len(decisions.holding.plans), len(decisions.sessions)) == (5, 5)
    now = decisions.clock()
    assert swept(decisions, now + DAY / 2) == 0
    assert swept(decisions, now + 2 * DAY) == 5
    assert (len(decisions.holding.plans), len(decisions.sessions), len(decisions.state.owners())) == (0, 0, 0)
    assert decisions.holding.plans.find("p-s0") is None


def test_of_more_owners_than_may_be_the_longest_silent_go_and_none_that_runs() -> None:
    decisions = made()
    for number in range(8):
        served(decisions, f"s{number}")
    sent(decisions, exchange(Tenant("t"), {"prompt": TOKENS, "kvp": {"session": "s0"}}, name="runs"))
    assert swept(decisions, decisions.clock(), most=3) == 5
    assert [owner.session for owner in decisions.state.owners()] == ["s0", "s6", "s7"]
    assert swept(decisions, decisions.clock(), most=3) == 0
    # … unless it has run for so long that its end was lost
    assert swept(decisions, decisions.clock() + 2 * DAY) == 3


def test_no_more_owners_are_held_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OWNERS", 3)
    decisions = made()
    for number in range(6):
        served(decisions, f"s{number}")
    assert [owner.session for owner, _ in decisions.holding.plans.all()] == ["s3", "s4", "s5"]
    assert decisions.holding.plans.find("p-s2") is None
    assert decisions.holding.plans.find("p-s5") is not None


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
@pytest.mark.parametrize("places", [None, Places(10, (10,))])
def test_who_waits_for_a_plan_is_forgotten_when_it_is_there_or_never_comes(mode: str, places: Places | None) -> None:
    decisions, told = made(mode=mode), list[Any]()
    decisions.fetch = lambda conversation, offsets, found: told.append(found)
    asked = exchange(Tenant("t"), {"messages": [{"role": "user", "content": "x"}], "kvp": {"session": "s"}})
    asked.dialect = "chat"
    sent(decisions, asked)
    assert len(decisions.holding.awaited) == 1
    told.pop()(places)
    assert not decisions.holding.awaited
