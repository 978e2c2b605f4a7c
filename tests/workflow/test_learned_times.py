"""Learned times: nearest rank, bounded, per tenant; chances of a return; what is never measured is None."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.policy.model import NEVER, EventPattern, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.durations import ENDED, Series
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.gauges import CostModel
from kvpolicy.workflow.hold import DEFAULT_HOLD_S, Memoryfulness, best_hold
from kvpolicy.workflow.learned_times import STEP, TOOL
from kvpolicy.workflow.state import RunState

OWNER = Owner("t", "s")
TURN = Subject("turn", {"tokens": 1000}, OWNER)


def series(*seconds: float) -> Series:
    made = Series()
    for value in seconds:
        made.add(value)
    return made


def learned(tool: str, *seconds: float, tenant: str = "t") -> RunState:
    """A state that has seen calls of one tool, of another owner."""
    state = RunState()
    now = 0.0
    for number, value in enumerate(seconds):
        owner = Owner(tenant, "past")
        request = Request(f"r{number}", owner, 10, 16)
        state.arrive(request, now)
        state.answer(request, now, tool_calls=[(tool, f"c{number}")])
        now += value
        state.observe(Event(now, "tool_result", {"tenant": tenant, "session": "past", "call": f"c{number}"}))
    state.advance(10_000.0)
    return state


def call(state: RunState, at: float, *tools: str) -> None:
    request = Request("now", OWNER, 10, 16)
    state.arrive(request, at)
    state.answer(request, at, tool_calls=tools)


@pytest.mark.parametrize(
    ("tool", "history", "pause"),
    [
        ("run_tests", (320.0, 380.0, 400.0, 410.0, 900.0), 600.0),  # the 5th of 5 is 900, over the ceiling
        ("grep", (0.2, 0.3, 0.3, 0.5, 2.0), 30.0),  # 2 s, under the floor
        ("deploy", (), 300.0),  # no history: the default
    ],
)
def test_case_c09_pauses_by_the_tools_own_p90(tool: str, history: tuple[float, ...], pause: float) -> None:
    """`clamp(p90(tool.duration) else 300s, 30s, 600s)`."""
    state = learned(tool, *history)
    call(state, 10_000.0, tool)
    p90 = state.read("p90", "tool.duration", TURN)
    assert min(max(300.0 if p90 is None else p90, 30.0), 600.0) == pause
    assert state.read("count", "tool.duration", TURN) == len(history)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.sampled_from((50, 90, 95)))
def test_nearest_rank(seconds: list[float], rank: int) -> None:
    """The smallest duration that at least that share does not exceed."""
    value = series(*seconds).percentile(rank)
    assert value in seconds
    share = sum(x <= value for x in seconds) * 100
    assert share >= rank * len(seconds)
    assert all(sum(y <= x for y in seconds) * 100 < rank * len(seconds) for x in seconds if x < value)


def test_what_is_no_duration_is_ignored() -> None:
    made = series(1.0, -1.0, math.inf, math.nan)
    made.add(math.nan, way=ENDED)
    assert (made.sorted, made.weight) == ([1.0], 1.0)


def test_several_tools_at_once_give_the_longest_and_other_tools_do_not_count() -> None:
    state = learned("grep", 1.0, 2.0)
    for tool, seconds in (("run_tests", 100.0), ("deploy", 50.0)):
        state.learned.times("t").over(TOOL, tool, 0.0, seconds)
    call(state, 10_000.0, "grep", "run_tests", "unheard_of")
    assert state.read("p50", "tool.duration", TURN) == 100.0
    assert state.read("count", "tool.duration", TURN) == 1
    assert state.read("p50", "tools.duration", TURN) == 2.0
    assert state.read("mean", "tools.duration", TURN) == pytest.approx(153.0 / 4)
    assert state.read("p50", "human.duration", TURN) is None
    assert state.read("count", "human.duration", TURN) == 0


def test_tenants_do_not_learn_from_each_other() -> None:
    state = learned("grep", 1.0, tenant="other")
    call(state, 10_000.0, "grep")
    assert state.read("p50", "tool.duration", TURN) is None
    assert state.read("p50", "tools.duration", TURN) is None


def test_the_tool_that_ran_is_known_until_its_blocks_are_touched() -> None:
    state = learned("grep", 1.0)
    call(state, 10_000.0, "grep")
    state.arrive(Request("next", OWNER, 10, 16), 10_005.0)
    assert state.read("p50", "tool.duration", TURN) == 1.0
    state.touched("next", 10_005.0)
    assert state.read("p50", "tool.duration", TURN) is None


def test_human_pauses_are_measured_by_arrivals_and_by_events() -> None:
    state = RunState()
    first, second = Request("r1", OWNER, 10, 16), Request("r2", OWNER, 10, 16)
    state.arrive(first, 0.0)
    state.answer(first, 1.0, finished=True)
    state.arrive(second, 31.0)
    state.answer(second, 32.0, finished=True)
    state.observe(Event(42.0, "turn_start", {"session": "s"}))
    assert state.learned.times("t").human.sorted == [10.0, 30.0]


def test_the_chance_of_a_return_given_the_time_waited() -> None:
    made = series(1.0, 2.0, 3.0, 10.0)
    made.add(100.0, way=ENDED)
    assert made.return_probability(0.0) == 4 / 5
    assert made.return_probability(0.0, 2.0) == 2 / 5
    assert made.return_probability(3.0, 1.0) == 0.0
    assert made.return_probability(3.0) == 1 / 2  # one of the two that lasted longer came back
    assert made.return_probability(50.0) == 0.0
    assert made.return_probability(100.0) is None  # nothing is known of so long a pause
    assert made.remaining(2.0) == 1.0
    assert made.remaining(10.0) == 402.0  # all that lasted longer ended for good: by recency, from 100 s on


def test_a_call_that_is_open_counts_as_far_as_it_was_seen_and_a_step_does_not() -> None:
    state = RunState()
    for number in range(3):
        for name, at in (("start", 0.0), ("end", 1.0)):
            told = {"tenant": "t", "run": f"r{number}", "session": "s", "node": "plan"}
            state.observe(Event(10.0 * number + at, f"step_{name}", told))
        call(state, 10.0 * number + 2.0, "grep")
        state.observe(Event(10.0 * number + 3.0, "tool_result", {"tenant": "t", "session": "s"}))
    times = state.learned.times("t")
    assert [times.return_probability(kind, None, 0.0, 2.0, 40.0) for kind in (TOOL, STEP)] == [1.0, 1.0]
    state.observe(Event(40.0, "step_start", {"tenant": "t", "run": "open", "session": "s", "node": "plan"}))
    call(state, 40.0, "grep")
    state.advance(100.0)
    assert [times.return_probability(kind, None, 0.0, 2.0, 100.0) for kind in (TOOL, STEP)] == [0.75, 1.0]
    state.forget(OWNER)  # lost sight of
    assert [times.return_probability(kind, None, 0.0, 2.0, 100.0) for kind in (TOOL, STEP)] == [0.75, 1.0]


def test_sessions_that_never_came_back_lower_the_chance() -> None:
    state = RunState()
    for number in range(4):
        owner = Owner("t", f"s{number}")
        request = Request(f"r{number}", owner, 10, 16)
        state.arrive(request, 0.0)
        state.answer(request, 0.0, finished=True)
    state.arrive(Request("back", Owner("t", "s1"), 10, 16), 60.0)
    state.observe(Event(80.0, "session_end", {"session": "s2"}))
    state.forget(Owner("t", "s3"))
    waiting = Subject("turn", {}, Owner("t", "s0"))
    assert state.read("return_probability", 600.0, waiting) is None  # no pause is known to have lasted longer than 80 s
    fresh = Subject("turn", {}, Owner("t", "s1"))
    state.answer(Request("back", Owner("t", "s1"), 10, 16), 80.0, finished=True)
    assert state.read("return_probability", 600.0, fresh) == 1 / 4  # s0 still waits, and has done so for 80 s
    assert state.read("reuse_probability", None, fresh) == 1 / 4
    assert state.read("return_probability", 10.0, fresh) == 0.0
    assert state.read("return_probability", 10.0, Subject("turn", {}, Owner("t", "s2"))) == 0.0  # ended
    assert state.read("next_use", None, Subject("turn", {}, Owner("t", "s2"))) == NEVER


def test_next_use_and_eta_know_how_long_the_pause_has_lasted() -> None:
    state = learned("grep", 10.0, 20.0, 60.0)
    call(state, 10_000.0, "grep")
    result = EventPattern("tool_result")
    assert state.read("next_use", None, TURN) == 20.0
    state.advance(10_030.0)
    assert state.read("next_use", None, TURN) == 30.0  # only the pause of 60 s lasted longer than 30
    assert state.read("eta", result, TURN) == 30.0
    assert state.read("eta", EventPattern("turn_start"), TURN) is None
    state.advance(10_061.0)
    assert state.read("next_use", None, TURN) == 195.0  # longer than any: three times as long again, and 12 s
    assert state.read("return_probability", 60.0, TURN) is None
    state.observe(Event(10_100.0, "tool_call", {"session": "s", "tool": "slow", "eta": 50.0, "call": "x"}))
    state.advance(10_110.0)
    assert state.read("eta", EventPattern("tool_result", (("tool", "=", ("slow",)),)), TURN) == 40.0


def test_costs_and_gauges() -> None:
    state = RunState()
    for function in ("miss_cost", "bytes", "queue_delay", "hits", "next_use", "hit_density", "steps_to_next_use"):
        assert state.read(function, "turn" if function == "hits" else None, TURN) is None
    assert [state.read(f, a, TURN) for f, a in (("pressure", "gpu"), ("idle", None), ("age", None))] == [0.0, 0.0, 0.0]
    state.gauges.cost = CostModel(bytes_per_token=100.0, prefill_tokens_per_s=500.0, reload_bytes_per_s=100_000.0)
    assert state.read("bytes", None, TURN) == 100_000.0
    assert state.read("miss_cost", None, TURN) == 1.0  # reload; recomputing would take 2 s
    state.gauges.pressure = {"gpu": 0.75}.__getitem__
    assert state.read("pressure", "gpu", TURN) == 0.75
    state.gauges.record_queue_delay(2.0)
    state.gauges.record_queue_delay(4.0)
    assert state.read("queue_delay", None, TURN) == 3.0
    state.know(OWNER)
    state.record_hit(OWNER, "turn")
    assert state.read("hits", "turn", TURN) == 1


def test_idle_age_turns_and_branches() -> None:
    state = RunState()
    request = Request("r", OWNER, 10, 16, attributes={"turn": 5})
    state.arrive(request, 10.0)
    assert state.read("idle", None, TURN) == 0.0
    state.answer(request, 12.0, finished=True)
    state.advance(20.0)
    assert state.read("idle", None, TURN) == 8.0
    assert state.read("age", None, TURN) == 10.0
    assert state.read("turns_ago", None, Subject("turn", {"turn": 2}, OWNER)) == 3
    assert state.read("fan_out", None, TURN) == 1
    for name in ("b1", "b2", "b3"):
        state.know(Owner("t", "s", branch=name, parent="s"))
    assert state.read("fan_out", None, TURN) == 3
    state.observe(Event(21.0, "branch_pruned", {"session": "s", "branch": "b2"}))
    assert state.read("fan_out", None, TURN) == 2


def test_best_hold_is_the_utility_maximum_among_observed_durations() -> None:
    cold = series(*[1.0] * 100)
    assert best_hold(cold, cold, 10.0) == DEFAULT_HOLD_S
    known = series(*[1.0] * 50, *[4.0] * 40, *[100.0] * 11)
    expected = max([0.0, *known.sorted], key=lambda tau: sum(x <= tau for x in known.sorted) / 101 * 10.0 - tau)
    assert best_hold(known, known, 10.0) == expected == 4.0
    assert best_hold(known, known, 5.0) == 1.0
    assert best_hold(known, known, 0.5) == 0.0  # no hold pays
    few = series(*[50.0] * 5)
    assert best_hold(few, known, 10.0) == 4.0  # too little of its own
    assert best_hold(series(*[50.0] * 100), known, 1000.0) == 100.0  # still too little
    assert best_hold(series(*[50.0] * 101), known, 1000.0) == 50.0  # K = 100


@given(st.lists(st.integers(0, 60), min_size=101, max_size=160), st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_best_hold_is_as_good_as_trying_every_duration(durations: list[int], gains: list[int]) -> None:
    """Whole numbers, so that ties are ties. Asked between observations, so that what is kept between them is fresh."""
    made = series(*map(float, durations[:101]))
    for gain, added in zip(gains, (*durations[101:], *[None] * 6), strict=False):
        if added is not None:
            made.add(float(added))

        def utility(tau: float, gain: int = gain) -> Fraction:
            share = Fraction(sum(x <= tau for x in made.sorted), made.count)
            return share * gain - Fraction(tau)

        found = best_hold(None, made, float(gain))
        assert utility(found) == max(map(utility, [0.0, *made.sorted]))


def test_best_hold_in_a_run() -> None:
    state = learned("grep", *[1.0] * 101)
    state.gauges.cost = CostModel(prefill_tokens_per_s=100.0)  # 10 s for the span
    assert state.read("best_hold", None, TURN) == 0.0  # no tool runs
    call(state, 10_000.0, "grep")
    assert state.read("best_hold", None, TURN) == 1.0
    assert state.read("best_hold", None, Subject("turn", {"tokens": 1000, "last_step": True}, OWNER)) == 0.0


def test_memoryfulness_is_the_correlation_of_turns_done_and_left() -> None:
    made = Memoryfulness()
    assert made.eta() == 1.0
    lengths = [3, 7, 20, 2]
    for turns in lengths:
        made.ended(turns)
    pairs = [(k, n - k) for n in lengths for k in range(1, n + 1)]
    mean_k = sum(k for k, _ in pairs) / len(pairs)
    mean_r = sum(r for _, r in pairs) / len(pairs)
    covariance = sum((k - mean_k) * (r - mean_r) for k, r in pairs)
    spread = math.sqrt(sum((k - mean_k) ** 2 for k, _ in pairs) * sum((r - mean_r) ** 2 for _, r in pairs))
    assert made.eta() == pytest.approx(max(0.0, -covariance / spread))
