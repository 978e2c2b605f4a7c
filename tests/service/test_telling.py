"""What other replicas told is planned again, whoever of this one took it: nobody's news are lost in another's call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from kvpolicy.request import Owner, Request
from kvpolicy.service.beside import hear, running
from kvpolicy.service.telling import Together
from kvpolicy.service.tenants import Tenant
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.replica import answer_record, request_record
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState
from tests.service.test_caps import TOKENS, exchange, made, sent

FANS_OUT = "policy p\nturn { priority: 40 }\nturn when fan_out() >= 2 { priority: 60 }\n"
OURS, OTHERS = Owner("t", "ours"), Owner("t", "others")
PAUSED = Event(3.0, "tool_call", {"tenant": "t", "session": "ours", "tool": "grep"})


class Replicas:
    """One with an owner of its own, and a store to which another one tells of its owner."""

    def __init__(self) -> None:
        self.heard: list[Owner] = []
        self.store = MemoryStore()
        self.here = Together(AwaitedStore(self.store), RunState(), self.happened, lambda owner, model: None)
        self.ours, self.others = Request("here-1", OURS, 64, 16), Request("there-1", OTHERS, 64, 16)

    def happened(self, event: Event, owners: Iterable[Owner]) -> None:
        self.heard += owners

    async def begin(self) -> None:
        await self.here.arrive(self.ours, 1.0, None)
        self.store.append(request_record(self.others, 1.0))
        assert OTHERS in self.here.apply_news()
        assert self.here.apply_news() == ()
        self.store.append(answer_record(self.others, 2.0, tool_calls=["grep"]))


@pytest.mark.parametrize("awaited", [True, False])
def test_an_event_takes_others_news_and_they_are_planned_again_all_the_same(awaited: bool) -> None:
    async def told() -> None:
        made = Replicas()
        await made.begin()
        reached = await made.here.observe(PAUSED, None) if awaited else made.here.note(PAUSED, None)
        assert reached == (OURS,)
        assert made.here.apply_news() == (OTHERS,)
        assert made.here.apply_news() == ()
        assert made.heard == []

    asyncio.run(told())


def test_whoever_takes_news_next_has_them() -> None:
    async def told() -> None:
        made = Replicas()
        await made.begin()
        made.here.note(PAUSED, OURS)
        made.here.note(PAUSED, OURS)
        assert OTHERS in made.here.touched(made.ours, 4.0)
        assert made.here.apply_news() == ()

    asyncio.run(told())


def test_what_another_replica_s_owner_does_changes_what_is_planned_for_its_run_here() -> None:
    """A plan that counts branches is read again, though nothing has happened to its own owner."""
    decisions, store = made(FANS_OUT), MemoryStore()
    here = Together(AwaitedStore(store), decisions.state, decisions.holding.happened, decisions.holding.let_go)
    decisions.telling = here
    seen = sent(decisions, exchange(Tenant("t"), {"prompt": TOKENS, "kvp": {"context": {"session": "s", "run": "r"}}}))
    assert [row.priority for row in seen.plan.directives] == [40]

    async def told() -> None:
        async with running(hear(here, decisions.holding, decisions.clock)):
            for number in range(2):
                branch = Owner("t", "s", "r", branch=f"b{number}", parent="s")
                store.append(request_record(Request(f"there-{number}", branch, 64, 16), 5.0))
            for _ in range(500):
                decisions.holding.tick(decisions.clock())
                if [row.priority for row in seen.plan.directives] == [60]:
                    return
                await asyncio.sleep(0.01)

    asyncio.run(told())
    assert [row.priority for row in seen.plan.directives] == [60]
