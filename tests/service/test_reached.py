"""An event's answer counts whom the event reached, not whose pause had run out meanwhile: least of all a stranger's."""

from __future__ import annotations

import asyncio

import pytest

from kvpolicy.service.tenants import Tenant
from kvpolicy.workflow.events import Event
from tests.service.test_caps import TOKENS, exchange, made, sent

POLICY = "policy p\non tool_call until tool_result { paused: any { retention: hold 20s } }\n"


@pytest.mark.parametrize(("tenant", "session", "reached"), [("t2", "mine", 0), ("t1", "other", 0), ("t1", "mine", 1)])
def test_what_time_brought_about_is_not_counted(tenant: str, session: str, reached: int) -> None:
    decisions = made(POLICY)
    sent(decisions, exchange(Tenant("t1"), {"prompt": TOKENS}, {"x-session-id": "mine"}))

    def happens(at: float, name: str, tenant: str, session: str) -> int | None:
        told = {"tenant": tenant, "session": session, "call": "c"}
        came = asyncio.run(decisions.happened(Event(at, name, told)))
        return None if came is None else came.reached

    assert happens(100.0, "tool_call", "t1", "mine") == 1
    assert happens(101.0, "tool_result", "t1", "mine") == 1
    assert happens(1000.0, "tool_call", tenant, session) == reached  # the grace of that pause has ended by now
