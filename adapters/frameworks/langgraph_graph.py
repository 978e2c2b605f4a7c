"""The graphs of LangGraph: a compiled app's nodes, with those of the graphs within it.

Made by `watch` and by the entry point `kvpolicy.workflows`; read by the service and by `kvpolicy.Engine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvpolicy.adapters.frameworks.shape import END, closed
from kvpolicy.workflow.graph import NESTED

START = "__start__"


def name_of(app: Any) -> str:
    name = getattr(app, "name", None)
    return str(name) if name and name != "LangGraph" else "langgraph"


def graph(app: Any) -> dict[str, Any]:
    """The compiled graph as a workflow: subgraphs laid out (`outer/inner`), edges that lead back as loops, nodes that
    wait for all (`add_edge([a, b], c)`, `defer=True`) as AND joins, and the end as a barrier that any way reaches. A
    conditional edge that declares no targets may lead to every node of its graph."""
    drawn = app.get_graph(xray=True)
    names = list(drawn.nodes)
    edges = {(edge.source, edge.target): bool(edge.conditional) for edge in drawn.edges}
    for source, targets in _anywhere(app):
        edges |= {(source, target): True for target in targets if source in names and target in names}
    for inner in [name for name in names if name not in (START, END) and name.endswith((f":{START}", f":{END}"))]:
        edges = _without(inner, edges)
        names.remove(inner)
    named = {key: key.replace(":", NESTED) for key in names if key != START}
    begins = [named[target] for source, target in edges if source == START and target in named]
    kept = {(named[a], named[b]): guarded for (a, b), guarded in edges.items() if a in named and b in named}
    nodes: dict[str, str | None] = {name: None for key, name in named.items() if key != END}
    waiting = [named[node] for node in _waiting(app) if node in named]
    return closed(name_of(app), nodes, kept, begins, waiting, {edge for edge, guarded in kept.items() if not guarded})


def _without(node: str, edges: Mapping[tuple[str, str], bool]) -> dict[tuple[str, str], bool]:
    """The edges with those through a node, which is no step, in one."""
    into = [(source, guarded) for (source, target), guarded in edges.items() if target == node]
    onward = [(target, guarded) for (source, target), guarded in edges.items() if source == node]
    through = {(a, b): one or other for a, one in into for b, other in onward}
    return {edge: guarded for edge, guarded in edges.items() if node not in edge} | through


def _graphs(app: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The builders of a graph and of those in it, each with what stands before its nodes' names."""
    builder = getattr(app, "builder", None)
    if builder is not None:
        yield prefix, builder
    for name, inner in getattr(app, "get_subgraphs", tuple)():
        yield from _graphs(inner, f"{prefix}{name}:")


def _waiting(app: Any) -> Iterable[str]:
    """Nodes that wait for all."""
    for prefix, builder in _graphs(app):
        yield from (prefix + end for starts, end in getattr(builder, "waiting_edges", ()) if len(starts) > 1)
        yield from (prefix + name for name, spec in builder.nodes.items() if getattr(spec, "defer", False))


def _anywhere(app: Any) -> Iterable[tuple[str, list[str]]]:
    """Nodes with a conditional edge that declares no targets, and all that it may lead to."""
    for prefix, builder in _graphs(app):
        for source, branches in getattr(builder, "branches", {}).items():
            if any(getattr(branch, "ends", True) is None for branch in branches.values()):
                yield prefix + source, [prefix + name for name in (*builder.nodes, END) if name != source]
