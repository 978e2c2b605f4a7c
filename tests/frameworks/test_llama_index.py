"""LlamaIndex workflows, the real package: steps, branches, tools and agents as the service sees them, and what is
cached."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentOutput, AgentWorkflow, FunctionAgent
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from llama_index_instrumentation import get_dispatcher
from openai import AsyncOpenAI, OpenAI
from pydantic import PrivateAttr
from workflows import Context, Workflow, step
from workflows.errors import WorkflowTimeoutError
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_none

import kvpolicy
from kvpolicy.adapters.frameworks import llama_index
from kvpolicy.adapters.frameworks.llama_index import watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import KEEPER, LONG, all_owners, asks_for, example, flood, owners


class Kept(Event): ...


class Passed(Event): ...


class Again(Event): ...


class Topic(Event):
    name: str = ""


class Found(Event): ...


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(KEEPER + "on tool_call until tool_result { turn { retention: hold 60s } }\n")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    """Every span that began has ended, and nothing was warned of."""
    once.counts.clear()
    yield
    assert llama_index._open == {}
    assert once.counts == {}


class Model(OpenAILike):
    """Its first calls ask for these replies of the engine, one each."""

    _replies: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def _get_model_kwargs(self, **given: Any) -> dict[str, Any]:
        more = {"extra_body": self._replies.pop(0)} if self._replies else {}
        return {**super()._get_model_kwargs(**given), **more}


def model(served: Stack, *replies: dict[str, Any]) -> Model:
    told: dict[str, Any] = {"base_url": f"{served.service}/v1", "api_key": "none", "max_retries": 0}
    made = Model(
        model="sim", api_key="none", api_base=told["base_url"], is_chat_model=True, is_function_calling_model=True,
        max_tokens=4, openai_client=OpenAI(**told), async_openai_client=AsyncOpenAI(**told),
        additional_kwargs={"stream_options": {"include_usage": True}},
    )  # fmt: skip
    made._replies = list(replies)
    return kvpolicy.annotate(made)


def rows_of(served: Stack, session: str, count: int) -> list[dict[str, Any]]:
    """The session's owners, when there are as many: plans follow when their places are known."""
    for _ in range(200):
        rows = owners(served.service, session=session)
        if len(rows) >= count:
            break
        time.sleep(0.1)
    return rows


def phases(served: Stack, session: str, count: int = 1) -> set[tuple[str, str]]:
    return {(row["agent"], row["phase"]) for row in rows_of(served, session, count)}


def found(raw: Any) -> int:
    return raw.usage.prompt_tokens_details.cached_tokens


def run(flow: Workflow, **given: Any) -> Any:
    """Its result, in an event loop of its own."""

    async def main() -> Any:
        return await flow.run(**given)

    return asyncio.run(main())


# --- steps ---------------------------------------------------------------------------------------------------------


class Looping(Workflow):
    """Two steps that call, one that lets others use the engine in the second of three rounds."""

    def __init__(self, served: Stack, how: str) -> None:
        super().__init__(timeout=60)
        self.served, self.how, self.llm = served, how, model(served)
        self.seen: list[tuple[str, int]] = []
        self.rounds = 0

    async def ask(self, name: str) -> None:
        words = f"{name} {self.how} {LONG}"
        if self.how == "streamed":
            *_, last = [part async for part in await self.llm.astream_complete(words)]
        else:
            last = await self.llm.acomplete(words)
        self.seen.append((name, found(last.raw)))

    @step
    async def keeper(self, ev: StartEvent | Again) -> Kept:
        await self.ask("keeper")
        return Kept()

    @step
    def passer(self, ev: Kept) -> Passed:  # not async: the framework runs it in a thread
        self.seen.append(("passer", found(self.llm.complete(f"passer {self.how} {LONG}").raw)))
        return Passed()

    @step
    async def rest(self, ev: Passed) -> Again | StopEvent:
        self.rounds += 1
        if self.rounds == 2:
            await asyncio.to_thread(flood, self.served.service)
        return Again() if self.rounds < 3 else StopEvent(result=self.seen)


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
    assert steps == {"plan": "never", "act": 0, "judge": 1, "__end__": 1}


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


