"""Workflows within workflows, laid out flat: what leads to a nested workflow leads to its entries, what leaves it
leaves from its end.

Called by `graph_read` for nodes that carry a workflow of their own. Its nodes bear its name before theirs
(`research/searcher`). Where it has several ends, a node of its own name stands for its end, and is one step more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kvpolicy.faults import InputFault
from kvpolicy.workflow.graph_edge import AND, BARRIER, OR, GraphEdge
from kvpolicy.workflow.graph_wiring import NESTED, Wiring

MOST_EDGES = 50_000  # what leads to a workflow leads to all its first nodes, so that a short text can mean millions


def flatten(
    nodes: Mapping[str, str],
    edges: Iterable[GraphEdge],
    joins: Mapping[str, str],
    nested: Mapping[str, tuple[Wiring, str]],
) -> tuple[dict[str, str], list[GraphEdge], dict[str, str]]:
    """Nodes, edges and joins of one graph. nested: by node, its workflow, and whether it is over with the first of its
    ends ("or") or with all of them ("and"). Raises InputFault where that makes more than `MOST_EDGES`."""
    given = list(edges)
    flat_nodes: dict[str, str] = {}
    flat_joins = {node: join for node, join in joins.items() if node not in nested}
    inner: list[GraphEdge] = []
    begins: dict[str, list[str]] = {}
    end: dict[str, str] = {}
    for node, role in nodes.items():
        if node not in nested:
            flat_nodes[node] = role
            continue
        graph, ends = nested[node]
        times = next((edge.times for edge in given if edge.target == node and edge.times is not None), None)
        flat_nodes.update({_within(node, name): of for name, of in graph.nodes.items()})
        flat_joins.update({_within(node, name): join for name, join in graph.joins.items()})
        inner += (_inside(node, edge, times) for edge in graph.edges)
        begins[node] = [_within(node, graph.names[index]) for index in graph.entries]
        if node in joins:
            flat_joins.update(dict.fromkeys(begins[node], joins[node]))
        last = [_within(node, name) for name in _ends(graph)]
        end[node] = last[0] if len(last) == 1 else node
        if len(last) != 1:
            flat_nodes[node] = BARRIER
            flat_joins[node] = AND if ends == AND else OR
            inner += (GraphEdge(name, node, times) for name in last)
    ways = sum(len(begins.get(edge.target, ("",))) for edge in given)  # each leads to all first nodes of a workflow
    if ways + len(inner) > MOST_EDGES:
        raise InputFault(
            f"laid out flat, with the workflows in it, a workflow has {ways + len(inner):,} edges, and {MOST_EDGES:,} "
            "at most are taken; let one node begin what many lead to"
        )
    outer = [new for edge in given for new in _between(edge, begins, end)]
    return flat_nodes, [*outer, *inner], flat_joins


def _ends(graph: Wiring) -> list[str]:
    """Nodes from which nothing but loops and calls leads on; where every node leads on, those whose ways on may all be
    used up. Sub-agents end nothing."""
    return _left_by(graph, bounded=False) or _left_by(graph, bounded=True)


def _left_by(graph: Wiring, *, bounded: bool) -> list[str]:
    """bounded: whether a way that may be taken so many times is no way on."""
    found = []
    for index, name in enumerate(graph.names):
        ways = [e for e in graph.out_of[index] if not (graph.is_loop[e] or graph.edges[e].calls)]
        onward = [e for e in ways if not bounded or graph.edges[e].at_most is None]
        called = bool(graph.into[index]) and all(graph.edges[e].calls for e in graph.into[index])
        if not onward and not called:
            found.append(name)
    return found


def _between(edge: GraphEdge, begins: Mapping[str, list[str]], end: Mapping[str, str]) -> Iterator[GraphEdge]:
    source = end.get(edge.source, edge.source)
    targets = begins.get(edge.target, [edge.target])
    for target in targets:
        together = edge.target if len(targets) > 1 else edge.group
        yield GraphEdge(source, target, edge.times, edge.at_most, edge.is_loop, edge.probability, edge.calls, together)


def _inside(node: str, edge: GraphEdge, times: str | None) -> GraphEdge:
    """An edge of a nested workflow; of several instances of it every step has as many."""
    return GraphEdge(
        _within(node, edge.source),
        _within(node, edge.target),
        edge.times if edge.times is not None else times,
        edge.at_most,
        edge.is_loop,
        edge.probability,
        edge.calls,
        None if edge.group is None else _within(node, edge.group),
    )


def _within(node: str, name: str) -> str:
    return f"{node}{NESTED}{name}"
