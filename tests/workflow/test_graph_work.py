"""What looking at a graph costs where it is made to cost much: calls of functions are counted, never time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest

from kvpolicy import check
from kvpolicy.cli.main import main
from kvpolicy.faults import InputFault
from kvpolicy.workflow import graph_large, graph_nested
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.graph_nested import MOST_EDGES
from tests.counting import calls_of


def complete(count: int) -> dict[str, object]:
    names = [f"n{i}" for i in range(count)]
    return {"nodes": names, "edges": [[one, other] for one in names for other in names if one != other]}


def circles(count: int) -> dict[str, object]:
    """One round of all, and from each node the way back to the one a hundred before it: long loops, and many."""
    names = [f"n{i}" for i in range(count)]
    back = [[names[i], names[i - 100]] for i in range(100, count)]
    return {"nodes": names, "edges": [[names[i], names[(i + 1) % count]] for i in range(count)] + back}


def wide(count: int) -> dict[str, object]:
    """As many nodes lead to a workflow as it has first nodes."""
    inner = [f"a{i}" for i in range(count)]
    flow = {"nodes": [*inner, "z"], "edges": [[name, "z"] for name in inner]}
    outer = [f"b{i}" for i in range(count)]
    return {"nodes": [{"name": "w", "workflow": flow}, *outer], "edges": [[name, "w"] for name in outer]}


def test_loops_are_looked_for_so_long() -> None:
    for document in (complete(100), circles(1500)):
        graph = Graph.build(document)
        assert calls_of(graph.loops) <= 2_500_000
        assert graph.loops()


def test_an_edge_more_costs_the_same_however_many_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a complete graph of 200 nodes `kvp graph` took 40 seconds, as each loop looked at all edges."""
    for count in (20, 60):
        document = complete(count)
        file = tmp_path / "g.json"
        file.write_text(json.dumps(document))
        steps = 0

        def looked(frame: FrameType, event: str, argument: object) -> Callable[..., object] | None:
            nonlocal steps
            if frame.f_code.co_filename.endswith("cli/graph.py"):
                steps += 1  # a line, or a round of a comprehension
                return looked
            return None

        sys.settrace(looked)
        try:
            main(["graph", str(file)])
        finally:
            sys.settrace(None)
        assert steps <= 400 * count * count
        assert capsys.readouterr().out.count("loop: ") == count * (count - 1) // 2


def test_all_loops_of_a_large_graph_are_told_where_that_costs_little() -> None:
    names = [f"n{i}" for i in range(3000)]
    pairs = list(pairwise(names))
    loops = [{"from": b, "to": a, "at_most": 2} for a, b in pairs]
    graph = Graph.build({"nodes": names, "edges": [list(pair) for pair in pairs], "loops": loops})
    assert set(graph.loops()) == set(pairs)


def test_ways_into_a_workflow_do_not_multiply_without_end() -> None:
    assert len(Graph.build(wide(100)).edges) == 100 * 100 + 100
    with pytest.raises(InputFault, match=f"1,001,000 edges, and {MOST_EDGES:,} at most"):
        Graph.build(wide(1000))


def test_so_they_do_not_in_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner, outer = (", ".join(f"{letter}{i}" for i in range(400)) for letter in "ab")
    ways = "\n".join(f"  b{i} -> i" for i in range(400))
    file = tmp_path / "p.kvp"
    file.write_text(f"workflow i {{ agent {inner} }}\nworkflow o {{\n  workflow i\n  agent {outer}\n{ways}\n}}\n")
    assert main(["graph", str(file)]) == 2
    assert "160,400 edges" in capsys.readouterr().err


def test_a_workflow_around_one_that_is_too_large_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (graph_large, graph_nested):
        monkeypatch.setattr(module, "MOST_EDGES", 8)
    text = """
        turn { priority: 40 }
        workflow inner { agent a, b, c  a -> c  b -> c }
        workflow outer { agent d, e, f, g  workflow inner as x  d -> x  e -> x  f -> x  g -> x }
        workflow around { agent h  workflow outer as y  h -> y }
    """
    assert [(fault.code, fault.message.partition(" is ")[0]) for fault in check(text)] == [("KVP109", "'outer'")]
