"""What other replicas told is planned again, whoever of this one took it: nobody's news are lost in another's call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from kvpolicy.request import Owner, Request
from kvpolicy.service.telling import Together
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.replica import answer_record, request_record
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState

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
