"""Agents that a client names by ids of its own: at which node they stand, as events told it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from kvpolicy.service.meaning.annotations import Context
from kvpolicy.service.meaning.client_agents import ClientAgents
from kvpolicy.workflow.events import Event
from tests.service.through import through, until

STATED = {"tenant": "t", "session": "s", "agent": "a1", "node": "helper"}


def told(*events: Event, most: int = 8) -> ClientAgents:
    agents = ClientAgents(most)
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
