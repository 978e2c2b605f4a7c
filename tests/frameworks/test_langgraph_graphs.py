"""Every shape that a LangGraph graph can have, read as a workflow: distances equal a count by hand.

The counts are steps to the next use before the run begins, and where `walked` is given, after those steps were done.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Literal, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

import kvpolicy
from kvpolicy.adapters.frameworks.langgraph import graph
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position


class State(TypedDict):
    x: int


def nothing(state: State) -> dict[str, Any]:
    return {}


def builder(*names: str, **more: Any) -> StateGraph:
    made = StateGraph(State)
    for name in names:
        made.add_node(name, nothing, **more)
    return made


def edges(made: StateGraph, *pairs: tuple[str, str]) -> StateGraph:
    for source, target in pairs:
        made.add_edge(source, target)
    return made


def one() -> StateGraph:
    return edges(builder("a"), (START, "a"), ("a", END))


def chain() -> StateGraph:
    return edges(builder("a", "b", "c"), (START, "a"), ("a", "b"), ("b", "c"), ("c", END))


def chain_without_end() -> StateGraph:
    return edges(builder("a", "b"), (START, "a"), ("a", "b"))


def two_ways_in() -> StateGraph:
    return edges(builder("a", "b", "c"), (START, "a"), (START, "b"), ("a", "c"), ("b", "c"), ("c", END))


def diamond_that_waits() -> StateGraph:
    made = edges(builder("a", "b", "b2", "c", "d"), (START, "a"), ("a", "b"), ("b", "b2"), ("a", "c"), ("d", END))
    made.add_edge(["b2", "c"], "d")
    return made


def diamond_that_does_not_wait() -> StateGraph:
    pairs = [(START, "a"), ("a", "b"), ("b", "b2"), ("a", "c"), ("b2", "d"), ("c", "d"), ("d", END)]
    return edges(builder("a", "b", "b2", "c", "d"), *pairs)


def deferred() -> StateGraph:
    made = builder("a", "b", "b2", "c")
    made.add_node("d", nothing, defer=True)
    pairs = [(START, "a"), ("a", "b"), ("b", "b2"), ("a", "c"), ("b2", "d"), ("c", "d"), ("d", END)]
    return edges(made, *pairs)


def react() -> StateGraph:
    made = edges(builder("agent", "tools"), (START, "agent"), ("tools", "agent"))
    made.add_conditional_edges("agent", lambda s: END, {"more": "tools", "done": END})
    return made


def loop_of_three() -> StateGraph:
    made = edges(builder("plan", "act", "judge"), (START, "plan"), ("plan", "act"), ("act", "judge"))
    made.add_conditional_edges("judge", lambda s: END, ["plan", END])
    return made


def loop_to_itself() -> StateGraph:
    made = edges(builder("a", "b"), (START, "a"), ("b", END))
    made.add_conditional_edges("a", lambda s: "b", ["a", "b"])
    return made


def loops_within_loops() -> StateGraph:
    made = edges(builder("a", "b", "c", "d"), (START, "a"), ("a", "b"), ("b", "c"))
    made.add_conditional_edges("c", lambda s: "d", ["b", "d"])
    made.add_conditional_edges("d", lambda s: END, ["a", END])
    return made


def routed_at_the_start() -> StateGraph:
    made = edges(builder("a", "b", "c"), ("a", "c"), ("b", "c"), ("c", END))
    made.add_conditional_edges(START, lambda s: "a", ["a", "b"])
    return made


def typed_router() -> StateGraph:
    def route(state: State) -> Literal["b", "c"]:
        return "b"

    made = edges(builder("a", "b", "c"), (START, "a"), ("b", END), ("c", END))
    made.add_conditional_edges("a", route)
    return made


def undeclared_router() -> StateGraph:
    made = edges(builder("a", "b", "c"), (START, "a"), ("b", END), ("c", END))
    made.add_conditional_edges("a", lambda s: "b")
    return made


def sent() -> StateGraph:
    made = edges(builder("plan", "search", "judge"), (START, "plan"), ("search", "judge"), ("judge", END))
    made.add_conditional_edges("plan", lambda s: [Send("search", s)] * 3, ["search"])
    return made


def commanded() -> StateGraph:
    def supervise(state: State) -> Command[Literal["coder", "tester", "__end__"]]:
        return Command(goto=END)

    made = StateGraph(State)
    made.add_node("supervisor", supervise)
    for name in ("coder", "tester"):
        made.add_node(name, nothing)
        made.add_edge(name, "supervisor")
    made.add_edge(START, "supervisor")
    return made


def destinations() -> StateGraph:
    made = builder("b", "c")
    made.add_node("a", nothing, destinations=("b", "c"))
    return edges(made, (START, "a"), ("b", END), ("c", END))


def nested() -> StateGraph:
    inner = edges(builder("search", "read"), (START, "search"), ("search", "read"), ("read", END))
    made = builder("plan", "write")
    made.add_node("research", inner.compile())
    return edges(made, (START, "plan"), ("plan", "research"), ("research", "write"), ("write", END))


def nested_with_a_loop() -> StateGraph:
    made = builder("plan", "write")
    made.add_node("agent", react().compile())
    return edges(made, (START, "plan"), ("plan", "agent"), ("agent", "write"), ("write", END))


def sequence() -> StateGraph:
    made = StateGraph(State).add_sequence([("a", nothing), ("b", nothing), ("c", nothing)])
    return edges(made, (START, "a"))


END_ = "end"
SHAPES: list[tuple[Callable[[], StateGraph], dict[str, float]]] = [
    (one, {"a": 0, END_: 1}),
    (chain, {"a": 0, "b": 1, "c": 2, END_: 3}),
    (chain_without_end, {"a": 0, "b": 1, END_: 2}),
    (two_ways_in, {"a": 0, "b": 0, "c": 1, END_: 2}),
    (diamond_that_waits, {"a": 0, "b": 1, "b2": 2, "c": 1, "d": 3, END_: 4}),
    (diamond_that_does_not_wait, {"a": 0, "b": 1, "b2": 2, "c": 1, "d": 2, END_: 3}),
    (deferred, {"a": 0, "b": 1, "b2": 2, "c": 1, "d": 3, END_: 4}),
    (react, {"agent": 0, "tools": 1, END_: 1}),
    (loop_of_three, {"plan": 0, "act": 1, "judge": 2, END_: 3}),
    (loop_to_itself, {"a": 0, "b": 1, END_: 2}),
    (loops_within_loops, {"a": 0, "b": 1, "c": 2, "d": 3, END_: 4}),
    (routed_at_the_start, {"a": 0, "b": 0, "c": 1, END_: 2}),
    (typed_router, {"a": 0, "b": 1, "c": 1, END_: 2}),
    (undeclared_router, {"a": 0, "b": 1, "c": 1, END_: 1}),
    (sent, {"plan": 0, "search": 1, "judge": 2, END_: 3}),
    (commanded, {"supervisor": 0, "coder": 1, "tester": 1, END_: 1}),
    (destinations, {"a": 0, "b": 1, "c": 1, END_: 2}),
    (nested, {"plan": 0, "research/search": 1, "research/read": 2, "write": 3, END_: 4}),
    (nested_with_a_loop, {"plan": 0, "agent/agent": 1, "agent/tools": 2, "write": 2, END_: 3}),
    (sequence, {"a": 0, "b": 1, "c": 2, END_: 3}),
]
# The last step runs, those before it are done.
WALKED: list[tuple[Callable[[], StateGraph], list[str], dict[str, float]]] = [
    (chain, ["a", "b"], {"a": inf, "b": 0, "c": 1, END_: 2}),
    (react, ["agent"], {"agent": 0, "tools": 1, END_: 1}),
    (react, ["agent", "tools"], {"agent": 1, "tools": 0, END_: 2}),
    (loop_of_three, ["plan", "act", "judge"], {"plan": 1, "act": 2, "judge": 0, END_: 1}),
    (diamond_that_waits, ["a", "c", "b"], {"a": inf, "b": 0, "b2": 1, "c": inf, "d": 2, END_: 3}),
    (diamond_that_does_not_wait, ["a", "c", "b"], {"a": inf, "b": 0, "b2": 1, "c": inf, "d": 1, END_: 2}),
    (diamond_that_does_not_wait, ["a", "c"], {"a": inf, "b": 1, "b2": 2, "c": 0, "d": 1, END_: 2}),
    (typed_router, ["a", "b"], {"a": inf, "b": 0, "c": inf, END_: 1}),
    (nested, ["plan", "research/search"], {"plan": inf, "research/search": 0, "research/read": 1, "write": 2, END_: 3}),
]


@pytest.mark.parametrize("make, steps", SHAPES, ids=[make.__name__ for make, _ in SHAPES])
def test_distances_equal_a_count_by_hand(make: Callable[[], StateGraph], steps: dict[str, float]) -> None:
    app = make().compile()
    made = Graph.sound(graph(app))
    assert Position(made).all_steps() == steps
    assert kvpolicy.Engine(blocks=8).run(workflow=app).workflow == made.name  # the framework's own graph is taken


@pytest.mark.parametrize("make, walked, steps", WALKED, ids=[f"{m.__name__}-{'-'.join(w)}" for m, w, _ in WALKED])
def test_distances_on_the_way(make: Callable[[], StateGraph], walked: list[str], steps: dict[str, float]) -> None:
    position = Position(Graph.sound(graph(make().compile())))
    for node in walked[:-1]:
        position.start(node)
        position.end(node)
    position.start(walked[-1])
    assert position.all_steps() == steps


def test_a_run_of_the_real_graph_agrees_with_the_distances() -> None:
    """The steps that LangGraph takes are the ones counted: the first time that each node runs."""
    for make in (chain, two_ways_in, diamond_that_waits, nested, sent, loop_of_three):
        app, first = make().compile(), {}
        for space, step in app.stream({"x": 0}, stream_mode="debug", subgraphs=True):
            if step["type"] == "task" and not space:
                first.setdefault(step["payload"]["name"], step["step"] - 1)
        counted = Position(Graph.sound(graph(app))).all_steps()
        assert {n: s for n, s in first.items() if n in counted and n != "write"} == {
            n: counted[n] for n in first if n in counted and n != "write"
        }, make.__name__
