"""Chances against the long way on graphs of every kind, and what they cost on graphs made to cost much."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.workflow import chance
from kvpolicy.workflow.chance import MOST_WORK, Chances
from kvpolicy.workflow.graph import AGENT, AND, Graph, GraphEdge
from kvpolicy.workflow.hitting import Work
from kvpolicy.workflow.position import Position
from tests.counting import calls_of
from tests.workflow.naive_chances import Swept, joins_ahead


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Anything: circles, joins, bounded loops, groups, sub-agents."""
    names = [f"n{i}" for i in range(draw(st.integers(2, 6)))]
    node = st.sampled_from(names)
    share = st.sampled_from((None, None, 0.1, 0.3, 0.7))
    group = st.sampled_from((None, None, None, "g", "h"))
    rows = draw(st.lists(st.tuples(node, node, share, group), min_size=1, max_size=12))
    edges = [GraphEdge(a, b, probability=stated, group=of) for a, b, stated, of in rows]
    for a, b, most in draw(st.lists(st.tuples(node, node, st.integers(0, 2)), max_size=2)):
        edges.append(GraphEdge(a, b, None, most, True))
    subs = [f"s{i}" for i in range(draw(st.integers(0, 2)))]
    edges += [GraphEdge(draw(st.sampled_from([*names, *subs[:i]])), sub, calls=True) for i, sub in enumerate(subs)]
    joins = dict.fromkeys(draw(st.sets(st.sampled_from([*names, *subs]), max_size=2)), AND)
    return Graph(dict.fromkeys([*names, *subs], AGENT), edges, joins)


@st.composite
def positions(draw: st.DrawFn) -> Position:
    position = Position(draw(graphs()))
    node = st.sampled_from(position.graph.names)
    for starts, name in draw(st.lists(st.tuples(st.booleans(), node), max_size=6)):
        (position.start if starts else position.end)(name)
    return position


