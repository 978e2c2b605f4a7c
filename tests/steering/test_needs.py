"""What a policy does not ask for is not learned, and nothing that it does ask for is missed by that."""

from __future__ import annotations

from typing import Any

import pytest

from kvpolicy.policy.model import EventPattern, Subject
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request
from kvpolicy.simulate.names import Contender
from kvpolicy.steering import Steering
from kvpolicy.steering.needs import _TIMES
from kvpolicy.workflow import signals
from kvpolicy.workflow.state import RunState

OWNER = Owner(session="s")
STATISTICS = ("mean", "p50", "p90", "p95", "count")
ARGUMENTS: dict[str, object] = dict.fromkeys(STATISTICS, "tool.duration")
ARGUMENTS |= {"hits": "turn", "eta": EventPattern("tool_result"), "pressure": "gpu"}


def policy(rules: str) -> Any:
    return Contender("p", "policy", False, text=f'policy p "x" {rules}').policy()


def paused_twice(state: RunState) -> RunState:
    """An owner whose first call took 4 s, and whose second one has run for 1 s."""
    for number, at in enumerate((0.0, 4.0)):
        request = Request(f"r{number}", OWNER, 64, 16)
        state.arrive(request, at)
        state.touched(request.id, at)
        state.answer(request, at, tool_calls=["grep"])
    state.advance(5.0)
    return state


@pytest.mark.parametrize("rules", ["turn { priority: 60 }", "turn { priority: 30 + count(tool.duration) }"])
def test_a_replay_learns_what_its_policy_asks_for(rules: str) -> None:
    state = paused_twice(Steering(policy(rules), Pool(8)).state)
    assert state.learned.tenants() == (("default",) if "count" in rules else ())


@pytest.mark.parametrize("function", [*STATISTICS, *signals._READERS])
def test_what_is_not_learned_answers_nothing_that_may_be_asked(function: str) -> None:
    told = []
    for wanted in (True, False):
        state = RunState()
        state.learned.wanted = wanted
        subject = Subject("turn", {}, OWNER, 0)
        told.append(paused_twice(state).read(function, ARGUMENTS.get(function), subject))
    assert told[0] == told[1] or function in _TIMES
