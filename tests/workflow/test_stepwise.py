"""Distances kept up to date step by step are those worked out anew, after every change."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.workflow import stepwise
from kvpolicy.workflow.distance import measure
from kvpolicy.workflow.graph import AGENT, BARRIER, Graph, GraphEdge
from kvpolicy.workflow.position import Position


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph: circles, AND joins within them, bounds, fan-outs, calls of sub-agents."""
    names = [f"n{i}" for i in range(draw(st.integers(2, 8)))]
    ends = st.sampled_from(names)
    edges = draw(
        st.lists(
            st.builds(
                GraphEdge,
                ends,
                ends,
                st.sampled_from((None, None, None, "2", "many")),
                st.sampled_from((None, None, 0, 1, 2)),
                st.booleans(),
                st.none(),
                st.sampled_from((False, False, False, True)),
            ),
            min_size=1,
            max_size=16,
        )
    )
    joins = draw(st.lists(ends, max_size=4, unique=True))
    return Graph({name: BARRIER if name in joins else AGENT for name in names}, edges)


_steps = st.tuples(
    st.sampled_from(("start", "start", "start", "end", "end", "end", "barrier", "lost", "found", "many", "ask")),
    st.integers(0, 7),
)


@settings(max_examples=500)
@given(graphs(), st.lists(_steps, max_size=30), st.sampled_from((0, 1, 3, 16)))
def test_step_by_step_and_at_once_agree(graph: Graph, happened: list[tuple[str, int]], few: int) -> None:
    """few: after so many nodes a whole pass is made instead."""
    with mock.patch.object(stepwise, "_FEW", few):
        _agree(graph, happened)


def _agree(graph: Graph, happened: list[tuple[str, int]]) -> None:
    position = Position(graph)
    for what, number in happened:
        node = graph.names[number % len(graph.names)]
        if what == "many":
            position.fan_out("many", number)
        elif what == "ask":  # between two questions several things may have happened
            assert position._stepwise.distances(position) == measure(position)
        else:
            getattr(position, what)(node)
    assert position._stepwise.distances(position) == measure(position)
    other = position.copy()
    assert other._stepwise.distances(other) == measure(position)
    other.start(graph.names[0])
    other.end(graph.names[-1])
    assert other._stepwise.distances(other) == measure(other)
    assert position._stepwise.distances(position) == measure(position)  # a copy is for itself


def test_only_what_a_step_changes_is_worked_out_again() -> None:
    """A long chain: the end of a step in the middle of it looks at a handful of nodes, not at all of them."""
    graph = Graph({f"n{i}": AGENT for i in range(500)}, [GraphEdge(f"n{i}", f"n{i + 1}") for i in range(499)])
    position = Position(graph)
    position.start("n200")
    position.steps("n499")
    position.end("n200")
    assert len(position.dirty) == 2
    before = list(position._stepwise.distances(position))
    assert before[201] == 1 and before[499] == 299
