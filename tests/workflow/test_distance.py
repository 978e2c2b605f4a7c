"""Steps to the next use: hand-made tables for each shape, and random graphs against brute force."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy.model import NEVER, EventPattern, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import AGENT, BARRIER, Graph, GraphEdge
from kvpolicy.workflow.position import Position
from kvpolicy.workflow.state import RunState
from tests.workflow.naive_steps import World


def graph(text: str, *loops: tuple[str, str, int | None], joins: str = "", times: dict | None = None) -> Graph:
    """`a>b b>c`: edges; nodes in order of appearance."""
    pairs = [tuple(edge.split(">")) for edge in text.split()]
    names = dict.fromkeys(name for pair in pairs for name in pair)
    edges = [GraphEdge(a, b, (times or {}).get((a, b))) for a, b in pairs]
    edges += [GraphEdge(a, b, None, bound, True) for a, b, bound in loops]
    return Graph({name: BARRIER if name in joins.split() else AGENT for name in names}, edges)


def after(g: Graph, *happened: str) -> dict[str, float]:
    """`+a`: a's step began, `-a`: it ended."""
    position = Position(g)
    for step in happened:
        (position.start if step[0] == "+" else position.end)(step[1:])
    return position.all_steps()


def test_a_chain() -> None:
    g = graph("a>b b>c")
    assert after(g) == {"a": 0, "b": 1, "c": 2}
    assert after(g, "+a") == {"a": 0, "b": 1, "c": 2}
    assert after(g, "+a", "-a") == {"a": NEVER, "b": 1, "c": 2}
    assert after(g, "+a", "-a", "+b") == {"a": NEVER, "b": 0, "c": 1}
    assert after(g, "+b") == {"a": NEVER, "b": 0, "c": 1}  # seen from the middle on


def test_an_and_join_waits_for_the_farthest_that_has_not_arrived() -> None:
    g = graph("s>a s>b b>b2 a>j b2>j j>end", joins="j")
    assert after(g, "+s") == {"s": 0, "a": 1, "b": 1, "b2": 2, "j": 3, "end": 4}
    assert after(g, "+s", "-s", "+a", "+b", "-a") == {"s": NEVER, "a": NEVER, "b": 0, "b2": 1, "j": 2, "end": 3}
    assert after(g, "+s", "-s", "+a", "+b", "-b", "+b2", "-b2")["j"] == 1  # a still runs
    assert after(g, "+s", "-s", "+a", "+b", "-b", "+b2", "-b2", "-a")["j"] == 1  # all have arrived
    steps = after(g, "+s", "-s", "+a", "+b", "-b", "+b2", "-b2", "-a", "+j")
    assert (steps["j"], steps["end"], steps["a"]) == (0, 1, NEVER)


def test_an_or_join_takes_the_nearest() -> None:
    g = graph("s>a s>b b>b2 a>j b2>j")
    assert after(g, "+s")["j"] == 2
    assert after(g, "+a", "+b2") == {"s": NEVER, "a": 0, "b": NEVER, "b2": 0, "j": 1}


def test_the_way_not_taken_is_gone_unless_the_ways_meet_again() -> None:
    either = graph("s>a s>b a>end b>end")
    assert after(either, "+s", "-s") == {"s": NEVER, "a": 1, "b": 1, "end": 2}
    assert after(either, "+s", "-s", "+a")["b"] == NEVER
    both = graph("s>a s>b a>j b>j", joins="j")
    assert after(both, "+s", "-s", "+a") == {"s": NEVER, "a": 0, "b": 1, "j": 2}


def test_a_fan_out_arrives_when_all_instances_have() -> None:
    g = graph("plan>search search>judge judge>write", joins="judge", times={("plan", "search"): "n"})
    assert after(g) == {"plan": 0, "search": 1, "judge": 2, "write": 3}
    assert after(g, "+plan", "-plan", "+search", "+search", "-search")["judge"] == 1
    position = Position(g)
    position.fan_out("n", 3)
    for step in ("+plan", "-plan", "+search", "-search"):
        (position.start if step[0] == "+" else position.end)(step[1:])
    assert position.all_steps() == {"plan": NEVER, "search": 1, "judge": 2, "write": 3}  # two are to come
    for _ in range(2):
        position.start("search")
        position.end("search")
    assert position.all_steps() == {"plan": NEVER, "search": NEVER, "judge": 1, "write": 2}


