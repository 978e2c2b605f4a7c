"""LlamaIndex workflows, the real package: steps, branches and tools as the service sees them, and what is cached."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.tools import FunctionTool
from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent

import kvpolicy
from kvpolicy.adapters.frameworks.llama_index import watch
from tests.frameworks.conftest import Stack
from tests.frameworks.llama_flows import (
    Kept,
    Looping,
    Passed,
    found,
    model,
    nothing_is_left,
    phases,
    rows_of,
    run,
    served,
)
from tests.frameworks.scenes import LONG, example

__all__ = ["nothing_is_left", "served"]


class Topic(Event):
    name: str = ""


class Found(Event): ...


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_what_a_step_is_decides_what_is_found_when_its_loop_comes_back(served: Stack, how: str) -> None:
    service = kvpolicy.Service(served.service)
    seen = run(watch(Looping(served, how), service, session=f"loop-{how}"))
    assert [name for name, _ in seen] == ["keeper", "passer"] * 3
    assert seen[4][1] > 100, seen  # after the flood
    assert seen[5] == ("passer", 0)
    assert service.flush(30) and service.counts.get("failed", 0) == service.counts.get("refused", 0) == 0
    assert phases(served, f"loop-{how}", 2) == {("keeper", "ended"), ("passer", "ended")}


def test_unwatched_it_is_as_it_was(served: Stack) -> None:
    seen = run(Looping(served, "unwatched"))
    assert seen[4:] == [("keeper", 0), ("passer", 0)]


def test_the_service_knows_how_far_each_step_is(served: Stack) -> None:
    service, llm, told = kvpolicy.Service(served.service), model(served), []

    class Flow(Workflow):
        @step
        async def plan(self, ev: StartEvent) -> Kept:
            return Kept()

        @step
        async def act(self, ev: Kept) -> Passed | StopEvent:
            await llm.acomplete("act")
            name = kvpolicy.current_run().owner.run  # type: ignore[union-attr]
            assert await asyncio.to_thread(service.flush, 30)
            told.append(await asyncio.to_thread(service._ask, "GET", f"/v1/runs/{name}"))
            return Passed()

        @step
        async def judge(self, ev: Passed) -> StopEvent:
            return StopEvent()

    run(watch(Flow(timeout=60), service))
    (state,) = told
    assert (state["workflow"], state["running"]) == ("Flow", ["act"])
    steps = {row["name"]: row["steps_to_next_use"] for row in state["nodes"]}
    assert steps == {"plan": "never", "act": 0, "judge": 1}


def searching(llm: Any, said: list[str], *, sent: bool) -> Workflow:
    all_there = asyncio.Barrier(3)

    class Search(Workflow):
        @step
        async def plan_list(self, ev: StartEvent) -> list[Topic]:
            return [Topic(name=name) for name in "abc"]

        @step
        async def search(self, ev: Topic) -> Found:
            await all_there.wait()  # they are at once, however fast the engine is
            await llm.acomplete(f"search for {ev.name}")
            said.append(kvpolicy.headers()["x-kvp-context"])
            return Found()

        @step
        async def judge(self, ev: list[Found]) -> StopEvent:
            await llm.acomplete("judge them")
            return StopEvent(result=len(ev))

    class Sent(Workflow):
        @step
        async def plan(self, ctx: Context, ev: StartEvent) -> Topic | None:
            for name in "abc":
                ctx.send_event(Topic(name=name))

        @step
        async def search(self, ev: Topic) -> Found:
            await all_there.wait()  # they are at once, however fast the engine is
            await llm.acomplete(f"search for {ev.name}")
            said.append(kvpolicy.headers()["x-kvp-context"])
            return Found()

        @step
        async def judge(self, ctx: Context, ev: Found) -> StopEvent | None:
            if ctx.collect_events(ev, [Found] * 3) is None:
                return None
            await llm.acomplete("judge them")
            return StopEvent(result=3)

    return Sent(timeout=30) if sent else Search(timeout=30)


@pytest.mark.parametrize("sent", [False, True], ids=["list", "sent"])
def test_executions_at_once_are_branches(served: Stack, sent: bool) -> None:
    service, said = kvpolicy.Service(served.service), []
    assert run(watch(searching(model(served), said, sent=sent), service, session=f"fan-{sent}")) == 3
    assert service.flush(30) and service.counts.get("refused", 0) == 0
    rows = rows_of(served, f"fan-{sent}", 4)
    searches = [row for row in rows if row["agent"] == "search"]
    # A list says beforehand that there are several; of events that are sent the first one is alone when it begins.
    assert {row.get("branch") for row in searches} == {None if sent else "search-0", "search-1", "search-2"}
    assert {row["agent"] for row in rows} == {"search", "judge"} and {row["phase"] for row in rows} == {"ended"}
    assert len({row["run"] for row in rows}) == 1 and all('node="search"' in each for each in said)


def test_kvpolicy_s_own_words_mean_the_step_that_they_stand_in(served: Stack) -> None:
    service, llm, seen = kvpolicy.Service(served.service), model(served), []

    class Flow(Workflow):
        @step
        async def agent(self, ev: StartEvent) -> Kept:
            await llm.acomplete(f"agent {LONG}")
            with kvpolicy.tool("fetch"):
                assert await asyncio.to_thread(service.flush, 30)
                seen.extend(phases(served, "words"))
            return Kept()

        @step
        def thread(self, ev: Kept) -> StopEvent:
            with kvpolicy.branch("draft"):
                seen.append(kvpolicy.headers()["x-kvp-context"])
            return StopEvent()

    run(watch(Flow(), service, session="words"))
    assert seen[0] == ("agent", "tool_pause")
    assert 'session="words"' in seen[1] and 'node="thread"' in seen[1] and 'branch="draft"' in seen[1]


def test_a_tool_s_pause_is_seen_while_it_runs(served: Stack) -> None:
    service, llm, seen = kvpolicy.Service(served.service), model(served), []

    async def grep(q: str) -> str:
        """Find a word."""
        assert await asyncio.to_thread(service.flush, 30)
        seen.extend(phases(served, "tools"))
        return "found"

    class Flow(Workflow):
        @step
        async def agent(self, ev: StartEvent) -> StopEvent:
            await llm.acomplete(f"tools {LONG}")
            output = await FunctionTool.from_defaults(async_fn=grep).acall(q="x")
            return StopEvent(result=(str(output), found((await llm.acomplete(f"tools {LONG}")).raw)))

    output, cached = run(watch(Flow(), service, session="tools"))
    assert seen == [("agent", "tool_pause")] and output == "found" and cached > 100
    assert service.flush(30) and phases(served, "tools") == {("agent", "ended")}
    assert service.counts["sent"] == 6  # run, step and tool, each begun and ended


def test_steps_that_come_later_are_steps_too(served: Stack) -> None:
    service, said = kvpolicy.Service(served.service), []

    class Flow(Workflow):
        @step
        async def plan(self, ev: StartEvent) -> Kept | StopEvent:
            return Kept() if hasattr(ev, "more") else StopEvent()

    flow = watch(Flow(disable_validation=True), service, session="later")
    run(flow)

    @step(workflow=Flow)
    async def late(ev: Kept) -> StopEvent:
        said.append(kvpolicy.headers()["x-kvp-context"])
        return StopEvent(result="done")

    assert run(flow, more=True) == "done" and 'node="late"' in said[0]
    assert service.flush(30) and service.counts.get("refused", 0) == 0


def test_the_page_s_example(served: Stack) -> None:
    assert example("llama-index", served.service)["answer"]
    assert {row["agent"] for row in rows_of(served, "s1", 2)} == {"plan", "write"}
