"""How many runs are kept: what one tenant's graphs and runs take is taken from its own."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from kvpolicy.request import Owner
from kvpolicy.workflow import held
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.held import HeldRuns
from kvpolicy.workflow.run import Run
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


def test_one_run_of_another_that_takes_most_is_given_up_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is the run that was heard of last, and all that its tenant has."""
    monkeypatch.setattr(held, "MOST_MARKS", 10 * held.LEAST)
    state = RunState(graph=Graph.build(FORK))
    for number in range(4):
        begin(state, "t", f"r{number}", float(number))
    state.runs.name("large", chain(4 * held.LEAST), "u")
    for at in (10.0, 11.0):
        begin(state, "u", "r", at, "n0", workflow="large")
        assert [known(state, "t", f"r{number}") for number in range(4)] == [True] * 4
        assert not known(state, "u", "r", "n0")
    state.runs.name("small", chain(3), "u")
    begin(state, "u", "r", 12.0, "n0", workflow="small")
    assert known(state, "u", "r", "n0")


def test_among_those_that_hold_as_much_the_one_unheard_of_longest_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST_MARKS", 3 * held.LEAST)
    state = RunState(graph=Graph.build(FORK))
    for number, tenant in enumerate("tuvt"):
        begin(state, tenant, "r", float(number))
    begin(state, "w", "r", 10.0)
    assert [known(state, tenant, "r") for tenant in "tuvw"] == [True, False, True, True]


@pytest.mark.parametrize("alike", [True, False])
def test_a_run_where_there_is_no_room_costs_the_same_with_many_tenants(
    monkeypatch: pytest.MonkeyPatch, alike: bool
) -> None:
    """Counted in lines of Python; `OrderedDict` finds its first key without passing those that have gone."""
    lines = []
    for tenants in (30, 150):
        runs = HeldRuns()
        for number in range(tenants):
            for run in range(1 if alike else number):
                runs.hold((f"t{number}", f"r{run}"), Run(None, 0.0))
        monkeypatch.setattr(held, "MOST_MARKS", runs.shares.marks)
        for ordered in (runs.active, runs.silent, *(share.keys for share in runs.shares._tenants.values())):
            assert isinstance(ordered, OrderedDict)
        lines.append(max(lines_of(crowd, runs, number) for number in range(tenants)))
    assert lines[1] < 2 * lines[0]


def crowd(runs: HeldRuns, number: int) -> None:
    """One run more than there is room for."""
    key = (f"new{number}", "r")
    runs.hold(key, Run(None, 0.0))
    assert [gone for gone, _ in runs.crowded_out(key)] not in ([], [key])


def lines_of(call: Callable[..., object], *arguments: object) -> int:
    """How many lines of Python a call runs."""
    lines, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call(*arguments)
    finally:
        sys.settrace(before)
    return lines


def test_runs_that_are_forgotten_leave_their_room() -> None:
    state = RunState(graph=Graph.build(FORK))
    for number in range(5):
        begin(state, "t", f"r{number}", float(number))
        state.know(Owner("t", None, f"r{number}"))
    assert state.runs.held.shares.marks == 5 * held.LEAST
    state.forget(Owner("t", None, "r0"))
    state.advance(4_000.0)
    state.reap(0.0)
    assert (state.runs.held.shares.marks, len(state.runs.held.shares)) == (0, 0)
