"""Agents that a client names by ids of its own: at which node they stand, as events told it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.request import Owner
from kvpolicy.service.meaning.annotations import Context
from kvpolicy.service.meaning.client_agents import ClientAgents
from kvpolicy.workflow.events import Event
from tests.service.through import through, until

STATED = {"tenant": "t", "session": "s", "agent": "a1", "node": "helper"}


def told(*events: Event, most: int = 8, in_all: int = 99) -> ClientAgents:
    agents = ClientAgents(most, in_all)
    for event in events:
        agents.told(event)
    return agents


def test_what_events_told_stands_in_for_what_the_address_says() -> None:
    agents = told(Event(0.0, "step_start", STATED))
    context = Context(session="s", node="main", agent="a1")
    assert agents.placed("t", Context(node="main"), context).node == "helper"
    assert agents.placed("t", Context(agent="a1"), context) is context  # a word of ours on the agent counts
    for other in (Context(session="s", agent="a2"), Context(session="s2", agent="a1"), Context(session="s")):
        assert agents.placed("t", Context(), other) is other
    assert agents.placed("t2", Context(), context) is context  # nor does another tenant know


@pytest.mark.parametrize("field", ["tenant", "session", "agent", "node"])
@pytest.mark.parametrize("value", [None, "", "x" * 300, 1.5, ["a"], "a\n"])
def test_what_does_not_state_all_tells_nothing(field: str, value: object) -> None:
    agents = told(Event(0.0, "step_start", {**STATED, field: value}))
    assert agents.placed("t", Context(), Context(session="s", agent="a1")).node is None


def test_only_beginnings_tell_and_the_longest_unheard_of_go() -> None:
    agents = told(Event(0.0, "step_end", STATED))
    assert agents.placed("t", Context(), Context(session="s", agent="a1")).node is None
    rows = [Event(0.0, "agent_start", {**STATED, "agent": f"a{number}"}) for number in (1, 2, 3, 1, 4)]
    agents = told(*rows, most=2)
    known = [n for n in range(1, 5) if agents.placed("t", Context(), Context(session="s", agent=f"a{n}")).node]
    assert known == [1, 4]


def started(tenant: str, session: str, agent: str) -> Event:
    return Event(0.0, "agent_start", {"tenant": tenant, "session": session, "agent": agent, "node": f"at {agent}"})


def knows(agents: ClientAgents, tenant: str, session: str, agent: str) -> bool:
    node = agents.placed(tenant, Context(), Context(session=session, agent=agent)).node
    assert node in (None, f"at {agent}")
    return node is not None


def test_a_tenant_with_many_agents_takes_no_other_s_place() -> None:
    agents = told(started("quiet", "s", "a"), *(started("loud", f"s{n}", "a") for n in range(20)), most=4)
    assert knows(agents, "quiet", "s", "a")
    assert [n for n in range(20) if knows(agents, "loud", f"s{n}", "a")] == [16, 17, 18, 19]
    several = [started(f"loud{tenant}", "s", f"a{n}") for tenant in range(3) for n in range(4)]
    agents = told(started("quiet", "s", "a"), *several, most=4, in_all=8)
    assert knows(agents, "quiet", "s", "a")
    assert sum(knows(agents, f"loud{tenant}", "s", f"a{n}") for tenant in range(3) for n in range(4)) == 7


def test_an_agent_whose_requests_come_is_heard_of() -> None:
    agents = told(started("t", "s1", "a"), started("t", "s2", "a"), started("t", "s1", "b"), most=3)
    assert knows(agents, "t", "s1", "a")
    agents.told(started("t", "s3", "a"))
    assert [knows(agents, "t", *row) for row in (("s1", "a"), ("s1", "b"), ("s2", "a"))] == [True, True, False]


@pytest.mark.parametrize("attributes", [{"tenant": "t", "session": "s"}, {}], ids=["stated", "reached"])
def test_a_session_s_agents_are_forgotten_where_it_ends(attributes: dict[str, object]) -> None:
    agents = told(started("t", "s", "a"), started("t", "s", "b"), started("t", "s2", "a"), started("t2", "s", "a"))
    reached = () if attributes else (Owner("t", "s", agent="a"), Owner("t", "s", agent="b"), Owner("t"))
    agents.told(Event(1.0, "session_end", attributes), reached)
    assert not knows(agents, "t", "s", "a") and not knows(agents, "t", "s", "b")
    assert knows(agents, "t", "s2", "a") and knows(agents, "t2", "s", "a")
    agents.told(Event(1.0, "session_end", {"tenant": "t", "session": "s2"}))
    agents.told(Event(1.0, "session_end", {"tenant": "t2", "session": "s"}))
    assert agents._count == 0 and not agents._tenants


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["put", "look", "end"]), st.sampled_from("tu"), st.sampled_from("xyz"), st.integers(0, 4)
        ),
        max_size=60,
    )
)
def test_what_is_kept_is_counted_and_bounded(rows: list[tuple[str, str, str, int]]) -> None:
    agents = ClientAgents(3, 5)
    for what, tenant, session, agent in rows:
        if what == "put":
            agents.told(started(tenant, session, f"a{agent}"))
            assert knows(agents, tenant, session, f"a{agent}")
        elif what == "look":
            knows(agents, tenant, session, f"a{agent}")
        else:
            agents.told(Event(0.0, "session_end", {"tenant": tenant, "session": session}))
        counts = [sum(map(len, each._sessions.values())) for each in agents._tenants.values()]
        assert counts == [each.count for each in agents._tenants.values()]
        assert sum(counts) == agents._count <= 5 and all(0 < count <= 3 for count in counts)


def test_rules_know_a_sub_agent_by_its_node(tmp_path: Path) -> None:
    policy = tmp_path / "policy.kvp"
    policy.write_text('system[node="helper"] { priority: 90 }\nsystem[node="main"] { priority: 60 }\n')
    with through("--policy", str(policy), "--mode", "enforce") as gateway:
        event = {"event": "step_start", "session": "cc", "agent": "a1", "node": "helper"}
        httpx.post(f"{gateway.url}/v1/events", json=event, timeout=30).raise_for_status()
        for agent, priority in (({}, 60), ({"x-claude-code-agent-id": "a1"}, 90)):
            body = {
                "model": "sim",
                "system": "You keep answers short. " * 12,
                "max_tokens": 4,
                "messages": [{"role": "user", "content": "hello"}],
            }
            headers = {"x-claude-code-session-id": "cc", **agent}
            url = f"{gateway.url}/kvp/node=main/v1/messages"
            answer = httpx.post(url, json=body, headers=headers, timeout=30)
            name = answer.headers["x-kvp-decision"].split('id="')[1].split('"')[0]

            def found(name: str = name) -> list[int]:
                rows = gateway.get(f"/v1/explain/{name}")["spans"]
                return [row["properties"]["priority"]["value"] for row in rows if row["span"]["kind"] == "system"]

            assert until(found, [priority]) == [priority]
