"""The time until a node may start, along the graph: hand-made tables, and the distances where every step takes 1 s."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy.model import NEVER, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.ahead import seconds_to_start
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.learned_times import TOOL
from kvpolicy.workflow.position import Position
from kvpolicy.workflow.state import RunState
from tests.workflow.test_distance import graph, on_the_way, worlds

WHOSE = {"tenant": "t", "session": "s"}


def after(g: Graph, *happened: str) -> Position:
    position = Position(g)
    for step in happened:
        (position.start if step[0] == "+" else position.end)(step[1:])
    return position


def table(position: Position, takes: dict[str, float], left: dict[str, float]) -> dict[str, float | None]:
    names = position.graph.names
    found = {
        name: seconds_to_start(position, index, lambda i: left.get(names[i]), lambda i: takes.get(names[i]))
        for index, name in enumerate(names)
    }
    return {name: None if row is None else row[0] for name, row in found.items()}


def test_joins_wait_for_the_last_or_for_the_first() -> None:
    takes = {"s": 1.0, "a": 10.0, "b": 2.0, "b2": 3.0, "j": 0.0, "end": 4.0}
    both = after(graph("s>a s>b b>b2 a>j b2>j j>end", joins="j"), "+s", "-s", "+a", "+b")
    assert table(both, takes, {"a": 1.5, "b": 0.5}) == {"s": None, "a": 0, "b": 0, "b2": 0.5, "j": 3.5, "end": 3.5}
    assert table(both, takes, {"a": 9.0, "b": 0.5}) == {"s": None, "a": 0, "b": 0, "b2": 0.5, "j": 9.0, "end": 9.0}
    first = after(graph("s>a s>b b>b2 a>j b2>j j>end"), "+a", "+b")
    assert table(first, takes, {"a": 9.0, "b": 0.5})["j"] == 3.5
    assert table(first, takes, {"b": 0.5})["j"] == 3.5  # of the other way nothing is known
    assert table(both, takes, {"b": 0.5})["j"] is None  # here it is needed


def test_more_steps_may_take_less_time() -> None:
    g = graph("s>slow slow>end s>q1 q1>q2 q2>end")
    position = after(g, "+s")
    takes = {"slow": 60.0, "q1": 1.0, "q2": 1.0}
    assert position.steps("end") == 2
    assert table(position, takes, {"s": 5.0})["end"] == 7.0


@settings(max_examples=300)
@given(worlds(), st.integers(0, 3))
def test_seconds_are_steps_where_every_step_takes_one(drawn: tuple, ended: int) -> None:
    _, g, order = drawn
    position = on_the_way(g, order, ended)
    for node, steps in position.all_steps().items():
        found = seconds_to_start(position, g.number[node], lambda i: 1.0, lambda i: 1.0)
        due = position.ready(g.number[node], 0) and not position.running[g.number[node]]
        if steps is NEVER:
            assert found is None
        elif not any(position.tokens):
            assert found is not None and found[0] == steps and not due
        else:  # what is due may start at once, and counts as one step all the same
            assert found is not None and steps - 1 <= found[0] <= steps


def state_of(document: dict) -> RunState:
    """A run state that has seen plan take 10 s and search 20 s (and grep 5 s) ten times."""
    state = RunState(graph=Graph.build(document))
    times = state.learned.times("t")
    for _ in range(10):
        times.stepped("plan", 10.0, 0.0)
        times.stepped("search", 20.0, 0.0)
        times.over(TOOL, "grep", -5.0, 0.0)
    return state


CHAIN = {"nodes": ["plan", "search", "write"], "edges": [["plan", "search"], ["search", "write"]]}


def next_use(state: RunState, node: str) -> float | None:
    return state.read("next_use", None, Subject("turn", {"node": node}, Owner("t", "s")))


def test_each_node_takes_its_own_time() -> None:
    state = state_of(CHAIN)
    state.observe(Event(100.0, "step_start", {**WHOSE, "node": "plan"}))
    state.advance(104.0)
    assert next_use(state, "search") == pytest.approx(6.0)
    assert next_use(state, "write") == pytest.approx(26.0)
    state.observe(Event(110.0, "step_end", {**WHOSE, "node": "plan"}))
    assert next_use(state, "plan") == NEVER
    assert next_use(state, "search") == pytest.approx(0.0)
    assert next_use(state, "write") == pytest.approx(20.0)


def test_a_step_that_has_outlasted_all_others_does_not_end_at_once() -> None:
    state = state_of(CHAIN)
    state.observe(Event(100.0, "step_start", {**WHOSE, "node": "plan"}))
    state.advance(160.0)
    left = next_use(state, "search")
    assert left is not None and left > 10.0


def test_whoever_stands_at_a_running_node_holds_it_up_by_its_pause() -> None:
    """The step would be over by its own time, but the tool that runs in it takes longer."""
    state = state_of(CHAIN)
    planner = Owner("t", "s", None, "plan")
    request = Request("r", planner, 10, 16)
    state.arrive(request, 100.0)
    state.observe(Event(100.0, "step_start", {**WHOSE, "node": "plan"}))
    state.answer(request, 109.0, tool_calls=[("grep", "c1")])
    assert next_use(state, "search") == pytest.approx(5.0)  # not 1
    state.observe(Event(109.5, "tool_call", {**WHOSE, "agent": "plan", "tool": "slow", "call": "c2", "eta": 40.0}))
    assert next_use(state, "search") == pytest.approx(40.0)


def test_nothing_is_said_of_times_that_nobody_knows() -> None:
    state = RunState(graph=Graph.build(CHAIN))
    state.observe(Event(100.0, "step_start", {**WHOSE, "node": "plan"}))
    assert next_use(state, "search") is None
    assert state.read("steps_to_next_use", None, Subject("turn", {"node": "search"}, Owner("t", "s"))) == 1
