"""AutoGen's AgentChat: who speaks, and the directed graph of a `GraphFlow`.

    client = kvpolicy.annotate(OpenAIChatCompletionClient(...))   # its calls say which agent makes them
    with watch(team, service, session="s1"):
        await team.run(task="…")

The runtime knows whose message is handled at the moment of a call; steps follow from the calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autogen_core import MessageHandlerContext

from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.adapters.frameworks.shape import END, closed
from kvpolicy.client.scope import sources
from kvpolicy.client.service import Service
from kvpolicy.runs import Run

_TEAM = re.compile(r"_[0-9a-f]{8}-[0-9a-f-]{27}$")  # a participant's type ends with its team's id


def here() -> Mapping[str, Any] | None:
    """The participant whose message is handled; None outside of a runtime."""
    try:
        kind = MessageHandlerContext.agent_id().type
    except RuntimeError:
        return None
    name = _TEAM.sub("", kind)
    return {"node": name, "agent": name}


sources.append(here)


def watch(team: Any, service: Service, *, session: str | None = None, workflow: str | None = None) -> Run:
    """The run of a team, to be entered around `team.run` or `run_stream`. A `GraphFlow`'s graph is told to the service.
    session: by default a new one. workflow: the graph's name there, by default the team's."""
    tested("autogen-agentchat", (0, 7), (0, 8))
    name = workflow
    if getattr(team, "_graph", None) is not None:
        name = quiet(lambda: service.describe({**graph(team), "name": workflow or str(team.name)}))()
    return service.run(name, session=session)


def graph(team: Any) -> dict[str, Any]:
    """A `GraphFlow`, or its `DiGraph`, as a workflow: conditional edges are alternatives, others are taken together;
    nodes that are activated by all that lead there wait for them."""
    drawn = getattr(team, "_graph", team)
    nodes: dict[str, str | None] = dict.fromkeys(drawn.nodes)
    edges: list[tuple[str, str]] = []
    sure: set[tuple[str, str]] = set()
    any_of: set[str] = set()
    for name, node in drawn.nodes.items():
        for edge in node.edges:
            edges.append((name, edge.target))
            if edge.condition is None and edge.condition_function is None:
                sure.add((name, edge.target))
            if edge.activation_condition == "any":
                any_of.add(edge.target)
        if not node.edges:
            edges.append((name, END))
    count = {name: sum(target == name for _, target in edges) for name in nodes}
    joins = [n for n, node in drawn.nodes.items() if node.activation == "all" and count[n] > 1 and n not in any_of]
    return closed(str(getattr(team, "name", "digraph")), nodes, edges, sorted(drawn.get_start_nodes()), joins, sure)
