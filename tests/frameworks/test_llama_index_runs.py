"""Runs of LlamaIndex workflows, the real package: side by side, remembered, waiting for a person, and forgotten."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from workflows import Context, Workflow, step
from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

import kvpolicy
from kvpolicy.adapters.frameworks import llama_index
from kvpolicy.adapters.frameworks.llama_index import watch
from tests.frameworks.conftest import Stack
from tests.frameworks.llama_flows import (
    Kept,
    Looping,
    Passed,
    model,
    nothing_is_left,
    phases,
    run,
    served,
)
from tests.frameworks.scenes import LONG, all_owners

__all__ = ["nothing_is_left", "served"]


def test_runs_at_once_do_not_mix(served: Stack) -> None:
    service, llm = kvpolicy.Service(served.service), model(served)
    said: dict[str, set[str]] = {}

    class Flow(Workflow):
        @step
        async def one(self, ev: StartEvent) -> Kept:
            await llm.acomplete(f"one of {ev.name}")
            said.setdefault(ev.name, set()).add(kvpolicy.headers()["x-kvp-context"].partition(",")[0])
            return Kept()

        @step
        def two(self, ctx: Context, ev: Kept) -> Passed:
            llm.complete(f"two of {kvpolicy.headers()['x-kvp-context']}")
            return Passed()

        @step
        async def three(self, ctx: Context, ev: Passed) -> StopEvent:
            return StopEvent(result=kvpolicy.headers()["x-kvp-context"].partition(",")[0])

    flow = watch(Flow(timeout=120), service)

    async def work(number: int) -> str:
        with kvpolicy.said(session=f"m{number}"):
            return await flow.run(name=f"m{number}")

    async def main() -> list[str]:
        return await asyncio.gather(*(work(number) for number in range(40)))

    assert asyncio.run(main()) == [f'session="m{n}"' for n in range(40)]
    assert said == {f"m{n}": {f'session="m{n}"'} for n in range(40)}
    assert all_owners(served.service, "m", 80) == sorted((f"m{n}", one) for n in range(40) for one in ("one", "two"))


def test_a_person_who_is_asked_is_waited_for(served: Stack) -> None:
    service, llm = kvpolicy.Service(served.service), model(served)

    class Flow(Workflow):
        @step
        async def draft(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await llm.acomplete(f"draft {LONG}")
            reply = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent())
            return StopEvent(result=reply.answer)

    async def main() -> Any:
        handler = watch(Flow(timeout=30), service, session="person").run()
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                assert await asyncio.to_thread(service.flush, 30)
                assert phases(served, "person") == {("draft", "idle")}, phases(served, "person")
                handler.ctx.send_event(HumanResponseEvent(answer="yes"))
        return await handler

    assert asyncio.run(main()) == "yes"
    assert service.flush(30) and phases(served, "person") == {("draft", "ended")}


def test_a_workflow_made_for_one_run_is_forgotten_with_it(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    gc.collect()
    before = set(llama_index._watched)
    for number in range(3):
        assert len(run(watch(Looping(served, f"once-{number}"), service))) == 6
    gc.collect()
    assert set(llama_index._watched) <= before


def test_spans_beyond_what_is_remembered_are_ended_all_the_same(served: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_index, "_MOST", 5)
    events: list[str] = []

    class Heard(kvpolicy.Service):
        def event(self, event: str, **fields: Any) -> list[Any]:
            events.append(event)
            return super().event(event, **fields)

    class Waits(Workflow):
        @step
        async def first(self, event: StartEvent) -> Passed:
            await asyncio.sleep(0.05)
            return Passed()

        @step
        async def last(self, event: Passed) -> StopEvent:
            return StopEvent(result="done")

    async def main() -> None:
        service = Heard(served.service)
        flows = [watch(Waits(timeout=30), service, session=f"many-{number}") for number in range(6)]
        assert await asyncio.gather(*(flow.run() for flow in flows)) == ["done"] * 6

    asyncio.run(main())
    assert events.count("workflow_start") == events.count("workflow_end") == 6
    assert events.count("step_start") == events.count("step_end")