def test_an_instance_that_was_pruned_is_not_waited_for() -> None:
    g = graph("plan>search search>judge", joins="judge", times={("plan", "search"): "2"})
    position = Position(g)
    for step in ("+plan", "-plan", "+search", "+search", "-search"):
        (position.start if step[0] == "+" else position.end)(step[1:])
    assert position.steps("judge") == 1
    position.lost("search")
    assert position.all_steps() == {"plan": NEVER, "search": NEVER, "judge": 1}


def test_a_loop_is_counted_by_its_closing_edge() -> None:
    g = graph("a>b b>c", ("b", "a", 2))
    round_ = ("+a", "-a", "+b", "-b")
    assert after(g, *round_) == {"a": 1, "b": 2, "c": 1}
    assert after(g, *round_, *round_)["a"] == 1
    assert after(g, *round_, *round_, "+a", "-a", "+b") == {"a": NEVER, "b": 0, "c": 1}
    assert after(g, *round_, *round_, *round_) == {"a": NEVER, "b": NEVER, "c": 1}


def test_a_join_in_a_loop_does_not_wait_for_what_cannot_come_again() -> None:
    g = graph("s>a s>b a>j b>j j>end", ("j", "a", 3), joins="j")
    first = ("+s", "-s", "+a", "+b", "-a", "-b", "+j", "-j")
    assert after(g, *first) == {"s": NEVER, "a": 1, "b": NEVER, "j": 2, "end": 1}
    assert after(g, *first, "+a") == {"s": NEVER, "a": 0, "b": NEVER, "j": 1, "end": 2}
    assert after(g, *first, "+a", "-a", "+j") == {"s": NEVER, "a": 1, "b": NEVER, "j": 0, "end": 1}


def test_a_join_in_a_loop_waits_again_for_all_that_come_again() -> None:
    g = graph("r>s s>a s>b b>b2 a>j b2>j j>end", ("j", "s", 3), joins="j")
    first = ("+r", "-r", "+s", "-s", "+a", "-a", "+b", "-b", "+b2", "-b2", "+j", "-j")
    assert after(g, *first)["j"] == 4
    assert after(g, *first, "+s", "-s", "+a", "+b")["j"] == 2  # b2 of the last round does not count


def test_a_join_does_not_wait_for_what_only_it_leads_to() -> None:
    g = graph("x>a x>p a>j p>j j>end", ("end", "a", 3), ("j", "p", 3), joins="j")
    first = ("+x", "-x", "+a", "+p", "-a", "-p", "+j", "-j", "+end", "-end", "+a")
    assert after(g, *first) == {"x": NEVER, "a": 0, "p": 2, "j": 1, "end": 2}


def test_a_barrier_nobody_reports_is_passed_by_the_step_behind_it() -> None:
    g = graph("s>a s>b a>j b>j j>end end>last", joins="j")
    steps = after(g, "+s", "-s", "+a", "+b", "-a", "-b", "+end")
    assert steps == {"s": NEVER, "a": NEVER, "b": NEVER, "j": NEVER, "end": 0, "last": 1}


