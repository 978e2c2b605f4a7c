"""Nothing grows with the number of events: what callers send without end is kept in bounds."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.policy.model import EventPattern, IntervalPattern, Subject
from kvpolicy.policy.timeline import Happening, opening_of
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState

OWNER = Owner("t", "s")
PATTERNS = [
    IntervalPattern(EventPattern("branch_scored"), None),
    IntervalPattern(EventPattern("tool_call"), EventPattern("tool_result")),
    IntervalPattern(EventPattern("step_start"), EventPattern("step_end")),
    IntervalPattern(EventPattern("turn_end"), EventPattern("turn_start")),
    IntervalPattern(EventPattern("tool_call", (("tool", "=", ("grep",)),)), None),
]


def told(rounds: int) -> RunState:
    state = RunState(PATTERNS)
    state.know(OWNER)
    for number in range(rounds):
        at = float(number)
        names = {"session": "s", "branch": f"b{number % 7}"}
        state.observe(Event(at, "branch_scored", {"session": "s", "score": 0.5}))
        state.observe(Event(at, "branch_start", {**names, "session": f"nobody{number % 50}"}))
        state.observe(Event(at, "step_start", {"session": "s", "node": f"n{number % 90}"}))
        state.observe(Event(at, "step_end", {"session": "s", "node": f"n{number % 90}"}))
        state.observe(Event(at, "tool_call", {"session": "s", "tool": f"t{number % 40}", "call": f"c{number}"}))
        if number % 3:
            state.observe(Event(at, "tool_result", {"session": "s", "call": f"c{number}"}))
        request = Request(f"r{number}", OWNER, 10, 16)
        if number % 500 == 0:
            state.arrive(request, at)
            state.touched(request.id, at)
            state.answer(request, at, finished=True)
    return state


def test_ten_times_the_events_take_no_more_room() -> None:
    state = told(2_000)
    life = state._owners.lives[OWNER]
    assert len(life.phases.calls) <= 256
    assert sum(map(len, life.openings.open.values())) <= 2 * 256 + len(PATTERNS)
    assert len(state._moves._deadlines._heap) <= 66
    assert len(pickle.dumps(state.learned)) < 100_000
    assert len(state._owners._index) < 300 + 10


_events = st.lists(
    st.tuples(
        st.sampled_from((0.0, 1.0, 5.0, 40.0)),
        st.sampled_from(("tool_call", "tool_result", "turn_start", "turn_end", "step_start", "session_end", "resume")),
        st.sampled_from(("grep", "test")),
    ),
    max_size=12,
)


@given(_events)
def test_the_short_reading_that_tests_and_explain_use_says_the_same(events: list[tuple[float, str, str]]) -> None:
    state = RunState(PATTERNS)
    state.know(OWNER)
    subject = Subject("turn", {"tenant": "t", "session": "s"}, OWNER)
    now, happened = 0.0, []
    for pause, name, tool in events:
        now += pause
        facts = {"tool": tool} if name.startswith("tool") else {}
        happened.append(Happening(now, name, facts))
        state.observe(Event(now, name, facts))
        for pattern in PATTERNS:
            assert state.opening(pattern, subject) == opening_of(pattern, happened, subject.attributes, now)
