"""KVP214: a workflow that can run round and never leave, with the names of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes, syntax
from kvpolicy.policy.analysis.view import View
from kvpolicy.policy.connected import circles

_MOST = 12  # so many nodes are named


def loops_without_exit(view: View) -> list[Diagnostic]:
    """Nodes that reach each other along edges without a bound, and from which no edge leads anywhere else."""
    return [fault for workflow in view.policy.workflows for fault in _of(workflow)]


def _of(workflow: syntax.Workflow) -> list[Diagnostic]:
    after: dict[str, dict[str, None]] = {}
    for edge in workflow.edges:
        after.setdefault(edge.source, {})
        after.setdefault(edge.target, {})
        if edge.at_most is None:  # a bound is used up some day, and then its edge is no way any more
            after[edge.source][edge.target] = None
    found: list[Diagnostic] = []
    for part in circles(after):
        nodes = set(part)
        inner = [edge for edge in workflow.edges if edge.source in nodes and edge.target in nodes]
        if any(edge.source in nodes and edge.target not in nodes for edge in workflow.edges):
            continue
        unbound = [edge for edge in inner if edge.at_most is None]
        edge = next((edge for edge in unbound if edge.is_loop), unbound[-1])
        circle = _round_trip(part[0], nodes, after)
        shown = circle if len(circle) <= _MOST else [*circle[:_MOST], "…"]
        way = " → ".join((*shown, circle[0]))
        others = [node for node in part if node not in circle]
        also = f" (with {', '.join(others[:_MOST])})" if others else ""
        message = f"'{workflow.name}' runs round for ever: {way}{also} has no way out and no bound"
        fix = f"write `loop {edge.source} -> {edge.target} at most 3`, or an edge that leads on"
        found.append(codes.LOOP_WITHOUT_EXIT.at(edge.place, message, fix=fix))
    return found


def _round_trip(start: str, within: set[str], after: Mapping[str, Iterable[str]]) -> list[str]:
    """A shortest way from a node back to itself, inside one part; the node itself stands first only."""
    came: dict[str, str] = {}
    waiting = [start]
    for node in waiting:
        for step in after.get(node, ()):
            if step == start:
                way = [node]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return way[::-1]
            if step in within and step not in came:
                came[step] = node
                waiting.append(step)
    return [start]
