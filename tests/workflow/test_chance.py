"""How likely a node is to be visited again: against all ways a run may go, by history, by scores."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvpolicy.policy.model import Subject
from kvpolicy.request import Owner
from kvpolicy.workflow.chance import Chances
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import AGENT, Graph, GraphEdge
from kvpolicy.workflow.position import Position
from kvpolicy.workflow.state import RunState

OWNER = Owner("t", "s", None, "writer")
WHOSE = {"tenant": "t", "session": "s"}


SHAPE = [["s", "a"], ["s", "b"], ["a", "j"], ["b", "j"]]


def by_all_ways(graph: Graph, node: int, target: int, taken: dict[int, int], least: float = 1e-7) -> float:
    """P(target is visited after `node`): every way is walked until it is too unlikely to matter."""
    if least > 1.0:
        return 0.0
    edges = graph.out_of[node]
    stated = sum(graph.edges[e].probability or 0.0 for e in edges)
    bare = [e for e in edges if graph.edges[e].probability is None]
    share = {e: graph.edges[e].probability for e in edges}
    share |= {e: max(0.0, 1.0 - stated) / len(bare) for e in bare}
    bound = {e: graph.edges[e].at_most for e in edges}
    open_ones = [e for e in edges if bound[e] is None or taken.get(e, 0) < bound[e]]
    closed = sum(share[e] for e in edges if e not in open_ones)
    left = sum(share[e] for e in open_ones)
    total = 0.0
    for e in open_ones:
        p = share[e] * (1 + closed / left) if left else 1 / len(open_ones)
        if graph.targets[e] == target:
            total += p
        elif p:
            total += p * by_all_ways(graph, graph.targets[e], target, {**taken, e: taken.get(e, 0) + 1}, least / p)
    return total


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Conditional edges forwards, loops with bounds backwards; no joins, so that a run is at one place at a time."""
    count = draw(st.integers(2, 6))
    names = [f"n{i}" for i in range(count)]
    forward = [(names[i], names[j]) for j in range(1, count) for i in range(j)]
    pairs = draw(st.lists(st.sampled_from(forward), min_size=1, max_size=8, unique=True))
    edges = [GraphEdge(a, b, probability=draw(st.sampled_from((None, 0.1, 0.3, 0.5)))) for a, b in pairs]
    for b, a in draw(st.lists(st.sampled_from(forward), max_size=2, unique=True)):
        edges.append(GraphEdge(a, b, None, draw(st.integers(0, 2)), True, draw(st.sampled_from((None, 0.2, 0.5)))))
    return Graph(dict.fromkeys(names, AGENT), edges)


@settings(max_examples=200, deadline=None)
@given(graphs(), st.data())
def test_the_chance_is_that_of_all_ways(graph: Graph, data: st.DataObject) -> None:
    for index in range(len(graph.names)):
        assume(sum(graph.edges[e].probability or 0.0 for e in graph.out_of[index]) <= 1.0)
    node = data.draw(st.integers(0, len(graph.names) - 1))
    position = Position(graph)
    position.start(graph.names[node])
    position.entry = set()
    for target in range(len(graph.names)):
        expected = by_all_ways(graph, node, target, dict(enumerate(position.taken)))
        assert Chances(position).of(target) == pytest.approx(expected, abs=1e-4)


def test_a_loop_without_a_bound_and_a_chosen_way() -> None:
    edges = [GraphEdge("a", "b"), GraphEdge("b", "a", None, None, True, 0.8), GraphEdge("b", "c", probability=0.2)]
    graph = Graph(dict.fromkeys("abc", AGENT), edges)
    position = Position(graph)
    position.start("b")
    assert Chances(position).of(0) == pytest.approx(0.8)
    assert Chances(position).of(1) == pytest.approx(0.8)
    assert Chances(position).of(2) == pytest.approx(1.0)
    position.end("b")
    assert Chances(position).of(0) == pytest.approx(0.8)  # not chosen yet
    position.start("a")
    assert Chances(position).of(1) == pytest.approx(1.0)


def test_ways_taken_together_are_certain() -> None:
    document = {
        "nodes": ["s", "a", "b", {"name": "j", "role": "barrier"}, "rare", "usual"],
        "edges": [*SHAPE, {"from": "j", "to": "rare", "probability": 0.1}, ["j", "usual"]],
    }
    graph = Graph.build(document)
    position = Position(graph)
    position.start("s")
    chances = {name: Chances(position).of(index) for index, name in enumerate(graph.names)}
    assert chances == pytest.approx({"s": 0, "a": 1, "b": 1, "j": 1, "rare": 0.1, "usual": 0.9})


