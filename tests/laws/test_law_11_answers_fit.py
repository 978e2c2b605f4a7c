"""Law 11. Every hint gets an answer: accepted, clipped, deferred, ignored, rejected or unknown. Never silence.

Random requests with directives, claims, releases, events and evictions go through steering; each is answered with
numbers that fit, and answers agree with what the pool then shows.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.claims.answers import Answer
from kvpolicy.directive import HOLD, PIN, Retention, Ttl
from kvpolicy.request import Owner
from kvpolicy.steering.calls import Wish
from kvpolicy.workflow.events import Event
from tests.laws.world import OWNERS, POLICIES, World, chain, spans

STATUSES = {"accepted", "clipped", "deferred", "ignored", "rejected", "unknown"}
KINDS = ("system", "tools", "turn", "tool_result", "document", "scratchpad")

prompts = st.lists(st.integers(0, 5), min_size=1, max_size=8)
wishes = st.builds(
    Wish,
    priority=st.none() | st.integers(0, 100),
    ttl=st.none() | st.builds(Ttl, st.sampled_from([0.0, 1.0, 50.0]), st.booleans()),
    retention=st.sampled_from(
        [Retention(), Retention(PIN), Retention("drop"), Retention(HOLD, 5.0), Retention(HOLD, until="tool_result")]
    ),
    lifetime=st.sampled_from(words.LIFETIMES),
)
step = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 4), prompts, st.lists(st.sampled_from(KINDS), min_size=8, max_size=8)),
    st.tuples(st.just("claim"), st.integers(0, 4), prompts, wishes),
    st.tuples(st.just("release"), st.integers(0, 4), st.none() | prompts, st.none()),
    st.tuples(st.just("event"), st.integers(0, 4), st.sampled_from(list(words.EVENTS)), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 60.0]), st.none(), st.none()),
    st.tuples(st.just("evict"), st.integers(1, 5), st.none(), st.none()),
)


def fits(answers: list[Answer]) -> None:
    """Every answer says one of the six things, with numbers that agree with it."""
    for answer in answers:
        assert answer.status in STATUSES
        assert 0 <= answer.granted <= answer.requested
        if answer.status == "accepted":
            assert answer.granted == answer.requested
        else:
            assert answer.reason
        if answer.status in ("clipped", "deferred"):
            assert answer.granted < answer.requested
        row = answer.as_json()
        assert {"status", "requested", "granted", "reason"} <= row.keys()


def words_of(prompt: list[int]) -> list[str]:
    return [f"w{n}" for n in prompt]


@given(st.sampled_from(POLICIES), st.lists(step, min_size=1, max_size=20), st.sampled_from([100, 10, 4]))
@settings(max_examples=150)
def test_every_hint_gets_an_answer(text: str, history: list[tuple[Any, ...]], blocks: int) -> None:
    world = World(text, blocks)
    steering = world.steering
    for what, whom, which, more in history:
        if what == "ask":
            parts = spans(*((kind, 1) for kind, _ in zip(sorted(more, key=KINDS.index), which, strict=False)))
            outcome = world.ask(OWNERS[whom], words_of(which), parts)
            hints = outcome.hints
            assert outcome.plan is not None
            told = [answer.span for answer in hints]
            assert sorted(told) == sorted({d.span for d in outcome.plan.directives})  # one each, none twice
            fits(hints)
        elif what == "claim":
            hashes = chain(*words_of(which))
            there = steering.pool.match(hashes)
            hints = steering.claim(OWNERS[whom], hashes, world.now, more)
            assert len(hints) == 1
            fits(hints)
            assert (hints[0].status == "unknown") == (there == 0)
            assert hints[0].granted <= there
            if hints[0].status in ("accepted", "clipped") and more.retention.mode == PIN:
                protected = sum(steering.show(hashes, i)["protected"] for i in range(there))
                assert hints[0].granted <= protected
        elif what == "release":
            hints = steering.release(OWNERS[whom], world.now, None if which is None else chain(*words_of(which)))
            assert len(hints) == 1
            fits(hints)
        elif what == "event":
            owner = OWNERS[whom]
            hints = steering.event(
                Event(world.now, which, {"tenant": owner.tenant, "session": owner.session}), world.now
            )
            assert len(hints) == 1
            fits(hints)
        elif what == "evict":
            steering.evict(whom, world.now)
        else:
            world.at(world.now + whom)
    assert steering.counters["failures"] == 0


def test_without_a_policy_a_hint_is_ignored_not_swallowed() -> None:
    world = World(None)
    (answer,) = world.steering.event(Event(0.0, "turn_end", {"session": "s"}), 0.0)
    assert answer.status == "ignored" and answer.reason


def test_nobody_meant_is_an_answer() -> None:
    world = World(POLICIES[0])
    (answer,) = world.steering.event(Event(0.0, "turn_end", {"session": "nobody"}), 0.0)
    assert answer.status == "ignored" and answer.reason


def test_what_breaks_is_an_answer(monkeypatch: Any) -> None:
    world = World(POLICIES[0])
    world.ask(Owner(session="s"), "ab", spans(("system", 1), ("turn", 1)))
    monkeypatch.setattr(world.steering.state, "observe", lambda event: 1 / 0)
    (answer,) = world.steering.event(Event(0.0, "turn_end", {"session": "s"}), 0.0)
    assert answer.status == "rejected" and "ZeroDivisionError" in (answer.reason or "")


def test_an_answer_changes_when_the_budget_takes_something_back() -> None:
    """What was accepted is clipped once a stronger claim needs the room, and the answer, read again, says so."""
    world = World("policy p\nturn { retention: pin priority: 50 }\nsystem { retention: pin priority: 90 }\n", 10)
    first = world.ask(Owner(session="a"), "abcd", spans(("turn", 4)))
    assert [a.status for a in first.hints] == ["accepted"]
    second = world.ask(Owner(session="b"), "wxyz", spans(("system", 4)))
    assert [a.status for a in second.hints] == ["accepted"]
    assert [(a.status, a.granted) for a in first.hints] == [("clipped", 0)]
