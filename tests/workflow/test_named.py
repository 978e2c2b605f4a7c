"""Several workflows side by side: a run follows the graph that its requests name, of its own tenant."""

from __future__ import annotations

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request
from kvpolicy.workflow import named
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState

LONG = Graph.sound({"nodes": ["a", "b", "c"], "edges": [["a", "b"], ["b", "c"]]}, "long")
SHORT = Graph.sound({"nodes": ["a", "c"], "edges": [["a", "c"]]}, "short")


def ask(state: RunState, run: str, workflow: str | None, node: str = "a", tenant: str = "t", at: float = 0.0) -> Owner:
    owner = Owner(tenant, f"s-{run}", run, node)
    attributes = {"node": node} if workflow is None else {"node": node, "workflow": workflow}
    state.arrive(Request(f"{run}-{at}", owner, 10, 16, (), attributes=attributes), at)
    return owner


def test_two_runs_follow_two_graphs() -> None:
    state = RunState()
    state.runs.name("long", LONG, "t")
    state.runs.name("short", SHORT, "t")
    assert state.runs.steps(ask(state, "r1", "long"), "c") == 2
    assert state.runs.steps(ask(state, "r2", "short"), "c") == 1


def test_a_name_is_a_tenants_own_and_comes_before_what_holds_for_all() -> None:
    state = RunState()
    state.runs.name("w", LONG)
    state.runs.name("w", SHORT, "t")
    assert state.runs.steps(ask(state, "r1", "w", tenant="t"), "c") == 1
    assert state.runs.steps(ask(state, "r1", "w", tenant="u"), "c") == 2


def test_a_run_that_has_begun_keeps_its_graph() -> None:
    state = RunState()
    state.runs.name("w", LONG, "t")
    owner = ask(state, "r", "w")
    state.runs.name("w", SHORT, "t")
    ask(state, "r", "w", at=1.0)
    assert state.runs.steps(owner, "c") == 2
    assert state.runs.named.drop("t", "w")
    assert state.runs.steps(owner, "c") == 2


def test_steps_told_move_a_named_run() -> None:
    state = RunState()
    state.runs.name("w", LONG, "t")
    owner = ask(state, "r", "w")
    for at, name, node in ((1.0, "step_start", "a"), (2.0, "step_end", "a"), (3.0, "step_start", "b")):
        state.observe(Event(at, name, {"tenant": "t", "run": "r", "node": node}), owner)
    assert state.runs.steps(owner, "c") == 1


def test_who_names_nothing_follows_the_one_that_is_described() -> None:
    state = RunState(graph=SHORT)
    state.runs.name("w", LONG, "t")
    assert state.runs.steps(ask(state, "r", None), "c") == 1
    assert state.runs.steps(ask(state, "r2", "no such workflow"), "c") == 1


def test_a_tenant_has_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MOST_OF_A_TENANT", 2)
    state = RunState()
    state.runs.name("a", LONG, "t")
    state.runs.name("b", LONG, "t")
    assert not state.runs.name("b", SHORT, "t")
    with pytest.raises(InputFault, match="at most"):
        state.runs.name("c", LONG, "t")
    state.runs.name("c", LONG, "u")


def test_and_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MARKS_OF_A_TENANT", 8)
    state = RunState()
    state.runs.name("a", LONG, "t")  # three nodes, two edges
    state.runs.name("b", SHORT, "t")  # two nodes, one edge
    state.runs.name("a", LONG, "t")  # told again: nothing more
    for name, graph in (("c", SHORT), ("b", LONG)):
        with pytest.raises(InputFault, match=r"nodes and edges: 1[01] in all workflows of this tenant"):
            state.runs.name(name, graph, "t")
    assert state.runs.named.names("t") == ("a", "b")
    assert state.runs.named.find("t", "b").graph is SHORT  # type: ignore[union-attr]
    state.runs.name("a", SHORT, "t")
    state.runs.name("c", Graph.sound({"nodes": ["a", "b"]}), "t")
    assert state.runs.named.drop("t", "a")
    state.runs.name("d", SHORT, "t")
    state.runs.name("a", LONG, "u")


def test_long_names_are_size_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MARKS_OF_A_TENANT", 100)
    state = RunState()
    with pytest.raises(InputFault, match="nodes and edges"):
        state.runs.name("a", Graph.sound({"nodes": ["n" * 10_000]}), "t")
    state.runs.name("a", Graph.sound({"nodes": ["n" * 5_000]}), "t")


def test_all_tenants_have_a_bounded_size_and_policies_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MOST_MARKS", 10)
    state = RunState()
    for number in range(3):
        state.runs.name(f"w{number}", LONG)  # a policy's own
    for tenant in ("t", "u"):
        state.runs.name("w", LONG, tenant)
    with pytest.raises(InputFault, match="all tenants"):
        state.runs.name("w", SHORT, "v")
    state.runs.named.drop("t", "w")
    state.runs.name("w", SHORT, "v")
