"""Graphs from their sources, their loops, and what is wrong with them."""

from __future__ import annotations

import networkx
import pytest

from kvpolicy.faults import ERROR, NOTICE, InputFault
from kvpolicy.language.parse import parse
from kvpolicy.policy.model import NEVER
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position

RESEARCH = """
workflow research {
  agent planner, searcher, writer
  barrier judge
  planner -> searcher * n -> judge -> writer
  loop judge -> searcher at most 3
}
"""


def block(text: str) -> Graph:
    file = parse(text, "w.kvp").file
    assert file is not None
    return Graph.build(file.workflows[0])


def codes(graph: Graph) -> list[str]:
    return [d.name for d in graph.check()]


def test_a_workflow_block() -> None:
    graph = block(RESEARCH)
    assert graph.nodes == {"planner": "agent", "searcher": "agent", "writer": "agent", "judge": "barrier"}
    assert [(e.source, e.target, e.times, e.at_most) for e in graph.edges] == [
        ("planner", "searcher", "n", None),
        ("searcher", "judge", None, None),
        ("judge", "writer", None, None),
        ("judge", "searcher", None, 3),
    ]
    assert graph.joins == {"judge": "and"}
    assert graph.loops() == (("searcher", "judge"),)
    assert graph.check() == ()
    assert Position(graph).all_steps() == {"planner": 0, "searcher": 1, "judge": 2, "writer": 3}


def test_the_same_graph_from_json_and_networkx() -> None:
    document = {
        "nodes": ["a", "b", "judge"],
        "edges": [["a", "judge"], {"from": "b", "to": "judge", "probability": 0.5}],
        "joins": {"judge": "and"},
        "loops": [{"from": "judge", "to": "a", "at_most": 3}],
    }
    drawn = networkx.DiGraph()
    drawn.add_node("a")
    drawn.add_node("b")
    drawn.add_node("judge", join="and")
    drawn.add_edge("a", "judge")
    drawn.add_edge("b", "judge", probability=0.5)
    drawn.add_edge("judge", "a", loop=True, at_most=3)
    one, two = Graph.build(document), Graph.build(drawn)
    assert (one.nodes, one.joins, set(one.edges)) == (two.nodes, two.joins, set(two.edges))
    assert one.loops() == (("a", "judge"),)
    assert Graph.build(one) is one


@pytest.mark.parametrize(
    "document",
    [
        7,
        [],
        {"nodes": "ab"},
        {"nodes": [1]},
        {"nodes": ["a"], "edges": [["a"]]},
        {"nodes": ["a"], "edges": [["a", "a", "a"]]},
        {"nodes": ["a"], "joins": ["a"]},
        {"nodes": ["a"], "joins": {"a": "xor"}},
        {"nodes": ["a"], "loops": [{"from": "a", "to": "a", "at_most": -1}]},
        {"nodes": ["a"], "edges": [{"from": "a", "to": "a", "probability": 2}]},
        networkx.Graph([("a", "b")]),
    ],
)
def test_what_is_no_graph_is_refused(document: object) -> None:
    with pytest.raises(InputFault):
        Graph.build(document)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"nods": []}, r"workflow w: unknown key 'nods'; did you mean 'nodes'\?"),
        ({"nodes": [{"id": "a"}]}, r"workflow w: nodes\[0\]: unknown key 'id'; did you mean 'name'\?"),
        ({"nodes": ["a"], "links": []}, r"unknown key 'links'; did you mean 'edges'\?"),
        ({"colour": 1}, "unknown key 'colour'; there are nodes, edges, joins, loops"),
        ({"nodes": ["a", {"name": "b", "rolle": "barrier"}]}, r"nodes\[1\] \(b\): unknown key 'rolle'; .* 'role'"),
        (
            {"edges": [{"from": "a", "to": "b", "prob": 0.3}]},
            r"edges\[0\] \(a -> b\): unknown key 'prob'; .*'probability'",
        ),
        (
            {"loops": [{"from": "b", "to": "a", "atmost": 3}]},
            r"loops\[0\] \(b -> a\): unknown key 'atmost'; .*'at_most'",
        ),
        ({"loop": {"nodes": ["a", "b"], "rounds": 3}}, r"loops\[0\]: unknown key 'rounds'"),
        ({"nodes": ["a", {"name": "b", "workflow": {"nodes": ["x"], "edge": []}}]}, "workflow b: unknown key 'edge'"),
        ({"nodes": []}, "nodes: missing; a workflow has at least one"),
    ],
)
def test_a_key_that_would_be_dropped_is_refused(more: dict, told: str) -> None:
    document = {"nodes": ["a", "b"], "edges": [["a", "b"]]}
    assert Graph.build(document).check() == ()
    with pytest.raises(InputFault, match=told):
        Graph.build({**document, **more}, "w")


def test_a_graph_of_nothing_is_none() -> None:
    for nothing in ({}, networkx.DiGraph()):
        with pytest.raises(InputFault, match="nodes: missing"):
            Graph.build(nothing)


