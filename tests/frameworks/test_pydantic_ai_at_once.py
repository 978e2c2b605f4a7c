"""Agents that tools ask at once in pydantic-ai, the real package: each is its own owner and waits for its own tools."""

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
from tests.frameworks.scenes import LONG, WAITS, asks_for, flood, owners

WITHIN_S = 60


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(WAITS, blocks=250, channel=True)


def asking(*names: str) -> Callable[[RunContext[None]], Any]:
    """Settings of a model that asks for these tools first, with call ids of its run's own."""

    def settings(ctx: RunContext[None]) -> Any:
        calls = [
            asks_for(name, call=f"{ctx.run_id}-{number}")["sim_reply"]["tool_calls"][0]
            for number, name in enumerate(names)
        ]
        reply = {"content": "fine"} if ctx.run_step > 1 else {"content": "", "tool_calls": calls}
        return {"extra_body": {"sim_reply": reply}}

    return settings


def test_one_agent_that_is_asked_twice_at_once(served: Stack) -> None:
    service, together, seen, found = kvpolicy.Service(served.service), asyncio.Barrier(2), [], []
    client = kvpolicy.annotate(AsyncOpenAI(base_url=f"{served.service}/v1", api_key="none", max_retries=0))
    model = OpenAIChatModel("sim", provider=OpenAIProvider(openai_client=client))
    capability = watch(service, session="twice")

    async def grep(ctx: RunContext[None]) -> str:
        """Find a word, while both wait and others use the engine."""
        async with asyncio.timeout(WITHIN_S):
            if await together.wait() == 0:
                assert await asyncio.to_thread(service.flush, WITHIN_S)
                rows = owners(served.service, session="twice")
                seen.extend((row["agent"], row["branch"], row["phase"]) for row in rows)
                said: Any = [{"role": "user", "content": f"A title. {LONG}"}]  # under the name of who waits
                for _ in range(2):
                    await client.chat.completions.create(model="sim", messages=said, max_tokens=4)
                await asyncio.to_thread(flood, served.service)
            await together.wait()
        return "found"

    told: dict[str, Any] = {"capabilities": [capability]}
    helper = Agent(model, name="helper", tools=[grep], model_settings=asking("grep"), **told)

    async def ask(ctx: RunContext[None]) -> str:
        """Ask the helper."""
        result = await helper.run(f"{ctx.tool_call_id} {LONG}")
        found.append(result.response.usage.cache_read_tokens)
        return result.output

    boss = Agent(model, name="boss", tools=[ask], model_settings=asking("ask", "ask"), **told)
    result = asyncio.run(boss.run(f"boss {LONG}"))
    assert sorted((who, phase) for who, _, phase in seen) == [
        (who, "tool_pause") for who in ("boss", "helper", "helper")
    ]
    assert [branch for _, branch, _ in seen if branch] == ["helper-1"], seen
    assert min(*found, result.response.usage.cache_read_tokens) > 100, (found, result.response.usage)
    assert service.flush(WITHIN_S) and once.counts == {}
    rows = owners(served.service, session="twice")
    assert {row["phase"] for row in rows} == {"ended"} and len({row["run"] for row in rows}) == 1
