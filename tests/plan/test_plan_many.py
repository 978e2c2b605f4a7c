"""Plans of many spans under many rules that call functions: each thing is asked once, and the answers are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.plan import plan
from kvpolicy.request import Request, Span
from kvpolicy.workflow.events import Event
from tests.counting import calls_of
from tests.plan.plan_stubs import request
from tests.plan.test_plan_policy import OWNER, OneByOne, policy, state_of

SPANS = 60
GUARDS = {  # functions of the span, and one of the owner's
    "drifting": "reuse_probability() else 0.5 > 0.{i:03}",
    "next use": "(next_use() else 5s) > {i}ms",
    "turns": "turns_ago() > {i}",
    "mixed": "idle() > {i}s or turns_ago() > {i}",
}
CALLED = 150  # calls of functions a rule, and a span, of one plan: asking each rule for each span takes 850 and more


def prompt(*turns: int) -> Request:
    spans = [Span("turn", at * 32, at * 32 + 32, {"turn": turn}) for at, turn in enumerate(turns)]
    return request(*spans, tokens=32 * len(spans), owner=OWNER, attributes={"turn": 9})


@pytest.mark.parametrize("guard", GUARDS.values(), ids=list(GUARDS))
@pytest.mark.parametrize("count", [100, 200])
def test_the_work_of_a_plan_grows_with_rules_and_spans_not_with_their_product(guard: str, count: int) -> None:
    lines = [f"r{i}: turn when {guard.format(i=i)} {{ priority: 7 }}" for i in range(count)]
    rules = policy("\n".join(lines))
    asked = prompt(*[at % 3 for at in range(SPANS)])
    state = state_of(rules, asked)
    plan(rules, asked, state, 100.0)  # rules are put in order once
    calls = calls_of(lambda: plan(rules, asked, state, 100.0))
    assert calls <= CALLED * (count + SPANS)


def test_where_there_is_nothing_to_tell_notices_do_not_look_at_each_span():
    asked = prompt(*range(SPANS))
    rules = policy("turn { priority: 7 }")
    made = plan(rules, asked, state_of(rules, asked), 100.0)
    assert calls_of(lambda: list(made.notices)) < SPANS
    assert not made.notices


MIXED = """
any { priority: 30 }
old: turn when turns_ago() > 2 and idle() <= 1min { priority: 20 + turns_ago() }
far: turn over old when steps_to_next_use() else 3 > turns_ago() { priority: 25 }
layer late {
  on tool_call until tool_result {
    turn when turns_ago() < 2 or age() > 2min { retention: hold 20s priority: 50 + 3 * turns_ago() }
    turn[tool = grep] { priority: 66 - idle() / 10s }
  }
  turn when bytes() else 0KiB > 3KiB { ttl: 9min }
}
limit turn { priority: at most 40 + 2 * turns_ago() }
"""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["grep", None])), min_size=1, max_size=10),
    st.lists(st.sampled_from(["tool_call", "tool_result", "turn_end"]), max_size=3),
    st.sampled_from([3.0, 40.0, 100.0, 300.0]),
)
def test_spans_answered_alike_are_decided_as_if_each_were_asked(
    turns: list[tuple[int, str | None]], events: list[str], now: float
) -> None:
    rules = policy(MIXED)
    own = [{"turn": turn, **({} if tool is None else {"tool": tool})} for turn, tool in turns]
    spans = [Span("turn", at * 32, at * 32 + 32, attributes) for at, attributes in enumerate(own)]
    asked = request(*spans, tokens=32 * len(spans), owner=OWNER, attributes={"turn": 9})
    happened = [Event(float(at), name, {"tool": "grep", "call": "c"}) for at, name in enumerate(events, 1)]
    state = state_of(rules, asked, *happened, now=now)
    assert plan(rules, asked, state, now) == plan(rules, asked, OneByOne(state), now)  # type: ignore[arg-type]
