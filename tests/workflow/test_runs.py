"""What is kept of runs: their histories of edges, the chances worked out for them, and how many there are."""

from __future__ import annotations

import pytest

from kvpolicy.request import Owner
from kvpolicy.workflow.chance import Chances
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState

FORK = {"nodes": ["plan", "writer", "editor"], "edges": [["plan", "writer"], ["plan", "editor"]]}


def steps(state: RunState, run: str, nodes: str, at: float, tenant: str = "t", **more: object) -> None:
    """These nodes one after the other, a second each."""
    for number, node in enumerate(nodes.split()):
        whose = {"tenant": tenant, "run": run, "node": node, **more}
        state.observe(Event(at + number, "step_start", whose))
        state.observe(Event(at + number + 0.5, "step_end", whose))


def over(state: RunState, run: str, at: float, tenant: str = "t") -> None:
    state.observe(Event(at, "workflow_end", {"tenant": tenant, "run": run}))


def chance(state: RunState, node: str, tenant: str = "t", run: str = "new") -> float | None:
    return state.runs.chance(Owner(tenant, None, run, node), node)


def test_a_run_that_begins_again_after_its_end_counts_as_another_one() -> None:
    """Its edges are counted from none again: once more for every round, and never less."""
    apart, again = RunState(graph=Graph.build(FORK)), RunState(graph=Graph.build(FORK))
    for number, way in enumerate(("writer", "writer", "editor", "writer")):
        steps(apart, f"r{number}", f"plan {way}", 10.0 * number)
        over(apart, f"r{number}", 10.0 * number + 5)
        steps(again, "r", f"plan {way}", 10.0 * number)
        over(again, "r", 10.0 * number + 5)
    for state in (apart, again):
        state.observe(Event(100.0, "step_start", {"tenant": "t", "run": "new", "node": "plan"}))
        assert chance(state, "writer") == (4 * 0.5 + 3) / (4 + 4)
        assert chance(state, "editor") == (4 * 0.5 + 1) / (4 + 4)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes whose chance was worked out, one after the other."""
    nodes: list[int] = []

    work_out = Chances._work_out

    def counted(chances: Chances, node: int) -> float | None:
        nodes.append(node)
        return work_out(chances, node)

    monkeypatch.setattr(Chances, "_work_out", counted)
    return nodes


def test_a_chance_is_worked_out_once_until_something_happens(solved: list[int]) -> None:
    state = RunState(graph=Graph.build(FORK))
    state.observe(Event(0.0, "step_start", {"tenant": "t", "run": "new", "node": "plan"}))
    for _ in range(3):
        assert chance(state, "writer") == chance(state, "editor") == 0.5
    assert solved == [1, 2]
    state.observe(Event(1.0, "step_end", {"tenant": "t", "run": "new", "node": "plan"}))
    state.observe(Event(2.0, "step_start", {"tenant": "t", "run": "new", "node": "writer"}))
    for _ in range(3):
        assert chance(state, "writer") == chance(state, "editor") == 0.0
    assert solved == [1, 2, 1, 2]
    state.observe(Event(1.5, "step_start", {"tenant": "t", "run": "new", "node": "editor"}))  # told late
    assert [chance(state, "writer"), chance(state, "editor")] == [0.0, 0.0]
    assert solved == [1, 2] * 3


def test_a_chance_is_worked_out_again_by_what_other_runs_did(solved: list[int]) -> None:
    state = RunState(graph=Graph.build(FORK))
    state.observe(Event(0.0, "step_start", {"tenant": "t", "run": "new", "node": "plan"}))
    assert chance(state, "writer") == 0.5
    steps(state, "other", "plan writer", 1.0)
    assert chance(state, "writer") == 0.5
    assert solved == [1]  # that run goes on yet
    over(state, "other", 5.0)
    assert chance(state, "writer") == chance(state, "writer") == (4 * 0.5 + 1) / (4 + 1)
    assert solved == [1, 1]


def test_the_end_of_a_run_ends_its_chances(solved: list[int]) -> None:
    state = RunState(graph=Graph.build(FORK))
    state.observe(Event(0.0, "step_start", {"tenant": "t", "run": "new", "node": "plan"}))
    assert chance(state, "writer") == 0.5
    over(state, "new", 1.0)
    assert chance(state, "writer") == 0.0
    assert solved == [1, 1]


def test_where_no_run_has_begun_each_tenant_has_its_own_chance() -> None:
    """All tenants stand at the same beginning."""
    state = RunState(graph=Graph.build(FORK))
    steps(state, "r", "plan writer", 0.0)
    over(state, "r", 5.0)
    for _ in range(2):
        assert chance(state, "writer", "t") == (4 * 0.5 + 1) / (4 + 1)
        assert chance(state, "writer", "u") == 0.5
