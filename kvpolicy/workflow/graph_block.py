"""The graph of a `workflow` block, as `language.nesting` gives it: each node with the workflow that it stands for.

Called by `graph_read`; what a block says becomes the same graph as what JSON says with the same words.
"""

from __future__ import annotations

from typing import TypeVar

from kvpolicy.faults import Diagnostic, InputFault, Note, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.check_chances import value
from kvpolicy.language.check_counts import counts, is_count
from kvpolicy.workflow.graph_calls import wrong_calls
from kvpolicy.workflow.graph_edge import AGENT, OR, GraphEdge
from kvpolicy.workflow.graph_nested import flatten
from kvpolicy.workflow.graph_numbers import count_of
from kvpolicy.workflow.graph_wiring import NESTED, Wiring

Made = TypeVar("Made", bound=Wiring)


def from_block(block: syntax.Workflow, make: type[Made]) -> Made:
    """make: what the graph becomes. Raises InputFault where a workflow that stands in it was not found."""
    nodes: dict[str, str] = {}
    places: dict[str, Place] = {}
    problems: list[Diagnostic] = []
    nested: dict[str, tuple[Wiring, str]] = {}
    calls: list[tuple[GraphEdge, Place]] = []
    for node in block.nodes:
        if node.name in nodes:
            first = (Note(places[node.name], "first declared here"),)
            message = f"'{node.name}' is declared twice in workflow {block.name}"
            problems.append(codes.DEFINED_TWICE.at(node.place, message, notes=first))
            continue
        nodes[node.name], places[node.name] = node.role, node.place
        if node.parent is not None:
            calls.append((GraphEdge(node.parent, node.name, calls=True), node.parent_place or node.place))
        if node.path:
            nodes[node.name] = AGENT
            nested[node.name] = _inner(node, block)
            problems += nested[node.name][0].problems
    placed: list[tuple[GraphEdge, Place]] = []
    for edge, place in (*calls, *((_edge(edge), edge.place) for edge in block.edges)):
        missing = [end for end in dict.fromkeys((edge.source, edge.target)) if end not in nodes]
        problems += [unknown_node(end, place, block.name) for end in missing]
        if not missing:
            placed.append((edge, place))
    problems += counts(block)
    problems += wrong_calls(placed)
    edges = [edge for edge, _ in placed]
    joins: dict[str, str] = {}
    if nested:
        nodes, edges, joins = flatten(nodes, edges, joins, nested)
        for outer, (graph, _) in nested.items():
            places |= {f"{outer}{NESTED}{inner}": place for inner, place in graph.places.items()}
    return make(nodes, edges, joins, name=block.name, problems=tuple(problems), place=block.place, places=places)


def _inner(node: syntax.Node, block: syntax.Workflow) -> tuple[Wiring, str]:
    """The workflow that a node stands for. It is over with the first of its ends; one that waits for several of them
    has a barrier there."""
    if node.nested is None:
        written = ".".join(node.path)
        raise InputFault(f"the workflow '{written}', which stands in '{block.name}', is not known here")
    graph = from_block(node.nested, Wiring)
    if not graph.names:
        raise InputFault(f"the workflow of '{node.name}' has no nodes")
    return graph, OR


def _edge(edge: syntax.Edge) -> GraphEdge:
    """A count that is none makes one branch; the problems tell of it."""
    probability = None if edge.probability is None else value(edge.probability)
    times = None if edge.times is None or not is_count(edge.times) else edge.times
    return GraphEdge(edge.source, edge.target, count_of(times, edge.target), edge.at_most, edge.is_loop, probability)


def unknown_node(node: str, place: Place, name: str, mend: str | None = None) -> Diagnostic:
    """An edge, a call or a join that names a node which the workflow `name` does not have. mend: how its form declares
    one; without it, a block's."""
    fix = f"declare it: {mend or f'agent {node}'}"
    return codes.UNKNOWN_NAME.at(place, f"'{node}' is no node of workflow {name}", fix=fix)
