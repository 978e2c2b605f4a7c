"""LangGraph, the real package: nodes, loops, tools and `Send` as the service sees them, and what is cached for it."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

import kvpolicy
from kvpolicy.adapters.frameworks.langgraph import watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import KEEPER, LONG, all_owners, asks_for, example, flood, owners


class State(TypedDict):
    """cached: what each call found, by node; rounds: how often the loop went round."""

    cached: Annotated[list[tuple[str, int]], operator.add]
    rounds: int


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(KEEPER + "on tool_call until tool_result { turn { retention: hold 60s } }\n")


def model(served: Stack, **more: Any) -> ChatOpenAI:
    return kvpolicy.annotate(
        ChatOpenAI(model="sim", base_url=f"{served.service}/v1", api_key="none", max_tokens=4, max_retries=0, **more)
    )


def found(message: Any) -> int:
    return message.usage_metadata["input_token_details"]["cache_read"]


def looping(served: Stack, *, streaming: bool = False) -> StateGraph:
    llm = model(served, **({"stream_usage": True} if streaming else {}))

    def node(name: str) -> Callable[..., Any]:
        def call(state: State) -> dict[str, Any]:
            words = f"{name} {streaming} {LONG}"
            if streaming:
                *_, last = llm.stream(words)
                parts = [p for p in [last] if p.usage_metadata]
                return {"cached": [(name, found(parts[-1]))]}
            return {"cached": [(name, found(llm.invoke(words)))]}

        return call

    def rest(state: State) -> dict[str, Any]:
        if state["rounds"] == 1:
            flood(served.service)
        return {"rounds": state["rounds"] + 1}

    builder = StateGraph(State)
    builder.add_node("keeper", node("keeper"))
    builder.add_node("passer", node("passer"))
    builder.add_node("rest", rest)
    builder.add_edge(START, "keeper")
    builder.add_edge("keeper", "passer")
    builder.add_edge("passer", "rest")
    builder.add_conditional_edges(
        "rest", lambda s: END if s["rounds"] > 2 else "keeper", {END: END, "keeper": "keeper"}
    )
    return builder


def test_what_a_node_is_decides_what_is_found_when_its_loop_comes_back(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    app = watch(looping(served).compile(name="looping"), service)
    seen = app.invoke({"cached": [], "rounds": 0}, {"configurable": {"thread_id": "loop"}})["cached"]
    assert [node for node, _ in seen] == ["keeper", "passer"] * 3
    assert seen[4][1] > 100, seen  # after the flood
    assert seen[5] == ("passer", 0)
    assert service.flush() and service.counts.get("failed", 0) == 0
    assert {row["agent"] for row in owners(served.service, session="loop")} == {"keeper", "passer"}
    assert once.counts == {}


def test_without_watching_an_annotated_client_alone_says_node_and_thread(served: Stack) -> None:
    app = looping(served).compile()
    seen = app.invoke({"cached": [], "rounds": 0}, {"configurable": {"thread_id": "bare"}})["cached"]
    assert seen[4][1] > 100 and seen[5] == ("passer", 0)
    assert {row["agent"] for row in owners(served.service, session="bare")} == {"keeper", "passer"}


def test_send_makes_branches(served: Stack) -> None:
    llm, service, inside = model(served), kvpolicy.Service(served.service), []

    def search(state: dict[str, Any]) -> dict[str, Any]:
        llm.invoke(f"search for {state['topic']}")
        inside.append(kvpolicy.headers()["x-kvp-context"])
        return {"cached": []}

    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {"cached": []})
    builder.add_node("search", search)
    builder.add_node("judge", lambda state: {"cached": []})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda s: [Send("search", {"topic": t}) for t in "abc"], ["search"])
    builder.add_edge("search", "judge")
    app = watch(builder.compile(name="fan"), service)
    app.invoke({"cached": [], "rounds": 0}, {"configurable": {"thread_id": "fan"}})
    assert service.flush()
    rows = owners(served.service, session="fan")
    assert sorted(row["branch"] for row in rows) == ["search-0", "search-1", "search-2"]
    assert {(row["agent"], row["phase"]) for row in rows} == {("search", "ended")}
    assert len({row["run"] for row in rows}) == 1 and all('node="search"' in said for said in inside)


def test_a_tool_s_pause_is_seen_while_it_runs(served: Stack) -> None:
    service, phases = kvpolicy.Service(served.service), []

    @tool
    def grep(q: str) -> str:
        """Find a word, by a runnable: what runs inside of a tool is no run of its own."""
        word = RunnableLambda(lambda said: said.upper()).invoke(q)
        assert service.flush()
        phases.extend(row["phase"] for row in owners(served.service, session="tools"))
        return word

    llm = model(served)

    def agent(state: MessagesState) -> dict[str, Any]:
        more = {} if len(state["messages"]) > 1 else {"extra_body": asks_for("grep", '{"q": "x"}')}
        return {"messages": [llm.invoke(state["messages"], **more)]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([grep]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges(
        "agent", lambda s: "tools" if s["messages"][-1].tool_calls else END, {"tools": "tools", END: END}
    )
    builder.add_edge("tools", "agent")
    app = watch(builder.compile(name="react"), service)
    answer = app.invoke({"messages": [("user", LONG)]}, {"configurable": {"thread_id": "tools"}})["messages"]
    assert phases == ["tool_pause"]
    assert found(answer[-1]) > 100
    service.flush()
    assert [row["phase"] for row in owners(served.service, session="tools")] == ["ended"]


def test_runs_at_once_do_not_mix(served: Stack) -> None:
    service, llm = kvpolicy.Service(served.service), model(served)
    said: dict[str, set[str]] = {}

    async def write(state: State, config: RunnableConfig) -> dict[str, Any]:
        thread = config["configurable"]["thread_id"]
        await llm.ainvoke(f"written for {thread} by {config['metadata']['langgraph_node']}")
        said.setdefault(thread, set()).add(kvpolicy.headers()["x-kvp-context"].partition(",")[0])
        return {"cached": []}

    builder = StateGraph(State)
    for name in ("one", "two"):
        builder.add_node(name, write)
    builder.add_edge(START, "one")
    builder.add_edge(START, "two")
    app = watch(builder.compile(name="many"), service)

    async def main() -> None:
        start = {"cached": [], "rounds": 0}
        await asyncio.gather(*(app.ainvoke(start, {"configurable": {"thread_id": f"m{n}"}}) for n in range(40)))

    asyncio.run(main())
    assert said == {f"m{n}": {f'session="m{n}"'} for n in range(40)}
    expected = sorted((f"m{n}", node) for n in range(40) for node in ("one", "two"))
    assert all_owners(served.service, "m", 80) == expected


def test_a_node_that_raises_raises_what_it_raised(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    def broken(state: State) -> dict[str, Any]:
        raise ZeroDivisionError("mine")

    builder = StateGraph(State)
    builder.add_node("broken", broken)
    builder.add_edge(START, "broken")
    with pytest.raises(ZeroDivisionError, match="mine"):
        watch(builder.compile(), service).invoke({"cached": [], "rounds": 0})
    assert service.flush() and service.counts["sent"] == 4  # the step and the run ended


def test_without_a_service_everything_goes_on() -> None:
    once.counts.clear()
    builder = StateGraph(State)
    builder.add_node("one", lambda state: {"rounds": 7})
    builder.add_edge(START, "one")
    app = watch(builder.compile(), kvpolicy.Service("http://127.0.0.1:9"))
    assert app.invoke({"cached": [], "rounds": 0})["rounds"] == 7
    once.counts.clear()


def test_the_page_s_example(served: Stack) -> None:
    space = example("langgraph", served.service)
    assert space["answer"]["messages"][-1].content
    assert [row["agent"] for row in owners(served.service, session="s1")] == ["writer"]


def test_an_unknown_version_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from kvpolicy.adapters.frameworks import quiet

    once.counts.clear()
    monkeypatch.setattr(quiet, "version", lambda package: "9.1.0rc1")
    builder = StateGraph(State)
    builder.add_node("one", lambda state: {"rounds": 7})
    builder.add_edge(START, "one")
    for _ in range(2):
        app = watch(builder.compile(), kvpolicy.Service("http://127.0.0.1:9"))
    assert app.invoke({"cached": [], "rounds": 0})["rounds"] == 7
    assert len([r for r in caplog.records if "9.1.0rc1 is not among the tested versions" in r.message]) == 1
