"""Graphs of LlamaIndex agents: a node each, an edge wherever one may hand off; distances counted by hand."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.llms import MockLLM

import kvpolicy
from kvpolicy.adapters.frameworks.llama_index import graph
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position

END = "end"


def agent(name: str, to: list[str] | None = None) -> FunctionAgent:
    return FunctionAgent(name=name, description=f"It is {name}.", llm=MockLLM(), can_handoff_to=to)


def team(*agents: FunctionAgent, root: str, **more: Any) -> AgentWorkflow:
    return AgentWorkflow(agents=list(agents), root_agent=root, **more)


@pytest.mark.parametrize(
    ("made", "steps"),
    [
        (agent("alone"), {"alone": 0, END: 1}),
        (team(agent("one", []), root="one"), {"one": 0, END: 1}),
        (team(agent("c", []), agent("b", ["c"]), agent("a", ["b"]), root="a"), {"a": 0, "b": 1, "c": 2, END: 1}),
        (team(agent("hub"), agent("x", ["hub"]), agent("y", ["hub"]), root="hub"), {"hub": 0, "x": 1, "y": 1, END: 1}),
        (team(agent("a"), agent("b"), agent("c"), root="b"), {"b": 0, "a": 1, "c": 1, END: 1}),
        (team(agent("a", ["b", "gone"]), agent("b", []), agent("never"), root="a"), {"a": 0, "b": 1, END: 1}),
    ],
)
def test_graphs_of_agents(made: Any, steps: dict[str, float]) -> None:
    read = Graph.sound(graph(made))
    assert Position(read).all_steps() == steps
    assert kvpolicy.Engine(blocks=8).run(workflow=made).workflow == read.name


def test_after_a_handoff_only_what_may_still_come_is_near() -> None:
    made = team(agent("a", ["b", "c"]), agent("b", ["c"]), agent("c", []), root="a")
    position = Position(Graph.sound(graph(made)))
    position.start("a")
    position.end("a")
    position.start("b")
    assert position.all_steps() == {"a": inf, "b": 0, "c": 1, END: 1}
    assert graph(made)["name"] == "a-handoffs"
    assert graph(team(agent("a"), root="a", workflow_name="desk"))["name"] == "desk"
