"""Sub-agents at once in LangGraph, the real package: each is an owner of its own, and waits for its own tools alone."""

from __future__ import annotations

import operator
from collections.abc import Callable
from threading import Barrier
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

import kvpolicy
from kvpolicy.adapters.frameworks.langgraph import watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import JOINED, LONG, WAITS, asks_for, flood, owners

WITHIN_S = 60


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(WAITS + JOINED, blocks=200, channel=True)


class Model(ChatOpenAI):
    """Asks for a tool by each question (`asks`: which), with a call id of its own, and answers what the tools said."""

    asks: tuple[str, ...] = ()

    def _generate(self, messages: Any, *given: Any, **named: Any) -> Any:
        if isinstance(messages[-1], HumanMessage) and self.asks:
            calls = [asks_for(name, '{"q": "x"}', f"{name}-{messages[-1].content[:9]}") for name in self.asks]
            reply = {"content": "", "tool_calls": [call["sim_reply"]["tool_calls"][0] for call in calls]}
            named["extra_body"] = {"sim_reply": reply}
        return super()._generate(messages, *given, **named)


def model(served: Stack, *asks: str) -> Any:
    told: dict[str, Any] = {"base_url": f"{served.service}/v1", "api_key": "none", "max_tokens": 4, "max_retries": 0}
    return kvpolicy.annotate(Model(model="sim", asks=asks, **told))


def found(message: Any) -> int:
    return message.usage_metadata["input_token_details"]["cache_read"]


def agent(llm: Any, *tools: BaseTool) -> Any:
    """A loop of a model and its tools, compiled."""
    builder = StateGraph(MessagesState)
    builder.add_node("think", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_node("act", ToolNode(list(tools)))
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", lambda s: "act" if s["messages"][-1].tool_calls else END, ["act", END])
    builder.add_edge("act", "think")
    return builder.compile()


class State(TypedDict):
    """cached: what the last call of each found."""

    cached: Annotated[list[int], operator.add]


def fan_out(work: Callable[[str], Any], judge: Callable[[], None], *topics: str) -> Any:
    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {"cached": []})
    builder.add_node("search", lambda state: {"cached": [found(work(state["topic"])["messages"][-1])]})
    builder.add_node("judge", lambda state: [judge(), {"cached": []}][1])
    builder.add_edge(START, "plan")
    builder.add_edge("search", "judge")
    builder.add_conditional_edges("plan", lambda s: [Send("search", {"topic": each}) for each in topics], ["search"])
    return builder.compile(name="fan")


def waiting(served: Stack, service: kvpolicy.Service, session: str, count: int) -> tuple[BaseTool, list[Any]]:
    """A tool in which `count` agents wait for each other, and others use the engine; who waited then."""
    together, seen = Barrier(count), []

    @tool
    def grep(q: str) -> str:
        """Find a word."""
        if together.wait(WITHIN_S) == 0:
            assert service.flush(WITHIN_S)
            seen.extend((row["agent"], row["branch"], row["phase"]) for row in owners(served.service, session=session))
            flood(served.service)
        together.wait(WITHIN_S)
        return "found"

    return grep, seen


def question(topic: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(f"{topic} {LONG}")]}


def test_branches_that_wait_at_once_keep_what_is_theirs(served: Stack) -> None:
    service, left = kvpolicy.Service(served.service), []
    grep, seen = waiting(served, service, "fan", 3)

    def judge() -> None:
        """What is kept of each when the branches are over, and the run goes on."""
        assert service.flush(WITHIN_S)
        requests = [request for row in owners(served.service, session="fan") for request in row["requests"]]
        left.extend(service.explain(request)["spans"][0]["properties"]["retention"]["rule"] for request in requests)

    worker = agent(model(served, "grep"), grep)
    topics = ("topic-one", "topic-two", "topic-ten")
    app = watch(fan_out(lambda topic: worker.invoke(question(topic)), judge, *topics), service)
    cached = app.invoke({"cached": []}, {"configurable": {"thread_id": "fan"}})["cached"]
    assert sorted(seen) == [("search/think", f"search-{number}", "tool_pause") for number in range(3)], seen
    assert left == ["joined"] * 3
    assert min(cached) > 100, cached
    assert service.flush(WITHIN_S) and once.counts == {}
    rows = owners(served.service, session="fan")
    assert {row["phase"] for row in rows} == {"ended"} and len({row["run"] for row in rows}) == 1


