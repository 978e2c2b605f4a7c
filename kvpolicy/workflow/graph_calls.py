"""What can be wrong with sub-agents: one that calls itself, some that call one another in a circle, one that its caller
also hands on to, a way out of one.

Called by `graph_read` and `graph_block` before nested workflows are laid out flat, so that a graph says the same
whatever form it came in; `language.check_workflows` says it of a text, with its places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvpolicy.faults import Diagnostic, Place
from kvpolicy.language import codes
from kvpolicy.language.callers import CIRCLE_MEND, circle_message, circles
from kvpolicy.workflow.graph_edge import GraphEdge


def wrong_calls(edges: Sequence[tuple[GraphEdge, Place]]) -> Iterator[Diagnostic]:
    """A message for each sub-agent of itself, each circle of them, each edge from a caller to its sub-agent, and one
    for each sub-agent that leads on: its end goes back to its caller, so nobody would follow a way out of it."""
    callers = {edge.target: edge.source for edge, _ in edges if edge.calls}
    for edge, place in edges:
        if edge.calls and edge.source == edge.target:
            message = f"'{edge.target}' cannot be a sub-agent of itself"
            yield codes.UNKNOWN_NAME.at(place, message, fix="name the node that calls it, or make it a loop")
    told: set[str] = set()
    places = {edge.target: place for edge, place in edges if edge.calls}
    for circle in circles(callers):
        told.update(circle)
        yield codes.UNKNOWN_NAME.at(places[circle[0]], circle_message(circle), fix=CIRCLE_MEND)
    for edge, place in edges:
        if edge.calls:
            continue
        if callers.get(edge.target) == edge.source != edge.target:
            message = f"'{edge.source}' calls '{edge.target}', so it cannot hand on to it as well"
            yield codes.DEFINED_TWICE.at(place, message, fix="remove the edge, or what makes it a sub-agent")
        elif edge.source in callers and edge.source not in told:
            told.add(edge.source)
            yield codes.DEFINED_TWICE.at(place, leads_on(edge.source, callers[edge.source], edge.target), fix=MEND)


MEND = "remove the way, or what makes it a sub-agent; its caller is what leads on"


def leads_on(node: str, caller: str, target: str) -> str:
    """The message for a way out of a sub-agent."""
    return f"'{node}' is a sub-agent of '{caller}', so its end leads nowhere, and not to '{target}'"
