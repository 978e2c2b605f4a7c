"""Planning with compiled policies: asking once for spans that rules cannot tell apart makes no difference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.language.load import load_text
from kvpolicy.plan import plan
from kvpolicy.plan.rows import as_json
from kvpolicy.policy.compile import compile as compile_policy
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner, Request, Span
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState
from tests.plan.plan_stubs import request

PAUSES = """
system, tools { priority: 90 }
document { priority: 60 ttl: 10min }
scratchpad[tokens > 20] { retention: drop }
layer pauses {
  on tool_call until tool_result {
    quick: turn, tool_result when p95(tool.duration) else 20s <= 20s {
      retention: hold p95(tool.duration) else 20s
      priority: 80
    }
    slow: turn, tool_result when p95(tool.duration) else 20s > 20s { priority: 40 }
  }
  old: turn when turns_ago() > 2 { priority: 20 }
  mine: tool_result[tool = grep] over quick, slow { priority: 55 }
}
limit any[plan = free] { priority: at most 85 }
"""
OWNER = Owner("t", "s", None, "coder")


def policy(text: str) -> Policy:
    loaded = load_text(text, "p.kvp")
    assert loaded.files is not None, loaded.diagnostics
    return compile_policy(loaded.files)


def state_of(rules: Policy, asked: Request, *events: Event, now: float = 100.0) -> RunState:
    state = RunState(rules.intervals)
    state.arrive(asked, 0.0)
    for event in events:
        state.observe(event, OWNER)
    state.advance(now)
    return state


class OneByOne:
    """The same state, but every span is asked for."""

    per_span = True

    def __init__(self, state: RunState) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


@st.composite
def conversations(draw: st.DrawFn) -> Request:
    spans, place = [], 0
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["system", "tools", "document", "turn", "tool_result", "scratchpad"]))
        own: dict[str, object] = {}
        if kind == "tool_result":
            own["tool"] = draw(st.sampled_from(["grep", "ls"]))
        if draw(st.booleans()):
            own["turn"] = draw(st.integers(0, 6))
        end = place + draw(st.integers(1, 40))
        spans.append(Span(kind, place, end, own))
        place = end
    plan_of = draw(st.sampled_from([{}, {"plan": "free"}]))
    return request(*spans, tokens=place, owner=OWNER, attributes={"turn": 6, **plan_of})


@given(conversations(), st.booleans(), st.sampled_from([0.5, 15.0, 60.0]))
def test_asking_once_for_spans_alike_makes_no_difference(asked: Request, paused: bool, took: float) -> None:
    rules = policy(PAUSES)
    events = [Event(1.0, "tool_call", {"tool": "grep", "call": "c0"})]
    events.append(Event(1.0 + took, "tool_result", {"tool": "grep", "call": "c0"}))
    if paused:
        events.append(Event(95.0, "tool_call", {"tool": "grep", "call": "c1"}))
    state = state_of(rules, asked, *events)
    assert plan(rules, asked, state, 100.0) == plan(rules, asked, OneByOne(state), 100.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        ("turn { priority: 50 }", True),
        ("turn when idle() > 5min { priority: 50 }", True),
        ("turn when turns_ago() > 2 { priority: 50 }", False),
        ("turn { priority: 50 + 10 * turns_ago() }", False),
        ("turn { priority: 50 } limit turn { ttl: at most next_use() else 5min }", False),
    ],
)
def test_a_function_of_the_span_is_asked_for_every_span(text: str, alike: bool) -> None:
    from kvpolicy.policy.model import Subject

    assert policy(text).menu(Subject("turn", {}, OWNER, 0)).of_the_owner == alike


def test_a_hold_runs_from_the_event_and_is_over_in_time() -> None:
    rules = policy(PAUSES)
    asked = request(Span("system", 0, 32), Span("turn", 32, 64), tokens=64, owner=OWNER)
    called = Event(10.0, "tool_call", {"tool": "ls", "call": "c1"})
    for now, protected in ((10.0, True), (29.9, True), (30.0, False)):
        made = plan(rules, asked, state_of(rules, asked, called, now=now), now)
        turn = made.directives[1]
        assert (turn.priority, str(turn.retention), turn.protected_until) == (80, "hold 20s", 30.0)
        assert made.valid_until == (30.0 if protected else None)
        assert {b["protected"] for b in as_json(made, asked)["blocks"]} == {protected}


def test_a_limit_binds_and_is_told_of() -> None:
    rules = policy(PAUSES)
    asked = request(Span("system", 0, 64), tokens=64, owner=OWNER, attributes={"plan": "free"})
    made = plan(rules, asked, state_of(rules, asked), 100.0)
    assert [d.priority for d in made.directives] == [85]
    assert [n.code for n in made.notices] == ["CLIPPED"]


def test_a_plan_is_read_again_when_a_guard_on_idle_time_crosses() -> None:
    rules = policy("turn { priority: 60 } layer later { turn when idle() > 2min { priority: 20 } }")
    asked = request(Span("turn", 0, 64), tokens=64, owner=OWNER)
    state = state_of(rules, asked, now=10.0)
    state.answer(asked, 10.0, finished=True)
    made = plan(rules, asked, state, 10.0)
    assert made.directives[0].priority == 60
    assert made.valid_until == pytest.approx(130.0, abs=1e-3)
    assert made.valid_until > 130.0
    state.advance(made.valid_until)
    assert plan(rules, asked, state, made.valid_until).directives[0].priority == 20
