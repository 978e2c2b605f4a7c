"""Random histories of one owner: phases and openings equal to the naive reading, and nothing raises."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.policy.model import EventPattern, IntervalPattern, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState
from tests.workflow.naive import Reading

OWNER = Owner("t", "s")
TOOLS = ("grep", "test")
PATTERNS = (
    IntervalPattern(EventPattern("tool_call"), EventPattern("tool_result")),
    IntervalPattern(EventPattern("tool_call", (("tool", "=", ("grep",)),)), EventPattern("tool_result")),
    IntervalPattern(EventPattern("tool_call"), EventPattern("tool_result", (("tool", "=", ("grep",)),)), at_most=7.0),
    IntervalPattern(EventPattern("tool_call", (("tool", "in", TOOLS),)), None),
    IntervalPattern(EventPattern("tool_call"), EventPattern("turn_start")),
    IntervalPattern(EventPattern("turn_end"), EventPattern("turn_start")),
    IntervalPattern(EventPattern("turn_end"), None),
    IntervalPattern(EventPattern("tool_result"), None),
    IntervalPattern(EventPattern("step_start"), EventPattern("step_end")),
    IntervalPattern(EventPattern("session_end"), None),
    IntervalPattern(EventPattern("compact"), None),
    IntervalPattern(EventPattern("barrier"), EventPattern("turn_start")),
    IntervalPattern(EventPattern("resume"), EventPattern("pause")),
)

_names = st.sampled_from(
    ["tool_call"] * 4 + ["tool_result"] * 4 + ["turn_start", "turn_end", "session_end", "resume", *words.EVENTS]
)
_facts = st.fixed_dictionaries(
    {}, optional={"tool": st.sampled_from(TOOLS), "call": st.sampled_from(("c1", "c2", "c3"))}
)
_steps = st.one_of(
    st.tuples(st.just("event"), _names, _facts, st.sampled_from((0.0, 0.0, 0.0, -3.0))),  # some come late
    st.just(("arrive",)),
    st.just(("touched",)),
    st.tuples(
        st.just("answer"),
        st.lists(st.tuples(st.sampled_from(TOOLS), st.sampled_from((None, "c1", "c2", "c4"))), max_size=2),
        st.sampled_from((True, False, None)),
    ),
)
_history = st.lists(st.tuples(st.sampled_from((0.0, 0.5, 1.0, 2.0, 9.0, 29.5, 40.0)), _steps), max_size=25)


@settings(max_examples=300, deadline=None)
@given(_history)
def test_phases_and_openings_are_those_of_the_naive_reading(history: list) -> None:
    state = RunState(PATTERNS)
    state.know(OWNER)
    subject = Subject("turn", {}, OWNER)
    told: list = []
    running: list[Request] = []
    now, number = 10.0, 0
    for pause, step in history:
        now += pause
        if step[0] == "event":
            _, name, facts, late = step
            attributes = {"tenant": "t", "session": "s", **facts}
            if name not in ("tool_call", "tool_result"):
                attributes.pop("call", None)  # there it would say whom the event means
            addressed = state.observe(Event(now + late, name, attributes), OWNER)
            assert OWNER in addressed
            told.append(("event", now + late, name, attributes))
        elif step[0] == "arrive":
            number += 1
            running.append(Request(f"r{number}", OWNER, 100, 16))
            state.arrive(running[-1], now)
            told.append(("arrive", now))
        elif step[0] == "touched":
            if not running:
                continue
            state.touched(running[-1].id, now)
            told.append(("touched", now))
        else:
            if not running:
                continue
            state.answer(running.pop(0), now, tool_calls=step[1], finished=step[2])
            told.append(("answer", now, step[1], step[2]))
        state.advance(now)
        _compare(state, subject, told, now)
    _compare_later(state, subject, told, now)


def _compare(state: RunState, subject: Subject, told: list, now: float) -> None:
    assert state.now == now
    for pattern in PATTERNS:
        reading = Reading(pattern, told, now)
        opening = state.opening(pattern, subject)
        assert state.phase(OWNER) == reading.phase
        if opening is None:
            assert reading.opening() is None, (pattern, told)
            continue
        assert (opening.at, opening.grace_until) == reading.opening(), (pattern, told)
        assert opening.bound_at == opening.at + pattern.at_most
        if pattern.start.name in words.PHASE_AFTER and opening.grace_until is None:
            # so that rules of different phases never meet
            assert state.phase(OWNER) == words.PHASE_AFTER[pattern.start.name]


def _compare_later(state: RunState, subject: Subject, told: list, now: float) -> None:
    for later in (1.0, 2.0, 30.0, 4000.0):
        state.advance(now + later)
        _compare(state, subject, told, now + later)


@settings(max_examples=60, deadline=None)
@given(_history)
def test_the_same_history_gives_the_same_state(history: list) -> None:
    def told() -> list:
        state = RunState(PATTERNS)
        answers: list = []
        now = 0.0
        for pause, step in history:
            now += pause
            if step[0] == "event":
                answers.append(state.observe(Event(now, step[1], {"session": "s", **step[2]})))
            elif step[0] == "arrive":
                answers.append(state.arrive(Request("r", OWNER, 100, 16), now))
            answers.append(state.advance(now))
            answers += [state.read(f, None, Subject("turn", {}, OWNER)) for f in ("idle", "age", "next_use", "fan_out")]
        return answers

    assert told() == told()