# --- agents --------------------------------------------------------------------------------------------------------


def agent(name: str, llm: Any, **more: Any) -> FunctionAgent:
    return FunctionAgent(name=name, description=f"It is {name}.", system_prompt=LONG, llm=llm, **more)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_a_handoff_moves_the_run_and_a_tool_pauses_it(served: Stack, streaming: bool) -> None:
    service, session, seen = kvpolicy.Service(served.service), f"hand-{streaming}", []

    async def grep(q: str) -> str:
        """Find a word."""
        assert await asyncio.to_thread(service.flush, 30)
        seen.extend(phases(served, session, 2))
        name = kvpolicy.current_run().owner.run  # type: ignore[union-attr]
        seen.append(await asyncio.to_thread(service._ask, "GET", f"/v1/runs/{name}"))
        return "found"

    handing = asks_for("handoff", '{"to_agent": "writer", "reason": "It writes."}', call="c1")
    planner = agent("planner", model(served, handing), can_handoff_to=["writer"], streaming=streaming)
    asking = model(served, asks_for("grep", '{"q": "x"}', call="c2"))
    writer = agent("writer", asking, tools=[grep], can_handoff_to=[], streaming=streaming)
    team = AgentWorkflow(agents=[planner, writer], root_agent="planner", timeout=60)

    async def main() -> list[AgentOutput]:
        handler = watch(team, service, session=session).run(user_msg=f"{streaming} {LONG}", run_id=f"run-{streaming}")
        outputs = [event async for event in handler.stream_events() if isinstance(event, AgentOutput)]
        await handler
        return outputs

    outputs = asyncio.run(main())
    assert [output.current_agent_name for output in outputs] == ["planner", "writer", "writer"]
    *rows, state = seen
    assert set(rows) >= {("writer", "tool_pause")} and ("planner", "tool_pause") not in rows, rows
    assert (state["workflow"], state["running"]) == ("planner-handoffs", ["writer"])
    steps = {row["name"]: row["steps_to_next_use"] for row in state["nodes"]}
    assert steps == {"planner": "never", "writer": 0, "__end__": 1}
    assert service.flush(30) and service.counts.get("refused", 0) == 0
    assert service.counts["sent"] == 10  # a run, two agents, the handoff and the tool, each begun and ended
    assert phases(served, session, 2) == {("planner", "ended"), ("writer", "ended")}
    assert {row["run"] for row in owners(served.service, session=session)} == {f"run-{streaming}"}
    assert cached_of(outputs[-1]) > 100


def cached_of(output: AgentOutput) -> int:
    raw: Any = output.raw
    usage = raw["usage"] if isinstance(raw, dict) else raw.model_dump()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]


