"""Directed histories: parallel calls, graces, bounds, ends of life, answers that nobody classifies."""

from __future__ import annotations

import pytest

from kvpolicy.policy.model import EventPattern, IntervalPattern, Opening, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState

OWNER = Owner("t", "s")
TURN = Subject("turn", {}, OWNER)


def on(start: str, until: str | None = None, tool: str | None = None, **more: float) -> IntervalPattern:
    conditions = () if tool is None else (("tool", "=", (tool,)),)
    return IntervalPattern(EventPattern(start, conditions), EventPattern(until) if until else None, **more)


PAUSE = on("tool_call", "tool_result")
GREP = on("tool_call", "tool_result", "grep")
TESTS = on("tool_call", "tool_result", "run_tests")
WAIT = on("turn_end", "turn_start")


@pytest.fixture
def state() -> RunState:
    state = RunState([PAUSE, GREP, TESTS, WAIT])
    state.know(OWNER)
    return state


def request(number: int = 1) -> Request:
    return Request(f"r{number}", OWNER, 100, 16)


def tell(state: RunState, at: float, name: str, **attributes: object) -> tuple[Owner, ...]:
    return state.observe(Event(at, name, {"tenant": "t", "session": "s", **attributes}))


def test_parallel_calls_open_both_and_each_result_closes_its_own(state: RunState) -> None:
    state.arrive(request(), 0.0)
    state.answer(request(), 1.0, tool_calls=[("grep", "c1"), ("run_tests", "c2")])
    assert state.opening(GREP, TURN) == Opening(1.0, 3601.0)
    assert state.opening(TESTS, TURN) == Opening(1.0, 3601.0)
    tell(state, 3.0, "tool_result", call="c1")
    assert state.phase(OWNER) == "tool_pause"
    assert state.opening(GREP, TURN) == Opening(1.0, 3601.0, grace_until=33.0)
    assert state.opening(TESTS, TURN) == Opening(1.0, 3601.0)
    assert state.opening(PAUSE, TURN) == Opening(1.0, 3601.0)  # a matching call is still open
    tell(state, 5.0, "tool_result", call="c2")
    assert state.phase(OWNER) == "running"


def test_the_innermost_opening_is_the_latest(state: RunState) -> None:
    tell(state, 1.0, "tool_call", tool="grep", call="c1")
    tell(state, 4.0, "tool_call", tool="grep", call="c2")
    assert state.opening(GREP, TURN) == Opening(4.0, 3604.0)
    tell(state, 5.0, "tool_result", call="c2")
    assert state.opening(GREP, TURN) == Opening(1.0, 3601.0)


def test_without_ids_results_match_oldest_first_per_tool(state: RunState) -> None:
    for at, tool in ((1.0, "run_tests"), (2.0, "grep"), (3.0, "grep")):
        tell(state, at, "tool_call", tool=tool)
    tell(state, 10.0, "tool_result", tool="grep")
    opening = state.opening(GREP, TURN)
    assert opening is not None and opening.at == 3.0
    assert state.read("p50", "tool.duration", TURN) == 8.0  # the first grep took 8 s
    tell(state, 11.0, "tool_result", tool="unheard_of")
    assert state.phase(OWNER) == "tool_pause"


def test_a_grace_lasts_until_the_resuming_request_has_touched_its_blocks(state: RunState) -> None:
    tell(state, 1.0, "tool_call", tool="grep")
    state.arrive(request(), 10.0)
    assert state.phase(OWNER) == "running"
    assert state.opening(GREP, TURN) == Opening(1.0, 3601.0, grace_until=40.0)
    assert state.touched("r1", 12.0) == (OWNER,)
    assert state.opening(GREP, TURN) is None
    assert state.touched("r1", 12.0) == ()


def test_a_grace_ends_by_itself_after_30_s(state: RunState) -> None:
    tell(state, 1.0, "tool_call", tool="grep")
    tell(state, 10.0, "tool_result", tool="grep")
    assert state.advance(39.9) == ()
    assert state.opening(GREP, TURN) is not None
    assert state.advance(40.0) == (OWNER,)  # over at t >= end
    assert state.opening(GREP, TURN) is None


def test_other_moves_leave_no_grace_and_an_end_takes_it_away(state: RunState) -> None:
    tell(state, 1.0, "tool_call", tool="grep")
    tell(state, 2.0, "session_end")
    assert (state.phase(OWNER), state.opening(GREP, TURN)) == ("ended", None)
    state.arrive(request(), 3.0)
    tell(state, 4.0, "turn_end")
    tell(state, 5.0, "turn_start")
    assert state.opening(WAIT, TURN) is not None
    tell(state, 6.0, "session_end")
    assert state.opening(WAIT, TURN) is None


