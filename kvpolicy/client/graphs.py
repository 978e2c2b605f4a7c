"""A workflow in whatever form an application has it, as the JSON document of `kvp graph`.

networkx graphs and our own are read here; a framework's by its adapter, found by the entry point
`kvpolicy.workflows` under the first part of its module's name, or of that of a class it is made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvpolicy.faults import InputFault

GROUP = "kvpolicy.workflows"


def readable(source: object) -> object:
    """What `Graph.build` takes: the source itself, or what its framework's adapter makes of it. Raises InputFault where
    the adapter cannot."""
    if source is None or isinstance(source, Mapping):
        return source
    names = [kind.__module__.partition(".")[0] for kind in type(source).__mro__]
    if names[0] in ("kvpolicy", "networkx"):
        return source
    from importlib.metadata import entry_points

    adapters = entry_points(group=GROUP)
    found = next((each for name in names for each in adapters.select(name=name)), None)
    if found is None:
        return source
    try:
        return found.load()(source)
    except InputFault:
        raise
    except Exception as fault:  # another version of the framework than the adapter knows
        raise InputFault(f"the graph of this {type(source).__name__} cannot be read: {fault!r}") from None


def document(source: object) -> dict[str, Any]:
    """The JSON document of a workflow in any form. Raises InputFault for what is none."""
    source = readable(source)
    if isinstance(source, Mapping):
        return dict(source)
    from kvpolicy.workflow.graph import Graph

    graph = Graph.build(source)
    edges = []
    for edge in graph.edges:
        if edge.calls:
            continue
        told = {"times": edge.times, "at_most": edge.at_most, "probability": edge.probability, "group": edge.group}
        kept = {key: value for key, value in told.items() if value is not None}
        edges.append({"from": edge.source, "to": edge.target, **kept, **({"loop": True} if edge.is_loop else {})})
    called = {edge.target: edge.source for edge in graph.edges if edge.calls}
    nodes = [
        {"name": name, "role": role, **({"parent": called[name]} if name in called else {})}
        for name, role in graph.nodes.items()
    ]
    return {"name": graph.name, "nodes": nodes, "edges": edges, "joins": dict(graph.joins)}
