"""Nested workflows, sub-agents, and counts of fan-outs that are told at run time."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.cli.main import main
from kvpolicy.faults import ERROR, InputFault
from kvpolicy.language.callers import circles
from kvpolicy.language.parse import parse
from kvpolicy.policy.model import NEVER, Subject
from kvpolicy.request import Owner
from kvpolicy.workflow.chance import Chances
from kvpolicy.workflow.events import event_from_row
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position
from kvpolicy.workflow.state import RunState

INNER = {"nodes": ["search", "read"], "edges": [["search", "read"]]}
FORKED = {"nodes": ["split", "left", "right"], "edges": [["split", "left"], ["split", "right"]]}


def outer(inner: object, **more: object) -> dict:
    research = {"name": "research", "workflow": inner, **more}
    return {"nodes": ["plan", research, "write"], "edges": [["plan", "research"], ["research", "write"]]}


def after(graph: Graph, *happened: str) -> dict[str, float]:
    position = Position(graph)
    for step in happened:
        (position.start if step[0] == "+" else position.end)(step[1:])
    return position.all_steps()


def test_a_nested_workflow_stands_in_place_of_its_node() -> None:
    graph = Graph.build(outer(INNER))
    assert graph.check() == ()
    assert after(graph) == {"plan": 0, "research/search": 1, "research/read": 2, "write": 3}
    assert after(graph, "+plan", "-plan", "+search") == {  # by its own name, as nobody else bears it
        "plan": NEVER,
        "research/search": 0,
        "research/read": 1,
        "write": 2,
    }


@pytest.mark.parametrize(
    ("ends", "happened", "write"),
    [
        (None, ("+split", "-split", "+left"), 2),  # with the first of its ends it is over
        (None, ("+split", "-split", "+left", "-left"), 2),
        ("or", ("+split", "-split", "+left", "-left", "+research"), 1),
        ("and", ("+split", "-split", "+left"), 3),
        ("and", ("+split", "-split", "+left", "-left", "+right"), 2),
    ],
)
def test_several_ends_meet_in_a_node_of_its_name(ends: str | None, happened: tuple[str, ...], write: int) -> None:
    graph = Graph.build(outer(FORKED, **({} if ends is None else {"ends": ends})))
    assert graph.joins["research"] == (ends or "or")
    assert after(graph, *happened)["write"] == write


def test_several_entries_are_entered_together() -> None:
    inner = {"nodes": ["a", "b", "end"], "edges": [["a", "end"], ["b", "end"]]}
    graph = Graph.build(outer(inner))
    steps = after(graph, "+plan", "-plan", "+research/a")
    assert (steps["research/b"], steps["research/end"], steps["write"]) == (1, 1, 2)


def test_nested_within_nested_and_loops_around_it() -> None:
    document = outer(outer(INNER))
    document["loops"] = [{"from": "write", "to": "research", "at_most": 1}]
    graph = Graph.build(document)
    assert [n for n in graph.nodes if n.count("/") == 2] == ["research/research/search", "research/research/read"]
    assert graph.find("search") == graph.number["research/research/search"]
    assert graph.find("write") == graph.number["write"]  # an outer node's own name comes first
    assert after(graph, *(sign + n for n in graph.nodes for sign in "+-"))["research/plan"] == 1
    twice = [sign + n for n in graph.nodes for sign in "+-"] + [s + n for n in list(graph.nodes)[1:] for s in "+-"]
    assert after(graph, *twice)["research/plan"] == NEVER  # the loop is used up


def test_several_instances_of_a_nested_workflow() -> None:
    document = outer(INNER)
    document["edges"] = [{"from": "plan", "to": "research", "times": "n"}, ["research", "judge"], ["judge", "write"]]
    document["nodes"].insert(2, {"name": "judge", "role": "barrier"})
    position = Position(Graph.build(document))
    position.fan_out("n", 2)
    for step in ("+plan", "-plan", "+search", "+search", "-search", "+read", "-read", "-search"):
        (position.start if step[0] == "+" else position.end)(step[1:])
    assert (position.steps("read"), position.steps("judge")) == (1, 2)  # one is still to read
    position.start("read")
    assert position.steps("judge") == 1
    position.end("read")
    assert (position.steps("judge"), position.steps("read")) == (1, NEVER)


def test_the_same_from_networkx() -> None:
    inner, drawn = networkx.DiGraph([("search", "read")]), networkx.DiGraph()
    drawn.add_node("plan")
    drawn.add_node("research", workflow=inner)
    drawn.add_node("write")
    drawn.add_node("helper", parent="write")
    drawn.add_edges_from([("plan", "research"), ("research", "write")])
    one = Graph.build(drawn)
    two = Graph.build({**outer(INNER), "nodes": [*outer(INNER)["nodes"], {"name": "helper", "parent": "write"}]})
    assert (one.nodes, set(one.edges), one.joins) == (two.nodes, set(two.edges), two.joins)


def test_faults_within_are_named_and_endless_nesting_is_refused() -> None:
    loop = {"nodes": ["x", "y"], "edges": [["x", "y"], ["y", "x"], ["y", "ghost"]]}
    found = Graph.build({"nodes": ["plan", {"name": "r", "workflow": loop}], "edges": [["plan", "r"]]}).check()
    assert [d.name for d in found] == ["unknown-name", "loop-without-exit", "UNREACHABLE_NODE"]
    assert "r/x -> r/y -> r/x" in found[1].message
    endless: dict = {"nodes": []}
    endless["nodes"].append({"name": "again", "workflow": endless})
    with pytest.raises(InputFault, match="deep"):
        Graph.build(endless)
    for wrong in ({"workflow": {"nodes": []}}, {"workflow": 7}, {"parent": 3}, {"workflow": INNER, "ends": "xor"}):
        with pytest.raises(InputFault):
            Graph.build({"nodes": [{"name": "a", **wrong}]})


def test_a_sub_agent_is_called_while_its_caller_runs() -> None:
    nodes = ["plan", "code", {"name": "search", "parent": "code"}, "review"]
    graph = Graph.build({"nodes": nodes, "edges": [["plan", "code"], ["code", "review"]]})
    assert graph.check() == ()
    assert after(graph) == {"plan": 0, "code": 1, "search": 2, "review": 2}
    assert after(graph, "+code") == {"plan": NEVER, "code": 0, "search": 1, "review": 1}
    assert after(graph, "+code", "+search", "-search") == {"plan": NEVER, "code": 0, "search": 1, "review": 1}
    assert after(graph, "+code", "+search", "-code")["review"] == 1  # the caller did not wait for it
    assert after(graph, "+code", "+search", "-search", "-code") == {
        "plan": NEVER,
        "code": NEVER,
        "search": NEVER,
        "review": 1,
    }


def test_a_barrier_does_not_wait_for_who_calls_it() -> None:
    """So a way to its caller and one to itself do not meet there: a run takes one of them."""
    nodes = ["plan", "code", {"name": "gate", "role": "barrier", "parent": "code"}]
    told = {"from": "plan", "probability": 0.7}, {"from": "plan", "probability": 0.3}
    graph = Graph.sound({"nodes": nodes, "edges": [told[0] | {"to": "code"}, told[1] | {"to": "gate"}]})
    assert len(graph.ways.alternatives(graph.number["plan"])) == 2
    position = Position(graph)
    position.start("plan")
    chances = [Chances(position).of(graph.number[name]) for name in ("code", "gate")]
    assert chances == pytest.approx([0.7, 0.3 + 0.7])  # code calls it as often as it likes


def test_agents_that_are_called_by_called_ones_are_no_loop_without_an_exit() -> None:
    graph = Graph.build({"nodes": ["a", {"name": "b", "parent": "a"}, {"name": "c", "parent": "b"}]})
    assert graph.check() == ()


WRONG_CALLS = {
    "agent a, b, c of b\na -> b\nloop c -> a at most 3": "'c' is a sub-agent of 'b', so its end leads nowhere",
    "agent a, b of a\na -> b": "'a' calls 'b', so it cannot hand on to it as well",
    "agent a, b of b": "'b' cannot be a sub-agent of itself",
    "agent a of b, b of a": "call one another in a circle, and nobody calls the first: a → b → a",
    "agent s, d of c, a of b, b of c, c of a\ns -> a": "nobody calls the first: a → c → b → a",
}


@pytest.mark.parametrize("inside", WRONG_CALLS)
def test_what_a_sub_agent_cannot_be_is_refused_in_every_form(inside: str) -> None:
    result = parse(f"workflow w {{\n{inside}\n}}", "w.kvp")
    assert result.file is not None
    (block,) = result.file.workflows
    nodes = [{"name": n.name, **({"parent": n.parent} if n.parent else {})} for n in block.nodes]
    edges = [
        {"from": e.source, "to": e.target, **({"loop": True, "at_most": e.at_most} if e.is_loop else {})}
        for e in block.edges
    ]
    drawn = networkx.DiGraph()
    drawn.add_nodes_from((n.pop("name"), n) for n in (dict(node) for node in nodes))
    drawn.add_edges_from((e.pop("from"), e.pop("to"), e) for e in (dict(edge) for edge in edges))
    for source in (block, {"nodes": nodes, "edges": edges}, drawn):
        (fault,) = [d for d in Graph.build(source).check() if d.severity == ERROR]
        assert WRONG_CALLS[inside] in fault.message
        with pytest.raises(InputFault, match=r"sub-agent|calls"):
            Graph.sound(source)


@given(st.lists(st.integers(-1, 7), max_size=8))
def test_each_circle_of_callers_is_told_once(callers: list[int]) -> None:
    """callers: by node; -1: nobody."""
    called = {str(node): str(caller) for node, caller in enumerate(callers) if caller >= 0}
    found = circles(called)
    for circle in found:
        assert len(circle) > 1 and circle[0] == min(circle)
        assert all(called[node] == caller for caller, node in pairwise((*circle, circle[0])))
    around = set()
    for node, caller in called.items():
        at: str | None = caller
        for _ in range(len(callers)):
            if at == node != caller:
                around.add(node)
            at = None if at is None else called.get(at)
    assert sorted(node for circle in found for node in circle) == sorted(around)


def test_the_ways_within_a_workflow_that_is_called_are_its_own() -> None:
    nodes = ["a", {"name": "r", "workflow": INNER, "parent": "a"}]
    assert Graph.build({"nodes": nodes}).check() == ()


def test_a_count_is_told_by_the_step_that_forks() -> None:
    edges = [{"from": "plan", "to": "search", "times": "n"}, ["search", "judge"]]
    nodes = ["plan", "search", {"name": "judge", "role": "barrier"}]
    state = RunState(graph=Graph.build({"nodes": nodes, "edges": edges}))
    rows = [("step_start", "plan", {}), ("step_end", "plan", {"count": 3}), *[("step_start", "search", {})] * 3]
    rows += [("step_end", "search", {})] * 2
    subject = Subject("turn", {"node": "judge"}, Owner("t", "s"))
    waiting = Subject("turn", {"node": "search"}, Owner("t", "s"))
    for at, (event, node, more) in enumerate(rows):
        state.observe(event_from_row({"at": at, "event": event, "node": node, "tenant": "t", "session": "s", **more}))
    assert state.read("steps_to_next_use", None, subject) == 1
    assert state.read("fan_out", None, waiting) == 3.0
    state.observe(event_from_row({"at": 9, "event": "step_end", "node": "search", "tenant": "t", "session": "s"}))
    assert state.read("steps_to_next_use", None, waiting) == NEVER  # all three are done


def test_what_the_command_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "w.json"
    document = outer(INNER)
    document["nodes"].append({"name": "helper", "parent": "write"})
    file.write_text(json.dumps(document))
    assert main(["graph", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "research/read        2      1  agent  after research/search" in shown
    assert "called by write" in shown
    assert main(["graph", str(file), "--format", "dot"]) == 0
    assert '"write" -> "helper" [label="calls", style=dotted];' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("edges", "end"),
    [
        ([["a", "b"], {"from": "b", "to": "a", "at_most": 3}], "b"),
        ([{"from": "a", "to": "b", "at_most": 3}, ["b", "a"]], "a"),
        ([["a", "b"], {"from": "b", "to": "a", "at_most": 3, "loop": True}], "b"),
    ],
)
def test_a_nested_circle_is_left_where_its_ways_may_be_used_up(edges: list, end: str) -> None:
    inner = {"nodes": ["a", "b"], "edges": edges}
    graph = Graph.build({"nodes": [{"name": "r", "workflow": inner}, "z"], "edges": [["r", "z"]]})
    assert graph.names == ("r/a", "r/b", "z")
    assert [edge.source for edge in graph.edges if edge.target == "z"] == [f"r/{end}"]
    assert graph.check() == ()


def test_what_leads_to_one_entry_keeps_its_group_and_its_count_is_its_own() -> None:
    inner = {"nodes": ["x", "y"], "edges": [["x", "y"]]}
    ways = [{"from": "a", "to": "b", "group": "g", "times": "n"}, {"from": "a", "to": "r", "group": "g"}]
    graph = Graph.build({"nodes": ["a", "b", {"name": "r", "workflow": inner}], "edges": ways})
    assert len(graph.ways.alternatives(graph.number["a"])) == 1
    assert {(edge.target, edge.times) for edge in graph.edges} == {("b", "n"), ("r/x", None), ("r/y", None)}


def test_what_a_nested_workflow_says_of_its_ways_stays_and_so_do_the_joins_around_it() -> None:
    ways = [{"from": "x", "to": "y", "group": "g"}, {"from": "x", "to": "z", "group": "g"}, ["y", "end"], ["z", "end"]]
    inner = {"nodes": ["x", "y", "z", "end"], "edges": ways}
    nodes, edges = ["a", {"name": "r", "workflow": inner}, "b"], [["a", "r"], ["r", "b"], ["a", "b"]]
    graph = Graph.build({"nodes": nodes, "edges": edges, "joins": {"b": "and"}})
    assert {edge.group for edge in graph.edges if edge.source == "r/x"} == {"r/g"}
    assert graph.joins == {"b": "and"}


def test_a_way_that_is_bounded_is_a_way_on_where_another_node_ends_the_workflow() -> None:
    inner = {"nodes": ["x", "y"], "edges": [{"from": "x", "to": "y", "at_most": 2}]}
    graph = Graph.build({"nodes": [{"name": "r", "workflow": inner}, "z"], "edges": [["r", "z"]]})
    assert [(edge.source, edge.target) for edge in graph.edges] == [("r/y", "z"), ("r/x", "r/y")]