def test_lost_and_repeated_step_events() -> None:
    g = graph("a>b b>c")
    assert after(g, "+a", "-a", "-b") == {"a": NEVER, "b": NEVER, "c": 1}  # b's start was lost
    assert after(g, "+a", "-a", "-a", "+b", "-a") == {"a": NEVER, "b": 0, "c": 1}
    assert after(g, "+a", "+a", "-a", "+b") == {"a": NEVER, "b": 0, "c": 1}
    assert after(g, "+nobody", "-nobody") == {"a": 0, "b": 1, "c": 2}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, Graph, list[str]]:
    """A layered random graph, with loops back, and an order in which its nodes run once at most."""
    count = draw(st.integers(2, 7))
    names = [f"n{i}" for i in range(count)]
    pairs = [(names[i], names[j]) for j in range(1, count) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=12, unique=True))
    joins = set(draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
    back = [(b, a) for a, b in pairs]
    bounds = {e: draw(st.integers(0, 2)) for e in draw(st.lists(st.sampled_from(back), max_size=3, unique=True))}
    world = World(names, [*edges, *bounds], joins, bounds)
    loops = [GraphEdge(a, b, None, n, True) for (a, b), n in bounds.items()]
    plain = [GraphEdge(a, b) for a, b in edges]
    g = Graph({n: BARRIER if n in joins else AGENT for n in names}, [*plain, *loops])
    return world, g, draw(st.lists(st.sampled_from(names), unique=True, max_size=count))


AT_ONCE = 4


def on_the_way(g: Graph, order: list[str], ended: int) -> Position:
    """The first of these nodes have ended and left a token on every edge out of them, the next run."""
    position = Position(g)
    position.begun, position.entry = True, set()
    for node in order[:ended]:
        for e in g.out_of[g.number[node]]:
            position.tokens[e] = 1
    for node in order[ended:AT_ONCE]:
        position.running[g.number[node]] = 1
    return position


@settings(max_examples=300)
@given(worlds(), st.integers(0, 3))
def test_distances_are_those_of_the_equations(drawn: tuple[World, Graph, list[str]], ended: int) -> None:
    """Some nodes have ended, others run; the equations say the rest."""
    world, g, order = drawn
    position = on_the_way(g, order, ended)
    for node in order[:ended]:
        world.arrived |= {edge for edge in world.edges if edge[0] == node}
    world.running |= set(order[ended:AT_ONCE])
    assert {n: float(s) for n, s in position.all_steps().items()} == world.steps()


@settings(max_examples=200)
@given(worlds(), st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 6)), max_size=20))
def test_no_order_of_steps_raises_or_leaves_the_scale(
    drawn: tuple[World, Graph, list[str]], happened: list[tuple[str, int]]
) -> None:
    world, g, _ = drawn
    position = Position(g)
    for sign, index in happened:
        (position.start if sign == "+" else position.end)(world.nodes[index % len(world.nodes)])
        for node, steps in position.all_steps().items():
            assert (steps == 0) == bool(position.running[g.number[node]]) or not position.begun
            assert steps == NEVER or 0 <= steps <= 2 * len(world.nodes)
            assert steps != math.inf or steps is NEVER


def test_run_state_answers_by_agent_and_run() -> None:
    state = RunState(graph=graph("plan>act act>check check>done", ("check", "plan", 3)))
    check = Subject("turn", {"agent": "check"}, Owner("t", "s", "r", "check"))
    other = Subject("turn", {"agent": "check"}, Owner("t", "s2", "r2", "check"))
    unknown = Subject("turn", {"agent": "nobody"}, Owner("t", "s", "r", "nobody"))
    state.observe(Event(1.0, "step_start", {"tenant": "t", "run": "r", "node": "act"}))
    assert state.read("steps_to_next_use", None, check) == 1
    assert state.read("steps_to_next_use", None, other) == 2
    assert state.read("steps_to_next_use", None, unknown) is None
    state.observe(Event(3.0, "step_end", {"tenant": "t", "run": "r", "node": "act"}))
    state.observe(Event(3.0, "step_end", {"tenant": "t", "run": "r", "node": "act"}))
    assert state.read("steps_to_next_use", None, Subject("turn", {"node": "act"}, check.owner)) == 3
    assert state.read("p50", "step.duration", check) == 2.0
    assert state.read("count", "step.duration", check) == 1


def test_requests_stand_for_steps_until_somebody_reports_steps() -> None:
    state = RunState(graph=graph("plan>act act>done"))
    plan, act = Owner("t", None, "r", "plan"), Owner("t", None, "r", "act")
    subject = Subject("turn", {}, act)
    request = Request("r1", plan, 10, 16)
    state.arrive(request, 0.0)
    assert state.read("steps_to_next_use", None, subject) == 1
    state.answer(request, 2.0, finished=True)
    assert state.read("steps_to_next_use", None, Subject("turn", {}, plan)) == NEVER
    state.arrive(Request("r2", act, 10, 16), 3.0)
    assert state.read("steps_to_next_use", None, subject) == 0


def test_told_steps_replace_guessed_ones() -> None:
    state = RunState(graph=graph("plan>act act>done"))
    plan = Owner("t", None, "r", "plan")
    done = Subject("turn", {"node": "done"}, plan)
    state.arrive(Request("r1", plan, 10, 16), 0.0)
    state.observe(Event(1.0, "step_start", {"tenant": "t", "run": "r", "node": "act"}))
    assert state.read("steps_to_next_use", None, Subject("turn", {}, plan)) == NEVER  # it was guessed to run
    state.observe(Event(5.0, "step_end", {"tenant": "t", "run": "r", "node": "act"}))
    state.arrive(Request("r2", plan, 10, 16), 6.0)  # a stray request is no step any more
    assert state.read("steps_to_next_use", None, Subject("turn", {}, plan)) == NEVER
    assert state.read("steps_to_next_use", None, done) == 1
    assert state.read("eta", EventPattern("step_end"), done) is None
