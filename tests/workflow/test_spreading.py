"""An event that reaches owners a part at a time leaves each as if it had reached all at once, in each owner's order.

Two states hear of the same: one takes events whole, the other two owners at a step, at any moment that comes.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import examined
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.state import RunState

POLICY = """
policy p
on tool_call until tool_result { turn { retention: hold 20s } }
on step_start[node=a] until step_end { system { priority: 60 } }
on turn_end until turn_start { document { priority: 50 } }
"""
INTERVALS = examined(load_text(POLICY)).policy().intervals
OWNERS = [Owner("t", f"s{n % 4}", f"r{n % 2}", ("a", "b", None)[n % 3]) for n in range(9)] + [Owner("u", "s0")]
FIELD = st.fixed_dictionaries(
    {"tenant": st.sampled_from(["t", "t", "t", "u"])},
    optional={
        "session": st.sampled_from(["s0", "s1", "nobody"]),
        "run": st.sampled_from(["r0", "r1"]),
        "agent": st.sampled_from(["a", "b", None]),
        "node": st.sampled_from(["a", "x"]),
        "call": st.sampled_from(["c0", "c1", None]),
        "tool": st.just("grep"),
    },
)
NAME = st.sampled_from(
    [
        "tool_call",
        "tool_call",
        "tool_result",
        "turn_end",
        "turn_start",
        "step_start",
        "step_end",
        "session_end",
        "resume",
    ]
)
OWNER = st.integers(0, len(OWNERS) - 1)
STEP = st.one_of(
    st.tuples(st.just("event"), NAME, FIELD),
    st.tuples(st.just("event"), NAME, FIELD),
    st.tuples(st.just("alone"), NAME, OWNER),
    st.tuples(st.just("arrive"), OWNER),
    st.tuples(st.just("answer"), OWNER, st.booleans()),
    st.tuples(st.just("forget"), OWNER),
    st.tuples(st.just("on"), st.just(None)),
    st.tuples(st.just("wait"), st.floats(0.1, 30)),
)


class Both:
    """The whole one and the one that goes in steps."""

    def __init__(self) -> None:
        self.whole, self.parts = RunState(INTERVALS), RunState(INTERVALS)
        self.parts.at_once = 2
        self.met: list[tuple[Event, Owner]] = []
        self.parts.reached = lambda event, owners: self.met.extend((event, owner) for owner in owners)
        self.now, self.number, self.running = 1.0, 0, {}

    def do(self, step: Any) -> None:
        kind, *rest = step
        self.now += rest[0] if kind == "wait" else 0.01
        for state in (self.whole, self.parts):
            if kind == "event":
                state.observe(Event(self.now, rest[0], rest[1]))
            elif kind == "alone":
                state.observe(Event(self.now, rest[0], {"call": "c1", "tool": "ls"}), OWNERS[rest[1]])
            elif kind == "arrive":
                state.arrive(Request(f"{rest[0]}", OWNERS[rest[0]], 64, 16), self.now)
            elif kind == "answer":
                calls = ["grep"] if rest[1] else []
                state.answer(Request(f"{rest[0]}", OWNERS[rest[0]], 64, 16), self.now, tool_calls=calls, finished=True)
            elif kind == "forget":
                state.forget(OWNERS[rest[0]])
            elif kind == "wait":
                state.advance(self.now)
        if kind == "on":
            self.parts.go_on()
        if kind in ("alone", "arrive", "answer"):
            owner = OWNERS[rest[1] if kind == "alone" else rest[0]]
            assert seen(self.parts, owner) == seen(self.whole, owner), "what is touched is up to date"

    def end(self) -> None:
        self.now += 100.0
        while self.parts.go_on():
            pass
        self.whole.advance(self.now)
        self.parts.advance(self.now)
        while self.parts.is_behind:
            self.parts.go_on()
            self.parts.advance(self.now)


def seen(state: RunState, owner: Owner) -> Any:
    life = state._owners.get(owner)
    if life is None:
        return None
    openings = state.intervals_of(owner)
    open_now = None if openings is None else [openings(interval) is not None for interval in INTERVALS]
    return life.phases.phase, life.phases.at, life.place(), [c.id for c in life.phases.calls], open_now


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=3, max_size=40))
def test_in_parts_is_as_whole(steps: list[Any]) -> None:
    both = Both()
    for number in range(6):
        both.do(("arrive", number))
    for step in steps:
        both.do(step)
    both.end()
    for owner in OWNERS:
        assert seen(both.parts, owner) == seen(both.whole, owner)
    assert both.parts.owners() == both.whole.owners()


def test_whom_a_step_means_may_hang_on_what_is_on_its_way() -> None:
    call = ("event", "tool_call", {"tenant": "t"})
    step = ("event", "step_start", {"tenant": "t", "tool": "grep", "run": "r0", "call": "c0", "node": "a"})
    test_in_parts_is_as_whole.hypothesis.inner_test([call, ("arrive", 0), step])  # type: ignore[attr-defined]


def test_a_result_of_a_call_alone_is_for_nobody_whose_calls_have_no_name() -> None:
    steps = [("event", "tool_call", {"tenant": "t"}), ("on", None), ("on", None), ("on", None)]
    inner = test_in_parts_is_as_whole.hypothesis.inner_test  # type: ignore[attr-defined]
    inner([*steps, ("event", "tool_result", {"tenant": "t", "call": "c0"})])
    inner([*steps[:2], ("event", "tool_result", {"tenant": "t", "call": "c0"})])
    both = Both()
    for number in range(6):
        both.do(("arrive", number))
    for step in (*steps, ("event", "tool_result", {"tenant": "t", "call": "c0"})):
        both.do(step)
    both.end()
    assert [seen(both.parts, owner)[0] for owner in OWNERS[:6]] == ["tool_pause"] * 6


def test_an_event_is_told_once_for_each_owner_and_an_early_one_is_kept() -> None:
    both = Both()
    for number in range(9):
        both.do(("arrive", number))
    both.do(("event", "tool_call", {"tenant": "t", "tool": "grep"}))
    assert both.parts.rest is not None and both.parts.rest.could == 9
    both.do(("arrive", 7))  # its turn comes before those of the others
    assert [owner for _, owner in both.met] == [OWNERS[7]]
    while both.parts.go_on():
        pass
    assert sorted(owner.session for _, owner in both.met) == sorted(owner.session for owner in OWNERS[:9])
    assert len({owner for _, owner in both.met}) == 9


def test_one_that_means_nobody_yet_waits_for_its_owner() -> None:
    both = Both()
    for number in range(9):
        both.do(("arrive", number))
    late = {"tenant": "t", "call": "late", "tool": "ls"}
    both.do(("event", "tool_result", late))
    assert both.parts.rest is None and both.met == []
    both.do(("event", "tool_call", {**late, "session": "s0", "run": "r0", "agent": "a"}))
    both.end()
    assert seen(both.parts, OWNERS[0]) == seen(both.whole, OWNERS[0])


def test_tenants_take_turns() -> None:
    state = RunState(INTERVALS)
    state.at_once = 2
    met: list[str] = []
    state.reached = lambda event, owners: met.extend(owner.tenant for owner in owners)
    for tenant, count in (("big", 20), ("small", 4)):
        for number in range(count):
            state.arrive(Request(f"{tenant}{number}", Owner(tenant, f"s{number}"), 64, 16), 1.0)
    for tenant in ("big", "big", "small"):
        state.observe(Event(2.0, "tool_call", {"tenant": tenant, "tool": "grep"}))
    while state.go_on():
        pass
    assert met[:8] == ["big", "big", "small", "small"] * 2
    assert (met.count("big"), met.count("small")) == (40, 4)
