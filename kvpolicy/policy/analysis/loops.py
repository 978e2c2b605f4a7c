"""KVP214: a workflow that can run round and never leave, with the names of its nodes."""

from __future__ import annotations

from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes, syntax
from kvpolicy.policy.analysis.view import View


def loops_without_exit(view: View) -> list[Diagnostic]:
    """Nodes that reach each other along edges without a bound, and from which no edge leads anywhere else."""
    return [fault for workflow in view.policy.workflows for fault in _of(workflow)]


def _of(workflow: syntax.Workflow) -> list[Diagnostic]:
    after: dict[str, set[str]] = {}
    for edge in workflow.edges:
        after.setdefault(edge.source, set())
        after.setdefault(edge.target, set())
        if edge.at_most is None:  # a bound is used up some day, and then its edge is no way any more
            after[edge.source].add(edge.target)
    reached = {node: _reach(node, after) for node in after}
    found: list[Diagnostic] = []
    told: set[str] = set()
    for node in after:
        if node in told or node not in reached[node]:
            continue
        circle = [other for other in after if other in reached[node] and node in reached[other]]
        told.update(circle)
        leaving = [edge for edge in workflow.edges if edge.source in circle and edge.target not in circle]
        if leaving:
            continue
        edge = next(e for e in workflow.edges if e.source in circle and e.target in circle and e.at_most is None)
        edge = next((e for e in workflow.edges if e.is_loop and e.source in circle and e.target in circle), edge)
        way = " → ".join((*circle, circle[0]))
        message = f"'{workflow.name}' runs round for ever: {way} has no way out and no bound"
        fix = f"write `loop {edge.source} -> {edge.target} at most 3`, or an edge that leads on"
        found.append(codes.LOOP_WITHOUT_EXIT.at(edge.place, message, fix=fix))
    return found


def _reach(start: str, after: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(after[start])
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += after[node]
    return found
