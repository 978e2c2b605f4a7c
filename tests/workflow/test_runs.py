"""What is kept of runs: their histories of edges, the chances worked out for them, and how many there are."""

from __future__ import annotations

from kvpolicy.request import Owner
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
