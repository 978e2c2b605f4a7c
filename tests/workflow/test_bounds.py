"""Nothing grows with the number of events: what callers send without end is kept in bounds."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.policy.model import EventPattern, IntervalPattern, Subject
from kvpolicy.policy.timeline import Happening, opening_of
from kvpolicy.request import Owner, Request
from kvpolicy.workflow import classes, durations
from kvpolicy.workflow.events import Event, event_from_row
from kvpolicy.workflow.graph import Graph
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


def test_four_times_the_events_take_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "FEW", 8)  # so that what is bounded is full after the fewer
    monkeypatch.setattr(classes, "MOST_TOOLS", 4)
    few, many = told(1_000), told(4_000)
    for state in (few, many):
        life = state._owners.lives[OWNER]
        assert len(life.phases.calls) <= 256
        assert sum(map(len, life.openings.open.values())) <= 2 * 256 + len(PATTERNS)
        assert len(state._moves.deadlines._heap) <= 66
        assert len(state._owners._index) < 300 + 10
    grown = len(pickle.dumps(many.learned)) - len(pickle.dumps(few.learned))
    assert grown < 0.15 * len(pickle.dumps(few.learned))  # 10 bytes of each round would be more


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


_junk = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.just(10**400), st.floats(allow_nan=True),
    st.sampled_from(("s", "b1", "c1", "", "n")),
    st.lists(st.integers(0, 1), max_size=1), st.dictionaries(st.just("k"), st.integers(0, 1), max_size=1),
)  # fmt: skip
_fields = (
    "tenant",
    "session",
    "run",
    "agent",
    "branch",
    "node",
    "call",
    "tool",
    "eta",
    "parent",
    "rank",
    "score",
    "n",
    "turn",
)


@given(
    st.lists(
        st.tuples(
            st.floats(-10, 1e9),
            st.one_of(st.sampled_from([*words.EVENTS]), st.text(max_size=3)),
            st.dictionaries(st.sampled_from((*_fields, "status")), _junk, max_size=4),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_whatever_an_event_holds_nothing_raises(events: list) -> None:
    graph = Graph.build({"nodes": ["s", "b1", "n"], "edges": [{"from": "s", "to": "b1", "times": "n"}, ["b1", "n"]]})
    state = RunState([*PATTERNS, IntervalPattern(EventPattern("tool_call", (("score", ">", (0.5,)),)), None)], graph)
    owners = [OWNER, Owner("t", "s", branch="b1", parent="s"), Owner("t", None, "s", "n")]
    for number, (at, name, attributes, mine) in enumerate(events):
        state.observe(Event(at, name, attributes), OWNER if mine else None)
        state.arrive(Request(f"r{number}", owners[number % 3], 10, 16, attributes=attributes), at)
        if number % 2:
            state.answer(Request(f"r{number}", owners[number % 3], 10, 16), at, finished=mine)
        for owner in owners:
            branch = attributes.get("branch")
            seen = state.attributes(owner, branch if isinstance(branch, str) else None)
            subject = Subject("turn", {**attributes, **seen}, owner)
            for function, (arguments, _, _) in words.FUNCTIONS.items():
                for argument in _ARGUMENTS.get(arguments[0] if arguments else "", (None,)):
                    value = state.read(function, argument, subject)
                    assert value is None or not math.isnan(value)
    state.reap(0.0)


_ARGUMENTS: dict[str, tuple[object, ...]] = {
    "series": tuple(words.SERIES),
    "within": (0.0, 30.0),
    "within?": (None, 30.0),
    "event": (EventPattern("tool_result"), EventPattern("turn_start"), EventPattern("step_end")),
    "kind": ("turn",),
    "tier": ("gpu",),
}


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"event": "tool_call"},
        {"event": "no_such", "at": 1},
        {"event": "tool_call", "at": "1"},
        {"event": "tool_call", "at": True},
        {"event": "tool_call", "at": math.nan},
        {"event": "tool_call", "at": 10**400},
        {"event": "tool_call", "at": 1, "eta": "5"},
    ],
)
def test_a_row_that_is_no_event_is_refused(row: dict) -> None:
    with pytest.raises(InputFault):
        event_from_row(row)


def test_a_row_becomes_an_event() -> None:
    event = event_from_row({"at": 1, "event": "tool_call", "tool": "grep", "eta": "4.5s", "session": None})
    assert (event.at, event.name) == (1.0, "tool_call")
    assert event.attributes == {"tool": "grep", "eta": 4.5, "session": None}


def test_counts_beyond_what_a_float_holds() -> None:
    graph = Graph.build({"nodes": ["s", "b"], "edges": [{"from": "s", "to": "b", "times": "n"}]})
    state = RunState([], graph)
    owner = Owner("t", "s", agent="b")
    state.observe(Event(0.0, "step_start", {"tenant": "t", "session": "s", "node": "s", "n": 10**400}))
    state.arrive(Request("r", owner, 10, 16, attributes={"turn": 10**400}), 1.0)
    subject = Subject("turn", {"turn": 1, "node": "b"}, owner)
    assert state.read("turns_ago", None, subject) == 2.0**53
    assert state.read("fan_out", None, subject) == 2.0**53
