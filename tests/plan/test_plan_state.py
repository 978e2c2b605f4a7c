"""The state of a document: events observed, functions assumed, a workflow read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvpolicy.assumed import Assumed, assume
from kvpolicy.blocks import lay_out
from kvpolicy.faults import InputFault
from kvpolicy.plan.state import run_state
from kvpolicy.policy.model import NEVER, EventPattern, IntervalPattern, Subject
from kvpolicy.request import Owner, Span
from tests.plan.plan_stubs import Now, request

PAUSE = IntervalPattern(EventPattern("tool_call"), EventPattern("tool_result"))
POLICY = SimpleNamespace(intervals=(PAUSE,), workflows=())
OWNER = Owner("t", "s")
TURN = Subject("turn", {"agent": "coder", "tokens": 80}, OWNER, 0)
ASKED = request(Span("turn", 0, 80))


def call(at: float, event: str = "tool_call", **more: object) -> dict[str, Any]:
    return {"at": at, "event": event, "session": "s", "tool": "grep", "call": "c1", **more}


def test_events_open_and_close_intervals_for_the_requests_owner() -> None:
    state, now = run_state(POLICY, ASKED, [call(5.0)])
    opening = state.opening(PAUSE, TURN)
    assert now == 5.0
    assert opening is not None
    assert (opening.at, opening.bound_at) == (5.0, 3605.0)
    assert state.read("idle", None, TURN) == 0.0
    later, _ = run_state(POLICY, ASKED, [call(5.0)], now=65.0)
    assert later.read("idle", None, TURN) == 60.0
    closed, _ = run_state(POLICY, ASKED, [call(5.0), call(9.0, "tool_result")], now=60.0)
    assert closed.opening(PAUSE, TURN) is None


def test_another_owners_events_do_nothing() -> None:
    state, _ = run_state(POLICY, ASKED, [call(5.0, session="other")])
    assert state.opening(PAUSE, TURN) is None


def test_what_comes_after_now_has_not_happened() -> None:
    state, now = run_state(POLICY, ASKED, [call(9.0), call(2.0, "turn_start")], now=5.0)
    assert (state.now, now) == (5.0, 5.0)
    assert state.opening(PAUSE, TURN) is None


def test_without_events_it_is_zero_o_clock() -> None:
    state, now = run_state(POLICY, ASKED)
    assert (state.now, now) == (0.0, 0.0)


def test_an_event_that_is_none_is_named() -> None:
    with pytest.raises(InputFault, match=r"events\[1\]: 'tool_cal' is no event"):
        run_state(POLICY, ASKED, [call(1.0), call(2.0, "tool_cal")])
    with pytest.raises(InputFault, match=r"events\[0\]: .*needs a time"):
        run_state(POLICY, ASKED, [{"event": "tool_call"}])


def test_a_workflow_gives_distances() -> None:
    graph = {"nodes": ["a", "b", "c"], "edges": [["a", "b"], ["b", "c"]]}
    asked = request(Span("turn", 0, 80), owner=Owner("t", "s", None, "a"))
    state, _ = run_state(POLICY, asked, workflow=graph)
    owner = asked.owner
    steps = [state.read("steps_to_next_use", None, Subject("turn", {"agent": n}, owner)) for n in "abc"]
    assert steps == [0, 1, 2]


def test_a_function_is_assumed_of_a_span_that_the_request_has() -> None:
    count = len(lay_out(ASKED).spans)
    run_state(POLICY, ASKED, functions=[assume("idle()", "1s", count - 1)])
    for wrong in (count, -1):
        with pytest.raises(InputFault, match=rf"functions\[1\].span: {wrong} is no span of the request; it has 0"):
            run_state(POLICY, ASKED, functions=[assume("age()", "1s"), assume("idle()", "1s", wrong)])


def test_functions_override_the_state() -> None:
    state, _ = run_state(POLICY, ASKED, [call(5.0)], [assume("idle()", "2min"), assume("eta(tool_result)", "never")])
    assert state.read("idle", None, TURN) == 120.0
    assert state.read("eta", EventPattern("tool_result"), TURN) is NEVER
    assert state.read("age", None, TURN) == 0.0
    assert state.opening(PAUSE, TURN) is not None


def test_the_narrower_assumption_holds_whatever_the_order() -> None:
    rows = [assume("idle()", "1s"), assume("idle()", "2s", "turn"), assume("idle()", "3s", "turn[agent = coder]")]
    rows.append(assume("idle()", "4s", 1))
    for ordered in (rows, rows[::-1]):
        state = Assumed(Now(), ordered)
        assert state.per_span
        assert state.read("idle", None, TURN) == 3.0
        assert state.read("idle", None, Subject("turn", {}, OWNER, 0)) == 2.0
        assert state.read("idle", None, Subject("tools", {}, OWNER, 0)) == 1.0
        assert state.read("idle", None, Subject("tools", {}, OWNER, 1)) == 4.0
    assert not Assumed(Now(), rows[:2]).per_span


def test_what_is_not_assumed_is_asked_of_the_state() -> None:
    state = Assumed(Now(7.0, told={"b": {"rank": 1}}, idle=3.0), [])
    assert (state.now, state.read("idle", None, TURN), state.idle_since(OWNER)) == (7.0, None, 3.0)
    assert state.attributes(OWNER, "b") == {"rank": 1}
