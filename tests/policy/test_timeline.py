"""Intervals told from a list of events: directed cases, and agreement with the run state that live owners have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy.model import EventPattern, IntervalPattern, Subject
from kvpolicy.policy.timeline import Happening, opening_of
from kvpolicy.request import Owner
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState


def pattern(start: str, until: str | None = None, **equal: str) -> IntervalPattern:
    conditions = tuple((k, "=", (v,)) for k, v in equal.items())
    return IntervalPattern(EventPattern(start, conditions), EventPattern(until) if until else None)


def told(interval: IntervalPattern, *names: str | tuple[str, dict], now: float | None = None):
    rows = [(n, {}) if isinstance(n, str) else n for n in names]
    events = [Happening(float(at), name, attributes) for at, (name, attributes) in enumerate(rows)]
    return opening_of(interval, events, {"agent": "a"}, len(rows) if now is None else now)


CALLS = pattern("tool_call", "tool_result")


def test_an_interval_opens_and_closes():
    assert told(CALLS) is None
    assert told(CALLS, "tool_call").at == 0.0
    assert told(CALLS, "turn_end") is None


def test_it_stays_open_while_any_call_is():
    one, two = ("tool_call", {"tool": "grep", "call": "1"}), ("tool_call", {"tool": "ls", "call": "2"})
    back = ("tool_result", {"call": "2"})
    assert told(CALLS, one, two, back).grace_until is None
    assert told(CALLS, one, two, back, ("tool_result", {"call": "1"})).grace_until == 33.0
    grep = pattern("tool_call", "tool_result", tool="grep")
    assert told(grep, one, two, ("tool_result", {"tool": "grep"})).grace_until == 32.0
    assert told(grep, one, two, back).grace_until is None


def test_protections_linger_after_a_resuming_event_only():
    assert told(CALLS, "tool_call", "tool_result").grace_until == 31.0
    assert told(CALLS, "tool_call", "tool_result", now=31.0) is None
    assert told(CALLS, "tool_call", "session_end") is None
    assert told(pattern("turn_end", "turn_start"), "turn_end", "turn_start").grace_until == 31.0


def test_leaving_the_phase_closes_what_opened_in_it():
    assert told(pattern("turn_end"), "turn_end").at == 0.0
    assert told(pattern("turn_end"), "turn_end", "tool_call") is None
    assert told(pattern("compact"), "compact", "tool_call", "turn_end").at == 0.0


def test_what_has_ended_comes_back_only_by_a_new_life():
    waiting = pattern("turn_end")
    assert told(waiting, "session_end", "turn_end") is None
    assert told(waiting, "session_end", "resume", "turn_end").at == 2.0


def test_an_event_addresses_owners_that_agree_with_all_it_states():
    assert told(CALLS, ("tool_call", {"agent": "a"})).at == 0.0
    assert told(CALLS, ("tool_call", {"agent": "b"})) is None
    assert told(CALLS, ("tool_call", {"session": "s"})) is None


PATTERNS = (
    CALLS,
    pattern("tool_call", "tool_result", tool="grep"),
    pattern("tool_call"),
    pattern("turn_end", "turn_start"),
    pattern("turn_end"),
    pattern("turn_start", "tool_call"),
    pattern("compact"),
    pattern("barrier", "compact"),
    pattern("step_end", "step_start"),
    pattern("session_end"),
)
EVENTS = (
    ("tool_call", {"tool": "grep", "call": "c1"}),
    ("tool_call", {"tool": "grep"}),
    ("tool_call", {"tool": "ls", "call": "c2"}),
    ("tool_result", {"call": "c1"}),
    ("tool_result", {"tool": "ls"}),
    ("tool_result", {}),
    ("turn_end", {}),
    ("turn_start", {}),
    ("compact", {}),
    ("barrier", {}),
    ("step_start", {}),
    ("step_end", {}),
    ("session_end", {}),
    ("resume", {}),
)


ROWS = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from((0.0, 1.0, 40.0))), max_size=10)


@settings(max_examples=200)
@given(ROWS, st.sampled_from((0.0, 29.0, 31.0)))
def test_as_the_state_of_running_owners_tells_it(rows, later):
    """Also where events are delivered twice, a result comes before its call, or a call was never told."""
    owner = Owner(session="s", agent="a")
    state = RunState(PATTERNS)
    state.know(owner)
    events, at = [], 0.0
    for (name, attributes), pause in rows:
        at += pause
        events.append(Happening(at, name, attributes))
        state.observe(Event(at, name, attributes), owner)
    state.advance(at + later)
    subject = Subject("turn", {"agent": "a", "session": "s"}, owner)
    for interval in PATTERNS:
        assert opening_of(interval, events, subject.attributes, at + later) == state.opening(interval, subject), (
            interval
        )


def test_what_is_told_of_a_call_again_or_before_it_says_nothing():
    one, back = ("tool_call", {"call": "1"}), ("tool_result", {"call": "1"})
    assert told(CALLS, one, one).at == 0.0
    assert told(CALLS, one, back, one, now=2.5).grace_until == 31.0
    assert told(CALLS, back, one) is None
    assert told(CALLS, back, "tool_call", back).grace_until is None


@pytest.mark.parametrize("name", ["turn_end", "step_end"])
def test_a_repeated_event_does_not_open_again(name):
    assert told(pattern(name), name, name).at == 0.0
