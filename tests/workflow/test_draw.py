"""`kvp graph --format dot|svg`: every node and edge is drawn once, whatever its name holds."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.cli.main import main
from kvpolicy.workflow import draw
from kvpolicy.workflow.graph import AGENT, BARRIER, TOOL, Graph, GraphEdge

RESEARCH = """workflow research {
  agent planner, searcher, writer
  barrier judge
  planner -> searcher * n -> judge -> writer
  loop judge -> searcher at most 3
}
system { priority: 60 }
"""
NESTED = {
    "nodes": [
        "plan",
        {"name": 'a "quoted" \\ name', "workflow": {"nodes": ["left", "right"], "edges": []}},
        {"name": "judge", "role": "barrier"},
        {"name": "web", "role": "tool"},
        {"name": "helper", "parent": "judge"},
    ],
    "edges": [["plan", 'a "quoted" \\ name'], ['a "quoted" \\ name', "judge"], ["judge", "web"]],
    "loops": [{"from": "web", "to": "plan", "at_most": 2}],
}
SVG = "{http://www.w3.org/2000/svg}"


def test_dot_of_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "research.kvp"
    file.write_text(RESEARCH)
    assert main(["graph", str(file), "--format", "dot"]) == 0
    text = capsys.readouterr().out
    assert text.startswith('digraph "research" {')
    assert '"planner" [shape=box, label="planner\\nsteps 0, rank 60"];' in text
    assert '"judge" [shape=diamond, label="judge\\nsteps 2, rank 60"];' in text
    assert '"planner" -> "searcher" [label="* n"];' in text
    assert '"judge" -> "searcher" [label="at most 3", style=dashed, constraint=false];' in text
    assert '"judge" -> "writer";' in text


def test_svg_of_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "research.kvp"
    file.write_text(RESEARCH)
    assert main(["graph", str(file), "--format", "svg"]) == 0
    root = ElementTree.fromstring(capsys.readouterr().out)
    rows = {box.get("y") for box in root.iter(f"{SVG}rect")}
    assert len(rows) == 4  # one row a step
    assert [path.get("class") for path in root.iter(f"{SVG}path") if path.get("marker-end")].count("loop") == 1
    shown = [text.text for text in root.iter(f"{SVG}text")]
    assert "steps 3, rank 60" in shown
    assert shown.count("at most 3") == shown.count("* n") == 1


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=6)


@given(st.lists(names, min_size=1, max_size=6, unique=True), st.data())
def test_every_node_and_edge_is_drawn_once(nodes: list[str], data: st.DataObject) -> None:
    roles = {name: data.draw(st.sampled_from((AGENT, TOOL, BARRIER))) for name in nodes}
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)), max_size=8, unique=True))
    graph = Graph(roles, [GraphEdge(a, b, is_loop=data.draw(st.booleans())) for a, b in pairs])
    root = ElementTree.fromstring(draw.svg(graph, {}))
    assert len(list(root.iter(f"{SVG}rect"))) == len(nodes)
    assert sum(path.get("marker-end") is not None for path in root.iter(f"{SVG}path")) == len(pairs)
    places = [(box.get("x"), box.get("y")) for box in root.iter(f"{SVG}rect")]
    assert len(set(places)) == len(nodes)
    lines = draw.dot(graph, {}).splitlines()
    assert len(lines) == 3 + len(nodes) + len(pairs)
    quoted = r'"(?:[^"\\]|\\.)*"'
    assert all(re.fullmatch(rf"  {quoted} (-> {quoted}( \[.*\])?|\[.*\]);", line) for line in lines[2:-1])


def read_by_graphviz(text: str) -> tuple[int, int]:
    """Nodes and edges that Graphviz finds in DOT text; where there is none, a parser of its language."""
    program = shutil.which("dot")
    if program is None:
        pydot = pytest.importorskip("pydot", reason="neither Graphviz (apt-get install graphviz) nor pydot is here")
        (graph,) = pydot.graph_from_dot_data(text)
        return len(graph.get_nodes()), len(graph.get_edges())
    done = subprocess.run([program, "-Tplain"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    return sum(line.startswith("node ") for line in lines), sum(line.startswith("edge ") for line in lines)


@pytest.mark.parametrize(
    "document",
    [
        NESTED,
        {"nodes": ["a"]},
        {"nodes": [*"pacf"], "edges": [[*"pa"], [*"ac"], [*"cp"], [*"cf"]]},
        {"nodes": [*"sabj"], "edges": [[*"sa"], [*"sb"], [*"aj"], [*"bj"]], "joins": {"j": "and"}},
        {"nodes": ["p", "s", "j"], "edges": [{"from": "p", "to": "s", "times": "n", "probability": 0.5}, ["s", "j"]]},
    ],
)
def test_graphviz_takes_the_drawing(document: dict) -> None:
    graph = Graph.build(document)
    captions = dict.fromkeys(graph.nodes, 'steps 1, "rank" 5')
    assert read_by_graphviz(draw.dot(graph, captions)) == (len(graph.nodes), len(graph.edges))
    root = ElementTree.fromstring(draw.svg(graph, captions))
    assert len(list(root.iter(f"{SVG}rect"))) == len(graph.nodes)


@settings(max_examples=10, deadline=None)
@given(st.lists(names, min_size=1, max_size=5, unique=True))
def test_graphviz_takes_any_name(nodes: list[str]) -> None:
    graph = Graph(dict.fromkeys(nodes, AGENT), [GraphEdge(a, b) for a in nodes for b in nodes if a < b])
    assert read_by_graphviz(draw.dot(graph, {})) == (len(nodes), len(graph.edges))
