"""Which node of a workflow an agent stands at that its client names by an id of its own (`x-claude-code-agent-id`).

Told by events that state all three: `step_start` and `agent_start` with `session`, `agent` and `node`. `decisions` asks
for each request on whose agent nobody has said a word of ours, so what an address says of a client as a whole
(`/kvp/node=main/…`) does not hold for its sub-agents.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from kvpolicy.service.meaning.annotations import Context, name_of
from kvpolicy.workflow.events import Event

MOST = 20_000
_TELL = ("step_start", "agent_start")


class ClientAgents:
    """Agents and their nodes, the longest unheard of first. most: how many."""

    def __init__(self, most: int = MOST) -> None:
        self._nodes: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._most = most

    def told(self, event: Event) -> None:
        """An event. # INVARIANT: its tenant is the authenticated one, so tenants know nothing of each other's."""
        if event.name not in _TELL:
            return
        told = [name_of(event.attributes.get(field)) for field in ("tenant", "session", "agent", "node")]
        tenant, session, agent, node = told
        if tenant is None or session is None or agent is None or node is None:
            return
        self._nodes[tenant, session, agent] = node
        self._nodes.move_to_end((tenant, session, agent))
        while len(self._nodes) > self._most:
            self._nodes.popitem(last=False)

    def placed(self, tenant: str, said: Context, context: Context) -> Context:
        """The context of a request with its agent's node, where that is known. said: what it says in our words."""
        if said.agent is not None or context.agent is None or context.session is None:
            return context
        node = self._nodes.get((tenant, context.session, context.agent))
        return context if node is None else replace(context, node=node)
