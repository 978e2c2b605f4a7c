"""The SDKs of OpenAI and Anthropic through `kvp serve` to `kvp engine`: what a run says decides what is cached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

import kvpolicy
from tests.client.conftest import Stack
from tests.frameworks.scenes import all_owners, example

KEEPER = """
turn[agent="keeper"] { priority: 90  ttl: 10min }
document[name="handbook"] { priority: 90  ttl: 10min }
"""
LONG = "The keeper keeps this for a later time, word by word by word. " * 12
WAYS = ("openai", "openai-async", "openai-stream", "anthropic", "anthropic-async", "anthropic-stream")


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(KEEPER, blocks=120)


def ask(served: Stack, way: str, words: str) -> int:
    """One call of one client; how many tokens its engine had cached."""
    messages: Any = [{"role": "user", "content": words}]
    vendor, _, how = way.partition("-")
    if vendor == "openai":
        settings = {"base_url": f"{served.service}/v1", "api_key": "none", "max_retries": 0}
        call: Any = {"model": "sim", "messages": messages, "max_tokens": 4}
        if how == "async":

            async def openai_async() -> int:
                async with kvpolicy.annotate(openai.AsyncOpenAI(**settings)) as client:
                    return cached((await client.chat.completions.create(**call)).usage)

            return asyncio.run(openai_async())
        with kvpolicy.annotate(openai.OpenAI(**settings)) as client:
            if how == "stream":
                told = {"stream": True, "stream_options": {"include_usage": True}}
                return [cached(e.usage) for e in client.chat.completions.create(**call, **told) if e.usage][-1]
            return cached(client.chat.completions.create(**call).usage)
    settings = {"base_url": served.service, "api_key": "none", "max_retries": 0}
    call = {"model": "sim", "messages": messages, "max_tokens": 4}
    if how == "async":

        async def anthropic_async() -> int:
            async with kvpolicy.annotate(anthropic.AsyncAnthropic(**settings)) as client:
                return (await client.messages.create(**call)).usage.cache_read_input_tokens

        return asyncio.run(anthropic_async())
    with kvpolicy.annotate(anthropic.Anthropic(**settings)) as client:
        if how == "stream":
            with client.messages.stream(**call) as events:
                return events.get_final_message().usage.cache_read_input_tokens
        return client.messages.create(**call).usage.cache_read_input_tokens


def cached(usage: Any) -> int:
    return usage.prompt_tokens_details.cached_tokens


def flood(served: Stack) -> None:
    """Others use the engine: as many blocks as it has, and more."""
    client = openai.OpenAI(base_url=f"{served.service}/v1", api_key="none")
    for number in range(14):
        words = f"{number} other words that nobody needs again " * 20
        client.chat.completions.create(model="sim", messages=[{"role": "user", "content": words}], max_tokens=1)


@pytest.mark.parametrize("way", WAYS)
def test_what_the_run_says_decides_what_is_found_again(served: Stack, way: str) -> None:
    with kvpolicy.run(session=f"{way}-1"):
        for _ in range(2):  # the first asks where things lie; that is known from the second on
            for agent in ("keeper", "passer"):
                with kvpolicy.step(agent):
                    ask(served, way, f"{way} {agent} {LONG}")
        flood(served)
        with kvpolicy.step("passer"):
            assert ask(served, way, f"{way} passer {LONG}") == 0
        with kvpolicy.step("keeper"):
            assert ask(served, way, f"{way} keeper {LONG}") > 100


def test_the_owner_is_known_by_all_its_names(served: Stack) -> None:
    run = kvpolicy.run(session="names", run="r7", workflow="research")
    with run, kvpolicy.step("writer", agent="scribe"), kvpolicy.branch("b2"):
        ask(served, "openai", LONG)
    (row,) = kvpolicy.Service(served.service).owners(session="names")
    assert {name: row[name] for name in ("session", "run", "agent", "branch")} == {
        "session": "names",
        "run": "r7",
        "agent": "scribe",
        "branch": "b2",
    }


def test_spans_of_a_prompt(served: Stack) -> None:
    words = "handbook " + LONG
    for _ in range(2):
        with kvpolicy.run(session="spans"), kvpolicy.spans(kvpolicy.mark("document", 0, 1, name="handbook")):
            ask(served, "openai", words)
    flood(served)
    assert ask(served, "openai", words) > 100


@pytest.mark.parametrize("way", ["openai", "anthropic"])
@pytest.mark.parametrize("name", ["a\nb", "a\x00\x7f", "one\r\nx-other: 1"])
def test_a_mark_s_name_of_several_lines_costs_no_call(served: Stack, way: str, name: str) -> None:
    with kvpolicy.run(session="lines"), kvpolicy.spans(kvpolicy.mark("document", 0, 1, name=name)):
        assert ask(served, way, f"{way} {name!r}") == 0


def test_an_address_alone(served: Stack) -> None:
    for _ in range(2):
        with kvpolicy.run(session="address"), kvpolicy.step("keeper"):
            url = kvpolicy.base_url(f"{served.service}/v1")
        client = openai.OpenAI(base_url=url, api_key="none").chat.completions
        messages: Any = [{"role": "user", "content": "address " + LONG}]
        client.create(model="sim", messages=messages, max_tokens=1)
    flood(served)
    assert cached(client.create(model="sim", messages=messages, max_tokens=1).usage) > 100
    (row,) = kvpolicy.Service(served.service).owners(session="address")
    assert row["agent"] == "keeper"


def test_hundreds_of_calls_at_once_do_not_mix(served: Stack) -> None:
    async def main() -> None:
        async with kvpolicy.annotate(
            openai.AsyncOpenAI(base_url=f"{served.service}/v1", api_key="none", max_retries=0)
        ) as client:

            async def work(number: int) -> str:
                async with kvpolicy.run(session=f"mix-{number}"), kvpolicy.step(f"agent-{number}"):
                    words: Any = [{"role": "user", "content": f"mixing {number}"}]
                    answer = await client.chat.completions.with_raw_response.create(
                        model="sim", messages=words, max_tokens=1
                    )
                    assert answer.status_code == 200
                    return f"mix-{number}"

            await asyncio.gather(*(work(number) for number in range(200)))

    asyncio.run(main())
    expected = {(f"mix-{number}", f"agent-{number}") for number in range(200)}
    found = all_owners(served.service, "mix-", 200)  # an owner is known when the places of its prompt are
    assert set(found) <= expected and len(found) == len(set(found)) > 100


def test_the_example_on_the_page_of_frameworks(served: Stack) -> None:
    service = example("README", served.service)["service"]
    assert service.flush() and service.counts == {"sent": 6}
    assert [(row["agent"], row["phase"]) for row in service.owners(session="s1")] == [("writer", "ended")]
