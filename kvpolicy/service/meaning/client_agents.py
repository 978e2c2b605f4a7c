"""Which node of a workflow an agent stands at that its client names by an id of its own (`x-claude-code-agent-id`).

Told by events that state all three: `step_start` and `agent_start` with `session`, `agent` and `node`. `decisions` asks
for each request on whose agent nobody has said a word of ours, so what an address says of a client as a whole
(`/kvp/node=main/…`) does not hold for its sub-agents. A session's agents are forgotten where it ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace

from kvpolicy.request import Owner
from kvpolicy.service.meaning.annotations import Context, name_of
from kvpolicy.workflow.events import Event

MOST, MOST_IN_ALL = 20_000, 200_000  # agents: of one tenant, of all
_TELL = ("step_start", "agent_start")


class ClientAgents:
    """Agents and their nodes. most: how many of a tenant, whose longest unheard ones go first; in_all: of all tenants,
    of whom that one with the most gives."""

    def __init__(self, most: int = MOST, in_all: int = MOST_IN_ALL) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._most, self._in_all, self._count = most, in_all, 0

    def told(self, event: Event, reached: Iterable[Owner] = ()) -> None:
        """An event, with whom it reached. # INVARIANT: its tenant is the authenticated one, so tenants know nothing of
        each other's, and none takes another's place."""
        told = [name_of(event.attributes.get(field)) for field in ("tenant", "session", "agent", "node")]
        tenant, session, agent, node = told
        if event.name == "session_end":
            for name, ended in {(tenant, session), *((owner.tenant, owner.session) for owner in reached)}:
                self._end(name, ended)
        if event.name not in _TELL or tenant is None or session is None or agent is None or node is None:
            return
        known = self._tenants.setdefault(tenant, _Tenant())
        self._count += known.put(session, agent, node)
        if known.count > self._most:
            self._count -= known.drop()
        if self._count > self._in_all:
            name, most = max(self._tenants.items(), key=lambda row: row[1].count)
            self._count -= most.drop()
            if not most.count:
                del self._tenants[name]

    def placed(self, tenant: str, said: Context, context: Context) -> Context:
        """The context of a request with its agent's node, where that is known; it is heard of thereby. said: what it
        says in our words."""
        known = self._tenants.get(tenant)
        if known is None or said.agent is not None or context.agent is None or context.session is None:
            return context
        node = known.node(context.session, context.agent)
        return context if node is None else replace(context, node=node)

    def _end(self, tenant: str | None, session: str | None) -> None:
        known = None if tenant is None else self._tenants.get(tenant)
        if known is None or tenant is None or session is None:
            return
        self._count -= known.end(session)
        if not known.count:
            del self._tenants[tenant]


class _Tenant:
    """One tenant's agents by session, both in the order in which they were heard of. count: agents."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        self.count = 0

    def put(self, session: str, agent: str, node: str) -> int:
        """An agent stands at a node. Returns how many more are known."""
        agents = self._sessions.setdefault(session, OrderedDict())
        new = agent not in agents
        agents[agent] = node
        self.node(session, agent)
        self.count += new
        return int(new)

    def node(self, session: str, agent: str) -> str | None:
        """Where an agent stands; it is heard of thereby."""
        agents = self._sessions.get(session)
        if agents is None or agent not in agents:
            return None
        self._sessions.move_to_end(session)
        agents.move_to_end(agent)
        return agents[agent]

    def end(self, session: str) -> int:
        """A session is over. Returns how many agents go."""
        gone = len(self._sessions.pop(session, ()))
        self.count -= gone
        return gone

    def drop(self) -> int:
        """The longest unheard one goes. Returns how many that are."""
        session, agents = next(iter(self._sessions.items()))
        agents.popitem(last=False)
        if not agents:
            del self._sessions[session]
        self.count -= 1
        return 1