def ask(state: RunState, node: str, within: float | None = None, **attributes: object) -> float | None:
    return state.read("reuse_probability", within, Subject("turn", {"node": node, **attributes}, OWNER))


GRAPH = Graph.build({"nodes": ["plan", "writer", "editor"], "edges": [["plan", "writer"], ["plan", "editor"]]})


def step(state: RunState, run: str, node: str, at: float, seconds: float = 1.0) -> None:
    for name, when in (("step_start", at), ("step_end", at + seconds)):
        state.observe(Event(when, name, {"tenant": "t", "run": run, "node": node}))


def test_what_runs_did_counts_for_the_next() -> None:
    state = RunState(graph=GRAPH)
    owner = Owner("t", None, "new", "writer")
    state.observe(Event(0.0, "step_start", {"tenant": "t", "run": "new", "node": "plan"}))
    writer = Subject("turn", {"node": "writer"}, owner)
    assert state.read("reuse_probability", None, writer) == 0.5  # one of two, nothing is stated
    for number in range(12):
        run = f"r{number}"
        state.know(Owner("t", None, run, "plan"))
        step(state, run, "plan", 10.0 * number + 1)
        step(state, run, "writer" if number % 4 else "editor", 10.0 * number + 3)
        state.observe(Event(10.0 * number + 5, "workflow_end", {"tenant": "t", "run": run}))
    assert state.read("reuse_probability", None, writer) == pytest.approx((4 * 0.5 + 9) / (4 + 12))
    other = Subject("turn", {"node": "writer"}, Owner("u", None, "new", "writer"))
    state.observe(Event(200.0, "step_start", {"tenant": "u", "run": "new", "node": "plan"}))
    assert state.read("reuse_probability", None, other) == 0.5  # another tenant's runs say nothing


def test_the_same_graph_described_again_is_the_same_workflow() -> None:
    """Whoever passes a graph with every run makes it anew each time."""
    state = RunState()
    document = {"nodes": ["plan", "writer", "editor"], "edges": [["plan", "writer"], ["plan", "editor"]]}
    for number in range(12):
        state.runs.describe(Graph.build(document, f"call {number}"))
        step(state, f"r{number}", "plan", 10.0 * number + 1)
        step(state, f"r{number}", "writer", 10.0 * number + 3)
        state.observe(Event(10.0 * number + 5, "workflow_end", {"tenant": "t", "run": f"r{number}"}))
        if number == 5:  # another one in between
            state.runs.describe(Graph.build({"nodes": ["other"]}))
    state.observe(Event(500.0, "step_start", {**WHOSE, "node": "plan"}))
    assert ask(state, "writer") == pytest.approx((4 * 0.5 + 12) / (4 + 12))


def test_within_a_time_by_how_long_steps_take() -> None:
    state = RunState(graph=Graph.build({"nodes": ["plan", "writer"], "edges": [["plan", "writer"]]}))
    assert ask(state, "writer") == 1.0
    state.observe(Event(0.0, "step_start", {**WHOSE, "node": "plan"}))
    assert ask(state, "writer", 5.0) is None  # nobody knows how long it takes
    for number in range(10):
        step(state, f"r{number}", "plan", 1.0, float(number + 1))
    state.observe(Event(20.0, "step_end", {**WHOSE, "node": "plan"}))
    state.observe(Event(30.0, "workflow_end", dict(WHOSE)))
    state.observe(Event(40.0, "step_start", {**WHOSE, "node": "plan"}))
    chances = [ask(state, "writer", within) for within in (0.5, 3.0, 6.0, 1e6)]
    assert None not in chances
    assert sorted(chances) == chances and chances[0] < 0.1 and chances[-1] > 0.9  # type: ignore[type-var,operator]


def test_scores_compare_branches_of_one_run() -> None:
    state = RunState(graph=GRAPH)
    state.observe(Event(0.0, "step_start", {**WHOSE, "node": "plan"}))
    for branch, score in (("b1", 0.8), ("b2", 0.4), ("b3", 1.6)):
        state.observe(Event(1.0, "branch_scored", {**WHOSE, "branch": branch, "score": score}))
    assert ask(state, "writer", branch="b2") == pytest.approx(0.5 * 0.25)
    state.observe(Event(2.0, "branch_pruned", {**WHOSE, "branch": "b3"}))
    assert ask(state, "writer", branch="b2") == pytest.approx(0.5 * 0.5)
    assert ask(state, "writer", branch="b1") == pytest.approx(0.5)
    assert ask(state, "writer", branch="b3", status="pruned") == 0.0
    assert ask(state, "writer", branch="unscored") == 0.5
