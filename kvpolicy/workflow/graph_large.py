"""Workflows of a policy whose graph would have too many edges, told where they are written, before a run needs them.

Asked by `kvp check` and `check` in Python, once all else is right. How many edges it is only the graph itself can say;
it is built where a plain bound, every node of an inner workflow beginning it, does not settle it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvpolicy.faults import Diagnostic, InputFault
from kvpolicy.language import codes, syntax
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.graph_nested import MOST_EDGES

_MOST = 20  # so many graphs are built to find out
_MEND = "let one node of the inner workflow begin it, and lead from there to the others"
_Size = tuple[int, int, int]  # nodes and edges at most, and workflows within one another


def too_large(workflows: Iterable[syntax.Workflow]) -> tuple[Diagnostic, ...]:
    """workflows: those of a policy, their nodes with the workflows that stand in them. One fault for each of which no
    graph can be made, none for those around it."""
    sizes: dict[int, _Size] = {}
    known = list(workflows)
    for workflow in known:
        _measure(workflow, sizes)
    doubtful = [workflow for workflow in known if sizes[id(workflow)][1] > MOST_EDGES]
    found: list[Diagnostic] = []
    refused: set[int] = set()
    for workflow in sorted(doubtful, key=lambda each: sizes[id(each)][2])[:_MOST]:
        inner = [node for node in workflow.nodes if node.nested is not None]
        if any(id(node.nested) in refused for node in inner):
            refused.add(id(workflow))
            continue
        try:
            Graph.build(workflow)
        except InputFault as fault:
            refused.add(id(workflow))
            place = inner[0].path_place or inner[0].place
            why = str(fault).partition(";")[0]  # what is to be done stands in the mend
            found.append(codes.UNUSABLE.at(place, f"'{workflow.name}' is too large: {why}", fix=_MEND))
    return tuple(found)


def _measure(workflow: syntax.Workflow, sizes: dict[int, _Size]) -> _Size:
    known = sizes.get(id(workflow))
    if known is None:
        inner = {n.name: _measure(n.nested, sizes) for n in workflow.nodes if n.nested is not None}
        known = sizes[id(workflow)] = _bound(workflow, inner)
    return known


def _bound(workflow: syntax.Workflow, inner: Mapping[str, _Size]) -> _Size:
    nodes = len(workflow.nodes) + sum(size[0] for size in inner.values())
    ways = [edge.target for edge in workflow.edges] + [node.name for node in workflow.nodes if node.parent is not None]
    edges = sum(inner[target][0] if target in inner else 1 for target in ways)
    edges += sum(size[0] + size[1] for size in inner.values())
    return nodes, edges, max((size[2] + 1 for size in inner.values()), default=0)
