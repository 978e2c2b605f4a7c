"""One graph written three ways, as a `workflow` block, as JSON and with networkx, is the same graph with the same
distances, whatever happens in it; and what the checks of a block hold for a choice is one in the graph.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import networkx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvpolicy.faults import ERROR
from kvpolicy.language.check_chances import Choices
from kvpolicy.language.format import format_text
from kvpolicy.language.load import load_text
from kvpolicy.language.nesting import nest, outermost
from kvpolicy.workflow import graph_check
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position

NAMES = ("a", "b", "plan", "of_it", "loop1", "two words", "läufer", "hold", "a/b", "5", "at most", 'say "x"')
ROLES = ("agent", "agent", "agent", "tool", "barrier")
TIMES = (None, None, None, "3", "n", "as many", "17")
SHARES = (None, None, 0.3, 0.125, 1.0, 0.001, 0.333, 0.07, 0.575)


@dataclass
class Flow:
    """name: of its block; nodes: name -> role or the workflow that stands there; edges: in order of their sources."""

    name: str
    nodes: dict[str, str | Flow]
    parents: dict[str, str] = field(default_factory=dict)
    edges: list[dict[str, Any]] = field(default_factory=list)


def flows(draw: st.DrawFn, number: itertools.count, depth: int) -> Flow:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6 - depth, unique=True))
    nodes: dict[str, str | Flow] = {}
    for name in names:
        inner = depth < 2 and draw(st.integers(0, 4)) == 0
        nodes[name] = flows(draw, number, depth + 1) if inner else draw(st.sampled_from(ROLES))
    flow = Flow(f"w{next(number)}", nodes)
    for name in names[1:]:
        if draw(st.integers(0, 5)) == 0:
            flow.parents[name] = draw(st.sampled_from([other for other in names if other != name]))
    for source, target in itertools.product(names, repeat=2):
        if flow.parents.get(target) == source or draw(st.integers(0, len(names))) > 1:
            continue
        told = {"times": draw(st.sampled_from(TIMES)), "probability": draw(st.sampled_from(SHARES))}
        told |= {"at_most": draw(st.sampled_from((None, None, 1, 4))), "loop": draw(st.integers(0, 3)) == 0 or None}
        flow.edges.append({"from": source, "to": target} | {k: v for k, v in told.items() if v is not None})
    return flow


@st.composite
def nested_flows(draw: st.DrawFn) -> Flow:
    return flows(draw, itertools.count(), 0)


# --- three ways to write it ---------------------------------------------------------------------------------


def quoted(name: str, chance: random.Random) -> str:
    plain = name.isidentifier() and name.isascii() and name != "hold" and chance.random() < 0.7
    return name if plain else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def as_block(flow: Flow, chance: random.Random) -> str:
    """The block and, before or behind it, those of the workflows in it."""
    lines, others = [f"workflow {flow.name} {{"], []
    for name, role in flow.nodes.items():
        of = f" of {quoted(flow.parents[name], chance)}" if name in flow.parents else ""
        if isinstance(role, Flow):
            others.append(as_block(role, chance))
            lines.append(f"workflow {role.name} as {quoted(name, chance)}{of}")
        else:
            lines.append(f"{role} {quoted(name, chance)}{of}")
    end = None
    for edge in flow.edges:
        source, target = quoted(edge["from"], chance), quoted(edge["to"], chance)
        times = edge.get("times")
        told = "" if times is None else f" * {times if times.isdigit() else quoted(times, chance)}"
        if (share := edge.get("probability")) is not None:
            told += f" {share}" if chance.random() < 0.5 else f" {100 * share:.10g}%"
        told += f" at most {edge['at_most']}" if "at_most" in edge else ""
        if edge.get("loop"):
            lines.append(f"loop {source} -> {target}{told}")
        elif end == edge["from"] and chance.random() < 0.8:
            lines[-1] += f" -> {target}{told}"
        else:
            lines.append(f"{source} -> {target}{told}")
        end = None if edge.get("loop") else edge["to"]
    block = chance.choice(("\n", " # why\n  ")).join(lines) + "\n}"
    return "\n".join(chance.sample([block, *others], len(others) + 1))


def as_json(flow: Flow) -> dict[str, Any]:
    rows = []
    for name, role in flow.nodes.items():
        row: dict[str, Any] = {"name": name}
        row |= {"workflow": as_json(role)} if isinstance(role, Flow) else {"role": role}
        rows.append(row | ({"parent": flow.parents[name]} if name in flow.parents else {}))
    return {"nodes": rows, "edges": flow.edges}


def as_networkx(flow: Flow) -> networkx.DiGraph:
    drawn = networkx.DiGraph()
    for name, role in flow.nodes.items():
        data: dict[str, Any] = {"workflow": as_networkx(role)} if isinstance(role, Flow) else {"role": role}
        drawn.add_node(name, **data, **({"parent": flow.parents[name]} if name in flow.parents else {}))
    for edge in flow.edges:
        drawn.add_edge(edge["from"], edge["to"], **{k: v for k, v in edge.items() if k not in ("from", "to")})
    return drawn


def read_block(text: str) -> Graph:
    loaded = load_text(text, "w.kvp")
    assert loaded.files is not None, loaded.diagnostics
    found = nest(loaded.files)
    assert found.faults == ()
    (whole,) = outermost(found.workflows)
    return Graph.build(whole)


@settings(max_examples=250)
@given(flow=nested_flows(), seed=st.integers(0, 2**32), data=st.data())
def test_the_same_graph_and_the_same_distances(flow: Flow, seed: int, data: st.DataObject) -> None:
    text = as_block(flow, random.Random(seed))
    laid_out = format_text(text, "w.kvp").text
    assert laid_out is not None
    told = [Graph.build(as_json(flow)), Graph.build(as_networkx(flow)), read_block(text), read_block(laid_out)]
    first, *others = told
    for other in others:
        assert other.shape() == first.shape()
        assert other.loops() == first.loops()
        assert [(d.code, d.severity) for d in other.check()] == [(d.code, d.severity) for d in first.check()]
    positions = [Position(graph) for graph in told]
    happened = data.draw(st.lists(st.tuples(st.booleans(), st.sampled_from(first.names)), max_size=6))
    for begins, node in [(None, ""), *happened]:
        for position in positions:
            if begins is not None:
                (position.start if begins else position.end)(node)
        steps = [position.all_steps() for position in positions]
        assert all(each == steps[0] for each in steps[1:])


def flat_block(flow: Flow, seed: int) -> Any:
    """The block of a workflow whose nodes are agents where others stand for workflows."""
    flow.nodes = {name: "agent" if isinstance(role, Flow) else role for name, role in flow.nodes.items()}
    loaded = load_text(as_block(flow, random.Random(seed)), "w.kvp")
    assert loaded.files is not None
    (block,) = nest(loaded.files).workflows
    return block


def edge(source: str, target: str, **told: Any) -> dict[str, Any]:
    return {"from": source, "to": target} | told


# A call of a sub-agent is no way that one of them goes on: neither where the sub-agent leads to the barrier that calls
# it (the text is refused, and its choices are still those of the graph), nor where it is the barrier itself.
CALLED_BY_A_BARRIER = Flow(
    "w",
    {"a": "agent", "b": "agent", "plan": "barrier"},
    {"b": "plan"},
    [edge("a", "a", loop=True), edge("a", "b", loop=True), edge("a", "plan"), edge("b", "plan")],
)
A_BARRIER_THAT_IS_CALLED = Flow(
    "w", {"a": "agent", "b": "agent", "plan": "barrier"}, {"plan": "b"}, [edge("a", "b"), edge("a", "plan")]
)


@settings(max_examples=250)
@given(flow=nested_flows(), seed=st.integers(0, 2**32))
@example(flow=CALLED_BY_A_BARRIER, seed=0)
@example(flow=A_BARRIER_THAT_IS_CALLED, seed=0)
def test_ways_are_taken_together_where_the_graph_takes_them_together(flow: Flow, seed: int) -> None:
    """`kvp check` asks it of a text, where workflows stand in others; the graph of it laid flat."""
    block = flat_block(flow, seed)
    graph, choices = Graph.build(block), Choices(block)
    for index, name in enumerate(graph.names):
        meant = [
            [(graph.edges[e].source, graph.edges[e].target) for e in each] for each in graph.ways.alternatives(index)
        ]
        assert sorted(sorted(each) for each in choices.out_of(name)) == sorted(sorted(each) for each in meant)


@settings(max_examples=150)
@given(flow=nested_flows(), seed=st.integers(0, 2**32))
def test_a_graph_that_passes_the_checks_has_no_errors(flow: Flow, seed: int) -> None:
    """What `kvp check` says of words is as strict as the graph itself is, or stricter."""
    from kvpolicy.language.check import examine, faulty

    loaded = load_text(as_block(flow, random.Random(seed)), "w.kvp")
    if faulty(examine(loaded)):
        return
    assert loaded.files is not None
    for workflow in nest(loaded.files).workflows:
        assert {d.code for d in Graph.build(workflow).check() if d.severity == ERROR} <= {"KVP214"}


@settings(max_examples=150)
@given(flow=nested_flows(), seed=st.integers(0, 2**32))
def test_the_nodes_that_nothing_leads_to_are_those_of_the_graph(flow: Flow, seed: int) -> None:
    """`kvp check` asks it of a text, each workflow for itself; the graph of the outermost laid flat."""
    from kvpolicy.policy.analysis.unreachable import unreachable

    block = flat_block(flow, seed)
    graph = Graph.build(block)
    assert [node.name for node in unreachable(block)] == list(graph_check.unreachable(graph))
