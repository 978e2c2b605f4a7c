"""pydantic-ai, the real package: runs, tools and agents within agents as the service sees them, and what is cached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import kvpolicy
from kvpolicy.adapters.frameworks.pydantic_ai import watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import KEEPER, LONG, all_owners, asks_for, example, flood, owners


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(KEEPER + "on tool_call until tool_result { turn { retention: hold 60s } }\n")


def model(served: Stack) -> Any:
    client = AsyncOpenAI(base_url=f"{served.service}/v1", api_key="none", max_retries=0)
    return OpenAIChatModel("sim", provider=OpenAIProvider(openai_client=kvpolicy.annotate(client)))


def reply(of: dict[str, Any] | None = None) -> Any:
    return {"extra_body": of or {"sim_reply": {"content": "fine"}}}


def cached(result: Any) -> int:
    return result.response.usage.cache_read_tokens


def test_who_runs_decides_what_is_found_again(served: Stack) -> None:
    service, shared = kvpolicy.Service(served.service), model(served)
    agents = [
        Agent(shared, name=name, capabilities=[watch(service, session="found")], model_settings=reply())
        for name in ("keeper", "passer")
    ]

    async def main() -> tuple[int, int, int]:
        for agent in (*agents, *agents):
            await agent.run(f"{agent.name} {LONG}")
        await asyncio.to_thread(flood, served.service)
        passed = cached(await agents[1].run(f"passer {LONG}"))
        kept = cached(await agents[0].run(f"keeper {LONG}"))
        async with agents[0].run_stream(f"keeper {LONG}") as stream:
            await stream.get_output()
            return passed, kept, cached(stream)

    passed, kept, streamed = asyncio.run(main())
    assert passed == 0 and kept > 100 and streamed > 100
    assert service.flush() and once.counts == {}
    assert {(row["agent"], row["phase"]) for row in owners(served.service, session="found")} == {
        ("keeper", "ended"),
        ("passer", "ended"),
    }


def test_tools_pause_and_agents_within_agents_are_steps_of_one_run(served: Stack) -> None:
    service, shared, phases = kvpolicy.Service(served.service), model(served), []
    capability = watch(service, session="nested")
    helper = Agent(shared, name="helper", capabilities=[capability], model_settings=reply())

    async def ask(ctx: RunContext[None]) -> str:
        """Ask the helper."""
        assert await asyncio.to_thread(service.flush)
        phases.extend((row["agent"], row["phase"]) for row in owners(served.service, session="nested"))
        return (await helper.run("help " + LONG)).output

    def first_asks(ctx: RunContext[None]) -> Any:
        return reply(None if ctx.run_step > 1 else asks_for("ask"))

    boss = Agent(shared, name="boss", tools=[ask], capabilities=[capability], model_settings=first_asks)
    result = asyncio.run(boss.run("boss " + LONG))
    assert phases == [("boss", "tool_pause")]
    assert cached(result) > 100
    assert service.flush() and once.counts == {}
    rows = owners(served.service, session="nested")
    assert {row["agent"] for row in rows} == {"boss", "helper"} and len({row["run"] for row in rows}) == 1


def test_runs_at_once_do_not_mix(served: Stack) -> None:
    service, shared = kvpolicy.Service(served.service), model(served)

    async def work(number: int) -> None:
        capability = watch(service, session=f"at-once-{number}")
        agent = Agent(shared, name=f"agent-{number}", capabilities=[capability], model_settings=reply())
        await agent.run(f"number {number}")

    async def main() -> None:
        await asyncio.gather(*(work(number) for number in range(60)))

    asyncio.run(main())
    expected = sorted((f"at-once-{n}", f"agent-{n}") for n in range(60))
    assert all_owners(served.service, "at-once-", 60) == expected


def test_a_conversation_is_a_session(served: Stack) -> None:
    service, shared = kvpolicy.Service(served.service), model(served)
    agent = Agent(shared, name="talker", capabilities=[watch(service)], model_settings=reply())

    async def main() -> tuple[Any, Any]:
        first = await agent.run("one " + LONG)
        return first, await agent.run("two", message_history=first.all_messages())

    first, second = asyncio.run(main())
    assert cached(second) > 100
    rows = [row for row in owners(served.service) if row["agent"] == "talker"]
    assert {row["session"] for row in rows} == {first.conversation_id}


def test_what_a_tool_raises_and_a_cancelled_task(served: Stack) -> None:
    service, shared = kvpolicy.Service(served.service), model(served)

    async def main() -> None:
        inside = asyncio.Event()

        async def sleep() -> str:
            """Wait."""
            inside.set()
            await asyncio.sleep(60)
            return "never"

        def broken() -> str:
            """Break."""
            raise ZeroDivisionError("mine")

        def agent(tool: Any) -> Any:
            capability = watch(service, session=f"raises-{tool.__name__}")
            settings = reply(asks_for(tool.__name__))
            return Agent(shared, name="raiser", tools=[tool], capabilities=[capability], model_settings=settings)

        with pytest.raises(ZeroDivisionError, match="mine"):
            await agent(broken).run(LONG)
        task = asyncio.create_task(agent(sleep).run(LONG))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert service.flush()
    for name in ("broken", "sleep"):
        assert [row["phase"] for row in owners(served.service, session=f"raises-{name}")] == ["ended"]


def test_without_a_service_everything_goes_on(served: Stack) -> None:
    capability = watch(kvpolicy.Service("http://127.0.0.1:9"))
    agent = Agent(model(served), capabilities=[capability], model_settings=reply())
    assert agent.run_sync("alone").output == "fine"
    once.counts.clear()


def test_the_page_s_example(served: Stack) -> None:
    assert example("pydantic-ai", served.service)["answer"]
    assert [row["agent"] for row in owners(served.service, session="s1")] == ["writer"]
