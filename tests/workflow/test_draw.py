"""`kvp graph --format dot|svg`: every node and edge is drawn once, whatever its name holds."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
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
