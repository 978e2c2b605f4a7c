"""OpenAI's Agents SDK, the real package: agents, handoffs and tools as the service sees them, and what is cached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

import kvpolicy
from kvpolicy.adapters.frameworks.openai_agents import graph, watch
from kvpolicy.client import once
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import KEEPER, LONG, all_owners, asks_for, example, flood, owners

set_tracing_disabled(True)
MODELS = pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel], ids=["chat", "responses"])


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(KEEPER + "on tool_call until tool_result { turn { retention: hold 60s } }\n")


def model(served: Stack, kind: Any = OpenAIChatCompletionsModel) -> Any:
    client = AsyncOpenAI(base_url=f"{served.service}/v1", api_key="none", max_retries=0)
    return kind("sim", kvpolicy.annotate(client))


def settings(reply: dict[str, Any] | None = None) -> ModelSettings:
    return ModelSettings(include_usage=True, extra_body=reply or {"sim_reply": {"content": "fine"}})


def cached(result: Any) -> list[int]:
    return [answer.usage.input_tokens_details.cached_tokens for answer in result.raw_responses]


@MODELS
def test_who_runs_decides_what_is_found_again(served: Stack, kind: Any) -> None:
    service = kvpolicy.Service(served.service)
    agents = [Agent(name, instructions="Be short.", model=model(served, kind), model_settings=settings())
              for name in ("keeper", "passer")]  # fmt: skip

    async def ask(agent: Any, streamed: bool) -> int:
        async with watch(agent, service, session=f"found-{kind.__name__}") as hooks:
            words = f"{kind.__name__} {agent.name} {LONG}"
            if not streamed:
                return cached(await Runner.run(agent, words, hooks=hooks))[-1]
            result = Runner.run_streamed(agent, words, hooks=hooks)
            async for _ in result.stream_events():
                pass
            return cached(result)[-1]

    async def main() -> list[int]:
        for agent in (*agents, *agents):
            await ask(agent, False)
        await asyncio.to_thread(flood, served.service)
        return [await ask(agents[1], False), await ask(agents[0], kind is OpenAIChatCompletionsModel)]

    passed, kept = asyncio.run(main())
    assert passed < 50 < kept, (passed, kept)  # some of the head is common to both
    assert once.counts == {}


def test_a_handoff_moves_the_run_and_a_tool_pauses_it(served: Stack) -> None:
    service, phases = kvpolicy.Service(served.service), []

    @function_tool
    def grep(q: str) -> str:
        """Find a word."""
        assert service.flush()
        phases.extend((row["agent"], row["phase"]) for row in owners(served.service, session="hand"))
        return "found"

    class Asks(OpenAIChatCompletionsModel):
        """Makes the engine ask for the next of its tools, once each."""

        def __init__(self, *names: tuple[str, str], **more: Any) -> None:
            super().__init__("sim", **more)
            self.names = list(names)

        async def get_response(self, *given: Any, **named: Any) -> Any:
            if self.names:
                name, arguments = self.names.pop(0)
                change = settings(asks_for(name, arguments, call=f"call-{name}"))
                named["model_settings"] = named["model_settings"].resolve(change)
            return await super().get_response(*given, **named)

    client = kvpolicy.annotate(AsyncOpenAI(base_url=f"{served.service}/v1", api_key="none", max_retries=0))
    writer = Agent("writer", model=Asks(("grep", '{"q": "x"}'), openai_client=client), tools=[grep])
    planner = Agent("planner", model=Asks(("transfer_to_writer", "{}"), openai_client=client), handoffs=[writer])

    async def main() -> Any:
        async with watch(planner, service, session="hand") as hooks:
            result = await Runner.run(planner, LONG, hooks=hooks)
            assert service.flush()
            run = service._ask("GET", f"/v1/runs/{hooks.run.owner.run}")
            assert run["workflow"] == "planner-handoffs" and run["running"] == []
            assert {row["name"]: row["steps_to_next_use"] for row in run["nodes"]}["writer"] == "never"
            return result

    result = asyncio.run(main())
    assert result.last_agent is writer
    assert ("writer", "tool_pause") in phases and ("planner", "tool_pause") not in phases, phases
    assert cached(result)[-1] > 100
    assert service.flush() and once.counts == {}
    assert {row["phase"] for row in owners(served.service, session="hand")} == {"ended"}
    assert {row["agent"] for row in owners(served.service, session="hand")} == {"planner", "writer"}


def test_runs_at_once_do_not_mix(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    shared = model(served)

    async def work(number: int) -> None:
        agent = Agent(f"agent-{number}", model=shared, model_settings=settings())
        async with watch(agent, service, session=f"at-once-{number}") as hooks:
            await Runner.run(agent, f"number {number}", hooks=hooks)

    async def main() -> None:
        await asyncio.gather(*(work(number) for number in range(60)))

    asyncio.run(main())
    expected = sorted((f"at-once-{n}", f"agent-{n}") for n in range(60))
    assert all_owners(served.service, "at-once-", 60) == expected


def test_a_tool_that_is_cancelled_ends_with_its_run(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> None:
        inside = asyncio.Event()

        @function_tool
        async def sleep() -> str:
            """Wait."""
            inside.set()
            await asyncio.sleep(60)
            return "never"

        agent = Agent("sleeper", model=model(served), model_settings=settings(asks_for("sleep")), tools=[sleep])

        async def run() -> None:
            async with watch(agent, service, session="cancelled") as hooks:
                await Runner.run(agent, LONG, hooks=hooks)

        task = asyncio.create_task(run())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert service.flush()
    assert [row["phase"] for row in owners(served.service, session="cancelled")] == ["ended"]


def test_without_a_service_everything_goes_on(served: Stack) -> None:
    agent = Agent("alone", model=model(served), model_settings=settings())

    async def main() -> Any:
        async with watch(agent, kvpolicy.Service("http://127.0.0.1:9")) as hooks:
            return await Runner.run(agent, "alone", hooks=hooks)

    assert asyncio.run(main()).final_output
    once.counts.clear()


def test_the_page_s_example(served: Stack) -> None:
    assert example("openai-agents", served.service)["answer"]
    assert [row["agent"] for row in owners(served.service, session="s1")] == ["writer"]


# --- graphs: distances counted by hand -----------------------------------------------------------------------------

A, B, C, D = (Agent(name) for name in "abcd")
CHAIN = Agent("one", handoffs=[Agent("two", handoffs=[Agent("three")])])
BACK = Agent("triage", handoffs=[A, B])
A.handoffs.append(BACK)
HUB = Agent("hub", handoffs=[handoff(C), handoff(D)])
C.handoffs.append(handoff(D))
TOOLS = Agent("boss", tools=[Agent("helper").as_tool("helper", "Helps.")], handoffs=[Agent("next")])
INNER = Agent("inner", handoffs=[Agent("deep")])  # a tool's handoffs are a run within the call
OUTER = Agent("outer", tools=[INNER.as_tool("inner", "Asks further.")])


@pytest.mark.parametrize(
    ("agent", "steps"),
    [
        (Agent("alone"), {"alone": 0, "end": 1}),
        (CHAIN, {"one": 0, "two": 1, "three": 2, "end": 1}),
        (BACK, {"triage": 0, "a": 1, "b": 1, "end": 1}),
        (HUB, {"hub": 0, "c": 1, "d": 1, "end": 1}),
        (TOOLS, {"boss": 0, "helper": 1, "next": 1, "end": 1}),
        (OUTER, {"outer": 0, "inner": 1, "deep": 2, "end": 1}),
    ],
)
def test_graphs(agent: Any, steps: dict[str, int]) -> None:
    assert Position(Graph.sound(graph(agent))).all_steps() == steps
    assert kvpolicy.Engine(blocks=8).run(agent).workflow == f"{agent.name}-handoffs"  # found by its entry point
