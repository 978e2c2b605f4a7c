"""Graphs from their three sources: a `workflow` block's syntax tree, a JSON document, a networkx graph.

What cannot be understood as a graph at all raises InputFault; what can, but is wrong (a node declared twice, an edge to
an unknown node), becomes a diagnostic in `problems`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from kvpolicy.faults import Diagnostic, InputFault, Place
from kvpolicy.language import codes, syntax
from kvpolicy.workflow.graph_block import Made, from_block, unknown_node
from kvpolicy.workflow.graph_calls import wrong_calls
from kvpolicy.workflow.graph_edge import AGENT, AND, BARRIER, OR, TOOL, GraphEdge
from kvpolicy.workflow.graph_keys import CIRCLE_KEYS, EDGE_KEYS, NODE_KEYS, check_graph_keys, check_keys
from kvpolicy.workflow.graph_nested import flatten
from kvpolicy.workflow.graph_numbers import bound_of, count_of, probability_of
from kvpolicy.workflow.graph_wiring import Wiring
from kvpolicy.workflow.shown import shown

_ROLES = (AGENT, TOOL, BARRIER)
_JSON_KEYS = "nodes, edges, joins, loops"
_DEEPEST = 16  # workflows within one another


def read_graph(source: object, name: str, make: type[Made], depth: int = 0) -> Made:
    """See `Graph.build`. make: what the graph becomes; one that is that already is taken as it is. depth: how many
    workflows stand around it."""
    if depth > _DEEPEST:
        raise InputFault(f"workflows stand within one another more than {_DEEPEST} deep")
    if isinstance(source, make):
        return source
    if isinstance(source, syntax.Workflow):
        return from_block(source, make)
    if isinstance(source, Mapping):
        return _from_json(source, name, make, depth)
    if hasattr(source, "nodes") and hasattr(source, "edges"):  # networkx is not loaded only to ask for its class
        return _from_networkx(source, name, make, depth)
    raise InputFault(f"a workflow is a JSON object with {_JSON_KEYS} or a networkx graph, not {type(source).__name__}")


def _from_json(document: Mapping[str, Any], name: str, make: type[Made], depth: int) -> Made:
    name = document.get("name") or name
    if not isinstance(name, str):
        raise InputFault(f"the name of a workflow is a text, not {shown(name)}")
    check_graph_keys(document, f"workflow {name}")
    place = Place(name, 1, 1)
    nodes: dict[str, str] = {}
    problems: list[Diagnostic] = []
    nested: dict[str, tuple[Wiring, str]] = {}
    edges: list[GraphEdge] = []
    for number, row in enumerate(_list(document, "nodes")):
        told: Mapping[str, Any] = row if isinstance(row, Mapping) else {"name": row}
        check_keys(told, NODE_KEYS, f"workflow {name}: nodes[{number}]{_of(told.get('name'))}")
        node, role = told.get("name"), told.get("role", AGENT)
        if not isinstance(node, str) or role not in _ROLES:
            raise InputFault(f"a node of a workflow is a name, or an object with a name and a role, not {shown(row)}")
        if node in nodes:
            problems.append(codes.DEFINED_TWICE.at(place, f"'{node}' stands twice among the nodes"))
        nodes.setdefault(node, role)
        if told.get("parent") is not None:
            edges.append(_call(told["parent"], node))
        if told.get("workflow") is not None:
            nested[node] = _nested(told, node, depth)
            problems += nested[node][0].problems
    for number, row in enumerate(_list(document, "edges")):
        edges.append(_edge(row, f"workflow {name}: edges[{number}]"))
    # One loop may stand alone; a case of loops is also written as its nodes in running order.
    loops = [*_list(document, "loops"), *([document["loop"]] if "loop" in document else [])]
    for number, row in enumerate(loops):
        edges += _loop(row, f"workflow {name}: loops[{number}]")
    joins = document.get("joins") or {}
    if not isinstance(joins, Mapping) or any(kind not in (AND, OR) for kind in joins.values()):
        raise InputFault("'joins' of a workflow names nodes with 'and' or 'or'")
    usable = []
    for edge in edges:
        missing = [end for end in (edge.source, edge.target) if end not in nodes]
        problems += [_unknown(end, place, name) for end in dict.fromkeys(missing)]
        if not missing:
            usable.append(edge)
    problems += [_unknown(node, place, name) for node in joins if node not in nodes]
    problems += wrong_calls([(edge, place) for edge in usable])
    known = {node: kind for node, kind in joins.items() if node in nodes}
    if nested:
        nodes, usable, known = flatten(nodes, usable, known, nested)
    return make(nodes, usable, known, name=name, problems=tuple(problems))


def _unknown(node: str, place: Place, name: str) -> Diagnostic:
    return unknown_node(node, place, name, f"{json.dumps(node, ensure_ascii=False)} among the nodes")


def _nested(told: Mapping[str, Any], node: str, depth: int) -> tuple[Wiring, str]:
    """The workflow that a node stands for, and how it ends."""
    ends = told.get("ends", OR)
    if ends not in (AND, OR):
        raise InputFault(f"'ends' of '{node}' is 'and' (over with all of its ends) or 'or' (with the first)")
    graph = read_graph(told["workflow"], node, Wiring, depth + 1)
    if not graph.names:
        raise InputFault(f"the workflow of '{node}' has no nodes")
    return graph, ends


def _call(parent: object, node: str) -> GraphEdge:
    """`node` is a sub-agent that `parent` calls."""
    if not isinstance(parent, str):
        raise InputFault(f"the parent of '{node}' is the name of the agent that calls it, not {shown(parent)}")
    return GraphEdge(parent, node, calls=True)


def _edge(row: object, place: str) -> GraphEdge:
    if isinstance(row, list | tuple) and len(row) == 2 and all(isinstance(end, str) for end in row):
        return GraphEdge(row[0], row[1])
    if isinstance(row, Mapping):
        source, target, group = row.get("from"), row.get("to"), row.get("group")
        if isinstance(source, str) and isinstance(target, str):
            place = f"{place} ({source} -> {target})"
            check_keys(row, EDGE_KEYS, place)
            if group is not None and not isinstance(group, str):
                raise InputFault(f"{place}: group: {shown(group)} is no name")
            return GraphEdge(
                source,
                target,
                times=count_of(row.get("times"), place),
                at_most=bound_of(row.get("at_most"), place, "at_most"),
                is_loop=bool(row.get("loop", False)),
                probability=probability_of(row.get("probability"), place),
                group=group,
            )
    raise InputFault(f'{place}: an edge is ["a", "b"] or {{"from": "a", "to": "b"}}, not {shown(row)}')


def _loop(row: object, place: str) -> Iterable[GraphEdge]:
    """`{"from", "to", "at_most"}`, or `{"nodes": [...], "max_rounds": 4}`: 4 rounds take the closing edge 3 times."""
    if isinstance(row, Mapping) and "nodes" in row:
        nodes = row["nodes"]
        check_keys(row, CIRCLE_KEYS, place)
        if not isinstance(nodes, list | tuple) or not nodes or not all(isinstance(node, str) for node in nodes):
            raise InputFault(f"{place}: 'nodes' of a loop is a list of node names in running order")
        rounds = bound_of(row.get("max_rounds"), place, "max_rounds")
        closing = GraphEdge(nodes[-1], nodes[0], None, None if rounds is None else max(0, rounds - 1), True)
        return [*(GraphEdge(a, b) for a, b in pairwise(nodes)), closing]
    return [replace(_edge(row, place), is_loop=True)]


def _from_networkx(source: Any, name: str, make: type[Made], depth: int) -> Made:
    """Node data may carry `role`, `join`, `parent`, `workflow` and `ends`, edge data `times`, `at_most`, `probability`,
    `loop`, `group`."""
    try:
        rows = [(str(node), data) for node, data in source.nodes(data=True)]
        ends = [(str(a), str(b), data) for a, b, data in source.edges(data=True)]
    except (TypeError, ValueError):
        raise InputFault(f"{type(source).__name__} is no networkx graph") from None
    if not getattr(source, "is_directed", lambda: True)():
        raise InputFault("a workflow is a directed graph (networkx.DiGraph)")
    document = {
        "name": str(getattr(source, "name", "") or name),
        "nodes": [{"role": AGENT, **_known(data, NODE_KEYS), "name": node} for node, data in rows],
        "joins": {node: data["join"] for node, data in rows if "join" in data},
        "edges": [{**_known(data, EDGE_KEYS), "from": a, "to": b} for a, b, data in ends],
    }
    return _from_json(document, name, make, depth)


def _known(data: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """What of a node's or edge's data is about the workflow."""
    return {key: data[key] for key in keys if key in data}


def _of(node: object) -> str:
    return f" ({node})" if isinstance(node, str) else ""


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    rows = document.get(key) or []
    if not isinstance(rows, list | tuple):
        raise InputFault(f"'{key}' of a workflow is a list")
    return list(rows)
