"""Agents that tools ask, at once, in OpenAI's Agents SDK: each is an owner of its own, and waits for its own tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, GuardrailFunctionOutput, InputGuardrail, RunHooks, Runner, function_tool

import kvpolicy
from kvpolicy.adapters.frameworks.openai_agents import here, watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.openai_agents_models import WITHIN_S, Model, agent, served
from tests.frameworks.scenes import LONG, flood, owners

__all__ = ["served"]


def waiting(served: Stack, service: kvpolicy.Service, session: str, count: int) -> tuple[Any, list[Any]]:
    """A tool in which `count` agents wait for each other, and others use the engine; who waited then."""
    seen: list[Any] = []
    inside: list[asyncio.Event] = []

    @function_tool
    async def grep(input: str) -> str:
        """Find a word."""
        mine = asyncio.Event()
        inside.append(mine)
        if len(inside) == count:
            assert await asyncio.to_thread(service.flush, WITHIN_S)
            seen.extend((row["agent"], row["branch"], row["phase"]) for row in owners(served.service, session=session))
            await asyncio.to_thread(flood, served.service)
            for each in inside:
                each.set()
        await asyncio.wait_for(mine.wait(), WITHIN_S)
        return "found"

    return grep, seen


@pytest.mark.parametrize("streamed", [False, True])
def test_agents_that_are_asked_at_once(served: Stack, streamed: bool) -> None:
    service, session = kvpolicy.Service(served.service), f"at-once-{streamed}"
    grep, seen = waiting(served, service, session, 3)
    inner, left = Model(served, "grep"), []
    one, two = (agent(name, inner, grep) for name in ("one", "two"))
    outer = Model(served, "ask_one", "ask_two", "ask_one")  # the first of them twice
    more = {"on_stream": lambda event: None} if streamed else {}
    boss = agent("boss", outer, one.as_tool("ask_one", "Asks.", **more), two.as_tool("ask_two", "Asks.", **more))

    async def main() -> None:
        async with watch(boss, service, session=session) as hooks:
            await Runner.run(boss, "Go.", hooks=hooks)
            assert await asyncio.to_thread(service.flush, WITHIN_S)
            rows = [row for row in owners(served.service, session=session) if row["branch"]]
            left.extend(service.explain(row["requests"][-1])["spans"][0]["properties"]["retention"] for row in rows)

    asyncio.run(main())
    assert sorted((who, phase) for who, _, phase in seen) == [
        (who, "tool_pause") for who in ("boss", "one", "one", "two")
    ], seen
    assert [branch for _, branch, _ in seen if branch] == ["one-1"], seen
    assert len(inner.found) == 3 and min(*inner.found, *outer.found) > 100, (inner.found, outer.found)
    assert [each["rule"] for each in left] == ["joined"]
    assert service.flush(WITHIN_S) and once.counts == {}
    rows = owners(served.service, session=session)
    assert {row["phase"] for row in rows} == {"ended"} and len({row["run"] for row in rows}) == 1


def test_an_agent_that_is_asked_hands_on_within_its_branch(served: Stack) -> None:
    service, last = kvpolicy.Service(served.service), Model(served)
    deep = agent("deep", last)
    middle = agent("middle", Model(served, "transfer_to_deep"), handoffs=[deep]).as_tool("ask", "Asks.")
    boss = agent("boss", Model(served, "ask", "ask"), middle)

    async def main() -> None:
        async with watch(boss, service, session="hands-on") as hooks:
            await Runner.run(boss, "Go.", hooks=hooks)

    asyncio.run(main())
    assert sorted((who, branch or "") for who, branch in last.said) == [("deep", ""), ("deep", "middle-1")]
    assert service.flush(WITHIN_S) and once.counts == {}
    rows = owners(served.service, session="hands-on")
    assert sorted((row["agent"], row["branch"] or "") for row in rows) == [
        ("boss", ""), ("deep", ""), ("deep", "middle-1"), ("middle", ""), ("middle", "middle-1")
    ]  # fmt: skip
    assert {row["phase"] for row in rows} == {"ended"}


def test_an_agent_that_handed_on_is_at_work_until_its_run_is_over(served: Stack) -> None:
    service, quick = kvpolicy.Service(served.service), Model(served)

    async def further(context: Any, agent_: Any) -> str:
        """What the one that goes on is told; the first one's name is asked once more for it."""
        await Runner.run(agent("middle", quick), "Go.")
        return LONG

    deep = Agent[Any]("deep", instructions=further, model=Model(served))
    middle = agent("middle", Model(served, "transfer_to_deep"), handoffs=[deep]).as_tool("ask", "Asks.")
    boss = agent("boss", Model(served, "ask"), middle)

    async def main() -> None:
        async with watch(boss, service, session="handed-on") as hooks:
            await Runner.run(boss, "Go.", hooks=hooks)
            await Runner.run(agent("middle", quick), "Go.")

    asyncio.run(main())
    assert quick.said == [("middle", "middle-1"), ("middle", None)]
    assert service.flush(WITHIN_S) and once.counts == {}