def test_a_drawing_may_carry_data_of_its_own() -> None:
    drawn = networkx.DiGraph()
    drawn.add_node("a", colour="red", pos=(1, 2))
    drawn.add_edge("a", "b", weight=3, probability=0.5)
    assert Graph.build(drawn).edges[0].probability == 0.5


def test_shares_of_more_than_a_whole_are_told() -> None:
    ways = [{"from": "a", "to": to, "probability": 0.8} for to in ("b", "c")]
    (notice,) = Graph.build({"nodes": ["a", "b", "c"], "edges": ways}).check()
    assert (notice.name, notice.severity) == ("SHARES_SCALED", NOTICE)
    assert "out of 'a'" in notice.message and "160%" in notice.message and "'b' 50%, 'c' 50%" in notice.message
    grouped = [{**way, "group": "both"} for way in ways]
    assert Graph.build({"nodes": ["a", "b", "c"], "edges": grouped}).check() == ()  # taken together: one choice


def test_nodes_that_are_wrong_are_named() -> None:
    twice = Graph.build({"nodes": ["a", "b", "a"], "edges": [["a", "b"], ["b", "ghost"]]})
    assert codes(twice) == ["name-defined-twice", "unknown-name"]
    assert "'ghost'" in twice.check()[1].message
    unreached = Graph.build(
        {"nodes": ["a", "b", "c", "d", "e"], "edges": [["a", "b"], ["c", "d"], ["d", "c"], ["d", "b"]]}
    )
    found = unreached.check()
    assert [(d.name, d.severity) for d in found] == [("UNREACHABLE_NODE", NOTICE)] * 3
    assert [name in d.message for name, d in zip("cde", found, strict=True)] == [True] * 3
    assert Position(unreached).steps("c") == NEVER


@pytest.mark.parametrize(
    ("edges", "loops", "named"),
    [
        ([["a", "b"], ["b", "a"]], [], ("a", "b")),
        ([["s", "a"], ["a", "b"], ["b", "c"], ["c", "a"]], [], ("a", "b", "c")),
        ([["s", "s"]], [], ("s",)),
        ([["s", "a"], ["a", "b"]], [{"from": "b", "to": "a"}], ("a", "b")),
        ([["s", "a"], ["a", "b"]], [{"from": "b", "to": "a", "at_most": 3}], None),
        ([["s", "a"], ["a", "b"], ["b", "a"], ["b", "end"]], [], None),
        # the way out of the inner loop leads to another one that has none
        ([["s", "a"], ["a", "s"], ["a", "x"], ["x", "y"], ["y", "x"]], [], ("x", "y")),
    ],
)
def test_a_loop_without_an_exit(edges: list, loops: list, named: tuple[str, ...] | None) -> None:
    names = dict.fromkeys(name for edge in edges for name in edge)
    found = Graph.build({"nodes": [*names], "edges": edges, "loops": loops}).check()
    if named is None:
        assert found == ()
        return
    (fault,) = found
    assert (fault.code, fault.name, fault.severity) == ("KVP214", "loop-without-exit", ERROR)
    assert " -> ".join((*named, named[0])) in fault.message


def test_what_a_caller_brings_is_refused_by_the_names_of_its_nodes() -> None:
    loop = {"nodes": ["s", "a", "b"], "edges": [["s", "a"], ["a", "b"], ["b", "a"]]}
    with pytest.raises(InputFault, match=r"the loop a -> b -> a .* has no way out \(add an edge out of it"):
        Graph.sound(loop)
    with pytest.raises(InputFault, match="'ghost' is no node"):
        Graph.sound({"nodes": ["a"], "edges": [["a", "ghost"]]})
    with pytest.raises(InputFault, match="stands twice"):
        Graph.sound({"nodes": ["a", "a"]})
    assert Graph.sound({"nodes": ["a", "b", "lost"], "edges": [["a", "b"]]}).names == ("a", "b", "lost")  # a notice


def test_case_c29() -> None:
    """The plan-act-check loop, literally; 4 rounds take the closing edge 3 times."""
    graph = Graph.build(
        {
            "nodes": ["plan", "act", "check", "finish"],
            "edges": [["plan", "act"], ["act", "check"], ["check", "plan"], ["check", "finish"]],
            "loop": {"nodes": ["plan", "act", "check"], "max_rounds": 4},
        }
    )
    assert not [d for d in graph.check() if d.severity == ERROR]
    assert [list(loop) for loop in graph.loops()] == [["plan", "act", "check"]]
    now = Position(graph)
    now.start("act")
    assert [now.steps(node) for node in ("check", "plan", "finish")] == [1, 2, 2]
    assert now.steps("act") == 0
    now.end("act")
    assert now.steps("act") == 3
    late = Position(graph)
    for round_ in range(4):
        for node in ("plan", "act", "check"):
            late.start(node)
            if (round_, node) != (3, "check"):
                late.end(node)
    assert late.steps("finish") == 1
    assert late.steps("plan") is NEVER
    (fault,) = Graph.build({"nodes": ["a", "b"], "edges": [["a", "b"], ["b", "a"]]}).check()
    assert fault.name == "loop-without-exit"
    assert "a" in fault.message and "b" in fault.message
