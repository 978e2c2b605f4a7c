"""How many runs are kept: what one tenant's graphs and runs take is taken from its own."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kvpolicy.request import Owner
from kvpolicy.workflow import held
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState

FORK = {"nodes": ["plan", "writer", "editor"], "edges": [["plan", "writer"], ["plan", "editor"]]}


def chain(length: int) -> Graph:
    names = [f"n{number}" for number in range(length)]
    return Graph.build({"nodes": names, "edges": [list(pair) for pair in pairwise(names)]})


def begin(state: RunState, tenant: str, run: str, at: float, node: str = "plan", **more: object) -> None:
    state.observe(Event(at, "step_start", {"tenant": tenant, "run": run, "node": node, **more}))


def known(state: RunState, tenant: str, run: str, node: str = "plan") -> bool:
    """Whether the run is where its step put it; one that was dropped stands at the beginning."""
    standing = state.runs.standing(Owner(tenant, None, run, node))
    return standing is not None and node in standing.started


def test_another_tenants_large_graph_costs_a_tenant_no_runs() -> None:
    state = RunState(graph=Graph.build(FORK))
    for number in range(1_500):
        begin(state, "t", f"r{number}", float(number))
    state.runs.name("large", chain(12_000), "u")
    for number in range(3):
        begin(state, "u", f"r{number}", 2_000.0 + number, "n0", workflow="large")
    begin(state, "t", "new", 3_000.0)
    assert all(known(state, "t", f"r{number}") for number in range(1_500))
    assert all(known(state, "u", f"r{number}", "n0") for number in range(3))


def test_who_holds_most_gives_up_what_was_unheard_of_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST_MARKS", 10 * held.LEAST)
    state = RunState(graph=Graph.build(FORK))
    state.runs.name("large", chain(2 * held.LEAST), "u")  # a run of it takes four times as much as a small one
    for number in range(4):
        begin(state, "t", f"r{number}", float(number))
    for number in range(4):
        begin(state, "u", f"r{number}", 10.0 + number, "n0", workflow="large")
    assert [known(state, "t", f"r{number}") for number in range(4)] == [True] * 4
    assert [known(state, "u", f"r{number}", "n0") for number in range(4)] == [False] * 3 + [True]
    state.know(Owner("t", None, "r0"))
    for number in range(4, 9):
        begin(state, "t", f"r{number}", float(20 + number))
        state.observe(Event(20.5 + number, "tool_call", {"tenant": "t", "run": "r0", "tool": "grep"}))
    assert known(state, "u", "r3", "n0")
    assert [known(state, "t", f"r{number}") for number in range(9)] == [True] + [False] * 3 + [True] * 5


def test_a_run_that_takes_more_than_there_is_stays_while_it_is_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST_MARKS", held.LEAST // 2)
    state = RunState(graph=Graph.build(FORK))
    begin(state, "t", "a", 0.0)
    assert known(state, "t", "a")
    begin(state, "u", "b", 1.0)
    assert known(state, "u", "b") and not known(state, "t", "a")


def test_runs_that_are_forgotten_leave_their_room() -> None:
    state = RunState(graph=Graph.build(FORK))
    for number in range(5):
        begin(state, "t", f"r{number}", float(number))
        state.know(Owner("t", None, f"r{number}"))
    assert state.runs.held.marks == 5 * held.LEAST
    state.forget(Owner("t", None, "r0"))
    state.advance(4_000.0)
    state.reap(0.0)
    assert (state.runs.held.marks, state.runs.held._shares) == (0, {})
