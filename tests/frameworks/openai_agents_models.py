"""What the tests of runs within runs of OpenAI's Agents SDK share: a served stack, a model that asks, and agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, set_tracing_disabled
from openai import AsyncOpenAI

import kvpolicy
from kvpolicy.adapters.frameworks.openai_agents import here
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import JOINED, LONG, WAITS, asks_for

set_tracing_disabled(True)
WITHIN_S = 60
ASKED = '{"input": "Find it."}'


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(WAITS + JOINED, blocks=250, channel=True)


class Model(OpenAIChatCompletionsModel):
    """Asks for tools by each question, with call ids of its own, and answers what they said. found: who found how many
    tokens cached then; said: whose each call was."""

    def __init__(self, served: Stack, *asks: str) -> None:
        client = AsyncOpenAI(base_url=f"{served.service}/v1", api_key="none", max_retries=0)
        self.client = kvpolicy.annotate(client)
        super().__init__("sim", client)
        self.asks, self.number = asks, 0
        self.found: list[int] = []
        self.said: list[tuple[Any, Any]] = []

    def _told(self, named: dict[str, Any]) -> bool:
        """Whether it asks for its tools this time."""
        place, given = here() or {}, named["input"]
        self.said.append((place.get("agent"), place.get("branch")))
        asks = isinstance(given, str) or given[-1].get("role") == "user"
        self.number += 1
        calls = [
            asks_for(name, ASKED, f"{id(self)}-{self.number}-{at}")["sim_reply"]["tool_calls"][0]
            for at, name in enumerate(self.asks)
        ]
        reply = {"content": "", "tool_calls": calls} if asks and calls else {"content": "fine"}
        more = ModelSettings(include_usage=True, extra_body={"sim_reply": reply})
        named["model_settings"] = named["model_settings"].resolve(more)
        return asks

    async def get_response(self, **named: Any) -> Any:
        asks = self._told(named)
        answer = await super().get_response(**named)
        self.found += [] if asks else [answer.usage.input_tokens_details.cached_tokens]
        return answer

    async def stream_response(self, system: Any, given: Any, settings: Any, *more: Any, **named: Any) -> Any:
        told = {"input": given, "model_settings": settings}
        asks = self._told(told)
        async for event in super().stream_response(system, given, told["model_settings"], *more, **named):
            if event.type == "response.completed" and not asks:
                self.found.append(event.response.usage.input_tokens_details.cached_tokens)
            yield event


def agent(name: str, model: Any, *tools: Any, **more: Any) -> Agent[Any]:
    return Agent(name, instructions=f"{name} {LONG}", model=model, tools=list(tools), **more)