@settings(max_examples=150, deadline=None)
@given(positions(), st.randoms(use_true_random=False))
def test_as_worked_out_the_long_way(position: Position, drawn: random.Random) -> None:
    taken = [drawn.randrange(4) for _ in position.graph.edges] if drawn.random() < 0.5 else []
    chances = Chances(position, taken)
    for node in range(len(position.graph.names)):
        assert chances.of(node) == pytest.approx(Swept(position, node, taken).now(), abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_ways_meet_where_one_looks_for_it_edge_by_edge(graph: Graph) -> None:
    for edges in graph.out_of:
        for one in edges:
            for other in edges:
                mine, theirs = joins_ahead(graph, one), joins_ahead(graph, other)
                meet = any(mine[j] - theirs[j] and theirs[j] - mine[j] for j in mine.keys() & theirs.keys())
                group = graph.edges[one].group
                assert graph.ways.together(one, other) == (meet or group in {graph.edges[other].group} - {None})
    for index, edges in enumerate(graph.out_of):
        apart = [[e] for e in edges if not graph.edges[e].calls]
        for one, other in combinations(apart, 2):  # what was put to another stands there, and is asked again with it
            if any(graph.ways.together(e, f) for e in one for f in other):
                other.extend(one)
                one.clear()
        assert graph.ways.alternatives(index) == sorted(sorted(each) for each in apart if each)


def test_a_loop_that_is_hardly_ever_left_is_left_in_the_end() -> None:
    """As often as it may take: sweeps would have to go round a million times."""
    edges = [GraphEdge("a", "b"), GraphEdge("b", "a", probability=0.999999), GraphEdge("b", "c", probability=5e-7)]
    position = Position(Graph(dict.fromkeys("abcd", AGENT), [*edges, GraphEdge("b", "d", probability=5e-7)]))
    position.start("a")
    assert Chances(position).of(2) == pytest.approx(0.5, abs=1e-9)
    assert Chances(position).of(1) == 1.0


def random_graph(nodes: int, edges: int, loops: int = 0, leak: float | None = None, calls: int = 0) -> Graph:
    """leak: every node leads to an end of its own with this probability, so that nothing is certain."""
    drawn = random.Random(nodes * edges)
    names = [f"n{i}" for i in range(nodes)]
    rows = [GraphEdge(drawn.choice(names), drawn.choice(names)) for _ in range(edges)]
    rows += [GraphEdge(drawn.choice(names), drawn.choice(names), None, 3, True) for _ in range(loops)]
    rows += [GraphEdge(name, "end", probability=leak) for name in names if leak is not None]
    rows += [GraphEdge(drawn.choice(names), f"s{i}", calls=True) for i in range(calls)]
    return Graph(dict.fromkeys([*names, "end", *(f"s{i}" for i in range(calls))], AGENT), rows)


def star(nodes: int) -> Graph:
    """One node leads to all, each of those to the next and to a join: what they reach is one within the other."""
    names = [f"n{i}" for i in range(nodes)]
    rows = [*(GraphEdge("n0", name) for name in names[1:]), *(GraphEdge(name, "j") for name in names[1:])]
    rows += [GraphEdge(f"n{i}", f"n{i + 1}") for i in range(1, nodes - 1)]
    return Graph(dict.fromkeys([*names, "j"], AGENT), rows, {"j": AND})


def pairs_of_joins(nodes: int) -> Graph:
    """One node leads to many, each of which has a join of its own: none of them meet."""
    rows = []
    for i in range(nodes):
        rows += [GraphEdge("s", f"n{i}"), GraphEdge(f"n{i}", f"a{i}"), GraphEdge(f"n{i}", f"j{i}")]
        rows += [GraphEdge(f"a{i}", f"j{i}")]
    names = [name for i in range(nodes) for name in (f"n{i}", f"a{i}", f"j{i}")]
    return Graph(dict.fromkeys(["s", *names], AGENT), rows, {f"j{i}": AND for i in range(nodes)})


HOSTILE: dict[str, Callable[[], Graph]] = {
    "dense": lambda: random_graph(60, 900, 3),
    "dense, left at every node": lambda: random_graph(60, 900, 3, 0.001),
    "sparse": lambda: random_graph(200, 400, 3, None, 50),
    "sparse, left at every node": lambda: random_graph(200, 400, 3, 0.01),
    "large": lambda: random_graph(1000, 2000, 5, 0.01),
    "very dense": lambda: random_graph(150, 6000, 0, 0.001),
    "many loops": lambda: random_graph(60, 120, 40, 0.01),
    "star": lambda: star(600),
    "pairs of joins": lambda: pairs_of_joins(300),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_all_chances_of_a_position_together_cost_so_much(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of functions are counted, the library's among them, and what was announced of multiplications; with a tenth
    of the bound, as counting them takes long."""
    announced = 0
    take = Work.take

    def counted(work: Work, operations: int) -> None:
        nonlocal announced
        announced += min(operations, max(work.left, 0))  # what is refused is not done
        take(work, operations)

    monkeypatch.setattr(chance, "MOST_WORK", MOST_WORK // 10)
    monkeypatch.setattr(Work, "take", counted)
    position = Position(HOSTILE[kind]())
    position.start(position.graph.names[0])
    chances = Chances(position)
    found: list[float | None] = []
    calls = calls_of(lambda: found.extend(chances.of(node) for node in range(len(position.graph.names))))
    assert announced <= MOST_WORK // 10
    # What a run may choose is listed once for all; each of the ways out of a node is compared with a hundred others.
    assert calls <= MOST_WORK // 10 + 400 * len(position.graph.edges)
    again = Chances(position)
    assert [again.of(node) for node in reversed(range(len(found)))] == found[::-1]  # whoever asks first


def test_what_would_cost_too_much_has_no_answer() -> None:
    position = Position(random_graph(150, 6000, 0, 0.001))
    position.start("n0")
    assert Chances(position).of(7) is None
    small = Position(random_graph(12, 30, 2, 0.03))
    small.start("n0")
    assert Chances(small).of(7) == pytest.approx(Swept(small, 7).now(), abs=1e-9)
