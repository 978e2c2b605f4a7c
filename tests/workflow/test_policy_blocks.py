"""Workflows that stand in others, within a policy: which of its blocks runs follow, what requests may name, what a
comparison of two policies says.
"""

from __future__ import annotations

import pytest

import kvpolicy
from kvpolicy.plan.state import run_state
from kvpolicy.policy.diff.diff import difference
from kvpolicy.policy.model import State, Subject
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request
from kvpolicy.steering.begin import begin

TEXT = """
workflow report {
  agent plan, write, edit
  workflow search
  plan -> search 90% -> write
  plan -> edit 10%
}
workflow search {
  agent find, read
  find -> read
}
system { priority: 40 }
"""


def steps(state: State, agent: str) -> object:
    owner = Owner("default", "s", agent=agent)
    return state.read("steps_to_next_use", None, Subject("system", {"agent": agent, "node": agent}, owner))


def test_runs_follow_the_one_that_stands_in_no_other() -> None:
    policy = kvpolicy.load(TEXT)
    graph = begin(policy, Pool(10)).state.runs.graph  # type: ignore[union-attr]
    assert graph is not None
    assert [*graph.names] == ["plan", "write", "edit", "search/find", "search/read"]
    two = kvpolicy.load(TEXT + "workflow other { agent x }\n")
    assert begin(two, Pool(10)).state.runs.graph is None  # type: ignore[union-attr]


def test_a_request_may_name_the_inner_one() -> None:
    policy = kvpolicy.load(TEXT)
    for stated, expected in (({}, 3.0), ({"workflow": "search"}, None)):
        asked = Request("r", Owner("default", "s", agent="plan"), 16, 16, attributes=stated)
        state, _ = run_state(policy, asked, [{"at": 1, "event": "step_start", "node": "plan", "session": "s"}])
        assert steps(state, "write") == expected  # the inner one has no such node


def test_what_is_stated_of_ways_is_what_the_functions_say() -> None:
    policy = kvpolicy.load(TEXT)
    asked = Request("r", Owner("default", "s", agent="plan"), 16, 16)
    state, _ = run_state(policy, asked, [{"at": 1, "event": "step_start", "node": "plan", "session": "s"}])
    for agent, expected in (("edit", 0.1), ("write", 0.9), ("read", 0.9)):
        owner = Owner("default", "s", agent=agent)
        chance = state.read("reuse_probability", None, Subject("system", {"agent": agent, "node": agent}, owner))
        assert chance == pytest.approx(expected), agent


def test_a_comparison_sees_probabilities_calls_and_what_stands_in_it() -> None:
    before = kvpolicy.load(TEXT)
    assert difference(before, kvpolicy.load(TEXT.replace("90%", "0.9"))).others == ()
    for old, new in (("90%", "80%"), ("write, edit", "write, edit of write"), ("workflow search\n", "agent search\n")):
        after = kvpolicy.load(TEXT.replace(old, new, 1))
        assert difference(before, after).others == ("the workflow 'report' has other nodes or edges",)
