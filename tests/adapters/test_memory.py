"""The adapter of the embedded engine: found by entry point, loses nothing, and its engine really evicts otherwise."""

from __future__ import annotations

import pytest

import kvpolicy
from kvpolicy.adapter import READY, find_adapter
from kvpolicy.faults import InputFault
from kvpolicy.plan import plan
from kvpolicy.request import Owner, Request, Span
from kvpolicy.workflow.state import RunState

POLICY = kvpolicy.load("system { priority: 90  ttl: 250ms }\nscratchpad { retention: drop }\n")
REQUEST = Request("r", Owner(session="s"), 64, 16, (Span("system", 0, 32), Span("scratchpad", 32, 64)))


def test_a_plan_in_its_form_loses_nothing() -> None:
    lowered = find_adapter("memory").lower(plan(POLICY, REQUEST, RunState(), 0.0), REQUEST)
    assert lowered.state == READY and lowered.losses == ()
    assert lowered.answer == {"status": "accepted", "requested": 4, "granted": 4, "reason": None}
    rows = lowered.payload["directives"]
    assert [(row["kind"], row["priority"], row["ttl"], row["retention"]) for row in rows] == [
        ("system", 90, "250ms", "normal"),
        ("scratchpad", 35, None, "drop"),
    ]


def test_no_directive_asks_for_nothing() -> None:
    bare = Request("r", Owner(), 64, 16)
    assert find_adapter("memory").lower(plan(POLICY, bare, RunState(), 0.0), bare).answer["requested"] == 0


def test_its_engine_chooses_other_victims_under_a_policy() -> None:
    """What `engine-executed` says: the same requests, by the engine's own calls, and other blocks leave."""
    lost = {}
    for name, policy in (("alone", None), ("ruled", "turn[agent = keeper] { priority: 90 }\n")):
        engine = kvpolicy.Engine(policy, adapter="memory", blocks=4)
        for at, (agent, words) in enumerate((("keeper", "ab"), ("other", "cd"), ("other", "ef"))):
            request = Request(words, Owner(session=agent, agent=agent), 32, 16, attributes={"agent": agent})
            outcome = engine.request(request, hashes=list(words), now=float(at))
            engine.finish(words, finished=True, now=float(at))
        lost[name] = outcome.evicted
    assert lost == {"alone": ["b", "a"], "ruled": ["d", "c"]}


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(InputFault, match="at least one block"):
        kvpolicy.Engine(POLICY, blocks=0)
