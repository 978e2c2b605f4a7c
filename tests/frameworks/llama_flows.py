"""What the tests of LlamaIndex share: a served stack, a model of it, a workflow that loops, agents, what is found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentOutput, FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from openai import AsyncOpenAI, OpenAI
from pydantic import PrivateAttr
from workflows import Workflow, step
from workflows.events import Event, StartEvent, StopEvent

import kvpolicy
from kvpolicy.adapters.frameworks import llama_index
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import KEEPER, LONG, flood, owners


class Kept(Event): ...


class Passed(Event): ...


class Again(Event): ...


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


def agent(name: str, llm: Any, **more: Any) -> FunctionAgent:
    return FunctionAgent(name=name, description=f"It is {name}.", system_prompt=LONG, llm=llm, **more)


def cached_of(output: AgentOutput) -> int:
    raw: Any = output.raw
    usage = raw["usage"] if isinstance(raw, dict) else raw.model_dump()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]