def test_who_the_agent_is_decides_what_is_found_again(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> list[int]:
        llm = model(served)
        agents = [watch(agent(n, llm, streaming=False), service, session="found") for n in ("keeper", "passer")]
        for one in (*agents, *agents):
            await one.run(user_msg=f"{one.name} {LONG}")
        await asyncio.to_thread(flood, served.service)
        return [cached_of(await one.run(user_msg=f"{one.name} {LONG}")) for one in reversed(agents)]

    passed, kept = asyncio.run(main())
    assert passed < kept and kept > 100, (passed, kept)


def test_agents_in_the_steps_of_a_workflow_call_as_the_step_and_their_tools_pause_it(served: Stack) -> None:
    service, seen = kvpolicy.Service(served.service), []

    def grep(q: str) -> str:
        """Find a word."""
        assert service.flush(30)
        seen.extend(phases(served, "inner"))
        return "found"

    inner = agent("helper", model(served, asks_for("grep", '{"q": "x"}', call="c3")), tools=[grep], streaming=False)

    class Flow(Workflow):
        @step
        async def research(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=str(await inner.run(user_msg=LONG)))

    assert run(watch(Flow(timeout=60), service, session="inner"))
    assert service.flush(30) and seen == [("research", "tool_pause")]
    assert phases(served, "inner") == {("research", "ended")}
    assert service.counts["sent"] == 6


def test_a_watched_workflow_in_a_step_is_a_run_of_its_own_in_the_same_session(served: Stack) -> None:
    service, llm = kvpolicy.Service(served.service), model(served)
    inner = watch(agent("helper", llm, streaming=False), service)

    class Flow(Workflow):
        @step
        async def research(self, ev: StartEvent) -> StopEvent:
            await llm.acomplete("before")
            await inner.run(user_msg=LONG)
            await llm.acomplete("after")
            return StopEvent(result=kvpolicy.headers()["x-kvp-context"])

    assert 'node="research"' in run(watch(Flow(timeout=60), service, session="outer"))
    rows = rows_of(served, "outer", 2)
    assert {row["agent"] for row in rows} == {"research", "helper"} and len({row["run"] for row in rows}) == 2


# --- runs ----------------------------------------------------------------------------------------------------------


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


def test_a_memory_is_a_session(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> int:
        talker = watch(agent("talker", model(served), streaming=False), service)
        memory = Memory.from_defaults(session_id="remembered", token_limit=40000)
        await talker.run(user_msg="one " + LONG, memory=memory)
        return cached_of(await talker.run(user_msg="two", memory=memory))

    assert asyncio.run(main()) > 100
    assert phases(served, "remembered") == {("talker", "ended")}


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


# --- what goes wrong -----------------------------------------------------------------------------------------------


class Fails(Workflow):
    """Its step does what it is told to."""

    def __init__(self, work: Callable[[], Any], **more: Any) -> None:
        super().__init__(**{"timeout": 30, **more})
        self.work = work

    @step
    async def first(self, ev: StartEvent) -> Kept:
        return Kept()

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def broken(self, ev: Kept) -> StopEvent:
        return StopEvent(result=await self.work())


def test_a_step_that_raises_raises_what_it_raised_and_is_tried_again_as_before(served: Stack) -> None:
    service, tries = kvpolicy.Service(served.service), []

    async def work() -> None:
        tries.append(kvpolicy.headers()["x-kvp-context"].partition("node=")[2])
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(watch(Fails(work), service))
    assert len(tries) == 2 and tries[0] == tries[1]  # at once they were never: no branch
    assert service.flush(30) and service.counts["sent"] == 8  # the run, a step, another one twice


def test_a_run_that_is_cancelled_in_a_tool_ends(served: Stack) -> None:
    service, llm = kvpolicy.Service(served.service), model(served)

    async def main() -> None:
        inside = asyncio.Event()

        async def sleep() -> str:
            """Wait."""
            inside.set()
            await asyncio.sleep(60)
            return "never"

        async def work() -> None:
            await llm.acomplete(f"cancelled {LONG}")
            await FunctionTool.from_defaults(async_fn=sleep).acall()

        handler = watch(Fails(work), service, session="cancelled").run()
        await inside.wait()
        assert await asyncio.to_thread(service.flush, 30)
        assert phases(served, "cancelled") == {("broken", "tool_pause")}
        await handler.cancel_run()

    asyncio.run(main())
    assert service.flush(30) and phases(served, "cancelled") == {("broken", "ended")}


def test_a_task_that_is_cancelled_around_a_run_leaves_nothing_open(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> None:
        inside = asyncio.Event()

        async def work() -> None:
            inside.set()
            await asyncio.sleep(60)

        handler = watch(Fails(work), service).run()
        waiting = asyncio.ensure_future(handler)
        await inside.wait()
        handler.cancel()  # the deprecated way, at once and without the framework's own end
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert service.flush(30) and service.counts["sent"] == 6


def test_a_thread_that_runs_on_after_its_run_timed_out_has_ended_with_it(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    class Slow(Workflow):
        @step
        def endless(self, ev: StartEvent) -> StopEvent:
            assert go_on.wait(30)
            return StopEvent()

    go_on = threading.Event()

    async def main() -> None:
        try:
            with pytest.raises(WorkflowTimeoutError):
                await watch(Slow(timeout=0.3), service).run()
            assert llama_index._open == {}
            assert await asyncio.to_thread(service.flush, 30)
            assert service.counts["sent"] == 4
        finally:
            go_on.set()

    asyncio.run(main())  # waits for the thread
    assert service.flush(30) and service.counts["sent"] == 4  # its end is not told twice


def test_spans_that_end_twice_or_never_began_are_nothing(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    flow = watch(watch(Looping(served, "twice"), service), service)  # and watched twice
    run(flow)
    for name in ("Looping.run-0", "unknown"):
        llama_index._HANDLER.span_exit(name)
        llama_index._HANDLER.span_drop(name, err=ValueError())
    assert service.flush(30) and service.counts["sent"] == 2 + 2 * 9


def test_a_workflow_made_for_one_run_is_forgotten_with_it(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    gc.collect()
    before = set(llama_index._watched)
    for number in range(3):
        assert len(run(watch(Looping(served, f"once-{number}"), service))) == 6
    gc.collect()
    assert set(llama_index._watched) <= before


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


def test_without_a_service_everything_goes_on(served: Stack) -> None:
    flow = watch(Looping(served, "alone"), kvpolicy.Service("http://127.0.0.1:9"))
    assert len(run(flow)) == 6
    once.counts.clear()


def test_what_breaks_on_our_side_is_said_once_and_costs_events_only(
    served: Stack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise OSError("ours")

    service = kvpolicy.Service(served.service)
    monkeypatch.setattr(service, "run", broken)
    flow = watch(Looping(served, "broken"), service)
    assert [len(run(Looping(served, "whole"))), len(run(flow)), len(run(flow))] == [6, 6, 6 + 2]
    assert len([r for r in caplog.records if "llama_index.span_enter failed" in r.message]) == 1
    once.counts.clear()


def test_what_is_no_workflow_is_left_alone(served: Stack) -> None:
    for thing in (object(), 7, Looping):
        assert watch(thing, kvpolicy.Service(served.service)) is thing
    assert once.counts
    once.counts.clear()


def test_a_dispatcher_whose_handlers_were_replaced_gets_ours_with_the_next_watch(served: Stack) -> None:
    service, root = kvpolicy.Service(served.service), get_dispatcher()
    kept = root.span_handlers
    flow = watch(Looping(served, "replaced"), service)
    try:
        root.span_handlers = []
        assert len(run(flow)) == 6 and service.counts.get("sent", 0) == 0
        flow.rounds = 2
        run(watch(flow, service))
        assert service.flush(30) and service.counts["sent"] == 2 + 2 * 3
    finally:
        root.span_handlers = kept


def test_an_unknown_version_is_said_once(
    served: Stack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kvpolicy.adapters.frameworks import quiet

    monkeypatch.setattr(quiet, "version", lambda package: "9.1.0rc1")
    for _ in range(2):
        flow = watch(Looping(served, "version"), kvpolicy.Service(served.service))
    assert len(run(flow)) == 6
    assert len([r for r in caplog.records if "9.1.0rc1 is not among the tested versions" in r.message]) == 1
    once.counts.clear()


def test_the_page_s_example(served: Stack) -> None:
    assert example("llama-index", served.service)["answer"]
    assert {row["agent"] for row in rows_of(served, "s1", 2)} == {"plan", "write"}


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


def test_what_fails_at_an_end_keeps_no_other_end_away(served: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Heard(kvpolicy.Service):
        def event(self, event: str, **fields: Any) -> list[Any]:
            events.append(event)
            return super().event(event, **fields)

    def broken(going: Any, name: str) -> None:
        raise RuntimeError("ours")

    class One(Workflow):
        @step
        async def first(self, event: StartEvent) -> StopEvent:
            return StopEvent(result="done")

    monkeypatch.setattr(llama_index, "_over", broken)

    async def main() -> None:
        assert await watch(One(timeout=30), Heard(served.service), session="broken").run() == "done"

    asyncio.run(main())
    assert events == ["workflow_start", "step_start", "step_end", "workflow_end"]
    assert len(once.counts) == 1
    once.counts.clear()
