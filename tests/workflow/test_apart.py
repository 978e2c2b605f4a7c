"""What one tenant names, describes and runs shows nowhere in another's runs, and pushes nothing of it out."""

from __future__ import annotations

import pytest

from kvpolicy.request import Owner, Request
from kvpolicy.workflow import followed
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.followed import Described
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState

FORK = {"nodes": ["plan", "writer", "editor"], "edges": [["plan", "writer"], ["plan", "editor"]]}


def graph(name: str, more: int | None = None) -> Graph:
    """The fork under a name; `more`: one of many other shapes."""
    nodes = FORK["nodes"] if more is None else [*FORK["nodes"], f"n{more}"]
    return Graph.build({**FORK, "nodes": nodes}, name)


def run_once(state: RunState, tenant: str, run: str, at: float, workflow: str | None = None) -> None:
    """Plan, then write; then it is over."""
    whose = {"tenant": tenant, "run": run, **({} if workflow is None else {"workflow": workflow})}
    for number, node in enumerate(("plan", "writer")):
        state.observe(Event(at + number, "step_start", {**whose, "node": node}))
        state.observe(Event(at + number + 0.5, "step_end", {**whose, "node": node}))
    state.observe(Event(at + 3, "workflow_end", whose))


def chance(state: RunState, tenant: str, run: str, workflow: str | None = None, at: float = 1e5) -> float | None:
    """P(the writer comes next) once the run plans."""
    whose = {"tenant": tenant, "run": run, **({} if workflow is None else {"workflow": workflow})}
    state.observe(Event(at, "step_start", {**whose, "node": "plan"}))
    return state.runs.chance(Owner(tenant, None, run, "plan"), "writer")


def test_a_run_is_called_what_its_caller_calls_it() -> None:
    state = RunState()
    state.runs.name("merger-with-acme", graph("merger-with-acme"), "u")
    state.runs.name("report", graph("report"), "t")
    state.runs.name("of-all", graph("of-all"))
    state.observe(Event(0.0, "step_start", {"tenant": "t", "run": "told", "node": "plan", "workflow": "report"}))
    asked = Owner("t", None, "asked", "plan")
    state.arrive(Request("r", asked, 10, 16, (), attributes={"node": "plan", "workflow": "report"}), 1.0)
    for run, name in (("told", "report"), ("asked", "report")):
        owner = Owner("t", None, run, "plan")
        standing = state.runs.standing(owner)
        assert standing is not None and standing.position is not None
        assert (state.runs.workflow(owner), standing.position.graph.name) == (name, name)
    state.observe(Event(2.0, "step_start", {"tenant": "t", "run": "any", "node": "plan", "workflow": "of-all"}))
    assert state.runs.workflow(Owner("t", None, "any", "plan")) == "of-all"


def test_a_graph_that_is_described_keeps_its_own_name() -> None:
    state = RunState()
    state.runs.describe(graph("merger-with-acme"), "u")
    state.runs.describe(graph("report"), "t")
    assert state.runs.graph is not None and state.runs.graph.name == "report"


@pytest.mark.parametrize("named", [True, False])
def test_graphs_of_another_tenant_push_no_history_out(named: bool) -> None:
    state = RunState()
    workflow = "w" if named else None

    def tell(tenant: str, more: int | None = None) -> None:
        if named:
            state.runs.name("w", graph("w", more), tenant)
        else:
            state.runs.describe(graph("w", more), tenant)

    tell("t")
    for number in range(12):
        run_once(state, "t", f"r{number}", 10.0 * number, workflow)
    for number in range(300):
        tell("u", number)
    tell("t")
    assert chance(state, "t", "new", workflow) == (4 * 0.5 + 12) / (4 + 12)


def test_described_graphs_are_bounded_by_their_size_over_all_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "MOST_MARKS", 50 * followed.LEAST)
    described = Described()

    def marks() -> int:
        held = [each.graph for graphs in described._tenants.values() for each in graphs.values()]
        return sum(max(followed.LEAST, len(graph.names) + len(graph.edges)) for graph in held)

    small = [described.take("small", graph("w", number)) for number in range(9)]
    for number in range(30):
        names = [f"n{number}", *(f"m{each}" for each in range(199))]
        last = described.take(f"t{number % 7}", Graph.build({"nodes": names, "edges": []}))
        assert marks() == described._shares.marks <= 50 * followed.LEAST
        assert described.take(f"t{number % 7}", last.graph) is last
    assert [described.take("small", graph("w", number)) for number in range(9)] == small
    assert sorted(len(graphs) for graphs in described._tenants.values()) == [1, 1, 1, 1, 9]


def test_a_described_graph_that_takes_most_goes_first_and_alone_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "MOST_MARKS", 3 * followed.LEAST)
    described = Described()
    large = Graph.build({"nodes": [f"n{each}" for each in range(100)], "edges": []})
    alone = described.take("t", large)
    assert described.take("t", large) is alone
    small = described.take("u", graph("w"))
    assert described.take("t", large) is not alone
    assert described.take("u", graph("w")) is small


def test_the_same_graph_under_one_name_goes_on_and_another_begins_anew() -> None:
    state = RunState()
    state.runs.name("w", graph("w"), "t")
    run_once(state, "t", "r", 0.0, "w")
    state.runs.name("w", graph("w"), "t")
    assert chance(state, "t", "again", "w") == (4 * 0.5 + 1) / (4 + 1)
    state.runs.name("w", graph("w", 1), "t")
    assert chance(state, "t", "other", "w") == 0.5
    state.runs.name("v", graph("w"), "u")
    assert chance(state, "u", "r", "v") == 0.5


def test_each_tenant_has_its_own_history_of_a_graph_of_all() -> None:
    state = RunState()
    state.runs.name("w", graph("w"))
    run_once(state, "t", "r", 0.0, "w")
    assert chance(state, "t", "new", "w") == (4 * 0.5 + 1) / (4 + 1)
    assert chance(state, "u", "new", "w") == 0.5


def test_names_of_counts_are_those_of_the_run_s_own_graph() -> None:
    """Another tenant's `* tokens` makes no count of what this one's events say of tokens."""
    state = RunState(graph=graph("w"))
    edges = [{"from": "a", "to": "b", "times": "tokens"}]
    state.runs.name("fan", Graph.build({"nodes": ["a", "b"], "edges": edges}), "u")
    state.observe(Event(0.0, "turn_end", {"tenant": "t", "run": "r", "tokens": 100}))
    assert not state.runs.held.active
    state.observe(Event(1.0, "step_start", {"tenant": "t", "run": "r", "node": "plan", "tokens": 100}))
    standing = state.runs.standing(Owner("t", None, "r", "plan"))
    assert standing is not None and standing.position is not None
    assert standing.position.counts == {}
    told = {"tenant": "u", "run": "r", "node": "a", "tokens": 3}
    state.observe(Event(2.0, "step_start", {**told, "workflow": "fan"}))
    assert state.runs.fan_out(Owner("u", None, "r", "b"), "b") == 3