def test_sub_agents_that_tools_ask_at_once(served: Stack) -> None:
    service, cached = kvpolicy.Service(served.service), []
    grep, seen = waiting(served, service, "asked", 2)

    def helper(topic: str) -> BaseTool:
        inner = agent(model(served, "grep"), grep)

        def ask(q: str) -> str:
            """Ask a sub-agent."""
            last = inner.invoke(question(topic))["messages"][-1]
            cached.append(found(last))
            return str(last.content)

        return tool(f"ask_{topic}")(ask)

    boss = watch(agent(model(served, "ask_one", "ask_two"), helper("one"), helper("two")), service)
    answer = boss.invoke(question("boss"), {"configurable": {"thread_id": "asked"}})["messages"][-1]
    assert sorted((who, branch or "", phase) for who, branch, phase in seen) == [
        ("act/think", "", "tool_pause"),
        ("act/think", "act+1", "tool_pause"),
        ("think", "", "tool_pause"),
    ], seen
    assert min(*cached, found(answer)) > 100, (cached, found(answer))
    assert service.flush(WITHIN_S) and once.counts == {}


def test_what_a_tool_asks_in_a_branch_is_of_that_branch(served: Stack) -> None:
    service, inner = kvpolicy.Service(served.service), agent(model(served))

    @tool
    def ask(q: str) -> str:
        """Ask a sub-agent."""
        return str(inner.invoke(question("deep"))["messages"][-1].content)

    worker = agent(model(served, "ask"), ask)
    app = watch(fan_out(lambda topic: worker.invoke(question(topic)), lambda: None, "topic-one", "topic-two"), service)
    app.invoke({"cached": []}, {"configurable": {"thread_id": "deep"}})
    assert service.flush(WITHIN_S) and once.counts == {}
    assert sorted((row["agent"], row["branch"]) for row in owners(served.service, session="deep")) == [
        (who, f"search-{number}") for who in ("search/act/think", "search/think") for number in range(2)
    ]


def test_a_tool_pauses_nobody_but_whoever_called_it(served: Stack) -> None:
    service, seen = kvpolicy.Service(served.service), []

    @tool
    def look(q: str) -> str:
        """Look, and see who waits."""
        assert service.flush(WITHIN_S)
        seen.append({row["agent"]: row["phase"] for row in owners(served.service, session="alone")})
        return "seen"

    quiet, asking = model(served), model(served, "look")
    builder = StateGraph(MessagesState)
    builder.add_node("plan", lambda state: {"messages": [quiet.invoke(state["messages"])]})
    builder.add_node("write", lambda state: {"messages": [asking.invoke([HumanMessage("write it")])]})
    builder.add_node("act", ToolNode([look]))
    builder.add_node("itself", lambda state: [look.invoke({"q": "x"}), {"messages": [quiet.invoke("itself")]}][1])
    builder.add_node("again", lambda state: [quiet.invoke("again"), look.invoke({"q": "x"}), {"messages": []}][2])
    for pair in ((START, "plan"), ("plan", "write"), ("write", "act"), ("act", "itself"), ("itself", "again")):
        builder.add_edge(*pair)
    watch(builder.compile(), service).invoke(question("alone"), {"configurable": {"thread_id": "alone"}})
    paused = [{who for who, phase in each.items() if phase == "tool_pause"} for each in seen]
    assert paused[0] == {"write"} and paused[2] == {"again"}, seen
    assert not paused[1] - {"write"}, seen  # it has asked nothing yet; nobody has answered the other


def test_a_title_while_a_tool_runs_ends_nothing(served: Stack) -> None:
    service, llm = kvpolicy.Service(served.service), model(served, "grep")
    plain = model(served)

    def work(state: MessagesState) -> dict[str, Any]:
        asked = llm.invoke(state["messages"])
        for said in ("Write a title for it. ", "Sum it up. "):
            plain.invoke(said + LONG)
        flood(served.service)
        said = {"role": "tool", "content": "found", "tool_call_id": asked.tool_calls[0]["id"]}
        return {"messages": [llm.invoke([*state["messages"], asked, said])]}

    builder = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    app = watch(builder.compile(), service)
    answer = app.invoke(question("titled"), {"configurable": {"thread_id": "titled"}})["messages"][-1]
    assert found(answer) > 100
    assert {row["agent"] for row in owners(served.service, session="titled")} == {"work"}
