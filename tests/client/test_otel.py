"""`gen_ai.*` spans of an application that nobody knows: its steps and tools are seen, and what is cached follows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from opentelemetry.sdk.trace import TracerProvider

import kvpolicy
from kvpolicy.adapters.frameworks.otel import Watch, _places
from kvpolicy.client import once
from tests.client.conftest import Stack

LONG = "The keeper keeps this for a later time, word by word by word. " * 12


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(
        'turn[agent="keeper"] { priority: 90  ttl: 10min }\n'
        "on tool_call until tool_result { turn { retention: hold 60s } }\n",
        blocks=120,
    )


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    assert _places == {}


def call(served: Stack, words: str) -> int:
    client = kvpolicy.annotate(openai.OpenAI(base_url=f"{served.service}/v1", api_key="none"))
    messages: Any = [{"role": "user", "content": words}]
    usage = client.chat.completions.create(model="sim", messages=messages, max_tokens=1).usage
    assert usage is not None and usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens or 0


def tracer(service: kvpolicy.Service) -> Any:
    provider = TracerProvider()
    provider.add_span_processor(Watch(service))
    return provider.get_tracer("app")


def agent(of: Any, name: str, **more: Any) -> Any:
    told = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name, **more}
    return of.start_as_current_span(f"invoke_agent {name}", attributes=told)


def phases(service: kvpolicy.Service, session: str) -> list[tuple[str, str]]:
    assert service.flush()
    return sorted((row["agent"], row["phase"]) for row in service.owners(session=session))


def test_spans_of_agents_and_tools(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    of = tracer(service)
    conversation = {"gen_ai.conversation.id": "talk"}
    with agent(of, "boss", **conversation):
        call(served, "boss " + LONG)
        with agent(of, "keeper"), of.start_as_current_span("chat sim", attributes={"gen_ai.operation.name": "chat"}):
            for _ in range(2):
                call(served, "keeper " + LONG)
        with of.start_as_current_span(
            "execute_tool grep", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "grep"}
        ):
            assert ("boss", "tool_pause") in phases(service, "talk")
        for number in range(14):
            call(served, f"{number} other words that nobody needs again " * 20)
        with agent(of, "keeper"):
            assert call(served, "keeper " + LONG) > 100
    assert {phase for _, phase in phases(service, "talk")} == {"ended"}
    assert once.counts == {} and call(served, "outside") == 0
    assert len({row["run"] for row in service.owners(session="talk")}) == 1


def test_other_spans_say_nothing(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    with tracer(service).start_as_current_span("GET /"):
        assert kvpolicy.headers() == {}
    assert service.counts == {}


def test_an_agent_that_raises(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    with pytest.raises(ZeroDivisionError), agent(tracer(service), "boss"):
        raise ZeroDivisionError
    assert service.flush() and service.counts["sent"] == 4


def test_a_span_of_another_shape_is_said_once(served: Stack, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(kvpolicy.Service(served.service))
    with caplog.at_level(logging.WARNING, "kvpolicy"):
        for _ in range(3):
            watch.on_start(object())
            watch.on_end(object())
    assert len(caplog.records) == 2