def test_a_title_while_a_tool_runs_ends_nothing(served: Stack) -> None:
    service, model, plain = kvpolicy.Service(served.service), Model(served, "grep"), Model(served)
    titles = agent("titles", plain)

    @function_tool
    async def grep(input: str) -> str:
        """Find a word, while the session gets a title and a summary, and others use the engine."""
        for words in ("A title.", "A summary."):
            await Runner.run(titles, f"{words} {LONG}")
            said: Any = [{"role": "user", "content": f"{words} {words} {LONG}"}]  # under the name of who waits
            await plain.client.chat.completions.create(model="sim", messages=said, max_tokens=4)
        await asyncio.to_thread(flood, served.service)
        return "found"

    one = agent("titled", model, grep)

    async def main() -> None:
        async with watch(one, service, session="titled") as hooks:
            await Runner.run(one, "Go.", hooks=hooks)

    asyncio.run(main())
    assert model.found[0] > 100
    assert plain.said == [("titles", None)] * 2 and model.said == [("titled", None)] * 2
    assert {row["agent"] for row in owners(served.service, session="titled")} == {"titled", "titles"}


def test_runs_within_a_run_however_they_begin(served: Stack) -> None:
    """In a guardrail, in a thread, within a run within, and with hooks of the application's own."""
    service, heard = kvpolicy.Service(served.service), []
    models = {name: Model(served, *asks) for name, asks in
              {"boss": ("ask", "sync"), "middle": ("deep",), "deep": (), "guard": (), "sync": ()}.items()}  # fmt: skip

    class Own(RunHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            heard.append(agent.name)

    @function_tool
    def sync(input: str) -> str:
        """Runs an agent in a thread."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            return str(Runner.run_sync(agent("sync", models["sync"]), input).final_output)
        finally:
            loop.close()

    async def guard(context: Any, agent_: Any, given: Any) -> GuardrailFunctionOutput:
        await Runner.run(agent("guard", models["guard"]), "Is it well?")
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    deep = agent("deep", models["deep"]).as_tool("deep", "Deep.")
    middle = agent("middle", models["middle"], deep).as_tool("ask", "Asks.", hooks=Own())
    boss = agent("boss", models["boss"], middle, sync, input_guardrails=[InputGuardrail(guard)])

    async def main() -> None:
        async with watch(boss, service, session="within") as hooks:
            await Runner.run(boss, "Go.", hooks=hooks)
            assert (here() or {})["agent"] == "boss"

    asyncio.run(main())
    for name, model in models.items():
        assert set(model.said) == {(name, None)}, (name, model.said)
    assert heard == ["middle", "middle"]  # it was given to that run alone
    assert service.flush(WITHIN_S) and once.counts == {}
    rows = owners(served.service, session="within")
    assert {(row["agent"], row["phase"]) for row in rows} == {(name, "ended") for name in models}
    assert here() is None
