"""The keys of a graph as JSON: one that no part of it has is refused, for what it says would be dropped unseen.

Called by `graph_read` for each object of a document. The data of a networkx graph is not asked: a drawing carries
positions and colours there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.language.spelling import nearest
from kvpolicy.workflow.shown import shown

GRAPH_KEYS = ("nodes", "edges", "joins", "loops", "loop", "name")
NODE_KEYS = ("name", "role", "parent", "workflow", "ends")
EDGE_KEYS = ("from", "to", "times", "at_most", "probability", "loop", "group")
CIRCLE_KEYS = ("nodes", "max_rounds")


# What other tools' graphs call it: LangGraph's `to_json`, networkx's node-link data, Cytoscape's elements.
_ELSEWHERE = {
    "id": "name", "label": "name", "type": "role", "weight": "probability",
    "links": "edges", "transitions": "edges", "vertices": "nodes",
}  # fmt: skip


def check_keys(row: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    """Raises InputFault for the first key that is not known, with the one that was meant."""
    wrong = next((key for key in row if key not in known), None)
    if wrong is None:
        return
    meant = _ELSEWHERE.get(wrong) if isinstance(wrong, str) else None
    if meant not in known:
        meant = nearest(wrong, known) if isinstance(wrong, str) else None
    mend = f"did you mean {meant!r}?" if meant is not None else f"there are {', '.join(known)}"
    raise InputFault(f"{place}: unknown key {shown(wrong)}; {mend}")


def check_graph_keys(document: Mapping[str, Any], place: str) -> None:
    """The same of a whole graph, which has nodes. Raises InputFault."""
    check_keys(document, GRAPH_KEYS, place)
    if not document.get("nodes"):
        raise InputFault(f'{place}: nodes: missing; a workflow has at least one, such as "nodes": ["writer"]')
