"""Graphs of frameworks as the JSON document of a workflow: what all readers of them share.

A framework's graph has a beginning and an end that are no agents. The beginning is left out; the end stays as a
barrier that the first way reaches, so that a loop which may end has its way out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

END = "__end__"  # to the readers of graphs; a document calls it `end`


def closed(
    name: str,
    nodes: Mapping[str, str | None],
    edges: Iterable[tuple[str, str]],
    begins: Iterable[str],
    joins: Iterable[str] = (),
    sure: Collection[tuple[str, str]] = (),
    groups: Mapping[tuple[str, str], str] | None = None,
    barriers: Mapping[str, str] | None = None,
    chances: Mapping[tuple[str, str], float] | None = None,
) -> dict[str, Any]:
    """The document. nodes: each with the agent that calls it, or None. edges: with END where a run may end. begins:
    where it begins. joins: nodes that wait for all that lead there. sure: edges that are taken whenever their node
    ends, so all of those together; of the others one is. groups: the same where more than one such set leads out of a
    node, each under a name of its own. barriers: nodes that are no agents, with how they wait. chances: of edges."""
    listed = list(dict.fromkeys(edges))
    back = leading_back(begins, listed)
    rows: list[dict[str, Any]] = []
    for node, of in nodes.items():
        role = {"role": "barrier"} if barriers and node in barriers else {}
        rows.append({"name": node} | ({"parent": of} if of else {}) | role)
    waits = dict.fromkeys(joins, "and") | dict(barriers or {})
    end = next(free for free in ("end", *(f"end {number}" for number in range(2, len(nodes) + 3))) if free not in nodes)
    if any(target == END for _, target in listed):
        rows.append({"name": end, "role": "barrier"})
        waits[end] = "or"
    told: list[dict[str, Any]] = []
    for a, b in listed:
        row: dict[str, Any] = {"from": a, "to": end if b == END else b}
        row |= {"loop": True} if (a, b) in back else {}
        row |= {"group": a} if (a, b) in sure else {}
        row |= {"group": groups[a, b]} if groups and (a, b) in groups else {}
        row |= {"probability": chances[a, b]} if chances and (a, b) in chances else {}
        told.append(row)
    return {"name": name, "nodes": rows, "edges": told, "joins": waits}


def leading_back(begins: Iterable[str], edges: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Edges to a node that the walk from the beginnings has come through: closing edges of loops. Depth first, in the
    order given."""
    out: dict[str, list[str]] = {}
    for source, following in edges:
        out.setdefault(source, []).append(following)
    back: set[tuple[str, str]] = set()
    state: dict[str, int] = {}  # 1: on the way, 2: done
    for begin in (*begins, *out):
        if begin in state:
            continue
        state[begin] = 1
        way = [(begin, iter(out.get(begin, ())))]
        while way:
            node, onward = way[-1]
            target = next(onward, None)
            if target is None:
                state[node] = 2
                way.pop()
            elif state.get(target) == 1:
                back.add((node, target))
            elif target not in state:
                state[target] = 1
                way.append((target, iter(out.get(target, ()))))
    return back