def test_a_bound_does_not_close_an_interval_but_the_owner_is_named_when_it_passes() -> None:
    bounded = on("tool_call", "tool_result", at_most=60.0)
    state = RunState([bounded])
    state.know(OWNER)
    tell(state, 70.0, "tool_call", tool="grep")
    assert state.advance(129.0) == ()
    assert state.advance(130.0) == (OWNER,)
    assert state.opening(bounded, TURN) == Opening(70.0, 130.0)
    assert state.phase(OWNER) == "tool_pause"


def test_ended_is_left_only_by_a_request_a_fork_or_resume(state: RunState) -> None:
    for name, left in (("turn_start", False), ("tool_call", False), ("tool_result", False), ("resume", True)):
        tell(state, 1.0, "session_end")
        tell(state, 2.0, name, tool="grep")
        assert (state.phase(OWNER) != "ended") == left, name
    tell(state, 3.0, "session_end")
    state.arrive(request(), 4.0)
    assert state.phase(OWNER) == "running"


def test_what_comes_late_or_twice_moves_nothing(state: RunState) -> None:
    state.arrive(request(), 10.0)
    state.answer(request(), 11.0, finished=True)
    tell(state, 10.5, "tool_result", tool="grep")
    assert state.phase(OWNER) == "human_pause"
    tell(state, 20.0, "turn_end")  # the same again: the wait began at 11
    assert state.opening(WAIT, TURN) == Opening(11.0, 3611.0)
    state.arrive(request(2), 30.0)
    tell(state, 29.0, "turn_end")
    assert state.phase(OWNER) == "running"
    tell(state, 31.0, "tool_call", tool="grep", call="c1")
    tell(state, 32.0, "tool_result", call="c1")
    tell(state, 33.0, "tool_call", tool="grep", call="c1")  # delivered again after its result
    assert state.phase(OWNER) == "running"


def test_an_answer_has_two_seconds_to_be_classified(state: RunState) -> None:
    state.arrive(request(), 0.0)
    state.answer(request(), 1.0)
    assert (state.phase(OWNER), state.idle_since(OWNER)) == ("running", 1.0)
    tell(state, 2.9, "tool_call", tool="grep")
    assert state.phase(OWNER) == "tool_pause"
    state.arrive(request(2), 10.0)
    state.answer(request(2), 11.0)
    assert state.advance(13.0) == (OWNER,)
    assert state.phase(OWNER) == "idle"


def test_a_classified_answer_is_not_looked_at_again(state: RunState) -> None:
    state.arrive(request(), 0.0)
    state.answer(request(), 1.0)
    tell(state, 1.5, "tool_call", tool="grep", call="c1")
    tell(state, 2.0, "tool_result", call="c1")
    state.advance(3.0)  # two seconds after the answer
    assert state.phase(OWNER) == "running"


def test_a_side_request_does_not_end_the_pause_or_the_run(state: RunState) -> None:
    state.arrive(request(), 0.0)
    state.arrive(request(2), 0.5)
    state.answer(request(2), 1.0, finished=True)
    assert state.phase(OWNER) == "running"  # the first still runs
    state.answer(request(), 2.0, tool_calls=["grep"])
    state.arrive(request(3), 3.0, results=())
    assert state.phase(OWNER) == "tool_pause"
    state.arrive(request(4), 4.0)
    assert state.phase(OWNER) == "running"


def test_a_cancelled_request_leaves_its_owner_idle(state: RunState) -> None:
    state.arrive(request(), 0.0)
    state.cancel("r1", 1.0)
    state.cancel("r1", 1.0)
    state.advance(3.0)
    assert (state.phase(OWNER), state.idle_since(OWNER)) == ("idle", 1.0)


def test_conditions_see_the_owner_and_its_request_too() -> None:
    mine = IntervalPattern(EventPattern("tool_call", (("plan", "=", ("free",)), ("session", "=", ("s",)))), None)
    absent = IntervalPattern(EventPattern("tool_call", (("tool", "!=", ("grep",)),)), None)
    state = RunState([mine, absent])
    paid = Request("r", OWNER, 100, 16, attributes={"plan": "free"})
    state.arrive(paid, 0.0)
    tell(state, 1.0, "tool_call")
    assert state.opening(mine, TURN) is not None
    assert state.opening(absent, TURN) is None  # no tool: no condition on it holds
