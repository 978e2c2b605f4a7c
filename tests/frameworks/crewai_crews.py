"""What the tests of CrewAI share: a served stack, an engine that answers as it is told, agents, crews and tasks."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from crewai import LLM, Agent, Crew, Task
from crewai.llms.hooks.base import BaseInterceptor

import kvpolicy
from kvpolicy.adapters.frameworks.crewai import here
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import KEEPER, LONG

SLOW_S = 30.0  # no events are given up on slow cores


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(KEEPER + "on tool_call until tool_result { turn { retention: hold 60s } }\n")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    asked: list[Any] = []
    look_up = socket.getaddrinfo

    def noted(host: Any, *args: Any, **named: Any) -> Any:
        asked.extend([host] if host not in ("127.0.0.1", b"127.0.0.1") else [])
        return look_up(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    once.counts.clear()
    yield
    assert asked == []  # nothing goes to the network
    assert here() is None  # whoever asks next is not of a crew that is over


class Engine(BaseInterceptor[httpx.Request, httpx.Response]):
    """What the simulated engine is to answer; and what it found cached, with whom the call said it was of."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = list(replies)
        self.found: list[tuple[Any, int]] = []

    def on_outbound(self, message: httpx.Request) -> httpx.Request:
        reply = self.replies.pop(0) if self.replies else {"sim_reply": {"content": "fine"}}
        headers = {name: value for name, value in message.headers.items() if name != "content-length"}
        return httpx.Request(
            message.method, message.url, headers=headers, json={**json.loads(message.content), **reply}
        )

    def on_inbound(self, message: httpx.Response) -> httpx.Response:
        message.read()
        self._count(message)
        return message

    async def aon_outbound(self, message: httpx.Request) -> httpx.Request:
        return self.on_outbound(message)

    async def aon_inbound(self, message: httpx.Response) -> httpx.Response:
        await message.aread()
        self._count(message)
        return message

    def _count(self, message: httpx.Response) -> None:
        place = here() or {}
        self.found.append((place.get("agent"), message.json()["usage"]["prompt_tokens_details"]["cached_tokens"]))


def model(served: Stack, engine: Engine) -> Any:
    told = {"base_url": f"{served.service}/v1", "api_key": "none", "interceptor": engine}
    return kvpolicy.annotate(LLM(model="sim", provider="openai", **told))


def agent(role: str, llm: Any, **more: Any) -> Agent:
    return Agent(role=role, goal="Be short.", backstory=f"{role} {LONG}", llm=llm, max_retry_limit=0, **more)


def crew(*agents: Agent, **more: Any) -> Crew:
    return Crew(agents=list(agents), tasks=[task(each) for each in agents], **more)


def task(of: Agent | None, **more: Any) -> Task:
    return Task(description="Say it.", expected_output="A word.", agent=of, **more)
