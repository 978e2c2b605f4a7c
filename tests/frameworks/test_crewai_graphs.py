"""Graphs of CrewAI's crews and flows, as the real package builds them: distances counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Flow, Process, Task
from crewai.flow.flow import and_, listen, or_, router, start
from crewai.tasks.conditional_task import ConditionalTask

import kvpolicy
from kvpolicy.adapters.frameworks.crewai import graph
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position

SIM = LLM(model="sim", provider="openai", base_url="http://127.0.0.1:9/v1", api_key="none")
ROLES = {role: Agent(role=role, goal="Be done.", backstory="None.", llm=SIM) for role in "abcde"}
MAIN = Agent(role="main", goal="Lead.", backstory="None.", llm=SIM)


def steps(of: Any) -> dict[str, float]:
    return Position(Graph.sound(graph(of))).all_steps()


def crew(words: str, **more: Any) -> Crew:
    """One of words such as `a b* c? d`: a task of each agent, `*` on the side, `?` under a condition."""
    tasks = []
    for word in words.split():
        told: dict[str, Any] = {"description": "x", "expected_output": "x", "agent": ROLES[word[0]]}
        if word.endswith("?"):
            tasks.append(ConditionalTask(condition=lambda output: True, **told))
        else:
            tasks.append(Task(async_execution=word.endswith("*"), **told))
    return Crew(agents=list(ROLES.values()), tasks=tasks, **more)


CREWS: list[tuple[str, dict[str, float]]] = [
    ("a", {"a": 0, "end": 1}),
    ("a b c", {"a": 0, "b": 1, "c": 2, "end": 3}),
    # Tasks on the side begin together; what follows waits for all of them.
    ("a b* c* d", {"a": 0, "b": 1, "c": 1, "d": 2, "end": 3}),
    ("a* b* c", {"a": 0, "b": 0, "c": 1, "end": 2}),
    ("a b* c d*", {"a": 0, "b": 1, "c": 2, "d": 3, "end": 4}),
    # A task under a condition may be passed over.
    ("a b? c", {"a": 0, "b": 1, "c": 1, "end": 2}),
    ("a b? c? d", {"a": 0, "b": 1, "c": 1, "d": 1, "end": 2}),
    ("a b?", {"a": 0, "b": 1, "end": 1}),
    ("a b* c* d? e", {"a": 0, "b": 1, "c": 1, "before d": 2, "d": 3, "e": 3, "end": 4}),
    # An agent with several tasks is one node, which is come to in the nearest way.
    ("a b a c", {"a": 0, "b": 1, "c": 1, "end": 2}),
    ("a a b", {"a": 0, "b": 1, "end": 2}),
    ("a b* b* c", {"a": 0, "b": 1, "c": 2, "end": 3}),
    ("a b* c* a", {"a": 0, "b": 1, "c": 1, "before a": 2, "end": 1}),
]


@pytest.mark.parametrize(("words", "expected"), CREWS, ids=[words for words, _ in CREWS])
def test_crews(words: str, expected: dict[str, float]) -> None:
    assert steps(crew(words)) == expected


def test_steps_from_within_a_crew() -> None:
    position = Position(Graph.sound(graph(crew("a b* c* d"))))
    position.start("a")
    position.end("a")
    assert position.all_steps() == {"a": float("inf"), "b": 1, "c": 1, "d": 2, "end": 3}


def test_a_manager_calls_the_others() -> None:
    agents = [ROLES["a"], ROLES["b"]]
    tasks = [Task(description="x", expected_output="x") for _ in range(2)]
    told: dict[str, Any] = {"agents": agents, "tasks": tasks, "process": Process.hierarchical}
    assert steps(Crew(**told, manager_agent=MAIN)) == {"main": 0, "a": 1, "b": 1, "end": 1}
    assert steps(Crew(**told, manager_llm=SIM)) == {"Crew Manager": 0, "a": 1, "b": 1, "end": 1}


def test_names() -> None:
    agent = Agent(role="{topic}\n  writer\n", goal="x", backstory="x", llm=SIM)
    named = Crew(name="my  crew", agents=[agent], tasks=[Task(description="x", expected_output="x", agent=agent)])
    agent.interpolate_inputs({"topic": "rain"})
    assert graph(named)["name"] == "my crew" and steps(named) == {"{topic} writer": 0, "end": 1}
    assert kvpolicy.Engine(blocks=8).run(named).workflow == "my crew"  # found by its entry point


class Chain(Flow[Any]):
    @start()
    def a(self) -> None: ...
    @listen(a)
    def b(self) -> None: ...
    @listen(b)
    def c(self) -> None: ...


class Fan(Flow[Any]):
    """Two that listen to one are taken together; `and_` waits for both."""

    @start()
    def a(self) -> None: ...
    @listen(a)
    def b(self) -> None: ...
    @listen(b)
    def b2(self) -> None: ...
    @listen(a)
    def c(self) -> None: ...
    @listen(and_(b2, c))
    def d(self) -> None: ...


class First(Flow[Any]):
    """`or_` goes on with the first."""

    @start()
    def a(self) -> None: ...
    @listen(a)
    def b(self) -> None: ...
    @listen(b)
    def b2(self) -> None: ...
    @listen(a)
    def c(self) -> None: ...
    @listen(or_(b2, c))
    def d(self) -> None: ...


class Starts(Flow[Any]):
    @start()
    def a(self) -> None: ...
    @start()
    def b(self) -> None: ...
    @listen(and_(a, b))
    def c(self) -> None: ...


class Routed(Flow[Any]):
    @start()
    def a(self) -> None: ...
    @router(a, emit=["left", "right", "none"])
    def way(self) -> str:
        return "left"

    @listen("left")
    def b(self) -> None: ...
    @listen("left")
    def b2(self) -> None: ...
    @listen("right")
    def c(self) -> None: ...
    @listen(c)
    def c2(self) -> None: ...


class Round(Flow[Any]):
    """Again, until it is good."""

    @start("again")
    def a(self) -> None: ...
    @listen(a)
    def b(self) -> None: ...
    @router(b, emit=["again", "good"])
    def judge(self) -> str:
        return "good"

    @listen("good")
    def c(self) -> None: ...


class Nested(Flow[Any]):
    """One of two ways, of which one waits: the inner condition is a barrier, a step of its own."""

    @start()
    def a(self) -> None: ...
    @start()
    def b(self) -> None: ...
    @listen(b)
    def b2(self) -> None: ...
    @listen(b2)
    def c(self) -> None: ...
    @listen(or_(and_(a, b2), c))
    def d(self) -> None: ...


class Waits(Flow[Any]):
    """Both, of which one may come in two ways."""

    @start()
    def a(self) -> None: ...
    @start()
    def b(self) -> None: ...
    @listen(b)
    def b2(self) -> None: ...
    @listen(and_(or_(a, b2), b))
    def d(self) -> None: ...


class Open(Flow[Any]):
    """A router that does not say what it answers may answer whatever is listened for."""

    @start()
    def a(self) -> None: ...
    @router(a)
    def way(self) -> Any:
        return self.state["way"]

    @listen("x")
    def b(self) -> None: ...
    @listen("y")
    def c(self) -> None: ...


FLOWS: list[tuple[Any, dict[str, float]]] = [
    (Chain, {"a": 0, "b": 1, "c": 2, "end": 3}),
    (Fan, {"a": 0, "b": 1, "b2": 2, "c": 1, "d": 3, "end": 4}),
    (First, {"a": 0, "b": 1, "b2": 2, "c": 1, "d": 2, "end": 3}),
    (Starts, {"a": 0, "b": 0, "c": 1, "end": 2}),
    (Routed, {"a": 0, "way": 1, "b": 2, "b2": 2, "c": 2, "c2": 3, "end": 2}),
    (Round, {"a": 0, "b": 1, "judge": 2, "c": 3, "end": 4}),
    (Nested, {"a": 0, "b": 0, "b2": 1, "c": 2, "d.1": 2, "d": 3, "end": 4}),
    (Waits, {"a": 0, "b": 0, "b2": 1, "d.1": 1, "d": 2, "end": 3}),
    (Open, {"a": 0, "way": 1, "b": 2, "c": 2, "end": 2}),
]


@pytest.mark.parametrize(("flow", "expected"), FLOWS, ids=[flow.__name__ for flow, _ in FLOWS])
def test_flows(flow: Any, expected: dict[str, float]) -> None:
    assert steps(flow) == expected
    assert steps(flow()) == expected


def test_what_is_taken_together() -> None:
    groups = {(edge["from"], edge["to"]): edge.get("group") for edge in graph(Routed)["edges"]}
    assert groups["way", "b"] == groups["way", "b2"] != groups["way", "c"]
    assert graph(Fan)["joins"]["d"] == "and" and "d" not in graph(First)["joins"]
    assert [edge for edge in graph(Round)["edges"] if edge.get("loop")] == [
        {"from": "judge", "to": "a", "loop": True, "group": "judge again"}
    ]
