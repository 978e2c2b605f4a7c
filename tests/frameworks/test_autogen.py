"""AutoGen, the real package: agents and directed graphs as the service sees them, and what is cached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow
from autogen_ext.models.openai import OpenAIChatCompletionClient

import kvpolicy
from kvpolicy.adapters.frameworks.autogen import graph, here, watch
from kvpolicy.client import once
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import LONG, all_owners, example, flood, owners

ABOUT: Any = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack('any[agent="keeper"] { priority: 90  ttl: 10min }\n')


def model(served: Stack) -> Any:
    return kvpolicy.annotate(
        OpenAIChatCompletionClient(
            model="sim", base_url=f"{served.service}/v1", api_key="none", model_info=ABOUT, max_tokens=4
        )
    )


def team(client: Any, *names: str) -> GraphFlow:
    agents = [AssistantAgent(name, model_client=client, system_message=f"{name} {LONG}") for name in names]
    flow = DiGraphBuilder()
    for agent in agents:
        flow.add_node(agent)
    for one, other in pairwise(agents):
        flow.add_edge(one, other)
    return GraphFlow(agents, graph=flow.build())


def test_who_speaks_decides_what_is_found_again(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    found: list[tuple[str, int]] = []

    async def main() -> None:
        client = model(served)
        inner = client._client.chat.completions
        create = inner.create

        async def counted(*args: Any, **named: Any) -> Any:  # AutoGen keeps no count of cached tokens
            answer = await create(*args, **named)
            found.append((here()["agent"], answer.usage.prompt_tokens_details.cached_tokens))  # type: ignore[index]
            return answer

        inner.create = counted
        for turn in range(3):
            if turn == 2:
                await asyncio.to_thread(flood, served.service)
            flow = team(client, "keeper", "passer")
            with watch(flow, service, session="found"):
                await flow.run(task="Say it.")

    asyncio.run(main())
    (_, kept), (_, passed) = found[-2:]
    assert [name for name, _ in found] == ["keeper", "passer"] * 3
    assert passed == 0 and kept > 100, found
    assert service.flush() and once.counts == {}
    assert {row["agent"] for row in owners(served.service, session="found")} == {"keeper", "passer"}


def test_teams_at_once_do_not_mix(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> None:
        client = model(served)

        async def work(number: int) -> None:
            flow = team(client, f"first{number}", f"second{number}")
            with watch(flow, service, session=f"at-once-{number}"):
                await flow.run(task=f"number {number}")

        await asyncio.gather(*(work(number) for number in range(12)))

    asyncio.run(main())
    expected = sorted((f"at-once-{n}", f"{which}{n}") for n in range(12) for which in ("first", "second"))
    assert all_owners(served.service, "at-once-", 24) == expected


def test_the_page_s_example(served: Stack) -> None:
    assert example("autogen", served.service)["answer"].messages[-1].content
    assert {row["agent"] for row in owners(served.service, session="s1")} == {"planner", "writer"}


# --- graphs: distances counted by hand -----------------------------------------------------------------------------


def shape(*edges: tuple[str, str, str | None], any_of: tuple[str, ...] = (), start: str | None = None) -> Any:
    names = dict.fromkeys(name for source, target, _ in edges for name in (source, target))
    told = {"model": "sim", "api_key": "none", "base_url": "http://127.0.0.1:9/v1", "model_info": ABOUT}
    client = OpenAIChatCompletionClient(**told)
    agents = {name: AssistantAgent(name, model_client=client) for name in names}
    flow = DiGraphBuilder()
    for name, agent in agents.items():
        flow.add_node(agent, activation="any" if name in any_of else "all")
    for source, target, condition in edges:
        flow.add_edge(agents[source], agents[target], condition)
    if start:
        flow.set_entry_point(agents[start])
    return flow.build()


SHAPES: list[tuple[str, Any, dict[str, float]]] = [
    ("chain", [("a", "b", None), ("b", "c", None)], {"a": 0, "b": 1, "c": 2, "end": 3}),
    ("fan that waits", [("a", "b", None), ("a", "c", None), ("b", "b2", None), ("b2", "d", None), ("c", "d", None)],
     {"a": 0, "b": 1, "b2": 2, "c": 1, "d": 3, "end": 4}),
    ("conditional", [("a", "b", "yes"), ("a", "c", "no")], {"a": 0, "b": 1, "c": 1, "end": 2}),
]  # fmt: skip


@pytest.mark.parametrize("name, edges, steps", SHAPES, ids=[name for name, _, _ in SHAPES])
def test_graphs(name: str, edges: Any, steps: dict[str, float]) -> None:
    assert Position(Graph.sound(graph(shape(*edges)))).all_steps() == steps


def test_a_loop_and_a_join_of_any() -> None:
    looping = shape(("a", "b", None), ("b", "a", "again"), ("b", "c", "done"), any_of=("a",), start="a")
    assert Position(Graph.sound(graph(looping))).all_steps() == {"a": 0, "b": 1, "c": 2, "end": 3}
    edges = [("a", "b", None), ("a", "c", None), ("b", "b2", None), ("b2", "d", None), ("c", "d", None)]
    first = shape(*edges, any_of=("d",))
    assert Position(Graph.sound(graph(first))).all_steps()["d"] == 2
